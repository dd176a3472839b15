"""Registries that are folders of the disk, and what a keeper of packages writes: index and signatures."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mlstack import programs
from mlstack.app.app import RegistryRef
from mlstack.app.chart import is_chart_folder
from mlstack.app.document import API_VERSION, to_map
from mlstack.app.files import Files, read_file, read_folder
from mlstack.app.package import PackageFolder
from mlstack.app.versions import IndexPackage, RegistryIndex, joined
from mlstack.errors import RegistryError, UsageError
from mlstack.names import check_registry_name
from mlstack.programs import ProgramError
from mlstack.registries.registry import INDEX_FILE, PACKAGE_FILES, fetch_package, protocol, read_index
from mlstack.yaml import write


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
        return [
            entry.name for entry in self._root.iterdir() if entry.is_dir() and not entry.name.startswith(".")
        ]

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
        """Refuse: a folder has no revisions.

        Raises:
            RegistryError: always.
        """
        raise RegistryError(
            f"registry `{self._ref.name}` is a folder, which has no revision `{revision}`",
            hint=f"mlstack registry describe {self._ref.name} lists the versions",
        )


# --- write the index of a registry from its package folders ---


class BuiltIndex(NamedTuple):
    """The index of a registry, made anew."""

    text: str  # of `registry.yaml`
    overwritten: tuple[str, ...]  # `NAME@VERSION` whose content is another one than the index had


def build_index(folder: Path, *, packages: Path | None = None, name: str = "", key: str = "") -> BuiltIndex:
    """Make `registry.yaml` for a registry's folder, from what its packages hold now.

    Name, summary, addresses and retired names are taken from the index that is there. Older versions stay
    as long as their folder does.

    Args:
        folder: the registry's folder.
        packages: the folder with the packages; the registry's own, or `prototypes` beside it.
        name: of the registry; else the one that its index has, else its folder's.
        key: a private key of cosign that signs the versions which have no signature.

    Raises:
        RegistryError: there is no package, or the name cannot be a registry's.
        SchemaError: a package is wrong.
    """
    before_index = _known(folder, name)
    entries = [kept for package in before_index.packages.values() for kept in _kept(package, folder)]
    for path in package_folders(folder, packages):
        relative = Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
        entries.append(PackageFolder.read(path, source=path.name).entry(relative))
    joint = joined(entries)
    if key:
        joint = {name: _with_signatures(package, key) for name, package in joint.items()}
    index = replace(before_index, packages=joint)
    text = "# The packages are derived from their folders: mlstack rewrites them.\n" + index_text(index)
    before = _digests(before_index)
    overwritten = (name for name, digest in _digests(index).items() if before.get(name, digest) != digest)
    return BuiltIndex(text, tuple(overwritten))


def index_text(index: RegistryIndex) -> str:
    """Write an index as `registry.yaml`."""
    head = {"apiVersion": API_VERSION, "kind": "Registry"}
    return write.to_yaml(head | to_map(index, always=("name", "packages")))


def _digests(index: RegistryIndex) -> dict[str, str]:
    return {
        f"{package.name}@{version.version}": version.digest
        for package in index.packages.values()
        for version in package.versions
    }


def package_folders(folder: Path, packages: Path | None = None) -> list[Path]:
    """Give the package folders of a registry, sorted; arguments as of `build_index`.

    Raises:
        RegistryError: there is none.
    """
    source = packages or (folder if _has_packages(folder) else folder.parent / "prototypes")
    if not _has_packages(source):
        beside = "" if packages else ", nor in `prototypes` beside it"
        message = f"no package folder in `{packages or folder}`{beside}"
        raise RegistryError(message, hint="a package is a folder with package.yaml, or a chart")
    return sorted(folder for folder in source.glob("*") if is_package_folder(folder))


def is_package_folder(folder: Path) -> bool:
    """Tell whether a folder holds a package, or a chart, which is one too."""
    return any((folder / name).is_file() for name in PACKAGE_FILES)


def refuse_chart(folder: Path, why: str, hint: str) -> None:
    """Refuse a chart where only a package of ours is served.

    Raises:
        UsageError: it is one; `hint` says what serves.
    """
    if is_chart_folder(folder):
        raise UsageError(f"`{folder}` is a Helm chart, {why}", hint=hint)


def _with_signatures(package: IndexPackage, key: str) -> IndexPackage:
    versions = [
        entry
        if entry.signature
        else replace(
            entry, signature=sign(key, name=package.name, version=entry.version, digest=entry.digest)
        )
        for entry in package.versions
    ]
    return replace(package, versions=tuple(versions))


def _has_packages(folder: Path) -> bool:
    return any(map(is_package_folder, folder.glob("*")))


def _known(folder: Path, name: str) -> RegistryIndex:
    source = folder.resolve().name  # `.` has none
    index = RegistryIndex(name=name or source)
    if (folder / INDEX_FILE).is_file():
        index = read_index(FolderTree(folder.resolve()), source=source, name=source)
        index = replace(index, name=name or index.name)
    try:
        check_registry_name(index.name)
    except UsageError as error:
        raise RegistryError(error.message, hint="give one: mlstack registry index DIR --name NAME") from error
    return index


def _kept(package: IndexPackage, folder: Path) -> Iterator[IndexPackage]:
    """Give the package with each of the versions whose folder still holds that version."""
    for version in package.versions:
        place = folder / version.path
        if is_package_folder(place):
            head = PackageFolder.read(place, source=version.path).head
            if (head.name, head.version) == (package.name, version.version):
                yield replace(package, versions=(version,))


# --- sign packages, by the user's own `cosign` ---
# What mlstack signs is name, version and digest. Such a signature stands beside the digest in the index of a
# registry, and in `mlstack.lock` once the package is installed, so that it is checked again without the
# registry.

COSIGN_S = 60.0
GET_COSIGN = "install cosign 3 (https://docs.sigstore.dev) and make sure it is on the PATH"
KEYLESS = "keyless"  # in place of a private key: sign as whom one is logged in
_PASSWORD = "COSIGN_PASSWORD"


def signed_line(name: str, version: str, digest: str) -> bytes:
    """Give the bytes that are signed: one line, so that a signature fits no other package or version."""
    return f"{name}@{version} {digest}\n".encode()


def sign(key: str, *, name: str, version: str, digest: str) -> str:
    """Sign a package version with a private key of cosign; its password is taken from COSIGN_PASSWORD.

    `KEYLESS` in place of the key signs as whom the person, or the workflow of a CI server, is logged in.

    Raises:
        RegistryError: `cosign` is missing or refuses.
    """
    what, statement = f"{name}@{version}", signed_line(name, version, digest)
    if key != KEYLESS:
        return _signed(key, ["sign-blob", "--new-bundle-format=false", "-"], what, statement).decode().strip()
    with TemporaryDirectory(prefix="mlstack-signature-") as folder:
        bundle = Path(folder, "bundle")
        _signed(key, ["sign-blob", f"--bundle={bundle}", "-"], what, statement)
        return base64.b64encode(json.dumps(json.loads(bundle.read_bytes())).encode()).decode()


def sign_artifact(key: str, artifact: str) -> None:
    """Sign an artifact in an OCI registry as cosign does, as `sign`; the signature lies beside it."""
    _signed(key, ["sign", artifact], artifact, b"")


def _signed(key: str, what: list[str], shown: str, statement: bytes) -> bytes:
    options = ["--yes"]
    if key != KEYLESS:
        options += [f"--key={key}", "--tlog-upload=false", "--use-signing-config=false"]
    command = ["cosign", what[0], *options, *what[1:]]
    password = {_PASSWORD: os.environ.get(_PASSWORD, "")}  # else it takes stdin for one
    try:
        return programs.run(command, settings=password, stdin=statement, timeout_s=COSIGN_S).stdout
    except ProgramError as error:
        hint = f"check the key, and its password in {_PASSWORD}"
        if key == KEYLESS:
            hint = "give a token of your OpenID provider in SIGSTORE_ID_TOKEN, as CI servers do"
        hint = GET_COSIGN if error.status is None else hint
        raise RegistryError(f"cannot sign `{shown}`: {reason_of(error)}", hint=hint) from error


def reason_of(error: ProgramError) -> str:
    """Give the reason without what cosign says beside it."""
    return str(error).rpartition("error during command execution: ")[2]
