"""Which members of an inventory are there now, by as few requests as will do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.model.inventory import Member
from mlstack.model.kinds import Kinds
from mlstack.model.objects import Identity

Live = Mapping[str, Any]
_Group = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was found of some members.

    Attributes:
        members: the members, each in an API version that the server has.
        live: those that are there; metadata alone is sure to be in it.
        hidden: those whose kind the server cannot answer for now, though it may have them.
    """

    members: tuple[Member, ...]
    live: Mapping[Identity, Live]
    hidden: frozenset[Identity] = frozenset()


def survey(cluster: Cluster, members: Iterable[Member]) -> Survey:
    """Look for members; a kind that the server has no more, or in another scope, has no such objects.

    Raises:
        ClusterError: a member could not be asked for.
    """
    kinds = cluster.kinds()
    asked = [replace(one, api_version=_served(one, kinds)) for one in members]
    unserved = [one for one in asked if not one.api_version]
    found = _look(cluster, [one for one in asked if one.api_version])
    return Survey(members=tuple(asked), live=found, hidden=_hidden(cluster, unserved))


def _served(member: Member, kinds: Kinds) -> str:
    """Give the API version to ask for a member in; none where the server has no such kind in its scope."""
    identity = member.identity
    same = kinds.lookup(member.api_version, identity.kind)
    others = (kind for kind in kinds.of_group(identity.group) if kind.kind == identity.kind)
    found = (kind for kind in ([same] if same else others) if kind.namespaced == bool(identity.namespace))
    return next((kind.api_version for kind in found), "")


def _look(cluster: Cluster, members: Sequence[Member]) -> dict[Identity, Live]:
    groups: dict[_Group, list[Member]] = {}
    for one in members:
        groups.setdefault((one.api_version, one.identity.kind, one.identity.namespace), []).append(one)
    tasks = [
        task
        for group in groups.values()
        for task in ([group] if len(group) >= parallel.LIST_FROM else [[one] for one in group])
    ]

    def ask(task: list[Member]) -> list[Live]:
        if len(task) > 1:
            try:
                return _listed(cluster, task)
            except ForbiddenError:  # who may not list may still ask for each
                pass
        return [live for one in task if (live := cluster.get(ref_of(one))) is not None]

    results = parallel.whole(parallel.run(ask, tasks))
    wanted = {ref_of(one): one.identity for one in members}
    lives = [live for result in results for live in result]
    return {wanted[ref]: live for live in lives if (ref := ObjectRef.of(live)) in wanted}


def _listed(cluster: Cluster, group: Sequence[Member]) -> list[Live]:
    first = group[0]
    namespace = first.identity.namespace or None
    try:
        return list(
            cluster.list(
                first.api_version, first.identity.kind, namespace=namespace, metadata_only=True
            ).items
        )
    except ObjectNotFoundError:
        return []


def _hidden(cluster: Cluster, unserved: Sequence[Member]) -> frozenset[Identity]:
    """Give those of a group that another server answers for: it may only be down."""
    if not unserved:
        return frozenset()
    try:
        services = cluster.list("apiregistration.k8s.io/v1", "APIService").items
    except (ObjectNotFoundError, ForbiddenError):
        return frozenset()
    elsewhere = {
        (item.get("spec") or {}).get("group") for item in services if (item.get("spec") or {}).get("service")
    }
    return frozenset(one.identity for one in unserved if one.identity.group in elsewhere)


def ref_of(member: Member) -> ObjectRef:
    """Give the address of a member."""
    identity = member.identity
    return ObjectRef(member.api_version, identity.kind, identity.namespace, identity.name)
