"""What the controller knows of the cluster: fed by watches, and by the answers to its own writes."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mlstack.elastic import facts
from mlstack.elastic.controller import jobs
from mlstack.elastic.controller.jobs import CompanionFacts, CompanionState, JobFacts, SetFacts
from mlstack.elastic.facts import Eligible, NodeFacts, PodFacts, key_of, version
from mlstack.elastic.resources import QuotaFacts, parse_quota
from mlstack.elastic.snapshot import NO_LIMIT, Priority, PriorityGrants
from mlstack.errors import ClusterError
from mlstack.kube.client import ObjectRef, WatchEvent

# Watches that lag behind may tell of an object again for a while after it has gone.
_REMEMBERED = 20_000
_NEVER = sys.maxsize
_FINE = 100  # shares of weights are told apart by hundredths
ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What goes wrong with values of other types than an API promises."""


class Versioned(Protocol):
    """Facts of one object in one version, as a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def uid(self) -> str:
        """Give the UID of the object."""
        ...

    @property
    def version(self) -> int:
        """Give the resource version."""
        ...


T = TypeVar("T", bound=Versioned)


class ResourceStore(Generic[T]):
    """Objects of one kind by `namespace/name`, each parsed once a version.

    Events may come twice and late: from a watch, and before it from the answers to our own writes. The newest
    version wins, and what has gone stays gone, unless the selector of a watch lost sight of it for a while.
    """

    def __init__(self, parse: Callable[[Mapping[str, Any]], T]) -> None:
        self._parse = parse
        self._items: dict[str, T] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()  # by UID: up to which version events are late

    def get(self, key: str) -> T | None:
        """Give what is known under a key."""
        return self._items.get(key)

    def values(self) -> Iterable[T]:
        """Give all facts, in no order that matters."""
        return self._items.values()

    def put(self, obj: Mapping[str, Any]) -> bool:
        """Take in an object as it is now; says whether that changed anything: heartbeats do not."""
        metadata = obj["metadata"]
        key, number = key_of(metadata), version(metadata)
        known = self._items.get(key)
        is_old = known is not None and 0 < number <= known.version
        if is_old or number <= self._gone.get(str(metadata.get("uid")), -1):
            return False
        try:
            item = self._items[key] = self._parse(obj)
        except ODD as error:
            name = f"{obj.get('kind', 'object')} {key}".strip()
            raise ClusterError(
                f"`{name}` cannot be judged: a field has another type than its API gives it"
            ) from error
        return known is None or replace(known, version=item.version) != item

    def drop(self, obj: Mapping[str, Any]) -> bool:
        """Take in that an object has gone; says whether that changed anything."""
        metadata = obj["metadata"]
        self._bury(str(metadata.get("uid") or ""), version(metadata) or _NEVER)
        known = self._items.get(key_of(metadata))
        if known is None or (metadata.get("uid") and known.uid != metadata["uid"]):
            return False
        del self._items[key_of(metadata)]
        return True

    def retain(self, keys: Container[str], listed: int, namespace: str | None) -> bool:
        """Drop what a list in resource version `listed` lacks, unless it is newer; says whether any was."""
        gone = [
            key
            for key, item in self._items.items()
            if key not in keys
            and item.version <= listed
            and (namespace is None or key.startswith(f"{namespace}/"))
        ]
        for key in gone:
            self._bury(self._items.pop(key).uid, listed)
        return bool(gone)

    def _bury(self, uid: str, gone: int) -> None:
        if uid:
            self._gone[uid] = max(gone, self._gone.get(uid, 0))
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassFacts:
    """A PriorityClass."""

    name: str
    value: int
    is_default: bool  # whether pods without a class get it
    uid: str
    version: int


def _parse_class(obj: Mapping[str, Any]) -> ClassFacts:
    metadata = obj["metadata"]
    return ClassFacts(
        name=str(metadata["name"]),
        value=int(obj.get("value") or 0),
        is_default=bool(obj.get("globalDefault")),
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
    )


class ClusterCache:
    """Nodes, pods, priority classes, quotas, training jobs and what is around them, as far as heard of.

    One thread writes and reads; threads that watch hand their events over.
    """

    def __init__(self, grants: PriorityGrants = NO_LIMIT) -> None:
        self._grants = grants
        self._nodes: ResourceStore[NodeFacts] = ResourceStore(facts.parse_node)
        self._pods: ResourceStore[PodFacts] = ResourceStore(facts.parse_pod)
        self._jobs: ResourceStore[JobFacts] = ResourceStore(jobs.parse_job)
        self._sets: ResourceStore[SetFacts] = ResourceStore(jobs.parse_set)
        self._classes: ResourceStore[ClassFacts] = ResourceStore(_parse_class)
        self._services: ResourceStore[CompanionFacts] = ResourceStore(jobs.parse_service)
        self._budgets: ResourceStore[CompanionFacts] = ResourceStore(jobs.parse_budget)
        self._quotas: ResourceStore[QuotaFacts] = ResourceStore(parse_quota)
        self._companions = {"Service": self._services, "PodDisruptionBudget": self._budgets}
        self._stores: Mapping[str, ResourceStore[Any]] = {
            "Node": self._nodes,
            "Pod": self._pods,
            "TrainingJob": self._jobs,
            "StatefulSet": self._sets,
            "PriorityClass": self._classes,
            "ResourceQuota": self._quotas,
            **self._companions,
        }
        self._eligible: Eligible | None = None

    # --- what happens in the cluster ---

    def handle(self, event: WatchEvent) -> bool:
        """Take in one event; says whether it changed anything. Kinds that do not matter are passed over.

        What quotas leave changes with every pod: it is read when it matters, and is no change of its own.
        """
        store = self._stores.get(str(event.object.get("kind")))
        if store is None or event.type == "BOOKMARK":
            return False
        has_changed = store.drop(event.object) if event.type == "DELETED" else store.put(event.object)
        self._forget_eligible(store, has_changed=has_changed)
        return has_changed and store is not self._quotas

    def replace(self, kind: str, items: Iterable[Mapping[str, Any]], version: str) -> bool:
        """Take in a list of all objects of a kind, in its resource version; what it lacks is gone."""
        objects = {key_of(obj["metadata"]): obj for obj in items}
        has_gone = self.retain(kind, objects, version)
        has_changed = any([self._stores[kind].put(obj) for obj in objects.values()]) or has_gone
        self._forget_eligible(self._stores[kind], has_changed=has_changed)
        return has_changed

    def retain(self, kind: str, keys: Container[str], version: str, *, namespace: str | None = None) -> bool:
        """Drop what a list of a kind (of one namespace, or of all) lacks, unless newer than the list."""
        store = self._stores[kind]
        has_changed = store.retain(keys, int(version) if version.isdigit() else 0, namespace)
        self._forget_eligible(store, has_changed=has_changed)
        return has_changed

    def _forget_eligible(self, store: ResourceStore[Any], *, has_changed: bool) -> None:
        if has_changed and store is self._nodes:
            self._eligible = None

    # --- what is there ---

    def jobs(self) -> list[JobFacts]:
        """Give the training jobs by key."""
        return sorted(self._jobs.values(), key=lambda job: job.key)

    def job(self, key: str) -> JobFacts | None:
        """Give one training job."""
        return self._jobs.get(key)

    def has_pod(self, key: str) -> bool:
        """Tell whether there is a pod of that name, however it fares."""
        return self._pods.get(key) is not None

    def pods(self) -> Iterable[PodFacts]:
        """Give all pods."""
        return self._pods.values()

    def pods_by_job(self) -> dict[str, list[PodFacts]]:
        """Give the pods of each job, those that ended included, in the order of their indexes."""
        return self.assign_pods()[0]

    def assign_pods(self) -> tuple[dict[str, list[PodFacts]], list[PodFacts]]:
        """Give the pods of each job, in the order of their indexes, and those of nobody we know.

        A pod is a job's own when its controller is the job, or a StatefulSet whose controller is the job;
        labels alone say nothing.
        """
        owners = {job.uid: job.key for job in self._jobs.values()}
        owners |= {known.uid: owners[known.owner] for known in self._sets.values() if known.owner in owners}
        own: dict[str, list[PodFacts]] = {job.key: [] for job in self._jobs.values()}
        foreign: list[PodFacts] = []
        for pod in self._pods.values():
            key = owners.get(pod.owner, "") if pod.of_training else ""
            (own[key] if key else foreign).append(pod)
        for pods in own.values():
            pods.sort(key=lambda pod: (len(pod.name), pod.name))
        return own, foreign

    def nodes(self) -> list[NodeFacts]:
        """Give the nodes that take pods."""
        return [node for node in self._nodes.values() if node.takes_pods]

    def eligible_nodes(self, shape: str) -> frozenset[str] | None:
        """Give the nodes that pods of a shape may go to, None for all that take pods."""
        if self._eligible is None:
            self._eligible = Eligible(node.place for node in self.nodes())
        return self._eligible.nodes(shape)

    def host_name(self, node: str) -> str:
        """Give the host name of a node as its label has it: what affinity goes by."""
        known = self._nodes.get(node)
        return (known.place.labels if known else {}).get("kubernetes.io/hostname", node)

    def stateful_set(self, key: str) -> SetFacts | None:
        """Give one StatefulSet of a job."""
        return self._sets.get(key)

    def sets_of(self, job: JobFacts) -> dict[str, SetFacts]:
        """Give the StatefulSets that are the job's own, by name."""
        sets = {role.set_name: self._sets.get(f"{job.namespace}/{role.set_name}") for role in job.servers}
        return {name: known for name, known in sets.items() if known is not None and known.owner == job.uid}

    def lacking(self, job: JobFacts) -> dict[ObjectRef, CompanionState]:
        """Tell which Services and budgets of a job are not there, or differ in what matters.

        One that is there but is not the job's own is missing.
        """
        lacking: dict[ObjectRef, CompanionState] = {}
        for ref, form in jobs.companions(job):
            known = self._companions[ref.kind].get(f"{ref.namespace}/{ref.name}")
            if known is None or known.owner != job.uid:
                lacking[ref] = "missing"
            elif jobs.differs(known.form, form):
                lacking[ref] = "changed"
        return lacking

    def needless(self, job: JobFacts) -> dict[ObjectRef, str]:
        """Give what stands around a job that it has no use for, with the UIDs of these very objects.

        That is its budget of trainers where none of them has to be there. Nothing else is ever too much: the
        definition lets no master and no parameter server come or go.
        """
        if job.trainer is None or job.trainer.count:
            return {}
        known = self._budgets.get(f"{job.namespace}/{job.trainer.set_name}")
        if known is None or known.owner != job.uid or known.is_going:
            return {}
        return {ObjectRef(*jobs.BUDGET, job.namespace, job.trainer.set_name): known.uid}

    def quotas(self, namespace: str) -> list[QuotaFacts]:
        """Give the ResourceQuotas of a namespace."""
        return [quota for quota in self._quotas.values() if quota.namespace == namespace]

    # --- priorities and weights ---

    def priority(self, job: JobFacts) -> Priority:
        """Give the priority of a job: what it asks for, and no more than the highest of its namespace.

        That is what the configuration grants, or the highest PriorityClass that a ResourceQuota of the
        namespace names: so Kubernetes says which namespace may use which class (`limitedResources`).
        """
        if job.spec is None:
            return Priority()
        name = job.spec.priority_class
        known = self._classes.get(name) if name else None
        if name and known is None:
            text = f"there is no PriorityClass `{name}`: the job counts with priority 0"
            return Priority(value=min(0, self._highest(job, 0)), asked=0, reason="NoSuchClass", message=text)
        asked = known.value if known is not None else job.spec.priority
        value = min(asked, self._highest(job, asked))
        text = f"PriorityClass `{name}`, {asked}" if name else f"priority {asked}"
        if value < asked:
            text = f"asks for {text}, and counts with {value}, the highest of namespace `{job.namespace}`"
            return Priority(value=value, asked=asked, reason="AboveNamespace", message=text)
        return Priority(value=value, asked=asked, reason="Granted" if name or asked else "", message=text)

    def _highest(self, job: JobFacts, asked: int) -> int:
        """Give the highest priority of a namespace, `asked` where there is no limit."""
        granted = self._grants.highest(job.namespace)
        if granted is None:
            return asked
        names = frozenset[str]().union(*(quota.classes for quota in self.quotas(job.namespace)))
        classes = [self._classes.get(name) for name in names]
        return max([granted, *(known.value for known in classes if known is not None)])

    def class_values(self) -> dict[str, int]:
        """Give the priorities of classes by name; the empty name is the default."""
        classes = list(self._classes.values())
        default = min((known.value for known in classes if known.is_default), default=0)
        return {"": default, **{known.name: known.value for known in classes}}

    def weights(self) -> dict[str, int]:
        """Give the weights of jobs; a namespace has no more of them in all than it has jobs.

        Else one of a million would have the trainers of all other namespaces.
        """
        asked = {job.key: job.spec.weight for job in self._jobs.values() if job.spec and job.wants_pods}
        if self._grants == NO_LIMIT:
            return asked
        namespaces = {key: key.partition("/")[0] for key in asked}
        counts, sums = Counter(namespaces.values()), Counter[str]()
        for key, weight in asked.items():
            sums[namespaces[key]] += weight
        shares = {
            key: max(1, _FINE * weight * counts[namespaces[key]] // sums[namespaces[key]])
            for key, weight in asked.items()
        }
        common = gcd(*shares.values())
        return {key: share // common for key, share in shares.items()}
