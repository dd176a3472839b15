"""Which versions of packages an app gets: what registries offer, and one of each that suits all who ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from mlstack.app.app import PackageRef, RegistryRef
from mlstack.app.package import FetchedPackage, PackageFolder, digest, file_digests
from mlstack.app.versions import IndexVersion, LockedPackage, LockedRegistry
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError
from mlstack.names import best_first, check_mlstack, fits, is_range, not_found
from mlstack.registries.registry import Registry, is_local, open_registry, same_address

_Key = tuple[str, str]  # full name and version


class AppCatalog:
    """The packages that an app can have; its registries are asked only for what is not locked.

    Args:
        refs: the app's registries.
        locked: what it has.
        root: the app's folder.
        offline: offer only what is locked; no registry is asked.
    """

    def __init__(
        self,
        refs: Iterable[RegistryRef],
        locked: Iterable[LockedPackage],
        *,
        root: Path,
        offline: bool = False,
    ) -> None:
        self._refs = {ref.name: ref for ref in refs}
        self._locked = {(package.full_name, package.version): package for package in locked}
        self._root, self._offline = root, offline
        self._registries: dict[str, Registry] = {}
        self.notes: dict[str, None] = {}  # why registries are not as they are now
        self._moved: dict[_Key, Registry] = {}  # versions that only another revision has
        self._fetched: dict[_Key, FetchedPackage] = {}
        self._said: dict[_Key, Mapping[str, str]] = {}  # what fetched packages say they require

    # --- what the resolver asks ---

    def versions(self, package: str, wanted: str) -> Iterable[str]:
        """Give the versions of a package that fit, the best first; yanked ones only by their own name.

        Raises:
            NotFoundError: no such registry or package.
            RegistryError: the registry does not answer.
        """
        at_hand = [version for name, version in (*self._locked, *self._moved) if name == package]
        locked = best_first(at_hand, wanted)
        if self._offline or (wanted and not is_range(wanted) and wanted in at_hand):
            return locked
        try:
            index = self._index_versions(package)
        except RegistryError:
            if not locked:
                raise
            name = package.partition("/")[0]
            why = f"mlstack registry describe {name} says why"
            self.notes[f"registry `{name}` cannot be read, and what is locked is kept: {why}"] = None
            return locked
        entries = [entry for entry in index if not entry.yanked or entry.version == wanted]
        usable = [entry.version for entry in entries if _runs_here(entry) or entry.version == wanted]
        offered = best_first(usable or [entry.version for entry in entries], wanted)
        if locked and not offered:
            self.notes[f"`{package}` {wanted} is not offered any more, and what is locked is kept"] = None
        return offered or locked

    def requires(self, package: str, version: str) -> Mapping[str, str]:
        """Give what a version requires: full names, as the app names registries, with fitting versions."""
        key = (package, version)
        if key in self._said:
            return self._said[key]
        if key in self._locked:
            return self._locked[key].requires
        if key in self._moved:
            return self.says(self.fetch(package, version))
        entry = self.entry(package, version)
        return self._local(package, entry.requires) if entry else {}

    def _local(self, package: str, requires: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        own = package.partition("/")[0]
        named = {}
        for name, need in requires.items():
            registry, _, short = name.rpartition("/")
            if address := need.get("registry"):
                refs = self._refs.values()
                usual = registry or "NAME"
                registry = next((ref.name for ref in refs if same_address(ref.address, address)), "")
                if not registry:
                    lacks = f"requires `{short}` of the registry {address}, which the app lacks"
                    hint = f"mlstack registry add {usual} {address}"
                    raise NotFoundError(f"package `{package}` {lacks}", hint=hint)
            elif registry and registry not in self._refs:
                message = f"package `{package}` requires `{name}`, and app.yaml has no registry `{registry}`"
                raise NotFoundError(message, hint=f"mlstack registry add {registry} ADDRESS")
            named[f"{registry or own}/{short}"] = need.get("version", "")
        return named

    # --- registries ---

    def registry(self, name: str) -> Registry:
        """Give a registry of the app, opened once.

        Raises:
            NotFoundError: the app knows none of that name.
        """
        if name not in self._refs:
            hint = f"mlstack registry add {name} ADDRESS"
            raise not_found(f"no registry `{name}` in app.yaml", name, self._refs, hint=hint)
        if name not in self._registries:
            self._registries[name] = open_registry(self._refs[name], root=self._root)
        return self._registries[name]

    def _index_versions(self, package: str) -> tuple[IndexVersion, ...]:
        registry, _, name = package.partition("/")
        index = self.registry(registry).index
        if index.note:
            self.notes[f"registry `{registry}`: {index.note}"] = None
        return index.package(name).versions

    def entry(self, package: str, version: str) -> IndexVersion | None:
        """Give what the index says of a version; nothing when it does not list it."""
        if self._offline:
            return None
        if moved := self._moved.get((package, version)):
            return moved.index.version(package.partition("/")[2], version)
        return next((entry for entry in self._index_versions(package) if entry.version == version), None)

    def exact(self, ref: PackageRef) -> PackageRef:
        """Give the version that a requirement means which names a branch, tag, commit or digest.

        Raises:
            NotFoundError: no such registry, package, version or revision.
        """
        if not ref.is_exact or (ref.full_name, ref.version) in self._locked:
            return ref
        registry = self.registry(ref.registry)
        try:
            version = registry.index.version(ref.name, ref.version).version
        except NotFoundError as no_version:
            try:
                moved = registry.at(ref.version)
                version = moved.index.version(ref.name).version
            except (NotFoundError, RegistryError) as error:
                hint = no_version.hint or error.message
                raise NotFoundError(no_version.message, near=no_version.near, hint=hint) from error
            # It, and what it requires of its registry, is taken from there.
            index, names = moved.index, [ref.name]
            while names:
                entry = index.version(name := names.pop())
                if (key := (f"{ref.registry}/{name}", entry.version)) not in self._moved:
                    self._moved[key] = moved
                    names += [needed for needed in entry.requires if needed in index.packages]
        return PackageRef(registry=ref.registry, name=ref.name, version=version)

    def locked_registries(self, before: Iterable[LockedRegistry], used: set[str]) -> list[LockedRegistry]:
        """Give what to lock of the registries in use: what was asked now, else as it was."""
        old = {registry.name: registry for registry in before}
        locked = []
        for name in sorted(used):
            if name in self._registries and name in self._refs:
                ref = self._refs[name]
                # Retired names of a registry on this machine are asked of it: what it says is never stale.
                try:
                    retired = () if is_local(ref) else self._registries[name].index.retired
                except RegistryError:  # it does not answer, and what is locked is kept
                    retired = old[name].retired if name in old else ()
                locked.append(LockedRegistry(name=name, address=ref.address, retired=retired))
            elif name in old:
                locked.append(old[name])
        return locked

    # --- fetching ---

    def fetch(self, package: str, version: str) -> FetchedPackage:
        """Fetch a version: one that is locked as it is locked, at its commit.

        Raises:
            RegistryError: it cannot be fetched, or is not what the lock or the index says.
        """
        key = (package, version)
        if key not in self._fetched:
            locked = self._locked.get(key)
            self._fetched[key] = self._restored(locked) if locked else self._new(package, version)
        return self._fetched[key]

    def says(self, fetched: FetchedPackage) -> Mapping[str, str]:
        """Take note of what a fetched package itself says that it requires, and give it."""
        locked = fetched.locked
        head = PackageFolder(fetched.files, source=locked.full_name, registry=locked.registry).head
        what, where = f"package `{locked.ref}`", f"{locked.full_name}/package.yaml"
        check_mlstack(head.requires_mlstack, what=what, where=where)
        key = (locked.full_name, locked.version)
        if key not in self._locked:
            self._said[key] = self._local(locked.full_name, head.requires)
        return self.requires(*key)

    def _new(self, package: str, version: str) -> FetchedPackage:
        registry_name, _, name = package.partition("/")
        registry = self._moved.get((package, version)) or self.registry(registry_name)
        exact = registry.index.version(name, version).version
        files = registry.fetch(name, exact)
        entry = registry.index.version(name, exact)  # of a chart the revision is known once it is fetched
        locked = LockedPackage(
            full_name=package,
            version=entry.version,
            digest=digest(files),
            source=self._refs[registry_name].address,
            revision=entry.revision or registry.index.revision,
            signature=entry.signature,
            files=file_digests(files),
        )
        return FetchedPackage(locked=locked, files=files)

    def _restored(self, locked: LockedPackage) -> FetchedPackage:
        """Fetch what is locked: at its revision, whatever the registry offers now."""
        ref = self._refs.get(locked.registry)
        if ref is None or not same_address(ref.address, locked.source or ref.address):
            ref = RegistryRef(name=locked.registry, address=locked.source)
        registry = open_registry(ref, root=self._root)
        if locked.revision:
            registry = registry.at(locked.revision)
        try:
            files = registry.fetch(locked.name, locked.version)
        except NotFoundError as error:
            message = f"`{locked.ref}` is locked, and {ref.address} has it no more: {error.message}"
            hint = f"mlstack pkg update {locked.full_name}, or take vendor/ from another checkout"
            raise RegistryError(message, hint=hint) from error
        if (offered := digest(files)) != locked.digest:
            raise _changed(locked, offered)
        return FetchedPackage(locked=locked, files=files)

    def check_unchanged(self, package: str, version: str) -> None:
        """Refuse a version whose content the registry has changed since it was locked."""
        if offered := self._changed_to(package, version):
            raise _changed(self._locked[package, version], offered)

    def _changed_to(self, package: str, version: str) -> str:
        """Give the digest that a registry has now for a locked version; empty where it is the locked one."""
        locked = self._locked.get((package, version))
        with suppress(MlstackError):  # it was locked: that it cannot be asked is no fault
            entry = self.entry(package, version)
            # An index of charts has digests of archives, not of what they hold.
            if locked and entry and entry.digest != locked.digest:
                return entry.digest
        return ""

    def let_in_changed(self, packages: Collection[str]) -> None:
        """Offer these packages as their registries have them now, whatever is locked of the same version."""
        for key in [key for key in self._locked if key[0] in packages and self._changed_to(*key)]:
            del self._locked[key]

    def warnings(self, package: str, version: str) -> list[str]:
        """Tell what a registry says against a version, as far as it was asked."""
        entry = None
        if package.partition("/")[0] in self._registries:
            with suppress(MlstackError):
                entry = self.entry(package, version)
        if entry is None:
            return []
        changed = "other content under the same version" if self._changed_to(package, version) else ""
        cases = [("was withdrawn: ", entry.yanked), ("is deprecated: ", entry.deprecated), ("has ", changed)]
        return [f"`{package}@{version}` {what}{why}" for what, why in cases if why]


def _changed(locked: LockedPackage, offered: str) -> RegistryError:
    message = f"the registry's `{locked.ref}` is not the one that mlstack.lock holds"
    step = f"mlstack pkg install --force {locked.ref} lets this one in"
    hint = f"a changed package needs a new version; {step}"
    return RegistryError(f"{message}: {offered}, locked {locked.digest}", hint=hint)


def _runs_here(entry: IndexVersion) -> bool:
    try:
        check_mlstack(entry.requires_mlstack, what="", where="")
    except MlstackError:
        return False
    return True


# --- choosing: one version of each package in every scope ---

_MOST_ROUNDS = 100_000
_SHOWN_VERSIONS = 8
APP = "*"
"""The scope of all environments that have no requirements of their own."""


class Requirements(Record):
    """What files of an app ask for."""

    app: tuple[PackageRef, ...]
    environments: Mapping[str, tuple[PackageRef, ...]] = field(default_factory=dict)  # with some of their own

    def scope(self, environment: str) -> dict[str, PackageRef]:
        """Give by full name what a scope asks for; of several versions of a package the usual one.

        That is the requirement without an exact version, else the first: other exact ones stand beside it.
        """
        usual: dict[str, PackageRef] = {}
        for ref in sorted(reversed(self.app), key=lambda ref: not ref.is_exact):
            usual[ref.full_name] = ref
        return usual | {ref.full_name: ref for ref in self.environments.get(environment, ())}


class Choice(Record):
    """A version of a package that was chosen."""

    package: str
    version: str
    requires: Mapping[str, str]  # of a version beside the usual one with the very versions
    environments: tuple[str, ...] = ()  # as in `LockedPackage`


def select(
    requirements: Requirements, catalog: AppCatalog, *, preferred: Mapping[tuple[str, str], str]
) -> tuple[Choice, ...]:
    """Choose a version of every package that an app needs.

    Args:
        requirements: of the app and its environments.
        catalog: what there is.
        preferred: by scope and full name the version to stay at as long as it fits.

    Raises:
        ConfigError: requirements contradict each other; says which and where they come from.
        NotFoundError: a package or version is not there.
    """
    scopes: dict[str, Mapping[str, str]] = {}
    for scope in (APP, *sorted(requirements.environments)):
        file = "app.yaml" if scope == APP else f"environment `{scope}`"
        stay = {package: version for (name, package), version in preferred.items() if name == scope}
        wishes = {**scopes.get(APP, {}), **stay}
        scopes[scope] = _resolve(requirements.scope(scope), catalog, wishes, file=file)
    usual = scopes[APP]
    places: dict[_Key, list[str]] = {(package, usual[package]): [APP] for package in usual}
    for scope, versions in scopes.items():
        own = {ref.full_name for ref in requirements.environments.get(scope, ())}
        for package, version in versions.items():
            if scope != APP and (package in own or usual.get(package) != version):
                places.setdefault((package, version), []).append(scope)
    choices = {
        key: Choice(
            package=key[0], version=key[1], requires=catalog.requires(*key), environments=tuple(names)
        )
        for key, names in places.items()
    }
    for ref in requirements.app:
        if ref.is_exact and (ref.full_name, ref.version) not in choices:  # it stands beside others
            choices = {**_beside(ref, usual, catalog), **choices}
    return tuple(choices[key] for key in sorted(choices))


def _beside(ref: PackageRef, usual: Mapping[str, str], catalog: AppCatalog) -> dict[_Key, Choice]:
    """Give what a requirement of an exact version brings, the usual versions where they suit it."""
    wishes = {package: usual[package] for package in usual if package != ref.full_name}
    versions = _resolve({ref.full_name: ref}, catalog, wishes, file="app.yaml")
    choices = {}
    for package, version in versions.items():
        exact = {needed: versions[needed] for needed in catalog.requires(package, version)}
        choices[package, version] = Choice(package=package, version=version, requires=exact)
    return choices


# --- one scope ---


class _Candidate(NamedTuple):
    package: str
    version: str


class _Wish(NamedTuple):
    package: str
    versions: str
    by: _Candidate | None = None  # None for a file of the app


def _resolve(
    roots: Mapping[str, PackageRef], catalog: AppCatalog, preferred: Mapping[str, str], *, file: str
) -> dict[str, str]:
    """Give one version by full name for what is asked for and all it requires; see `select`."""
    if (chosen := _as_preferred(roots, catalog, preferred)) is not None:
        return chosen
    from resolvelib import BaseReporter, ResolutionImpossible, Resolver

    provider = _Provider(catalog, preferred)
    resolver: Any = Resolver(provider, BaseReporter())  # type: ignore[arg-type] # it has all that is asked
    wishes = [_Wish(ref.full_name, ref.version) for ref in roots.values()]
    try:
        result = resolver.resolve(wishes, max_rounds=_MOST_ROUNDS)
    except ResolutionImpossible as error:
        causes = provider.contradiction or [cause.requirement for cause in error.causes]
        raise _contradiction(causes, catalog, provider.reasons, file) from error
    return {package: candidate.version for package, candidate in sorted(result.mapping.items())}


def _as_preferred(
    roots: Mapping[str, PackageRef], catalog: AppCatalog, preferred: Mapping[str, str]
) -> dict[str, str] | None:
    """Give what is preferred where it suits all that ask for it; None where there is something to choose."""
    chosen: dict[str, str] = {}
    wishes = [(ref.full_name, ref.version) for ref in roots.values()]
    while wishes:
        package, versions = wishes.pop()
        version = preferred.get(package)
        if version is None or not fits(version, versions):
            return None
        if package not in chosen:
            chosen[package] = version
            wishes += catalog.requires(package, version).items()
    return dict(sorted(chosen.items()))


class _Provider:
    """Answers what resolvelib asks about packages, and remembers who asked for each candidate first."""

    def __init__(self, catalog: AppCatalog, preferred: Mapping[str, str]) -> None:
        self._catalog, self._preferred = catalog, preferred
        self.reasons: dict[_Candidate, _Wish] = {}
        self.contradiction: Sequence[_Wish] = ()  # the last that no version at all suits

    def identify(self, requirement_or_candidate: _Wish | _Candidate) -> str:
        return requirement_or_candidate.package

    def narrow_requirement_selection(
        self, identifiers: Any, resolutions: Any, candidates: Any, information: Any, backtrack_causes: Any
    ) -> list[str]:
        names = list(identifiers)
        failing = {cause.requirement.package for cause in backtrack_causes}
        return [name for name in names if name in failing][:1] or names[:1]

    def get_preference(self, *_: Any, **__: Any) -> int:
        return 0

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[_Wish]],
        incompatibilities: Mapping[str, Iterator[_Candidate]],
    ) -> Callable[[], Iterator[_Candidate]]:
        wishes = list(requirements[identifier])
        refused = {candidate.version for candidate in incompatibilities[identifier]}

        def candidates() -> Iterator[_Candidate]:
            is_suited = False
            for version in self._versions(wishes[0]):
                if all(fits(version, wish.versions) for wish in wishes):
                    is_suited, candidate = True, _Candidate(identifier, version)
                    if version not in refused:
                        self.reasons.setdefault(candidate, wishes[0])
                        yield candidate
            self.contradiction = self.contradiction if is_suited else wishes

        return candidates

    def _versions(self, wish: _Wish) -> Iterator[str]:
        """Give what is at hand first; registries are asked only when that does not do."""
        if stay := self._preferred.get(wish.package):
            yield stay
        try:
            offered = self._catalog.versions(wish.package, wish.versions)
        except NotFoundError as error:
            by = f"`{wish.by.package}@{wish.by.version}` requires `{wish.package}`: " if wish.by else ""
            raise NotFoundError(by + error.message, near=error.near, hint=error.hint) from error
        yield from (version for version in offered if version != stay)

    def is_satisfied_by(self, requirement: _Wish, candidate: _Candidate) -> bool:
        return fits(candidate.version, requirement.versions)

    def get_dependencies(self, candidate: _Candidate) -> Iterable[_Wish]:
        needed = self._catalog.requires(*candidate)
        return [_Wish(package, versions, candidate) for package, versions in needed.items()]


def _contradiction(
    asked: Sequence[_Wish], catalog: AppCatalog, reasons: Mapping[_Candidate, _Wish], file: str
) -> ConfigError | NotFoundError:
    """Say who asks for what, with the way from a file of the app to each of them."""

    def asker(wish: _Wish) -> str:
        way: list[str] = []
        by = wish.by
        while by is not None and len(way) < _SHOWN_VERSIONS:
            way.append(f"`{by.package}@{by.version}`")
            reason = reasons.get(by)
            by = reason.by if reason else None
        return f"{way[0]} (required by {', '.join([*way[1:], file])})" if way else file

    package = asked[-1].package
    wishes = list(dict.fromkeys(wish for wish in asked if wish.package == package))
    offered = list(catalog.versions(package, ""))
    shown = ", ".join([*offered[:_SHOWN_VERSIONS], *(["…"] if len(offered) > _SHOWN_VERSIONS else [])])
    if len(wishes) == 1:
        by = f", which {asker(wishes[0])} wants" if wishes[0].by else ""
        message = f"`{package}` has no version `{wishes[0].versions}`{by}"
        return NotFoundError(message, hint=f"known versions: {shown or 'none'}")
    lines = [f"{asker(wish)} wants {wish.versions or 'any version'}" for wish in wishes]
    message = "\n  ".join([f"no version of `{package}` suits all that ask for it:", *lines])
    hint = "change one of these requirements; `mlstack pkg outdated` shows what there is"
    return ConfigError(f"{message}\n  its versions are {shown or 'none'}", hint=hint)
