"""Versions of packages, and ranges of them: `^1.2`, `~1.2`, `>=1.0 <2`, `1.x`, `^1 || ^2`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from mlstack import __version__
from mlstack.errors import SchemaError
from mlstack.names import version_key

if TYPE_CHECKING:
    from semantic_version import NpmSpec, Version

_RANGE = re.compile(r"[\^~<>=*|,\s]|(^|\.)[xX](\.|$)")
_SPACES = re.compile(r"(?<=[\^~<>=])\s+")
_NUMBERED = 0  # the least first part of the key of a version that has numbers


def is_range(text: str) -> bool:
    """Tell whether a text is written as a range; anything else is one version, branch, tag or commit."""
    return bool(_RANGE.search(text))


def check_range(text: str) -> str:
    """Give a range back.

    Raises:
        ValueError: it cannot be read.
    """
    if is_range(text):
        _spec(text)
    return text


@lru_cache(maxsize=65536)  # a resolver asks the same over and over
def fits(version: str, wanted: str) -> bool:
    """Tell whether a version is in a range, or is the one that is named; any is when nothing is.

    A pre-release is only in a range that names one of the same number.
    """
    if not is_range(wanted):
        return wanted in ("", version)
    parsed = _version(version)
    return parsed is not None and bool(_spec(wanted).match(parsed))


def best_first(versions: Iterable[str], wanted: str = "") -> list[str]:
    """Give the versions that fit, the highest first; pre-releases last where none is asked for."""
    fitting = sorted((version for version in versions if fits(version, wanted)), key=version_key)
    if wanted:
        return fitting[::-1]
    return sorted(reversed(fitting), key=is_prerelease)


def is_prerelease(version: str) -> bool:
    """Tell whether a version comes before its release (`1.0.0-rc.1`)."""
    return version_key(version)[0] >= _NUMBERED and not version_key(version)[3]


def check_mlstack(wanted: str, *, what: str, where: str) -> None:
    """Refuse what says that it needs another mlstack than this one.

    Args:
        wanted: its `requiresMlstack`; empty for any.
        what: what it is, to begin the message with.
        where: the file that says so.

    Raises:
        SchemaError: this mlstack does not fit, or the range cannot be read.
    """
    try:
        if not wanted or fits(_release(__version__), wanted):
            return
    except ValueError as error:
        raise SchemaError(f"`requiresMlstack` {error}", where=where) from error
    hint = "install one that fits (pip install 'mlstack VERSION'), or change `requiresMlstack`"
    raise SchemaError(f"{what} needs mlstack {wanted}, this is {__version__}", where=where, hint=hint)


def _release(version: str) -> str:
    """Give the numbers of a version of Python packages: `0.3.0.dev1` is as good as 0.3.0."""
    return ".".join(re.findall(r"\d+", version)[:3])


@lru_cache(maxsize=4096)
def _spec(text: str) -> NpmSpec:
    from semantic_version import NpmSpec

    try:
        return NpmSpec(" ".join(_SPACES.sub("", text.replace(",", " ")).split()))
    except ValueError:
        message = f"`{text}` is no range of versions: write it as ^1.2, ~1.2, 1.x or >=1.0 <2"
        raise ValueError(message) from None


@lru_cache(maxsize=65536)
def _version(text: str) -> Version | None:
    from semantic_version import Version

    if version_key(text)[0] < _NUMBERED:
        return None
    try:
        return Version.coerce(text.removeprefix("v"))
    except ValueError:
        return None
