"""The installed packages of an app: read from `vendor/`, held to the digests of `mlstack.lock`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from mlstack import __version__
from mlstack.app.app import LockedPackage, PackageRef, newest
from mlstack.app.index import KSONNET_PREFIX
from mlstack.app.package import PackageFolder
from mlstack.app.params import spelling_table
from mlstack.app.prototype import Package, Param, Prototype
from mlstack.app.schema import PassedStore
from mlstack.disk_cache import from_json
from mlstack.errors import ConfigError, NotFoundError, RegistryError
from mlstack.names import nearest, version_key

_Named = tuple[LockedPackage, str]  # a package, and its own name of a prototype


class Vendor:
    """Installed packages and their prototypes: those of the lock, for what the app requires."""

    def __init__(
        self,
        root: Path,
        packages: Sequence[LockedPackage],
        required: Sequence[PackageRef],
        passed: PassedStore | None,
    ) -> None:
        self._required = required
        self._root = root
        self._locked = sorted(packages, key=lambda p: (p.full_name, version_key(p.version)))
        self._passed = passed
        self._folders: dict[str, PackageFolder] = {}
        self._prototypes: dict[tuple[str, str], Prototype] = {}
        self._named: dict[str, Prototype] = {}  # as components spell them

    def folder(self, locked: LockedPackage) -> PackageFolder:
        """Give a package's folder, its digest checked."""
        if locked.folder not in self._folders:
            self._folders[locked.folder] = self._read(locked)
        return self._folders[locked.folder]

    def _read(self, locked: LockedPackage) -> PackageFolder:
        path, restore = self._root / locked.folder, f"mlstack pkg install --force {locked.ref}"
        if not path.is_dir():
            message = f"package `{locked.ref}` is missing from vendor/"
            raise RegistryError(message, where=locked.folder, hint=restore)
        try:
            folder = PackageFolder.read(
                path, source=locked.folder, registry=locked.registry, passed=self._passed
            )
        except ConfigError as error:
            message = f"package `{locked.ref}` is refused: {error}"
            raise RegistryError(message, where=error.where, hint=restore) from error
        if folder.digest != locked.digest:
            raise RegistryError(
                f"the content of package `{locked.ref}` is not what mlstack.lock says"
                f" ({folder.digest[:19]}, locked {locked.digest[:19]})",
                where=locked.folder,
                hint=f"{restore} restores it; to change a prototype, put it in a registry of your own",
            )
        return folder

    def packages(self) -> tuple[Package, ...]:
        """Give all installed packages with their prototypes, by name and version."""
        folders = ((locked, self.folder(locked)) for locked in self._locked)
        return tuple(folder.package(self._libraries(folder, locked)) for locked, folder in folders)

    def prototypes(self) -> tuple[Prototype, ...]:
        """Give all prototypes of installed packages, by full name."""
        every = (prototype for package in self.packages() for prototype in package.prototypes.values())
        return tuple(sorted(every, key=lambda prototype: (prototype.full_name, prototype.version)))

    def declared_params(self) -> dict[str, Param]:
        """Give every spelling that an installed prototype declares, with the first declaration of it."""
        declared: dict[str, Param] = {}
        for prototype in self.prototypes():
            if prototype.chart is not None:
                continue  # its values are names of its own
            for spelling, name in spelling_table(prototype.params).items():
                declared.setdefault(spelling, prototype.params[name])
        return declared

    def spellings(self) -> frozenset[str]:
        """Give every spelling of every parameter that an installed prototype declares.

        Once they are known, no package is read for them: the locked digests stand for what it says.
        """
        key = " ".join(["spellings", __version__, *(locked.digest for locked in self._locked)])
        stored = from_json(self._passed.get(key) if self._passed is not None else None, list)
        if stored is not None:
            return frozenset(map(str, stored))
        spellings = frozenset(self.declared_params())
        if self._passed is not None:
            self._passed.put(key, json.dumps(sorted(spellings)).encode())
        return spellings

    def crds(self) -> dict[str, str]:
        """Give the texts of all custom resource definitions of installed packages, by file."""
        return {file: text for locked in self._locked for file, text in self.folder(locked).crds().items()}

    def _libraries(self, folder: PackageFolder, locked: LockedPackage) -> dict[str, PackageFolder]:
        """Give the packages that one requires, directly or through others, by name."""
        libraries: dict[str, PackageFolder] = {}
        rest = list(folder.head.requires)
        while rest:
            name = rest.pop(0)
            if name in libraries or name == locked.name:
                continue
            needed = self._newest.get(f"{locked.registry}/{name}")
            if needed is None:
                raise RegistryError(
                    f"package `{locked.ref}` requires `{name}`, which is not installed",
                    where=f"{locked.folder}/package.yaml",
                    hint=f"mlstack pkg install --force {locked.ref}",
                )
            libraries[name] = self.folder(needed)
            rest += libraries[name].head.requires
        return libraries

    @cached_property
    def _newest(self) -> dict[str, LockedPackage]:
        """Give by full name what names without a version mean: the newest that was asked for without one.

        What stands beside it because it was asked for by its version changes no other component.
        """
        exact = {(ref.full_name, ref.version) for ref in self._required}
        usual = [locked for locked in self._locked if (locked.full_name, locked.version) not in exact]
        open_names = {ref.full_name for ref in self._required if not ref.version}
        return newest(self._locked) | {
            name: locked for name, locked in newest(usual).items() if name in open_names
        }

    def prototype(self, name: str, *, where: str | None = None) -> Prototype:
        """Find a prototype.

        Full names are `registry/package/prototype`, with `package@version` for another version than the
        newest installed. A short one is an exact name, else an alias, else an end that only one name has
        (`core` for `kubeflow-core`); ksonnet's `io.ksonnet.pkg.NAME` is NAME.

        Raises:
            NotFoundError: none, or several, with their full names; at `where` the name is written.
        """
        if name in self._named:
            return self._named[name]
        parts = name.removeprefix(KSONNET_PREFIX).split("/")
        key = self._by_short_name(parts[0], where) if len(parts) == 1 else self._by_full_name(name, where)
        locked, own_name = key
        if (locked.folder, own_name) not in self._prototypes:
            folder = self.folder(locked)
            prototype = folder.prototype(own_name, self._libraries(folder, locked))
            self._prototypes[locked.folder, own_name] = prototype
        self._named[name] = self._prototypes[locked.folder, own_name]
        return self._named[name]

    def _by_full_name(self, name: str, where: str | None) -> _Named:
        owner, _, prototype = name.removeprefix(KSONNET_PREFIX).rpartition("/")
        registry, _, versioned = owner.rpartition("/")
        package, _, version = versioned.partition("@")
        candidates = [
            locked
            for locked in (self._locked if version else self._newest.values())
            if locked.name == package
            and registry in ("", locked.registry)
            and version in ("", locked.version)
        ]
        if not candidates:
            known = {locked.name: locked.full_name for locked in self._newest.values()}
            near = known.get(nearest(versioned, known) or "")
            hint = f"did you mean a prototype of `{near}`?" if near else f"mlstack pkg install {owner}"
            message = f"no prototype `{name}`: package `{owner}` is not installed"
            raise NotFoundError(message, near=near, where=where, hint=hint)
        for locked in reversed(candidates):
            folder = self.folder(locked)
            if prototype in folder.prototype_names:
                return locked, prototype
            for own_name in folder.prototype_names:
                if prototype in folder.aliases(own_name):
                    return locked, own_name
        names = [own_name for locked in candidates for own_name in self.folder(locked).prototype_names]
        message = f"package `{owner}` has no prototype `{prototype}`"
        raise NotFoundError(message, near=nearest(prototype, names), where=where)

    def _by_short_name(self, name: str, where: str | None) -> _Named:
        for matches in self._matches(name):
            if len(matches) == 1:
                return matches[0]
            if matches:
                listed = ", ".join(f"`{locked.full_name}/{own_name}`" for locked, own_name in matches)
                message = f"`{name}` could be any of the prototypes {listed}"
                raise NotFoundError(message, where=where, hint="write the full name")
        names = [own for locked in self._newest.values() for own in self.folder(locked).prototype_names]
        near = nearest(name, names)
        usual = "mlstack prototype list shows the installed ones, mlstack pkg list the packages"
        message = f"no installed package has a prototype `{name}`"
        raise NotFoundError(message, near=near, where=where, hint=None if near else usual)

    def _matches(self, name: str) -> Iterator[list[_Named]]:
        """Give the prototypes of that very name, those with such an alias, and those it is an end of."""
        packages = [(locked, self.folder(locked)) for locked in self._newest.values()]
        yield [(locked, name) for locked, folder in packages if name in folder.prototype_names]
        aliases = {
            (locked, own): folder.aliases(own)
            for locked, folder in packages
            for own in folder.prototype_names
        }
        yield [key for key, others in aliases.items() if name in others]
        # Whole words; an alias that sets parameters goes by its whole name: an end must not lose them.
        endings = tuple(f"{separator}{name}" for separator in "-._") if name else ()
        yield [
            (locked, own)
            for (locked, own), others in aliases.items()
            if any(
                spelling.endswith(endings)
                for spelling in (own, *(alias for alias in others if not others[alias].params))
            )
        ]
