"""What the controller knows of the cluster, by watches and its own writes, and a snapshot of that."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import gcd
from operator import add
from typing import Any, Literal, TypeVar

from mlstack.dataclass import Record
from mlstack.elastic import facts, pods
from mlstack.elastic.facts import Form, JobFacts, NodeFacts, PodFacts, SetFacts, key_of
from mlstack.elastic.snapshot import (
    BASIC,
    NO_LIMIT,
    Demand,
    GangRole,
    Held,
    Job,
    JobStage,
    Node,
    NodeNames,
    Priority,
    PriorityGrants,
    Snapshot,
    Trainer,
    Vector,
    minus,
    vector,
)
from mlstack.elastic.training_job import API_VERSION, KIND
from mlstack.errors import ODD, ClusterError
from mlstack.kube.client import ObjectRef, WatchEvent
from mlstack.objects import resources
from mlstack.objects.resources import Amounts, QuotaFacts, parse_quota

SERVICE = ("v1", "Service")
BUDGET = ("policy/v1", "PodDisruptionBudget")

# Watches that lag behind may tell of an object again for a while after it has gone.
_REMEMBERED = 20_000
_FINE = 100  # shares of weights are told apart by hundredths

T = TypeVar("T")


class ResourceStore(dict[str, T]):
    """Objects of one kind by `namespace/name`, each parsed once a version.

    Events may come twice and late: from a watch, and before it from the answers to our own writes. The newest
    version wins, and what has gone stays gone, unless the selector of a watch lost sight of it for a while.
    """

    def __init__(self, parse: Callable[[Mapping[str, Any]], T]) -> None:
        self._parse = parse
        self._ids: dict[str, tuple[str, int]] = {}  # UID and resource version of each
        self._gone: OrderedDict[str, int] = OrderedDict()  # by UID: up to which version events are late

    def put(self, obj: Mapping[str, Any]) -> bool:
        """Take in an object as it is now; says whether that changed anything: heartbeats do not."""
        key, uid, number = _identity(obj)
        if 0 < number <= self._ids.get(key, ("", 0))[1] or number <= self._gone.get(uid, -1):
            return False
        try:
            item = self._parse(obj)
        except ODD as error:
            what = f"`{obj.get('kind', 'object')} {key}` cannot be judged"
            raise ClusterError(f"{what}: a field has another type than its API gives it") from error
        before, self[key], self._ids[key] = self.get(key), item, (uid, number)
        return item != before

    def drop(self, obj: Mapping[str, Any]) -> bool:
        """Take in that an object has gone; says whether that changed anything."""
        key, uid, number = _identity(obj)
        is_this = key in self and uid in ("", self._ids[key][0])
        self._forget(key if is_this else "", uid, number or sys.maxsize)
        return is_this

    def retain(self, keys: Container[str], listed: int, namespace: str | None) -> bool:
        """Drop what a list in resource version `listed` lacks, unless it is newer; says whether any was."""
        gone = [
            (key, uid)
            for key, (uid, number) in self._ids.items()
            if key not in keys and number <= listed and (namespace is None or key.startswith(f"{namespace}/"))
        ]
        for key, uid in gone:
            self._forget(key, uid, listed)
        return bool(gone)

    def _forget(self, key: str, uid: str, until: int) -> None:
        self.pop(key, None)
        self._ids.pop(key, None)
        if uid:
            self._gone[uid] = max(until, self._gone.get(uid, 0))
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


def _identity(obj: Mapping[str, Any]) -> tuple[str, str, int]:
    """Give key, UID and resource version, 0 where that is no number; they grow with every write."""
    metadata = obj["metadata"]
    text = str(metadata.get("resourceVersion") or "")
    return key_of(metadata), str(metadata.get("uid") or ""), int(text) if text.isdigit() else 0


def job_ref(job: JobFacts) -> ObjectRef:
    """Give the address of a training job."""
    return ObjectRef(API_VERSION, KIND, job.namespace, job.name)


def _companions(job: JobFacts) -> Iterator[tuple[ObjectRef, Form]]:
    """Give the Services and budgets that stand around the pods of a job, as `pods.supporting` writes them."""
    for role in (job.trainer, *job.servers) if job.trainer else ():
        yield ObjectRef(*SERVICE, job.namespace, role.set_name), (job.name, role.role)
        if role.role != "trainer" or role.count:
            form = (None, role.count) if role.role == "trainer" else (0, None)
            yield ObjectRef(*BUDGET, job.namespace, role.set_name), form


# --- the cache ---


class ClusterCache:
    """What the controller has heard of; one thread uses it, those that watch hand their events over."""

    def __init__(self, grants: PriorityGrants = NO_LIMIT) -> None:
        self._grants = grants
        # What pods request by job and role, where a trial showed that admission makes more than is written.
        self.tried: Mapping[str, Mapping[str, Amounts]] = {}
        self._nodes = ResourceStore(facts.parse_node)
        self.pods = ResourceStore(facts.parse_pod)
        self.jobs = ResourceStore(facts.parse_job)
        self.sets = ResourceStore(facts.parse_set)
        self._classes = ResourceStore(facts.parse_class)
        self._stores: Mapping[str, ResourceStore[Any]] = {
            "Node": self._nodes,
            "Pod": self.pods,
            "TrainingJob": self.jobs,
            "StatefulSet": self.sets,
            "PriorityClass": self._classes,
            "ResourceQuota": ResourceStore(parse_quota),
            "Service": ResourceStore(facts.parse_companion),
            "PodDisruptionBudget": ResourceStore(facts.parse_companion),
        }
        self._eligible: Callable[[str], NodeNames] | None = None

    # --- what happens in the cluster ---

    def handle(self, event: WatchEvent) -> bool:
        """Take in one event; says whether it changed anything. What quotas leave is read when it matters."""
        kind = str(event.object.get("kind"))
        store = self._stores.get(kind)
        if store is None or event.type == "BOOKMARK":
            return False
        has_changed = store.drop(event.object) if event.type == "DELETED" else store.put(event.object)
        if has_changed and kind == "Node":
            self._eligible = None
        return has_changed and kind != "ResourceQuota"

    def replace(self, kind: str, items: Sequence[Mapping[str, Any]], version: str) -> None:
        """Take in a list of all objects of a kind, in its resource version; what it lacks is gone."""
        self.retain(kind, {key_of(obj["metadata"]) for obj in items}, version)
        for obj in items:
            self.handle(WatchEvent(type="MODIFIED", object=obj))

    def retain(self, kind: str, keys: Container[str], version: str, *, namespace: str | None = None) -> bool:
        """Drop what a list of a kind (of one namespace, or of all) lacks, unless newer than the list."""
        has_changed = self._stores[kind].retain(keys, int(version) if version.isdigit() else 0, namespace)
        if has_changed and kind == "Node":
            self._eligible = None
        return has_changed

    # --- what is there ---

    def sorted_jobs(self) -> list[JobFacts]:
        """Give the training jobs by key."""
        return sorted(self.jobs.values(), key=lambda job: job.key)

    def assign_pods(self) -> tuple[dict[str, list[PodFacts]], list[PodFacts]]:
        """Give the pods of each job, by index, and those of others: owners tell, labels say nothing."""
        owners = {job.uid: job.key for job in self.jobs.values()}
        owners |= {live.uid: owners[live.owner] for live in self.sets.values() if live.owner in owners}
        by_job: dict[str, list[PodFacts]] = {job.key: [] for job in self.jobs.values()}
        foreign: list[PodFacts] = []
        for pod in self.pods.values():
            key = owners.get(pod.owner, "") if pod.of_training else ""
            (by_job[key] if key else foreign).append(pod)
        for job_pods in by_job.values():
            job_pods.sort(key=lambda pod: (len(pod.name), pod.name))
        return by_job, foreign

    def nodes(self) -> list[NodeFacts]:
        """Give the nodes that take pods."""
        return [node for node in self._nodes.values() if node.takes_pods]

    def eligible_nodes(self, shape: str) -> NodeNames:
        """Give the nodes that pods of a shape may go to, None for all that take pods."""
        if self._eligible is None:
            self._eligible = facts.eligible(node.place for node in self.nodes())
        return self._eligible(shape)

    def host_name(self, node: str) -> str:
        """Give the host name of a node as its label has it: what affinity goes by."""
        live = self._nodes.get(node)
        return (live.place.labels if live else {}).get(pods.HOSTNAME, node)

    def sets_of(self, job: JobFacts) -> dict[str, SetFacts]:
        """Give the StatefulSets that are the job's own, by name."""
        sets = {role.set_name: self.sets.get(f"{job.namespace}/{role.set_name}") for role in job.servers}
        return {name: live for name, live in sets.items() if live is not None and live.owner == job.uid}

    def lacking(self, job: JobFacts) -> dict[ObjectRef, Literal["missing", "changed"]]:
        """Tell which Services and budgets of a job are not there (as its own), or differ in what matters.

        A budget that somebody gave the other of its two numbers is left: no server would take both.
        """
        lacking: dict[ObjectRef, Literal["missing", "changed"]] = {}
        for ref, form in _companions(job):
            live = self._stores[ref.kind].get(f"{ref.namespace}/{ref.name}")
            if live is None or live.owner != job.uid:
                lacking[ref] = "missing"
            elif any(None not in pair and pair[0] != pair[1] for pair in zip(live.form, form, strict=True)):
                lacking[ref] = "changed"
        return lacking

    def needless(self, job: JobFacts) -> dict[ObjectRef, str]:
        """Give the budget of trainers, with its UID, of a job of which none has to be there."""
        if job.trainer is None or job.trainer.count:
            return {}
        budget = self._stores["PodDisruptionBudget"].get(f"{job.namespace}/{job.trainer.set_name}")
        if budget is None or budget.owner != job.uid or budget.is_going:
            return {}
        return {ObjectRef(*BUDGET, job.namespace, job.trainer.set_name): budget.uid}

    def quotas(self, namespace: str) -> list[QuotaFacts]:
        """Give the ResourceQuotas of a namespace."""
        return [quota for quota in self._stores["ResourceQuota"].values() if quota.namespace == namespace]

    # --- priorities and weights ---

    def priority(self, job: JobFacts) -> Priority:
        """Give the priority of a job: what it asks for, and no more than the highest of its namespace.

        That is what the configuration grants, or the highest PriorityClass that a ResourceQuota of the
        namespace names: so Kubernetes says which namespace may use which class (`limitedResources`).
        """
        if job.spec is None:
            return Priority()
        name = job.spec.priority_class
        named = self._classes.get(name) if name else None
        if name and named is None:
            text = f"there is no PriorityClass `{name}`: the job counts with priority 0"
            return Priority(value=min(0, self._highest(job, 0)), reason="NoSuchClass", message=text)
        asked = named.value if named is not None else job.spec.priority
        value = min(asked, self._highest(job, asked))
        text = f"PriorityClass `{name}`, {asked}" if name else f"priority {asked}"
        if value < asked:
            text = f"asks for {text}, and counts with {value}, the highest of namespace `{job.namespace}`"
            return Priority(value=value, reason="AboveNamespace", message=text)
        return Priority(value=value, reason="Granted" if name or asked else "", message=text)

    def _highest(self, job: JobFacts, asked: int) -> int:
        """Give the highest priority of a namespace, `asked` where there is no limit."""
        granted = self._grants.namespaces.get(job.namespace, self._grants.everywhere)
        if granted is None:
            return asked
        names = frozenset[str]().union(*(quota.classes for quota in self.quotas(job.namespace)))
        return max([granted, *(self._classes[name].value for name in names & self._classes.keys())])

    def class_values(self) -> dict[str, int]:
        """Give the priorities of classes by name; the empty name is the default."""
        default = min((row.value for row in self._classes.values() if row.is_default), default=0)
        return {"": default, **{name: row.value for name, row in self._classes.items()}}

    def weights(self) -> dict[str, int]:
        """Give the weights of jobs; a namespace has no more in all than jobs, or one would have it all."""
        asked = {job.key: job.spec.weight for job in self.jobs.values() if job.spec and job.wants_pods}
        if self._grants == NO_LIMIT:
            return asked
        spaces = {key: key.partition("/")[0] for key in asked}
        counts, sums = Counter(spaces.values()), Counter[str]()
        for key, weight in asked.items():
            sums[spaces[key]] += weight
        shares = {
            key: max(1, _FINE * weight * counts[spaces[key]] // sums[spaces[key]])
            for key, weight in asked.items()
        }
        common = gcd(*shares.values())
        return {key: share // common for key, share in shares.items()}


# --- from what is known of nodes, pods and jobs to the snapshot that a policy reads ---

MOVES_KEPT_MS = 60_000


class JobLimits(Record):
    """What the controller has a plan wait for, of one job: what went wrong with it before."""

    barred: Mapping[str, int] = field(default_factory=dict)  # as in `snapshot.Job`, like the next three
    failed: int = 0
    not_before_ms: int = 0
    refused: str = ""
    ceiling: int = 0  # trainers beyond which it is refused more, 0 for no such number


def build_snapshot(
    cache: ClusterCache,
    now_ms: int,
    limits: Mapping[str, JobLimits] | None = None,
    moves_ms: Sequence[int] = (),
) -> Snapshot:
    """Give the moment as a policy reads it; `moves_ms` is when trainers were moved for fairness alone."""
    return _SnapshotBuilder(cache, now_ms, limits or {}).build(tuple(moves_ms))


def free_room(snapshot: Snapshot, promised: Iterable[tuple[str, Vector]] = ()) -> dict[str, Vector]:
    """Give what is free on each node: neither held, nor about to come free, nor promised."""
    free = {node.name: minus(node.allocatable, node.used) for node in snapshot.nodes}
    held = [(room.node, room.request) for room in snapshot.arriving]
    held += [(trainer.node, job.trainer) for job in snapshot.jobs for trainer in job.trainers]
    for node, request in (*held, *promised):
        if node in free:
            free[node] = minus(free[node], request)
    return free


class _SnapshotBuilder:
    def __init__(self, cache: ClusterCache, now_ms: int, limits: Mapping[str, JobLimits]) -> None:
        self._cache, self._now_ms, self._limits = cache, now_ms, limits
        self._own, self._foreign = cache.assign_pods()
        self._nodes, self._jobs = cache.nodes(), [self._as_admitted(job) for job in cache.sorted_jobs()]
        self._classes, self._weights = cache.class_values(), cache.weights()
        present = [pod for pods in (self._foreign, *self._own.values()) for pod in pods if not pod.ending]
        self._names = _resources(present, self._jobs, self._nodes)
        self._used: dict[str, list[int]] = {node.place.name: [0] * len(self._names) for node in self._nodes}
        self._arriving: list[Held] = []
        self._demands: list[Demand] = []

    def _as_admitted(self, job: JobFacts) -> JobFacts:
        """Give a job whose pods request what admission makes of them: with sidecars, overhead, defaults."""
        if job.trainer is None:
            return job
        tried, roles = self._cache.tried.get(job.key, {}), []
        for role in (job.trainer, *job.servers):
            pods = [pod for pod in self._own[job.key] if pod.role == role.role]
            last = max(pods, key=lambda pod: pod.created_ms, default=None)
            asked = last.requests if last else tried.get(role.role, role.requests)
            # Ports of the node, unlike what containers request, may have been changed in the job since.
            admitted = {name: n for name, n in asked.items() if not resources.is_host_port(name)}
            is_written = admitted.items() <= role.requests.items()
            roles.append(role if is_written else replace(role, requests={**role.requests, **admitted}))
        return replace(job, trainer=roles[0], servers=tuple(roles[1:]))

    def build(self, moves_ms: tuple[int, ...]) -> Snapshot:
        for pod in self._foreign:
            if pod.holds_room:
                self._hold([pod])
            elif pod.is_live and pod.wants_room:
                self._demands.append(self._demand(pod, ""))
        jobs = [self._job(job) for job in self._jobs]
        ports = {name: 1 for name in self._names if resources.is_host_port(name)}
        nodes = [
            Node(
                name=node.place.name,
                allocatable=vector({**node.allocatable, **ports}, self._names),
                used=tuple(self._used[node.place.name]),
                devices=vector(node.devices, self._names),
            )
            for node in sorted(self._nodes, key=lambda node: node.place.name)
        ]
        return Snapshot(
            now_ms=self._now_ms,
            resources=self._names,
            nodes=tuple(nodes),
            demands=tuple(sorted(self._demands, key=lambda demand: demand.key)),
            arriving=tuple(sorted(self._arriving, key=lambda room: (room.node, room.request))),
            jobs=tuple(job for job in jobs if job is not None),
            moves_ms=moves_ms,
        )

    def _hold(self, pods: Iterable[PodFacts], *, is_leaving: bool = False) -> None:
        """Count the room of bound pods: as held, or as about to be free where they go or are made to."""
        for pod in pods:
            used = self._used.get(pod.node)
            if used is not None and (is_leaving or pod.gone_ms is not None):
                self._arriving.append(Held(node=pod.node, request=vector(pod.requests, self._names)))
            elif used is not None:
                used[:] = map(add, used, vector(pod.requests, self._names))

    def _demand(self, pod: PodFacts, job: str) -> Demand:
        nodes = self._cache.eligible_nodes(pod.shape)
        if pod.nominated in self._used and (nodes is None or pod.nominated in nodes):
            # The scheduler makes room for it there already: more victims elsewhere would be too many.
            nodes = frozenset((pod.nominated,))
        by_class = self._classes.get(pod.priority_class, 0)
        return Demand(
            key=pod.key,
            request=vector(pod.requests, self._names),
            priority=by_class if pod.priority is None else pod.priority,
            created_ms=pod.created_ms,
            job=job,
            nodes=nodes,
        )

    def _job(self, job: JobFacts) -> Job | None:
        """Give a job as the policy sees it, None where it takes no part; its pods are counted either way."""
        pods = self._own[job.key]
        bound = [pod for pod in pods if pod.holds_room]
        servers = [pod for pod in bound if pod.role != "trainer"]
        trainers = [pod for pod in bound if pod.role == "trainer"]
        stage = job.stage(pods)
        if job.spec is None:  # nobody can read it: nothing is done about its pods
            self._hold(bound)
            return None
        if not job.wants_pods or stage == "waiting":
            # What a finalizer holds of a deleted job goes with it, nobody knows when.
            self._hold(bound, is_leaving=not job.is_deleted)
            return self._as_job(job, pods, stage) if job.wants_pods else None
        self._hold(servers)
        if stage == "admitted" and job.is_paused(pods, self._now_ms):
            self._hold(trainers, is_leaving=True)
            return None
        self._demand_servers(job, {pod.name: pod for pod in pods if pod.role != "trainer" and pod.is_live})
        self._hold([pod for pod in trainers if pod.gone_ms is not None])
        return self._as_job(job, pods, stage)

    def _demand_servers(self, job: JobFacts, live: Mapping[str, PodFacts]) -> None:
        """Demand room for masters and parameter servers that wait, or that their StatefulSet will create."""
        for role in job.servers:
            owned = self._cache.sets.get(f"{job.namespace}/{role.set_name}")
            for name in (f"{role.set_name}-{index}" for index in range(role.count)):
                if name not in live:
                    demand = Demand(
                        key=f"{job.namespace}/{name}",
                        request=vector(role.requests, self._names),
                        priority=self._classes.get(role.priority_class, 0),
                        created_ms=owned.created_ms if owned else job.spec.created_ms if job.spec else 0,
                        job=job.key,
                        nodes=self._cache.eligible_nodes((owned or role).shape),
                    )
                    self._demands.append(demand)
                elif not live[name].node:
                    self._demands.append(self._demand(live[name], job.key))

    def _as_job(self, job: JobFacts, pods: Sequence[PodFacts], stage: JobStage) -> Job:
        spec, limits = job.spec, self._limits.get(job.key, JobLimits())
        assert spec is not None and job.trainer is not None
        trainers = [pod for pod in pods if pod.role == "trainer"]
        has_pods = stage != "waiting"  # those that are left of a job that waits are on their way out
        live = [pod for pod in pods if pod.is_live and has_pods]
        # Fewest and most trainers are without those that the API server does not take.
        ceiling = max(limits.ceiling or spec.maximum, spec.trainer.minimum, 1)
        return Job(
            key=job.key,
            minimum=min(spec.minimum, ceiling),
            maximum=min(spec.maximum, ceiling),
            floor=spec.trainer.minimum if spec.is_manual else None,
            trainer=vector(job.trainer.requests, self._names),
            gang=tuple(
                GangRole(name=role.role, count=role.count, request=vector(role.requests, self._names))
                for role in job.servers
            ),
            priority=self._cache.priority(job).value,
            pod_priority=self._classes.get(job.trainer.priority_class, 0),
            weight=self._weights[job.key],
            created_ms=spec.created_ms,
            state=stage,
            target=job.target,
            trainers=_trainers(job, live),
            lacks_rendezvous=has_pods and not limits.failed and self._lacks_rendezvous(job, pods),
            not_before_ms=limits.not_before_ms,
            refused=limits.refused,
            nodes=self._cache.eligible_nodes(job.trainer.shape),
            barred={node: until for node, until in limits.barred.items() if until > self._now_ms},
            cooldown_ms=spec.cooldown_s * 1000,
            changed_ms=job.changed_ms,
            curve=job.curve,
            speed=spec.speed,
            leaving=sum(not pod.ending and pod.gone_ms is not None for pod in trainers),
            failed=limits.failed,
            held=self._held(live),
        )

    def _held(self, live: Iterable[PodFacts]) -> tuple[Held, ...]:
        """Give the room of bound masters and parameter servers, which their nodes count as used."""
        held = [
            Held(node=pod.node, request=vector(pod.requests, self._names))
            for pod in live
            if pod.role != "trainer" and pod.node in self._used
        ]
        return tuple(sorted(held, key=lambda room: (room.node, room.request)))

    def _lacks_rendezvous(self, job: JobFacts, pods: Iterable[PodFacts]) -> bool:
        """Tell whether the trainer is gone at which the others meet, and a new one would take its place.

        While its name is taken, as by a pod on a node that does not answer, a new one would get another.
        """
        if not job.rendezvous or any(pod.name == job.rendezvous and not pod.ending for pod in pods):
            return False
        return not any(pod.key == f"{job.namespace}/{job.rendezvous}" for pod in self._foreign)


def _trainers(job: JobFacts, live: Iterable[PodFacts]) -> tuple[Trainer, ...]:
    return tuple(
        Trainer(
            name=pod.name,
            node=pod.node,
            planned=pod.planned,
            created_ms=pod.created_ms,
            is_ready=pod.is_ready,
            is_tried=pod.is_tried,
            is_rendezvous=pod.name == job.rendezvous,
        )
        for pod in sorted(live, key=lambda pod: pod.name)
        if pod.role == "trainer"
    )


def _resources(
    present: Sequence[PodFacts], jobs: Iterable[JobFacts], nodes: Iterable[NodeFacts]
) -> tuple[str, ...]:
    """Give the resources that matter: those that every pod takes, that some ask for, and all devices.

    A node with GPUs is one also while nobody asks for them: who asks next finds it free of others. Ports
    matter where jobs or pods that wait ask for them: else room would be made on nodes whose port others keep.
    Of ports that are always asked for together one is enough: a job may ask for hundreds.
    """
    held = [pod.requests for pod in present]
    asked = [role.requests for job in jobs for role in (*job.servers, job.trainer) if role]
    asked += [pod.requests for pod in present if not pod.node and pod.wants_room]
    names = {name for name in set[str]().union(*held, *asked) if not resources.is_host_port(name)}
    names.update(*(node.devices for node in nodes))
    ports = sorted({name for amounts in asked for name in amounts if resources.is_host_port(name)})
    askers: dict[str, list[int]] = {port: [] for port in ports}
    for number, amounts in enumerate([*asked, *held] if ports else ()):
        for port in askers.keys() & amounts.keys():
            askers[port].append(number)
    names.update({tuple(numbers): port for port, numbers in askers.items()}.values())
    return (*BASIC, *sorted(names.difference(BASIC)))
