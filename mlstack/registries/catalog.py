"""Find the protocol of a registry and open it; fetch a package with all that it requires."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path, PurePosixPath

from mlstack.errors import MlstackError, NotFoundError, RegistryError
from mlstack.files import bundled
from mlstack.files.packages import FetchedPackage, PackageFolder, digest
from mlstack.model.app import LockedRegistry, PackageRef, RegistryRef
from mlstack.model.names import nearest
from mlstack.registries.base import PROTOCOLS, Registry, RegistryIndex, RegistryType
from mlstack.registries.tree import INDEX_FILE, guarded, read_index

BUNDLED = "bundled"


@cache
def _load() -> None:
    """Import every file of the protocols' folder, once; each enters itself in the table."""
    for file in sorted((Path(__file__).parent / "protocols").glob("*.py")):
        if file.stem != "__init__":
            import_module(f"mlstack.registries.protocols.{file.stem}")


def protocols() -> tuple[str, ...]:
    """Give the names of all protocols."""
    _load()
    return PROTOCOLS.names()


def protocol_of(address: str) -> str:
    """Give the protocol that an address is written in.

    Raises:
        RegistryError: it fits none.
    """
    if is_bundled(address):
        return "directory"
    _load()
    for name, kind in PROTOCOLS:
        if kind.accepts(address):
            return name
    raise RegistryError(
        f"`{address}` is no address of a registry",
        hint="give a folder, a git URL, or github.com/OWNER/REPO/tree/BRANCH/FOLDER",
    )


def open_registry(ref: RegistryRef, *, root: Path) -> Registry:
    """Open a registry; an address that the bundled one stands in for leads there, offline.

    Args:
        ref: as `app.yaml` names it; an empty protocol is found from the address.
        root: the app's folder, where relative addresses start.

    Raises:
        RegistryError: no such protocol, or the address fits none.
    """
    if is_bundled(ref.address):
        place = str(bundled.folder("registry"))
        return _kind("directory")(RegistryRef(name=ref.name, address=place, protocol="directory"), root=root)
    return _kind(ref.protocol or protocol_of(ref.address))(ref, root=root)


def indexes(
    refs: Iterable[RegistryRef], *, root: Path, notes: list[str]
) -> Iterator[tuple[str, RegistryIndex]]:
    """Give the index of each registry by the app's name for it; one that cannot be read becomes a note.

    Args:
        refs: the app's registries.
        root: the app's folder.
        notes: where to say which registries were left out.
    """
    for ref in refs:
        try:
            index = open_registry(ref, root=root).index()
        except MlstackError as error:
            notes.append(f"registry `{ref.name}` was left out: {error}")
        else:
            yield ref.name, index


def _kind(name: str) -> RegistryType:
    _load()
    try:
        return PROTOCOLS.find(name)
    except NotFoundError as error:
        raise RegistryError(str(error), hint=error.hint) from error


def is_bundled(address: str) -> bool:
    """Tell whether an address leads to the registry that comes with mlstack."""
    return address == BUNDLED or _normal(address) in {_normal(alias) for alias in _bundled_aliases()}


def is_local(ref: RegistryRef) -> bool:
    """Tell whether a registry lies on this machine, so that asking it needs no network."""
    return is_bundled(ref.address) or (ref.protocol or protocol_of(ref.address)) == "directory"


@cache
def _bundled_aliases() -> tuple[str, ...]:
    folder = bundled.folder("registry")

    class OnlyIndex:
        """The index alone: packages are not looked at."""

        def read(self, path: PurePosixPath) -> bytes | None:
            return (folder / path).read_bytes()

        def folder(self, path: PurePosixPath) -> dict[PurePosixPath, bytes]:
            return {}

        def names(self) -> Iterable[str]:
            return ()

    return read_index(OnlyIndex(), source=f"registry/{INDEX_FILE}", name=BUNDLED).aliases


def _normal(address: str) -> str:
    """Give an address without scheme, user, `.git` and closing slashes, in lower case up to the path."""
    rest = address.rpartition("://")[2].rstrip("/").removesuffix(".git")
    host, slash, path = rest.partition("/")
    return f"{host.rpartition('@')[2].lower()}{slash}{path}"


def fetch_all(
    refs: Iterable[RegistryRef], wanted: PackageRef, *, root: Path
) -> tuple[tuple[FetchedPackage, ...], LockedRegistry]:
    """Fetch a package and all that it requires from its registry; nothing is written.

    Args:
        refs: the app's registries.
        wanted: the package; its version may be a branch, tag or commit where the registry has such.
        root: the app's folder.

    Returns:
        The packages, the wanted one first, and what to lock of the registry.

    Raises:
        NotFoundError: no such registry, package or version.
        RegistryError: it cannot be fetched, a digest differs, or what it holds is wrong.
    """
    known = {each.name: each for each in refs}
    ref = known.get(wanted.registry)
    if ref is None:
        near = nearest(wanted.registry, known)
        hint = None if near else f"mlstack registry add {wanted.registry} ADDRESS"
        raise NotFoundError(f"no registry `{wanted.registry}` in app.yaml", near=near, hint=hint)
    registry, version = _at_version(open_registry(ref, root=root), wanted)
    found: dict[str, FetchedPackage] = {}
    waiting = [(wanted.name, version)]
    while waiting:
        name, version = waiting.pop(0)
        if name not in found:
            found[name] = _fetched(registry, ref, name, version)
            waiting += [(needed, "") for needed in _requires(found[name])]
    _check(found)
    return tuple(found.values()), _locked(ref, registry.index())


def _check(fetched: Mapping[str, FetchedPackage]) -> None:
    """Read packages whole, so that what cannot be used or removed again is never written into an app."""
    folders = {
        name: PackageFolder(package.files, source=f"{package.registry}/{name}", registry=package.registry)
        for name, package in fetched.items()
    }
    for name, folder in folders.items():
        others = {each: folders[each] for each in folders if each != name}
        package = guarded(partial(folder.package, others), name)
        if (package.name, package.version) != (name, fetched[name].version):
            raise RegistryError(
                f"package `{name}@{fetched[name].version}` calls itself `{package.name}@{package.version}`",
                where=f"{folder.source}/package.yaml",
                hint="tell who keeps the registry: `mlstack registry index` writes what its packages say",
            )


def _locked(ref: RegistryRef, index: RegistryIndex) -> LockedRegistry:
    # Retired names of a registry on this machine are asked of it: what it says then is never stale.
    retired = () if is_local(ref) else index.retired
    return LockedRegistry(name=ref.name, address=ref.address, revision=index.revision, retired=retired)


def _at_version(registry: Registry, wanted: PackageRef) -> tuple[Registry, str]:
    """Give the registry and version that a requirement means; what is no version may be a revision."""
    if not wanted.version:
        return registry, ""
    try:
        registry.index().version(wanted.name, wanted.version)
    except NotFoundError as no_version:
        try:
            moved = registry.at(wanted.version)
            moved.index().package(wanted.name)
        except RegistryError as error:
            raise NotFoundError(
                no_version.message, near=no_version.near, hint=no_version.hint or error.message
            ) from error
        return moved, ""
    return registry, wanted.version


def _fetched(registry: Registry, ref: RegistryRef, name: str, version: str) -> FetchedPackage:
    exact = registry.index().version(name, version).version
    files = registry.fetch(name, exact)
    return FetchedPackage(
        registry=ref.name, name=name, version=exact, digest=digest(files), source=ref.address, files=files
    )


def _requires(package: FetchedPackage) -> tuple[str, ...]:
    return PackageFolder(package.files, source=f"{package.registry}/{package.name}").head.requires
