"""Put packages into an app and take them out: `vendor/`, `app.yaml` and `mlstack.lock` change together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlstack.errors import MlstackError, NotFoundError, RegistryError
from mlstack.files import layout
from mlstack.files.editing import Editing
from mlstack.files.lockfile import write_lock
from mlstack.files.packages import FetchedPackage, PackageFolder
from mlstack.model.app import Lock, LockedPackage, LockedRegistry, PackageRef


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
