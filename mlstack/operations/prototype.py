"""Prototypes: what is there, what a prototype takes, and what would come of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlstack.engine import desired
from mlstack.errors import NotFoundError
from mlstack.files.appdir import AppDir
from mlstack.files.drafts import Wanted, draft
from mlstack.model.app import Environment
from mlstack.model.names import nearest
from mlstack.model.objects import DesiredState
from mlstack.model.prototype import Param, Prototype
from mlstack.registries.base import RegistryIndex
from mlstack.registries.catalog import indexes
from mlstack.registries.retired import find_prototype, refuse_if_retired
from mlstack.templating import CodeStore


@dataclass(frozen=True, kw_only=True)
class PrototypeRow:
    """One prototype in a list; one of a package that is not installed stands for that package.

    Attributes:
        name: short name.
        package: package and version, empty for a retired name.
        full_name: name that is never ambiguous.
        summary: one line; why a name is retired, and what to do instead.
        installed: whether components can be made from it now.
        retired: whether its registry does not offer it any more.
    """

    name: str
    package: str
    full_name: str
    summary: str
    installed: bool = True
    retired: bool = False


@dataclass(frozen=True, kw_only=True)
class PrototypeList:
    """Prototypes by name, and what was in the way of finding more."""

    prototypes: tuple[PrototypeRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """One parameter as a person has to know it.

    Attributes:
        name: canonical name.
        type: its JSON types, `list` or `map`.
        default: what it is when nothing sets it, None if it is unset then.
        required: whether it must be set.
        unit: what a number counts.
        limits: bounds and choices in words, empty without any.
        description: what it does.
        aliases: old spellings.
        secret: whether its value is masked.
        deprecated: why, and what to use instead.
    """

    name: str
    type: str
    default: Any
    required: bool
    unit: str
    limits: str
    description: str
    aliases: tuple[str, ...]
    secret: bool
    deprecated: str | None


@dataclass(frozen=True, kw_only=True)
class PrototypeDescription:
    """One prototype with all its parameters.

    Attributes:
        aliases: its other names.
        alias_params: what it is under some of them: alias → parameters that differ from the defaults.
        examples: summaries of worked examples by name.
    """

    name: str
    full_name: str
    package: str
    summary: str
    description: str
    aliases: tuple[str, ...]
    alias_params: Mapping[str, Mapping[str, Any]]
    parameters: tuple[ParameterRow, ...]
    examples: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PrototypeMatches:
    """The prototypes that a name may mean, the nearest first.

    Attributes:
        prototypes: the one of that name, or without one all that match.
        others: what else matches, where there is one of that name.
    """

    prototypes: tuple[PrototypeDescription, ...]
    others: tuple[PrototypeRow, ...] = ()


def list_all(app: AppDir) -> PrototypeList:
    """List the prototypes of the installed packages."""
    return PrototypeList(prototypes=tuple(_row(found) for found in _sorted(app)))


def _sorted(app: AppDir) -> list[Prototype]:
    return sorted(app.prototypes(), key=lambda found: (found.name, found.full_name))


def _row(found: Prototype) -> PrototypeRow:
    return PrototypeRow(
        name=found.name, package=_package(found), full_name=found.full_name, summary=found.summary
    )


def _package(found: Prototype) -> str:
    return f"{found.registry}/{found.package}@{found.version}"


def matching(app: AppDir, name: str) -> PrototypeMatches:
    """Find the prototypes that a name may mean: by name and package, by alias where nothing else fits.

    The one of that name comes first, then those of the package of that name, those whose name ends with
    it, and those that hold it anywhere.

    Raises:
        NotFoundError: there is none; carries the nearest name, or says that the name is retired.
    """
    known = sorted(_sorted(app), key=lambda each: _rank(each, name))
    found = [each for each in known if _rank(each, name) < _NO_MATCH]
    found = found or [each for each in known if any(name in alias for alias in each.aliases)]
    if not found:
        refuse_if_retired(app, name)
        raise _nothing(app, name)
    exact = [each for each in found if _rank(each, name) == 0]
    return PrototypeMatches(
        prototypes=tuple(_describe(each) for each in exact or found),
        others=tuple(_row(each) for each in found if exact and each not in exact),
    )


_NO_MATCH = 4


def _rank(found: Prototype, name: str) -> int:
    """Tell how well a name fits, 0 the best."""
    fits = (
        name in (found.name, found.full_name),
        name in (found.package, f"{found.registry}/{found.package}"),
        found.name.endswith(name),
        name in found.full_name,
    )
    return fits.index(True) if True in fits else _NO_MATCH


def _names(found: Prototype) -> tuple[str, ...]:
    return (found.name, found.full_name, *found.aliases)


def _nothing(app: AppDir, name: str) -> NotFoundError:
    known = [each.name for each in _sorted(app)]
    near = nearest(name, known)
    hint = f"did you mean `{near}`?" if near else "mlstack prototype list" if known else _INSTALL
    return NotFoundError(f"no prototype matches `{name}`", near=near, hint=hint)


_INSTALL = "no package is installed: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE"


def search(app: AppDir, text: str) -> PrototypeList:
    """Find prototypes by name and description, packages that are not installed, and retired names.

    A registry that does not answer is left out and noted.
    """
    wanted = text.lower()
    rows = [_row(found) for found in _sorted(app) if wanted in _searched(found)]
    notes: list[str] = []
    for registry, index in indexes(app.app().registries, root=app.root, notes=notes):
        rows += _offers(app, registry, index, wanted)
        rows += _retired(registry, index, wanted)
    if not rows:
        notes.append(f"no prototype matches `{text}`: mlstack prototype list shows the installed ones")
    return PrototypeList(prototypes=tuple(rows), notes=tuple(notes))


def _searched(found: Prototype) -> str:
    return "\n".join((*_names(found), found.summary, found.description)).lower()


def _offers(app: AppDir, registry: str, index: RegistryIndex, wanted: str) -> Iterator[PrototypeRow]:
    """Give the packages of a registry that are not installed and whose name or summary holds the text."""
    installed = {locked.name for locked in app.lock().packages if locked.registry == registry}
    for _, package in sorted(index.packages.items()):
        if package.name not in installed and wanted in f"{package.name}\n{package.summary}".lower():
            full_name = f"{registry}/{package.name}"
            yield PrototypeRow(
                name=package.name,
                package=full_name,
                full_name=full_name,
                summary=package.summary,
                installed=False,
            )


def _retired(registry: str, index: RegistryIndex, wanted: str) -> Iterator[PrototypeRow]:
    for retired in index.retired:
        for name in retired.names:
            if wanted in name.lower():
                yield PrototypeRow(
                    name=name,
                    package="",
                    full_name=f"{registry}/{name}",
                    summary="; ".join(filter(None, (f"retired: {retired.reason}", retired.instead))),
                    installed=False,
                    retired=True,
                )


def describe(app: AppDir, name: str) -> PrototypeDescription:
    """Describe one prototype.

    Raises:
        NotFoundError: no such prototype, or several; of a retired name what to do instead.
    """
    return _describe(find_prototype(app, name))


def _describe(found: Prototype) -> PrototypeDescription:
    return PrototypeDescription(
        name=found.name,
        full_name=found.full_name,
        package=_package(found),
        summary=found.summary,
        description=found.description,
        aliases=found.aliases,
        alias_params=found.alias_params,
        parameters=tuple(_parameter(param) for param in found.params.values()),
        examples={name: example.summary for name, example in found.examples.items()},
    )


def _parameter(param: Param) -> ParameterRow:
    return ParameterRow(
        name=param.name,
        type=_type(param),
        default=param.default if param.has_default else None,
        required=param.required,
        unit=param.unit,
        limits="; ".join(_limits(param.schema)),
        description=param.description,
        aliases=param.aliases,
        secret=param.secret,
        deprecated=param.deprecated,
    )


def _type(param: Param) -> str:
    return _FORMATS.get(param.format or "") or "|".join(sorted(param.types - {"null"})) or "any"


_FORMATS = {"csv": "list", "kv": "map"}


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


def preview(
    app: AppDir, wanted: Wanted, *, environment: str | None = None, store: CodeStore | None = None
) -> DesiredState:
    """Give the objects that a component would bring; nothing is written.

    Args:
        app: the app directory.
        wanted: the component; without a name it takes the prototype's.
        environment: where it would be deployed; None takes the namespace `default` and no overrides.
        store: keeps compiled templates and passed parameter sets.

    Raises:
        UsageError: an unknown parameter, or a required one missing.
        NotFoundError: no such prototype or environment; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
        TemplateError: a template does not render.
    """
    prototype = find_prototype(app, wanted.prototype)
    if wanted.name is None and "name" not in wanted.texts:
        wanted = replace(wanted, name=prototype.name)
    found = draft(app, wanted, prototype, passed=store)
    place = app.environment(environment) if environment is not None else Environment(name="preview")
    return desired.preview(
        app, found.component, found.prototype, found.resolved, environment=place, store=store
    )
