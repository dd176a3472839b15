"""Components that an app does not have yet: their parameters as given, resolved and checked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlstack.errors import NotFoundError, ParamError, UsageError
from mlstack.files import overrides
from mlstack.files.appdir import AppDir
from mlstack.files.document import read_text_value
from mlstack.files.layout import component_file
from mlstack.files.schema import PassedStore, check_params
from mlstack.model import given, params
from mlstack.model.app import Component
from mlstack.model.names import check_component_name, check_module_name
from mlstack.model.params import Layer, Origin, Resolved
from mlstack.model.prototype import Prototype
from mlstack.model.values import Path as ValuePath
from mlstack.model.values import merge


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A component as it was asked for.

    Attributes:
        prototype: full name, alias or unique end of a name.
        name: the component's name, with its module in front (`serving.inception`); None takes it
            from the parameter `name`.
        module: the module it goes to, None for the one in its name.
        texts: text by parameter as typed; None for an option without a value.
        values_files: YAML files of parameters; later ones win over earlier, options over all.
    """

    prototype: str
    name: str | None = None
    module: str | None = None
    texts: Mapping[str, str | None] = field(default_factory=dict)
    values_files: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A component that could be added to an app as it is.

    Attributes:
        component: with the parameters that were given, and no others.
        prototype: what it is made from.
        resolved: its parameters as they would count, checked.
    """

    component: Component
    prototype: Prototype
    resolved: Resolved


def draft(app: AppDir, wanted: Wanted, prototype: Prototype, *, passed: PassedStore | None = None) -> Draft:
    """Work out a component from what was asked for; nothing is written.

    Args:
        app: the app directory.
        wanted: what was asked for.
        prototype: what the name that was asked for stands for.
        passed: parameter sets that have passed before are not checked again.

    Raises:
        UsageError: no name, an unknown parameter, or a required one missing.
        ParamError: a value does not fit its parameter.
    """
    values, origins = _values(prototype, wanted)
    module, name = _name(wanted, values)
    if values.get("name") == name:
        del values["name"]  # a component's name is the default
    component = Component(
        name=name,
        module=module,
        prototype=_written(prototype, wanted.prototype),
        params=values,
        file=component_file(module, name),
    )
    layers = [Layer("app", app.app().params), Layer("component", values, origins)]
    return Draft(component=component, prototype=prototype, resolved=_resolved(prototype, layers, passed))


def _written(prototype: Prototype, asked: str) -> str:
    """Give the name by which a component refers to its prototype; a version that was asked for stays."""
    if "@" not in asked:
        return prototype.full_name
    return f"{prototype.registry}/{prototype.package}@{prototype.version}/{prototype.name}"


def _values(prototype: Prototype, wanted: Wanted) -> tuple[dict[str, Any], dict[ValuePath, Origin]]:
    """Give the values by canonical name, and where each was given."""
    alias = prototype.alias(wanted.prototype) or ""
    values: dict[str, Any] = dict(prototype.alias_params.get(alias, {}))
    origins: dict[ValuePath, Origin] = {(name,): Origin(f"prototype {alias}") for name in values}
    for file, layer in _file_layers(wanted):
        for key, value in layer.values.items():
            origin = layer.origins.get((key,), Origin(str(file)))
            try:
                name = given.canonical_name(prototype, key)
            except NotFoundError as error:
                error.where = str(origin)
                raise
            known = values.get(name)
            values[name] = merge(known, value) if isinstance(known, Mapping) else value
            origins[(name,)] = origin
    for name, value in given.typed(prototype, wanted.texts, read=read_text_value).items():
        values[name], origins[(name,)] = value, Origin(f"--{name}")
    return values, origins


def _file_layers(wanted: Wanted) -> Iterator[tuple[Path, Layer]]:
    for file in wanted.values_files:
        found = overrides.read_values(file)
        own = found.components.get(wanted.name or "")
        yield from ((file, layer) for layer in (found.globals, own) if layer is not None)


def _name(wanted: Wanted, values: Mapping[str, Any]) -> tuple[str, str]:
    full_name = wanted.name or str(values.get("name") or "")
    if not full_name:
        raise UsageError("what is the component called?", hint=f"mlstack generate {wanted.prototype} NAME")
    module, _, name = full_name.rpartition(".")
    parts = [(wanted.module or "").replace("/", ".").strip("."), module]
    module = ".".join(part for part in parts if part)
    if "/" in full_name or ".." in full_name or full_name.startswith("."):
        check_component_name(full_name)  # names no path, and no part of one is empty
    return check_module_name(module) if module else "", check_component_name(name)


def _resolved(prototype: Prototype, layers: Sequence[Layer], passed: PassedStore | None) -> Resolved:
    resolved = params.resolve(prototype.params, layers, prototype=prototype.full_name)
    lacking = given.missing(prototype, resolved.values)
    if lacking:
        names = ", ".join(f"`{param.name}`" for param in lacking)
        options = " ".join(f"--{param.name}=VALUE" for param in lacking)
        raise UsageError(f"prototype `{prototype.name}` needs {names}", hint=f"add {options}")
    try:
        check_params(prototype, resolved, passed=passed)
    except ParamError as error:
        hint = f"`mlstack generate {prototype.name} --help` lists what it takes"
        raise type(error)(error.message, where=error.where, hint=hint) from error
    return resolved
