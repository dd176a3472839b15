"""What each registry said when it was last asked, in the user's cache, to say what has changed since."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlstack import disk_cache
from mlstack.app.app import RegistryRef
from mlstack.app.index import RegistryIndex


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
