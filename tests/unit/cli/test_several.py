"""One verb for several environments: names, patterns, `--all`, one question, one list."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import InvalidError
from mlstack.yaml.write import to_yaml_documents
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import crd
from tests.support.registry import small_app

NAMES = ("eu/a", "eu/b", "us")


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    app_dir = small_app(tmp_path)
    monkeypatch.chdir(app_dir.root)
    run.ok("generate web front --image nginx")
    for name in NAMES:
        run.ok(f"env add {name} --no-preset -n {name.replace('/', '-')}")
    return app_dir.root


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("--all", NAMES),
        ("us eu/a", ("us", "eu/a")),
        ("eu/* us eu/a", ("eu/a", "eu/b", "us")),
        ("us 'eu/[b]'", ("us", "eu/b")),
    ],
)
def test_environments_are_taken_in_the_order_they_are_named(
    run: Runner, app: Path, words: str, names: tuple[str, ...]
) -> None:
    document = run(f"validate {words} -o json").json
    assert document["ok"]
    assert (document["apiVersion"], document["kind"]) == ("mlstack.dev/v1", "ResultList")
    assert tuple(item["environment"] for item in document["items"]) == names


SESSIONS = {
    "one name gives the result itself": """
        validate us -o json | 0 | "kind": "ValidateResult"
        status nope eu/a -o json | 4
        validate asia-* | 4
        validate us --all | 2
    """,
    "apply asks one question and goes in order": """
        apply --all
        param set front color green
        says yes
        apply --all
        asked = 1
        question = Apply all this in `eu/a`, `eu/b`, `us`?
        diff --all
        status --all
        says no
        param set front color red
        apply --all | 1
        diff --all | 1
    """,
    "without a terminal deletions want a yes": """
        apply eu/a us
        delete eu/a us | 2 | `eu/a`, `us`
        delete eu/a us --yes
        status eu/a | 1
        status us | 1
    """,
    "a protected one wants its name beside the question": """
        env set us --protected
        apply --all --yes | 2
        status eu/a | 1
        types us
        apply --all --yes | 0 | --- eu/a --- | --- eu/b --- | --- us ---
        types no
        param set front color green
        apply --all --yes | 1
    """,
    "two names of diff are two sides": """
        diff local:us local:eu/a -o json | 0 | "kind": "CompareResult"
        diff 'eu/*' -o json | 1 | "kind": "ResultList"
        diff us eu/a eu/b -o json | 1 | "kind": "ResultList"
    """,
    "what is about one refuses several": """
        plan --all --out x.json | 2
        status --all --watch | 2
        delete us --expired | 2
        plan --all
    """,
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_a_verb_for_several(run: Runner, app: Path, session: str) -> None:
    run.play(session, asked=lambda: len(run.asked), question=lambda: run.asked[-1])


def test_a_summary_of_several_has_names_alone(run: Runner, app: Path) -> None:
    ran = run("diff --all --summary")
    assert (ran.code, "--- us ---" in ran.out, "us/front" in ran.out) == (1, True, True)
    assert "apiVersion" not in ran.out


def test_what_cannot_be_planned_stops_the_others_unless_they_are_to_go_on(run: Runner, app: Path) -> None:
    file = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents: {front: {replicas: 99}}\n"
    write_tree(app, {"environments/us/params.yaml": file})
    ran = run("apply --all -o json")
    assert (ran.code, ran.json["items"][0]["error"]["exitCode"]) == (3, 3)
    assert run("apply --all").err.startswith("--- us ---\nerror: ")
    run.play("status eu/a | 1\nvalidate --all --keep-going | 3")
    ran = run("apply us eu/a --keep-going -o json")
    rows = [(item["environment"], item["ok"], item.get("counts")) for item in ran.json["items"]]
    assert ran.code == 3
    assert rows == [("us", False, None), ("eu/a", True, {"created": 2})]  # its namespace too


@pytest.mark.parametrize(
    ("error", "code", "outcome"),
    [(KeyboardInterrupt(), 130, "created"), (InvalidError("`Secret eu-b/own` is refused: odd"), 6, "failed")],
    ids=["interrupted", "failed"],
)
def test_a_run_that_ends_half_way_is_in_the_list_with_what_was_done(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, outcome: str
) -> None:
    write_tree(app, {"components/own.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: own}\n"})
    cluster = run.cluster("minikube")
    original = cluster.apply

    def apply(obj: Mapping[str, Any], **how: Any) -> Any:
        if (obj["kind"], obj["metadata"].get("namespace")) == ("Secret", "eu-b") and not how.get("dry_run"):
            raise error
        return original(obj, **how)

    monkeypatch.setattr(cluster, "apply", apply)
    ran = run("apply --all --no-wait -o json")
    assert (ran.code, "interrupted" in ran.err or "odd" in ran.err) == (code, True)
    whole, cut = ran.json["items"]
    assert (whole["environment"], whole["ok"], cut["environment"], cut["ok"]) == ("eu/a", True, "eu/b", False)
    assert cut["error"]["exitCode"] == code
    texts = {row["outcome"]: row["text"] for row in cut["partial"]["objects"]}
    assert texts[outcome] in ("", "is refused: odd")


def test_expired_environments_are_deleted_from_their_clusters(run: Runner, app: Path) -> None:
    run.ok("env set us --ttl 1h")
    run.ok("apply --all")
    assert "no environment has expired" in run("delete --expired --yes").err
    run.clock.sleep(7200)
    ran = run("delete --expired --yes -o json")
    counts = [(item["environment"], item["counts"]) for item in ran.json["items"]]
    assert (counts, ran.err) == ([("us", {"deleted": 1})], "next: mlstack env rm us\n")
    assert run("status eu/a").code == 0
    rows = run("delete --all --yes -o json").json["items"]  # the last that is applied goes first
    assert [row["environment"] for row in rows] == ["us", "eu/b", "eu/a"]


# --- the git commit ---


@pytest.fixture
def commit(app: Path) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()


@pytest.mark.slow
def test_history_keeps_the_commit_and_whether_files_were_changed(run: Runner, app: Path, commit: str) -> None:
    run.play("apply us\nparam set front color green\napply us --yes")
    past = run("history us -o json").json["revisions"]
    assert [(each["commit"], each["dirty"]) for each in past] == [(commit, True), (commit, False)]
    assert f"{commit[:8]}*" in run.ok("history us")


@pytest.mark.slow
@pytest.mark.usefixtures("commit")
def test_a_protected_environment_takes_committed_files_alone(run: Runner) -> None:
    run.play("""
        env set us --protected
        apply us --yes-i-mean us | 2 | environments/us/environment.yaml | --allow-dirty
        apply us --yes-i-mean us --allow-dirty
        apply us --yes-i-mean us
        rollback us --dry-run | 4
    """)


def test_a_later_environment_may_use_the_kinds_that_an_earlier_one_brings(run: Runner, app: Path) -> None:
    widget = {"apiVersion": "own.org/v1", "kind": "Widget", "metadata": {"name": "x"}}
    definitions = [crd(group="own.org"), crd("racks", "Rack", group="own.org", scope="Cluster")]
    objects = {"core": definitions, "own": [widget, {**widget, "kind": "Rack"}]}
    write_tree(app, {f"components/{name}.yaml": to_yaml_documents(own) for name, own in objects.items()})
    run.play("env targets eu/a core\nenv targets us own\napply us eu/a | 6 | no kind `Rack (own.org/v1)`")
    run.play("plan us eu/a | 6\nplan eu/a us | 0 | Widget us/x\ndiff eu/a us eu/b -o json | 1 | Widget us/x")
    run.play("validate eu/a us --server\napply eu/a us --dry-run\napply eu/a us\nstatus eu/a us\ndiff us")
