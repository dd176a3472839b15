"""A registry whose packages lie in a tree of files: a folder of the disk, or a commit of a repository."""

from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

from mlstack.errors import ConfigError, MlstackError, RegistryError
from mlstack.files import document as documents
from mlstack.files.fields import Fields, fields_of
from mlstack.files.folders import read_file, read_folder
from mlstack.files.packages import PackageFolder, digest
from mlstack.files.retired import read_retired
from mlstack.files.schema import check_file
from mlstack.model.names import version_key
from mlstack.registries.base import Files, IndexPackage, IndexVersion, RegistryIndex

INDEX_FILE = "registry.yaml"
_Read = TypeVar("_Read")


class Tree(Protocol):
    """Files by path relative to the registry's folder; `..` may lead to its neighbours."""

    def read(self, path: PurePosixPath) -> bytes | None:
        """Give a file, or nothing when it is not there."""

    def folder(self, path: PurePosixPath) -> Files:
        """Give all files of a folder by path relative to it; none when it is not there."""

    def names(self) -> Iterable[str]:
        """Give the names of the folders in the registry's folder."""


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
        return read_file(place) if place.is_file() else None

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


def read_index(tree: Tree, *, source: str, name: str, revision: str = "") -> RegistryIndex:
    """Read `registry.yaml`; without one, every folder with a `package.yaml` is a package.

    Args:
        tree: the registry's files.
        source: what messages call it.
        name: the registry's name where no index says it.
        revision: the commit.

    Raises:
        RegistryError: the index is wrong, or there is neither index nor package.
    """
    data = tree.read(PurePosixPath(INDEX_FILE))
    try:
        if data is None:
            return _derived(tree, source, name, revision)
        return _parsed(data, source, revision)
    except RegistryError:
        raise
    except MlstackError as error:
        raise RegistryError(
            f"the registry cannot be read: {error}", where=error.where, hint=error.hint
        ) from error


def _parsed(data: bytes, source: str, revision: str) -> RegistryIndex:
    document = documents.read(data, file=f"{source}/{INDEX_FILE}")
    fields = fields_of(document, "Registry").only(
        "apiVersion", "kind", "name", "summary", "aliases", "retired", "packages"
    )
    check_file("Registry", document.value, source=document.file, origins=document.all_origins())
    packages = (_package(entry) for entry in fields.each("packages"))
    return RegistryIndex(
        name=fields.text("name"),
        summary=fields.text("summary", ""),
        aliases=fields.texts("aliases"),
        packages={package.name: package for package in packages},
        retired=read_retired(fields),
        revision=revision,
    )


def _package(fields: Fields) -> IndexPackage:
    versions = [_version(entry) for entry in fields.each("versions")]
    versions.sort(key=lambda each: version_key(each.version))
    return IndexPackage(
        name=fields.text("name"), summary=fields.text("summary", ""), versions=tuple(versions)
    )


def _version(fields: Fields) -> IndexVersion:
    return IndexVersion(
        version=fields.text("version"), path=fields.text("path"), digest=fields.text("digest")
    )


def _derived(tree: Tree, source: str, name: str, revision: str) -> RegistryIndex:
    packages = {}
    for folder in sorted(tree.names()):
        if tree.read(PurePosixPath(folder, "package.yaml")) is not None:
            files = tree.folder(PurePosixPath(folder))
            head = PackageFolder(files, source=f"{source}/{folder}").head
            version = IndexVersion(version=head.version, path=folder, digest=digest(files))
            packages[head.name] = IndexPackage(name=head.name, summary=head.summary, versions=(version,))
    if not packages:
        raise RegistryError(
            f"no registry at `{source}`: neither `{INDEX_FILE}` nor a folder with `package.yaml`",
            hint="check the address, branch and folder",
        )
    return RegistryIndex(name=name, packages=packages, revision=revision)


def fetch_package(tree: Tree, index: RegistryIndex, package: str, version: str) -> Files:
    """Give the files of a package version, its digest checked.

    Raises:
        NotFoundError: no such package or version.
        RegistryError: the folder is missing, unsafe, or its digest is not what the index says.
    """
    wanted = index.version(package, version)
    named = f"{package}@{wanted.version}"
    files = guarded(lambda: tree.folder(PurePosixPath(wanted.path)), named)
    if not files:
        raise RegistryError(f"the folder of package `{named}` is missing: `{wanted.path}`")
    found = digest(files)
    if found != wanted.digest:
        raise RegistryError(
            f"the content of package `{named}` is not what the registry's index says:"
            f" {found}, the index has {wanted.digest}",
            hint="nothing was changed; ask the registry's keeper, whose index may be stale",
        )
    return files


def guarded(read: Callable[[], _Read], named: str) -> _Read:
    """Read a package of somebody else.

    Raises:
        RegistryError: it is refused.
    """
    try:
        return read()
    except ConfigError as error:
        message = f"package `{named}` is refused: {error}"
        raise RegistryError(message, where=error.where, hint=error.hint) from error
