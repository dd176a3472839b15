"""Versions of packages: those that the index of a registry offers, and those that an app's lock holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from mlstack.app.app import PackageRef, Retired, read_package
from mlstack.app.document import (
    DIGEST,
    NAME,
    PACKAGE,
    SHORT_NAME,
    SIGNATURE,
    TEXT,
    VERSION,
    WORD,
    FieldReader,
    key,
    list_of,
    map_of,
    records,
)
from mlstack.dataclass import dataclass
from mlstack.errors import NotFoundError
from mlstack.names import best_first, check_range, not_found, version_key

KSONNET_PREFIX = "io.ksonnet.pkg."
"""What ksonnet wrote before the names of prototypes."""


def _read_ranges(fields: FieldReader, name: str) -> dict[str, Any]:
    """Read packages with the versions that fit, each a range or a map with one as `version`."""
    needs = dict(fields.map(name))
    for package, need in needs.items():
        try:
            check_range(need if isinstance(need, str) else need.get("version", ""))
        except ValueError as error:
            fields.refuse((name, package), str(error))
    return needs


@dataclass(frozen=True, kw_only=True)
class IndexVersion:
    """One version of a package."""

    version: str = key(VERSION, required=True)
    path: str = key(WORD, "The package folder, relative to this file.", required=True)
    digest: str = key(DIGEST, "What its content must have.", required=True)
    requires: Mapping[str, Mapping[str, str]] = key(
        map_of(map_of(TEXT)),
        "Packages that it requires by name, each with `version` and `registry`.",
        reader=_read_ranges,
    )
    requires_mlstack: str = key(TEXT, "Versions of mlstack that it works with.")
    signature: str = key(SIGNATURE, "What cosign made of its name, version and digest.")
    yanked: str = key(
        TEXT, "Why nobody should install it any more; written by hand, and who has it keeps it."
    )
    deprecated: str = key(TEXT, "Why to move on from it, and where to; written by hand.")
    revision: str = field(default="")  # commit or digest it is read at, where that is not the index's


@dataclass(frozen=True, kw_only=True)
class IndexPrototype:
    """One prototype of a package's newest version, to be found before the package is installed."""

    name: str = key(SHORT_NAME, required=True)
    summary: str = key(TEXT)
    aliases: tuple[str, ...] = key(list_of(NAME), "Its other names.")

    @property
    def names(self) -> tuple[str, ...]:
        """Give all its names."""
        return (self.name, *self.aliases)


@dataclass(frozen=True, kw_only=True)
class IndexPackage:
    """One package, versions in ascending order."""

    name: str = key(SHORT_NAME, required=True)
    summary: str = key(TEXT)
    keywords: tuple[str, ...] = key(list_of(TEXT))
    prototypes: tuple[IndexPrototype, ...] = records(IndexPrototype)
    versions: tuple[IndexVersion, ...] = records(IndexVersion, minItems=1, required=True)

    @property
    def newest(self) -> IndexVersion:
        """Give the highest version: one that is not yanked, and a release where there is one."""
        by_name = {entry.version: entry for entry in self.versions}
        offered = [entry.version for entry in self.versions if not entry.yanked] or list(by_name)
        return by_name[best_first(offered)[0]]


def joined(entries: Iterable[IndexPackage]) -> dict[str, IndexPackage]:
    """Join packages by name: every version of each, ascending, a later one in place of an equal earlier one.

    What is said of a package beside its versions is what its newest version says.
    """
    packages: dict[str, IndexPackage] = {}
    for entry in sorted(entries, key=lambda entry: (entry.name, version_key(entry.newest.version))):
        versions_before = packages[entry.name].versions if entry.name in packages else ()
        versions = {version.version: version for version in versions_before}
        for version in entry.versions:  # what was written by hand stays
            old = versions.get(version.version, version)
            words = ("yanked", "deprecated", *(("signature",) if old.digest == version.digest else ()))
            said = {word: getattr(version, word) or getattr(old, word) for word in words}
            versions[version.version] = replace(version, **said)
        ordered = sorted(versions.values(), key=lambda version: version_key(version.version))
        packages[entry.name] = replace(entry, versions=tuple(ordered))
    return packages


@dataclass(frozen=True, kw_only=True)
class RegistryIndex:
    """The index of a registry: its packages, their versions and digests."""

    name: str = key(SHORT_NAME, required=True)  # the registry's own
    summary: str = key(TEXT)
    aliases: tuple[str, ...] = key(list_of(TEXT), "Addresses that this registry stands in for.")
    retired: tuple[Retired, ...] = records(
        Retired, "Names of packages and prototypes that are not offered any more."
    )
    packages: Mapping[str, IndexPackage] = records(
        IndexPackage, by="name", required=True, default_factory=dict
    )
    revision: str = field(default="")  # the commit the index was read at; empty where there are no commits
    known_as: str = field(default="")  # what the app calls the registry
    note: str = field(default="")  # why this is not what the registry says now

    @property
    def label(self) -> str:
        """Give the name that people know the registry by."""
        return self.known_as or self.name

    def package(self, name: str) -> IndexPackage:
        """Give a package.

        Raises:
            NotFoundError: with the nearest known one, or what to do instead of a retired one.
        """
        if name not in self.packages:
            refuse_retired(name, self.retired, registry=self.label)
            hint = f"known packages: {', '.join(sorted(self.packages)) or 'none'}"
            message = f"registry `{self.label}` has no package `{name}`"
            raise not_found(message, name, self.packages, hint=hint)
        return self.packages[name]

    def version(self, name: str, version: str = "") -> IndexVersion:
        """Give a version of a package, by its number or its digest; the newest when none is named.

        Raises:
            NotFoundError: no such package or version.
        """
        package = self.package(name)
        if version in ("", "latest"):
            return package.newest
        for entry in package.versions:
            if version in (entry.version, entry.digest):
                return entry
        known = ", ".join(entry.version for entry in package.versions)
        raise NotFoundError(f"package `{name}` has no version `{version}`", hint=f"known versions: {known}")


def offers(index: RegistryIndex, name: str) -> list[tuple[IndexPackage, IndexPrototype]]:
    """Find the prototypes that a name may mean: by name, by alias, by an end in whole words.

    `name` may have its package in front, and ksonnet's `io.ksonnet.pkg.`.
    """
    owner, _, short = name.removeprefix(KSONNET_PREFIX).rpartition("/")
    package_name = owner.rpartition("/")[2]
    every = [
        (package, prototype)
        for package in index.packages.values()
        if package_name in ("", package.name)
        for prototype in package.prototypes
    ]
    endings = tuple(f"{separator}{short}" for separator in "-._")
    for fits in (
        lambda prototype: prototype.name == short,
        lambda prototype: short in prototype.aliases,
        lambda prototype: short and any(known.endswith(endings) for known in prototype.names),
    ):
        if matches := [(package, prototype) for package, prototype in every if fits(prototype)]:
            return matches
    return []


def refuse_retired(name: str, retired: Iterable[Retired], *, registry: str) -> None:
    """Raise if a name is one that its registry does not offer any more.

    Raises:
        NotFoundError: with the reason, and what to do instead.
    """
    for entry in retired:
        if name in entry.names:
            hint = entry.instead or f"registry `{registry}` has nothing in its place"
            raise NotFoundError(f"`{name}` is {entry.state}: {entry.reason}", hint=hint)


# --- `mlstack.lock`: which versions, commits and digests an app stands on ---


@dataclass(frozen=True, kw_only=True)
class LockedRegistry:
    """Where a registry was read from when a package of it was last installed."""

    name: str = key(SHORT_NAME, required=True)
    address: str = key(WORD, required=True)
    # What its index said of retired names, where asking it again would need a network.
    retired: tuple[Retired, ...] = records(
        Retired, "Names of packages and prototypes that are not offered any more."
    )


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One installed package: exact version and `sha256:…` of its content."""

    full_name: str = key(  # `registry/name`
        PACKAGE,
        name="package",
        required=True,
        reader=lambda fields, name: read_package(fields, name).full_name,
    )
    version: str = key(VERSION, required=True)
    digest: str = key(DIGEST, "Over the package folder's paths and bytes.", required=True)
    source: str = key(TEXT, "Address the package was fetched from.")
    revision: str = key(TEXT, "Commit, or digest of an artifact, that it was read at.")
    signature: str = key(SIGNATURE, "What cosign made of its name, version and digest.")
    requires: Mapping[str, str] = key(
        map_of(TEXT),
        "Packages that it requires, with the versions that fit.",
        reader=_read_ranges,
        hash=False,
    )
    environments: tuple[str, ...] = key(
        list_of(WORD),
        "Where the package's name without a version means this one: `*` for everywhere, names of environments"
        " that ask for another one than the app.",
    )
    files: Mapping[str, str] = key(
        map_of(DIGEST), "Digest of each file, to name the one that was changed.", hash=False
    )

    @property
    def registry(self) -> str:
        """Give the app's name of the registry it came from."""
        return self.full_name.partition("/")[0]

    @property
    def name(self) -> str:
        """Give its name in the registry."""
        return self.full_name.partition("/")[2]

    @property
    def ref(self) -> PackageRef:
        """Give the exact requirement that this package meets."""
        return PackageRef(registry=self.registry, name=self.name, version=self.version)

    @property
    def only_in(self) -> tuple[str, ...]:
        """Give the environments that have this version in place of the app's."""
        return tuple(name for name in self.environments if name != "*")

    @property
    def folder(self) -> str:
        """Give the package's folder in the app: `vendor/kubeflow/core@0.1.0`."""
        return f"vendor/{self.full_name}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class LockedKustomization:
    """A kustomization of somebody else's, copied into `vendor/` with all that it refers to."""

    source: str = key(
        WORD, "As components name it: an address with its branch, tag or commit.", required=True
    )
    folder: str = key(WORD, "Where its copy stands, below the app.", required=True)
    root: str = key(TEXT, "The kustomization in that folder.")
    revision: str = key(WORD, "The commit that was copied.", required=True)
    digest: str = key(DIGEST, "Over the paths and bytes of the copy.", required=True)


@dataclass(frozen=True, kw_only=True)
class Lock:
    """Exact versions and digests of the installed packages; written by mlstack alone."""

    registries: tuple[LockedRegistry, ...] = records(LockedRegistry)
    packages: tuple[LockedPackage, ...] = records(LockedPackage)
    kustomizations: tuple[LockedKustomization, ...] = records(LockedKustomization)

    @property
    def digests(self) -> dict[str, str]:
        """Give the digest of each installed package, by name and version."""
        return {str(package.ref): package.digest for package in self.packages}


def newest(packages: Iterable[LockedPackage]) -> dict[str, LockedPackage]:
    """Give the newest version of each package by full name, sorted by it."""
    ordered = sorted(packages, key=lambda package: (package.full_name, version_key(package.version)))
    return {package.full_name: package for package in ordered}
