"""Any two environments side by side: what their files say, and what their clusters have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from mlstack.app.environment import Environment
from mlstack.dataclass import dataclass
from mlstack.deploy import history, inventory_store, plan, result
from mlstack.deploy.changes import Action, ApplyOptions, Change
from mlstack.deploy.inventory import MEMBER_LABEL, Member
from mlstack.deploy.inventory_store import ref_of
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.errors import UsageError
from mlstack.kube import parallel
from mlstack.kube.client import Opener
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import ENVIRONMENT_LABEL, Data, DesiredState, Identity, KubeObject, label_of

_BACK: Mapping[str, Action] = {"create": "delete", "delete": "create", "recreate": "update"}


@dataclass(frozen=True, kw_only=True)
class ComparedEnvironment:
    """One side of a comparison: `local` for what the files say, `remote` for what the cluster has."""

    where: Literal["local", "remote"]
    environment: str

    def __str__(self) -> str:
        """Write the side as it is typed."""
        return f"{self.where}:{self.environment}"


def read_side(text: str) -> ComparedEnvironment:
    """Read `local:ENV`, `remote:ENV`, or `ENV` for what its files say.

    Raises:
        UsageError: it is none of them.
    """
    where, colon, environment = text.partition(":")
    if not colon:
        return ComparedEnvironment(where="local", environment=text)
    if where not in ("local", "remote") or not environment:
        raise UsageError(f"`{text}` is no side of a comparison", hint="write local:ENV or remote:ENV")
    return ComparedEnvironment(where="local" if where == "local" else "remote", environment=environment)


def compare(
    target: Target, left: ComparedEnvironment, right: ComparedEnvironment, *, opener: Opener
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Give what changes on the way from one side to the other, and remarks; nothing is written.

    Files and a cluster are compared by a dry run there, so that defaults of the server are no difference.

    Args:
        target: the app directory, components and parameters, for both sides.
        left: the side that is compared.
        right: the side it is compared with.
        opener: opens a cluster by its context.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: a cluster cannot be asked, or is another than the environment's.
    """
    if left.where != right.where:
        files, live = (left, right) if left.where == "local" else (right, left)
        changes, notes = _with_cluster(target, files, live, opener)
        if files is right:
            return changes, notes
        reversed_changes = (
            replace(
                change,
                action=_BACK.get(change.action, change.action),
                fields=tuple(field.reversed for field in change.fields),
                desired=None,
                reason="",
                notes=(),
            )
            for change in changes
        )
        return tuple(reversed_changes), notes
    targets = [replace(target, environment=side.environment) for side in (left, right)]
    before, after = (
        side.desired() if left.where == "local" else _live_state(resolve(side, opener)) for side in targets
    )
    place, other = (side.app.environment(side.environment) for side in targets)
    secrets = (*before.secrets, *after.secrets)
    changes = tuple(
        replace(change, fields=result.veiled(change.fields, secrets))
        for change in history.changes_between(_moved(before, place, other), after)
    )
    return changes, tuple(dict.fromkeys((*before.notes, *after.notes)))


def _with_cluster(
    target: Target, files: ComparedEnvironment, live: ComparedEnvironment, opener: Opener
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Compare with a cluster what one side's files say, as if they were of the environment there."""
    desired = replace(target, environment=files.environment)
    goal = replace(target, environment=live.environment)
    place, other = (side.app.environment(side.environment) for side in (desired, goal))
    state = _moved(desired.desired(), place, other)
    resolved = resolve(goal, opener, state=state)
    changes = plan.diff_environment(resolved, ApplyOptions(dry_run=True)).changes.changes
    own = Identity("", "Namespace", "", state.namespace)  # which an apply would make first
    return tuple(
        replace(change, fields=result.veiled(change.fields, state.secrets))
        for change in changes
        if change.component or change.identity != own
    ), state.notes


def _moved(state: DesiredState, place: Environment, other: Environment) -> DesiredState:
    """Give the objects of one environment as if they were another's: its namespace and its mark."""
    objects = []
    for obj in state.objects:
        metadata = dict(obj.metadata)
        if obj.namespace == place.namespace:
            metadata["namespace"] = other.namespace
        if (obj.metadata.get("labels") or {}).get(ENVIRONMENT_LABEL):
            metadata["labels"] = {**metadata["labels"], ENVIRONMENT_LABEL: label_of(other.name)}
        if (obj.api_version, obj.kind, obj.name) == ("v1", "Namespace", place.namespace):
            metadata["name"] = other.namespace
        objects.append(obj.with_data({**obj.data, "metadata": metadata}))
    return replace(state, environment=other.name, namespace=other.namespace, objects=tuple(objects))


def _live_state(resolved: ResolvedTarget) -> DesiredState:
    """Give what we own of the objects that an environment has in its cluster."""
    state = resolved.state
    inventory = inventory_store.load_or_find(
        resolved.cluster, app=state.app, environment=state.environment, namespace=resolved.place.namespace
    )
    members = inventory.of_components(state.components) if resolved.selective else inventory.ordered()

    def fetch(member: Member) -> KubeObject | None:
        live = resolved.cluster.get(ref_of(member))
        return None if live is None else KubeObject(data=_owned(live), component=member.component)

    objects = parallel.whole(parallel.run(fetch, members))
    return replace(
        state,
        objects=tuple(obj for obj in objects if obj is not None),
        notes=(*state.notes, *inventory.notes),
    )


def _owned(live: Data) -> dict[str, Any]:
    """Give what we applied of a live object, with its name, and without the mark of its ApplySet."""
    names = {key: live["metadata"][key] for key in ("name", "namespace") if key in live["metadata"]}
    tree = managed_fields.owned(live)
    owned = managed_fields.project(live, tree) if tree else {}
    metadata = {**owned.get("metadata", {}), **names}
    labels = {key: value for key, value in metadata.pop("labels", {}).items() if key != MEMBER_LABEL}
    metadata |= {"labels": labels} if labels else {}
    return {**owned, "apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": metadata}
