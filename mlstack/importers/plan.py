"""What an import would write: components that are plain manifests, and what environments say about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from mlstack.app import layout
from mlstack.app.environment import Environment
from mlstack.dataclass import dataclass

Data = Mapping[str, Any]
"""An object of Kubernetes as plain data."""


@dataclass(frozen=True, kw_only=True)
class PlannedComponent:
    """A component that is a plain manifest."""

    name: str  # with its module in front
    text: str  # the whole file
    suffix: str = ".yaml"
    objects: tuple[Data, ...] = ()

    @property
    def file(self) -> str:
        """Give its file below the app."""
        module, _, name = self.name.rpartition(".")
        return layout.component_file(module, name).removesuffix(".yaml") + self.suffix

    @property
    def kinds(self) -> tuple[str, ...]:
        """Give the kinds of its objects, each once, in their order."""
        return tuple(dict.fromkeys(str(data.get("kind")) for data in self.objects))


@dataclass(frozen=True, kw_only=True)
class PlannedPackage:
    """A package of the app's own, in a registry that is a folder of the app."""

    name: str
    registry: str
    files: Mapping[str, str]  # by path in the package's folder


@dataclass(frozen=True, kw_only=True)
class ImportPlan:
    """Components, patches and environments that an import adds to an app."""

    components: tuple[PlannedComponent, ...]
    # environment -> component -> partial objects
    patches: Mapping[str, Mapping[str, Sequence[Data]]] = field(default_factory=dict)
    environments: tuple[Environment, ...] = ()
    # environment -> component -> values of its parameters
    params: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    package: PlannedPackage | None = None  # with the prototypes of the components
    notes: tuple[str, ...] = ()
