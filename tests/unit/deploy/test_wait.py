"""Waiting for definitions, and what to say of objects that do not go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mlstack.deploy import wait
from mlstack.deploy.deletion import obstacles
from mlstack.errors import NotReadyError
from mlstack.kube.client import ObjectRef
from mlstack.objects.kube_object import KubeObject
from mlstack.readiness.evaluate import ResourceStatus
from mlstack.readiness.rule import ready, waiting
from mlstack.readiness.terms import Terms
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


# --- when a reason is told: soon, once, and not for what only passes ---

WEB = KubeObject(data={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})


class Reasons:
    """A watcher of an object that waits for one reason a second, and then works."""

    notes = ()

    def __init__(self, clock: VirtualClock, reasons: list[str]) -> None:
        self._clock, self._reasons = clock, reasons

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def outage(self) -> None: ...

    def rounds(self) -> Iterator[list[ResourceStatus]]:
        for readiness in [*map(waiting, self._reasons), ready()]:
            yield [ResourceStatus(wanted=WEB, live=None, readiness=readiness)]
            self._clock.sleep(1)


def told(*reasons: str) -> list[tuple[float, str]]:
    """Give what is told, and after how many seconds."""
    clock, lines = VirtualClock(0), list[tuple[float, str]]()
    watcher: Any = Reasons(clock, list(reasons))
    wait.until_ready(
        watcher,
        {WEB.identity: Terms()},
        clock=clock,
        on_event=lambda event: lines.append((clock.now_s(), event.text)),
    )
    return lines


def test_a_reason_that_stays_is_told_soon_and_once() -> None:
    assert told(*["no GPU"] * 30) == [(2, "no GPU")]


def test_what_changes_all_the_time_is_told_every_ten_seconds() -> None:
    assert len(told(*[f"{number} of 40 pods ready" for number in range(35)])) == 3


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        (["is not scheduled yet", "is being started", "no GPU", "no GPU", "no GPU"], ["no GPU"]),
        ([*["a"] * 3, *["b"] * 3, *["a"] * 3], ["a", "b", "a"]),
    ],
    ids=["what passes is not told", "what comes back is told again"],
)
def test_reasons_are_told_once_they_stayed(reasons: list[str], lines: list[str]) -> None:
    assert [line for _, line in told(*reasons)] == lines
