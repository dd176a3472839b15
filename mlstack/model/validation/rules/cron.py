"""Read the schedule of a CronJob: five fields, or a name such as `@daily`."""

from __future__ import annotations

import re

_NAMED = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_EVERY = re.compile(r"@every\s+(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)
_RANGE = re.compile(r"(?P<low>\*|\?|\w+)(-(?P<high>\w+))?(/(?P<step>\d+))?")


def wrong_schedule(text: str) -> str | None:
    """Say what is wrong with a schedule, None if nothing."""
    if "TZ" in text:
        return "must not name a time zone: use `timeZone`"
    if text.startswith("@"):
        if text in _NAMED or _EVERY.fullmatch(text):
            return None
        return f"must be five fields or one of {', '.join(sorted(_NAMED))}, got `{text}`"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"must have 5 fields (minute hour day month weekday), got {len(fields)}: `{text}`"
    for field, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        if not all(_fits(part, low, high, names) for part in field.split(",")):
            return f"{name} must be {low} to {high}, got `{field}`"
    return None


def _fits(part: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    match = _RANGE.fullmatch(part)
    if not match or match["step"] == "0":
        return False
    if match["low"] in "*?":
        return match["high"] is None
    first = _number(match["low"], low, names)
    last = _number(match["high"], low, names) if match["high"] else high if match["step"] else first
    return first is not None and last is not None and low <= first <= last <= high


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text.isdecimal():
        return int(text)
    return names.index(text.lower()) + low if text.lower() in names else None
