"""Any two environments side by side: what their files say, and what their clusters have."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.cluster.api import Cluster, Opener
from mlstack.engine import comparison, parallel
from mlstack.engine.records import inventory as inventories
from mlstack.engine.records.survey import ref_of
from mlstack.engine.target import Reached, Target, reach
from mlstack.model import applyset, fields, history, report, sides
from mlstack.model.app import Environment
from mlstack.model.diff import Change
from mlstack.model.inventory import Member
from mlstack.model.objects import MANAGER, DesiredState, Identity, KubeObject
from mlstack.model.options import ApplyOptions
from mlstack.model.sides import Side

_ASKING = ApplyOptions(dry_run=True)


def compare(
    target: Target, left: Side, right: Side, *, opener: Opener
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
    if left.where == right.where:
        return _alike(target, left, right, opener)
    if right.where == "local":
        return _against_cluster(target, right, left, opener)
    changes, notes = _against_cluster(target, left, right, opener)
    return tuple(sides.turned(change) for change in changes), notes


def _target(target: Target, side: Side) -> Target:
    return replace(target, environment=side.environment)


def _alike(
    target: Target, left: Side, right: Side, opener: Opener
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    (before, here), (after, there) = (_state(_target(target, side), side, opener) for side in (left, right))
    secrets = (*before.secrets, *after.secrets)
    changes = tuple(
        replace(change, fields=report.veiled(change.fields, secrets))
        for change in history.compared(sides.moved_to(before, here, there), after)
    )
    return changes, tuple(dict.fromkeys((*before.notes, *after.notes)))


def _against_cluster(
    target: Target, files: Side, live: Side, opener: Opener
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Compare with a cluster what one side's files say, as if they were of the environment there."""
    wanted = _target(target, files)
    place = _place(wanted)
    goal = _target(target, live)
    state = sides.moved_to(wanted.desired(), place, _place(goal))
    found = comparison.compare(reach(goal, opener, state=state), _ASKING)
    own = Identity("", "Namespace", "", state.namespace)  # which an apply would make first
    changes = found.changes.changes
    shown = (replace(one, fields=report.veiled(one.fields, state.secrets)) for one in changes)
    return tuple(one for one in shown if one.component or one.identity != own), state.notes


def _place(target: Target) -> Environment:
    return target.app.environment(target.environment)


def _state(target: Target, side: Side, opener: Opener) -> tuple[DesiredState, Environment]:
    place = _place(target)
    return (target.desired() if side.where == "local" else live_state(reach(target, opener))), place


def live_state(reached: Reached) -> DesiredState:
    """Give what we own of the objects that an environment has in its cluster."""
    state = reached.state
    inventory = inventories.known(
        reached.cluster, app=state.app, environment=state.environment, namespace=reached.place.namespace
    )
    members = inventory.of_components(state.components) if reached.selective else inventory.ordered()
    return replace(state, objects=_live(reached.cluster, members), notes=(*state.notes, *inventory.notes))


def _live(cluster: Cluster, members: Sequence[Member]) -> tuple[KubeObject, ...]:
    def look(member: Member) -> KubeObject | None:
        live = cluster.get(ref_of(member))
        return None if live is None else KubeObject(data=_owned(live), component=member.component)

    return tuple(live for live in parallel.whole(parallel.run(look, members)) if live is not None)


def _owned(live: Mapping[str, Any]) -> dict[str, Any]:
    """Give what we applied of a live object, with its name, and without the mark of its ApplySet."""
    names = {key: live["metadata"][key] for key in ("name", "namespace") if key in live["metadata"]}
    tree = fields.owned(live, MANAGER)
    found = fields.project(live, tree) if tree else {}
    metadata = {**found.get("metadata", {}), **names}
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key != applyset.MEMBER_LABEL}
    return {
        **found,
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": {**metadata, **({"labels": labels} if labels else {})},
    }
