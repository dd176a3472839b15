"""Packages published to OCI registries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlstack.app.app_dir import AppDir
from mlstack.app.files import read_folder
from mlstack.app.package import PackageFolder
from mlstack.errors import NotFoundError, RegistryError, UsageError
from mlstack.names import nearest
from mlstack.registries.oci import SCHEME, place_of
from mlstack.registries.registry import guarded


@dataclass(frozen=True, kw_only=True)
class PackagePublished:
    """A package version that an OCI registry offers now."""

    package: str
    version: str
    address: str  # `HOST/PATH/NAME`
    tag: str  # what the registry calls that version
    digest: str  # of its content
    revision: str  # digest of the artifact
    is_new: bool  # it was not there before in just this form


def publish_package(folder: Path, to: str, *, app: AppDir | None) -> PackagePublished:
    """Push a package with its version as tag, and enter it in the registry's index.

    Args:
        folder: the package's folder; packages that it requires may lie beside it.
        to: `oci://HOST/PATH`, or the app's name for a registry there.
        app: where that name is looked up.

    Raises:
        NotFoundError: there is no such folder or registry.
        UsageError: the registry is no OCI registry.
        SchemaError: a file of the package is wrong.
        RegistryError: the version is there with other content, or the registry refuses.
    """
    address = _address(to, app)
    if not (folder / "package.yaml").is_file():
        raise NotFoundError(f"no package in `{folder}`", hint="a package is a folder with package.yaml")
    files = read_folder(folder)
    package = PackageFolder(files, source=str(folder))
    libraries: dict[str, PackageFolder] = {}
    waiting = [name.rpartition("/")[2] for name in package.head.requires]
    is_whole = True
    while waiting:
        name = waiting.pop()
        beside = folder.resolve().parent / name
        if name not in libraries and (beside / "package.yaml").is_file():
            libraries[name] = PackageFolder.read(beside)
            waiting += [other.rpartition("/")[2] for other in libraries[name].head.requires]
        is_whole = is_whole and name in libraries
    if is_whole:  # else there is nothing to read it with
        guarded(lambda: package.package(libraries), package.head.name)
    place = place_of(address)
    published = place.publish(files)
    return PackagePublished(
        package=package.head.name,
        version=package.head.version,
        address=place.shown(package.head.name),
        tag=package.head.version.replace("+", "_"),
        digest=package.digest,
        revision=published.manifest_digest,
        is_new=published.is_new,
    )


def _address(to: str, app: AppDir | None) -> str:
    if to.startswith(SCHEME):
        return to
    if app is None:
        raise UsageError(f"`{to}` is no address of an OCI registry", hint="write oci://HOST/PATH")
    ref = app.app.registry(to)
    if ref is None:
        near = nearest(to, [ref.name for ref in app.app.registries])
        hint = None if near else "name a registry of the app, or write oci://HOST/PATH"
        raise NotFoundError(f"no registry `{to}`", near=near, hint=hint)
    if not ref.address.startswith(SCHEME):
        hint = "its packages are published by committing them; `mlstack registry index DIR` writes its index"
        raise RegistryError(f"registry `{to}` is no OCI registry: {ref.address}", hint=hint)
    return ref.address
