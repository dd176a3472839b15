"""Components that an app does not have yet: their parameters as given, resolved and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from mlstack.app import files, params
from mlstack.app.app import Component
from mlstack.app.layout import component_file
from mlstack.app.params import KeyPath, Layer, Origin, Resolved, merge
from mlstack.app.prototype import NO_EFFECT, Example, Prototype
from mlstack.app.reader import AppReader
from mlstack.app.schema import PassedStore, check_params
from mlstack.dataclass import dataclass
from mlstack.errors import NotFoundError, ParamError, UsageError
from mlstack.names import check_component_name, check_module_name, nearest


@dataclass(frozen=True, kw_only=True)
class ComponentRequest:
    """A component as it was asked for."""

    prototype: str  # full name, alias or unique end of a name
    name: str | None = None  # with its module in front (`serving.inception`), else the parameter `name`
    module: str | None = None  # None for the one in its name
    texts: Mapping[str, str | None] = field(default_factory=dict)  # as typed; None: option without a value
    values_files: tuple[Path, ...] = ()  # later ones win over earlier, `texts` over all
    example: str | None = None  # of the prototype's, to start from


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A component that could be added to an app as it is, with the parameters that were given."""

    component: Component
    prototype: Prototype
    resolved: Resolved  # as the parameters would count, checked
    notes: tuple[str, ...] = ()  # of parameters that have no effect any more


def draft(
    app: AppReader, request: ComponentRequest, prototype: Prototype, *, passed: PassedStore | None = None
) -> Draft:
    """Work out a component from what was asked for; nothing is written.

    Parameter sets in `passed` are not checked again.

    Raises:
        UsageError: no name, an unknown parameter, or a required one missing.
        NotFoundError: the prototype has no such example.
        ParamError: a value does not fit its parameter.
    """
    values, origins, notes = _values(prototype, request)
    module, name = _name(request, values)
    if values.get("name") == name:
        del values["name"]  # a component's name is the default
    full_name = prototype.full_name
    if "@" in request.prototype:  # a version that was asked for stays
        full_name = f"{prototype.registry}/{prototype.package}@{prototype.version}/{prototype.name}"
    component = Component(
        name=name, module=module, prototype=full_name, params=values, file=component_file(module, name)
    )
    is_chart = prototype.chart is not None
    shared = [] if is_chart else app.shared_layers(module)
    layers = [*shared, Layer("component", values, origins)]
    resolved = params.resolve(
        prototype.params,
        layers,
        prototype=prototype.full_name,
        is_open=prototype.is_open,
        as_written=is_chart,
    )
    missing = params.missing(prototype, resolved.values)
    if missing:
        names = ", ".join(f"`{param.name}`" for param in missing)
        options = " ".join(f"--{param.name}=VALUE" for param in missing)
        raise UsageError(f"prototype `{prototype.name}` needs {names}", hint=f"add {options}")
    try:
        check_params(prototype, resolved, passed=passed)
    except ParamError as error:
        hint = f"`mlstack generate {prototype.name} --help` lists what it takes"
        raise type(error)(error.message, where=error.where, hint=hint) from error
    return Draft(component=component, prototype=prototype, resolved=resolved, notes=notes)


def _values(
    prototype: Prototype, request: ComponentRequest
) -> tuple[dict[str, Any], dict[KeyPath, Origin], tuple[str, ...]]:
    """Give the values by canonical name, where each was given, and notes of old names and idle values."""
    called, alias = prototype.called(request.prototype), prototype.alias(request.prototype) or ""
    values: dict[str, Any] = dict(prototype.alias_params.get(alias, {}))
    origins: dict[KeyPath, Origin] = {(name,): Origin(f"prototype {alias}") for name in values}
    if request.example is not None:
        for key, value in _example(prototype, request.example).params.items():
            name = params.canonical_name(prototype, key)
            if name != "name" or request.name is None:
                values[name], origins[(name,)] = value, Origin(f"example {request.example}")
    for file, layer in _file_layers(request):
        for key, value in layer.values.items():
            origin = layer.origins.get((key,), Origin(str(file)))
            try:
                name = params.canonical_name(called, key)
            except NotFoundError as error:
                error.where = str(origin)
                raise
            known = values.get(name)
            values[name] = merge(known, value) if isinstance(known, Mapping) else value
            origins[(name,)] = origin
    for name, value in params.typed(called, request.texts).items():
        values[name], origins[(name,)] = value, Origin(f"--{name}")
        # `null` is what ksonnet wrote where nothing was set.
        if value is None and (alias or name in prototype.schema.get("required", ())):
            del values[name]
    idle = [name for name in values if called.param(name).deprecated == NO_EFFECT]
    values = {name: value for name, value in values.items() if name not in idle}
    typed = [name.partition(".")[0] for name in request.texts]
    notes = [note for name in typed for note in params.renamed(name, params.canonical_name(called, name))]
    return values, origins, (*notes, *(f"`{name}` has no effect any more" for name in idle))


def _example(prototype: Prototype, name: str) -> Example:
    if name not in prototype.examples:
        message = f"prototype `{prototype.name}` has no example `{name}`"
        near = nearest(name, prototype.examples)
        hint = None if near else f"it has {', '.join(map('`{}`'.format, prototype.examples)) or 'none'}"
        raise NotFoundError(message, near=near, hint=hint)
    return prototype.examples[name]


def _file_layers(request: ComponentRequest) -> Iterator[tuple[Path, Layer]]:
    for file in request.values_files:
        values = files.read_values(file)
        own = values.components.get(request.name or "")
        yield from ((file, layer) for layer in (values.globals, own) if layer is not None)


def _name(request: ComponentRequest, values: Mapping[str, Any]) -> tuple[str, str]:
    full_name = request.name or str(values.get("name") or "")
    if not full_name:
        raise UsageError("what is the component called?", hint=f"mlstack generate {request.prototype} NAME")
    module, _, name = full_name.rpartition(".")
    parts = [(request.module or "").replace("/", ".").strip("."), module]
    module = ".".join(part for part in parts if part)
    if "/" in full_name or ".." in full_name or full_name.startswith("."):
        check_component_name(full_name)  # names no path, and no part of one is empty
    return check_module_name(module) if module else "", check_component_name(name)
