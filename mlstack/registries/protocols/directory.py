"""Registries that are folders of the disk; relative addresses start at the app's folder."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath

from mlstack.errors import RegistryError
from mlstack.files.folders import read_folder
from mlstack.model.app import RegistryRef
from mlstack.registries.base import Files, RegistryIndex, protocol
from mlstack.registries.tree import fetch_package, read_index


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


class FolderTree:
    """The files of a registry's folder and of the folders beside it.

    Args:
        folder: the registry's folder.
    """

    def __init__(self, folder: Path) -> None:
        """Hold the place; nothing is read."""
        self._root = folder

    def read(self, path: PurePosixPath) -> bytes | None:
        """Give a file, or nothing when it is not there."""
        place = self._place(path)
        return place.read_bytes() if place.is_file() else None

    def folder(self, path: PurePosixPath) -> Files:
        """Give all files of a folder by path relative to it."""
        place = self._place(path)
        return read_folder(place, source=str(path)) if place.is_dir() else {}

    def names(self) -> Iterable[str]:
        """Give the names of the folders in the registry's folder."""
        return [
            entry.name for entry in self._root.iterdir() if entry.is_dir() and not entry.name.startswith(".")
        ]

    def _place(self, path: PurePosixPath) -> Path:
        """Give the place of a path; an index may point beside its folder, and no further."""
        place = (self._root / path).resolve()
        if not place.is_relative_to(self._root.parent):
            raise RegistryError(f"the path `{path}` leads out of the registry")
        return place
