"""The time, as whoever waits is handed it, and as Kubernetes writes its finer times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

from mlstack.errors import UsageError

STILL_S = 30.0
"""So often it is said what is still waited for: a log silent for longer looks like a run that hangs."""


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        ...


def backoff(first_s: float, longest_s: float) -> Iterator[float]:
    """Give pauses without end, in seconds: each twice as long as the one before, up to the longest."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(pause_s * 2, longest_s)


@lru_cache(maxsize=1024)
def timestamp(seconds: float) -> str:
    """Write a time since 1970 as people and Kubernetes do, in UTC: `2026-11-22T02:25:46Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(seconds: float) -> str:
    """Write a time since 1970 as leases and events have it (MicroTime): with exactly six decimals."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@lru_cache(maxsize=65536)
def time_ms(text: str) -> int:
    """Read a time as Kubernetes writes it, in milliseconds since 1970; 0 for none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
    except ValueError:
        return 0


# --- Times as people write them: `90s`, `5m`, `1h30m` ---

_PARTS = r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
_FACTORS = (3600.0, 60.0, 1.0)


def seconds(text: str) -> float:
    """Read a duration in seconds, a number alone too; a ValueError says what one looks like."""
    cleaned = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", cleaned):
        return float(cleaned)
    match = re.fullmatch(_PARTS, cleaned)
    if not cleaned or match is None:
        raise ValueError(f"`{text}` is no duration: write `90s`, `5m` or `1h30m`")
    return sum(float(part) * factor for part, factor in zip(match.groups(), _FACTORS, strict=True) if part)


def limit_s(variable: str, usual_s: float, environ: Mapping[str, str]) -> float:
    """Give the time limit of an environment variable (`MLSTACK_REQUEST_TIMEOUT=5m`), else the usual one."""
    text = environ.get(variable, "")
    if not text:
        return usual_s
    try:
        limit = seconds(text)
    except ValueError as error:
        raise UsageError(str(error), where=variable) from error
    if limit == 0:
        raise UsageError("a time limit cannot be 0", where=variable, hint=f"write {variable}=5m")
    return limit


def words(duration_s: float) -> str:
    """Write a duration for a person, to the second: `90 s`, `5 min`."""
    whole = round(duration_s)
    return f"{whole // 60} min" if whole >= 60 and whole % 60 == 0 else f"{whole} s"
