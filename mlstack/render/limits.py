"""How much the templates of one component may do: their steps, their time and the size of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from time import monotonic
from typing import Any, NoReturn


class FailedError(Exception):
    """Raised by functions that templates call."""

    def __init__(self, message: object, near: str | None = None) -> None:
        super().__init__(str(message))
        self.near = near


class LimitedError(FailedError):
    """Raised when a template does or makes more than it may."""


class RefusedError(FailedError):
    """Raised by `fail` in a template."""


# --- what templates may do, and how much of it ---
# Every `{{ expression }}` is written as one YAML-safe value on one line (mappings and lists in flow style),
# so that no parameter can change the structure around it. A value inside a longer text is put together in the
# expression: `{{ "prefix-" ~ x }}`. What templates themselves write (macros, blocks, the filters `raw` and
# `yaml`) goes out as it is.
#
# There is no clock, no randomness, no environment and no file but those of the package: the same parameters
# give the same bytes everywhere.
#
# Packages are other people's code, so a render is bounded. Python cannot stop a call into C that runs for
# hours, so none begins: every value is kept small (`Limits`), what multiplies is asked for its result's size
# first, and all that templates do is counted. An alarm ends what counting misses.

_TEXTS = (str, bytes)
_COLLECTIONS = (list, tuple, dict)
_SMALL = frozenset({float, bool, type(None), type({}.items()), type({}.keys()), type({}.values())})
_LARGEST_INTEGER = 1 << 4096
_LARGEST_COUNT = 100_000  # as a width, a number of parts or of repetitions
_LARGEST_CROSS = 100_000_000  # size of a text or list times the size of what a filter or method adds to it
LARGEST_TEMPLATE = 1024 * 1024
_LARGE = 64 * 1024


class Limits:
    """What the templates of one component may still do.

    A value weighs its characters, and 16 for each node of lists and maps, shared parts as often as they
    occur.
    """

    LARGEST_VALUE = 8 * 1024 * 1024
    MOST_WORK = 100_000_000  # characters made, 100 for each step: seconds, and less than a gigabyte
    LONGEST_S = 10.0
    STEP = 100
    _NODE = 16

    def __init__(self) -> None:
        self._work = self._next_look = self.MOST_WORK
        self._seconds = self.LONGEST_S
        self._until = float("inf")
        self._stop_alarm: Callable[[], None] | None = None
        self._weights: dict[int, tuple[int, object]] = {}  # the object is kept, so that its identity is

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let time pass."""
        self._until = monotonic() + self._seconds
        try:
            yield
        finally:
            if self._stop_alarm is not None:
                self._stop_alarm()
                self._stop_alarm = None
            self._seconds = max(self._until - monotonic(), 0.001)
            self._until = float("inf")

    def _arm(self) -> None:
        """Set an alarm, once there is something large: only then a step can take long."""
        if self._stop_alarm is None and self._until != float("inf"):
            self._stop_alarm = _alarm(self._until - monotonic(), self._end)

    def _end(self) -> NoReturn:
        raise LimitedError(f"the templates take more than {self.LONGEST_S:g} seconds")

    def spend(self, work: int) -> None:
        """Count work, in characters."""
        self._work -= work
        if self._work < self._next_look:
            self._look()

    def _look(self) -> None:
        """Look whether work and time are left, once in a while."""
        self._next_look = max(self._work - self.MOST_WORK // 1000, 0)
        if self._work < 0:
            steps, size = self.MOST_WORK // self.STEP, self.MOST_WORK // 1_000_000
            raise LimitedError(f"the templates do more than {steps:,} steps, or make more than {size} MB")
        if monotonic() > self._until:
            self._end()

    def check(self, weight: int) -> None:
        """Refuse a value that weighs too much."""
        if weight > _LARGE:
            self._arm()
        if weight > self.LARGEST_VALUE:
            raise LimitedError(f"a text, list or map of more than {self.LARGEST_VALUE // 1024 // 1024} MiB")

    def weight(self, value: Any) -> int:
        """Give the weight of a value; values that are no plain ones weigh nothing."""
        if isinstance(value, _TEXTS):
            return len(value)
        if not isinstance(value, _COLLECTIONS):
            return 0
        known = self._weights.get(id(value))
        if known is None:
            parts = chain(value, value.values()) if isinstance(value, dict) else value
            weight = self._NODE
            for part in parts:
                kind = part.__class__
                if kind is str:
                    weight += len(part)
                elif kind not in _SMALL and kind is not int:
                    weight += self.weight(part)
            weight += self._NODE * len(value)
            known = weight, value
            self.check(weight)
            self.spend(self._NODE * len(value))
            self._weights[id(value)] = known
        return known[0]

    def bounded(self, value: Any) -> Any:
        """Give a new value, once it is known to be small enough."""
        if value.__class__ in _SMALL:
            return value
        if isinstance(value, _TEXTS):
            self.check(len(value))
            self.spend(len(value))
        elif isinstance(value, _COLLECTIONS):
            self.weight(value)
        elif value.__class__ is int and not -_LARGEST_INTEGER < value < _LARGEST_INTEGER:
            raise LimitedError("an integer of more than 1,200 figures")
        return value

    def check_cross(self, value: Any, others: Iterable[Any]) -> None:
        """Refuse what multiplies the size of a value with sizes and counts that are given with it."""
        factor = 1
        for other in others:
            if other.__class__ is int and abs(other) > _LARGEST_COUNT:
                raise LimitedError(f"a width or number above {_LARGEST_COUNT:,}")
            factor += abs(other) if other.__class__ is int else self.weight(other)
        cross = (1 + self.weight(value)) * factor
        if cross > _LARGE:
            self._arm()
        if cross > _LARGEST_CROSS:
            self.check(self.LARGEST_VALUE + 1)


def _alarm(seconds: float, ring: Callable[[], NoReturn]) -> Callable[[], None]:
    """Call `ring` after a time, again and again, until what is given back is called.

    Only a main thread, and not on Windows, can be woken.
    """
    import signal
    import threading

    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable or signal.getitimer(signal.ITIMER_REAL)[0]:
        return lambda: None
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: ring())
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 0.5)

    def stop() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    return stop
