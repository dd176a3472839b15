"""Waiting for definitions, and what to say of objects that do not go."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.deploy import wait
from mlstack.deploy.deletion import obstacles
from mlstack.errors import NotReadyError
from mlstack.kube.client import ObjectRef
from tests.support.deploying import VirtualClock

REF = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com")


class Cluster:
    """Gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self._answers = list(answers)

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def definition(**states: str) -> dict[str, Any]:
    conditions = [{"type": name, "status": status, "reason": "R"} for name, status in states.items()]
    return {"apiVersion": REF.api_version, "kind": REF.kind, "status": {"conditions": conditions}}


def test_a_definition_is_waited_for() -> None:
    clock = VirtualClock(0)
    fresh: dict[str, Any] = {**definition(), "status": {"conditions": None}}
    wait.until_established(Cluster(fresh, definition(), definition(Established="True")), REF, clock=clock)
    assert 0 < clock.now_s() < 1


def test_a_refused_definition_ends_the_wait() -> None:
    clock = VirtualClock(0)
    with pytest.raises(NotReadyError, match="cannot be served"):
        wait.until_established(Cluster(definition(NamesAccepted="False")), REF, clock=clock)
    assert clock.now_s() == 0


def test_a_definition_that_never_comes_is_told_and_ends_the_wait() -> None:
    clock, told = VirtualClock(0), list[float]()
    with pytest.raises(NotReadyError, match="not served within 60 s"):
        wait.until_established(
            Cluster(definition()), REF, clock=clock, on_event=lambda event: told.append(clock.now_s())
        )
    assert told == [pytest.approx(30, abs=1)]


def live(*finalizers: str, **conditions: str) -> dict[str, Any]:
    told = [{"type": name, "status": "True", "message": text} for name, text in conditions.items()]
    return {"metadata": {"finalizers": list(finalizers)}, "status": {"conditions": told}}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, ""),
        (live(), ""),
        (live("example.org/hold"), "its finalizers are still there: example.org/hold"),
        (live("foregroundDeletion"), "what it owns is still there"),
        (live("foregroundDeletion", "a/b"), "its finalizers are still there: a/b"),
        (live("kubernetes"), ""),
        (
            live("kubernetes", NamespaceContentRemaining="Some resources\n  are remaining"),
            "Some resources are remaining",
        ),
        (live(Ready="all is well"), ""),
        ({"status": {"conditions": None}, "metadata": {"finalizers": None}}, ""),
    ],
    ids=["none", "nothing", "finalizer", "owned", "both", "own", "namespace", "other", "null"],
)
def test_what_holds_an_object_is_said(found: dict[str, Any], said: str) -> None:
    assert obstacles(found) == said
