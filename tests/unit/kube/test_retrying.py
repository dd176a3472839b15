"""A cluster that is asked again while it does not answer."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
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
from mlstack.kube.client import WRITES, ClientWrapper, GuardedClient, ObjectRef, Patience
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock

REF = ObjectRef("v1", "Namespace", "", "default")
SILENT = UnreachableError("no answer")


class Moody(MemoryCluster):
    """A cluster that answers with errors as long as `mood` gives some."""

    def __init__(self) -> None:
        super().__init__(load_schemas("1.36"))
        self.mood: Callable[[], MlstackError | None] = lambda: None

    def get(self, ref: ObjectRef) -> dict[str, object] | None:
        error = self.mood()
        if error is not None:
            raise error
        return super().get(ref)


class Waiting:
    """A patient cluster on a clock that only sleeping moves."""

    def __init__(self, *, answered: bool = True, timeout_s: float = inf) -> None:
        self.clock, self.cluster = VirtualClock(0), Moody()
        self.told: list[str] = []
        self.still: list[str] = []
        patience = Patience(
            self.clock, self.told.append, answered=answered, timeout_s=timeout_s, remind=self.still.append
        )
        self.patient = GuardedClient(self.cluster, patience=patience)

    def fails_until(self, time_s: float, error: MlstackError) -> None:
        self.cluster.mood = lambda: error if self.clock.now_s() < time_s else None

    def get(self) -> object:
        return self.patient.get(REF)


def test_a_server_that_is_restarted_is_ridden_out() -> None:
    waiting = Waiting()
    waiting.fails_until(40, SILENT)
    assert waiting.get() is not None
    assert 40 <= waiting.clock.now_s() < 42
    assert waiting.told == [
        "the API server does not answer; trying again for 60 s",
        "the API server answers again",
    ]


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
    assert waiting.told == ["the API server is busy: too many requests"]


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
    "error",
    [ForbiddenError("no right"), ObjectNotFoundError("no kind", what="kind")],
    ids=["rights", "kind"],
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


def test_a_watch_begins_again_when_it_could_not_begin() -> None:
    waiting = Waiting()
    first = next(waiting.patient.watch("v1", "Namespace", timeout_s=1))
    assert first.type == "ADDED"


def test_a_late_answer_to_an_early_question_does_not_end_the_silence() -> None:
    waiting = Waiting()

    def asked_while_another_fails() -> None:
        waiting.clock.sleep(1)
        waiting.cluster.mood = lambda: SILENT
        with pytest.raises(UnreachableError):
            waiting.get()

    waiting.cluster.mood = asked_while_another_fails
    assert waiting.get() is not None
    assert len(waiting.told) == 1
    assert waiting.told[0].startswith("the API server does not answer")


# --- a client around another one: fenced, and with other limits ---


class Writing:
    """A fenced, patient cluster whose writes are counted as they are sent, and fail while `mood` says so."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.clock, self.sent = VirtualClock(0), 0
        self.told: list[str] = []
        self.mood: Callable[[], MlstackError | None] = lambda: None
        outer = self

        class Sent(ClientWrapper):
            def _call(self, verb: str, *args: Any, **named: Any) -> Any:
                outer.sent += verb in WRITES
                error = outer.mood()
                if error is not None:
                    raise error
                return super()._call(verb, *args, **named)

        patience = Patience(self.clock, self.told.append, answered=True)
        self.cluster = MemoryCluster(load_schemas("1.36"))
        self.fenced = GuardedClient(Sent(self.cluster), patience=patience, check=check)

    def fails_until(self, time_s: float, error: MlstackError = SILENT) -> None:
        self.mood = lambda: error if self.clock.now_s() < time_s else None


CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "default"},
    "data": {"a": "1"},
}


@pytest.mark.parametrize("error", [SILENT, TransientError("too many requests")], ids=["away", "busy"])
def test_who_lost_the_right_to_write_while_waiting_does_not_try_again(error: MlstackError) -> None:
    def check() -> None:
        if writing.clock.now_s() >= 10:
            raise LockedError("lost")

    writing = Writing(check)
    writing.fails_until(20, error)
    with pytest.raises(LockedError):
        writing.fenced.apply(CONFIG)
    assert 10 <= writing.clock.now_s() < 12
    sent = writing.sent
    with pytest.raises(LockedError):
        writing.fenced.apply(CONFIG)
    assert writing.sent == sent
    assert not any("again" in text and "answers" in text for text in writing.told)  # nobody has answered
    assert writing.fenced.apply(CONFIG, dry_run=True)


def test_what_a_fence_asks_is_waited_for_as_the_write_is() -> None:
    def check() -> None:
        if writing.clock.now_s() < 20:
            raise SILENT

    writing = Writing(check)
    assert writing.fenced.apply(CONFIG).created
    assert (writing.sent, len(writing.told)) == (1, 2)


@pytest.mark.parametrize("live", ["1", "2"], ids=["as it was to be", "another"])
def test_what_an_unheard_try_has_created_is_asked_for_with_patience(live: str) -> None:
    writing = Writing(lambda: None)
    writing.cluster.create({**CONFIG, "data": {"a": live}})
    moods = iter([SILENT, None, SILENT, SILENT])  # of the create, the next, and of reading what is there
    writing.mood = lambda: next(moods, None)
    if live == "1":
        assert writing.fenced.create(CONFIG).created
    else:
        with pytest.raises(ConflictError):
            writing.fenced.create(CONFIG)
    assert writing.sent == 2


class Around:
    """A patient cluster, and two patient ones around it, as those of a run."""

    def __init__(self, **limits: float) -> None:
        self.waiting = Waiting()
        self.clock, self.said = self.waiting.clock, self.waiting.told
        self.first = GuardedClient(self.waiting.patient, patience=self.patience(**limits))
        self.second = GuardedClient(self.first, patience=self.patience(**limits))

    def patience(self, **limits: float) -> Patience:
        return Patience(
            self.clock, self.said.append, answered=True, remind=self.waiting.still.append, **limits
        )


def test_limits_around_others_take_their_place_and_a_silence_is_said_and_waited_once() -> None:
    around = Around(timeout_s=10)
    around.waiting.fails_until(10_000, SILENT)
    for one in (around.first, around.second):
        with pytest.raises(UnreachableError):
            one.get(REF)
        assert 10 <= around.clock.now_s() < 12
    with pytest.raises(UnreachableError):
        around.waiting.patient.get(REF)
    assert 60 <= around.clock.now_s() < 62  # since the silence began
    assert around.said == ["the API server does not answer; trying again for 10 s"]
    around.waiting.fails_until(0, SILENT)
    for one in (around.second, around.first, around.waiting.patient):
        assert one.get(REF) is not None
    assert around.said[1:] == ["the API server answers again"]


def test_each_webhook_that_is_waited_for_is_said_once() -> None:
    around = Around(webhook_s=60)
    for name in ("a", "b", "a"):
        around.waiting.fails_until(around.clock.now_s() + 5, TransientError(f"webhook {name}", webhook=name))
        assert around.second.get(REF) is not None
        around.waiting.fails_until(around.clock.now_s() + 5, TransientError(f"webhook {name}", webhook=name))
        assert around.first.get(REF) is not None
    assert around.said == ["webhook a", "webhook b"]
