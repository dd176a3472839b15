"""One verb for several environments: names, patterns, `--all`, one question, one list."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import InvalidError
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

NAMES = ("eu/a", "eu/b", "us")


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = small_app(tmp_path)
    monkeypatch.chdir(made.root)
    run.ok("generate web front --image nginx")
    for name in NAMES:
        run.ok(f"env add {name} --no-preset -n {name.replace('/', '-')}")
    return made.root


def break_us(app: Path) -> None:
    file = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents: {front: {replicas: 99}}\n"
    write_tree(app, {"environments/us/params.yaml": file})


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
    assert (document["apiVersion"], document["kind"], document["ok"]) == (
        "mlstack.dev/v1",
        "ResultList",
        True,
    )
    assert tuple(item["environment"] for item in document["items"]) == names


def test_one_name_gives_the_result_itself(run: Runner, app: Path) -> None:
    assert run("validate us -o json").json["environment"] == "us"
    assert run("status nope eu/a -o json").code == 4
    assert run("validate asia-*").code == 4
    assert run("validate us --all").code == 2


def test_apply_asks_one_question_and_goes_in_order(run: Runner, app: Path) -> None:
    run.ok("apply --all")
    run.ok("param set front color green")
    run.answer = True
    ran = run("apply --all")
    assert len(run.asked) == 1
    assert "`eu/a`, `eu/b`, `us`" in run.asked[0]
    heads = [line for line in ran.out.splitlines() if line.startswith("---")]
    assert heads == [f"--- {name} ---" for name in NAMES]
    assert run("diff --all").code == run("status --all").code == 0
    run.answer = False
    run.ok("param set front color red")
    assert (run("apply --all").code, run("diff --all").code) == (1, 1)


def test_without_a_terminal_deletions_want_a_yes(run: Runner, app: Path) -> None:
    run.ok("apply eu/a us")
    ran = run("delete eu/a us")
    assert (ran.code, "`eu/a`, `us`" in ran.err) == (2, True)
    items = run("delete eu/a us --yes -o json").json["items"]
    assert [(item["environment"], item["counts"]) for item in items] == [
        ("eu/a", {"deleted": 1}),
        ("us", {"deleted": 1}),
    ]


def test_nothing_is_written_when_one_cannot_be_planned(run: Runner, app: Path) -> None:
    break_us(app)
    ran = run("apply --all -o json")
    assert ran.code == 3
    assert ran.json["items"][0]["error"]["exitCode"] == 3
    assert run("status eu/a").code == 1


def test_an_interruption_prints_what_was_done_until_then(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(app, {"components/own.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: own}\n"})
    cluster = run.cluster("minikube")
    original = cluster.apply

    def apply(obj: Mapping[str, Any], **how: Any) -> Any:
        if (obj["kind"], obj["metadata"].get("namespace")) == ("Secret", "eu-b") and not how.get("dry_run"):
            raise KeyboardInterrupt
        return original(obj, **how)

    monkeypatch.setattr(cluster, "apply", apply)
    ran = run("apply --all --no-wait -o json")
    assert (ran.code, ran.err.splitlines()[-1]) == (130, "interrupted")
    whole, cut = ran.json["items"]
    assert (whole["environment"], whole["ok"]) == ("eu/a", True)
    assert (cut["environment"], cut["error"]) == ("eu/b", {"message": "interrupted", "exitCode": 130})
    assert {row["outcome"] for row in cut["partial"]["objects"]} >= {"created"}


def test_a_run_that_fails_half_way_is_in_the_list_with_what_was_done(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(app, {"components/own.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: own}\n"})
    cluster = run.cluster("minikube")
    original = cluster.apply

    def apply(obj: Mapping[str, Any], **how: Any) -> Any:
        if (obj["kind"], obj["metadata"].get("namespace")) == ("Secret", "eu-b") and not how.get("dry_run"):
            raise InvalidError("`Secret own` is refused: too odd")
        return original(obj, **how)

    monkeypatch.setattr(cluster, "apply", apply)
    ran = run("apply --all --no-wait -o json")
    assert (ran.code, "too odd" in ran.err) == (6, True)
    whole, failed = ran.json["items"]
    assert (whole["ok"], failed["ok"], failed["error"]["exitCode"]) == (True, False, 6)
    assert "failed" in {row["outcome"] for row in failed["partial"]["objects"]}


def test_the_others_go_on_when_that_is_asked_for(run: Runner, app: Path) -> None:
    break_us(app)
    ran = run("apply us eu/a --keep-going -o json")
    assert ran.code == 3
    first, second = ran.json["items"]
    assert (first["environment"], first["ok"], second["environment"], second["counts"]) == (
        "us",
        False,
        "eu/a",
        {"created": 2},  # its namespace too
    )
    assert run("validate --all --keep-going").code == 3


def test_a_protected_one_wants_its_name_beside_the_question(run: Runner, app: Path) -> None:
    run.ok("env set us --protected")
    assert run("apply --all --yes").code == 2
    assert run("status eu/a").code == 1
    run.answer, run.typed = True, "us"
    run.ok("apply --all --yes")
    run.typed = "no"
    run.ok("param set front color green")
    assert run("apply --all --yes").code == 1


def test_two_names_of_diff_are_two_sides(run: Runner, app: Path) -> None:
    assert run("diff local:us local:eu/a -o json").json["kind"] == "CompareResult"
    assert run("diff 'eu/*' -o json").json["kind"] == "ResultList"
    assert run("diff us eu/a eu/b -o json").json["kind"] == "ResultList"


def test_what_is_about_one_refuses_several(run: Runner, app: Path) -> None:
    assert run("plan --all --out x.json").code == 2
    assert run("status --all --watch").code == 2
    assert run("delete us --expired").code == 2
    assert run("plan --all").code == 0


def test_expired_environments_are_deleted_from_their_clusters(run: Runner, app: Path) -> None:
    run.ok("env set us --ttl 1h")
    run.ok("apply --all")
    assert "no environment is over" in run("delete --expired --yes").err
    run.clock.sleep(7200)
    ran = run("delete --expired --yes -o json")
    counts = [(item["environment"], item["counts"]) for item in ran.json["items"]]
    assert (counts, ran.err) == ([("us", {"deleted": 1})], "next: mlstack env rm us\n")
    assert run("status eu/a").code == 0


# --- the git commit ---


@pytest.fixture
def commit(app: Path) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], check=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.slow
def test_history_keeps_the_commit_and_whether_files_were_changed(run: Runner, app: Path, commit: str) -> None:
    run.ok("apply us")
    run.ok("param set front color green")
    run.ok("apply us --yes")
    revisions = run("history us -o json").json["revisions"]
    assert [(revision["commit"], revision["dirty"]) for revision in revisions] == [
        (commit, True),
        (commit, False),
    ]
    assert f"{commit[:8]}*" in run.ok("history us")


@pytest.mark.slow
def test_a_protected_environment_takes_committed_files_alone(run: Runner, app: Path, commit: str) -> None:
    run.ok("env set us --protected")
    ran = run("apply us --yes-i-mean us")
    assert (ran.code, "environments/us/environment.yaml" in ran.err) == (2, True)
    assert "--allow-dirty" in ran.err
    run.ok("apply us --yes-i-mean us --allow-dirty")
    assert run("apply us --yes-i-mean us").code == 0  # nothing is to be written
    assert run("rollback us --dry-run").code == 4
