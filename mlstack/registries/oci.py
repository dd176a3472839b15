"""Registries of packages in OCI registries: `oci://HOST/PATH`.

PATH/NAME:VERSION            a package: an artifact with one layer, its archive
PATH/mlstack-registry:index  the index: an artifact with one layer, `registry.yaml`

PATH/NAME is PATH itself where that ends in the name. Without an index the packages are those that tags tell
of: of PATH, and of what is right below it where the registry lists its repositories.

Everything is had by digest and checked; the index is believed for ten minutes, what a digest names for ever.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import uniform

from mlstack import disk_cache
from mlstack.app.app import RegistryRef
from mlstack.app.chart import pack, unpack
from mlstack.app.files import Files
from mlstack.app.package import PackageFolder, digest
from mlstack.app.versions import IndexPackage, RegistryIndex, joined
from mlstack.dataclass import Record, dataclass
from mlstack.errors import MlstackError, RegistryError
from mlstack.names import best_first, names_a_package
from mlstack.registries.distribution import (
    DIGEST,
    MANIFEST,
    SCHEME,
    ArtifactManifest,
    Distribution,
    UnauthorizedError,
    canonical_json,
    digest_of,
    repository_of,
    split_address,
)
from mlstack.registries.publish import index_text, sign, sign_artifact
from mlstack.registries.registry import PackagesByName, checked, latest, parse_index, protocol, refusing

_INDEX_NAME, _INDEX_TAG = "mlstack-registry", "index"
_PACKAGE_TYPE = "application/vnd.mlstack.package.v1"
_INDEX_TYPE = "application/vnd.mlstack.registry.v1"
_LAYER_TYPES = {_PACKAGE_TYPE: f"{_PACKAGE_TYPE}.tar", _INDEX_TYPE: f"{_INDEX_TYPE}+yaml"}
UNLISTED = ""
_MOST_TRIES = 20


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
    def index(self) -> RegistryIndex:
        """Give the index; at a tag or digest, what that holds of the packages that have it."""
        if not self._reference:
            return self._base
        try:
            index = self._base
        except RegistryError:  # what has a digest is had without an index
            index = RegistryIndex(name=self._ref.name, known_as=self._ref.name)
        return replace(index, packages=PackagesByName(self._entry, tuple(index.packages)))

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a package version, its digests checked."""
        if self._reference and (manifest := self.place.manifest(package, self._reference)) is not None:
            files = self.place.files(package, manifest)
            head = PackageFolder(files, source=f"{package}@{self._reference}").head
            if version in ("", head.version):
                return files
        entry = self._base.version(package, version)
        name, _, digest_at = entry.path.partition("@")
        manifest = self.place.manifest(name, digest_at)
        if manifest is None:
            message = f"`{self.place.shown(name)}@{digest_at}`, which the index names, is gone"
            raise RegistryError(message, hint="publish it again")
        return checked(self.place.files(name, manifest), entry, f"{package}@{entry.version}")

    def at(self, revision: str) -> OciRegistry:
        """Give the same packages at a tag or digest."""
        moved = OciRegistry(self._ref, root=Path(), fresh=self._fresh)
        moved._reference = revision
        return moved

    @cached_property
    def _base(self) -> RegistryIndex:
        text, note = self.place.index(fresh=self._fresh)
        if text is None:
            message = f"no registry at `{self._ref.address}`: nothing was published there"
            hint = f"mlstack pkg publish DIR {self._ref.address}; charts: --type helm; one package: oci://HOST/PATH/NAME"
            raise RegistryError(message, hint=hint)
        if text == UNLISTED:
            note = note or f"{self.place.host} lists neither packages nor repositories: name packages"
            packages = PackagesByName(self.place.tagged, ())
            return RegistryIndex(name=self._ref.name, known_as=self._ref.name, packages=packages, note=note)
        return replace(_parsed(text, self._ref.address, self._ref.name), note=note)

    def _entry(self, package: str) -> IndexPackage | None:
        """Give what a package's tag or digest holds; None for a package that has no such."""
        manifest = self.place.manifest(package, self._reference)
        if manifest is None:
            return None
        return entry_of(package, self.place.files(package, manifest), manifest.digest)


def entry_of(package: str, files: Files, manifest_digest: str, signature: str = "") -> IndexPackage:
    """Give what the index says of a package with these files in the artifact of this digest."""
    folder = PackageFolder(files, source=package)
    with refusing(f"package `{package}` is refused"):
        entry = folder.entry(f"{folder.head.name}@{manifest_digest}", strict=False)
    if entry.name != package:
        message = f"the artifact of package `{package}` holds `{entry.name}`"
        raise RegistryError(message, hint="publish it anew")
    versions = (replace(v, revision=manifest_digest, signature=signature) for v in entry.versions)
    return replace(entry, versions=tuple(versions))


def _parsed(text: str, source: str, name: str) -> RegistryIndex:
    """Read an index; each version is at the digest of its artifact."""
    index = parse_index(text.encode(), source=source, name=name)
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
    host, path = split_address(address)
    return Repository(host=host, path=path)


@dataclass(frozen=True)
class Published:
    """A package in an OCI registry."""

    manifest_digest: str
    is_new: bool  # it was not there in just this form


class Repository(Record):
    """Where packages lie: a host, and the path that stands before their names."""

    host: str
    path: str

    @cached_property
    def _api(self) -> Distribution:
        return Distribution(self.host)

    @property
    def _label(self) -> str:
        return f"{self.host}/{self.path}".rstrip("/").rpartition("/")[2].partition(":")[0]

    def shown(self, name: str) -> str:
        """Write the repository of a name as docker does."""
        return f"{self.host}/{self._repository(name)}"

    def _repository(self, name: str) -> str:
        return repository_of(self.path, name)

    def manifest(self, name: str, reference: str) -> ArtifactManifest | None:
        """Give the manifest of a tag or digest; one of a digest is kept, and no network asked again."""
        cache = disk_cache.of_user(os.environ)
        key = f"oci manifest {self.shown(name)}@"
        kept = cache.get(key + reference) if DIGEST.fullmatch(reference) else None
        if kept is not None and digest_of(kept) == reference:
            return ArtifactManifest(reference, kept, json.loads(kept))
        manifest = self._api.manifest(self._repository(name), reference)
        if manifest is not None:
            cache.put(key + manifest.digest, manifest.data)
        return manifest

    def files(self, name: str, manifest: ArtifactManifest) -> Files:
        """Give the files of a package's artifact."""
        return unpack(self.layer(name, manifest, _PACKAGE_TYPE), f"{name}@{manifest.digest[:19]}")

    def layer(self, name: str, manifest: ArtifactManifest, kind: str) -> bytes:
        """Give the one layer of an artifact of some kind; its bytes are kept by their digest."""
        layers = [layer for layer in manifest.layers if str(layer.get("mediaType")).startswith(kind)]
        if len(layers) != 1 or not DIGEST.fullmatch(str(layers[0].get("digest"))):
            ours = {_PACKAGE_TYPE: "package of mlstack's", _INDEX_TYPE: "index of mlstack's"}
            what = ours.get(kind, "chart")
            hint = "packages of mlstack's are taken with --type oci, charts with --type helm"
            raise RegistryError(f"`{self.shown(name)}@{manifest.digest}` is no {what}", hint=hint)
        cache, blob = disk_cache.of_user(os.environ), str(layers[0]["digest"])
        data = cache.get(f"oci blob {blob}")
        if data is None or digest_of(data) != blob:
            data = self._api.blob(self._repository(name), blob)
            cache.put(f"oci blob {blob}", data)
        return data

    @property
    def _index_key(self) -> str:
        return f"oci index {self.host}/{self.path}"

    def index(self, *, fresh: bool) -> tuple[str | None, str]:
        """Give the text of the index, and why it is not the registry's of now.

        It is None where there is nothing, `UNLISTED` where nobody can tell what there is.
        """
        return latest(self._index_key, self._ask, fresh=fresh)

    def _ask(self) -> str | None:
        refusal = None
        try:
            if (text := self._published_index()) is not None:
                return text
        except UnauthorizedError as error:  # so some answer for what is not there
            refusal = error
        own = self.path.rpartition("/")[2]
        below = [] if refusal else self._api.repositories(self.path)
        names = dict.fromkeys([*([own] if own else []), *(below or ())])
        packages = {name: package for name in names if (package := self.tagged(name))}
        if packages:
            return index_text(RegistryIndex(name=self._label, packages=packages))
        if refusal:
            raise refusal
        return UNLISTED if below is None else None

    def _published_index(self) -> str | None:
        manifest = self._api.manifest(self._repository(_INDEX_NAME), _INDEX_TAG)
        if manifest is None:
            return None
        return self.layer(_INDEX_NAME, manifest, _INDEX_TYPE).decode("utf-8", "surrogateescape")

    def versions(self, name: str) -> list[str]:
        """Give the tags of a repository that a version of a package may have; none where there is none."""
        tags = (tag.replace("_", "+") for tag in self._api.tags(self._repository(name)) or ())
        return [tag for tag in tags if names_a_package("r", name, tag)]

    def tagged(self, name: str) -> IndexPackage | None:
        """Give a package with the versions that its tags tell of; None for what is none of mlstack's."""
        entries = []
        for version in best_first(filter(re.compile(r"\d+\.\d+").match, self.versions(name))):
            manifest = self.manifest(name, version.replace("+", "_"))
            if manifest is None or manifest.value.get("artifactType") != _PACKAGE_TYPE:
                break
            with suppress(MlstackError):  # it is told to whoever asks for that version
                entries.append(entry_of(name, self.files(name, manifest), manifest.digest))
        return joined(entries).get(name)

    # --- publishing ---

    def publish(self, files: Files, *, key: str = "") -> Published:
        """Push a package with its version as tag, sign it with `key` if there is one, enter it in the index.

        Raises:
            RegistryError: the version is there with other content, or the registry or `cosign` refuses.
        """
        folder = PackageFolder(files, source="package")
        name, version = folder.head.name, folder.head.version
        tag = version.replace("+", "_")  # no tag has it; as Helm does
        data = pack(files)
        before = self._api.manifest(self._repository(name), tag)
        if before is not None and digest(self.files(name, before)) != folder.digest:
            message = f"`{self.shown(name)}:{tag}` is there with other content"
            raise RegistryError(message, hint="a changed package needs a new version in its package.yaml")
        signature = sign(key, name=name, version=version, digest=folder.digest) if key else ""
        facts = {"title": name, "version": version, "description": folder.head.summary}
        manifest_digest = self._push(name, tag, data, _PACKAGE_TYPE, facts)
        if key:
            sign_artifact(key, f"{self.shown(name)}@{manifest_digest}")
        is_entered = self._enter(entry_of(name, files, manifest_digest, signature))
        disk_cache.of_user(os.environ).put(self._index_key, b"")  # it is asked for anew
        return Published(manifest_digest, is_new=before is None or is_entered)

    def _push(self, name: str, tag: str, data: bytes, kind: str, facts: Mapping[str, str]) -> str:
        """Push an artifact of one layer; the same content has the same digest whoever pushes it."""
        repository = self._repository(name)
        empty = self._api.push_blob(repository, b"{}")
        blob = self._api.push_blob(repository, data)
        layer = {"mediaType": _LAYER_TYPES[kind], "digest": blob, "size": len(data)}
        disk_cache.of_user(os.environ).put(f"oci blob {blob}", data)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": kind,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2},
            "layers": [layer],
            "annotations": {f"org.opencontainers.image.{key}": text for key, text in facts.items() if text},
        }
        return self._api.push_manifest(repository, tag, canonical_json(manifest))

    def _enter(self, entry: IndexPackage) -> bool:
        """Enter a version in the index; again if somebody else wrote it meanwhile. Tell whether it is new."""
        is_new = False
        for _ in range(_MOST_TRIES):
            asked_s = time.monotonic()
            text = self._published_index()
            index = RegistryIndex(name=self._label) if text is None else _parsed(text, self.host, self._label)
            packages = joined([*index.packages.values(), entry])
            if index.packages.get(entry.name) == packages[entry.name]:
                return is_new
            is_new = True
            data = index_text(replace(index, packages=packages)).encode()
            self._api.push_blob(self._repository(_INDEX_NAME), data)
            if self._published_index() == text:  # as late as can be: others may write at the same time
                self._push(_INDEX_NAME, _INDEX_TAG, data, _INDEX_TYPE, {"title": self._label})
            # Who asked before that writes what lacks this version, and has by then; each waits another time.
            time.sleep(uniform(2, 4) * (time.monotonic() - asked_s))
        message = f"the index of `{self.host}/{self.path}` is written by others again and again"
        raise RegistryError(message, hint="publish it again: the package is there, only the index lacks it")
