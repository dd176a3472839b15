"""The app directory: all that an app's files say, and every change to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from mlstack.app import edit, layout
from mlstack.app.app import Component, PackageRef, RegistryRef
from mlstack.app.document import API_VERSION, decode, join_path, split_path, to_map
from mlstack.app.edit import EditedFile, app_lock, changed_texts
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.app.files import read_file, read_folder
from mlstack.app.package import FetchedPackage
from mlstack.app.params import Layer, ParamScope, layer_of, refused_characters, spelling_table
from mlstack.app.reader import AppReader
from mlstack.app.versions import Lock, LockedKustomization, LockedPackage
from mlstack.disk_cache import NO_STORE, ByteStore
from mlstack.errors import ConfigError, NotFoundError, TypedValueError, UsageError
from mlstack.names import (
    check_app_name,
    check_component_name,
    check_environment_name,
    check_module_name,
    check_new_name,
    check_registry_name,
    version_key,
)
from mlstack.yaml import write
from mlstack.yaml.read import KeyPath

_GITIGNORE = """\
# Which environment commands take when none is named; everybody's own.
/.mlstack/
"""
_SHARED_VENDOR = """\
# Packages are shared: whoever clones the app renders without a network.
!/vendor/
"""


def _ignored(text: str) -> str:
    """Give what a .gitignore lacks: personal files are ignored, and vendor/ is not."""
    lines = [line.strip() for line in text.splitlines()]
    own = "" if {"/.mlstack/", ".mlstack/", ".mlstack", "/.mlstack"} & {*lines} else _GITIGNORE
    hidden = {"vendor", "vendor/", "/vendor", "/vendor/", "**/vendor/"} & {*lines}
    return own + (_SHARED_VENDOR if hidden and "!/vendor/" not in lines else "")


_LOCK_HEADER = "# Written by mlstack. Commit it: it says exactly which packages this app renders with.\n"


def write_lock(lock: Lock) -> bytes:
    """Give the bytes of a lock file; the same packages in any order give the same bytes."""
    registries = sorted(lock.registries, key=lambda registry: registry.name)
    packages = sorted(lock.packages, key=lambda package: (package.full_name, version_key(package.version)))
    copies = sorted(lock.kustomizations, key=lambda entry: entry.source)
    ordered = Lock(registries=tuple(registries), packages=tuple(packages), kustomizations=tuple(copies))
    content = {"apiVersion": API_VERSION, "kind": "Lock", **to_map(ordered, ("registries", "packages"))}
    return (_LOCK_HEADER + write.to_yaml(content)).encode()


_Overridable = Literal["environments", "registries"]
Copy = tuple[LockedKustomization, Mapping[PurePosixPath, bytes]]
"""The copy of a kustomization: how it is locked, and its files."""


class AppDir(AppReader):
    """An app directory. Every file is read at most once; a change makes it be read anew."""

    _is_locked = False

    @classmethod
    def find(
        cls, start: Path, *, store: ByteStore = NO_STORE, environ: Mapping[str, str] | None = None
    ) -> AppDir:
        """Find the app directory that `start` lies in; `store` and `environ` are as of `AppReader`."""
        root = layout.find_root(start)
        if root is None:
            message = f"no app directory at `{start.absolute()}` or above"
            raise NotFoundError(message, hint="mlstack init NAME makes one")
        return cls(root, store=store, environ=environ)

    @classmethod
    def check_new(cls, root: Path, name: str) -> None:
        """Refuse what cannot be a new app."""
        check_app_name(name)
        if (root / layout.APP_FILE).exists():
            with suppress(OSError):
                if b"ksonnet.io/app" in (root / layout.APP_FILE).read_bytes():
                    hint = f"bring it over: mlstack import ksonnet-app {root} --out NEW"
                    raise UsageError(f"there is an app of ksonnet at `{root}`", hint=hint)
            raise UsageError(f"there is an app at `{root}` already", hint="choose another folder")

    @classmethod
    def create(cls, root: Path, name: str, *, registries: Sequence[RegistryRef] = ()) -> AppDir:
        """Make an app directory that can be used at once."""
        cls.check_new(root, name)
        content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "App", "name": name}
        if registries:
            content["registries"] = [to_map(registry, ("protocol",)) for registry in registries]
        ignored = root / ".gitignore"
        files: dict[Path, bytes | str] = {root / layout.LOCK_FILE: write_lock(Lock())}
        known = read_file(ignored) if ignored.exists() else b""
        if added := _ignored(known.decode("utf-8", errors="replace")):
            files[ignored] = known + (b"\n" if known and not known.endswith(b"\n") else b"") + added.encode()
        # Last what makes the folder an app: after a power cut the command can be repeated.
        edit.write_files({**files, root / layout.APP_FILE: write.to_yaml(content)})
        return cls(root.absolute())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other command from editing the app; what was read before is read anew.

        Whoever edits holds it from reading to writing. It may be entered again inside.
        """
        if self._is_locked:
            yield
            return
        self.app  # noqa: B018 # before there is a lock: in a folder of something else nothing is written
        with app_lock(self.root):
            self.forget()
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def vendor_kustomizations(self, copies: Sequence[Copy]) -> None:
        """Write copies of kustomizations and lock what they are."""
        if copies:
            self.write(*self._vendored(copies))

    def _vendored(self, copies: Sequence[Copy]) -> tuple[dict[str, bytes | str], list[str]]:
        """Give the files of copies, with the lock, and those that go."""
        if not copies:
            return {}, []
        files: dict[str, bytes | str] = {
            f"{entry.folder}/{path}": data for entry, copied in copies for path, data in copied.items()
        }
        stale = self._stale([entry.folder for entry, _ in copies], files)
        sources = {entry.source for entry, _ in copies}
        kept = [entry for entry in self.lock.kustomizations if entry.source not in sources]
        lock = replace(self.lock, kustomizations=(*kept, *(entry for entry, _ in copies)))
        if lock != self.lock:
            files[layout.LOCK_FILE] = write_lock(lock)
        return files, stale

    def _stale(self, folders: Iterable[str], files: Collection[str]) -> list[str]:
        """Give the files below folders of the app that are none of these."""
        paths = [path for folder in folders for path in sorted((self.root / folder).rglob("*"))]
        names = [path.relative_to(self.root).as_posix() for path in paths if not path.is_dir()]
        return [name for name in names if name not in files]

    def write(self, files: Mapping[str, bytes | str], delete: Sequence[str] = ()) -> None:
        """Write and delete files below the app directory, all of them or none, as `edit.write_files` does."""
        contents = {self.root / file: content for file, content in files.items()}
        edit.write_files(contents, delete=[self.root / file for file in delete])
        self.forget()

    def edited(self, file: str, kind: str) -> EditedFile:
        """Begin to edit a file of a kind; one that is not there begins with its kind alone."""
        data = self.files.bytes(file)
        if data is None:
            return EditedFile(file, write.to_yaml({"apiVersion": API_VERSION, "kind": kind}))
        self.files.document(file, kind)
        return EditedFile(file, decode(data, file=file))

    def _save(self, edited: EditedFile) -> bool:
        """Write an edited file when it changed; tell whether it did."""
        if edited.changed:
            self.write({edited.file: edited.text})
        return edited.changed

    # --- registries ---

    def add_registry(self, registry: RegistryRef) -> None:
        """Enter a registry in `app.yaml`."""
        check_registry_name(registry.name)
        known = [ref.name for ref in self.app.registries]
        if registry.name in known:
            message = f"there is a registry `{registry.name}` already"
            raise UsageError(message, hint=f"mlstack registry describe {registry.name}")
        check_new_name(registry.name, known, "a registry")
        edited = self.edited(layout.APP_FILE, "App")
        edited.append(("registries",), to_map(registry, ("protocol",)))
        self._save(edited)

    def set_registry(self, registry: RegistryRef) -> None:
        """Give the registry of that name another address, and its protocol."""
        place = f"registries[{[ref.name for ref in self.app.registries].index(registry.name)}]"
        changes = {f"{place}.address": registry.address, f"{place}.protocol": registry.protocol}
        self.edit(layout.APP_FILE, "App", changes)

    def remove_registry(self, name: str) -> None:
        """Take a registry out of `app.yaml` and of the lock."""
        edited = self.edited(layout.APP_FILE, "App")
        edited.remove(("registries",), [ref.name for ref in self.app.registries].index(name))
        kept = tuple(locked for locked in self.lock.registries if locked.name != name)
        files: dict[str, bytes | str] = {layout.APP_FILE: edited.text}
        if kept != self.lock.registries:
            files[layout.LOCK_FILE] = write_lock(replace(self.lock, registries=kept))
        self.write(files)

    # --- components ---

    def add_component(
        self, component: Component, *, replace: bool = False, copies: Sequence[Copy] = ()
    ) -> str:
        """Write a component's file and give its name; a module's folder is made on the way.

        `copies` are kustomizations that it needs in `vendor/`.
        """
        name, module = component.full_name, component.module
        check_component_name(component.name)
        self.check_component(name)
        known = self.component_files.get(name)
        if known and not replace:
            message = f"there is a component `{name}` already"
            raise UsageError(message, where=known[0], hint="--force replaces it")
        file = layout.component_file(module, component.name)
        source = "kustomize" if component.kustomize else "prototype"
        content = {"apiVersion": API_VERSION, "kind": "Component", source: getattr(component, source)}
        params = {"params": dict(component.params)} if component.params else {}
        stale = [known[0]] if known and known[0] != file else []
        files, gone = self._vendored(copies)
        self.write({**files, file: write.to_yaml({**content, **params})}, [*gone, *stale])
        return file

    def check_component(self, full_name: str) -> None:
        """Refuse what cannot name a component, and a module whose folder another one has."""
        module, _, name = full_name.rpartition(".")
        check_component_name(name if "/" not in full_name and "" not in full_name.split(".") else full_name)
        if module:
            self.check_module(module)
        if module and f"{name.lower()}.yaml" == layout.MODULE_PARAMS:
            message = f"`{full_name}` cannot be a component: its file is that of the module's parameters"
            raise UsageError(message, where=layout.module_params_file(module), hint="choose another name")
        check_new_name(full_name, self.component_files, "a component")

    def check_module(self, name: str) -> None:
        """Refuse what cannot name a module."""
        check_module_name(name)
        for length in range(1, name.count(".") + 2):
            check_new_name(".".join(name.split(".")[:length]), self.modules, "a module")

    # --- environments ---

    def add_environment(self, environment: Environment, *, preset: Path | None = None) -> str:
        """Write a new environment's files and give the name of the first.

        Those in the folder of a preset are begun with; their comments and order stay.
        """
        name = check_environment_name(environment.name)
        self._check_new_environment(name, self.environment_names)
        file = layout.environment_file(name)
        seed = read_folder(preset) if preset is not None else {}
        files: dict[str, bytes | str] = {
            f"{layout.ENVIRONMENTS}/{name}/{path}": data for path, data in seed.items()
        }
        seeded = files.pop(file, None)
        edited = self.edited(file, "Environment")
        if isinstance(seeded, bytes):
            edited = EditedFile(file, decode(seeded, file=file))
        settings = to_map(environment, () if environment.extends else ("namespace",))
        for key in sorted(settings, key=lambda key: isinstance(settings[key], list)):  # lists last
            edited.set((key,), settings[key])
        self.write({**files, file: edited.text})
        with suppress(ConfigError):  # the next command finds it checked, or says what is wrong
            self.files.document(file, "Environment")
        return file

    def _check_new_environment(self, name: str, others: Iterable[str]) -> None:
        if name in self.environment_names:
            raise UsageError(f"there is an environment `{name}` already", hint=f"mlstack env describe {name}")
        check_new_name(name, others, "an environment")

    def edit(self, file: str, kind: str, changes: Mapping[str, Any]) -> tuple[str, bool]:
        """Change fields of a file; give it, and whether it changed.

        Keys are those of the file (`kubernetesVersion`, `labels.team`); None removes one. What is not there
        of a map becomes null, which removes what is inherited.
        """
        edited = self.edited(file, kind)
        for key, value in changes.items():
            path = split_path(key)
            if value is not None or (len(path) > 1 and edited.at(path) is None):
                edited.set(path, value)
            else:
                edited.unset(path)
        return edited.file, self._save(edited)

    def pin_identity(self, name: str, identity: ClusterIdentity) -> None:
        """Bind an environment to a cluster, in its own file; in the personal one a context of one's own."""
        with self.locked():
            personal = self.personal.environment(name)
            if personal is not None and personal.context:
                self.override("environments", name, {"cluster": to_map(identity)})
                return
            file, _ = self.edit(layout.environment_file(name), "Environment", {"cluster": to_map(identity)})
            self.files.note_sound(file, "Environment")

    def override(self, section: _Overridable, name: str, changes: Mapping[str, Any]) -> None:
        """Set what one person has otherwise about a thing; shared files stay as they are."""
        edited, place = self._own_override(section, name, {} if section == "environments" else changes)
        edited.update(place, changes)
        self._save(edited)

    def take_back(self, section: _Overridable, name: str) -> bool:
        """Take back what one person has otherwise about a thing; tell whether there was anything."""
        return self._save(self._without_override(section, name))

    def _own_override(
        self, section: str, name: str, first: Mapping[str, Any] | None = None
    ) -> tuple[EditedFile, KeyPath]:
        """Give the personal file, with an entry for a thing that begins with `first`, and its path."""
        edited, names = self.edited(layout.OVERRIDES, "PersonalOverrides"), self._overridden(section)
        if name not in names:
            edited.append((section,), {"name": name, **(first or {})})
        return edited, (section, names.index(name) if name in names else len(names))

    def _overridden(self, section: str) -> list[str]:
        return [personal.name for personal in getattr(self.personal, section)]

    def _without_override(self, section: str, name: str) -> EditedFile:
        """Give the personal file without what it says of a thing."""
        edited = self.edited(layout.OVERRIDES, "PersonalOverrides")
        edited.drop((section,), lambda own: own["name"] == name)
        return edited

    def copy_environment(self, name: str, new: str, changes: Mapping[str, Any]) -> str:
        """Make an environment of another one's files, byte for byte but for `changes` and its cluster."""
        files = self._files_for(name, new, self.environment_names)
        file = layout.environment_file(new)
        files.pop(f"{layout.ENVIRONMENTS}/{new}/{layout.SNAPSHOT}", None)
        edited = EditedFile(file, decode(files.pop(file), file=file))
        edited.update((), {"cluster": None, "expires": None, **changes})
        self.write({**files, file: edited.text})
        return file

    def _files_for(self, name: str, new: str, others: Iterable[str]) -> dict[str, bytes]:
        """Give the files of an environment as they are called under another name, which must be free."""
        self.environment_chain(name)
        check_environment_name(new)
        self._check_new_environment(new, others)
        base = f"{layout.ENVIRONMENTS}/{name}/"
        own = {file.removeprefix(base): (self.root / file).read_bytes() for file in self._own_files(name)}
        return {f"{layout.ENVIRONMENTS}/{new}/{path}": data for path, data in own.items()}

    def rename_environment(self, name: str, new: str) -> None:
        """Give an environment another name; those that extend it follow."""
        others = [other for other in self.environment_names if other != name]
        files, edits = self._files_for(name, new, others), list[EditedFile]()
        for heir in others:
            edits.append(self.edited(layout.environment_file(heir), "Environment"))
            if edits[-1].at(("extends",)) == name:
                edits[-1].set(("extends",), new)
        if name in (names := self._overridden("environments")):
            edits.append(self.edited(layout.OVERRIDES, "PersonalOverrides"))
            edits[-1].set(("environments", names.index(name), "name"), new)
        if self.current_environment() == name:
            files[layout.CURRENT_ENVIRONMENT] = f"{new}\n".encode()
        self.write({**files, **changed_texts(edits)}, self._own_files(name))
        self._drop_empty_folders(name)

    def remove_environment(self, name: str) -> None:
        """Remove an environment's files; the cluster is not touched."""
        self.environment_chain(name)
        chains = {other: self.environment_chain(other) for other in self.environment_names}
        heirs = [other for other, chain in chains.items() if chain[-1].environment.extends == name != other]
        if heirs:
            listed = ", ".join(f"`{heir}`" for heir in heirs)
            raise UsageError(f"`{name}` is extended by {listed}", hint="change or remove those first")
        current = [layout.CURRENT_ENVIRONMENT] if self.current_environment() == name else []
        personal = self._without_override("environments", name)
        self.write(changed_texts([personal]), [*self._own_files(name), *current])
        self._drop_empty_folders(name)

    def _drop_empty_folders(self, name: str) -> None:
        """Remove the folders of an environment that hold nothing any more, and empty ones around them."""
        base = self.root / layout.ENVIRONMENTS
        for folder in (base / name / "patches", base / name, *(base / name).parents):
            if not folder.is_relative_to(base) or folder == base:
                return
            with suppress(OSError):
                folder.rmdir()

    def _own_files(self, name: str) -> list[str]:
        """Give the files of an environment, not those of environments nested in its folder.

        Last the one that makes it an environment: after a power cut the command can be repeated.
        """
        base = self.root / layout.ENVIRONMENTS
        folder = base / name
        nested = [base / other for other in self.environment_names if other.startswith(f"{name}/")]
        inside = sorted(folder.rglob("*"), key=lambda path: (path == folder / layout.ENVIRONMENT, path))
        return [
            path.relative_to(self.root).as_posix()
            for path in inside
            if path.is_file() and not any(path.is_relative_to(other) for other in nested)
        ]

    def set_current_environment(self, name: str | None) -> None:
        """Choose the environment that commands take when none is named; None takes the choice back."""
        if name is None:
            self.write({}, [layout.CURRENT_ENVIRONMENT])
            return
        self.environment_chain(name)
        self.write({layout.CURRENT_ENVIRONMENT: f"{name}\n"})

    # --- parameters ---

    def own_layer(self, scope: ParamScope) -> Layer:
        """Give what the app, a module or a component itself sets."""
        file, kind, section = self._place(scope)
        document = self.files.document(file, kind)
        return layer_of(document, section, scope.kind, "") if document else Layer(scope.kind, {})

    def _place(self, scope: ParamScope) -> tuple[str, str, KeyPath]:
        """Give the file of a level, its kind, and where in it its parameters stand."""
        component = self.component_with_params(scope.component) if scope.component is not None else None
        if scope.environment is not None:
            self.environment_chain(scope.environment)
            section = ("components", component.full_name) if component is not None else ("globals",)
            return layout.environment_params_file(scope.environment), "EnvironmentParams", section
        if component is not None:
            return component.file, "Component", ("params",)
        if scope.module is None:
            return layout.APP_FILE, "App", ("params",)
        self.check_known_module(scope.module)
        return layout.module_params_file(scope.module), "ModuleParams", ("params",)

    def own_param(self, scope: ParamScope, path: KeyPath) -> Any:
        """Give what the file of a level itself has at a path; None where nothing stands."""
        edited, full = self.edited_param(scope, path)
        return edited.at(full)

    def set_param(self, scope: ParamScope, path: KeyPath, value: Any) -> tuple[str, bool]:
        """Set a value, None removes what lower levels say; give the file, and whether it changed.

        The path is the parameter's name, then keys inside its value and indices of lists. Nothing else in the
        file changes; a spelling that it uses already is kept.
        """
        for inner, character in refused_characters(value):
            name = join_path((*path, *inner))
            message = f"`{name}` holds the control character {character}, which no object can carry"
            raise TypedValueError(message, hint="remove it from the value")
        edited, full = self.edited_param(scope, path)
        edited.set(full, value)
        return edited.file, self._save(edited)

    def unset_param(self, scope: ParamScope, path: KeyPath) -> str | None:
        """Take a value back, so that the next lower level counts again; a file that held it alone goes."""
        edited, full = self.edited_param(scope, path)
        if not edited.unset(full):
            return None
        if scope.personal and edited.at(full[:2]).keys() == {"name"}:  # nothing else is otherwise there
            edited.unset(full[:2])
        if edited.value.keys() == {"apiVersion", "kind"} and edited.text == write.to_yaml(edited.value):
            self.write({}, [edited.file])
        else:
            self._save(edited)
        return edited.file

    def edited_param(
        self, scope: ParamScope, path: KeyPath, begun: EditedFile | None = None
    ) -> tuple[EditedFile, KeyPath]:
        """Give the file of a level, or the one that is edited already, and a parameter's path in it."""
        file, kind, section = self._place(scope)
        if scope.personal:
            edited, place = self._own_override("environments", str(scope.environment))
            section = (*place, *section)
        else:
            edited = begun or self.edited(file, kind)
        present = edited.at(section)
        spelling = str(path[0])
        if isinstance(present, Mapping) and present and spelling not in present:
            # Spell it as the file does already: two spellings in one layer are an error.
            if scope.component is not None:
                component = self.component_with_params(scope.component)
                params = self.prototype_of(component, scope.environment).params
                param = params.get(spelling_table(params).get(spelling, ""))
            else:
                param = self.vendor.declared_params().get(spelling)
            spellings = (param.name, *param.aliases) if param else ()
            spelling = next((name for name in present if name in spellings), spelling)
        return edited, edited.actual_path((*section, spelling, *path[1:]))

    # --- packages: `vendor/`, requirements and `mlstack.lock` change together ---

    def install(
        self,
        lock: Lock,
        fetched: Sequence[FetchedPackage] = (),
        *,
        entered: Mapping[str, Sequence[PackageRef]] | None = None,
        removed: Mapping[str, Sequence[PackageRef]] | None = None,
        registry: RegistryRef | None = None,
        beside: Mapping[str, bytes | str] | None = None,
        delete: Sequence[str] = (),
    ) -> tuple[LockedPackage, ...]:
        """Vendor packages, lock what the app has and change its requirements, in one write; give what goes.

        The folders of packages that `lock` does not name go. Requirements that are `entered`, by environment
        or `*` for `app.yaml`, take the place of those for the same package, but for exact versions in
        `app.yaml`, which stand beside others. `registry` is one that `app.yaml` gets; files `beside`, and
        those to `delete`, are of the same write.
        """
        files: dict[str, bytes | str] = {
            f"{package.locked.folder}/{path}": data
            for package in fetched
            for path, data in package.files.items()
        }
        files |= beside or {}
        stale = [*self._stale([package.locked.folder for package in fetched], files), *self.unlocked(lock)]
        for edited in self._requirements(entered or {}, removed or {}):
            if registry and edited.file == layout.APP_FILE:
                edited.append(("registries",), to_map(registry, ("protocol",)))
            files[edited.file] = edited.text.encode()
        files[layout.LOCK_FILE] = write_lock(replace(lock, kustomizations=self.lock.kustomizations))
        for file in list(files):
            path = self.root / file
            if path.is_file() and path.read_bytes() == files[file]:
                del files[file]
        kept = {package.folder for package in lock.packages}
        gone = tuple(package for package in self.lock.packages if package.folder not in kept)
        if files or stale or delete:
            self.write(files, [*stale, *delete])
        return gone

    def unlocked(self, lock: Lock) -> Iterator[str]:
        """Give folders of packages that a lock does not name: a command that was killed may leave such."""
        locked = {package.folder for package in lock.packages}
        for folder in sorted((self.root / layout.VENDOR).glob("*/*@*")):
            name = folder.relative_to(self.root).as_posix()
            if folder.is_dir() and name not in locked and folder.parent.name != "kustomize":
                yield name

    def _requirements(
        self, entered: Mapping[str, Sequence[PackageRef]], removed: Mapping[str, Sequence[PackageRef]]
    ) -> Iterator[EditedFile]:
        """Give the files whose requirements change."""
        for scope in dict.fromkeys([*entered, *removed]):
            if scope == "*":
                edited, known = self.edited(layout.APP_FILE, "App"), list(self.app.packages)
            else:
                edited = self.edited(layout.environment_file(scope), "Environment")
                known = list(self.environment_chain(scope)[-1].environment.packages)
            if gone := removed.get(scope, ()):
                edited.remove(("packages",), *map(known.index, gone))
                known = [ref for ref in known if ref not in gone]
            if scope != "*" and not known and edited.at(("packages",)) == []:
                edited.unset(("packages",))
            for ref in entered.get(scope, ()):
                if ref in known:
                    continue
                same = [number for number, old in enumerate(known) if old.full_name == ref.full_name]
                if scope == "*":
                    same = [number for number in same if not ref.is_exact and not known[number].is_exact]
                if same:
                    edited.set(("packages", same[0]), ref.entry)
                    known[same[0]] = ref
                else:
                    edited.append(("packages",), ref.entry)
                    known.append(ref)
            yield edited
