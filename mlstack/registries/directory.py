"""Registries that are folders of the disk: an address is a path, relative to the app."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath

from mlstack.app.app import RegistryRef
from mlstack.app.files import Files, read_file, read_folder
from mlstack.app.versions import RegistryIndex
from mlstack.errors import RegistryError
from mlstack.registries.registry import fetch_package, protocol, read_index


class FolderTree:
    """The files of a registry's folder and of the folders beside it."""

    def __init__(self, folder: Path) -> None:
        self._root = folder

    def read(self, path: PurePosixPath) -> bytes | None:
        """Give a file, or nothing when it is not there."""
        place = self._place(path)
        return read_file(place) if place.is_file() else None

    def folder(self, path: PurePosixPath) -> Files:
        """Give all files of a folder by path relative to it."""
        place = self._place(path)
        return read_folder(place, source=str(path)) if place.is_dir() else {}

    def names(self) -> Iterable[str]:
        """Give the names of the folders in the registry's folder."""
        folders = (entry for entry in self._root.iterdir() if entry.is_dir())
        return [folder.name for folder in folders if not folder.name.startswith(".")]

    def _place(self, path: PurePosixPath) -> Path:
        """Give the place of a path; an index may point beside its folder, and no further."""
        place = (self._root / path).resolve()
        if not place.is_relative_to(self._root.parent):
            raise RegistryError(f"the path `{path}` leads out of the registry")
        return place


@protocol("directory")
class DirectoryRegistry:
    """A folder with `registry.yaml`, or with package folders."""

    def __init__(self, ref: RegistryRef, *, root: Path, fresh: bool = False) -> None:
        self._ref = ref
        address = ref.address.removeprefix("file://")
        self._root = root
        self._folder = (root / Path(address).expanduser()).resolve()

    @staticmethod
    def accepts(address: str) -> bool:
        """Tell whether an address is a path: it starts with `.`, `/` or `~`, or has no host in front.

        What begins with `file://` is one too, unless a git repository lies there.
        """
        if address.startswith("file://"):
            folder = Path(address.removeprefix("file://"))
            is_git = folder.suffix == ".git" or (folder / ".git").exists() or (folder / "objects").is_dir()
            return address.startswith("file:///") and "#" not in address and not is_git
        first = address.split("/")[0]
        return address.startswith((".", "/", "~")) or bool(first and not set(first) & set(".:"))

    @cached_property
    def index(self) -> RegistryIndex:
        """Give the index."""
        if not self._folder.is_dir():
            place, mark, _ = self._ref.address.partition("#")
            is_git = mark and (self._root / place / ".git").exists()
            hint = f"a git repository of this disk is file://{(self._root / place).resolve()}{mark}BRANCH"
            message = f"no folder `{self._ref.address}` for registry `{self._ref.name}`"
            raise RegistryError(message, hint=hint if is_git else "check the address")
        return read_index(FolderTree(self._folder), source=self._ref.address, name=self._ref.name)

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a package version, its digest checked."""
        return fetch_package(FolderTree(self._folder), self.index, package, version)

    def at(self, revision: str) -> DirectoryRegistry:
        """Refuse: a folder has no revisions."""
        message = f"registry `{self._ref.name}` is a folder, which has no revision `{revision}`"
        raise RegistryError(message, hint=f"mlstack registry describe {self._ref.name} lists the versions")
