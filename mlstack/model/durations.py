"""Times as people write them: `90s`, `5m`, `1h30m`."""

import re

_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_FACTORS = (3600.0, 60.0, 1.0)


def seconds(text: str) -> float:
    """Read a duration in seconds; a number alone is seconds.

    Raises:
        ValueError: it is no duration; says what one looks like.
    """
    given = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", given):
        return float(given)
    found = _PARTS.fullmatch(given)
    if not given or found is None:
        raise ValueError(f"`{text}` is no duration: write `90s`, `5m` or `1h30m`")
    return sum(float(part) * factor for part, factor in zip(found.groups(), _FACTORS, strict=True) if part)


def words(duration_s: float) -> str:
    """Write a duration for a person, to the second: `90 s`, `5 min`."""
    whole = round(duration_s)
    return f"{whole // 60} min" if whole >= 60 and whole % 60 == 0 else f"{whole} s"
