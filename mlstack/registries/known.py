"""What registries said when they were last asked, in the user's cache: so as to ask less, and to compare."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlstack import disk_cache
from mlstack.app.app import RegistryRef
from mlstack.app.index import RegistryIndex
from mlstack.dataclass import dataclass
from mlstack.errors import RegistryError

TRUSTED_S = 600.0
"""How long a registry is believed, what it said of a branch, tag or index, before it is asked again."""


def believed(key: str, ask: Callable[[], Any], *, fresh: bool) -> tuple[Any, str]:
    """Give what a registry says, as plain data: what it said within ten minutes, or before while it is away.

    Args:
        key: of the cache.
        ask: asks it now; None is for what it has not, and is not kept.
        fresh: ask it now in any case.

    Returns:
        What it says, and why that is not of now.

    Raises:
        RegistryError: it does not answer, and was not asked before.
    """
    cache = disk_cache.of_user(os.environ)
    known = disk_cache.from_json(cache.get(key), dict)
    if known and not fresh and time.time() - known["asked_s"] < TRUSTED_S:
        return known["said"], ""
    try:
        said = ask()
    except RegistryError as error:
        if not known or fresh:
            raise
        return known["said"], away_note(error, known["asked_s"])
    if said is not None:
        cache.put(key, json.dumps({"asked_s": time.time(), "said": said}).encode())
    return said, ""


def away_note(error: RegistryError, asked_s: float) -> str:
    """Say that a registry does not answer, and of when what is used instead is."""
    asked = datetime.fromtimestamp(asked_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{error}; what it said on {asked} is used"


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What a registry offered: package → version → digest."""

    revision: str
    packages: Mapping[str, Mapping[str, str]]


def contents(index: RegistryIndex) -> dict[str, dict[str, str]]:
    """Give the digests of an index: package → version → digest."""
    return {
        package.name: {entry.version: entry.digest for entry in package.versions}
        for package in index.packages.values()
    }


def remember(ref: RegistryRef, root: Path, index: RegistryIndex) -> None:
    """Keep what a registry says."""
    said = {"revision": index.revision, "packages": contents(index)}
    disk_cache.of_user(os.environ).put(_key(ref, root), json.dumps(said).encode())


def remembered(ref: RegistryRef, root: Path) -> Remembered | None:
    """Give what a registry said when it was last asked."""
    said = disk_cache.from_json(disk_cache.of_user(os.environ).get(_key(ref, root)), dict)
    return None if said is None else Remembered(**said)


def _key(ref: RegistryRef, root: Path) -> str:
    is_folder = ref.protocol == "directory"
    return f"registry {(root / ref.address).resolve() if is_folder else ref.address}"
