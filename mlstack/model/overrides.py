"""Values given for one run: `--values FILE` and `--set [component.]key=value`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.errors import UsageError
from mlstack.model.params import Layer, Origin, spelling_table
from mlstack.model.prototype import Param
from mlstack.model.values import Path, inner_param, parse_text, split_path


@dataclass(frozen=True)
class ValuesFile:
    """A file given with `--values`: for every component, and for single ones by full name."""

    globals: Layer
    components: Mapping[str, Layer] = field(default_factory=dict)


@dataclass(frozen=True)
class SetOption:
    """One `--set`: the key as typed and split at its dots, and the text of the value.

    Args:
        path: an optional component's full name, the parameter, and keys inside it.
        text: the value, to be typed by what the parameter declares.
        as_string: keep the text a string.
    """

    path: tuple[str, ...]
    text: str
    as_string: bool = False

    @property
    def key(self) -> str:
        """Give the key as typed."""
        return ".".join(self.path)


@dataclass(frozen=True)
class Overrides:
    """All values given for one run, in the order they were given."""

    files: tuple[ValuesFile, ...] = ()
    sets: tuple[SetOption, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.sets)

    def layers(
        self,
        component: str,
        params: Mapping[str, Param],
        *,
        components: Collection[str],
        read: Callable[[str], Any] | None = None,
    ) -> list[Layer]:
        """Give the layers for one component, lowest first: files, `--set KEY`, `--set COMPONENT.KEY`.

        Args:
            component: its full name.
            params: what its prototype declares; types the texts.
            components: full names of all components, to tell a component from a parameter.
            read: reads structured text (YAML); JSON alone without it.
        """
        layers: list[Layer] = []
        for values in self.files:
            layers.append(values.globals)
            layers += [values.components[component]] if component in values.components else []
        split = [(*_split_component(option.path, components), option) for option in self.sets]
        for wanted in (None, component):
            layers += [
                _set_layer(path, option, params, everyone=owner is None, read=read)
                for owner, path, option in split
                if owner == wanted
            ]
        return layers

    def keys(self, components: Collection[str]) -> list[tuple[str | None, str, Origin]]:
        """Give every (component or None, parameter as written, place), to find the ones nobody declares."""
        found: list[tuple[str | None, str, Origin]] = []
        for values in self.files:
            for owner, layer in ((None, values.globals), *values.components.items()):
                found += [
                    (owner, name, layer.origins.get((name,), Origin("--values"))) for name in layer.values
                ]
        for option in self.sets:
            owner, path = _split_component(option.path, components)
            found.append((owner, path[0], Origin(f"--set {option.key}")))
        return found


def parse_set(text: str, *, as_string: bool = False) -> SetOption:
    r"""Read `key=value` or `component.key=value`; `\.` is a dot inside a key.

    Raises:
        UsageError: there is no `=`, or nothing before it.
    """
    key, equals, value = text.partition("=")
    path = split_path(key)
    if not equals or not all(path):
        raise UsageError(
            f"`--set {text}` is not `key=value`", hint="write --set num_workers=2 or --set cnn.num_workers=2"
        )
    return SetOption(path, value, as_string)


def plain(overrides: Overrides) -> dict[str, Any]:
    """Write overrides as plain data, without their places; empty if there are none."""
    files = [
        {
            "globals": dict(each.globals.values),
            "components": {name: dict(layer.values) for name, layer in each.components.items()},
        }
        for each in overrides.files
    ]
    sets = [
        {"path": list(each.path), "text": each.text, "asString": each.as_string} for each in overrides.sets
    ]
    return {"files": files, "sets": sets} if overrides else {}


def from_plain(data: Mapping[str, Any]) -> Overrides:
    """Give the overrides that `plain` wrote."""
    return Overrides(
        files=tuple(
            ValuesFile(
                Layer("command line", each.get("globals", {}), speaks_to_many=True),
                {name: Layer("command line", values) for name, values in each.get("components", {}).items()},
            )
            for each in data.get("files", ())
        ),
        sets=tuple(
            SetOption(tuple(each["path"]), each["text"], each["asString"]) for each in data.get("sets", ())
        ),
    )


def _split_component(
    path: tuple[str, ...], components: Collection[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Split the longest component name off the front; something must be left for the parameter."""
    for length in range(len(path) - 1, 0, -1):
        name = ".".join(path[:length])
        if name in components:
            return name, path[length:]
    return None, path


def _set_layer(
    path: Sequence[str],
    option: SetOption,
    params: Mapping[str, Param],
    *,
    everyone: bool,
    read: Callable[[str], Any] | None,
) -> Layer:
    declared = params.get(spelling_table(params).get(path[0], ""))
    inner = inner_param(declared, path[1:]) if declared else None
    value = parse_text(inner, option.text, as_string=option.as_string, read=read)
    for part in reversed(path[1:]):
        value = {part: value}
    origins: dict[Path, Origin] = {(path[0],): Origin(f"--set {option.key}")}
    return Layer("command line", {path[0]: value}, origins, "", speaks_to_many=everyone)
