"""Prototypes, and how components are made from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mlstack.app.app_dir import AppDir
from mlstack.app.draft import ComponentRequest, draft
from mlstack.app.environment import Environment
from mlstack.app.index import KSONNET_PREFIX, IndexPackage, RegistryIndex
from mlstack.app.prototype import Prototype
from mlstack.app.schema import PassedStore
from mlstack.dataclass import dataclass
from mlstack.errors import NotFoundError
from mlstack.names import nearest
from mlstack.objects.kube_object import DesiredState
from mlstack.operations import row
from mlstack.readiness.operators import need_text
from mlstack.registries import installation
from mlstack.registries.installation import built_in_package, built_in_prototype, find_usable
from mlstack.registries.registry import indexes, missing_prototype
from mlstack.registries.resolver import APP
from mlstack.render import render
from mlstack.render.template import CodeStore

# --- prototypes ---


@dataclass(frozen=True, kw_only=True)
class PrototypeRow:
    """One prototype in a list; one of a package that is not installed stands for that package."""

    name: str
    package: str  # package and version, empty for a retired name
    full_name: str  # never ambiguous
    summary: str  # one line; why a name is retired, and what to do instead
    installed: bool = True  # components can be made from it now
    retired: bool = False  # its registry does not offer it any more


@dataclass(frozen=True, kw_only=True)
class PrototypeList:
    """Prototypes by name, and what was in the way of finding more."""

    prototypes: tuple[PrototypeRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """One parameter as a person has to know it."""

    name: str
    type: str  # its JSON types, `list` or `map`
    default: Any  # None if it is unset then
    required: bool
    unit: str  # what a number counts
    limits: str  # bounds and choices in words
    description: str
    aliases: tuple[str, ...]  # old spellings
    secret: bool  # its value is masked
    deprecated: str | None  # why, and what to use instead


@dataclass(frozen=True, kw_only=True)
class PrototypeDescription:
    """One prototype with all its parameters."""

    name: str
    full_name: str
    package: str
    summary: str
    description: str
    aliases: tuple[str, ...]
    alias_params: Mapping[str, Mapping[str, Any]]  # alias -> parameters that differ from the defaults
    # alias -> old names of parameters -> those of today
    alias_renames: Mapping[str, Mapping[str, str | None]]
    parameters: tuple[ParameterRow, ...]
    examples: Mapping[str, str]  # summaries of worked examples by name
    needs: tuple[str, ...]  # kinds that must be in the cluster, and how they come there
    checked_with: Mapping[str, str]  # operator → version that it was tried with


@dataclass(frozen=True, kw_only=True)
class PrototypeMatches:
    """The prototypes that a name may mean, the nearest first."""

    prototypes: tuple[PrototypeDescription, ...]  # the one of that name, or without one all that match
    others: tuple[PrototypeRow, ...] = ()  # what else matches, where there is one of that name


def list_prototypes(app: AppDir) -> PrototypeList:
    """List the prototypes of the installed packages, and the built-in ones."""
    rows = [_prototype_row(prototype) for prototype in _sorted(app)]
    if built_in := built_in_package(app):
        ref, package = built_in
        rows += _offered_rows(ref.registry, package, "")
    return PrototypeList(prototypes=tuple(rows))


def _sorted(app: AppDir) -> list[Prototype]:
    return sorted(app.vendor.prototypes(), key=lambda prototype: (prototype.name, prototype.full_name))


def _prototype_row(prototype: Prototype) -> PrototypeRow:
    return row(PrototypeRow, prototype, package=_package_of(prototype), installed=True, retired=False)


def _package_of(prototype: Prototype) -> str:
    return f"{prototype.registry}/{prototype.package}@{prototype.version}"


def matching_prototypes(app: AppDir, name: str) -> PrototypeMatches:
    """Find the prototypes that a name may mean: by name and package, by alias where nothing else fits.

    The one of that name comes first, then those of the package of that name, those whose name ends with
    it, and those that hold it anywhere.

    Raises:
        NotFoundError: there is none; carries the nearest name, or says that the name is retired.
    """
    name = name.removeprefix(KSONNET_PREFIX)
    prototypes = sorted(_sorted(app), key=lambda prototype: _rank(prototype, name))
    matches = [prototype for prototype in prototypes if _rank(prototype, name) < _NO_MATCH]
    matches = matches or [
        prototype for prototype in prototypes if any(name in alias for alias in prototype.aliases)
    ]
    if not matches and (built_in := built_in_prototype(app, name)):
        matches = [built_in[0]]
    if not matches:
        names = [prototype.name for prototype in _sorted(app)]
        near = nearest(name, names)
        hint = f"did you mean `{near}`?" if near else "mlstack prototype list" if names else _INSTALL
        error = NotFoundError(f"no prototype matches `{name}`", near=near, hint=hint)
        raise missing_prototype(app, name, error)
    exact = [prototype for prototype in matches if _rank(prototype, name) == 0]
    return PrototypeMatches(
        prototypes=tuple(_prototype_description(prototype) for prototype in exact or matches),
        others=tuple(_prototype_row(match) for match in matches if exact and match not in exact),
    )


_NO_MATCH = 4
_INSTALL = "no package is installed: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE"


def _rank(prototype: Prototype, name: str) -> int:
    """Tell how well a name fits, 0 the best."""
    fits = (
        name in (prototype.name, prototype.full_name),
        name in (prototype.package, f"{prototype.registry}/{prototype.package}"),
        prototype.name.endswith(name),
        name in prototype.full_name,
    )
    return fits.index(True) if True in fits else _NO_MATCH


def search_prototypes(app: AppDir, text: str) -> PrototypeList:
    """Find prototypes by name, alias and description, installed or not, and retired names.

    A registry that does not answer is left out and noted.
    """
    words = text.lower().removeprefix(KSONNET_PREFIX)
    rows = [
        _prototype_row(known)
        for known in _sorted(app)
        if words
        in "\n".join((known.name, known.full_name, *known.aliases, known.summary, known.description)).lower()
    ]
    notes: list[str] = []
    offered: list[PrototypeRow] = []
    retired: list[PrototypeRow] = []
    for registry, index in indexes(app.app.registries, root=app.root, notes=notes):
        installed = {locked.name for locked in app.lock.packages if locked.registry == registry}
        for _, package in sorted(index.packages.items()):
            if package.name not in installed:
                offered += _offered_rows(registry, package, words)
        retired += _retired_rows(registry, index, words)
    packages = list(dict.fromkeys(row.package.partition("@")[0] for row in offered))
    if packages:
        listed = "\n".join(f"  mlstack pkg install {package}" for package in packages)
        notes.append(f"not installed yet:\n{listed}")
    rows += [*offered, *retired]
    if not rows:
        notes.append(f"no prototype matches `{text}`: mlstack prototype list shows the installed ones")
    return PrototypeList(prototypes=tuple(rows), notes=tuple(notes))


def _offered_rows(registry: str, package: IndexPackage, words: str) -> Iterator[PrototypeRow]:
    """Give what matches of a package that is not installed; itself, where its index tells no prototypes."""
    full_name = f"{registry}/{package.name}"
    about = "\n".join((full_name, package.summary, *package.keywords)).lower()
    offered = {"package": f"{full_name}@{package.newest.version}", "installed": False, "retired": False}
    for prototype in package.prototypes:
        if words in about or words in "\n".join((*prototype.names, prototype.summary)).lower():
            yield row(PrototypeRow, prototype, full_name=f"{full_name}/{prototype.name}", **offered)
    if not package.prototypes and words in about:
        yield row(PrototypeRow, package, full_name=full_name, **offered)


def _retired_rows(registry: str, index: RegistryIndex, words: str) -> Iterator[PrototypeRow]:
    offered = {name for p in index.packages.values() for known in p.prototypes for name in known.names}
    for entry in index.retired:
        summary = "; ".join(filter(None, (f"{entry.state}: {entry.reason}", entry.instead)))
        for name in entry.names:
            if words in name.lower() and name not in offered:
                yield PrototypeRow(
                    name=name,
                    package="",
                    full_name=f"{registry}/{name}",
                    summary=summary,
                    installed=False,
                    retired=True,
                )


def describe_prototype(app: AppDir, name: str) -> PrototypeDescription:
    """Describe one prototype.

    Raises:
        NotFoundError: no such prototype, or several; of a retired name what to do instead.
    """
    return _prototype_description(find_usable(app, name)[0])


def _prototype_description(prototype: Prototype) -> PrototypeDescription:
    formats = {"csv": "list", "kv": "map"}
    parameters = tuple(
        row(
            ParameterRow,
            param,
            type=formats.get(param.format or "") or "|".join(sorted(param.types - {"null"})) or "any",
            default=param.default if param.has_default else None,
            limits="; ".join(_limits(param.schema)),
        )
        for param in prototype.params.values()
    )
    examples = {name: example.summary for name, example in prototype.examples.items()}
    package = _package_of(prototype)
    needs = tuple(need_text(need, "ENV") for need in prototype.needs)
    return row(
        PrototypeDescription,
        prototype,
        package=package,
        parameters=parameters,
        examples=examples,
        needs=needs,
    )


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield "one of " + ", ".join(json.dumps(choice) for choice in schema["enum"] if choice is not None)
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if lowest is not None and highest is not None:
        yield f"{lowest} to {highest}"
    elif lowest is not None:
        yield f"at least {lowest}"
    elif highest is not None:
        yield f"at most {highest}"
    if "maxLength" in schema:
        yield f"at most {schema['maxLength']} characters"


def preview_prototype(
    app: AppDir, request: ComponentRequest, *, environment: str | None = None, store: CodeStore | None = None
) -> DesiredState:
    """Give the objects that a component would bring; nothing is written.

    Without a name it takes the prototype's; without an environment the namespace `default` and no overrides.

    Raises:
        UsageError: an unknown parameter, or a required one missing.
        NotFoundError: no such prototype or environment; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
        TemplateError: a template does not render.
    """
    prototype, _ = find_usable(app, request.prototype)
    if request.name is None and "name" not in request.texts:
        request = replace(request, name=prototype.name)
    component = draft(app, request, prototype, passed=store)
    place = app.environment(environment) if environment is not None else Environment(name="preview")
    return render.preview(
        app, component.component, component.prototype, component.resolved, environment=place, store=store
    )


# --- components ---


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A component that was made."""

    name: str
    prototype: str
    file: str  # below the app directory
    replaced: bool  # there was one of that name before
    notes: tuple[str, ...] = ()  # of its alias, deprecated parameters, and the prototype's own


def generate(
    app: AppDir, request: ComponentRequest, *, replace: bool = False, store: PassedStore | None = None
) -> Generated:
    """Make a component; only what was given is written, the rest follows the package.

    What an alias sets counts as given, below the options.

    Raises:
        UsageError: no name, an unknown parameter, a required one missing, or the component exists.
        NotFoundError: no such prototype; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
    """
    with app.locked():
        prototype, package = find_usable(app, request.prototype)
        component = draft(app, request, prototype, passed=store)
        notes = (
            prototype.alias_note(request.prototype),
            *component.notes,
            *component.resolved.notes,
            *_environment_notes(app, prototype, request.example),
            *prototype.notes.splitlines(),
        )
        name = component.component.full_name
        exists = name in app.component_files
        if package is not None and (replace or not exists):
            installation.change(app, {APP: (package,)})
        return Generated(
            name=name,
            prototype=component.component.prototype,
            file=app.add_component(component.component, replace=replace),
            replaced=exists,
            notes=tuple(note for note in notes if note.strip()),
        )


def _environment_notes(app: AppDir, prototype: Prototype, example: str | None) -> Iterator[str]:
    """Tell which environment an example is made for, if the app has none of that name."""
    place = prototype.examples[example].environment if example else ""
    if place and place not in app.environment_names:
        yield f"example `{example}` is for an environment such as `{place}`: mlstack env add {place}"
