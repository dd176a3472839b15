"""A cluster that is asked again while it does not answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from mlstack.errors import (
    ConflictError,
    ForbiddenError,
    LockedError,
    MlstackError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
)
from mlstack.kube import client
from mlstack.kube.client import WRITES, ClientWrapper, Fence, GuardedClient, ObjectRef, Patience
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, config_map

REF = ObjectRef("v1", "Namespace", "", "default")
SILENT = UnreachableError("no answer")


class Moody(ClientWrapper):
    """A cluster that answers with errors as long as `mood` gives some, and counts the writes it was sent."""

    sent = 0

    def __init__(self) -> None:
        super().__init__(MemoryCluster(load_schemas("1.36")))
        self.mood: Callable[[], MlstackError | None] = lambda: None

    def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        self.sent += verb in WRITES
        error = self.mood()
        if error is not None:
            raise error
        return super()._call(verb, *args, **options)


class Waiting:
    """A patient cluster on a clock that only sleeping moves."""

    def __init__(self, *, fence: Fence | None = None, **limits: Any) -> None:
        self.clock, self.cluster = VirtualClock(0), Moody()
        self.notes, self.still = list[str](), list[str]()
        self.patient = GuardedClient(self.cluster, patience=self.patience(**limits), fence=fence)

    def patience(self, *, answered: bool = True, **limits: float) -> Patience:
        return Patience(self.clock, self.notes.append, answered=answered, remind=self.still.append, **limits)

    def fails_until(self, time_s: float, error: MlstackError) -> None:
        self.cluster.mood = lambda: error if self.clock.now_s() < time_s else None

    def get(self) -> object:
        return self.patient.get(REF)


def test_a_server_that_stays_away_is_given_up() -> None:
    waiting = Waiting()
    waiting.fails_until(10_000, SILENT)
    with pytest.raises(UnreachableError):
        waiting.get()
    assert client.OUTAGE_S <= waiting.clock.now_s() < client.OUTAGE_S + 2
    with pytest.raises(UnreachableError):  # and others do not begin to wait anew
        waiting.get()
    assert waiting.clock.now_s() < client.OUTAGE_S + 2


@pytest.mark.parametrize("error", [SILENT, TransientError("too many requests")], ids=["away", "busy"])
def test_what_is_waited_for_is_said_every_30_s_and_ends_in_the_time_of_the_run(error: MlstackError) -> None:
    waiting = Waiting(timeout_s=40)
    waiting.fails_until(10_000, error)
    with pytest.raises(type(error)):
        waiting.get()
    assert 40 <= waiting.clock.now_s() < 42
    assert len(waiting.still) == 1 and waiting.still[0].startswith("until the API server")


def test_a_request_that_was_silent_long_enough_is_not_sent_again() -> None:
    waiting = Waiting()

    def silent() -> MlstackError:
        waiting.clock.sleep(60)
        return SILENT

    waiting.cluster.mood = silent
    with pytest.raises(UnreachableError):
        waiting.get()
    assert waiting.clock.now_s() == 60


def test_a_server_that_never_answered_is_not_waited_for() -> None:
    waiting = Waiting(answered=False)
    waiting.fails_until(10, SILENT)
    with pytest.raises(UnreachableError):
        waiting.get()
    assert waiting.clock.now_s() == 0
    waiting.clock.sleep(10)
    assert waiting.get() is not None
    waiting.fails_until(20, SILENT)
    assert waiting.get() is not None


def test_a_busy_server_is_given_time_but_not_for_ever() -> None:
    waiting = Waiting()
    waiting.fails_until(100, TransientError("too many requests"))
    assert waiting.get() is not None
    waiting.fails_until(10_000, TransientError("too many requests"))
    with pytest.raises(TransientError):
        waiting.get()
    assert waiting.notes == ["the API server is busy: too many requests"]


@pytest.mark.parametrize(
    "error",
    [
        TransientError("webhook", webhook="a"),
        ForbiddenError("no right"),
        ObjectNotFoundError("no kind", what="kind"),
    ],
    ids=["webhook", "rights", "kind"],
)
def test_other_answers_are_answers(error: MlstackError) -> None:
    waiting = Waiting()
    waiting.fails_until(10, error)
    with pytest.raises(type(error)):
        waiting.get()
    assert waiting.clock.now_s() == 0


@pytest.mark.parametrize(
    "error", [ForbiddenError("no right"), ObjectNotFoundError("no kind", what="kind")], ids=["rights", "kind"]
)
def test_a_server_that_has_just_started_may_not_know_everything_yet(error: MlstackError) -> None:
    waiting = Waiting()

    def mood() -> MlstackError | None:
        now_s = waiting.clock.now_s()
        return SILENT if now_s < 5 else error if now_s < 7 else None

    waiting.cluster.mood = mood
    assert waiting.get() is not None
    waiting.fails_until(100, error)
    with pytest.raises(type(error)):
        waiting.get()


def test_a_late_answer_to_an_early_question_does_not_end_the_silence() -> None:
    waiting = Waiting()

    def asked_while_another_fails() -> None:
        waiting.clock.sleep(1)
        waiting.cluster.mood = lambda: SILENT
        with pytest.raises(UnreachableError):
            waiting.get()

    waiting.cluster.mood = asked_while_another_fails
    assert waiting.get() is not None
    assert len(waiting.notes) == 1
    assert waiting.notes[0].startswith("the API server does not answer")


CONFIG = {**config_map("a", a="1"), "metadata": {"name": "a", "namespace": "default"}}


@pytest.mark.parametrize("error", [SILENT, TransientError("too many requests")], ids=["away", "busy"])
def test_who_lost_the_right_to_write_while_waiting_does_not_try_again(error: MlstackError) -> None:
    def fence(verb: str, written: Any) -> None:
        if waiting.clock.now_s() >= 10:
            raise LockedError("lost")

    waiting = Waiting(fence=fence)
    waiting.fails_until(20, error)
    with pytest.raises(LockedError):
        waiting.patient.apply(CONFIG)
    assert 10 <= waiting.clock.now_s() < 12
    sent = waiting.cluster.sent
    with pytest.raises(LockedError):
        waiting.patient.apply(CONFIG)
    assert waiting.cluster.sent == sent
    assert "the API server answers again" not in waiting.notes  # nobody has answered
    assert waiting.patient.apply(CONFIG, dry_run=True)


def test_what_a_fence_asks_is_waited_for_as_the_write_is() -> None:
    def fence(verb: str, written: Any) -> None:
        if waiting.clock.now_s() < 20:
            raise SILENT

    waiting = Waiting(fence=fence)
    assert waiting.patient.apply(CONFIG).created
    assert (waiting.cluster.sent, len(waiting.notes)) == (1, 2)


@pytest.mark.parametrize("live", ["1", "2"], ids=["as it was to be", "another"])
def test_what_an_unheard_try_has_created_is_asked_for_with_patience(live: str) -> None:
    waiting = Waiting()
    waiting.cluster.create({**CONFIG, "data": {"a": live}})
    moods = iter([SILENT, None, SILENT, SILENT])  # of the create, the next, and of reading what is there
    waiting.cluster.mood = lambda: next(moods, None)
    with nullcontext() if live == "1" else pytest.raises(ConflictError):
        assert waiting.patient.create(CONFIG).created
    assert waiting.cluster.sent == 1 + 2


def test_limits_around_others_take_their_place_and_a_silence_is_said_and_waited_once() -> None:
    waiting = Waiting()
    first = GuardedClient(waiting.patient, patience=waiting.patience(timeout_s=10))
    second = GuardedClient(first, patience=waiting.patience(timeout_s=10))
    waiting.fails_until(10_000, SILENT)
    for patient, limit_s in ((first, 10), (second, 10), (waiting.patient, 60)):
        with pytest.raises(UnreachableError):
            patient.get(REF)
        assert limit_s <= waiting.clock.now_s() < limit_s + 2  # since the silence began
    waiting.fails_until(0, SILENT)
    assert all(patient.get(REF) for patient in (second, first, waiting.patient))
    assert waiting.notes == [
        "the API server does not answer; trying again for 10 s",
        "the API server answers again",
    ]


def test_each_webhook_that_is_waited_for_is_said_once() -> None:
    waiting = Waiting(webhook_s=60)
    around = GuardedClient(waiting.patient, patience=waiting.patience(webhook_s=60))
    for name, patient in (("a", around), ("b", waiting.patient), ("a", waiting.patient), ("b", around)):
        waiting.fails_until(waiting.clock.now_s() + 5, TransientError(f"webhook {name}", webhook=name))
        assert patient.get(REF) is not None
    assert waiting.notes == ["webhook a", "webhook b"]
