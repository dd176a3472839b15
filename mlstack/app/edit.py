"""What all changes of an app share: one lock from reading to writing, and files that are written together."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.app import atomic, layout
from mlstack.app import files as lockfile
from mlstack.app.app import (
    API_VERSION,
    App,
    ClusterIdentity,
    Component,
    Environment,
    Lock,
    LockedPackage,
    LockedRegistry,
    Manifest,
    PackageRef,
    RegistryRef,
)
from mlstack.app.document import decode
from mlstack.app.files import write_lock
from mlstack.app.package import FetchedPackage, PackageFolder
from mlstack.app.params import KeyPath, ParamScope, refused_characters, spelling_table
from mlstack.app.params import KeyPath as ValuePath
from mlstack.errors import (
    ConfigError,
    MlstackError,
    NotFoundError,
    RegistryError,
    TypedValueError,
    UsageError,
    YamlError,
)
from mlstack.names import (
    check_app_name,
    check_component_name,
    check_environment_name,
    check_module_name,
    check_new_name,
    check_registry_name,
)
from mlstack.yaml import edit, write
from mlstack.yaml.read import read_document

if TYPE_CHECKING:
    from filelock import SoftFileLock

    from mlstack.app.files import AppFiles
    from mlstack.app.prototype import Param, Prototype


# --- What all changes of an app share: one lock from reading to writing, and files that are written
# together

LOCK_WAIT_S = 30.0
"""How long an edit waits for one other edit; whoever holds the lock longer has stopped or asks a person."""
_POLL_S = 0.02


class Editing:
    """The base of the classes that change an app; `AppDir` joins them."""

    root: Path
    _is_locked = False

    if TYPE_CHECKING:  # what the edits need of the reading side

        @property
        def files(self) -> AppFiles:
            """Give the reader of the app's files."""

        def app(self) -> App:
            """Give what `app.yaml` says."""

        def lock(self) -> Lock:
            """Give what `mlstack.lock` says."""

        def component(self, name: str) -> Component | Manifest:
            """Give the component of a full name."""

        def prototype(self, name: str, *, where: str | None = None) -> Prototype:
            """Find a prototype."""

        def declared_params(self) -> Mapping[str, Param]:
            """Give every spelling that an installed prototype declares."""

        def forget(self) -> None:
            """Read every file anew from now on."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other command from editing the app; what was read before is read anew.

        Whoever edits holds it from reading to writing. It may be entered again inside.

        Raises:
            ConfigError: another command has been editing the app for `LOCK_WAIT_S`.
        """
        if self._is_locked:
            yield
            return
        self.app()  # before there is a lock: in a folder of something else nothing is written
        with app_lock(self.root):
            self.forget()
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def write(self, files: Mapping[str, bytes | str], delete: Sequence[str] = ()) -> None:
        """Write and delete files below the app directory, all of them or none.

        Raises:
            ConfigError: the disk is full, the folder read-only …; nothing was changed.
        """
        contents = {self.root / file: content for file, content in files.items()}
        atomic.write_files(contents, delete=[self.root / file for file in delete])
        self.forget()

    def edited(self, file: str, kind: str) -> EditedFile:
        """Begin to edit a file of a kind; one that is not there begins with its kind alone.

        Raises:
            SchemaError: it does not fit its kind.
            YamlError: it is no YAML.
        """
        data = self.files.bytes(file)
        if data is None:
            start = write.to_yaml({"apiVersion": API_VERSION, "kind": kind})
            return EditedFile(file, start)
        self.files.document(file, kind)
        return EditedFile.of(file, data)

    def save(self, edited: EditedFile) -> bool:
        """Write an edited file when it changed; tell whether it did."""
        if not edited.changed:
            return False
        self.write({edited.file: edited.content})
        return True


@contextmanager
def app_lock(root: Path) -> Iterator[None]:
    """Hold the one lock of an app directory until the end of the block.

    An advisory lock of the operating system on `.mlstack/lock`, which the kernel frees however its holder
    ends. It lies in the app, since that is all that two users, or two machines on a network folder, have in
    common; git ignores it. It is never removed: some would wait for the old file while others hold a new one.
    Where the folder cannot be written, the folder itself is locked (on this machine alone); where the file
    system knows no locks, a file that is there while somebody edits takes their place. A folder that does
    not become an app inside the block is left as it was.

    Raises:
        ConfigError: another command has been editing the app for `LOCK_WAIT_S`, or what stands in the place
            of the lock is no file of ours.
    """
    lock = _AppLock(root)
    try:
        lock.acquire()
        yield
    finally:
        lock.release()


class _AppLock:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / layout.APP_LOCK
        self._made: list[Path] = []  # folders, the innermost first
        self._descriptor: int | None = None
        self._marker: SoftFileLock | None = None

    def acquire(self) -> None:
        """Wait for the lock: up to `LOCK_WAIT_S` for each holder, so that a long queue comes to its end."""
        holder, since_s = self._holder(), time.monotonic()
        while not self._take():
            if self._holder() != holder:
                holder, since_s = self._holder(), time.monotonic()
            if time.monotonic() - since_s > LOCK_WAIT_S:
                raise self._refusal()
            time.sleep(_POLL_S)
        if self._descriptor is not None:
            with suppress(OSError):  # it only names us to those who wait
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n{os.uname().nodename}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back, or what was opened for it; whatever happens on the way."""
        try:
            if self._made and not (self._root / layout.APP_FILE).exists():
                self._leave_no_trace()
        finally:
            marker, descriptor, self._marker, self._descriptor = self._marker, self._descriptor, None, None
            if marker is not None:
                marker.release()
            if descriptor is not None:
                os.close(descriptor)

    def _leave_no_trace(self) -> None:
        from filelock import lock_descriptor

        with suppress(OSError):  # somebody else may have put something there
            if self._descriptor is None or lock_descriptor(self._descriptor, blocking=False):
                self._path.unlink(missing_ok=True)
                self._path.with_name(".gitignore").unlink(missing_ok=True)
                for folder in self._made:
                    folder.rmdir()

    def _take(self) -> bool:
        from filelock import lock_descriptor

        if self._marker is not None:
            return self._take_marker()
        if self._descriptor is None:
            self._descriptor = self._opened()
        if self._descriptor is None:
            return True  # nothing here can be opened: whoever tries to write will be told why
        try:
            is_ours = lock_descriptor(self._descriptor, blocking=False)
        except OSError:  # ENOLCK, ENOTSUP, EBADF …: this file system knows no such locks
            return self._take_marker()
        if is_ours and not os.fstat(self._descriptor).st_nlink:  # it was removed: lock what stands there now
            self.release()
            return False
        return is_ours

    def _take_marker(self) -> bool:
        from filelock import SoftFileLock, Timeout

        if self._marker is None:
            self._marker = SoftFileLock(f"{self._path}.held")
        try:
            self._marker.acquire(blocking=False)
        except Timeout:
            return False
        except OSError:  # it cannot be made: whoever tries to write will be told why
            self._marker = None
        return True

    def _opened(self) -> int | None:
        for path in (self._path.parent, self._path):
            if path.is_symlink() or (path == self._path and path.exists() and not path.is_file()):
                message = "the lock of the app must be a plain file in a folder of its own"
                raise ConfigError(message, where=str(path), hint="remove what stands there")
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError):
            missing = [each for each in (self._path.parent, *self._path.parent.parents) if not each.exists()]
            for folder in reversed(missing):
                self._made.insert(0, folder)
                folder.mkdir(exist_ok=True)
            with suppress(OSError), self._path.with_name(".gitignore").open("x") as ignored:
                ignored.write("*\n")
            return os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        for path in (self._path, self._root):  # another user's lock, or a folder that only can be read
            with suppress(OSError):
                return os.open(path, os.O_RDONLY | flags)
        return None

    def _refusal(self) -> ConfigError:
        # A folder may be anybody's: only what we would have written ourselves is repeated.
        known = re.match(r"(\d{1,10})\n([\w.-]{1,64})\n", self._holder()[0], re.ASCII)
        holder = f"process {known[1]} on {known[2]}" if known else "another command"
        look = f"`ps -fp {known[1]}` shows it" if known else "look which mlstack runs there"
        leftover = f"; after a crash on another machine remove {self._path}.held" if self._marker else ""
        return ConfigError(
            f"{holder} has been editing this app for {LOCK_WAIT_S:.0f} s; nothing was changed",
            where=str(self._path),
            hint=f"wait for it or end it, then try again: {look}{leftover}",
        )

    def _holder(self) -> tuple[str, int]:
        """Give what the holder wrote about itself, and when; both empty where that cannot be read."""
        path = f"{self._path}.held" if self._marker is not None else self._path
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return os.read(descriptor, 200).decode(errors="replace"), os.fstat(descriptor).st_mtime_ns
            finally:
                os.close(descriptor)
        return "", 0


# --- A file of the app while it is edited: values set and removed in turn, then written as a whole ---


class EditedFile:
    """The text of a file, and what became of it."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self._before = text
        self._value: Any = None
        self._value_of: str | None = None

    @classmethod
    def of(cls, file: str, data: bytes) -> EditedFile:
        """Begin with the bytes of an existing file.

        Raises:
            YamlError: they are not UTF-8.
        """
        return cls(file, decode(data, file=file))

    @property
    def changed(self) -> bool:
        """Tell whether the text is another than the file's."""
        return self.text != self._before

    @property
    def content(self) -> bytes:
        """Give the bytes to write."""
        return self.text.encode()

    @property
    def value(self) -> Any:
        """Give the whole value as it is now."""
        if self._value_of != self.text:
            self._value = read_document(self.text, source=self.file, with_positions=False).value
            self._value_of = self.text
        return self._value

    def at(self, path: KeyPath) -> Any:
        """Give the value at a path; None where nothing stands."""
        value = self.value
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
                value = value[part]
            else:
                return None
        return value

    def actual_path(self, path: Sequence[str | int]) -> KeyPath:
        """Give a path as typed with the keys that stand for places of a list as numbers."""
        found: list[str | int] = []
        for part in path:
            is_place = isinstance(part, str) and part.isdigit() and isinstance(self.at(tuple(found)), list)
            found.append(int(part) if is_place else part)
        return tuple(found)

    def set(self, path: KeyPath, value: Any) -> None:
        """Set a value; missing maps around it are made.

        Raises:
            ConfigError: a parent is no map, or something else would change with it.
        """
        self.text = edit.set_value(self.text, path, value, source=self.file)

    def unset(self, path: KeyPath) -> bool:
        """Remove a value with its key; tell whether it was there.

        Raises:
            ConfigError: something else would change with it.
        """
        if not edit.has_value(self.text, path, source=self.file):
            return False
        self.text = edit.unset_value(self.text, path, source=self.file)
        return True

    def append(self, path: KeyPath, item: Any) -> None:
        """Add an item to a list; comments between its items stay where the list is written in lines."""
        before = self.at(path) or []
        wanted = [*before, item]
        if before:
            lines, first, last = self._item_lines((*path, len(before) - 1))
            indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
            added = [f"{indent}{line}" for line in write.to_yaml([item]).splitlines(keepends=True)]
            ending = [] if lines[last - 1].endswith("\n") else ["\n"]
            if self._keep("".join([*lines[:last], *ending, *added, *lines[last:]]), path, wanted):
                return
        self.set(path, wanted)

    def remove(self, path: KeyPath, index: int) -> None:
        """Take an item out of a list; comments between the others stay where it is written in lines."""
        before = self.at(path)
        wanted = [*before[:index], *before[index + 1 :]]
        if wanted:
            lines, first, last = self._item_lines((*path, index))
            if self._keep("".join([*lines[:first], *lines[last:]]), path, wanted):
                return
        self.set(path, wanted)

    def _item_lines(self, path: KeyPath) -> tuple[list[str], int, int]:
        """Give the text's lines, and the first line of an item and the one behind its last, from 0."""
        document = read_document(self.text, source=self.file)
        lines = self.text.splitlines(keepends=True)
        first = document.position(path).line - 1
        inside = [
            position.line for found, position in document.positions.items() if found[: len(path)] == path
        ]
        behind = [
            position.line - 1 for position in document.positions.values() if position.line > max(inside)
        ]
        last = min([*behind, len(lines)])
        while last > first + 1 and lines[last - 1].lstrip()[:1] in ("", "#"):
            last -= 1
        return lines, first, last

    def _keep(self, text: str, path: KeyPath, wanted: list[Any]) -> bool:
        """Take a text over if it reads as wanted and everything else in it as before."""
        after = EditedFile(self.file, text)
        try:
            if after.at(path) != wanted or _without(after.value, path) != _without(self.value, path):
                return False
        except YamlError:
            return False
        self.text = text
        return True


def _without(value: Any, path: KeyPath) -> Any:
    """Give a value with nothing at a path."""
    if not path:
        return None
    if isinstance(value, dict) and path[0] in value:
        return {**value, path[0]: _without(value[path[0]], path[1:])}
    return value


# --- Make an app, and change the registries it names ---

_GITIGNORE = """\
# Which environment commands take when none is named; everybody's own.
/.mlstack/
"""


class AppEdits(Editing):
    """Changes of `app.yaml`; `AppDir` is the class to use."""

    def add_registry(self, registry: RegistryRef) -> None:
        """Enter a registry in `app.yaml`.

        Raises:
            UsageError: the name is taken, or cannot be a registry's.
        """
        check_registry_name(registry.name)
        if any(known.name == registry.name for known in self.app().registries):
            raise UsageError(
                f"there is a registry `{registry.name}` already",
                hint=f"mlstack registry describe {registry.name}",
            )
        check_new_name(registry.name, [known.name for known in self.app().registries], "a registry")
        edited = self.edited(layout.APP_FILE, "App")
        edited.append(("registries",), _registry_map(registry))
        self.save(edited)

    def remove_registry(self, name: str) -> None:
        """Take a registry out of `app.yaml` and the lock."""
        if all(known.name != name for known in self.app().registries):
            raise NotFoundError(f"no registry `{name}`", hint="mlstack registry list")
        needed = [str(package) for package in self.app().packages if package.registry == name]
        if needed:
            raise UsageError(
                f"packages of `{name}` are installed: {', '.join(needed)}", hint=f"mlstack pkg rm {needed[0]}"
            )
        edited = self.edited(layout.APP_FILE, "App")
        edited.remove(("registries",), [known.name for known in self.app().registries].index(name))
        self.save(edited)

    @classmethod
    def check_new(cls, root: Path, name: str) -> None:
        """Refuse what cannot be a new app.

        Raises:
            UsageError: the name cannot be an app's, or there is an app already.
        """
        check_app_name(name)
        if (root / layout.APP_FILE).exists():
            raise UsageError(f"there is an app at `{root}` already", hint="choose another folder")

    @classmethod
    def write_new(cls, root: Path, name: str, *, registries: Sequence[RegistryRef] = ()) -> None:
        """Write the files of a new app directory."""
        cls.check_new(root, name)
        content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "App", "name": name}
        if registries:
            content["registries"] = [_registry_map(registry) for registry in registries]
        ignored = root / ".gitignore"
        files: dict[Path, bytes | str] = {root / layout.LOCK_FILE: lockfile.write_lock(Lock())}
        if not ignored.exists():
            files[ignored] = _GITIGNORE
        # Last what makes the folder an app: after a power cut the command can be repeated.
        atomic.write_files({**files, root / layout.APP_FILE: write.to_yaml(content)})


def _registry_map(registry: RegistryRef) -> dict[str, str]:
    return {"name": registry.name, "address": registry.address, "protocol": registry.protocol}


# --- Add and remove components of an app ---


class ComponentEdits(Editing):
    """Changes of components; `AppDir` is the class to use."""

    def add_component(self, component: Component, *, replace: bool = False) -> str:
        """Write a component's file and give its name; a module's folder is made on the way.

        Raises:
            UsageError: the name cannot be a component's, or there is one and `replace` is false.
        """
        check_component_name(component.name)
        if component.module:
            check_module_name(component.module)
        if component.module and f"{component.name.lower()}.yaml" == layout.MODULE_PARAMS:
            raise UsageError(
                f"`{component.full_name}` cannot be a component: its file is that of the module's parameters",
                where=layout.module_params_file(component.module),
                hint="choose another name",
            )
        check_new_name(component.full_name, self.files.component_files, "a component")
        if component.module:
            check_new_name(component.module, self.files.modules, "a module")
        known = self.files.component_files.get(component.full_name)
        if known and not replace:
            raise UsageError(
                f"there is a component `{component.full_name}` already",
                where=known[0],
                hint="--force replaces it",
            )
        file = layout.component_file(component.module, component.name)
        content: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": "Component",
            "prototype": component.prototype,
        }
        if component.params:
            content["params"] = dict(component.params)
        stale = [known[0]] if known and known[0] != file else []
        self.write({file: write.to_yaml(content)}, stale)
        return file

    def remove_component(self, name: str) -> tuple[str, ...]:
        """Remove a component and what environments say about it; the cluster is not touched.

        Returns:
            The files that were deleted or changed.

        Raises:
            NotFoundError: no such component.
            ConfigError: it is the last target of an environment.
        """
        file = self.component(name).file
        changed: dict[str, bytes | str] = {}
        deleted = [file]
        for environment in self.files.environment_names:
            patch = layout.patch_file(environment, name)
            deleted += [patch] if self.files.bytes(patch) is not None else []
            for edited in self._without_component(environment, name):
                changed[edited.file] = edited.content
        self.write(changed, deleted)
        return tuple(sorted([*deleted, *changed]))

    def _without_component(self, environment: str, name: str) -> list[EditedFile]:
        """Give an environment's files that spoke of a component, edited to be silent."""
        params = self.edited(layout.environment_params_file(environment), "EnvironmentParams")
        params.unset(("components", name))
        settings = self.edited(layout.environment_file(environment), "Environment")
        targets = settings.at(("targets",))
        if targets and all(each == name for each in targets):  # no targets would be all there are
            raise ConfigError(
                f"`{name}` is the last target of `{environment}`; without one everything would be deployed",
                where=str(self.files.environment_chain(environment)[-1].environment.file),
                hint=f"name others first: mlstack env set {environment} --targets NAME",
            )
        while name in (targets := settings.at(("targets",)) or ()):
            settings.remove(("targets",), targets.index(name))
        return [edited for edited in (params, settings) if edited.changed]


# --- Add, change, rename and remove environments of an app ---


class EnvironmentEdits(Editing):
    """Changes of environments; `AppDir` is the class to use."""

    def add_environment(self, environment: Environment, *, seed: Mapping[str, bytes] | None = None) -> str:
        """Write a new environment's files and give the name of the first.

        Args:
            environment: what its file has to say.
            seed: files to begin with, by name in its folder; their comments and order stay.

        Raises:
            UsageError: the name cannot be an environment's, or it is taken.
        """
        name = check_environment_name(environment.name)
        if name in self.files.environment_names:
            raise UsageError(f"there is an environment `{name}` already", hint=f"mlstack env describe {name}")
        check_new_name(name, self.files.environment_names, "an environment")
        file = layout.environment_file(name)
        files: dict[str, bytes | str] = {
            f"{layout.ENVIRONMENTS}/{name}/{path}": data for path, data in (seed or {}).items()
        }
        edited = self._begun(file, files.pop(file, None))
        for key, value in _settings(environment).items():
            edited.set((key,), value)
        self.write({**files, file: edited.content})
        with suppress(ConfigError):  # the next command finds it checked, or says what is wrong
            self.files.document(file, "Environment")
        return file

    def _begun(self, file: str, seed: bytes | str | None) -> EditedFile:
        return EditedFile.of(file, seed) if isinstance(seed, bytes) else self.edited(file, "Environment")

    def edit_environment(self, name: str, changes: Mapping[str, Any]) -> tuple[str, bool]:
        """Change fields of an environment's own file.

        Args:
            name: the environment.
            changes: new values by the key of the file (`kubernetesVersion`); None removes the field.

        Returns:
            The file, and whether it changed.

        Raises:
            NotFoundError: no such environment.
        """
        self.files.environment_chain(name)
        edited = self.edited(layout.environment_file(name), "Environment")
        for key, value in changes.items():
            if value is None:
                edited.unset((key,))
            else:
                edited.set((key,), value)
        return edited.file, self.save(edited)

    def pin_identity(self, name: str, identity: ClusterIdentity) -> None:
        """Bind an environment to a cluster, in its own file.

        Raises:
            NotFoundError: no such environment.
        """
        known = {"uid": identity.uid, "ca": identity.ca, "server": identity.server}
        with self.locked():
            file, _ = self.edit_environment(
                name, {"cluster": {key: value for key, value in known.items() if value is not None}}
            )
            self.files.note_sound(file, "Environment")

    def rename_environment(self, name: str, new: str) -> None:
        """Give an environment another name; those that extend it follow.

        Raises:
            NotFoundError: no such environment.
            UsageError: the new name cannot be an environment's, or it is taken.
        """
        self.files.environment_chain(name)
        check_environment_name(new)
        if new in self.files.environment_names:
            raise UsageError(f"there is an environment `{new}` already", hint=f"mlstack env describe {new}")
        check_new_name(new, [each for each in self.files.environment_names if each != name], "an environment")
        old_folder, new_folder = (f"{layout.ENVIRONMENTS}/{each}" for each in (name, new))
        own = self._own_files(name)
        written = {
            f"{new_folder}{file.removeprefix(old_folder)}": (self.root / file).read_bytes() for file in own
        }
        follow = {edited.file: edited.content for edited in self._following(name, new)}
        current = self._current(name, f"{new}\n")
        self.write({**written, **follow, **current}, own)

    def _following(self, name: str, new: str) -> list[EditedFile]:
        found = []
        for environment in self.files.environment_names:
            edited = self.edited(layout.environment_file(environment), "Environment")
            if environment != name and edited.at(("extends",)) == name:
                edited.set(("extends",), new)
                found.append(edited)
        return found

    def remove_environment(self, name: str) -> None:
        """Remove an environment's files; the cluster is not touched.

        Raises:
            NotFoundError: no such environment.
            UsageError: another environment extends it.
        """
        self.files.environment_chain(name)
        heirs = [
            each for each in self.files.environment_names if self._extends(each) == name and each != name
        ]
        if heirs:
            listed = ", ".join(f"`{heir}`" for heir in heirs)
            raise UsageError(f"`{name}` is extended by {listed}", hint="change or remove those first")
        current = self._current(name, "")
        self.write({}, [*self._own_files(name), *current])

    def _extends(self, name: str) -> str | None:
        return self.files.environment_chain(name)[-1].environment.extends

    def _own_files(self, name: str) -> list[str]:
        """Give the files of an environment, not those of environments nested in its folder.

        Last the one that makes it an environment: after a power cut the command can be repeated.
        """
        folder = self.root / layout.ENVIRONMENTS / name
        nested = [each for each in self.files.environment_names if each.startswith(f"{name}/")]
        inside = sorted(folder.rglob("*"), key=lambda path: (path == folder / layout.ENVIRONMENT, path))
        found = [path.relative_to(self.root).as_posix() for path in inside if path.is_file()]
        return [
            file
            for file in found
            if not any(file.startswith(f"{layout.ENVIRONMENTS}/{each}/") for each in nested)
        ]

    def _current(self, name: str, content: str) -> dict[str, bytes | str]:
        """Give the file of the current environment with new content, when that environment is `name`."""
        data = self.files.bytes(layout.CURRENT_ENVIRONMENT) or b""
        return {layout.CURRENT_ENVIRONMENT: content} if data.decode(errors="replace").strip() == name else {}

    def set_current_environment(self, name: str | None) -> None:
        """Choose the environment that commands take when none is named; None takes the choice back.

        Raises:
            NotFoundError: no such environment.
        """
        if name is None:
            self.write({}, [layout.CURRENT_ENVIRONMENT])
            return
        self.files.environment_chain(name)
        self.write({layout.CURRENT_ENVIRONMENT: f"{name}\n"})


def _settings(environment: Environment) -> dict[str, Any]:
    """Give the fields of an environment's file; what is as when left out is left out."""
    plain = Environment(name=environment.name)
    context = {"context": environment.context} if environment.context else {}
    namespace = (
        {}
        if environment.extends and environment.namespace == plain.namespace
        else {"namespace": environment.namespace}
    )
    rest = {
        key: getattr(environment, name)
        for key, name in _SETTINGS.items()
        if getattr(environment, name) != getattr(plain, name)
    }
    if environment.targets:
        rest["targets"] = list(environment.targets)
    if environment.allowed_namespaces:
        rest["allowedNamespaces"] = list(environment.allowed_namespaces)
    return {**context, **namespace, **rest}


_SETTINGS = {
    "kubernetesVersion": "kubernetes_version",
    "extends": "extends",
    "protected": "protected",
    "clusterScoped": "cluster_scoped",
    "waitForLoadBalancer": "wait_for_load_balancer",
}


# --- Set and take back parameters at every level of an app ---


class ParamEdits(Editing):
    """Changes of parameters; `AppDir` is the class to use."""

    def set_param(self, scope: ParamScope, path: Sequence[str], value: Any) -> tuple[str, bool]:
        """Set a value; nothing else in the file changes. A spelling that the file uses already is kept.

        Args:
            scope: the level.
            path: the parameter's name, then keys inside its value; a number is the index of a list.
            value: plain data; None removes what lower levels say.

        Returns:
            The file, and whether it changed.

        Raises:
            NotFoundError: no such component, module or environment.
            ParamError: the value holds a control character.
            ConfigError: the file cannot be edited or written.
        """
        for found, character in refused_characters(value):
            name = ".".join(map(str, (*path, *found)))
            message = f"`{name}` holds the control character {character}, which no object can carry"
            raise TypedValueError(message, hint="remove it from the value")
        edited, full = self._place(scope, path)
        edited.set(full, value)
        return edited.file, self.save(edited)

    def unset_param(self, scope: ParamScope, path: Sequence[str]) -> str | None:
        """Take a value back, so that the next lower level counts again.

        Returns:
            The file, or None when nothing was set there.

        Raises:
            NotFoundError: no such component, module or environment.
        """
        edited, full = self._place(scope, path)
        if not edited.unset(full):
            return None
        self.save(edited)
        return edited.file

    def _place(self, scope: ParamScope, path: Sequence[str]) -> tuple[EditedFile, ValuePath]:
        file, kind, section = self._section(scope)
        edited = self.edited(file, kind)
        return edited, edited.actual_path((*section, *self._spelled(scope, edited, section, path)))

    def _section(self, scope: ParamScope) -> tuple[str, str, ValuePath]:
        """Give the file, its kind, and the path of the map that holds a level's values."""
        if scope.kind == "app":
            return layout.APP_FILE, "App", ("params",)
        if scope.kind == "module":
            return self._module_file(str(scope.module)), "ModuleParams", ("params",)
        if scope.kind == "component":
            return self._own_component(str(scope.component)).file, "Component", ("params",)
        environment = str(scope.environment)
        self.files.environment_chain(environment)
        file = layout.environment_params_file(environment)
        if scope.kind == "environment globals":
            return file, "EnvironmentParams", ("globals",)
        component = self._own_component(str(scope.component))
        return file, "EnvironmentParams", ("components", component.full_name)

    def _module_file(self, module: str) -> str:
        if module not in self.files.modules:
            raise NotFoundError(
                f"no module `{module}`", hint=f"mlstack generate PROTOTYPE {module}.NAME makes it"
            )
        return layout.module_params_file(module)

    def _own_component(self, name: str) -> Component:
        found = self.component(name)
        if isinstance(found, Manifest):
            raise UsageError(
                f"`{name}` is a plain manifest, which has no parameters",
                where=found.file,
                hint=f"edit it, or patch it for one environment in environments/ENV/patches/{name}.yaml",
            )
        return found

    def _spelled(
        self, scope: ParamScope, edited: EditedFile, section: ValuePath, path: Sequence[str]
    ) -> tuple[str, ...]:
        """Spell a parameter as the file does already: two spellings in one layer are an error."""
        present = edited.at(section)
        if not isinstance(present, Mapping) or path[0] in present or not present:
            return tuple(path)
        spellings = self._spellings(scope, path[0])
        return (next((name for name in present if name in spellings), path[0]), *path[1:])

    def _spellings(self, scope: ParamScope, name: str) -> frozenset[str]:
        if scope.component is not None:
            params = self.prototype(self._own_component(scope.component).prototype).params
            param = params.get(spelling_table(params).get(name, ""))
        else:
            param = self.declared_params().get(name)
        return frozenset((param.name, *param.aliases)) if param else frozenset((name,))


# --- Put packages into an app and take them out: `vendor/`, `app.yaml` and `mlstack.lock` change
# together


class Installs(Editing):
    """What installs and removes packages; `AppDir` is the class to use."""

    def install(
        self, requirement: PackageRef, fetched: Sequence[FetchedPackage], registry: LockedRegistry
    ) -> None:
        """Vendor packages, lock their digests and enter the requirement in `app.yaml`, in one write.

        A requirement without a version is for the newest: it replaces what an earlier one brought. With a
        version, versions stand side by side, those of the packages it requires too: nothing goes.

        Args:
            requirement: as it was asked for.
            fetched: the package that was asked for, then what it requires.
            registry: what to lock of the registry.

        Raises:
            RegistryError: a version is locked already with other content.
            ConfigError: the files cannot be written; nothing was changed.
        """
        for package in fetched:
            self._refuse_other_content(package)
        app_file = self.edited(layout.APP_FILE, "App")
        entered = requirement if not requirement.version else _exact(requirement, fetched[0])
        if entered not in self.app().packages:
            app_file.append(("packages",), str(entered))
        requirements = [*self.app().packages, entered]
        new = [_locked(package) for package in fetched]
        replaced = () if requirement.version else new
        kept = [
            old
            for old in self.lock().packages
            if old not in new and not _replaced(old, replaced, requirements)
        ]
        registries = [each for each in self.lock().registries if each.name != registry.name]
        lock = Lock(registries=(*registries, registry), packages=(*kept, *new))
        files = {file: data for package in fetched for file, data in _vendored(package).items()}
        files |= {layout.LOCK_FILE: write_lock(lock), layout.APP_FILE: app_file.content}
        changed = {file: data for file, data in files.items() if self._bytes(file) != data}
        self.write(changed, [*self._stale(new, files), *self._gone(lock)])

    def _refuse_other_content(self, package: FetchedPackage) -> None:
        new = _locked(package)
        for old in self.lock().packages:
            if old.ref == new.ref and old.digest != new.digest:
                raise RegistryError(
                    f"the registry's `{new.ref}` is not the one that mlstack.lock holds:"
                    f" {new.digest}, locked {old.digest}",
                    hint=f"a changed package needs a new version; mlstack pkg rm {new.ref} lets this one in",
                )

    def _bytes(self, file: str) -> bytes | None:
        place = self.root / file
        return place.read_bytes() if place.is_file() else None

    def _stale(self, new: Iterable[LockedPackage], files: Mapping[str, bytes]) -> list[str]:
        """Give files of the packages' folders that are no part of them."""
        found = []
        for package in new:
            folder = self.root / package.folder
            paths = sorted(folder.rglob("*")) if folder.is_dir() else []
            names = (path.relative_to(self.root).as_posix() for path in paths if not path.is_dir())
            found += [name for name in names if name not in files]
        return found

    def _gone(self, lock: Lock) -> list[str]:
        """Give the folders of packages that were locked and are not any more."""
        kept = {package.folder for package in lock.packages}
        return [package.folder for package in self.lock().packages if package.folder not in kept]

    def remove_package(self, ref: PackageRef) -> tuple[LockedPackage, ...]:
        """Remove a package's requirement, and every package that nothing requires any more.

        Args:
            ref: without a version, all versions of it.

        Returns:
            The packages whose folders are gone.

        Raises:
            NotFoundError: it is not installed.
        """
        named = [each for each in self.lock().packages if _is(each.ref, ref)]
        if not named:
            raise NotFoundError(f"package `{ref}` is not installed", hint="mlstack pkg list --installed")
        app_file = self.edited(layout.APP_FILE, "App")
        requirements = list(self.app().packages)
        left = [each for each in self.lock().packages if each not in named]
        # What no requirement names by its version was brought by the one without: that goes with it.
        is_newest = bool(ref.version) and ref not in requirements
        is_last = is_newest or all(each.full_name != ref.full_name for each in left)
        for required in [each for each in requirements if _is(each, ref) or (is_last and _is(ref, each))]:
            app_file.remove(("packages",), requirements.index(required))
            requirements.remove(required)
        lock = Lock(registries=self.lock().registries, packages=self._needed(left, requirements))
        gone = tuple(each for each in self.lock().packages if each not in lock.packages)
        self.write({layout.LOCK_FILE: write_lock(lock), layout.APP_FILE: app_file.content}, self._gone(lock))
        return gone

    def _needed(
        self, packages: Sequence[LockedPackage], requirements: Iterable[PackageRef]
    ) -> tuple[LockedPackage, ...]:
        """Give the packages that requirements of the app lead to, directly or through others."""
        wanted = [each for each in packages if any(_is(each.ref, ref) for ref in requirements)]
        found: list[LockedPackage] = []
        while wanted:
            package = wanted.pop()
            if package not in found:
                found.append(package)
                needs = self._requires(package)
                wanted += [
                    each for each in packages if each.registry == package.registry and each.name in needs
                ]
        return tuple(each for each in packages if each in found)

    def _requires(self, package: LockedPackage) -> tuple[str, ...]:
        folder = self.root / package.folder
        if not folder.is_dir():
            return ()
        try:
            return PackageFolder.read(folder, source=package.folder).head.requires
        except MlstackError:  # it cannot be asked: it may need any of them
            return tuple(each.name for each in self.lock().packages)


def _is(one: PackageRef, other: PackageRef) -> bool:
    """Tell whether `one` is the package that `other` names; without a version it names all."""
    return one.full_name == other.full_name and other.version in ("", one.version)


def _exact(requirement: PackageRef, fetched: FetchedPackage) -> PackageRef:
    return PackageRef(registry=requirement.registry, name=requirement.name, version=fetched.version)


def _locked(package: FetchedPackage) -> LockedPackage:
    return LockedPackage(
        registry=package.registry,
        name=package.name,
        version=package.version,
        digest=package.digest,
        source=package.source,
    )


def _replaced(old: LockedPackage, new: Iterable[LockedPackage], requirements: Iterable[PackageRef]) -> bool:
    """Tell whether another version of a package takes its place: nobody asked for this one by version."""
    is_named = any(ref.version == old.version and ref.full_name == old.full_name for ref in requirements)
    return not is_named and any(each.full_name == old.full_name for each in new)


def _vendored(package: FetchedPackage) -> dict[str, bytes]:
    folder = _locked(package).folder
    return {f"{folder}/{path}": data for path, data in package.files.items()}
