"""What a person sees of deletions that an apply brings about."""

from pathlib import Path

import pytest

from mlstack.kube.client import ObjectRef
from tests.support.cli import Runner
from tests.support.registry import small_app

BACK = ObjectRef("v1", "ConfigMap", "default", "back")


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app that was applied with two components, of which one was removed since."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("generate web front --image nginx")
    run.ok("generate web back --image nginx")
    run.ok("env add minikube --no-preset")
    run.ok("apply minikube")
    run.ok("component rm back")
    return run


def is_there(run: Runner) -> bool:
    return run.cluster("minikube").get(BACK) is not None


def test_a_difference_shows_what_would_go(run: Runner) -> None:
    shown = run("diff minikube")
    assert shown.code == 1
    assert "- delete ConfigMap default/back" in shown.out
    assert "component `back` no longer brings it" in shown.out
    assert run("diff minikube --no-prune").code == 0


def test_nobody_there_means_that_nothing_goes_without_yes(run: Runner) -> None:
    refused = run("apply minikube")
    assert refused.code == 2
    assert "would delete 1 object in `minikube`" in refused.err
    assert is_there(run)
    assert run("apply minikube --yes").code == 0
    assert not is_there(run)


def test_a_person_is_asked_with_the_deletion_in_view(run: Runner) -> None:
    run.answer = False
    refused = run("apply minikube")
    assert refused.code == 1
    assert "- delete ConfigMap default/back" in refused.err
    assert is_there(run)


def test_no_prune_leaves_it(run: Runner) -> None:
    assert run("apply minikube --no-prune").code == 0
    assert is_there(run)


def test_too_much_at_once_is_refused_with_the_way_out(run: Runner) -> None:
    for name in ("a", "b", "c", "d"):
        run.ok(f"generate web {name} --image nginx")
    run.ok("apply minikube --no-prune")
    for name in ("a", "b", "c", "d"):
        run.ok(f"component rm {name}")
    refused = run("apply minikube --yes")
    assert refused.code == 2
    assert "5 of 6 deployed objects would be deleted: more than half" in refused.err
    assert "--allow-large-prune" in refused.err
    assert run("apply minikube --yes --allow-large-prune").code == 0
    assert not is_there(run)
