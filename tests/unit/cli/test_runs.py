"""Who is asked before a run, what `diff`, `plan` and a run show, what a lock stops, what a failure leaves."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

import pytest

from mlstack.errors import ForbiddenError
from mlstack.kube.client import ObjectRef
from mlstack.kube.lease import Lease
from tests.support.cli import Runner
from tests.support.registry import small_app

pytestmark = pytest.mark.slow

PAGE = ObjectRef("v1", "ConfigMap", "default", "front")


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("generate web front --image nginx")
    run.ok("env add minikube --no-preset")
    return run


def color(run: Runner) -> str | None:
    found = run.cluster("minikube").get(PAGE)
    return found["data"]["color"] if found else None


def test_pure_creation_goes_ahead_even_on_a_terminal(run: Runner) -> None:
    run.answer = False
    run.ok("apply minikube")
    assert (color(run), run.asked) == ("red", [])


def test_terminal_asks_with_the_changes_in_view(run: Runner) -> None:
    run.ok("apply minikube")
    run.ok("param set front color green")
    run.answer = False
    refused = run("apply minikube")
    assert (refused.code, color(run)) == (1, "red")
    assert "data.color: red -> green" in refused.err
    assert "nothing was done" in refused.err
    run.answer = True
    run.ok("apply minikube")
    assert color(run) == "green"
    assert run.asked == ["Apply this in `minikube` (context minikube, namespace default)?"] * 2


def test_diff_shows_new_objects_whole_and_the_question_only_their_names(run: Runner) -> None:
    run.ok("env set minikube --protected")
    run.answer = False
    assert "\n  + kind: ConfigMap\n" in run("diff minikube").out
    asked = run("apply minikube").err
    assert "+ create ConfigMap default/front" in asked
    assert "kind: ConfigMap" not in asked


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


def test_yes_answers_the_question(run: Runner) -> None:
    run.ok("apply minikube")
    run.ok("param set front color green")
    run.answer = False
    run.ok("apply minikube --yes")
    assert (color(run), run.asked) == ("green", [])


def test_updates_go_ahead_where_nobody_can_be_asked(run: Runner) -> None:
    run.ok("apply minikube")
    run.ok("param set front color green")
    run.ok("apply minikube")
    assert color(run) == "green"


def test_protected_environment_wants_its_name_where_nobody_can_be_asked(run: Runner) -> None:
    run.ok("env set minikube --protected")
    for words in ("apply minikube", "apply minikube --yes"):
        refused = run(words)
        assert refused.code == 2
        assert "environment `minikube` is protected: `apply` would create 1 object there" in refused.err
        assert "nothing was done; --yes is not enough, repeat with: --yes-i-mean minikube" in refused.err
    assert color(run) is None
    run.ok("apply minikube --yes-i-mean minikube")
    assert color(run) == "red"


def test_the_name_of_another_environment_is_no_yes(run: Runner) -> None:
    for protected in ("--protected", "--unprotected"):
        run.ok(f"env set minikube {protected}")
        refused = run("apply minikube --yes-i-mean gke")
        assert refused.code == 2
        assert "`--yes-i-mean gke` names another environment than `minikube`" in refused.err
        assert color(run) is None


@pytest.mark.parametrize("option", ["", " --yes"])
def test_protected_environment_wants_its_name_typed_on_a_terminal(run: Runner, option: str) -> None:
    run.ok("env set minikube --protected")
    run.answer = True
    for typed in ("", "y", "yes", "Minikube"):
        run.typed = typed
        assert run(f"apply minikube{option}").code == 1
        assert color(run) is None
    run.typed = "minikube"
    run.ok(f"apply minikube{option}")
    assert color(run) == "red"
    question = "`minikube` is protected. Type its name to apply this in `minikube` (context minikube,"
    assert all(asked.startswith(question) for asked in run.asked)
    assert len(run.asked) == 5


def test_nobody_is_asked_where_nothing_changes(run: Runner) -> None:
    run.ok("apply minikube")
    run.ok("env set minikube --protected")
    run.ok("apply minikube")


def test_deleting_from_a_protected_environment_wants_its_name(run: Runner) -> None:
    run.ok("apply minikube")
    run.ok("env set minikube --protected")
    assert run("delete minikube --yes").code == 2
    assert color(run) == "red"
    run.ok("delete minikube --yes-i-mean minikube")
    assert color(run) is None


def test_the_name_answers_in_an_unprotected_environment_too(run: Runner) -> None:
    run.ok("apply minikube")
    run.ok("delete minikube --yes-i-mean minikube")
    assert color(run) is None


def test_delete_always_asks_or_wants_yes(run: Runner) -> None:
    run.ok("apply minikube")
    assert run("delete minikube").code == 2
    run.answer = False
    assert run("delete minikube").code == 1
    assert color(run) == "red"
    run.ok("delete minikube --yes")
    assert color(run) is None


def test_nothing_to_delete_is_fine_without_a_question(run: Runner) -> None:
    run.answer = False
    run.ok("delete minikube")
    assert run.asked == []


def test_nothing_to_change_is_not_asked_for(run: Runner) -> None:
    run.ok("apply minikube")
    run.answer = False
    run.ok("apply minikube")
    assert run.asked == []


def test_dry_run_writes_nothing_and_asks_nothing(run: Runner) -> None:
    run.answer = False
    out = run.ok("apply minikube --dry-run")
    assert "dry run" in out
    assert (color(run), run.asked) == (None, [])
    run.ok("apply minikube")
    assert "dry run" in run.ok("delete minikube --dry-run")
    assert color(run) == "red"


def test_second_apply_writes_nothing(run: Runner) -> None:
    run.ok("apply minikube")
    before = run.cluster("minikube").get(PAGE)
    assert "1 unchanged" in run.ok("apply minikube")
    assert run.cluster("minikube").get(PAGE) == before


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
    said = "note: cannot write the output: no space left on device; this changes nothing about the run"
    assert (said in ran.err) == (outlet == "full")


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


@pytest.fixture
def planned(run: Runner) -> Runner:
    """An app with a plan for its environment."""
    run.ok("plan minikube --out plan.json")
    return run


def test_a_plan_file_needs_no_question(planned: Runner) -> None:
    planned.answer = False
    assert planned("apply plan.json --no-wait").code == 0
    assert planned.asked == []


def test_a_deletion_in_a_plan_needs_no_question_either(planned: Runner) -> None:
    planned.ok("generate web back --image nginx")
    planned.ok("apply minikube --no-wait")
    planned.ok("component rm back")
    planned.ok("plan minikube --out plan.json")
    assert "1 deleted" in planned.ok("apply plan.json --no-wait")


def test_a_protected_environment_wants_its_name_all_the_same(planned: Runner) -> None:
    planned.ok("env set minikube --protected")
    planned.ok("plan minikube --out plan.json")
    refused = planned("apply plan.json --no-wait --yes")
    assert refused.code == 2
    assert "--yes-i-mean minikube" in refused.err
    assert planned("apply plan.json --no-wait --yes-i-mean minikube").code == 0


def test_a_dry_run_of_a_plan_writes_nothing(planned: Runner) -> None:
    assert "nothing was written" in planned.ok("apply plan.json --dry-run")
    assert planned("diff minikube").code == 1


def test_a_plan_exits_with_0_whatever_it_holds(planned: Runner) -> None:
    assert planned("plan minikube").code == 0
    planned.ok("apply minikube --no-wait")
    assert planned("plan minikube").code == 0


def test_diff_shows_what_it_can_beside_what_is_not_valid(planned: Runner) -> None:
    planned.ok("apply minikube --no-wait")
    bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\nnonsense: 1\n"
    good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\ndata: {a: x}\n"
    Path("components/more.yaml").write_text(f"{bad}---\n{good}")
    found = planned("diff minikube")
    assert found.code == 6
    assert "+ create ConfigMap default/good" in found.out
    assert "    refused: `.nonsense` field not declared in schema" in found.out
    assert found.err.startswith("error: `ConfigMap default/bad` is refused")
    found = planned("diff minikube -o json")
    assert found.code == 6
    refused = {row["name"]: bool(row["refused"]) for row in found.json["objects"]}
    assert (refused["bad"], refused["good"]) == (True, False)
    assert planned("apply minikube --yes").code == 6
    assert planned("plan minikube").code == 6


@pytest.mark.parametrize(
    "options",
    ["--no-create", "--adopt", "--force-conflicts", "-c front", "-n other", "--set front.color=green"],
)
def test_what_the_plan_decides_cannot_be_chosen_again(planned: Runner, options: str) -> None:
    refused = planned(f"apply plan.json {options}")
    assert refused.code == 2
    assert "plan" in refused.err


def test_an_environment_may_be_called_like_a_file(planned: Runner) -> None:
    planned.ok("env add x.json --context gke --no-preset")
    assert planned("apply x.json --no-wait").code == 0


def test_only_one_side_is_an_ordinary_difference(planned: Runner) -> None:
    assert planned("diff remote:minikube -o name").out == planned("diff minikube -o name").out


@pytest.mark.parametrize("command", ["diff minikube gke --live", "diff minikube gke -n other", "diff x:y z"])
def test_what_does_not_go_together_is_refused(planned: Runner, command: str) -> None:
    assert planned(command).code == 2


def test_a_summary_leaves_out_fields_and_manifests(planned: Runner) -> None:
    whole, short = planned("diff minikube"), planned("diff minikube --summary")
    assert whole.code == short.code == 1
    assert len(short.out.splitlines()) < len(whole.out.splitlines())
    assert "+ create ConfigMap default/front (front)" in short.out
    assert "image" not in short.out


BACK = ObjectRef("v1", "ConfigMap", "default", "back")


@pytest.fixture
def pruning(run: Runner) -> Runner:
    """An app that was applied with two components, of which one was removed since."""
    run.ok("generate web back --image nginx")
    run.ok("apply minikube")
    run.ok("component rm back")
    return run


def is_there(pruning: Runner) -> bool:
    return pruning.cluster("minikube").get(BACK) is not None


def test_a_difference_shows_what_would_go(pruning: Runner) -> None:
    shown = pruning("diff minikube")
    assert shown.code == 1
    assert "- delete ConfigMap default/back" in shown.out
    assert "component `back` no longer brings it" in shown.out
    assert pruning("diff minikube --no-prune").code == 0


def test_nobody_there_means_that_nothing_goes_without_yes(pruning: Runner) -> None:
    refused = pruning("apply minikube")
    assert refused.code == 2
    assert "would delete 1 object in `minikube`" in refused.err
    assert is_there(pruning)
    assert pruning("apply minikube --yes").code == 0
    assert not is_there(pruning)


def test_a_person_is_asked_with_the_deletion_in_view(pruning: Runner) -> None:
    pruning.answer = False
    refused = pruning("apply minikube")
    assert refused.code == 1
    assert "- delete ConfigMap default/back" in refused.err
    assert is_there(pruning)


def test_no_prune_leaves_it(pruning: Runner) -> None:
    assert pruning("apply minikube --no-prune").code == 0
    assert is_there(pruning)


def test_too_much_at_once_is_refused_with_the_way_out(pruning: Runner) -> None:
    for name in ("a", "b", "c", "d"):
        pruning.ok(f"generate web {name} --image nginx")
    pruning.ok("apply minikube --no-prune")
    for name in ("a", "b", "c", "d"):
        pruning.ok(f"component rm {name}")
    refused = pruning("apply minikube --yes")
    assert refused.code == 2
    assert "5 of 6 deployed objects would be deleted: more than half" in refused.err
    assert "--allow-large-prune" in refused.err
    assert pruning("apply minikube --yes --allow-large-prune").code == 0
    assert not is_there(pruning)


LOCK = ObjectRef("coordination.k8s.io/v1", "Lease", "default", "mlstack-demo.minikube")


def lock(run: Runner) -> None:
    """Let somebody else hold the lock."""
    Lease(
        cluster=run.cluster("minikube"),
        namespace="default",
        name=LOCK.name,
        holder="grace@ci/7/x",
        now_s=run.clock.now_s,
    ).take()


def is_locked(run: Runner) -> bool:
    return run.cluster("minikube").get(LOCK) is not None


def test_a_run_leaves_no_lock(run: Runner) -> None:
    run.ok("apply minikube")
    assert not is_locked(run)


def test_apply_is_refused_while_another_run_holds_the_lock(run: Runner) -> None:
    lock(run)
    refused = run("apply minikube --lock-timeout 0")
    assert refused.code == 6
    assert "environment `minikube` is locked: held by grace@ci (pid 7) since " in refused.err
    assert "mlstack unlock minikube" in refused.err
    assert run.cluster("minikube").get(ObjectRef("v1", "ConfigMap", "default", "front")) is None


@pytest.mark.parametrize("words", ["diff minikube", "apply minikube --dry-run"])
def test_looking_needs_no_lock(run: Runner, words: str) -> None:
    lock(run)
    assert run(words).code in (0, 1)
    assert "locked" not in run(words).err


def test_unlock_says_that_nothing_is_locked(run: Runner) -> None:
    assert "was not locked" in run.ok("unlock minikube")


def test_unlock_wants_a_yes(run: Runner) -> None:
    lock(run)
    refused = run("unlock minikube")
    assert refused.code == 2
    assert "held by grace@ci (pid 7) since " in refused.err
    assert is_locked(run)
    assert "freed from grace@ci (pid 7)" in run.ok("unlock minikube --yes")
    assert not is_locked(run)


def test_unlock_asks_with_the_holder_in_view(run: Runner) -> None:
    lock(run)
    run.answer = False
    assert run("unlock minikube").code == 1
    assert is_locked(run)
    run.answer = True
    run.ok("unlock minikube")
    assert not is_locked(run)
    assert "from grace@ci (pid 7) since " in run.asked[0]
    assert "expires in " in run.asked[0]


def test_unlock_of_a_protected_environment_wants_its_name(run: Runner) -> None:
    run.ok("env set minikube --protected")
    lock(run)
    assert run("unlock minikube --yes").code == 2
    assert is_locked(run)
    run.answer, run.typed = True, "minikube"
    run.ok("unlock minikube")
    assert not is_locked(run)


def test_unlock_prints_who_held_it(run: Runner) -> None:
    lock(run)
    printed = run("unlock minikube --yes -o json").json
    assert printed["unlocked"] is True
    assert printed["holder"].startswith("grace@ci (pid 7) since ")


@pytest.mark.parametrize("text", ["soon", "5x", "", "-1"])
def test_what_is_no_duration_is_refused(run: Runner, text: str) -> None:
    refused = run("apply", "minikube", f"--lock-timeout={text}")
    assert refused.code == 2
    assert "is no duration" in refused.err
