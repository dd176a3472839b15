"""Find the objects of an environment by their marks, over every kind there is: a repair, not the rule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.engine import parallel
from mlstack.errors import ForbiddenError, InvalidError, MlstackError, ObjectNotFoundError
from mlstack.model import objects, pruning
from mlstack.model.inventory import Inventory, Member
from mlstack.model.kinds import Kind
from mlstack.model.objects import Identity

# Kinds that no app brings, or whose objects only controllers write; some of them there are very many of.
_LEFT_OUT = frozenset(
    {("", "Event"), ("events.k8s.io", "Event"), ("", "Node"), ("discovery.k8s.io", "EndpointSlice")}
)

_NAMED = 8  # kinds that a note names; who has one namespace may list hardly any


def scan(cluster: Cluster, inventory: Inventory) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Give the members that carry our marks and are ours by their field manager, and what could not be seen.

    Marks alone do not make a member: controllers copy labels to what they make (a Service's to its
    Endpoints). Objects of a set with another ID belong to the same environment in another namespace.

    Args:
        cluster: where to look; nothing is written.
        inventory: whose members are looked for.
    """
    items, notes = marked(cluster, inventory)
    members = [member_of(item) for item in items if is_ours(item, inventory)]
    return tuple({member.identity: member for member in members}.values()), notes


def marked(cluster: Cluster, inventory: Inventory) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Give the metadata of every object with our marks, whoever set them, and what could not be seen."""
    query = objects.selector(app=inventory.app, environment=inventory.environment)

    def look(kind: Kind) -> Sequence[Mapping[str, Any]]:
        return _items(cluster, kind, f"{query},{objects.COMPONENT_LABEL}", inventory.namespace)

    items, unseen = _gathered(list(_kinds(cluster)), look)
    return items, (f"{unseen}: such objects may be missed",) if unseen else ()


def contents(cluster: Cluster, namespace: str) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Give the metadata of all that a namespace holds but Events and Leases, and what may not be listed.

    Args:
        cluster: where to look; nothing is written.
        namespace: name of the namespace.
    """

    def look(kind: Kind) -> Sequence[Mapping[str, Any]]:
        return cluster.list(kind.api_version, kind.kind, namespace=namespace, metadata_only=True).items

    kinds = [kind for kind in _kinds(cluster) if kind.namespaced and kind.kind != "Lease"]
    return _gathered(kinds, look)


def _gathered(
    kinds: Sequence[Kind], look: Callable[[Kind], Sequence[Mapping[str, Any]]]
) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Give the objects of many kinds, and which kinds may not be listed."""
    found: dict[str, Mapping[str, Any]] = {}
    unseen: list[str] = []
    for kind, items in zip(kinds, parallel.run(look, kinds), strict=True):
        if isinstance(items, MlstackError):
            if isinstance(items, ForbiddenError):
                unseen.append(kind.kind)
            elif not isinstance(items, ObjectNotFoundError | InvalidError):
                raise items
            continue
        for item in items:  # an object may be served by two groups; what is only computed has no UID
            if item["metadata"].get("uid"):
                found.setdefault(item["metadata"]["uid"], item)
    return tuple(found.values()), f"no right to list {_listed(sorted(unseen))}" if unseen else ""


def _listed(kinds: Sequence[str]) -> str:
    more = f" and {len(kinds) - _NAMED} more kinds" if len(kinds) > _NAMED else ""
    return f"{', '.join(kinds[:_NAMED])}{more}"


def _kinds(cluster: Cluster) -> Iterator[Kind]:
    seen = set(_LEFT_OUT)
    for kind in cluster.kinds():
        if (kind.group, kind.kind) not in seen:
            seen.add((kind.group, kind.kind))
            yield kind


def _items(cluster: Cluster, kind: Kind, query: str, namespace: str) -> Sequence[Mapping[str, Any]]:
    try:
        return cluster.list(kind.api_version, kind.kind, labels=query, metadata_only=True).items
    except ForbiddenError:
        if not kind.namespaced:
            raise
    # Who may not look everywhere may still look here.
    return cluster.list(
        kind.api_version, kind.kind, namespace=namespace, labels=query, metadata_only=True
    ).items


def is_ours(live: Mapping[str, Any], inventory: Inventory) -> bool:
    """Tell whether an object was applied by us, for this environment."""
    owned = live["metadata"].get("ownerReferences")
    return not owned and pruning.is_applied_by_us(live) and not pruning.whose(live, inventory)


def member_of(live: Mapping[str, Any]) -> Member:
    """Give a live object as a member."""
    metadata = live["metadata"]
    identity = Identity(
        objects.group_of(str(live["apiVersion"])),
        str(live["kind"]),
        str(metadata.get("namespace") or ""),
        str(metadata["name"]),
    )
    component = str((metadata.get("labels") or {}).get(objects.COMPONENT_LABEL, ""))
    return Member(
        identity=identity, api_version=str(live["apiVersion"]), component=component, uid=str(metadata["uid"])
    )
