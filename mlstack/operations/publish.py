"""Packages published to OCI registries, and into the folders of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlstack.app import atomic
from mlstack.app.app_dir import AppDir
from mlstack.app.document import decode
from mlstack.app.files import read_folder
from mlstack.app.package import PackageFolder
from mlstack.app.params import marked_images
from mlstack.dataclass import dataclass
from mlstack.errors import NotFoundError, RegistryError, TemplateError
from mlstack.names import nearest
from mlstack.registries.directory import build_index, refuse_chart
from mlstack.registries.distribution import SCHEME
from mlstack.registries.oci import Published, Repository, place_of
from mlstack.registries.registry import INDEX_FILE, is_bundled, protocol_of
from mlstack.render.sandbox import template_faults


@dataclass(frozen=True, kw_only=True)
class PackagePublished:
    """A package version that a registry offers now."""

    package: str
    version: str
    address: str  # `HOST/PATH/NAME`, or the folder
    tag: str  # what an OCI registry calls that version; empty for a folder
    digest: str  # of its content
    revision: str  # digest of the artifact; empty for a folder
    is_new: bool  # it was not there before in just this form
    signed: bool  # just now


def publish_package(folder: Path, to: str, *, app: AppDir | None, key: str = "") -> PackagePublished:
    """Offer a package in a registry: push it to an OCI registry, or copy it into a registry's folder.

    It is entered in the registry's index. Into a git repository goes what is published to a folder of a
    checkout, and committed there.

    Args:
        folder: the package's folder; packages that it requires may lie beside it.
        to: `oci://HOST/PATH`, a folder, or the app's name for a registry that is one of them.
        app: where that name is looked up.
        key: a private key of cosign that signs it.

    Raises:
        NotFoundError: there is no such folder or registry.
        RegistryError: the registry is of another kind or refuses, the version is there with other content,
            or `cosign` refuses.
        ConfigError: a file of the package is wrong.
    """
    address = _address(to, app)
    push = f"helm package {folder}, then helm push ARCHIVE oci://HOST/PATH: --type helm reads it there"
    refuse_chart(folder, "which helm publishes", push)
    if not (folder / "package.yaml").is_file():
        raise NotFoundError(f"no package in `{folder}`", hint="a package is a folder with package.yaml")
    package = PackageFolder(read_folder(folder), source=str(folder))
    _read_whole(package, folder.resolve().parent)
    if address.startswith(SCHEME):
        repository = place_of(address)
        published = repository.publish(package.files, key=key)
        return _published(package, repository, published, signed=bool(key))
    place, is_new = _into_folder(package, Path(address), key)
    return PackagePublished(
        package=package.head.name,
        version=package.head.version,
        address=str(place),
        tag="",
        digest=package.digest,
        revision="",
        is_new=is_new,
        signed=bool(key),
    )


@dataclass(frozen=True, kw_only=True)
class PackagesCopied:
    """Packages in a registry, with the images that their parameters name by default."""

    to: str  # address of the registry
    packages: tuple[PackagePublished, ...]  # those that others require before them
    images: tuple[str, ...]  # as they are named there, with their digests
    notes: tuple[str, ...] = ()


def copy_packages(
    app: AppDir, names: Sequence[str], to: str, *, platforms: Sequence[str] = ()
) -> PackagesCopied:
    """Copy installed packages, those that they require and their default images to an OCI registry.

    Whoever adds that registry has them by the same digests, and names the images there with `images copy`,
    which asks no other registry where it reaches none.

    Args:
        app: the app directory.
        names: of packages as the app has them; all where none is named.
        to: `oci://HOST/PATH`.
        platforms: only what of images is for these, as `linux/arm64`.

    Raises:
        NotFoundError: the app has no such package, or a registry no such image.
        RegistryError: a registry does not answer or refuses, or a version is there with other content.
    """
    from mlstack.registries.images import Images, copy_place, image_name

    place, repository, registries = copy_place(to), place_of(to), Images()
    locked = app.vendor.plain()
    chosen = [_installed(name, locked) for name in names] or [*locked]
    for full_name in chosen:  # grows: what they require comes along
        requires = app.vendor.folder(locked[full_name]).head.requires
        shorts = {name.rpartition("/")[2] for name in requires}
        chosen += [other for other in locked if other.rpartition("/")[2] in shorts and other not in chosen]
    images: dict[str, None] = {}
    notes: list[str] = []
    for full_name in chosen:
        for prototype in app.vendor.package(locked[full_name]).prototypes.values():
            for param in prototype.params.values():
                for image, is_whole in marked_images(param.schema, param.default):
                    if is_whole:
                        images[image] = None
                    else:
                        notes.append(
                            f"not copied, as it is only the end of an image: {prototype.name} {param.name}"
                        )
    copies = {image: registries.copied_below(place, image_name(image), platforms) for image in images}
    notes += [copy.note for copy in copies.values() if copy.note]
    published = []
    for full_name in reversed(chosen):
        folder = app.vendor.folder(locked[full_name])
        result = repository.publish(folder.files)
        published.append(_published(folder, repository, result, signed=False))
    return PackagesCopied(
        to=f"{SCHEME}{place}",
        packages=tuple(published),
        images=tuple(copy.target or image for image, copy in sorted(copies.items())),
        notes=tuple(dict.fromkeys(notes)),
    )


def _installed(name: str, locked: Mapping[str, object]) -> str:
    for full_name in locked:
        if name in (full_name, full_name.rpartition("/")[2]):
            return full_name
    near = nearest(name, locked)
    raise NotFoundError(
        f"the app has no package `{name}`", near=near, hint=None if near else "mlstack pkg list"
    )


def _published(
    package: PackageFolder, repository: Repository, published: Published, *, signed: bool
) -> PackagePublished:
    name, version = package.head.name, package.head.version
    return PackagePublished(
        package=name,
        version=version,
        address=repository.shown(name),
        tag=version.replace("+", "_"),
        digest=package.digest,
        revision=published.manifest_digest,
        is_new=published.is_new,
        signed=signed,
    )


def _read_whole(package: PackageFolder, beside: Path) -> None:
    """Read a package with those that it requires, as far as they lie beside it: what is wrong is refused.

    Raises:
        ConfigError: one of its files is wrong; it is the publisher's own, and no registry's.
    """
    for path, data in package.files.items():
        source = f"{package.source}/{path}"
        text = decode(data, file=source) if path.suffix == ".j2" else ""
        for line, message in template_faults(str(path), text, None):
            hint = f"mlstack registry lint {package.source} shows all that is wrong"
            raise TemplateError(message, where=f"{source}:{line}", hint=hint)
    libraries: dict[str, PackageFolder] = {}
    waiting = [name.rpartition("/")[2] for name in package.head.requires]
    while waiting:
        name = waiting.pop()
        if name in libraries:
            continue
        if not (beside / name / "package.yaml").is_file():
            return  # there is nothing to read it with
        libraries[name] = PackageFolder.read(beside / name)
        waiting += [other.rpartition("/")[2] for other in libraries[name].head.requires]
    package.package(libraries)


def _into_folder(package: PackageFolder, registry: Path, key: str) -> tuple[Path, bool]:
    """Copy a package into a registry's folder, unless it lies there, and write the index: both or nothing."""
    if not registry.is_dir():
        raise NotFoundError(f"no folder `{registry}`", hint="make it first: the index is written there")
    head, index = package.head, registry / INDEX_FILE
    place, is_there = registry / f"{head.name}@{head.version}", False
    for file in registry.glob("*/package.yaml"):
        known = PackageFolder.read(file.parent)
        if (known.head.name, known.head.version) == (head.name, head.version):
            place, is_there = file.parent, True
            if known.digest != package.digest:
                hint = "a changed package needs a new version in its package.yaml"
                raise RegistryError(f"`{place}` is there with other content", hint=hint)
    before = index.read_bytes() if index.is_file() else b""
    if not is_there:
        atomic.write_files({place / path: data for path, data in package.files.items()})
    try:
        text = build_index(registry, key=key).text
        atomic.write_files({index: text})
    except BaseException:
        if not is_there:
            atomic.write_files({}, delete=[place])
        raise
    return place, text.encode() != before


def _address(to: str, app: AppDir | None) -> str:
    """Give where to publish: an address as it is, a folder from where one stands."""
    if to.startswith(SCHEME):
        return to
    ref = app.app.registry(to) if app else None
    if ref is None and Path(to).is_dir():
        return to
    if ref is None:
        near = nearest(to, [ref.name for ref in app.app.registries]) if app else None
        hint = None if near else "name a registry of the app, a folder, or write oci://HOST/PATH"
        raise NotFoundError(f"no registry `{to}`", near=near, hint=hint)
    protocol = ref.protocol or protocol_of(ref.address)
    if protocol == "directory" and app and not is_bundled(ref.address):
        return str((app.root / Path(ref.address.removeprefix("file://")).expanduser()).resolve())
    if not ref.address.startswith(SCHEME) or protocol != "oci":
        hint = "publish into a folder of a checkout and commit it there: mlstack pkg publish DIR FOLDER"
        raise RegistryError(
            f"registry `{to}` is neither an OCI registry nor a folder: {ref.address}", hint=hint
        )
    return ref.address
