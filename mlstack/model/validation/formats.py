"""The formats that a schema can ask of a value: each function says what is expected, None if it is that."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+|0")
_DURATION_IN_WORDS = re.compile(
    r"\d\s*(ns|nano\w*|us|µs|micro\w*|ms|milli\w*|s|sec\w*|m|min\w*|h|hr|hour\w*|d|day\w*|w|wk|week\w*)(?![a-zµ])",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MAX_EXPONENT = 1000
_RANGES = {"int32": 31, "int64": 63}


def quantity(value: Any) -> Decimal | None:
    """Read a Kubernetes quantity (`500m`, `1.5Gi`, `2`), None where it is none."""
    match = _QUANTITY.fullmatch(str(value))
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not match:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * Decimal(1024) ** _BINARY[unit]
    exponent = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return number.scaleb(exponent) if abs(exponent) <= _MAX_EXPONENT else None


def wrong_quantity(value: Any) -> str | None:
    """Check a quantity of a built-in kind, which is a string or a number."""
    return None if quantity(value) is not None else "a quantity such as `500m`, `2` or `1.5Gi`"


def wrong_integer(value: int, name: str) -> str | None:
    """Check the range of an `int32` or `int64`."""
    bits = _RANGES.get(name)
    if bits is None or -(2**bits) <= value < 2**bits:
        return None
    return f"a whole number of {bits + 1} bits"


def wrong_text(text: str, name: str) -> str | None:
    """Check a string's format; formats that the API server does not know say nothing."""
    check = _TEXTS.get(name.replace("-", ""))
    return check(text) if check else None


def _byte(text: str) -> str | None:
    # Line breaks do not count, as in Go.
    try:
        base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return "text in base64"
    return None


def _date_time(text: str) -> str | None:
    match = _DATE_TIME.fullmatch(text)
    try:
        if match and datetime.fromisoformat(f"{match[1]}T{match[2]}"):
            return None
    except ValueError:
        pass
    return "a time such as `2026-01-31T12:00:00Z`"


def _duration(text: str) -> str | None:
    # Go's own form, or anything with a number and a unit in it.
    if _DURATION.fullmatch(text) or _DURATION_IN_WORDS.search(text):
        return None
    return "a duration such as `1h30m`"


def _matching(pattern: re.Pattern[str], expected: str) -> Callable[[str], str | None]:
    return lambda text: None if pattern.fullmatch(text) else expected


def _address(kind: Callable[[str], object], expected: str) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        try:
            kind(text)
        except ValueError:
            return expected
        return None

    return check


_TEXTS: Mapping[str, Callable[[str], str | None]] = {
    "byte": _byte,
    "datetime": _date_time,
    "date": _matching(re.compile(r"\d{4}-\d\d-\d\d"), "a date such as `2026-01-31`"),
    "duration": _duration,
    "uuid": _matching(_UUID, "a UUID"),
    "ipv4": _address(ipaddress.IPv4Address, "an IPv4 address"),
    "ipv6": _address(ipaddress.IPv6Address, "an IPv6 address"),
    "cidr": _address(lambda text: ipaddress.ip_network(text, strict=False), "a network such as `10.0.0.0/8`"),
}
