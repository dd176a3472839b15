"""What a registry is: an index of packages and their versions, and the files of each version."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from mlstack.errors import NotFoundError
from mlstack.model.app import RegistryRef, Retired
from mlstack.model.names import nearest, version_key
from mlstack.model.table import Table

Files = Mapping[PurePosixPath, bytes]


@dataclass(frozen=True, kw_only=True)
class IndexVersion:
    """One version of a package in an index.

    Args:
        version: the package's version.
        path: its folder, relative to the index.
        digest: `sha256:…` that its content must have.
    """

    version: str
    path: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class IndexPackage:
    """One package of an index, versions in ascending order."""

    name: str
    summary: str = ""
    versions: tuple[IndexVersion, ...]

    @property
    def newest(self) -> IndexVersion:
        """Give the highest version."""
        return max(self.versions, key=lambda each: version_key(each.version))


@dataclass(frozen=True, kw_only=True)
class RegistryIndex:
    """What a registry offers.

    Args:
        name: the registry's own name.
        summary: one line.
        aliases: addresses that this registry stands in for.
        packages: by name.
        retired: names that it does not offer any more.
        revision: the commit the index was read at; empty where there are no commits.
    """

    name: str
    summary: str = ""
    aliases: tuple[str, ...] = ()
    packages: Mapping[str, IndexPackage]
    retired: tuple[Retired, ...] = ()
    revision: str = ""

    def package(self, name: str) -> IndexPackage:
        """Give a package.

        Raises:
            NotFoundError: with the nearest known one, or what to do instead of a retired one.
        """
        if name not in self.packages:
            refuse_retired(name, self.retired, registry=self.name)
            near = nearest(name, self.packages)
            hint = None if near else f"known packages: {', '.join(sorted(self.packages)) or 'none'}"
            raise NotFoundError(f"registry `{self.name}` has no package `{name}`", near=near, hint=hint)
        return self.packages[name]

    def version(self, name: str, version: str = "") -> IndexVersion:
        """Give a version of a package; the newest when none is named.

        Raises:
            NotFoundError: no such package or version.
        """
        package = self.package(name)
        if version in ("", "latest"):
            return package.newest
        for each in package.versions:
            if each.version == version:
                return each
        known = ", ".join(each.version for each in package.versions)
        raise NotFoundError(f"package `{name}` has no version `{version}`", hint=f"known versions: {known}")


def refuse_retired(name: str, retired: Iterable[Retired], *, registry: str) -> None:
    """Raise if a name is one that its registry does not offer any more.

    Raises:
        NotFoundError: with the reason, and what to do instead.
    """
    for each in retired:
        if name in each.names:
            hint = each.instead or f"registry `{registry}` has nothing in its place"
            raise NotFoundError(f"`{name}` is retired: {each.reason}", hint=hint)


class Registry(Protocol):
    """A place that packages come from."""

    def index(self) -> RegistryIndex:
        """Give the index.

        Raises:
            RegistryError: it cannot be fetched or read.
        """

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a package version, newest when none is named; the digest is checked.

        Raises:
            NotFoundError: no such package or version.
            RegistryError: it cannot be fetched, or its digest is not what the index says.
        """

    def at(self, revision: str) -> "Registry":
        """Give the same registry at another branch, tag or commit.

        Raises:
            RegistryError: the protocol has no revisions.
        """


class RegistryType(Protocol):
    """What `@protocol` stands on: a class that opens registries of one protocol."""

    @staticmethod
    def accepts(address: str) -> bool:
        """Tell whether an address is written in this protocol's way."""

    def __call__(self, ref: RegistryRef, *, root: Path) -> Registry:
        """Open a registry; relative addresses start at `root`, the app's folder."""


PROTOCOLS: Table[RegistryType] = Table("registry protocol")
protocol = PROTOCOLS.register
