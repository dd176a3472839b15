"""Two environments side by side: which side is meant, and objects of one as if they were the other's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from mlstack.errors import UsageError
from mlstack.model.app import Environment
from mlstack.model.diff import Action, Change
from mlstack.model.fields import FieldChange
from mlstack.model.objects import ENVIRONMENT_LABEL, DesiredState, KubeObject, marks

Where = Literal["local", "remote"]

_BACK: Mapping[str, Action] = {"create": "delete", "delete": "create", "recreate": "update"}
_TURNED: Mapping[str, Literal["added", "removed", "changed"]] = {
    "added": "removed",
    "removed": "added",
    "changed": "changed",
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        where: `local` for what the files say, `remote` for what the cluster has.
        environment: name of the environment.
    """

    where: Where
    environment: str

    def __str__(self) -> str:
        """Write the side as it is typed."""
        return f"{self.where}:{self.environment}"


def read_side(text: str) -> Side:
    """Read `local:ENV`, `remote:ENV`, or `ENV` for what its files say.

    Raises:
        UsageError: it is none of them.
    """
    where, colon, environment = text.partition(":")
    if not colon:
        return Side(where="local", environment=text)
    if where not in ("local", "remote") or not environment:
        raise UsageError(f"`{text}` is no side of a comparison", hint="write local:ENV or remote:ENV")
    return Side(where="local" if where == "local" else "remote", environment=environment)


def moved_to(state: DesiredState, place: Environment, there: Environment) -> DesiredState:
    """Give the objects of one environment as if they were another's: its namespace and its mark."""
    mark = marks(app=state.app, environment=there.name, component="")[ENVIRONMENT_LABEL]

    def moved(found: KubeObject) -> KubeObject:
        metadata = dict(found.metadata)
        if found.namespace == place.namespace:
            metadata["namespace"] = there.namespace
        if (found.metadata.get("labels") or {}).get(ENVIRONMENT_LABEL):
            metadata["labels"] = {**metadata["labels"], ENVIRONMENT_LABEL: mark}
        named = (found.api_version, found.kind) == ("v1", "Namespace") and found.name == place.namespace
        if named:
            metadata["name"] = there.namespace
        return found.with_data({**found.data, "metadata": metadata})

    return replace(
        state,
        environment=there.name,
        namespace=there.namespace,
        objects=tuple(moved(found) for found in state.objects),
    )


def turned(change: Change) -> Change:
    """Give a change as it is seen from the other side."""
    return replace(
        change,
        action=_BACK.get(change.action, change.action),
        fields=tuple(
            FieldChange(path=one.path, action=_TURNED[one.action], old=one.new, new=one.old)
            for one in change.fields
        ),
        desired=None,
        reason="",
        notes=(),
    )
