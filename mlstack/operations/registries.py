"""Registries of an app, the index of a registry of one's own, and packages published to registries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlstack.app import edit
from mlstack.app.app import Component, RegistryRef
from mlstack.app.app_dir import AppDir
from mlstack.app.document import decode
from mlstack.app.files import read_folder
from mlstack.app.package import PackageFolder
from mlstack.app.params import marked_images
from mlstack.app.prototype import Package
from mlstack.app.versions import RegistryIndex, newest
from mlstack.dataclass import Record, row
from mlstack.errors import MlstackError, NotFoundError, RegistryError, TemplateError, UsageError
from mlstack.names import check_registry_name, did_you_mean, not_found, version_key
from mlstack.registries.distribution import SCHEME
from mlstack.registries.oci import Repository, place_of
from mlstack.registries.publish import build_index, refuse_chart
from mlstack.registries.registry import (
    INDEX_FILE,
    as_overridden,
    asked_protocol,
    contents,
    is_bundled,
    keep_contents,
    kept_contents,
    open_address,
    open_registry,
    protocol_of,
    protocols,
)
from mlstack.render.sandbox import template_faults


class RegistryAdded(Record):
    """A registry that the app knows now."""

    name: str
    address: str  # as `app.yaml` says it
    protocol: str
    packages: int  # how many it offers
    bundled: bool  # the address leads to the registry that comes with mlstack
    known: bool  # the app knew it before; nothing was changed then
    notes: tuple[str, ...] = ()


class RegistryRow(Record):
    """One registry in a list."""

    name: str
    protocol: str
    address: str
    bundled: bool
    overridden: bool = False  # whoever works here reads it from elsewhere


class RegistryList(Record):
    """The registries of an app, in the order of `app.yaml`."""

    registries: tuple[RegistryRow, ...]


class OfferedPackage(Record):
    """One package of a registry."""

    name: str
    version: str  # the newest
    versions: tuple[str, ...]  # ascending
    installed: str | None  # the newest installed version
    summary: str


class RegistryDescription(RegistryRow):
    """A registry and its packages by name."""

    revision: str
    packages: tuple[OfferedPackage, ...]
    notes: tuple[str, ...] = ()


class RegistrySet(Record):
    """A registry that leads to another address now."""

    name: str
    before: str  # the address it had
    address: str
    protocol: str
    packages: int  # how many it offers
    changed: bool
    missing: tuple[str, ...]  # installed packages that it does not offer, `registry/name@version`


class PackageChange(Record):
    """A version of a package that a registry did not offer in this way before."""

    package: str  # `registry/name`
    change: str  # `added`, `removed`, or `changed`: other content under the same version
    version: str
    installed: str | None  # the newest installed version


class RegistryUpdate(Record):
    """What a registry says now, beside what it said before."""

    name: str
    address: str
    before: str  # revision it was at, empty where it has none or was not asked yet
    revision: str
    is_first: bool  # nothing was known of it: there is nothing to compare with
    packages: int
    changes: tuple[PackageChange, ...]  # versions that came, changed or went


class RegistriesUpdated(Record):
    """The registries that were asked again, and those that did not answer."""

    ok: bool  # all of them answered
    registries: tuple[RegistryUpdate, ...]
    notes: tuple[str, ...] = ()


class RegistryRemoved(Record):
    """A registry that the app does not know any more, or that is read from where all read it again."""

    name: str
    address: str
    override: bool = False  # only what whoever works here had otherwise


class Indexed(Record):
    """The index of a registry's folder."""

    ok: bool  # false if it is stale and was left so
    folder: str  # as given
    stale: bool  # it differed from what the packages say
    written: bool
    packages: int
    notes: tuple[str, ...] = ()  # versions whose content changed


def add_registry(
    app: AppDir, name: str, address: str, *, protocol: str = "", stands: Path | None = None
) -> RegistryAdded:
    """Add a registry, once its index could be read; adding the same one again changes nothing.

    The address decides the protocol, unless `protocol` does. A relative one begins in the folder `stands`, or
    in the app's.
    """
    check_registry_name(name)
    ref = _ref(app, name, address, protocol, stands)
    _refuse_password(ref)
    _known_registry(app, ref)
    index = _asked(app, ref)  # it may take its time: others may edit meanwhile
    with app.locked():
        existing = _known_registry(app, ref)
        if existing is None:
            app.add_registry(ref)
    return row(
        RegistryAdded,
        existing or ref,
        protocol=ref.protocol,
        packages=len(index.packages),
        bundled=is_bundled(ref.address),
        known=existing is not None,
        notes=(index.note,) if index.note else (),
    )


def _ref(app: AppDir, name: str, address: str, protocol: str, stands: Path | None) -> RegistryRef:
    """Give a registry as `app.yaml` shall name it: a folder by its path from the app."""
    if protocol and protocol not in protocols():
        hint = did_you_mean(protocol, protocols(), f"known types: {', '.join(protocols())}")
        raise UsageError(f"no type `{protocol}` of registries", hint=hint)
    protocol = protocol or asked_protocol(address)
    is_relative = protocol == "directory" and not address.startswith(("/", "~", "file://"))
    if is_relative and stands and not is_bundled(address):
        path = Path(os.path.relpath((stands / address).resolve(), app.root.resolve())).as_posix()
        address = path if path.startswith(".") else f"./{path}" if "." in path or ":" in path else path
    return RegistryRef(name=name, address=address, protocol=protocol)


def _refuse_password(ref: RegistryRef) -> None:
    if ref.protocol == "git" and re.match(r"[a-z+]+://[^/@]*:[^/@]*@", ref.address):
        message = f"the address of `{ref.name}` holds a password, which `app.yaml` would show to everybody"
        raise RegistryError(message, hint="git keeps it: git config --global credential.helper store")


def _asked(app: AppDir, ref: RegistryRef) -> RegistryIndex:
    """Ask a registry anew, and remember what it says."""
    index = open_address(ref, root=app.root, fresh=True).index
    keep_contents(ref, app.root, index)
    return index


def _known_registry(app: AppDir, ref: RegistryRef) -> RegistryRef | None:
    existing = app.app.registry(ref.name)
    if existing is None or existing.address == ref.address:
        return existing
    if is_bundled(existing.address) and is_bundled(ref.address):
        return existing
    hint = f"choose another name for this one, or mlstack registry set {ref.name} --uri {ref.address}"
    raise UsageError(f"`{ref.name}` is the registry {existing.address} already", hint=hint)


def list_registries(app: AppDir) -> RegistryList:
    """List the registries of an app; none of them is asked."""
    return RegistryList(registries=tuple(_registry_row(app, ref) for ref in app.app.registries))


def _registry_row(app: AppDir, ref: RegistryRef) -> RegistryRow:
    used = as_overridden(ref, root=app.root)
    protocol, bundled = used.protocol or protocol_of(used.address), is_bundled(used.address)
    return row(RegistryRow, used, protocol=protocol, bundled=bundled, overridden=used is not ref)


def describe_registry(app: AppDir, name: str) -> RegistryDescription:
    """Describe a registry and its packages."""
    ref = _named(app, name)
    index = open_registry(ref, root=app.root).index
    installed = _installed_of(app, name)
    offers = tuple(
        row(
            OfferedPackage,
            package,
            version=package.newest.version,
            versions=tuple(release.version for release in package.versions),
            installed=installed.get(name),
        )
        for name, package in sorted(index.packages.items())
    )
    notes = (index.note,) if index.note else ()
    return row(RegistryDescription, _registry_row(app, ref), index, packages=offers, notes=notes)


def _installed_of(app: AppDir, registry: str) -> dict[str, str]:
    """Give the newest installed versions of a registry's packages by name."""
    locked = newest(app.lock.packages).values()
    return {package.name: package.version for package in locked if package.registry == registry}


def _named(app: AppDir, name: str) -> RegistryRef:
    ref = app.app.registry(name)
    if ref is None:
        names, hint = [ref.name for ref in app.app.registries], f"mlstack registry add {name} ADDRESS"
        raise not_found(f"no registry `{name}`", name, names, hint=hint)
    return ref


def set_registry(
    app: AppDir,
    name: str,
    address: str,
    *,
    protocol: str = "",
    stands: Path | None = None,
    override: bool = False,
) -> RegistrySet:
    """Lead a registry of the app to another address, once that answers; arguments as of `add_registry`.

    An `override` is for whoever works here alone: shared files stay as they are.
    """
    before = _named(app, name)
    ref = _ref(app, name, address, protocol, stands)
    if not override:
        _refuse_password(ref)
    index = _asked(app, ref)
    with app.locked():
        now = as_overridden(_named(app, name), root=app.root) if override else _named(app, name)
        changed = now.address != ref.address if override else now != ref
        if changed and override:
            app.override("registries", name, {"address": ref.address})
        elif changed:
            app.set_registry(ref)
        installed = [locked for locked in app.lock.packages if locked.registry == name]
    offered = contents(index)
    missing = [str(locked.ref) for locked in installed if locked.version not in offered.get(locked.name, {})]
    return row(
        RegistrySet,
        ref,
        before=before.address,
        changed=changed,
        missing=tuple(missing),
        packages=len(index.packages),
    )


def update_registries(app: AppDir, names: Sequence[str] = ()) -> RegistriesUpdated:
    """Ask registries anew, all without names, and compare each package with what they said before."""
    refs = [_named(app, name) for name in names] or list(app.app.registries)
    updates, notes = [], []
    for ref in (as_overridden(ref, root=app.root) for ref in refs):
        before = kept_contents(ref, app.root)
        try:
            index = _asked(app, ref)
        except MlstackError as error:
            if len(refs) == 1:
                raise
            notes.append(f"registry `{ref.name}` was left out: {error}")
            continue
        updates.append(_update(app, ref, before, index))
    return RegistriesUpdated(ok=not notes, registries=tuple(updates), notes=tuple(notes))


def _update(
    app: AppDir, ref: RegistryRef, before: Mapping[str, Any] | None, index: RegistryIndex
) -> RegistryUpdate:
    installed, now = _installed_of(app, ref.name), contents(index)
    previous = before["packages"] if before else now
    changes = [
        PackageChange(
            package=f"{ref.name}/{name}", change=change, version=version, installed=installed.get(name)
        )
        for name in sorted({*previous, *now})
        for version, change in _changes(previous.get(name, {}), now.get(name, {}))
    ]
    earlier = {"before": before["revision"] if before else "", "is_first": before is None}
    return row(RegistryUpdate, ref, index, **earlier, packages=len(index.packages), changes=tuple(changes))


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Give the versions of a package that are other ones than before, ascending, and what became of each."""
    for version in sorted({*before, *now}, key=version_key):
        if version not in now:
            yield version, "removed"
        elif version not in before:
            yield version, "added"
        elif before[version] != now[version]:
            yield version, "changed"


def remove_registry(app: AppDir, name: str, *, override: bool = False) -> RegistryRemoved:
    """Take a registry out of an app that uses no package of it, or only what is personal about it."""
    with app.locked():
        ref = _named(app, name)
        if override:
            own = as_overridden(ref, root=app.root)
            if not app.take_back("registries", name):
                raise NotFoundError(f"nothing is overridden about `{name}`", hint="mlstack registry list")
            return RegistryRemoved(name=name, address=own.address, override=True)
        required = {str(package) for package in app.app.packages if package.registry == name}
        locked = {str(package.ref) for package in app.lock.packages if package.registry == name}
        users = [
            component.full_name
            for component in app.components()
            if isinstance(component, Component) and component.prototype.startswith(f"{name}/")
        ]
        if needing := sorted(required or locked) or users:
            names = ", ".join(f"`{user}`" for user in needing)
            step = "component rm" if needing == users else "pkg rm"
            raise UsageError(f"registry `{name}` is needed by {names}", hint=f"mlstack {step} {needing[0]}")
        app.remove_registry(name)
    return RegistryRemoved(name=name, address=ref.address)


def index_registry(folder: Path, *, check: bool = False, name: str = "", key: str = "") -> Indexed:
    """Rewrite a registry's index from its package folders; with `check` only tell whether it is stale.

    Without a `name` the registry keeps that of its index, or has its folder's. `key`, a private key of
    cosign, signs the versions which have no signature.
    """
    file = folder / INDEX_FILE
    index = build_index(folder, name=name, key=key)
    stale = not file.is_file() or file.read_text(encoding="utf-8") != index.text
    if stale and not check:
        edit.write_files({file: index.text})
    return Indexed(
        ok=not (stale and check),
        folder=str(folder),
        stale=stale,
        written=stale and not check,
        packages=index.text.count("\n- name: "),
        notes=tuple(
            f"{name} has other content than before, which apps that locked it take by force alone:"
            " a changed package needs a new version"
            for name in index.overwritten
        ),
    )


# --- publishing ---


class PackagePublished(Record):
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
    checkout, and committed there. Packages that it requires may lie beside its folder. `to` is
    `oci://HOST/PATH`, a folder, or the app's name for a registry that is one of them; `key` a private key of
    cosign that signs it.
    """
    address = _address(to, app)
    push = f"helm package {folder}, then helm push ARCHIVE oci://HOST/PATH: --type helm reads it there"
    refuse_chart(folder, "which helm publishes", push)
    if not (folder / "package.yaml").is_file():
        raise NotFoundError(f"no package in `{folder}`", hint="a package is a folder with package.yaml")
    package = PackageFolder(read_folder(folder), source=str(folder))
    _read_whole(package, folder.resolve().parent)
    if address.startswith(SCHEME):
        return _pushed(package, place_of(address), key=key)
    place, is_new = _into_folder(package, Path(address), key)
    return row(
        PackagePublished,
        package,
        package.head,
        package=package.head.name,
        address=str(place),
        is_new=is_new,
        tag="",
        revision="",
        signed=bool(key),
    )


class PackagesCopied(Record):
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
    which asks no other registry where it reaches none. Without `names` it copies all packages of the app;
    `platforms` are those of images that are copied, as `linux/arm64`.
    """
    from mlstack.registries.images import Images, copy_place, image_name

    place, repository, registries = copy_place(to), place_of(to), Images()
    locked = app.vendor.plain()
    chosen = [_installed(name, locked) for name in names] or [*locked]
    for full_name in chosen:  # grows: what they require comes along
        shorts = {name.rpartition("/")[2] for name in app.vendor.folder(locked[full_name]).head.requires}
        chosen += [other for other in locked if other.rpartition("/")[2] in shorts and other not in chosen]
    images, notes = _default_images(app.vendor.package(locked[full_name]) for full_name in chosen)
    copies = {image: registries.copied_below(place, image_name(image), platforms) for image in images}
    notes += [copy.note for copy in copies.values() if copy.note]
    folders = [app.vendor.folder(locked[full_name]) for full_name in reversed(chosen)]
    return PackagesCopied(
        to=f"{SCHEME}{place}",
        packages=tuple(_pushed(folder, repository) for folder in folders),
        images=tuple(copy.target or image for image, copy in sorted(copies.items())),
        notes=tuple(dict.fromkeys(notes)),
    )


def _default_images(packages: Iterable[Package]) -> tuple[list[str], list[str]]:
    """Give the images that parameters of packages name by default, and tell what is only the end of one."""
    images, ends = dict[str, None](), []
    params = (
        (prototype.name, param)
        for package in packages
        for prototype in package.prototypes.values()
        for param in prototype.params.values()
    )
    for name, param in params:
        for image, is_whole in marked_images(param.schema, param.default):
            if is_whole:
                images[image] = None
            else:
                ends.append(f"not copied, as it is only the end of an image: {name} {param.name}")
    return [*images], ends


def _installed(name: str, locked: Mapping[str, object]) -> str:
    for full_name in locked:
        if name in (full_name, full_name.rpartition("/")[2]):
            return full_name
    raise not_found(f"the app has no package `{name}`", name, locked, hint="mlstack pkg list")


def _pushed(package: PackageFolder, repository: Repository, *, key: str = "") -> PackagePublished:
    published, head = repository.publish(package.files, key=key), package.head
    return row(
        PackagePublished,
        published,
        package,
        head,
        package=head.name,
        address=repository.shown(head.name),
        tag=head.version.replace("+", "_"),
        revision=published.manifest_digest,
        signed=bool(key),
    )


def _read_whole(package: PackageFolder, beside: Path) -> None:
    """Read a package with those that it requires, as far as they lie beside it: what is wrong is refused."""
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
        existing = PackageFolder.read(file.parent)
        if (existing.head.name, existing.head.version) == (head.name, head.version):
            place, is_there = file.parent, True
            if existing.digest != package.digest:
                hint = "a changed package needs a new version in its package.yaml"
                raise RegistryError(f"`{place}` is there with other content", hint=hint)
    before = index.read_bytes() if index.is_file() else b""
    if not is_there:
        edit.write_files({place / path: data for path, data in package.files.items()})
    try:
        text = build_index(registry, key=key).text
        edit.write_files({index: text})
    except BaseException:
        if not is_there:
            edit.write_files({}, delete=[place])
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
        names = [ref.name for ref in app.app.registries] if app else []
        hint = "name a registry of the app, a folder, or write oci://HOST/PATH"
        raise not_found(f"no registry `{to}`", to, names, hint=hint)
    protocol = ref.protocol or protocol_of(ref.address)
    if protocol == "directory" and app and not is_bundled(ref.address):
        return str((app.root / Path(ref.address.removeprefix("file://")).expanduser()).resolve())
    if not ref.address.startswith(SCHEME) or protocol != "oci":
        hint = "publish into a folder of a checkout and commit it there: mlstack pkg publish DIR FOLDER"
        message = f"registry `{to}` is neither an OCI registry nor a folder: {ref.address}"
        raise RegistryError(message, hint=hint)
    return ref.address
