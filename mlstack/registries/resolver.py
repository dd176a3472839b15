"""Which versions of packages an app gets: one of each in every scope, as requirements and packages ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from mlstack.app.app import PackageRef
from mlstack.app.versions import fits
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from resolvelib.structs import RequirementInformation

_MOST_ROUNDS = 100_000
_SHOWN_VERSIONS = 8
APP = "*"
"""The scope of all environments that have no requirements of their own."""


class Offers(Protocol):
    """What packages there are."""

    def versions(self, package: str, wanted: str) -> Iterable[str]:
        """Give the versions of a package that fit, the best first; a NotFoundError for an unknown one."""

    def requires(self, package: str, version: str) -> Mapping[str, str]:
        """Give what a version requires: full names with the versions that fit."""


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What files of an app ask for."""

    app: tuple[PackageRef, ...]
    environments: Mapping[str, tuple[PackageRef, ...]] = field(default_factory=dict)  # with some of their own

    def scope(self, environment: str) -> dict[str, PackageRef]:
        """Give by full name what a scope asks for; of several versions of a package the usual one.

        That is the requirement without an exact version: exact ones stand beside it.
        """
        usual: dict[str, PackageRef] = {}
        for ref in sorted(self.app, key=lambda ref: not ref.is_exact):
            usual[ref.full_name] = ref
        return usual | {ref.full_name: ref for ref in self.environments.get(environment, ())}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A version of a package that was chosen."""

    package: str
    version: str
    requires: Mapping[str, str]  # of a version beside the usual one with the very versions
    environments: tuple[str, ...] = ()  # as in `LockedPackage`


def select(
    requirements: Requirements, catalog: Offers, *, preferred: Mapping[tuple[str, str], str]
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
        own = {package: version for (name, package), version in preferred.items() if name == scope}
        wishes = {**scopes.get(APP, {}), **own}
        scopes[scope] = resolve(requirements.scope(scope), catalog, wishes, file=file)
    usual = scopes[APP]
    places: dict[tuple[str, str], list[str]] = {(package, usual[package]): [APP] for package in usual}
    for scope, versions in scopes.items():
        asked = {ref.full_name for ref in requirements.environments.get(scope, ())}
        for package, version in versions.items():
            if scope != APP and (package in asked or usual.get(package) != version):
                places.setdefault((package, version), []).append(scope)
    choices = {
        key: Choice(
            package=key[0], version=key[1], requires=catalog.requires(*key), environments=tuple(names)
        )
        for key, names in places.items()
    }
    for ref in requirements.app:
        if ref.is_exact:
            _add_beside(ref, catalog, usual, choices)
    return tuple(choices[key] for key in sorted(choices))


def _add_beside(
    ref: PackageRef, catalog: Offers, usual: Mapping[str, str], choices: dict[tuple[str, str], Choice]
) -> None:
    """Choose a version that stands beside others, with what it requires."""
    version = next(iter(catalog.versions(ref.full_name, ref.version)), ref.version)
    if (ref.full_name, version) in choices:
        return
    wishes = {package: usual[package] for package in usual if package != ref.full_name}
    beside = resolve({ref.full_name: ref}, catalog, wishes, file="app.yaml")
    for package, chosen in beside.items():
        needs = catalog.requires(package, chosen)
        exact = {needed: beside[needed] for needed in needs}
        choices.setdefault((package, chosen), Choice(package=package, version=chosen, requires=exact))


# --- one scope ---


@dataclass(frozen=True)
class _Candidate:
    package: str
    version: str


@dataclass(frozen=True)
class _Wish:
    package: str
    versions: str
    by: _Candidate | None = None  # None for a file of the app


def resolve(
    roots: Mapping[str, PackageRef], catalog: Offers, preferred: Mapping[str, str], *, file: str
) -> dict[str, str]:
    """Give one version by full name for what is asked for and all it requires; see `select`."""
    if (chosen := _as_preferred(roots, catalog, preferred)) is not None:
        return chosen
    from resolvelib import BaseReporter, ResolutionImpossible, Resolver

    provider = _provider(catalog, preferred)
    resolver: Any = Resolver(provider, BaseReporter())
    try:
        result = resolver.resolve(
            [_Wish(ref.full_name, ref.version) for ref in roots.values()], max_rounds=_MOST_ROUNDS
        )
    except ResolutionImpossible as error:
        raise _contradiction(error.causes, catalog, provider.reasons, file) from error
    return {package: candidate.version for package, candidate in sorted(result.mapping.items())}


def _as_preferred(
    roots: Mapping[str, PackageRef], catalog: Offers, preferred: Mapping[str, str]
) -> dict[str, str] | None:
    """Give what is preferred where it suits all that ask for it; None where there is something to choose."""
    chosen: dict[str, str] = {}
    wishes = [(ref.full_name, ref.version) for ref in roots.values()]
    while wishes:
        package, wanted = wishes.pop()
        version = preferred.get(package)
        if version is None or not fits(version, wanted):
            return None
        if package not in chosen:
            chosen[package] = version
            wishes += catalog.requires(package, version).items()
    return dict(sorted(chosen.items()))


def _provider(catalog: Offers, preferred: Mapping[str, str]) -> Any:
    """Give what resolvelib asks about packages; the library is imported with it."""
    from resolvelib import AbstractProvider

    class Provider(AbstractProvider):  # type: ignore[type-arg]
        """Answers about packages, and remembers who asked for each candidate first."""

        def __init__(self) -> None:
            self.reasons: dict[_Candidate, _Wish] = {}

        def identify(self, requirement_or_candidate: _Wish | _Candidate) -> str:
            return requirement_or_candidate.package

        def narrow_requirement_selection(
            self,
            identifiers: Iterable[str],
            resolutions: Mapping[str, Any],
            candidates: Mapping[str, Any],
            information: Mapping[str, Any],
            backtrack_causes: Sequence[Any],
        ) -> Iterable[str]:
            known = list(identifiers)
            failing = {cause.requirement.package for cause in backtrack_causes}
            return [name for name in known if name in failing][:1] or known[:1]

        def get_preference(
            self,
            identifier: str,
            resolutions: Mapping[str, Any],
            candidates: Mapping[str, Any],
            information: Mapping[str, Any],
            backtrack_causes: Sequence[Any],
        ) -> int:
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
                stay = preferred.get(identifier)
                versions = [stay] if stay else []
                for version in _chained(versions, lambda: catalog.versions(identifier, wishes[0].versions)):
                    if version not in refused and all(fits(version, wish.versions) for wish in wishes):
                        candidate = _Candidate(identifier, version)
                        self.reasons.setdefault(candidate, wishes[0])
                        yield candidate

            return candidates

        def is_satisfied_by(self, requirement: _Wish, candidate: _Candidate) -> bool:
            return fits(candidate.version, requirement.versions)

        def get_dependencies(self, candidate: _Candidate) -> Iterable[_Wish]:
            needed = catalog.requires(candidate.package, candidate.version)
            return [_Wish(package, versions, candidate) for package, versions in needed.items()]

    return Provider()


def _chained(first: Sequence[str], rest: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Give what is at hand first; registries are asked only when that does not do."""
    yield from first
    yield from (version for version in rest() if version not in first)


def _contradiction(
    causes: Collection[RequirementInformation[Any, Any]],
    catalog: Offers,
    reasons: Mapping[_Candidate, _Wish],
    file: str,
) -> ConfigError | NotFoundError:
    """Say who asks for what, with the way from a file of the app to each of them."""
    package = list(causes)[-1].requirement.package
    wishes = list(
        dict.fromkeys(cause.requirement for cause in causes if cause.requirement.package == package)
    )
    there = list(catalog.versions(package, ""))
    lines = [f"{_asker(wish, reasons, file)} wants {wish.versions or 'any version'}" for wish in wishes]
    shown = ", ".join(there[:_SHOWN_VERSIONS]) + (", …" if len(there) > _SHOWN_VERSIONS else "")
    if len(wishes) == 1:
        message = f"`{package}` has no version `{wishes[0].versions}`"
        asked = f", which {_asker(wishes[0], reasons, file)} wants" if wishes[0].by else ""
        return NotFoundError(message + asked, hint=f"known versions: {shown or 'none'}")
    message = "\n  ".join([f"no version of `{package}` suits all that ask for it:", *lines])
    return ConfigError(
        f"{message}\n  its versions are {shown or 'none'}",
        hint="change one of these requirements; `mlstack pkg outdated` shows what there is",
    )


def _asker(wish: _Wish, reasons: Mapping[_Candidate, _Wish], file: str) -> str:
    """Name who asks: a file, or a package with those that lead to it."""
    way: list[str] = []
    by = wish.by
    while by is not None and len(way) < _SHOWN_VERSIONS:
        way.append(f"`{by.package}@{by.version}`")
        reason = reasons.get(by)
        by = reason.by if reason else None
    return f"{way[0]} (required by {', '.join([*way[1:], file])})" if way else file
