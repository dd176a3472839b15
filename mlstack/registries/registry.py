"""Registries: an index of packages and their versions, and the files of each; the plainest are folders."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from mlstack import disk_cache
from mlstack.app import document as documents
from mlstack.app import files, layout, versions
from mlstack.app.app import PackageRef, RegistryRef
from mlstack.app.app_dir import AppDir
from mlstack.app.document import fields_of
from mlstack.app.files import Files, is_chart, read_file, read_folder
from mlstack.app.package import PackageFolder, digest
from mlstack.app.prototype import Prototype
from mlstack.app.reader import AppReader
from mlstack.app.schema import check_file
from mlstack.app.versions import KSONNET_PREFIX, IndexPackage, IndexVersion, RegistryIndex, offers
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError
from mlstack.names import Table, nearest


class Registry(Protocol):
    """A place that packages come from."""

    @property
    def index(self) -> RegistryIndex:
        """Give the index, asked for once; a RegistryError if it cannot be fetched or read."""

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a package version, newest when none is named; the digest is checked.

        Raises:
            NotFoundError: no such package or version.
            RegistryError: it cannot be fetched, or its digest is not what the index says.
        """

    def at(self, revision: str) -> Registry:
        """Give the same registry at another branch, tag, commit or digest, as a lock holds it.

        Raises a RegistryError where the protocol has no revisions.
        """


class RegistryType(Protocol):
    """What `@protocol` stands on: a class that opens registries of one protocol."""

    @staticmethod
    def accepts(address: str) -> bool:
        """Tell whether an address is written in this protocol's way."""

    def __call__(self, ref: RegistryRef, *, root: Path, fresh: bool) -> Registry:
        """Open a registry; relative addresses start at `root`, the app's folder.

        A `fresh` one is asked anew, whatever a cache holds of it.
        """


PROTOCOLS: Table[RegistryType] = Table("registry protocol")
protocol = PROTOCOLS.register


# --- packages that lie in a tree of files: a folder of the disk, or a commit of a repository ---

INDEX_FILE = "registry.yaml"
CHART_INDEX = "index.yaml"
PACKAGE_FILES = ("package.yaml", "Chart.yaml")
_UNCLEAR = re.compile(r"https?://(?!(?:www\.)?(?:github|gitlab|bitbucket)\.)[^#]+(?<!\.git)")


class FileTree(Protocol):
    """Files by path relative to the registry's folder; `..` may lead to its neighbours."""

    def read(self, path: PurePosixPath) -> bytes | None:
        """Give a file, or nothing when it is not there."""

    def folder(self, path: PurePosixPath) -> Files:
        """Give all files of a folder by path relative to it; none when it is not there."""

    def names(self) -> Iterable[str]:
        """Give the names of the folders in the registry's folder."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Raise a RegistryError that begins with `what` in the place of a ConfigError, about somebody's files."""
    try:
        yield
    except ConfigError as error:
        raise RegistryError(f"{what}: {error}", where=error.where, hint=error.hint) from error


def read_index(tree: FileTree, *, source: str, name: str, revision: str = "") -> RegistryIndex:
    """Read `registry.yaml`; without one, every folder with a `package.yaml` is a package.

    Messages call it `source`, the app calls it `name`.
    """
    if (data := tree.read(PurePosixPath(INDEX_FILE))) is not None:
        return parse_index(data, source=source, name=name, revision=revision)
    entries = []
    with refusing("the registry cannot be read"):
        folders = sorted(tree.names())
        if names := [name for name in folders if tree.read(PurePosixPath(name, "parts.yaml"))]:
            raise ksonnet_registry(source, names)
        for folder in folders:
            if any(tree.read(PurePosixPath(folder, file)) is not None for file in PACKAGE_FILES):
                files = _package_files(tree, PurePosixPath(folder))
                package = PackageFolder(files, source=f"{source}/{folder}")
                entries.append(package.entry(folder, strict=False))
    if not entries:
        message = f"no registry at `{source}`: neither `{INDEX_FILE}` nor a folder with `package.yaml`"
        raise RegistryError(message, hint="check the address, branch and folder")
    return RegistryIndex(name=name, packages=versions.joined(entries), revision=revision, known_as=name)


def parse_index(data: bytes, *, source: str, name: str, revision: str = "") -> RegistryIndex:
    """Read an index; arguments as of `read_index`."""
    with refusing("the registry cannot be read"):
        document = documents.read(data, file=f"{source}/{INDEX_FILE}")
        head = document.value if isinstance(document.value, Mapping) else {}
        if "ksonnet" in str(head.get("kind")) or str(head.get("apiVersion")).startswith("0."):
            names = head.get("libraries")
            raise ksonnet_registry(source, sorted(map(str, names)) if isinstance(names, Mapping) else ())
        fields = fields_of(document, "Registry")
        check_file("Registry", document.value, source=document.file, document=document)
        return fields.record(RegistryIndex, revision=revision, known_as=name)


def ksonnet_registry(source: str, names: Iterable[str]) -> RegistryError:
    """Give the refusal of a registry of ksonnet's: what serves each of its packages now."""
    shipped = _bundled(DEFAULT_NAME).index
    text = f"`{source}` is a registry of ksonnet's, whose jsonnet packages mlstack does not run"
    lines = [f"  {name}: {_served(name, shipped)}" for name in names]
    hint = "mlstack import ksonnet-app DIR brings over an app that was made from it"
    return RegistryError("\n".join([text, *lines]), hint=hint)


def _served(name: str, shipped: RegistryIndex) -> str:
    if name in shipped.packages:
        return f"mlstack pkg install {shipped.name}/{name}"
    for entry in shipped.retired:
        if name in entry.names:
            return f"{entry.state}: {entry.reason}" + (f"; {entry.instead}" if entry.instead else "")
    owners = sorted({package.name for package, _ in offers(shipped, name)})
    return f"mlstack pkg install {shipped.name}/{owners[0]}" if owners else "nothing of mlstack's"


def fetch_package(tree: FileTree, index: RegistryIndex, package: str, version: str) -> Files:
    """Give the files of a package version, its digest checked."""
    entry = index.version(package, version)
    named = f"{package}@{entry.version}"
    with refusing(f"package `{named}` is refused"):
        files = _package_files(tree, PurePosixPath(entry.path))
    if not files:
        raise RegistryError(f"the folder of package `{named}` is missing: `{entry.path}`")
    return checked(files, entry, named)


def checked(files: Files, wanted: IndexVersion, named: str) -> Files:
    """Give a package's files, if they have the digest that its index says.

    Raises:
        RegistryError: they have another one.
    """
    if digest(files) != wanted.digest:
        raise RegistryError(
            f"the content of package `{named}` is not what the registry's index says:"
            f" {digest(files)}, the index has {wanted.digest}",
            hint="nothing was changed; ask the registry's keeper, whose index may be stale",
        )
    return files


def _package_files(tree: FileTree, folder: PurePosixPath) -> Files:
    """Give the files of a package; of a chart those that helm would pack."""
    files = tree.folder(folder)
    if not is_chart(files):
        return files
    from mlstack.app.chart import without_ignored

    return without_ignored(files, tree.read(folder / ".helmignore"))


class PackagesByName(Mapping[str, IndexPackage]):
    """Packages that are looked up one by one; only those of which the names are known are listed."""

    def __init__(self, entry: Callable[[str], IndexPackage | None], names: Collection[str]) -> None:
        self._entry, self._names = entry, names
        self._known: dict[str, IndexPackage | None] = {}

    def __getitem__(self, name: str) -> IndexPackage:
        if name not in self._known:
            self._known[name] = self._entry(name)
        if (package := self._known[name]) is None:
            raise KeyError(name)
        return package

    def learn(self, package: IndexPackage) -> None:
        """Take what is known of a package now in place of what was."""
        self._known[package.name] = package

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


# --- registries that are folders of the disk: an address is a path, relative to the app ---


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
        folders = (entry for entry in self._root.iterdir() if entry.is_dir())
        return [folder.name for folder in folders if not folder.name.startswith(".")]

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
        """Refuse: a folder has no revisions."""
        message = f"registry `{self._ref.name}` is a folder, which has no revision `{revision}`"
        raise RegistryError(message, hint=f"mlstack registry describe {self._ref.name} lists the versions")


# --- find the protocol of a registry and open it ---

BUNDLED = "bundled"
DEFAULT_NAME = "kubeflow"
DEFAULT_REGISTRY = RegistryRef(name=DEFAULT_NAME, address=BUNDLED, protocol="directory")


@cache
def _load() -> None:
    """Import the modules beside this one that enter a protocol in the table."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if b"\n@protocol(" in file.read_bytes():
            import_module(f"mlstack.registries.{file.stem}")


def protocols() -> tuple[str, ...]:
    """Give the names of all protocols."""
    _load()
    return PROTOCOLS.names()


def protocol_of(address: str) -> str:
    """Give the protocol that an address is written in; nothing is asked of a network."""
    if is_bundled(address):
        return "directory"
    _load()
    for name, kind in PROTOCOLS:
        if kind.accepts(address):
            return name
    places = "a folder, a git URL, github.com/OWNER/REPO/tree/BRANCH/FOLDER, oci://HOST/PATH"
    hint = f"give {places}, or the https:// address of charts"
    raise RegistryError(f"`{address}` is no address of a registry", hint=hint)


def asked_protocol(address: str) -> str:
    """Give the protocol of an address; of one that says too little, its server is asked for `index.yaml`."""
    name = protocol_of(address)
    is_open = name == "git" and _UNCLEAR.fullmatch(address) and not is_bundled(address)
    if not is_open or "helm" not in PROTOCOLS:
        return name
    from mlstack.registries.distribution import chart_login, chart_web

    try:
        url = f"{address.rstrip('/')}/{CHART_INDEX}"
        answer = chart_web(address).get(url, headers=chart_login(url, repository=address))
    except RegistryError:
        return name
    is_index = answer.status == 200 and re.search(rb"^entries:|\"entries\":", answer.data, re.MULTILINE)
    return "helm" if is_index else name


def as_overridden(ref: RegistryRef, *, root: Path) -> RegistryRef:
    """Give a registry of the app in the folder `root` as the person who works there reads it."""
    if not (root / layout.OVERRIDES).is_file():
        return ref
    reader = AppReader(root)
    own = next((own.address for own in reader.personal.registries if own.name == ref.name), None)
    is_shared = any((known.name, known.address) == (ref.name, ref.address) for known in reader.app.registries)
    return RegistryRef(name=ref.name, address=own) if own and is_shared else ref


def open_registry(ref: RegistryRef, *, root: Path) -> Registry:
    """Open a registry where the person who works in the app has it; else as `open_address`."""
    return open_address(as_overridden(ref, root=root), root=root)  # the lock names the shared one


def open_address(ref: RegistryRef, *, root: Path, fresh: bool = False) -> Registry:
    """Open a registry; an address that the bundled one stands in for leads there, offline.

    Args:
        ref: its name and address; an empty protocol is found from the address.
        root: the app's folder, where relative addresses start.
        fresh: ask it anew, whatever the cache holds of it.

    Raises:
        RegistryError: no such protocol, or the address fits none.
    """
    if is_bundled(ref.address):
        return _bundled(ref.name)
    return _kind(ref.protocol or asked_protocol(ref.address))(ref, root=root, fresh=fresh)


def indexes(
    refs: Iterable[RegistryRef], *, root: Path, notes: list[str]
) -> Iterator[tuple[str, RegistryIndex]]:
    """Give the index of each registry by the app's name for it; one that cannot be read becomes a note."""
    for ref in refs:
        try:
            index = open_registry(ref, root=root).index
        except MlstackError as error:
            notes.append(f"registry `{ref.name}` was left out: {error}")
        else:
            notes += [f"registry `{ref.name}`: {index.note}"] if index.note else []
            yield ref.name, index


def _kind(name: str) -> RegistryType:
    if name not in PROTOCOLS:  # that of folders is here
        _load()
    try:
        return PROTOCOLS.find(name)
    except NotFoundError as error:
        raise RegistryError(str(error), hint=error.hint) from error


def is_bundled(address: str) -> bool:
    """Tell whether an address leads to the registry that comes with mlstack."""
    if address == BUNDLED:
        return True
    plain = _normal(address)
    return any(fnmatchcase(plain, alias) for alias in _bundled_aliases())


def same_address(first: str, second: str) -> bool:
    """Tell whether two addresses lead to one registry."""
    return first == second or _normal(first) == _normal(second) or (is_bundled(first) and is_bundled(second))


def is_local(ref: RegistryRef) -> bool:
    """Tell whether a registry lies on this machine, so that asking it needs no network."""
    with suppress(RegistryError):  # no address at all, as opening it tells
        return is_bundled(ref.address) or (ref.protocol or protocol_of(ref.address)) == "directory"
    return False


def _bundled(name: str) -> Registry:
    place = files.folder("registry")
    return DirectoryRegistry(RegistryRef(name=name, address=str(place), protocol="directory"), root=place)


@cache
def _bundled_aliases() -> tuple[str, ...]:
    return tuple(_normal(alias) for alias in _bundled(BUNDLED).index.aliases)


def _normal(address: str) -> str:
    """Give an address as `host/owner/repo/tree/REVISION/FOLDER`, however it is written.

    Without scheme, user, `.git` and closing slashes, in lower case up to the path.
    """
    place, _, behind = address.rpartition("://")[2].partition("#")
    revision, _, folder = behind.partition(":")
    place = place.rstrip("/").removesuffix(f"/{INDEX_FILE}").removesuffix(".git").replace("/blob/", "/tree/")
    if "/" not in place.partition(":")[0]:
        place = place.replace(":", "/", 1)
    place = "/".join(filter(None, [place, "tree" if revision else "", revision, folder.strip("/")]))
    host, slash, path = place.partition("/")
    return f"{host.rpartition('@')[2].lower().removeprefix('www.')}{slash}{path}"


def find_usable(app: AppDir, name: str) -> tuple[Prototype, PackageRef | None]:
    """Find a prototype for a component: an installed one, or a built-in one with its package to install."""
    short = name.removeprefix(KSONNET_PREFIX)
    try:
        installed = app.vendor.prototype(name)
    except NotFoundError as error:
        if built_in := _built_in(app, name):
            return built_in
        raise missing_prototype(app, name, error) from error
    if "/" in short or short in (installed.name, *installed.aliases):
        return installed, None
    return _built_in(app, name) or (installed, None)


def _built_in(app: AppDir, name: str) -> tuple[Prototype, PackageRef] | None:
    from mlstack.registries.installation import built_in_prototype  # chooses versions and fetches

    return built_in_prototype(app, name)


def missing_prototype(app: AppDir, name: str, error: NotFoundError) -> NotFoundError:
    """Give what the registries of the app say of a prototype that is not installed; else the `error`.

    That is which package brings it, or why none does and what to do instead. Those that need a network are
    asked where the others do not have it; what one says that cannot be read stands below the message.
    """
    if "@" in name:  # who names a version means that package: its `error` says how to get it
        return error
    short = name.removeprefix(KSONNET_PREFIX).rpartition("/")[2]
    installed = {package.full_name for package in app.lock.packages}
    retired = {entry.name: entry.retired for entry in app.lock.registries}
    offered: dict[str, str] = {}  # names of prototypes that are not installed, with their packages
    notes: list[str] = []
    refs = app.app.registries
    for asked in ([*filter(is_local, refs)], [ref for ref in refs if not is_local(ref)]):
        packages: dict[str, None] = {}
        for registry, index in indexes(asked, root=app.root, notes=notes):
            retired[registry] = index.retired
            packages |= {f"{registry}/{package.name}": None for package, _ in offers(index, name)}
            for package in index.packages.values():
                if (full_name := f"{registry}/{package.name}") not in installed:
                    offered |= {known: full_name for p in package.prototypes for known in p.names}
        if missing := [package for package in packages if package not in installed]:
            listed = " and ".join(f"`{package}`" for package in missing)
            verb = "package {}, which is" if len(missing) == 1 else "packages {}, which are"
            message = f"prototype `{short}` is in {verb.format(listed)} not installed"
            return _noted(NotFoundError(message, hint=f"mlstack pkg install {missing[0]}"), notes)
    for registry, entries in retired.items():
        try:
            versions.refuse_retired(short, entries, registry=registry)
        except NotFoundError as refusal:
            return refusal
    names = {spelling for known in app.vendor.prototypes() for spelling in (known.name, *known.aliases)}
    if (near := nearest(short, [*names, *offered])) in offered and near not in names:
        package_name = offered[str(near)]
        hint = f"did you mean `{near}` of `{package_name}`? mlstack pkg install {package_name}"
        error = NotFoundError(f"no installed package has a prototype `{short}`", hint=hint)
    return _noted(error, notes)


def _noted(error: NotFoundError, notes: list[str]) -> NotFoundError:
    message = "\n  ".join([error.message, *notes])
    return NotFoundError(message, near=error.near, where=error.where, hint=error.hint)


# --- what registries said when they were last asked: so as to ask less, and to compare ---


TRUSTED_S = 600.0
"""How long a registry is believed, what it said of a branch, tag or index, before it is asked again."""


def latest(
    key: str,
    ask: Callable[[], Any],
    *,
    fresh: bool,
    away: type[RegistryError] = RegistryError,
    holds: Callable[[Any], bool] = lambda answer: True,
) -> tuple[Any, str]:
    """Give what a registry says, as plain data: what it said within ten minutes, or before while it is away.

    Args:
        key: of the cache.
        ask: asks it now; None is for what it has not, and is not kept.
        fresh: ask it now in any case.
        away: what `ask` raises where the registry does not answer.
        holds: tells whether what it said can still be used.

    Returns:
        What it says, and why that is not of now.

    Raises:
        RegistryError: it does not answer, and was not asked before.
    """
    cache = disk_cache.of_user(os.environ)
    last = disk_cache.from_json(cache.get(key), dict)
    if last and not holds(last["said"]):
        last = None
    if last and not fresh and time.time() - last["asked_s"] < TRUSTED_S:
        return last["said"], ""
    try:
        answer = ask()
    except away as error:
        if not last or fresh:
            raise
        asked = datetime.fromtimestamp(last["asked_s"], UTC).strftime("%Y-%m-%d %H:%M UTC")
        return last["said"], f"{error}; what it said on {asked} is used"
    if answer is not None:
        cache.put(key, json.dumps({"asked_s": time.time(), "said": answer}).encode())
    return answer, ""


def contents(index: RegistryIndex) -> dict[str, dict[str, str]]:
    """Give the digests of an index: package → version → digest."""
    return {
        package.name: {entry.version: entry.digest for entry in package.versions}
        for package in index.packages.values()
    }


def keep_contents(ref: RegistryRef, root: Path, index: RegistryIndex) -> None:
    """Keep what a registry says."""
    content = {"revision": index.revision, "packages": contents(index)}
    disk_cache.of_user(os.environ).put(_key(ref, root), json.dumps(content).encode())


def kept_contents(ref: RegistryRef, root: Path) -> Mapping[str, Any] | None:
    """Give what a registry said when it was last asked: its `revision`, and `contents` as `packages`."""
    return disk_cache.from_json(disk_cache.of_user(os.environ).get(_key(ref, root)), dict)


def _key(ref: RegistryRef, root: Path) -> str:
    is_folder = ref.protocol == "directory"
    return f"registry {(root / ref.address).resolve() if is_folder else ref.address}"
