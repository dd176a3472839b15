"""Registries that are folders of the disk; relative addresses start at the app's folder."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from mlstack.errors import RegistryError
from mlstack.model.app import RegistryRef
from mlstack.registries.base import Files, RegistryIndex, protocol
from mlstack.registries.tree import FolderTree, fetch_package, read_index


@protocol("directory")
class DirectoryRegistry:
    """A folder with `registry.yaml`, or with package folders."""

    def __init__(self, ref: RegistryRef, *, root: Path) -> None:
        """Hold the place; nothing is read."""
        self._ref = ref
        self._folder = (root / Path(ref.address).expanduser()).resolve()

    @staticmethod
    def accepts(address: str) -> bool:
        """Tell whether an address is a path: it starts with `.`, `/` or `~`, or has no host in front."""
        first = address.split("/")[0]
        return address.startswith((".", "/", "~")) or bool(first and not set(first) & set(".:"))

    @cached_property
    def _index(self) -> RegistryIndex:
        if not self._folder.is_dir():
            raise RegistryError(
                f"no folder `{self._ref.address}` for registry `{self._ref.name}`", hint="check the address"
            )
        return read_index(FolderTree(self._folder), source=self._ref.address, name=self._ref.name)

    def index(self) -> RegistryIndex:
        """Give the index."""
        return self._index

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a package version, its digest checked."""
        return fetch_package(FolderTree(self._folder), self._index, package, version)

    def at(self, revision: str) -> DirectoryRegistry:
        """Refuse: a folder has no revisions.

        Raises:
            RegistryError: always.
        """
        raise RegistryError(
            f"registry `{self._ref.name}` is a folder, which has no revision `{revision}`",
            hint=f"mlstack registry describe {self._ref.name} lists the versions",
        )
