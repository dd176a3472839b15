"""Registries of packages in OCI registries: `oci://HOST/PATH`.

PATH/NAME:VERSION            a package: an artifact with one layer, its archive
PATH/mlstack-registry:index  the index: an artifact with one layer, `registry.yaml`

Everything is had by digest and checked; the index is believed for ten minutes, what a digest names for ever.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack import disk_cache
from mlstack.app.app import API_VERSION, RegistryRef
from mlstack.app.declare import to_map
from mlstack.app.index import IndexPackage, RegistryIndex, joined
from mlstack.app.package import Files, PackageFolder, digest
from mlstack.errors import RegistryError
from mlstack.registries import archive
from mlstack.registries.distribution import DIGEST, ArtifactManifest, Distribution, digest_of
from mlstack.registries.registry import INDEX_FILE, guarded, protocol, read_index
from mlstack.yaml import write

SCHEME = "oci://"
_INDEX_NAME, _INDEX_TAG = "mlstack-registry", "index"
_PACKAGE_TYPE = "application/vnd.mlstack.package.v1"
_INDEX_TYPE = "application/vnd.mlstack.registry.v1"
_LAYER_TYPES = {_PACKAGE_TYPE: f"{_PACKAGE_TYPE}.tar", _INDEX_TYPE: f"{_INDEX_TYPE}+yaml"}
_EMPTY = b"{}"
_TRUSTED_S = 600.0
_MOST_TRIES = 5


@protocol("oci")
class OciRegistry:
    """Packages below a path of an OCI registry."""

    def __init__(self, ref: RegistryRef, *, root: Path, fresh: bool = False) -> None:
        self._ref, self._fresh, self._reference = ref, fresh, ""
        self.place = place_of(ref.address)

    @staticmethod
    def accepts(address: str) -> bool:
        """Tell whether an address begins with `oci://`."""
        return address.startswith(SCHEME)

    @cached_property
    def _index(self) -> RegistryIndex:
        if not self._reference:
            return self._read_index()
        return replace(self._read_index(), packages=_AtReference(self._base_packages, self._entry))

    def index(self) -> RegistryIndex:
        """Give the index; at a tag or digest, what that holds of the packages that have it."""
        return self._index

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a package version, its digests checked."""
        if self._reference and (manifest := self.place.manifest(package, self._reference)) is not None:
            files = self.place.files(package, manifest)
            head = PackageFolder(files, source=f"{package}@{self._reference}").head
            if version in ("", head.version):
                return files
        wanted = self._read_index().version(package, version)
        name, _, digest_at = wanted.path.partition("@")
        manifest = self.place.manifest(name, digest_at)
        if manifest is None:
            raise RegistryError(
                f"`{self.place.shown(name)}@{digest_at}`, which the index names, is gone",
                hint="publish it again",
            )
        files = self.place.files(name, manifest)
        if digest(files) != wanted.digest:
            raise RegistryError(
                f"the content of package `{package}@{wanted.version}` is not what the registry's index says:"
                f" {digest(files)}, the index has {wanted.digest}",
                hint="nothing was changed; ask the registry's keeper, whose index may be stale",
            )
        return files

    def at(self, revision: str) -> OciRegistry:
        """Give the same packages at a tag or digest."""
        moved = OciRegistry(self._ref, root=Path(), fresh=self._fresh)
        moved._reference = revision
        return moved

    def _read_index(self) -> RegistryIndex:
        data, note = self.place.index(fresh=self._fresh)
        if data is None:
            raise RegistryError(
                f"no registry at `{self._ref.address}`: nothing was published there",
                hint=f"mlstack pkg publish DIR {self._ref.address}",
            )
        return replace(_parsed(data, self._ref.address, self._ref.name), note=note)

    def _base_packages(self) -> Mapping[str, IndexPackage]:
        return self._read_index().packages

    def _entry(self, package: str) -> IndexPackage | None:
        """Give what a package's tag or digest holds; None where it has no such."""
        manifest = self.place.manifest(package, self._reference)
        if manifest is None:
            return None
        return entry_of(package, self.place.files(package, manifest), manifest.digest)


class _AtReference(Mapping[str, IndexPackage]):
    """Packages at one tag or digest where they have it, else as the index says."""

    def __init__(
        self, base: Callable[[], Mapping[str, IndexPackage]], entry: Callable[[str], IndexPackage | None]
    ) -> None:
        self._base, self._entry = base, entry
        self._known: dict[str, IndexPackage] = {}

    def __getitem__(self, name: str) -> IndexPackage:
        if name not in self._known:
            entry = self._entry(name)
            self._known[name] = self._base()[name] if entry is None else entry
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._base())

    def __len__(self) -> int:
        return len(self._base())


def entry_of(package: str, files: Files, manifest_digest: str) -> IndexPackage:
    """Give what the index says of a package with these files in the artifact of this digest."""
    folder = PackageFolder(files, source=package)
    entry = guarded(lambda: folder.entry(f"{folder.head.name}@{manifest_digest}", strict=False), package)
    if entry.name != package:
        raise RegistryError(
            f"the artifact of package `{package}` holds `{entry.name}`", hint="publish it anew"
        )
    return replace(entry, versions=tuple(replace(v, revision=manifest_digest) for v in entry.versions))


class _OneFile:
    """An index as the tree of files that a registry is read from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: PurePosixPath) -> bytes | None:
        return self._data if path.as_posix() == INDEX_FILE else None

    def folder(self, path: PurePosixPath) -> Files:
        return {}

    def names(self) -> list[str]:
        return []


def _parsed(data: bytes, source: str, name: str) -> RegistryIndex:
    """Read an index; each version is at the digest of its artifact."""
    index = read_index(_OneFile(data), source=source, name=name)
    packages = {}
    for package in index.packages.values():
        for version in package.versions:
            path, _, manifest_digest = version.path.partition("@")
            if path != package.name or not DIGEST.fullmatch(manifest_digest):
                message = f"the index of `{source}` names no artifact of `{package.name}@{version.version}`"
                raise RegistryError(message, hint="publish it again")
        versions = tuple(replace(v, revision=v.path.partition("@")[2]) for v in package.versions)
        packages[package.name] = replace(package, versions=versions)
    return replace(index, packages=packages)


# --- a path of an OCI registry ---


def place_of(address: str) -> Repository:
    """Read `oci://HOST[:PORT]/PATH`.

    Raises:
        RegistryError: the address is none.
    """
    host, _, path = address.removeprefix(SCHEME).rstrip("/").partition("/")
    if not address.startswith(SCHEME) or "@" in host:
        raise RegistryError(f"`{address}` is no OCI address", hint="write oci://HOST/PATH; docker login HOST")
    return Repository(host=host, path=path)


@dataclass(frozen=True)
class Published:
    """A package in an OCI registry."""

    manifest_digest: str
    is_new: bool  # it was not there in just this form


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Where packages lie: a host, and the path that stands before their names."""

    host: str
    path: str

    @cached_property
    def _api(self) -> Distribution:
        return Distribution(self.host)

    def shown(self, name: str) -> str:
        """Write the repository of a name as docker does."""
        return f"{self.host}/{self._repository(name)}"

    def _repository(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

    def manifest(self, name: str, reference: str) -> ArtifactManifest | None:
        """Give the manifest of a tag or digest; one of a digest is kept, and no network asked again."""
        cache = disk_cache.of_user(os.environ)
        key = f"oci manifest {self.shown(name)}@"
        kept = cache.get(key + reference) if DIGEST.fullmatch(reference) else None
        if kept is not None and digest_of(kept) == reference:
            return ArtifactManifest(digest=reference, data=kept, value=json.loads(kept))
        manifest = self._api.manifest(self._repository(name), reference)
        if manifest is not None:
            cache.put(key + manifest.digest, manifest.data)
        return manifest

    def files(self, name: str, manifest: ArtifactManifest) -> Files:
        """Give the files of a package's artifact."""
        return archive.unpack(self._layer(name, manifest, _PACKAGE_TYPE), f"{name}@{manifest.digest[:19]}")

    def _layer(self, name: str, manifest: ArtifactManifest, kind: str) -> bytes:
        """Give the one layer of an artifact of ours; its bytes are kept by their digest."""
        layers = [layer for layer in manifest.layers if str(layer.get("mediaType")).startswith(kind)]
        if len(layers) != 1 or not DIGEST.fullmatch(str(layers[0].get("digest"))):
            what = "no package" if kind == _PACKAGE_TYPE else "no index"
            message = f"`{self.shown(name)}@{manifest.digest}` is {what} of mlstack's"
            raise RegistryError(message, hint="charts are taken with --type helm")
        cache, blob = disk_cache.of_user(os.environ), str(layers[0]["digest"])
        data = cache.get(f"oci blob {blob}")
        if data is None or digest_of(data) != blob:
            data = self._api.blob(self._repository(name), blob)
            cache.put(f"oci blob {blob}", data)
        return data

    def index(self, *, fresh: bool) -> tuple[bytes | None, str]:
        """Give the text of the index, None where there is none, and why it is not the registry's of now.

        Raises:
            RegistryError: the registry does not answer, and was not asked before.
        """
        cache, key = disk_cache.of_user(os.environ), f"oci index {self.host}/{self.path}"
        known = disk_cache.from_json(cache.get(key), dict)
        if known and not fresh and time.time() - known["asked_s"] < _TRUSTED_S:
            kept = self._kept_index(known)
            if kept is not None:
                return kept, ""
        try:
            manifest = self._api.manifest(self._repository(_INDEX_NAME), _INDEX_TAG)
            data = None if manifest is None else self._layer(_INDEX_NAME, manifest, _INDEX_TYPE)
        except RegistryError as error:
            kept = self._kept_index(known) if known and not fresh else None
            if known is None or kept is None:
                raise
            asked = datetime.fromtimestamp(known["asked_s"], UTC).strftime("%Y-%m-%d %H:%M UTC")
            return kept, f"{error}; what it said on {asked} is used"
        if data is not None:
            entry = {"asked_s": time.time(), "blob": digest_of(data)}
            cache.put(key, json.dumps(entry).encode())
        return data, ""

    def _kept_index(self, known: Mapping[str, Any]) -> bytes | None:
        data = disk_cache.of_user(os.environ).get(f"oci blob {known['blob']}")
        return data if data is not None and digest_of(data) == known["blob"] else None

    # --- publishing ---

    def publish(self, files: Files) -> Published:
        """Push a package with its version as tag, and enter it in the index.

        Raises:
            RegistryError: the version is there with other content, or the registry refuses.
        """
        folder = PackageFolder(files, source="package")
        name, version = folder.head.name, folder.head.version
        tag = version.replace("+", "_")  # no tag has it; as Helm does
        data = archive.pack(files)
        before = self._api.manifest(self._repository(name), tag)
        if before is not None and digest(self.files(name, before)) != folder.digest:
            raise RegistryError(
                f"`{self.shown(name)}:{tag}` is there with other content",
                hint="a changed package needs a new version in its package.yaml",
            )
        facts = {"title": name, "version": version, "description": folder.head.summary}
        manifest_digest = self._push(name, tag, data, _PACKAGE_TYPE, facts)
        is_entered = self._enter(entry_of(name, files, manifest_digest))
        return Published(manifest_digest, is_new=before is None or is_entered)

    def _push(self, name: str, tag: str, data: bytes, kind: str, facts: Mapping[str, str]) -> str:
        """Push an artifact of one layer; the same content has the same digest whoever pushes it."""
        repository = self._repository(name)
        config = {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "digest": self._api.push_blob(repository, _EMPTY),
            "size": len(_EMPTY),
        }
        blob = self._api.push_blob(repository, data)
        layer = {"mediaType": _LAYER_TYPES[kind], "digest": blob, "size": len(data)}
        disk_cache.of_user(os.environ).put(f"oci blob {blob}", data)
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": kind,
            "config": config,
            "layers": [layer],
            "annotations": {f"org.opencontainers.image.{key}": text for key, text in facts.items() if text},
        }
        return self._api.push_manifest(repository, tag, manifest)

    def _enter(self, entry: IndexPackage) -> bool:
        """Enter a version in the index; again if somebody else wrote it meanwhile. Tell whether it is new."""
        is_new = False
        for _ in range(_MOST_TRIES):
            data, _note = self.index(fresh=True)
            shown = f"{self.host}/{self.path}".rstrip("/")
            name = shown.rpartition("/")[2].partition(":")[0]
            index = RegistryIndex(name=name) if data is None else _parsed(data, shown, name)
            known = index.packages.get(entry.name)
            if known and {v.path for v in entry.versions} <= {v.path for v in known.versions}:
                return is_new
            is_new = True
            index = replace(index, packages=joined([*index.packages.values(), entry]))
            head = {"apiVersion": API_VERSION, "kind": "Registry"}
            text = write.to_yaml(head | to_map(index, always=("name", "packages")))
            self._push(_INDEX_NAME, _INDEX_TAG, text.encode(), _INDEX_TYPE, {"title": name})
        raise RegistryError(
            f"the index of `{shown}` is written by others again and again",
            hint="publish it again: the package is there, only the index lacks it",
        )
