"""What lists of metadata alone tell of a run's objects: which are not there, which are as we left them.

Whoever changes or removes a value that we applied takes its path from our entry in `managedFields`. So an
object whose UID and whose entry are as they were after our last write, and of which we want what we sent
then, is as we want it: no dry run is needed, and none of a definition, which takes seconds.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.engine import parallel
from mlstack.model import adoption, objects
from mlstack.model.inventory import Inventory, Member, owned_hash, payload_hash, shared_hash
from mlstack.model.objects import DesiredState, Identity, KubeObject

Group = tuple[str, str, str]
"""API version, kind and namespace."""
Payload = Callable[[KubeObject], Mapping[str, Any]]


class Known:
    """What is known of the objects of a run before any of them is looked at.

    Args:
        cluster: where to look; nothing is written.
        state: whose marks our objects carry.
        inventory: hashes of the last write; None if there are none.
        adopt: whether objects that other tools applied as well are to be looked at.
    """

    def __init__(
        self, cluster: Cluster, state: DesiredState, inventory: Inventory | None, *, adopt: bool
    ) -> None:
        """Begin with nothing read."""
        self._cluster, self._adopt = cluster, adopt
        self._marks = objects.selector(app=state.app, environment=state.environment)
        self._members: Mapping[Identity, Member] = inventory.members if inventory else {}
        self._candidates: dict[Identity, Member] = {}
        self._metadata: dict[Identity, Mapping[str, Any]] = {}
        self._listed: set[Group] = set()

    def look_around(self, wanted: Sequence[KubeObject], payload: Payload) -> None:
        """List the metadata of kinds that the run has many objects of, or some that may be unchanged.

        Args:
            wanted: objects that the server can be asked about.
            payload: gives what would be sent of one.
        """
        for found in wanted:
            member = self._members.get(found.identity)
            if member and member.payload_hash and member.uid and _fits(member, found, payload):
                self._candidates[found.identity] = member
        many = set(large_groups(wanted))
        hopeful = {_group(found) for found in wanted if found.identity in self._candidates}
        groups = sorted(many | hopeful)
        lists = parallel.run(lambda group: self._list(group, every=group in many), groups)
        for group, items in zip(groups, lists, strict=True):
            if isinstance(items, tuple):  # whoever may not list asks for each object
                self._listed.update([group] if group in many else ())
                for item in items:
                    self._metadata[_identity(group, item)] = item

    def _list(self, group: Group, *, every: bool) -> tuple[Mapping[str, Any], ...]:
        api_version, kind, namespace = group
        return self._cluster.list(
            api_version,
            kind,
            namespace=namespace or None,
            labels="" if every else self._marks,
            metadata_only=True,
        ).items

    def is_absent(self, found: KubeObject) -> bool:
        """Tell whether an object is known not to be there."""
        return _group(found) in self._listed and found.identity not in self._metadata

    def unchanged(self, found: KubeObject) -> Mapping[str, Any] | None:
        """Give the metadata of an object that is known to be as we want it, None if that is not known."""
        item = self._metadata.get(found.identity)
        return item if item is not None and self.is_as_left(found, item) else None

    def is_as_left(self, found: KubeObject, live: Mapping[str, Any]) -> bool:
        """Tell whether a live object is what we left, and we want what we sent then."""
        member = self._candidates.get(found.identity)
        metadata = live["metadata"]
        if member is None or metadata.get("uid") != member.uid or metadata.get("deletionTimestamp"):
            return False
        if not found.labels.items() <= (metadata.get("labels") or {}).items():
            # Another environment writes the same fields under the same name.
            return bool(member.owned_hash) and not self._adopt and shared_hash(live) == member.owned_hash
        if self._adopt and adoption.adoptable(live):
            return False
        return bool(member.owned_hash) and owned_hash(live) == member.owned_hash


def large_groups(wanted: Sequence[KubeObject]) -> list[Group]:
    """Give the groups of which there are so many objects that a list is cheaper than asking for each."""
    counts = Counter(_group(found) for found in wanted)
    return sorted(group for group, count in counts.items() if count >= parallel.LIST_FROM)


def _fits(member: Member, found: KubeObject, payload: Payload) -> bool:
    same = member.api_version == found.api_version
    return same and payload_hash(payload(found)) == member.payload_hash


def _group(found: KubeObject) -> Group:
    return found.api_version, found.kind, found.namespace


def _identity(group: Group, item: Mapping[str, Any]) -> Identity:
    api_version, kind, _ = group
    metadata = item["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    return Identity(objects.group_of(api_version), kind, namespace, name)
