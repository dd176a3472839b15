"""Parameters from the layers of an app to one resolved set, each value with the place it came from.

Precedence, low to high, is the order of `LAYERS`. Maps merge deeply, lists replace (append where the
schema says so), null removes. A layer that speaks to many components reaches only those whose
prototype declares the name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str | int, ...]

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
