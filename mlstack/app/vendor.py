"""The installed packages of an app: read from `vendor/`, held to the digests of `mlstack.lock`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mlstack import __version__
from mlstack.app.index import KSONNET_PREFIX
from mlstack.app.lock import LockedPackage, newest
from mlstack.app.package import FetchedPackage, PackageFolder, changed_files
from mlstack.app.params import spelling_table
from mlstack.app.prototype import Package, Param, Prototype
from mlstack.app.schema import PassedStore
from mlstack.app.versions import check_mlstack
from mlstack.disk_cache import from_json
from mlstack.errors import ConfigError, NotFoundError, RegistryError
from mlstack.events import listed
from mlstack.names import nearest, version_key

_NAMED_FILES = 3
_Named = tuple[LockedPackage, str]  # a package, and its own name of a prototype


class Vendor:
    """Installed packages and their prototypes: those of the lock, for what the app requires."""

    def __init__(
        self,
        root: Path,
        packages: Sequence[LockedPackage],
        passed: PassedStore | None,
        *,
        fetched: Sequence[FetchedPackage] = (),
    ) -> None:
        self._root = root
        self._locked = sorted(packages, key=lambda p: (p.full_name, version_key(p.version)))
        self._by_version = {(locked.full_name, locked.version): locked for locked in self._locked}
        self._passed = passed
        self._folders: dict[str, PackageFolder] = {  # of packages that are not written yet, at first
            package.locked.folder: PackageFolder(
                package.files,
                source=package.locked.full_name,
                registry=package.locked.registry,
                passed=passed,
            )
            for package in fetched
        }
        self._prototypes: dict[tuple[str, str], Prototype] = {}
        self._named: dict[tuple[str, str | None], Prototype] = {}  # as components spell them
        self._plain: dict[str | None, dict[str, LockedPackage]] = {}

    def folder(self, locked: LockedPackage) -> PackageFolder:
        """Give a package's folder, its digest checked."""
        if locked.folder not in self._folders:
            self._folders[locked.folder] = self._read(locked)
        return self._folders[locked.folder]

    def _read(self, locked: LockedPackage) -> PackageFolder:
        path, restore = self._root / locked.folder, "mlstack pkg install --force"
        if not path.is_dir():
            message = f"package `{locked.ref}` is missing from vendor/"
            raise RegistryError(message, where=locked.folder, hint="mlstack pkg install")
        try:
            folder = PackageFolder.read(
                path, source=locked.folder, registry=locked.registry, passed=self._passed
            )
        except ConfigError as error:
            message = f"package `{locked.ref}` is refused: {error}"
            raise RegistryError(message, where=error.where, hint=restore) from error
        if folder.digest != locked.digest:
            changed = changed_files(folder.files, locked.files) if locked.files else ()
            raise RegistryError(
                f"the content of package `{locked.ref}` is not what mlstack.lock says: "
                + (listed(changed, _NAMED_FILES) or f"{folder.digest[:19]}, locked {locked.digest[:19]}"),
                where=locked.folder,
                hint=f"{restore} restores it; to change a prototype, put it in a registry of your own",
            )
        return folder

    def packages(self) -> tuple[Package, ...]:
        """Give all installed packages with their prototypes, by name and version."""
        return tuple(map(self.package, self._locked))

    def package(self, locked: LockedPackage) -> Package:
        """Give an installed package with its prototypes."""
        folder = self.folder(locked)
        return folder.package(self._libraries(folder, locked))

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

    def _libraries(
        self, folder: PackageFolder, locked: LockedPackage, environment: str | None = None
    ) -> dict[str, PackageFolder]:
        """Give the packages that one requires, directly or through others, by name."""
        libraries: dict[str, PackageFolder] = {}
        rest = [(locked, name) for name in folder.head.requires]
        while rest:
            owner, name = rest.pop(0)
            short = name.rpartition("/")[2]
            if short in libraries or short == locked.name:
                continue
            needed = self._needed(owner, short, environment)
            if needed is None:
                raise RegistryError(
                    f"package `{owner.ref}` requires `{name}`, which is not installed",
                    where=f"{owner.folder}/package.yaml",
                    hint="mlstack pkg install",
                )
            libraries[short] = self.folder(needed)
            rest += [(needed, inner) for inner in libraries[short].head.requires]
        return libraries

    def _needed(self, owner: LockedPackage, short: str, environment: str | None) -> LockedPackage | None:
        """Give the package that another requires: the version locked with it, else the usual one."""
        full_name = next(
            (name for name in owner.requires if name.endswith(f"/{short}")), f"{owner.registry}/{short}"
        )
        exact = owner.requires.get(full_name)
        return self._by_version.get((full_name, exact or "")) or self.plain(environment).get(full_name)

    def plain(self, environment: str | None = None) -> dict[str, LockedPackage]:
        """Give by full name what names without a version mean in an environment; for None in the app.

        What stands beside it because it was asked for by its version changes no component.
        """
        if environment not in self._plain:
            usual = {locked.full_name: locked for locked in self._locked if "*" in locked.environments}
            own = {locked.full_name: locked for locked in self._locked if environment in locked.environments}
            self._plain[environment] = {**newest(self._locked), **usual, **own}
        return self._plain[environment]

    def prototype(self, name: str, *, where: str | None = None, environment: str | None = None) -> Prototype:
        """Find a prototype, as an environment has it.

        Full names are `registry/package/prototype`, with `package@version` for another version than the
        usual one. A short one is an exact name, else an alias, else an end that only one name has
        (`core` for `kubeflow-core`); ksonnet's `io.ksonnet.pkg.NAME` is NAME.

        Raises:
            NotFoundError: none, or several, with their full names; at `where` the name is written.
        """
        if (name, environment) in self._named:
            return self._named[name, environment]
        parts = name.removeprefix(KSONNET_PREFIX).split("/")
        plain = self.plain(environment)
        find = self._by_short_name if len(parts) == 1 else self._by_full_name
        locked, own_name = find(name.removeprefix(KSONNET_PREFIX), plain, where)
        folder = self.folder(locked)
        what, needs = f"package `{locked.ref}`", folder.head.requires_mlstack
        check_mlstack(needs, what=what, where=f"{locked.folder}/package.yaml")
        libraries = self._libraries(folder, locked, environment)
        key = (locked.folder, " ".join([own_name, *(library.source for library in libraries.values())]))
        if key not in self._prototypes:
            self._prototypes[key] = folder.prototype(own_name, libraries)
        self._named[name, environment] = self._prototypes[key]
        return self._prototypes[key]

    def _by_full_name(self, name: str, plain: Mapping[str, LockedPackage], where: str | None) -> _Named:
        owner, _, prototype = name.rpartition("/")
        registry, _, versioned = owner.rpartition("/")
        package, _, version = versioned.partition("@")
        candidates = [
            locked
            for locked in (self._locked if version else plain.values())
            if locked.name == package
            and registry in ("", locked.registry)
            and version in ("", locked.version)
        ]
        if not candidates:
            known = {locked.name: locked.full_name for locked in plain.values()}
            near = None if version else known.get(nearest(versioned, known) or "")
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

    def _by_short_name(self, name: str, plain: Mapping[str, LockedPackage], where: str | None) -> _Named:
        for matches in self._matches(name, plain):
            if len(matches) == 1:
                return matches[0]
            if matches:
                listed = ", ".join(f"`{locked.full_name}/{own_name}`" for locked, own_name in matches)
                message = f"`{name}` could be any of the prototypes {listed}"
                raise NotFoundError(message, where=where, hint="write the full name")
        names = [own for locked in plain.values() for own in self.folder(locked).prototype_names]
        near = nearest(name, names)
        usual = "mlstack prototype list shows the installed ones, mlstack pkg list the packages"
        message = f"no installed package has a prototype `{name}`"
        raise NotFoundError(message, near=near, where=where, hint=None if near else usual)

    def _matches(self, name: str, plain: Mapping[str, LockedPackage]) -> Iterator[list[_Named]]:
        """Give the prototypes of that very name, those with such an alias, and those it is an end of."""
        packages = [(locked, self.folder(locked)) for locked in plain.values()]
        yield [(locked, name) for locked, folder in packages if name in folder.prototype_names]
        aliases = {
            (locked, own): folder.aliases(own)
            for locked, folder in packages
            for own in folder.prototype_names
        }
        yield [key for key, others in aliases.items() if name in others]
        # Whole words; an alias with parameters of its own goes by its whole name: an end must not lose them.
        endings = tuple(f"{separator}{name}" for separator in "-._") if name else ()
        yield [
            (locked, own)
            for (locked, own), others in aliases.items()
            if any(
                spelling.endswith(endings)
                for spelling in (own, *(name for name, it in others.items() if not (it.params or it.renames)))
            )
        ]
