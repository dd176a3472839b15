"""`plan`, `diff` and `apply FILE` on the command line: which words and options go together."""

from __future__ import annotations

from pathlib import Path

import pytest

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
