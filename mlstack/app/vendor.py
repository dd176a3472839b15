"""The installed packages of an app: read from `vendor/`, held to the digests of `mlstack.lock`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from mlstack import __version__
from mlstack.app.app import LockedPackage, PackageRef, newest
from mlstack.app.package import PackageFolder
from mlstack.app.params import spelling_table
from mlstack.app.prototype import Package, Prototype
from mlstack.app.schema import PassedStore
from mlstack.disk_cache import from_json
from mlstack.errors import ConfigError, NotFoundError, RegistryError
from mlstack.names import nearest, version_key

_KSONNET_PREFIX = "io.ksonnet.pkg."


class Vendor:
    """Installed packages and their prototypes."""

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

    def folder(self, locked: LockedPackage) -> PackageFolder:
        """Give a package's folder, its digest checked.

        Raises:
            RegistryError: it is missing or its content is not what was locked.
        """
        if locked.folder not in self._folders:
            self._folders[locked.folder] = self._read(locked)
        return self._folders[locked.folder]

    def _read(self, locked: LockedPackage) -> PackageFolder:
        place, restore = self._root / locked.folder, f"mlstack pkg install --force {locked.ref}"
        if not place.is_dir():
            raise RegistryError(
                f"package `{locked.ref}` is missing from vendor/", where=locked.folder, hint=restore
            )
        try:
            found = PackageFolder.read(
                place, source=locked.folder, registry=locked.registry, passed=self._passed
            )
        except ConfigError as error:
            message = f"package `{locked.ref}` is refused: {error}"
            raise RegistryError(message, where=error.where, hint=restore) from error
        if found.digest != locked.digest:
            raise RegistryError(
                f"the content of package `{locked.ref}` is not what mlstack.lock says"
                f" ({_short(found.digest)}, locked {_short(locked.digest)})",
                where=locked.folder,
                hint=f"{restore} restores it; to change a prototype, put it in a registry of your own",
            )
        return found

    def packages(self) -> tuple[Package, ...]:
        """Give all installed packages with their prototypes, by name and version."""
        return tuple(self._package(locked) for locked in self._locked)

    def _package(self, locked: LockedPackage) -> Package:
        folder = self.folder(locked)
        return folder.package(self._libraries(folder, locked))

    def spellings(self) -> frozenset[str]:
        """Give every spelling of every parameter that an installed prototype declares.

        Once they are known, no package is read for them: the locked digests stand for what it says.
        """
        key = " ".join(["spellings", __version__, *(each.digest for each in self._locked)])
        stored = self._passed.get(key) if self._passed is not None else None
        known = from_json(stored, list)
        if known is not None:
            return frozenset(map(str, known))
        prototypes = (each for package in self.packages() for each in package.prototypes.values())
        found = frozenset(name for each in prototypes for name in spelling_table(each.params))
        if self._passed is not None:
            self._passed.put(key, json.dumps(sorted(found)).encode())
        return found

    def crds(self) -> dict[str, str]:
        """Give the texts of all custom resource definitions of installed packages, by file."""
        return {file: text for locked in self._locked for file, text in self.folder(locked).crds().items()}

    def _libraries(self, folder: PackageFolder, locked: LockedPackage) -> dict[str, PackageFolder]:
        """Give the packages that one requires, directly or through others, by name."""
        found: dict[str, PackageFolder] = {}
        waiting = list(folder.head.requires)
        while waiting:
            name = waiting.pop(0)
            if name in found or name == locked.name:
                continue
            needed = self._newest.get(f"{locked.registry}/{name}")
            if needed is None:
                raise RegistryError(
                    f"package `{locked.ref}` requires `{name}`, which is not installed",
                    where=f"{locked.folder}/package.yaml",
                    hint=f"mlstack pkg install --force {locked.ref}",
                )
            found[name] = self.folder(needed)
            waiting += found[name].head.requires
        return found

    @cached_property
    def _newest(self) -> dict[str, LockedPackage]:
        """Give by full name what names without a version mean: the newest that was asked for without one.

        What stands beside it because it was asked for by its version changes no other component.
        """
        exact = {(each.full_name, each.version) for each in self._required}
        usual = [each for each in self._locked if (each.full_name, each.version) not in exact]
        open_names = {each.full_name for each in self._required if not each.version}
        return newest(self._locked) | {
            name: locked for name, locked in newest(usual).items() if name in open_names
        }

    def prototype(self, name: str, *, where: str | None = None) -> Prototype:
        """Find a prototype.

        Full names are `registry/package/prototype`, with `package@version` for another version than the
        newest installed. A short one is an exact name, else an alias, else an end that only one name has
        (`core` for `kubeflow-core`); ksonnet's `io.ksonnet.pkg.NAME` is NAME.

        Args:
            name: as written.
            where: the place it is written at.

        Raises:
            NotFoundError: none, or several, with their full names.
        """
        parts = name.removeprefix(_KSONNET_PREFIX).split("/")
        if len(parts) == 1:
            locked, found = self._by_short_name(parts[0], where)
        else:
            locked, found = self._by_full_name(name, parts, where)
        key = (locked.folder, found)
        if key not in self._prototypes:
            folder = self.folder(locked)
            self._prototypes[key] = folder.prototype(found, self._libraries(folder, locked))
        return self._prototypes[key]

    def _by_full_name(self, name: str, parts: Sequence[str], where: str | None) -> tuple[LockedPackage, str]:
        *owner, prototype = parts
        package, _, version = owner[-1].partition("@")
        registry = owner[0] if len(owner) == 2 else None
        candidates = [
            each
            for each in (self._locked if version else self._newest.values())
            if each.name == package and registry in (None, each.registry) and version in ("", each.version)
        ]
        if len(owner) > 2 or not candidates:
            raise self._not_installed(name, "/".join(owner), where)
        for locked in reversed(candidates):
            found = self._own_name(locked, prototype)
            if found:
                return locked, found
        names = [each for locked in candidates for each in self.folder(locked).prototype_names]
        owner_name = "/".join(owner)
        raise NotFoundError(
            f"package `{owner_name}` has no prototype `{prototype}`",
            near=nearest(prototype, names),
            where=where,
        )

    def _not_installed(self, name: str, package: str, where: str | None) -> NotFoundError:
        known = {each.name: each.full_name for each in self._newest.values()}
        near = known.get(nearest(package.rpartition("/")[2], known) or "")
        hint = f"did you mean a prototype of `{near}`?" if near else f"mlstack pkg install {package}"
        return NotFoundError(
            f"no prototype `{name}`: package `{package}` is not installed", near=near, where=where, hint=hint
        )

    def _own_name(self, locked: LockedPackage, prototype: str) -> str | None:
        """Give a package's own name for a prototype called by name or alias."""
        folder = self.folder(locked)
        if prototype in folder.prototype_names:
            return prototype
        return next((each for each in folder.prototype_names if prototype in folder.aliases(each)), None)

    def _by_short_name(self, name: str, where: str | None) -> tuple[LockedPackage, str]:
        for matches in (self._exact(name), self._aliased(name), self._ending(name)):
            found = list(dict.fromkeys(matches))
            if len(found) == 1:
                return found[0]
            if found:
                listed = ", ".join(f"`{locked.full_name}/{prototype}`" for locked, prototype in found)
                raise NotFoundError(
                    f"`{name}` could be any of the prototypes {listed}",
                    where=where,
                    hint="write the full name",
                )
        near = nearest(name, (prototype for _, prototype in self._names()))
        hint = (
            None if near else "mlstack prototype list shows the installed ones, mlstack pkg list the packages"
        )
        raise NotFoundError(
            f"no installed package has a prototype `{name}`", near=near, where=where, hint=hint
        )

    def _names(self) -> Iterator[tuple[LockedPackage, str]]:
        for locked in self._newest.values():
            for prototype in self.folder(locked).prototype_names:
                yield locked, prototype

    def _exact(self, name: str) -> Iterable[tuple[LockedPackage, str]]:
        return ((locked, found) for locked, found in self._names() if found == name)

    def _aliased(self, name: str) -> Iterable[tuple[LockedPackage, str]]:
        return (
            (locked, found) for locked, found in self._names() if name in self.folder(locked).aliases(found)
        )

    def _ending(self, name: str) -> Iterable[tuple[LockedPackage, str]]:
        for locked, found in self._names():
            # An alias that sets parameters goes by its whole name: an end must not lose them.
            aliases = self.folder(locked).aliases(found).items()
            spellings = (found, *(alias for alias, params in aliases if not params))
            if any(_ends_with(spelling, name) for spelling in spellings):
                yield locked, found


def _ends_with(spelling: str, end: str) -> bool:
    """Tell whether a name ends with whole words of another."""
    return bool(end) and spelling.endswith(tuple(f"{separator}{end}" for separator in "-._"))


def _short(digest: str) -> str:
    return digest[:19]
