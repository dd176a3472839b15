"""`unlock`, and what a run says that meets a lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlstack.kube.client import ObjectRef
from mlstack.kube.lease import Lease
from tests.support.cli import Runner
from tests.support.registry import small_app

LOCK = ObjectRef("coordination.k8s.io/v1", "Lease", "default", "mlstack-demo.minikube")


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("generate web front --image nginx")
    run.ok("env add minikube --no-preset")
    return run


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
