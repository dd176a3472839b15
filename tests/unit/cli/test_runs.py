"""Who is asked before a run, what `diff`, `plan` and a run show, what a lock stops, what a failure leaves."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from mlstack.errors import ForbiddenError
from mlstack.kube.client import ObjectRef
from mlstack.kube.parallel import Lease
from tests.support.cli import Runner
from tests.support.registry import small_app

pytestmark = pytest.mark.slow


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("generate web front --image nginx")
    run.ok("env add minikube --no-preset")
    return run


PAGE = ObjectRef("v1", "ConfigMap", "default", "front")
LOCK = ObjectRef("coordination.k8s.io/v1", "Lease", "default", "mlstack-demo.minikube")
# What every run is about: an app with the component `front`, and the context minikube of an empty cluster.
SESSIONS = {
    "a terminal asks when something that exists changes, with the changes in view": """
        says no
        apply minikube --dry-run | 0 | dry run
        color = None
        apply minikube
        apply minikube | 0 | 1 unchanged
        asked = 0
        param set front color green
        apply minikube | 1 | data.color: red -> green | nothing was done
        color = red
        question = Apply this in `minikube` (context minikube, namespace default)?
        apply minikube --yes
        color = green
        says yes
        param set front color red
        apply minikube
        color = red
        env set minikube --protected
        apply minikube
        asked = 2
    """,
    "updates go ahead where nobody can be asked": """
        apply minikube
        param set front color green
        apply minikube
        color = green
    """,
    "a protected environment wants its name where nobody can be asked": """
        delete minikube --yes-i-mean minikube
        apply minikube --yes-i-mean gke | 2 | `--yes-i-mean gke` names another environment than `minikube`
        env set minikube --protected
        apply minikube --yes-i-mean gke | 2 | `--yes-i-mean gke` names another environment than `minikube`
        apply minikube | 2 | `minikube` is protected: `apply` would create 1 object there
        apply minikube --yes | 2 | nothing was done; --yes is not enough, repeat with: --yes-i-mean minikube
        color = None
        apply minikube --yes-i-mean minikube
        color = red
        delete minikube --yes | 2
        color = red
        delete minikube --yes-i-mean minikube
        color = None
    """,
    "a protected environment wants its name typed on a terminal, which sees names alone": """
        env set minikube --protected
        diff minikube | 1 |   + kind: ConfigMap
        says yes
        apply minikube | 1
        types yes
        apply minikube --yes | 1 | + create ConfigMap default/front | !kind: ConfigMap
        types Minikube
        apply minikube | 1
        color = None
        types minikube
        apply minikube --yes
        color = red
        question = `minikube` is protected. Type its name to apply this in `minikube` (context minikube, …
    """,
    "what was deleted is nothing to delete": """
        apply minikube
        delete minikube --dry-run | 0 | dry run
        color = red
        delete minikube --yes
        says no
        delete minikube
        asked = 0
    """,
    "a plan file needs no question": """
        plan minikube --out plan.json
        says no
        apply plan.json --dry-run | 0 | nothing was written
        diff minikube | 1
        apply plan.json --no-wait
        asked = 0
    """,
    "a deletion in a plan needs no question either": """
        generate web back --image nginx
        apply minikube --no-wait
        component rm back
        plan minikube --out plan.json
        apply plan.json --no-wait | 0 | 1 deleted
    """,
    "a protected environment wants its name for a plan file all the same": """
        env set minikube --protected
        plan minikube --out plan.json
        apply plan.json --no-wait --yes | 2 | --yes-i-mean minikube
        apply plan.json --no-wait --yes-i-mean minikube
    """,
    "a plan exits with 0 whatever it holds": """
        plan minikube
        apply minikube --no-wait
        plan minikube
    """,
    "an environment may be called like a file": """
        env add x.json --context gke --no-preset
        apply x.json --no-wait
    """,
    "what does not go together is refused": """
        diff minikube gke --live | 2
        diff minikube gke -n other | 2
        diff x:y z | 2
        diff live:minikube gke | 2
        diff remote: gke | 2
        diff :minikube gke | 2
        apply minikube --lock-timeout=soon | 2 | is no duration
        apply minikube --lock-timeout=5x | 2 | is no duration
        apply minikube --lock-timeout= | 2 | is no duration
        apply minikube --lock-timeout=-1 | 2 | is no duration
    """,
    "a summary leaves out fields and manifests": """
        diff minikube | 1 | image
        diff minikube --summary | 1 | + create ConfigMap default/front (front) | !image
    """,
    "nobody there means that nothing goes without yes": """
        generate web back --image nginx
        apply minikube
        component rm back
        diff minikube | 1 | - delete ConfigMap default/back | component `back` no longer brings it
        diff minikube --no-prune
        apply minikube | 2 | would delete 1 object in `minikube`
        apply minikube --no-prune
        says no
        apply minikube | 1 | - delete ConfigMap default/back
        back = there
        apply minikube --yes
        back = gone
    """,
    "too much at once is refused with the way out": """
        generate web back --image nginx
        apply minikube
        generate web a --image nginx
        generate web b --image nginx
        generate web c --image nginx
        generate web d --image nginx
        apply minikube --no-prune
        component rm a
        component rm b
        component rm c
        component rm d
        component rm back
        diff minikube | 1 | note: 5 of 6 deployed objects would be deleted: more than half
        apply minikube --yes | 2 | 5 of 6 deployed objects would be deleted: more than half
        apply minikube --yes | 2 | --allow-large-prune
        apply minikube --yes --allow-large-prune
        back = gone
    """,
    "a run leaves no lock": """
        apply minikube
        lock = free
        unlock minikube | 0 | was not locked
    """,
}
HELD = "held by grace@ci (pid 7) since "
LOCKED = {
    "apply is refused while another run holds the lock": f"""
        apply minikube --lock-timeout 0 | 6 | `minikube` is locked: {HELD} | mlstack unlock minikube
        color = None
    """,
    "looking needs no lock": """
        diff minikube | 1 | !locked
        apply minikube --dry-run | 0 | !locked
    """,
    "unlock wants a yes": f"""
        unlock minikube | 2 | {HELD}
        lock = held
        unlock minikube --yes | 0 | freed from grace@ci (pid 7)
        lock = free
    """,
    "unlock asks with the holder in view": """
        says no
        unlock minikube | 1
        lock = held
        says yes
        unlock minikube -o json | 0 | "unlocked": true | "holder": "grace@ci (pid 7) since
        lock = free
    """,
    "unlock of a protected environment wants its name": """
        env set minikube --protected
        unlock minikube --yes | 2
        lock = held
        types minikube
        unlock minikube
        lock = free
    """,
}


def color(run: Runner) -> str | None:
    page = run.cluster("minikube").get(PAGE)
    return page["data"]["color"] if page else None


def facts(run: Runner) -> dict[str, Callable[[], object]]:
    cluster = run.cluster("minikube")

    return {
        "color": lambda: color(run),
        "asked": lambda: len(run.asked),
        "question": lambda: run.asked[-1].replace("namespace default):", "…"),
        "back": lambda: "there" if cluster.get(replace(PAGE, name="back")) else "gone",
        "lock": lambda: "held" if cluster.get(LOCK) else "free",
    }


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_a_person_and_a_program_are_asked_alike(run: Runner, session: str) -> None:
    run.play(session, **facts(run))


@pytest.mark.parametrize("session", LOCKED.values(), ids=LOCKED)
def test_a_lock_of_somebody_else(run: Runner, session: str) -> None:
    cluster, now_s = run.cluster("minikube"), run.clock.now_s
    Lease(cluster=cluster, namespace="default", name=LOCK.name, holder="grace@ci/7/x", now_s=now_s).take()
    run.play(session, **facts(run))
    phrases = ("from grace@ci (pid 7) since ", "expires in ")
    assert all(words in question for question in run.asked for words in phrases)


def test_diff_shows_the_beginning_of_what_nobody_reads_to_its_end(run: Runner) -> None:
    lines = "\n".join(f"  key{number}: x" for number in range(5000))
    Path("components/long.yaml").write_text(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: long\ndata:\n{lines}\n"
    )
    printed = run("diff minikube -c long").out.splitlines()
    assert len(printed) < 50
    assert printed[-2].endswith("more lines, as `mlstack render minikube -c long` prints them")


LARGE = {
    "one line": lambda letter: {"data": {"a": letter * 900_000}},
    "base64": lambda letter: {"binaryData": {"a": base64.b64encode(letter.encode() * 675_000).decode()}},
    "many lines": lambda letter: {"data": {"a": f"{letter}\n" * 150_000}},
    "one long line of several": lambda letter: {"data": {"a": f"first\n{letter * 900_000}\nlast\n"}},
    "in a list": lambda letter: {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "a", "image": "a", "args": [letter * 90] * 9000}]},
    },
}


@pytest.mark.parametrize("build", LARGE.values(), ids=LARGE)
def test_diff_shows_a_large_value_by_its_size_and_digest(run: Runner, build: Any) -> None:
    def write(letter: str) -> None:
        data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, **build(letter)}
        Path("components/large.yaml").write_text(json.dumps(data))

    write("a")
    created = run("diff minikube -c large").out
    run.ok("apply minikube -c large")
    write("b")
    changed = run("diff minikube -c large").out
    assert max(len(created), len(changed)) < 5_000
    assert len(re.findall(r"\(\d{6} bytes, sha256:[0-9a-f]{12}…\)", changed)) == 2
    assert run("diff minikube -c large --live").out.count("sha256:") == 2


def test_diff_of_thousands_of_equal_lines_takes_no_minutes(run: Runner) -> None:
    def write(count: int) -> None:
        data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rows"}}
        Path("components/rows.yaml").write_text(json.dumps({**data, "data": {"a": "row\n" * count}}))

    write(20_000)
    run.ok("apply minikube -c rows")
    write(20_001)
    begun_s = time.monotonic()
    assert run("diff minikube -c rows").code == 1
    assert time.monotonic() - begun_s < 10


def test_diff_shows_the_lines_that_differ_in_long_values(run: Runner) -> None:
    text = "".join(f"line {number}\n" for number in range(20))
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: script\ndata:\n  run.sh: "
    Path("components/script.yaml").write_text(manifest + json.dumps(text))
    run.ok("apply minikube")
    Path("components/script.yaml").write_text(manifest + json.dumps(text.replace("line 9\n", "other\n")))
    assert run("diff minikube").out.splitlines()[:8] == [
        "~ update ConfigMap default/script (script)",
        '  ~ data["run.sh"]:',
        "      …",
        "        line 7",
        "        line 8",
        "      - line 9",
        "      + other",
        "        line 10",
    ]


def test_failure_half_way_shows_what_was_done_then_what_failed(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.ok("generate web other --image nginx --token x")
    cluster = run.cluster("minikube")
    apply = cluster.apply

    def refusing(obj: dict[str, object], **options: object) -> object:
        if obj["kind"] == "Secret" and not options.get("dry_run"):
            raise ForbiddenError("may not write Secrets", hint="ask for the right")
        return apply(obj, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster, "apply", refusing)
    ran = run("apply minikube")
    assert ran.code == 6
    assert "created   ConfigMap default/front\n" in ran.out
    assert "failed    Secret default/other" in ran.out
    assert ran.out.splitlines()[-1].endswith("2 created, 1 failed")
    assert ran.err.rstrip().endswith("hint: ask for the right")
    as_json = run("apply minikube -o json")
    assert as_json.json["ok"] is False
    assert '"exitCode": 6' in as_json.err


def test_two_contexts_are_two_clusters_and_a_swap_is_refused(run: Runner) -> None:
    run.ok("apply minikube")
    run.clusters = {"minikube": run.cluster("gke")}
    swapped = run("apply minikube")
    assert swapped.code == 6
    assert "minikube" in swapped.err


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("outlet", ["full", "closed"])
def test_a_run_that_nobody_can_read_of_goes_to_its_end(run: Runner, output: str, outlet: str) -> None:
    with _lost(outlet) as stream, redirect_stdout(stream):
        ran = run(f"apply minikube -o {output}")
    assert (ran.code, color(run)) == (0, "red")
    note = "note: cannot write the output: no space left on device; this changes nothing about the run"
    assert (note in ran.err) == (outlet == "full")


def test_a_failed_run_stays_one_when_nobody_can_read_of_it(run: Runner) -> None:
    Path("components/front.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: 1}\n"
    )
    with _lost("full") as stream, redirect_stdout(stream):
        assert run("apply minikube").code == 6


@contextmanager
def _lost(outlet: str) -> Iterator[TextIO]:
    """Give a stream that takes nothing: a full disk, or a pipe whose reader has gone."""
    if outlet == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, descriptor = os.pipe()
        os.close(reading)
    stream = os.fdopen(descriptor, "w")
    try:
        yield stream
    finally:
        with suppress(OSError):
            stream.close()


def test_diff_shows_what_it_can_beside_what_is_not_valid(run: Runner) -> None:
    run.ok("apply minikube --no-wait")
    bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\nnonsense: 1\n"
    good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\ndata: {a: x}\n"
    Path("components/more.yaml").write_text(f"{bad}---\n{good}")
    ran = run("diff minikube")
    assert ran.code == 6
    assert "+ create ConfigMap default/good" in ran.out
    assert "    refused: `.nonsense` field not declared in schema" in ran.out
    assert ran.err.startswith("error: `ConfigMap default/bad` is refused")
    ran = run("diff minikube -o json")
    assert ran.code == 6
    refused = {row["name"]: bool(row["refused"]) for row in ran.json["objects"]}
    assert (refused["bad"], refused["good"]) == (True, False)
    assert run("apply minikube --yes").code == 6
    assert run("plan minikube").code == 6


def test_one_side_is_an_ordinary_difference(run: Runner) -> None:
    assert run("diff remote:minikube -o name").out == run("diff minikube -o name").out


@pytest.mark.parametrize(
    "options",
    ["--no-create", "--adopt", "--force-conflicts", "-c front", "-n other", "--set front.color=green"],
)
def test_what_the_plan_decides_cannot_be_chosen_again(run: Runner, options: str) -> None:
    run.play(f"plan minikube --out plan.json\napply plan.json {options} | 2 | plan")
