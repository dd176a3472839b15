"""`mlstack.lock`: which versions, commits and digests an app stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mlstack.app.app import PackageRef, Retired
from mlstack.app.declare import (
    DIGEST,
    PACKAGE,
    SHORT_NAME,
    SIGNATURE,
    TEXT,
    VERSION,
    WORD,
    key,
    list_of,
    records,
)
from mlstack.dataclass import dataclass
from mlstack.names import check_range, version_key

if TYPE_CHECKING:
    from mlstack.app.document import FieldReader


@dataclass(frozen=True, kw_only=True)
class LockedRegistry:
    """Where a registry was read from when a package of it was last installed."""

    name: str = key(SHORT_NAME, required=True)
    address: str = key(WORD, required=True)
    # What its index said of retired names, where asking it again would need a network.
    retired: tuple[Retired, ...] = records(
        Retired, "Names of packages and prototypes that are not offered any more.", default=()
    )


def _read_ranges(fields: FieldReader, name: str) -> dict[str, str]:
    ranges: dict[str, str] = {}
    for package, wanted in fields.map(name).items():
        try:
            ranges[package] = check_range(wanted)
        except ValueError as error:
            fields.refuse((name, package), str(error))
    return ranges


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One installed package: exact version and `sha256:…` of its content."""

    full_name: str = key(  # `registry/name`
        PACKAGE, name="package", required=True, reader=lambda fields, name: fields.package(name).full_name
    )
    version: str = key(VERSION, required=True)
    digest: str = key(DIGEST, "Over the package folder's paths and bytes.", required=True)
    source: str = key(TEXT, "Address the package was fetched from.", default="")
    revision: str = key(TEXT, "Commit, or digest of an artifact, that it was read at.", default="")
    signature: str = key(SIGNATURE, "What cosign made of its name, version and digest.", default="")
    requires: Mapping[str, str] = key(
        {"type": "object", "additionalProperties": TEXT},
        "Packages that it requires, with the versions that fit.",
        reader=_read_ranges,
        default_factory=dict,
        hash=False,
    )
    # `*` for the app, else names of environments with requirements of their own
    environments: tuple[str, ...] = key(
        list_of(WORD),
        "Where the package's name without a version means this one: `*` for everywhere, names of environments"
        " that ask for another one than the app.",
        default=(),
    )
    files: Mapping[str, str] = key(
        {"type": "object", "additionalProperties": DIGEST},
        "Digest of each file, to name the one that was changed.",
        default_factory=dict,
        hash=False,
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
    root: str = key(TEXT, "The kustomization in that folder.", default="")
    revision: str = key(WORD, "The commit that was copied.", required=True)
    digest: str = key(DIGEST, "Over the paths and bytes of the copy.", required=True)


@dataclass(frozen=True, kw_only=True)
class Lock:
    """Exact versions and digests of the installed packages; written by mlstack alone."""

    registries: tuple[LockedRegistry, ...] = records(LockedRegistry, default=())
    packages: tuple[LockedPackage, ...] = records(LockedPackage, default=())
    kustomizations: tuple[LockedKustomization, ...] = records(LockedKustomization, default=())


def newest(packages: Iterable[LockedPackage]) -> dict[str, LockedPackage]:
    """Give the newest version of each package by full name, sorted by it."""
    ordered = sorted(packages, key=lambda package: (package.full_name, version_key(package.version)))
    return {package.full_name: package for package in ordered}
