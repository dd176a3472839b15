"""Parameters from the layers of an app to one resolved set, each value with the place it came from.

Precedence, low to high, is the order of `LAYERS`. Maps merge deeply, lists replace (append where the
schema says so), null removes. A layer that speaks to many components reaches only those whose
prototype declares the name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.model import masking
from mlstack.model.faults import ParamFault, param_error
from mlstack.model.names import nearest
from mlstack.model.prototype import Param
from mlstack.model.values import Path, coerce, merge, refused_characters

LAYERS: tuple[str, ...] = (
    "default",
    "app",
    "module",
    "component",
    "environment globals",
    "environment",
    "command line",
)
GLOBAL_LAYERS = frozenset(("app", "module", "environment globals"))


@dataclass(frozen=True)
class Origin:
    """Where a value was written.

    Args:
        file: below the app directory with `/`; or `prototype kubeflow/tf-job/tf-cnn`, `--set`.
        line: from 1; nothing where lines have no meaning.
    """

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Layer:
    """One place's values for the parameters of a component.

    Args:
        kind: one of `LAYERS`.
        values: by name as written, old spellings included.
        origins: path → place; `(name,)` for a parameter, longer inside maps and lists.
        target: what follows `mlstack param set` to change a value here (`--env=gke cnn`).
        speaks_to_many: undeclared names are skipped, not refused; always so for `GLOBAL_LAYERS`.
    """

    kind: str
    values: Mapping[str, Any]
    origins: Mapping[Path, Origin] = field(default_factory=dict)
    target: str = ""
    speaks_to_many: bool = False

    @property
    def skips_undeclared(self) -> bool:
        """Tell whether a name that the prototype does not declare is none of its business."""
        return self.speaks_to_many or self.kind in GLOBAL_LAYERS


@dataclass(frozen=True)
class ParamScope:
    """The level of an app at which a value is set or taken back.

    Args:
        kind: `app`, `module`, `component`, `environment globals` or `environment`.
        component: full name, for `component` and `environment`.
        module: dotted name, for `module`.
        environment: name, for the two kinds of environment.
    """

    kind: str
    component: str | None = None
    module: str | None = None
    environment: str | None = None


@dataclass(frozen=True)
class Setting:
    """One layer's word on one parameter.

    Args:
        layer: one of `LAYERS`.
        value: as understood by the parameter's type; nothing means: removed here.
        origin: where it was written.
        origins: places inside the value, by path below it.
        target: what follows `mlstack param set` to change it.
    """

    layer: str
    value: Any
    origin: Origin
    origins: Mapping[Path, Origin] = field(default_factory=dict)
    target: str = ""


@dataclass(frozen=True)
class Resolved:
    """The parameters of one component, resolved.

    Args:
        values: every declared parameter by canonical name; unset ones are None.
        chains: who said what about each parameter, lowest layer first.
        notes: deprecations and the like, for people.
    """

    values: Mapping[str, Any]
    chains: Mapping[str, Sequence[Setting]]
    notes: tuple[str, ...] = ()

    def origin(self, name: str, path: Path = ()) -> Origin:
        """Give the place that decided a parameter, or a value inside it."""
        setting = self.setting(name, path)
        return nearest_origin(setting.origins, path, setting.origin) if setting else Origin("not set")

    def setting(self, name: str, path: Path = ()) -> Setting | None:
        """Give the layer's word that decided a parameter, or a value inside it; None when nothing did."""
        chain = self.chains.get(name, ())
        for setting in reversed(chain):
            if _speaks_of(setting.value, path):
                return setting
        return chain[-1] if chain else None


def nearest_origin(origins: Mapping[Path, Origin], path: Path, fallback: Origin) -> Origin:
    """Give the place of `path`, or of the nearest thing around it whose place is known."""
    for length in range(len(path), -1, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return fallback


def _speaks_of(value: Any, path: Path) -> bool:
    """Tell whether a layer's value says something about `path`, even by removing what is around it."""
    for part in path:
        if not isinstance(value, Mapping):
            return True
        if part not in value:
            return False
        value = value[part]
    return True


def resolve(params: Mapping[str, Param], layers: Sequence[Layer], *, prototype: str = "") -> Resolved:
    """Resolve the parameters of one component.

    Later layers win. Bounds, patterns and required parameters are the JSON Schema's to check
    (`files.schema.check_params`); names, spellings and characters are checked here.

    Args:
        params: the prototype's parameters by canonical name; their defaults are the lowest layer.
        layers: lowest first.
        prototype: its full name, for messages and the origin of defaults.

    Raises:
        ParamError: all unknown names (with the nearest known one), names set in two spellings within one
            layer, and control characters, with file and line.
    """
    return Declared(params, prototype=prototype).resolve(layers)


class Declared:
    """What a prototype declares, prepared once to resolve the parameters of many components.

    Args:
        params: as for `resolve`.
        prototype: as for `resolve`.
    """

    def __init__(self, params: Mapping[str, Param], *, prototype: str = "") -> None:
        """Prepare spellings and defaults."""
        self._params = params
        self._prototype = prototype
        self._spellings = spelling_table(params)
        origin = Origin(f"prototype {prototype}".rstrip())
        self._chains: dict[str, tuple[Setting, ...]] = {
            name: (Setting("default", param.default, origin),) if param.has_default else ()
            for name, param in params.items()
        }
        self._values = {name: _folded(params[name], chain) for name, chain in self._chains.items()}

    def resolve(self, layers: Sequence[Layer]) -> Resolved:
        """Resolve the parameters of one component, as the function `resolve` says."""
        masking.note_params(self._values, self._params)
        faults: list[ParamFault] = []
        notes: dict[str, None] = {}
        chains: dict[str, tuple[Setting, ...]] = {}
        for layer in layers:
            reading = _LayerReading(layer, self._params, self._spellings, self._prototype)
            for name, setting in reading.settings(faults):
                chains[name] = (*chains.get(name, self._chains[name]), setting)
            notes.update(dict.fromkeys(reading.notes))
        if faults:
            raise param_error(faults)
        values = {name: _folded(self._params[name], chain) for name, chain in chains.items()}
        return Resolved({**self._values, **values}, {**self._chains, **chains}, tuple(notes))


def spelling_table(params: Mapping[str, Param]) -> dict[str, str]:
    """Map every spelling of every parameter to its canonical name."""
    table = {alias: name for name, param in params.items() for alias in param.aliases}
    return table | {name: name for name in params}


def _folded(param: Param, chain: Sequence[Setting]) -> Any:
    value: Any = None
    for setting in chain:
        value = None if setting.value is None else merge(value, setting.value, param.schema)
    return value


class _LayerReading:
    """One layer read against what a prototype declares."""

    def __init__(
        self, layer: Layer, params: Mapping[str, Param], spellings: Mapping[str, str], prototype: str
    ) -> None:
        self._layer = layer
        self._params = params
        self._spellings = spellings
        self._prototype = prototype
        self._origins = _by_name(layer.origins)
        self.notes: list[str] = []

    def settings(self, faults: list[ParamFault]) -> Iterator[tuple[str, Setting]]:
        seen: dict[str, str] = {}
        for spelling, raw in self._layer.values.items():
            name = self._spellings.get(spelling)
            if name is None:
                faults.extend(self._unknown(spelling))
                continue
            if name in seen:
                faults.append(self._twice(name, seen[name], spelling))
                continue
            seen[name] = spelling
            if self._params[name].secret:
                masking.note(raw)
            faults.extend(self._hostile(name, spelling, raw))
            self._note_deprecation(name, spelling, raw)
            yield name, self._setting(name, spelling, raw)

    def _setting(self, name: str, spelling: str, raw: Any) -> Setting:
        origins = self._origins.get(spelling, {})
        value = coerce(self._params[name], raw)
        return Setting(self._layer.kind, value, self._origin(spelling), origins, self._layer.target)

    def _origin(self, spelling: str, path: Path = ()) -> Origin:
        return nearest_origin(self._origins.get(spelling, {}), path, Origin(self._layer.kind))

    def _unknown(self, spelling: str) -> Iterator[ParamFault]:
        if self._layer.skips_undeclared:
            return
        near = nearest(spelling, self._spellings)
        short = self._prototype.rpartition("/")[2]
        owner = f"prototype `{short}`" if short else "the prototype"
        yield ParamFault(
            f"{owner} has no parameter `{spelling}`",
            where=str(self._origin(spelling)),
            hint=f"did you mean `{near}`?" if near else f"mlstack prototype describe {short}".rstrip(),
        )

    def _twice(self, name: str, first: str, second: str) -> ParamFault:
        return ParamFault(
            f"`{first}` and `{second}` are spellings of one parameter, and both are set",
            where=str(self._origin(second)),
            hint=f"keep `{name}` alone",
        )

    def _hostile(self, name: str, spelling: str, raw: Any) -> Iterator[ParamFault]:
        for path, character in refused_characters(raw):
            shown = ".".join((name, *map(str, path)))
            yield ParamFault(
                f"`{shown}` holds the control character {character}, which no object can carry",
                where=str(self._origin(spelling, path)),
                hint="remove it from the value",
            )

    def _note_deprecation(self, name: str, spelling: str, raw: Any) -> None:
        param = self._params[name]
        if param.deprecated:
            self.notes.append(f"`{spelling}` is deprecated: {param.deprecated} ({self._origin(spelling)})")
        if isinstance(raw, str) and raw in param.value_aliases:
            meant = param.value_aliases[raw] or "empty"
            self.notes.append(f"`{spelling}: {raw}` now means `{meant}` ({self._origin(spelling)})")


def _by_name(origins: Mapping[Path, Origin]) -> dict[str, dict[Path, Origin]]:
    """Group places by parameter, each path then starting inside the parameter's value."""
    grouped: dict[str, dict[Path, Origin]] = {}
    for path, origin in origins.items():
        if path:
            grouped.setdefault(str(path[0]), {})[path[1:]] = origin
    return grouped
