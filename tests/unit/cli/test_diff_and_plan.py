"""What `diff` and `plan` show before anything is written, and what they would prune."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlstack.kube.client import ObjectRef
from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.fixture
def planned(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app with a protected environment and a plan for it."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add minikube --no-preset")
    run.ok("generate web front --image nginx")
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
def pruning(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app that was applied with two components, of which one was removed since."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("generate web front --image nginx")
    run.ok("generate web back --image nginx")
    run.ok("env add minikube --no-preset")
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
