"""What the controller knows of the cluster: fed by watches and by the answers to its own writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from mlstack.cluster.api import ObjectRef, WatchEvent
from mlstack.elastic.config import NO_LIMIT, Priority, PriorityGrants
from mlstack.elastic.observed import jobs, nodes, pods, quotas, surroundings
from mlstack.elastic.observed.jobs import JobFacts, SetFacts
from mlstack.elastic.observed.nodes import NodeFacts
from mlstack.elastic.observed.picture import Known, Picture
from mlstack.elastic.observed.placement import Eligible
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.observed.quotas import QuotaFacts
from mlstack.elastic.observed.shelf import Shelf
from mlstack.elastic.observed.surroundings import AroundFacts
from mlstack.elastic.snapshot import Snapshot

MOVES_KEPT_MS = 60_000
_FINE = 100  # shares of weights are told apart by hundredths


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassFacts:
    """What is known of a PriorityClass.

    Attributes:
        name: its name.
        value: priority of its pods.
        is_default: whether pods without a class get it.
        uid: its UID.
        version: resource version of the object.
    """

    name: str
    value: int
    is_default: bool
    uid: str
    version: int


class World:
    """Nodes, pods, priority classes, training jobs with what is around them, as far as they were heard of.

    One thread writes and reads; threads that watch hand their events over.

    Args:
        grants: which priorities jobs may have.

    Attributes:
        bars: by job: nodes that its trainers pass over, with the time until when; the reconciler writes it.
        failed: by job: trainers that failed and are not to be replaced yet; the reconciler writes it.
        not_before: by job: when it may be admitted again at the earliest; the reconciler writes it.
        refused: by job: why the API server does not take its gang, or more trainers of it; the reconciler
            writes it.
        ceilings: by job: trainers beyond which it is refused more; the reconciler writes it.
        moves_ms: when trainers were moved for fairness alone; the reconciler writes it.
    """

    def __init__(self, grants: PriorityGrants = NO_LIMIT) -> None:
        """Know nothing but what priorities are granted."""
        self._grants = grants
        self.bars: dict[str, dict[str, int]] = {}
        self.failed: Mapping[str, int] = {}
        self.not_before: Mapping[str, int] = {}
        self.refused: Mapping[str, str] = {}
        self.ceilings: Mapping[str, int] = {}
        self.moves_ms: list[int] = []
        self._nodes: Shelf[NodeFacts] = Shelf(nodes.parse)
        self._pods: Shelf[PodFacts] = Shelf(pods.parse)
        self._jobs: Shelf[JobFacts] = Shelf(jobs.parse_job)
        self._sets: Shelf[SetFacts] = Shelf(jobs.parse_set)
        self._classes: Shelf[ClassFacts] = Shelf(_parse_class)
        self._services: Shelf[AroundFacts] = Shelf(surroundings.parse_service)
        self._budgets: Shelf[AroundFacts] = Shelf(surroundings.parse_budget)
        self._quotas: Shelf[QuotaFacts] = Shelf(quotas.parse)
        self._shelves: Mapping[str, Shelf[Any]] = {
            "Node": self._nodes,
            "Pod": self._pods,
            "TrainingJob": self._jobs,
            "StatefulSet": self._sets,
            "PriorityClass": self._classes,
            "Service": self._services,
            "PodDisruptionBudget": self._budgets,
            "ResourceQuota": self._quotas,
        }
        self._eligible: Eligible | None = None

    def hear(self, event: WatchEvent) -> bool:
        """Take in one event; says whether it was news. Kinds that do not matter are passed over.

        What quotas leave changes with every pod: it is read when it matters, and is no news of its own.
        """
        shelf = self._shelves.get(str(event.object.get("kind")))
        if shelf is None or event.type == "BOOKMARK":
            return False
        is_news = shelf.drop(event.object) if event.type == "DELETED" else shelf.put(event.object)
        self._forget(shelf, is_news=is_news)
        return is_news and shelf is not self._quotas

    def hear_of(self, obj: Mapping[str, Any]) -> bool:
        """Take in an object as it is; says whether it was news."""
        return self.hear(WatchEvent(type="MODIFIED", object=obj))

    def replace(self, kind: str, items: Iterable[Mapping[str, Any]], version: str) -> bool:
        """Take in a list of all objects of a kind; what it lacks is gone, unless it is newer than the list.

        Args:
            kind: the kind.
            items: all objects there were.
            version: resource version of the list.
        """
        shelf = self._shelves[kind]
        is_news = shelf.replace(items, int(version) if version.isdigit() else 0)
        self._forget(shelf, is_news=is_news)
        return is_news

    def keep(self, kind: str, keys: Container[str], version: str, *, namespace: str | None = None) -> bool:
        """Take in which objects of a kind there are; the rest is gone, unless it is newer than the list.

        Args:
            kind: the kind.
            keys: `namespace/name` of all there were.
            version: resource version of the list.
            namespace: the one that was listed, None for all.
        """
        shelf = self._shelves[kind]
        is_news = shelf.keep(keys, int(version) if version.isdigit() else 0, namespace=namespace)
        self._forget(shelf, is_news=is_news)
        return is_news

    def jobs(self) -> list[JobFacts]:
        """Give the training jobs by key."""
        return sorted(self._jobs.values(), key=lambda job: job.key)

    def job(self, key: str) -> JobFacts | None:
        """Give one training job."""
        return self._jobs.get(key)

    def has_pod(self, key: str) -> bool:
        """Tell whether there is a pod of that name, however it fares."""
        return self._pods.get(key) is not None

    def host_name(self, node: str) -> str:
        """Give the host name of a node as its label has it: what affinity goes by."""
        found = self._nodes.get(node)
        return (found.place.labels if found else {}).get("kubernetes.io/hostname", node)

    def stateful_set(self, key: str) -> SetFacts | None:
        """Give one StatefulSet of a job."""
        return self._sets.get(key)

    def lacking(self, job: JobFacts) -> dict[ObjectRef, surroundings.State]:
        """Tell which Services and budgets of a job are not there, or not in their form."""
        found = surroundings.lacking(job, lambda kind, key: self._shelves[kind].get(key))
        return {
            ObjectRef(api_version, kind, job.namespace, name): state
            for (api_version, kind, name), state in found.items()
        }

    def needless(self, job: JobFacts) -> dict[ObjectRef, str]:
        """Give what stands around a job that it has no use for, with the UIDs of these very objects."""
        facts = surroundings.needless(job, lambda kind, key: self._shelves[kind].get(key))
        if facts is None:
            return {}
        name = facts.key.rpartition("/")[2]
        return {ObjectRef(*surroundings.BUDGET, job.namespace, name): facts.uid}

    def quotas(self, namespace: str) -> list[QuotaFacts]:
        """Give the ResourceQuotas of a namespace."""
        return [quota for quota in self._quotas.values() if quota.namespace == namespace]

    def priority(self, job: JobFacts) -> Priority:
        """Give the priority of a job: what it asks for, and no more than the highest of its namespace.

        That is what the configuration grants, or the highest PriorityClass that a ResourceQuota of the
        namespace names: so Kubernetes says which namespace may use which class (`limitedResources`).
        """
        wanted = job.spec
        if wanted is None:
            return Priority()
        name = wanted.priority_class
        known = self._classes.get(name) if name else None
        if name and known is None:
            text = f"there is no PriorityClass `{name}`: the job counts with priority 0"
            return Priority(value=min(0, self._highest(job, 0)), asked=0, reason="NoSuchClass", message=text)
        asked = known.value if known is not None else wanted.priority
        value = min(asked, self._highest(job, asked))
        said = f"PriorityClass `{name}`, {asked}" if name else f"priority {asked}"
        if value < asked:
            text = f"asks for {said}, and counts with {value}, the highest of namespace `{job.namespace}`"
            return Priority(value=value, asked=asked, reason="AboveNamespace", message=text)
        return Priority(value=value, asked=asked, reason="Granted" if name or asked else "", message=said)

    def _highest(self, job: JobFacts, asked: int) -> int:
        """Give the highest priority of a namespace, `asked` where there is no limit."""
        granted = self._grants.highest(job.namespace)
        if granted is None:
            return asked
        named = frozenset[str]().union(*(quota.classes for quota in self.quotas(job.namespace)))
        classes = [self._classes.get(name) for name in named]
        return max([granted, *(known.value for known in classes if known is not None)])

    def pods_by_job(self) -> dict[str, list[PodFacts]]:
        """Give the pods of each job, those that ended included, in the order of their indexes.

        A pod is a job's own when its controller is the job, or a StatefulSet whose controller is the job;
        labels alone say nothing.
        """
        return self._sorted()[0]

    def pods(self) -> Iterable[PodFacts]:
        """Give all pods."""
        return self._pods.values()

    def nodes(self) -> list[NodeFacts]:
        """Give the nodes that take pods."""
        return [node for node in self._nodes.values() if node.takes_pods]

    def snapshot(self, now_ms: int) -> Snapshot:
        """Give the moment as a policy reads it."""
        taking = self.nodes()
        if self._eligible is None:
            self._eligible = Eligible(node.place for node in taking)
        own, foreign = self._sorted()
        known = Known(
            nodes=taking,
            own=own,
            foreign=foreign,
            jobs=dict(self._jobs),
            sets=dict(self._sets),
            priorities=self._priorities(),
            weights=self._weights(),
            ranks={job.key: self.priority(job).value for job in self._jobs.values()},
            bars=self.bars,
            failed=self.failed,
            not_before=self.not_before,
            refused=self.refused,
            ceilings=self.ceilings,
            moves_ms=[moved for moved in self.moves_ms if now_ms - moved <= MOVES_KEPT_MS],
            eligible=self._eligible,
        )
        return Picture(known, now_ms).draw()

    def _sorted(self) -> tuple[dict[str, list[PodFacts]], list[PodFacts]]:
        """Give the pods of each job, and those of nobody we know."""
        owners = {job.uid: job.key for job in self._jobs.values()}
        owners |= {found.uid: owners[found.owner] for found in self._sets.values() if found.owner in owners}
        own: dict[str, list[PodFacts]] = {job.key: [] for job in self._jobs.values()}
        foreign: list[PodFacts] = []
        for pod in self._pods.values():
            key = owners.get(pod.owner, "") if pod.of_training else ""
            (own[key] if key else foreign).append(pod)
        for pods_of_job in own.values():
            pods_of_job.sort(key=lambda pod: (len(pod.name), pod.name))
        return own, foreign

    def _weights(self) -> dict[str, int]:
        """Give the weights of jobs; a namespace has no more of them in all than it has jobs.

        Else one of a million would have the trainers of all other namespaces.
        """
        asked = {job.key: job.spec.weight for job in self._jobs.values() if job.spec and job.wants_pods}
        if self._grants == NO_LIMIT:
            return asked
        sums, counts = Counter[str](), Counter[str]()
        for key, weight in asked.items():
            sums[key.partition("/")[0]] += weight
            counts[key.partition("/")[0]] += 1
        shares = {
            key: max(1, _FINE * weight * counts[namespace] // sums[namespace])
            for key, weight in asked.items()
            for namespace in [key.partition("/")[0]]
        }
        common = gcd(*shares.values())
        return {key: share // common for key, share in shares.items()}

    def _priorities(self) -> dict[str, int]:
        found = {one.name: one.value for one in self._classes.values()}
        defaults = [one.value for one in self._classes.values() if one.is_default]
        return {"": min(defaults, default=0), **found}

    def _forget(self, shelf: Shelf[Any], *, is_news: bool) -> None:
        """Work out anew which nodes pods may go to once nodes have changed."""
        if is_news and shelf is self._nodes:
            self._eligible = None


def _parse_class(obj: Mapping[str, Any]) -> ClassFacts:
    metadata = obj["metadata"]
    return ClassFacts(
        name=str(metadata["name"]),
        value=int(obj.get("value") or 0),
        is_default=bool(obj.get("globalDefault")),
        uid=str(metadata.get("uid") or ""),
        version=nodes.version(metadata),
    )
