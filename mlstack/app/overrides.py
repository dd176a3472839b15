"""Values given on a command line: `--values FILE`, `--set KEY=VALUE`, and options of a prototype."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.app import document as documents
from mlstack.app.app import Component
from mlstack.app.document import AppDocument, FieldReader, Origin, described, join_path, split_path
from mlstack.app.files import decrypt, is_encrypted
from mlstack.app.params import (
    Layer,
    ParamFault,
    canonical_name,
    inner_param,
    nested,
    overlaid,
    param_error,
    parse_text,
    spelling_table,
)
from mlstack.app.prototype import Param, Prototype
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, NotFoundError, UsageError
from mlstack.names import did_you_mean, not_found
from mlstack.yaml.read import KeyPath

if TYPE_CHECKING:
    from mlstack.app.reader import AppReader


@dataclass(frozen=True)
class ValuesFile:
    """A file given with `--values`: for every component, and for single ones by full name."""

    globals: Layer
    components: Mapping[str, Layer] = field(default_factory=dict)


@dataclass(frozen=True)
class SetOption:
    """One `--set`, `--set-string` or `--set-file`: the key, split at its dots, and the text of the value."""

    path: KeyPath  # an optional component's full name, the parameter, and keys inside it
    text: str  # to be typed by what the parameter declares, unless `as_string`
    as_string: bool = False
    option: str = "--set"

    @property
    def origin(self) -> Origin:
        """Give the option as typed, without its value."""
        return Origin(f"{self.option} {join_path(self.path)}")

    def split(self, components: Collection[str]) -> tuple[str | None, KeyPath]:
        """Split the longest component name off the path; something must be left for the parameter."""
        for length in range(len(self.path) - 1, 0, -1):
            name = ".".join(map(str, self.path[:length]))
            if name in components:
                return name, self.path[length:]
        return None, self.path


@dataclass(frozen=True)
class Overrides:
    """All values given for one run, in the order they were given."""

    files: tuple[ValuesFile, ...] = ()
    sets: tuple[SetOption, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.sets)

    def layers(
        self, component: str, params: Mapping[str, Param], *, components: Collection[str]
    ) -> list[Layer]:
        """Give the layers for one component, lowest first: files, `--set KEY`, `--set COMPONENT.KEY`.

        `params` is what its prototype declares; the full names of all `components` tell a component from a
        parameter.
        """
        layers: list[Layer] = []
        for values in self.files:
            layers.append(values.globals)
            layers += [values.components[component]] if component in values.components else []
        split = [(*option.split(components), option) for option in self.sets]
        for target in (None, component):
            for path, option in ((path, option) for owner, path, option in split if owner == target):
                name = str(path[0])
                declared = params.get(spelling_table(params).get(name, ""))
                inner = inner_param(declared, path[1:]) if declared else None
                value = nested(path[1:], parse_text(inner, option.text, as_string=option.as_string))
                origins: dict[KeyPath, Origin] = {(name,): option.origin}
                for_all = target is None
                layers.append(Layer("command line", {name: value}, origins, speaks_to_many=for_all))
        return layers

    def keys(self, components: Collection[str]) -> list[tuple[str | None, str, Origin]]:
        """Give every (component or None, parameter as spelled, origin), to find the ones nobody declares."""
        keys: list[tuple[str | None, str, Origin]] = []
        for values in self.files:
            for owner, layer in ((None, values.globals), *values.components.items()):
                origins = layer.origins
                keys += [(owner, name, origins.get((name,), Origin("--values"))) for name in layer.values]
        for option in self.sets:
            owner, path = option.split(components)
            keys.append((owner, str(path[0]), option.origin))
        return keys

    def refuse_undeclared(self, app: AppReader, environment: str | None) -> None:
        """Refuse values that no component of an app declares: a typed name is meant."""
        every = app.component_files
        declared: set[str] = set()
        for owner, name, origin in self.keys(every):
            if owner is not None:
                if owner not in every:
                    hint = "mlstack component list"
                    raise not_found(f"no component `{owner}`", owner, every, where=str(origin), hint=hint)
                app.component_with_params(owner)
                continue
            declared = declared or app.spellings_of(app.components(), environment)
            if name in declared:
                continue
            message, is_component = f"no component has a parameter `{name}`", name in every
            hint = did_you_mean(name, [*declared, *every], "mlstack param list")
            own = [component for component in app.components() if isinstance(component, Component)]
            charts = [c.full_name for c in own if (p := app.prototype_of(c)).chart and name in p.params]
            if charts:
                message = f"`{name}` is a value of a chart, which takes none that is meant for all components"
                hint = f"--set {charts[0]}.{name}=VALUE"
            if is_component:
                message = f"`{name}` is a component, no parameter"
                hint = f"--set {name}.PARAM=VALUE, or in a file `components: {{{name}: {{PARAM: VALUE}}}}`"
            raise param_error([ParamFault(message, str(origin), hint, names_nothing=not is_component)])

    def plain(self) -> dict[str, Any]:
        """Write them as plain data, without their origins; empty if there are none."""
        files = [
            {
                "globals": dict(values.globals.values),
                "components": {name: dict(layer.values) for name, layer in values.components.items()},
            }
            for values in self.files
        ]
        sets = [{"path": list(opt.path), "text": opt.text, "asString": opt.as_string} for opt in self.sets]
        return {"files": files, "sets": sets} if self else {}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Overrides:
        """Give the overrides that `plain` wrote."""
        files = tuple(
            ValuesFile(
                Layer("command line", values.get("globals", {}), speaks_to_many=True),
                {name: Layer("command line", inner) for name, inner in values.get("components", {}).items()},
            )
            for values in data.get("files", ())
        )
        sets = (SetOption(tuple(opt["path"]), opt["text"], opt["asString"]) for opt in data.get("sets", ()))
        return cls(files=files, sets=tuple(sets))


def parse_set(text: str, *, option: str = "--set") -> SetOption:
    r"""Read `key=value` or `component.key=value`; `\.` is a dot inside a key.

    Of any `option` but `--set` the value is a text, whatever it looks like.
    """
    key, equals, value = text.partition("=")
    path = split_path(key)
    if not equals or "" in path:
        hint = f"write {option} num_workers=2 or {option} cnn.num_workers=2"
        raise UsageError(f"`{option} {text}` is not `key=value`", hint=hint)
    return SetOption(path, value, option != "--set", option)


def typed(prototype: Prototype, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Give the values of options by canonical name, in the order they were given.

    A text is None for an option without a value. Dots lead into maps: `--image.tag=1.10`.
    """
    values: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, text in texts.items():
        first, *rest = split_path(name)
        param = prototype.param(canonical_name(prototype, str(first)))
        if any(isinstance(part, int) for part in rest):
            raise UsageError(f"`--{name}` is an item of a list", hint=f"give the whole list: --{first}='[…]'")
        if (other := spelled.setdefault(param.name, str(first))) != first:
            hint = f"keep --{param.name} alone"
            raise UsageError(f"`--{other}` and `--{first}` are spellings of one parameter", hint=hint)
        inner = inner_param(param, rest)
        if text is None and (inner is None or "boolean" not in inner.types):
            raise UsageError(f"`--{name}` needs a value", hint=f"write --{name}=VALUE")
        value = True if text is None else parse_text(inner, text)
        for part in reversed(rest):
            value = {part: value}
        values[param.name] = overlaid(values.get(param.name), value) if rest else value
    return values


def missing(prototype: Prototype, values: Mapping[str, Any]) -> tuple[Param, ...]:
    """Give the required parameters that have no value, in the order they are declared."""
    params = prototype.params.values()
    return tuple(param for param in params if param.required and values.get(param.name) is None)


def read(
    sets: Sequence[str],
    files: Sequence[Path],
    *,
    strings: Sequence[str] = (),
    texts: Sequence[str] = (),
) -> Overrides:
    """Read what `--set`, `--values`, `--set-string` and `--set-file` (its text) give for one run.

    Raises:
        UsageError: a `--set` is not `key=value`.
        NotFoundError: a values file does not exist.
        ConfigError: a values file is not a map of parameters.
    """
    values = tuple(read_values(file) for file in files)
    typed = [parse_set(text) for text in sets] + [parse_set(text, option="--set-string") for text in strings]
    typed += [parse_set(text, option="--set-file") for text in texts]
    return Overrides(files=values, sets=tuple(typed))


def read_values(file: Path) -> ValuesFile:
    """Read one values file, or stdin when it is called `-`; errors are those of `read`."""
    is_stdin = str(file) == "-"
    try:
        data = sys.stdin.read().encode() if is_stdin else file.read_bytes()
    except FileNotFoundError as error:
        hint = "relative paths start at the working directory"
        raise NotFoundError(f"no values file `{file}`", hint=hint) from error
    except OSError as error:
        message = f"cannot read the values file `{file}`: {(error.strerror or str(error)).lower()}"
        raise UsageError(message, hint="give a YAML file of parameters") from error
    listed = documents.read_all(data, file="stdin" if is_stdin else str(file))
    if not listed:
        return ValuesFile(Layer("command line", {}))
    if len(listed) > 1:
        raise ConfigError("a values file holds one document", where=str(listed[1].origin()))
    document, value = listed[0], listed[0].value
    if not isinstance(value, Mapping):
        raise ConfigError(f"a values file is a map, got {described(value)}", where=str(file))
    is_secret = is_encrypted(value)
    if is_secret:
        value = decrypt(file, name=document.file, data=data if is_stdin else b"")
    if not value or any(key not in ("globals", "components") for key in value):
        return ValuesFile(_layer(document, (), value, is_encrypted=is_secret))
    FieldReader(document).map("components"), FieldReader(document).map("globals")
    components = {
        name: _layer(document, ("components", name), values, for_all=False, is_encrypted=is_secret)
        for name, values in (value.get("components") or {}).items()
    }
    shared = _layer(document, ("globals",), value.get("globals"), is_encrypted=is_secret)
    return ValuesFile(shared, components)


def _layer(
    document: AppDocument, path: KeyPath, values: Any, *, for_all: bool = True, is_encrypted: bool = False
) -> Layer:
    if values is not None and not isinstance(values, Mapping):
        message = f"`{path[-1]}` must be a map of parameters, got {described(values)}"
        raise ConfigError(message, where=str(document.origin(path)))
    origins = document.origins(path)
    return Layer("command line", values or {}, origins, speaks_to_many=for_all, is_encrypted=is_encrypted)
