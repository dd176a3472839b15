"""When a reason is told: soon, once, and not for what only passes."""

from mlstack.events import RunEvent
from mlstack.objects.kube_object import Identity
from mlstack.readiness.rule import waiting
from mlstack.readiness.wait import SAY_AFTER_S, SAY_EVERY_S, WaitReporter
from tests.support.deploying import VirtualClock

WEB = Identity("apps", "Deployment", "ml", "web")


class Told:
    """A teller, one second after the other, and when it told what."""

    def __init__(self) -> None:
        self.clock = VirtualClock(0)
        self.lines: list[tuple[float, str]] = []
        self._teller = WaitReporter(self.clock, self._hear)

    def _hear(self, event: RunEvent) -> None:
        self.lines.append((self.clock.now_s(), event.text))

    def seconds(self, *reasons: str) -> None:
        """Let something wait for one reason a second."""
        for reason in reasons:
            self._teller.tell({WEB: waiting(reason)})
            self.clock.sleep(1)


def test_a_reason_that_stays_is_told_soon_and_once() -> None:
    told = Told()
    told.seconds(*["no GPU"] * 30)
    assert told.lines == [(SAY_AFTER_S, "no GPU")]


def test_what_passes_is_not_told() -> None:
    told = Told()
    told.seconds("is not scheduled yet", "is being started", "no GPU", "no GPU", "no GPU")
    assert [line for _, line in told.lines] == ["no GPU"]


def test_what_changes_all_the_time_is_told_now_and_then() -> None:
    told = Told()
    told.seconds(*[f"{number} of 40 pods ready" for number in range(35)])
    assert len(told.lines) == 35 // SAY_EVERY_S


def test_a_reason_that_comes_back_is_told_again() -> None:
    told = Told()
    told.seconds(*["a"] * 3, *["b"] * 3, *["a"] * 3)
    assert [line for _, line in told.lines] == ["a", "b", "a"]
