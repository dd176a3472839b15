"""Components that an app does not have yet: their parameters as given, resolved and checked."""

from collections.abc import Mapping
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


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A component as it was asked for.

    Attributes:
        prototype: full name, alias or unique end of a name.
        name: the component's name, with its module in front (`serving.inception`); None takes it
            from the parameter `name`.
        module: the module it goes to, None for the one in its name.
        texts: text by parameter as typed; None for an option without a value.
        values_file: YAML file of parameters; options win over it.
    """

    prototype: str
    name: str | None = None
    module: str | None = None
    texts: Mapping[str, str | None] = field(default_factory=dict)
    values_file: Path | None = None


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


def draft(app: AppDir, wanted: Wanted, *, passed: PassedStore | None = None) -> Draft:
    """Work out a component from what was asked for; nothing is written.

    Args:
        app: the app directory.
        wanted: what was asked for.
        passed: parameter sets that have passed before are not checked again.

    Raises:
        UsageError: no name, an unknown parameter, or a required one missing.
        NotFoundError: no such prototype.
        ParamError: a value does not fit its parameter.
    """
    prototype = app.prototype(wanted.prototype)
    values = _values(prototype, wanted)
    module, name = _name(wanted, values)
    if values.get("name") == name:
        del values["name"]  # a component's name is the default
    component = Component(
        name=name,
        module=module,
        prototype=prototype.full_name,
        params=values,
        file=component_file(module, name),
    )
    return Draft(
        component=component, prototype=prototype, resolved=_resolved(app, prototype, component, passed)
    )


def _values(prototype: Prototype, wanted: Wanted) -> dict[str, Any]:
    file = _from_file(prototype, wanted.values_file, wanted.name) if wanted.values_file is not None else {}
    return {**file, **given.typed(prototype, wanted.texts, read=read_text_value)}


def _from_file(prototype: Prototype, file: Path, name: str | None) -> dict[str, Any]:
    found = overrides.read_values(file)
    own = found.components.get(name or "")
    values: dict[str, Any] = {}
    for layer in (found.globals, *([own] if own is not None else [])):
        for key, value in layer.values.items():
            try:
                values[given.canonical_name(prototype, key)] = value
            except NotFoundError as error:
                error.where = str(layer.origins.get((key,), Origin(str(file))))
                raise
    return values


def _name(wanted: Wanted, values: Mapping[str, Any]) -> tuple[str, str]:
    full_name = wanted.name or str(values.get("name") or "")
    if not full_name:
        raise UsageError("what is the component called?", hint=f"mlstack generate {wanted.prototype} NAME")
    module, _, name = full_name.rpartition(".")
    parts = [(wanted.module or "").replace("/", ".").strip("."), module]
    module = ".".join(part for part in parts if part)
    return check_module_name(module) if module else "", check_component_name(name)


def _resolved(
    app: AppDir, prototype: Prototype, component: Component, passed: PassedStore | None
) -> Resolved:
    layers = [Layer("app", app.app().params), Layer("component", component.params)]
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
        raise ParamError(error.message, hint=hint) from error
    return resolved
