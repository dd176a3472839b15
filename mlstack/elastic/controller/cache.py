"""Objects of one kind by name, each parsed once a version, deaf to what is older than what it knows."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mlstack.elastic import facts, snapshot
from mlstack.elastic.controller import jobs
from mlstack.elastic.controller import jobs as surroundings
from mlstack.elastic.controller.jobs import AroundFacts, JobFacts, ObservedKind, SetFacts
from mlstack.elastic.facts import BASIC, Amounts, Eligible, NodeFacts, PodFacts, QuotaFacts, vector, version
from mlstack.elastic.snapshot import (
    NO_LIMIT,
    Arriving,
    Demand,
    Held,
    Job,
    JobState,
    Node,
    Priority,
    PriorityGrants,
    Role,
    Snapshot,
    Trainer,
)
from mlstack.elastic.training_job import TrainingJob
from mlstack.errors import ClusterError
from mlstack.kube.client import ObjectRef, WatchEvent

# --- Objects of one kind by name, each parsed once a version, deaf to what is older than what it
# knows

# Watches that lag behind may tell of an object again for a while after it has gone.
_REMEMBERED = 20_000
_NEVER = sys.maxsize
ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What goes wrong with values of other types than an API promises."""


class Versioned(Protocol):
    """What is kept on a shelf: facts of one object in one version, as a dataclass."""

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
    """Objects of one kind.

    News may come twice and late: from a watch, and before it from the answers to our own writes. The newest
    version wins, and what has gone stays gone, unless the selector of a watch lost sight of it for a while.
    """

    def __init__(self, parse: Callable[[Mapping[str, Any]], T]) -> None:
        self._parse = parse
        self._items: dict[str, T] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """Go through keys and facts, in no order that matters."""
        return iter(self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> T | None:
        """Give what is known under a key."""
        return self._items.get(key)

    def values(self) -> Iterable[T]:
        """Give all facts."""
        return self._items.values()

    def put(self, obj: Mapping[str, Any]) -> bool:
        """Take in an object as it is now; says whether that was news: heartbeats are none."""
        metadata = obj["metadata"]
        key, number = key_of(metadata), version(metadata)
        known = self._items.get(key)
        is_old = known is not None and 0 < number <= known.version
        if is_old or number <= self._gone.get(str(metadata.get("uid")), -1):
            return False
        try:
            item = self._items[key] = self._parse(obj)
        except ODD as error:
            said = f"{obj.get('kind', 'object')} {key}".strip()
            raise ClusterError(
                f"`{said}` cannot be judged: a field has another type than its API gives it"
            ) from error
        return known is None or replace(known, version=item.version) != item

    def drop(self, obj: Mapping[str, Any]) -> bool:
        """Take in that an object has gone; says whether that was news."""
        metadata = obj["metadata"]
        self._bury(str(metadata.get("uid") or ""), version(metadata) or _NEVER)
        known = self._items.get(key_of(metadata))
        if known is None or (metadata.get("uid") and known.uid != metadata["uid"]):
            return False
        del self._items[key_of(metadata)]
        return True

    def replace(self, objects: Iterable[Mapping[str, Any]], listed: int) -> bool:
        """Take in a list; what it lacks has gone, unless it is newer than the list."""
        found = {key_of(obj["metadata"]): obj for obj in objects}
        has_gone = self.keep(found.keys(), listed)
        return any([self.put(obj) for obj in found.values()]) or has_gone

    def keep(self, keys: Container[str], listed: int, *, namespace: str | None = None) -> bool:
        """Take in what there is; the rest has gone, unless it is newer than the list."""
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
        """Remember up to which version news of an object are late."""
        if uid:
            self._gone[uid] = max(gone, self._gone.get(uid, 0))
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


def key_of(metadata: Mapping[str, Any]) -> str:
    """Give `namespace/name`, or the name alone of what has no namespace."""
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


# --- From what is known of nodes, pods and jobs to the snapshot that a policy reads ---


@dataclass(frozen=True, kw_only=True)
class KnownJobs:
    """All that is known at one moment."""

    nodes: Sequence[NodeFacts]  # those that take pods
    own: Mapping[str, Sequence[PodFacts]]  # pods of jobs, by the key of their job
    foreign: Sequence[PodFacts]  # all other pods
    jobs: Mapping[str, JobFacts]  # by key
    sets: Mapping[str, SetFacts]  # StatefulSets by key
    priorities: Mapping[str, int]  # of priority classes by name; the empty name is the default
    weights: Mapping[str, int]  # by job: its share when jobs of one priority share
    ranks: Mapping[str, int]  # by job: its priority among jobs
    # by job: nodes that are passed over for its trainers, and until when
    bars: Mapping[str, Mapping[str, int]]
    failed: Mapping[str, int]  # by job: trainers that failed and are not to be replaced yet
    not_before: Mapping[str, int]  # by job: when it may be admitted again at the earliest
    refused: Mapping[str, str]  # by job: why the API server does not take its gang, or more trainers of it
    ceilings: Mapping[str, int]  # by job: trainers beyond which it is refused more
    moves_ms: Sequence[int]  # when trainers were last moved for fairness alone
    eligible: Eligible  # tells which nodes a pod may go to


def resources_of(
    pods: Iterable[PodFacts], jobs: Iterable[JobFacts], nodes: Iterable[NodeFacts]
) -> tuple[str, ...]:
    """Give the resources that matter: those that every pod takes, that some ask for, and all devices.

    A node with GPUs is one also while nobody asks for them: who asks next finds it free of others.
    Ports of nodes matter only where jobs or pods that wait for room ask for them: else room would be made
    for a pod on nodes whose port others keep.
    """
    present = [pod for pod in pods if not pod.ending]
    held = [pod.requests for pod in present]
    wanted = [kind.requests for job in jobs for kind in (*job.servers, job.trainer) if kind]
    wanted += [pod.requests for pod in present if not pod.node and pod.wants_room]
    ports = {name for each in wanted for name in each if snapshot.is_key(name)}
    names = {name for name in set[str]().union(*held, *wanted) if not snapshot.is_key(name)}
    names.update(*(node.devices for node in nodes))
    names.update(_told_apart(ports, [*wanted, *held]) if ports else ())
    return (*BASIC, *sorted(names.difference(BASIC)))


def _told_apart(ports: Set[str], requests: Iterable[Amounts]) -> Iterable[str]:
    """Give one of those ports that are always asked for together: a job may ask for hundreds."""
    askers: dict[str, list[int]] = {port: [] for port in sorted(ports)}
    for number, each in enumerate(requests):
        for port in ports & each.keys():
            askers[port].append(number)
    return {tuple(who): port for port, who in askers.items()}.values()


def state_of(job: JobFacts, pods: Iterable[PodFacts]) -> JobState:
    """Tell how far a job has come: finishing from its first success on."""
    if job.phase == "Completing" or any(pod.ending == "succeeded" for pod in pods):
        return "finishing"
    return "admitted" if job.target > 0 else "waiting"


def is_paused(job: JobFacts, pods: Iterable[PodFacts], now_ms: int) -> bool:
    """Tell whether a master or parameter server is lost for now, so that trainers can only wait.

    A StatefulSet makes a pod anew when the old one is gone for sure. On a node that no longer answers nobody
    knows: a person has to say so.
    """
    is_admitted = job.wants_pods and job.target > 0
    return is_admitted and any(pod.role != "trainer" and pod.is_overdue(now_ms) for pod in pods)


class SnapshotBuilder:
    """Draws one snapshot."""

    def __init__(self, known: KnownJobs, now_ms: int) -> None:
        self._known, self._now_ms = known, now_ms
        everybody = chain(known.foreign, *known.own.values())
        self._names = resources_of(everybody, known.jobs.values(), known.nodes)
        self._ports = {name: 1 for name in self._names if snapshot.is_key(name)}
        self._taking = {node.place.name for node in known.nodes}
        self._used: dict[str, list[int]] = {name: [0] * len(self._names) for name in self._taking}
        self._arriving: list[Arriving] = []
        self._demands: list[Demand] = []

    def draw(self) -> Snapshot:
        """Give the snapshot."""
        for pod in self._known.foreign:
            self._take_foreign(pod)
        jobs = [self._job(job) for job in self._known.jobs.values()]
        return Snapshot(
            now_ms=self._now_ms,
            resources=self._names,
            nodes=tuple(self._nodes()),
            demands=tuple(sorted(self._demands, key=lambda demand: demand.key)),
            arriving=tuple(sorted(self._arriving, key=lambda room: (room.node, room.at_ms, room.request))),
            jobs=tuple(sorted((job for job in jobs if job is not None), key=lambda job: job.key)),
            moves_ms=tuple(self._known.moves_ms),
        )

    def _nodes(self) -> Iterable[Node]:
        for node in sorted(self._known.nodes, key=lambda node: node.place.name):
            name = node.place.name
            offered = vector({**node.allocatable, **self._ports}, self._names)
            devices = vector(node.devices, self._names)
            yield Node(name=name, allocatable=offered, used=tuple(self._used[name]), devices=devices)

    def _take_foreign(self, pod: PodFacts) -> None:
        """Count a pod that is no part of a job of ours."""
        if pod.ending:
            return
        if pod.node:
            self._hold(pod, is_leaving=pod.gone_ms is not None)
        elif pod.gone_ms is None and pod.wants_room:
            self._demands.append(self._demand(pod, ""))

    def _hold(self, pod: PodFacts, *, is_leaving: bool) -> None:
        """Count the room of a bound pod, as held or as about to come free."""
        if pod.node not in self._taking:
            return
        if is_leaving:
            at_ms = pod.gone_ms if pod.gone_ms is not None else self._now_ms + pod.grace_ms
            self._arriving.append(
                Arriving(node=pod.node, request=vector(pod.requests, self._names), at_ms=at_ms)
            )
            return
        used = self._used[pod.node]
        for index, name in enumerate(self._names):
            used[index] += pod.requests.get(name, 0)

    def _demand(self, pod: PodFacts, job: str) -> Demand:
        nodes = self._known.eligible.nodes(pod.shape)
        if pod.nominated in self._taking and (nodes is None or pod.nominated in nodes):
            # The scheduler makes room for it there already: more victims elsewhere would be too many.
            nodes = frozenset((pod.nominated,))
        return Demand(
            key=pod.key,
            request=vector(pod.requests, self._names),
            priority=self._priority(pod.priority, pod.priority_class),
            created_ms=pod.created_ms,
            job=job,
            nodes=nodes,
        )

    def _priority(self, priority: int | None, name: str) -> int:
        if priority is not None:
            return priority
        return self._known.priorities.get(name, self._known.priorities.get("", 0) if not name else 0)

    def _job(self, job: JobFacts) -> Job | None:
        """Give a job as the policy sees it, None where it takes no part; its pods are counted either way."""
        pods = self._known.own.get(job.key, ())
        if job.spec is None or job.trainer is None:
            self._count_staying(pods)
            return None
        if not job.wants_pods:
            self._count_leaving(pods)
            return None
        state = state_of(job, (pod for pod in pods if pod.role == "trainer"))
        if state == "admitted" and is_paused(job, pods, self._now_ms):
            self._count_staying([pod for pod in pods if pod.role != "trainer"])
            self._count_leaving([pod for pod in pods if pod.role == "trainer"])
            return None
        has_pods = state != "waiting"
        if has_pods:
            self._count_servers(job, [pod for pod in pods if pod.role != "trainer"])
        else:
            self._count_leaving(pods)
        live = [pod for pod in pods if pod.role == "trainer" and pod.is_live] if has_pods else []
        leaving = [
            pod for pod in pods if pod.role == "trainer" and not pod.ending and pod.gone_ms is not None
        ]
        if has_pods:
            self._count_leaving(leaving)
        wanted = job.spec
        minimum, maximum = self._range(wanted)
        return Job(
            key=job.key,
            minimum=minimum,
            maximum=maximum,
            floor=wanted.trainer.minimum if wanted.is_manual else None,
            trainer=vector(job.trainer.requests, self._names),
            gang=tuple(
                Role(name=kind.role, count=kind.count, request=vector(kind.requests, self._names))
                for kind in job.servers
            ),
            priority=self._known.ranks[job.key],
            pod_priority=self._priority(None, job.trainer.priority_class),
            weight=self._known.weights[job.key],
            created_ms=wanted.created_ms,
            state=state,
            target=job.target,
            trainers=tuple(sorted((_as_trainer(job, pod) for pod in live), key=lambda trainer: trainer.name)),
            lacks_meeting=has_pods and self._lacks_meeting(job, pods),
            not_before_ms=self._known.not_before.get(job.key, 0),
            refused=self._known.refused.get(job.key, ""),
            nodes=self._known.eligible.nodes(job.trainer.shape),
            barred={
                node: until
                for node, until in self._known.bars.get(job.key, {}).items()
                if until > self._now_ms
            },
            cooldown_ms=wanted.cooldown_s * 1000,
            changed_ms=job.changed_ms,
            curve=job.curve,
            speed=wanted.speed,
            leaving=len(leaving),
            failed=self._known.failed.get(job.key, 0),
            held=self._held(pods) if has_pods else (),
        )

    def _range(self, wanted: TrainingJob) -> tuple[int, int]:
        """Give the fewest and most trainers of a job, without those that the API server does not take."""
        ceiling = max(self._known.ceilings.get(wanted.key, wanted.maximum), wanted.trainer.minimum, 1)
        return min(wanted.minimum, ceiling), min(wanted.maximum, ceiling)

    def _lacks_meeting(self, job: JobFacts, pods: Iterable[PodFacts]) -> bool:
        """Tell whether the trainer is gone at which the others meet, and a new one would take its place.

        While its name is taken, as by a pod on a node that does not answer, a new one would get another.
        """
        if not job.meeting or self._known.failed.get(job.key):
            return False
        if any(pod.name == job.meeting and not pod.ending for pod in pods):
            return False
        key = f"{job.namespace}/{job.meeting}"
        return not any(pod.key == key for pod in self._known.foreign)

    def _count_staying(self, pods: Iterable[PodFacts]) -> None:
        """Count pods of a job that nobody can read: nothing is done about them."""
        for pod in pods:
            if pod.holds_room:
                self._hold(pod, is_leaving=pod.gone_ms is not None)

    def _count_leaving(self, pods: Iterable[PodFacts]) -> None:
        """Count pods of ours that go, or that will be made to."""
        for pod in pods:
            if pod.holds_room:
                self._hold(pod, is_leaving=True)

    def _count_servers(self, job: JobFacts, pods: Iterable[PodFacts]) -> None:
        """Count master and parameter servers: those that run, that wait, that are not there yet."""
        live: dict[str, PodFacts] = {}
        for pod in pods:
            if pod.is_live:
                live[pod.name] = pod
            if pod.holds_room:
                self._hold(pod, is_leaving=pod.gone_ms is not None)
        for kind in job.servers:
            for index in range(kind.count):
                pod_facts = live.get(f"{kind.set_name}-{index}")
                if pod_facts is None:
                    self._demands.append(self._unseen(job, kind, index))
                elif not pod_facts.node:
                    self._demands.append(self._demand(pod_facts, job.key))

    def _held(self, pods: Iterable[PodFacts]) -> tuple[Held, ...]:
        """Give what bound masters and parameter servers hold; their nodes count it as used."""
        found = [
            Held(node=pod.node, request=vector(pod.requests, self._names))
            for pod in pods
            if pod.role != "trainer" and pod.is_live and pod.node in self._taking
        ]
        return tuple(sorted(found, key=lambda held: (held.node, held.request)))

    def _unseen(self, job: JobFacts, kind: ObservedKind, index: int) -> Demand:
        """Give a demand for a pod that its StatefulSet will create."""
        found = self._known.sets.get(f"{job.namespace}/{kind.set_name}")
        assert job.spec is not None
        return Demand(
            key=f"{job.namespace}/{kind.set_name}-{index}",
            request=vector(kind.requests, self._names),
            priority=self._priority(None, kind.priority_class),
            created_ms=found.created_ms if found else job.spec.created_ms,
            job=job.key,
            nodes=self._known.eligible.nodes(found.shape if found else kind.shape),
        )


def _as_trainer(job: JobFacts, pod: PodFacts) -> Trainer:
    return Trainer(
        name=pod.name,
        node=pod.node,
        planned=pod.planned,
        created_ms=pod.created_ms,
        is_ready=pod.is_ready,
        is_tried=pod.is_tried,
        is_meeting=pod.name == job.meeting,
    )


# --- What the controller knows of the cluster: fed by watches and by the answers to its own writes ---

MOVES_KEPT_MS = 60_000
_FINE = 100  # shares of weights are told apart by hundredths


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassFacts:
    """What is known of a PriorityClass."""

    name: str
    value: int  # priority of its pods
    is_default: bool  # whether pods without a class get it
    uid: str
    version: int


class ClusterCache:
    """Nodes, pods, priority classes, training jobs with what is around them, as far as they were heard of.

    One thread writes and reads; threads that watch hand their events over.
    """

    def __init__(self, grants: PriorityGrants = NO_LIMIT) -> None:
        self._grants = grants
        # by job: nodes that its trainers pass over, with the time until when; the reconciler writes it
        self.bars: dict[str, dict[str, int]] = {}
        # by job: trainers that failed and are not to be replaced yet; the reconciler writes it
        self.failed: Mapping[str, int] = {}
        # by job: when it may be admitted again at the earliest; the reconciler writes it
        self.not_before: Mapping[str, int] = {}
        # by job: why the API server does not take its gang, or more trainers of it; the reconciler writes it
        self.refused: Mapping[str, str] = {}
        # by job: trainers beyond which it is refused more; the reconciler writes it
        self.ceilings: Mapping[str, int] = {}
        self.moves_ms: list[int] = []  # when trainers were moved for fairness alone; the reconciler writes it
        self._nodes: ResourceStore[NodeFacts] = ResourceStore(facts.parse_node)
        self._pods: ResourceStore[PodFacts] = ResourceStore(facts.parse_pod)
        self._jobs: ResourceStore[JobFacts] = ResourceStore(jobs.parse_job)
        self._sets: ResourceStore[SetFacts] = ResourceStore(jobs.parse_set)
        self._classes: ResourceStore[ClassFacts] = ResourceStore(_parse_class)
        self._services: ResourceStore[AroundFacts] = ResourceStore(surroundings.parse_service)
        self._budgets: ResourceStore[AroundFacts] = ResourceStore(surroundings.parse_budget)
        self._quotas: ResourceStore[QuotaFacts] = ResourceStore(facts.parse_quota)
        self._shelves: Mapping[str, ResourceStore[Any]] = {
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
        """Take in a list of all objects of a kind; what it lacks is gone, unless newer than the list."""
        shelf = self._shelves[kind]
        is_news = shelf.replace(items, int(version) if version.isdigit() else 0)
        self._forget(shelf, is_news=is_news)
        return is_news

    def keep(self, kind: str, keys: Container[str], version: str, *, namespace: str | None = None) -> bool:
        """Take in which objects of a kind there are; the rest is gone, unless it is newer than the list."""
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
        known = KnownJobs(
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
        return SnapshotBuilder(known, now_ms).draw()

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

    def _forget(self, shelf: ResourceStore[Any], *, is_news: bool) -> None:
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
        version=facts.version(metadata),
    )
