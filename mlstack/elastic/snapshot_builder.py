"""From what is known of nodes, pods and jobs to the snapshot that a policy reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from mlstack.dataclass import dataclass
from mlstack.elastic.cache import ClusterCache, JobFacts
from mlstack.elastic.facts import NodeFacts, PodFacts
from mlstack.elastic.snapshot import (
    BASIC,
    Arriving,
    Demand,
    Held,
    Job,
    JobStage,
    Node,
    Role,
    Snapshot,
    Trainer,
    Vector,
    vector,
)
from mlstack.objects import resources

MOVES_KEPT_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class JobLimits:
    """What the controller has a plan wait for, of one job: what went wrong with it before."""

    barred: Mapping[str, int] = field(default_factory=dict)  # nodes passed over, with the time until when
    failed: int = 0  # trainers that failed and are not to be replaced yet
    not_before_ms: int = 0  # when it may be admitted again at the earliest
    refused: str = ""  # why the API server does not take its gang, or more trainers of it
    ceiling: int = 0  # trainers beyond which it is refused more, 0 for no such number


def build_snapshot(
    cache: ClusterCache,
    now_ms: int,
    limits: Mapping[str, JobLimits] | None = None,
    moves_ms: Sequence[int] = (),
) -> Snapshot:
    """Give the moment as a policy reads it.

    `limits` are by key of the job, `moves_ms` the times at which trainers were moved for fairness alone.
    """
    recent = tuple(moved for moved in moves_ms if now_ms - moved <= MOVES_KEPT_MS)
    return _SnapshotBuilder(cache, now_ms, limits or {}).build(recent)


def free_room(snapshot: Snapshot) -> dict[str, Vector]:
    """Give what is free on each node: neither held nor about to come free."""
    free = {node.name: minus(node.allocatable, node.used) for node in snapshot.nodes}
    held = [(room.node, room.request) for room in snapshot.arriving]
    held += [(trainer.node, job.trainer) for job in snapshot.jobs for trainer in job.trainers]
    for node, request in held:
        if node in free:
            free[node] = minus(free[node], request)
    return free


def minus(room: Vector, request: Vector) -> Vector:
    """Subtract one vector from another."""
    return tuple(amount - less for amount, less in zip(room, request, strict=True))


class _SnapshotBuilder:
    def __init__(self, cache: ClusterCache, now_ms: int, limits: Mapping[str, JobLimits]) -> None:
        self._cache, self._now_ms, self._limits = cache, now_ms, limits
        self._nodes, self._jobs = cache.nodes(), cache.sorted_jobs()
        self._own, self._foreign = cache.assign_pods()
        self._classes, self._weights = cache.class_values(), cache.weights()
        present = [pod for pods in (self._foreign, *self._own.values()) for pod in pods if not pod.ending]
        self._names = _resources(present, self._jobs, self._nodes)
        self._used: dict[str, list[int]] = {node.place.name: [0] * len(self._names) for node in self._nodes}
        self._arriving: list[Arriving] = []
        self._demands: list[Demand] = []

    def build(self, moves_ms: tuple[int, ...]) -> Snapshot:
        """Give the snapshot."""
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
            arriving=tuple(sorted(self._arriving, key=lambda room: (room.node, room.at_ms, room.request))),
            jobs=tuple(job for job in jobs if job is not None),
            moves_ms=moves_ms,
        )

    def _hold(self, pods: Iterable[PodFacts], *, is_leaving: bool = False) -> None:
        """Count the room of bound pods: as held, or as about to be free where they go or are made to."""
        for pod in pods:
            used = self._used.get(pod.node)
            if used is not None and (is_leaving or pod.gone_ms is not None):
                at_ms = pod.gone_ms if pod.gone_ms is not None else self._now_ms + pod.grace_ms
                room = Arriving(node=pod.node, request=vector(pod.requests, self._names), at_ms=at_ms)
                self._arriving.append(room)
            elif used is not None:
                for index, name in enumerate(self._names):
                    used[index] += pod.requests.get(name, 0)

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
            self._hold(bound, is_leaving=True)
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
            known = self._cache.sets.get(f"{job.namespace}/{role.set_name}")
            for name in (f"{role.set_name}-{index}" for index in range(role.count)):
                if name not in live:
                    demand = Demand(
                        key=f"{job.namespace}/{name}",
                        request=vector(role.requests, self._names),
                        priority=self._classes.get(role.priority_class, 0),
                        created_ms=known.created_ms if known else job.spec.created_ms if job.spec else 0,
                        job=job.key,
                        nodes=self._cache.eligible_nodes(known.shape if known else role.shape),
                    )
                    self._demands.append(demand)
                elif not live[name].node:
                    self._demands.append(self._demand(live[name], job.key))

    def _as_job(self, job: JobFacts, pods: Sequence[PodFacts], stage: JobStage) -> Job:
        spec, limits = job.spec, self._limits.get(job.key, JobLimits())
        assert spec is not None and job.trainer is not None
        trainers = [pod for pod in pods if pod.role == "trainer"]
        has_pods = stage != "waiting"  # those that are left of a job that waits are on their way out
        live = [pod for pod in trainers if pod.is_live and has_pods]
        # Fewest and most trainers are without those that the API server does not take.
        ceiling = max(limits.ceiling or spec.maximum, spec.trainer.minimum, 1)
        return Job(
            key=job.key,
            minimum=min(spec.minimum, ceiling),
            maximum=min(spec.maximum, ceiling),
            floor=spec.trainer.minimum if spec.is_manual else None,
            trainer=vector(job.trainer.requests, self._names),
            gang=tuple(
                Role(name=role.role, count=role.count, request=vector(role.requests, self._names))
                for role in job.servers
            ),
            priority=self._cache.priority(job).value,
            pod_priority=self._classes.get(job.trainer.priority_class, 0),
            weight=self._weights[job.key],
            created_ms=spec.created_ms,
            state=stage,
            target=job.target,
            trainers=tuple(_trainer(job, pod) for pod in sorted(live, key=lambda pod: pod.name)),
            lacks_meeting=has_pods and not limits.failed and self._lacks_meeting(job, pods),
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
            held=self._held(pods) if has_pods else (),
        )

    def _lacks_meeting(self, job: JobFacts, pods: Iterable[PodFacts]) -> bool:
        """Tell whether the trainer is gone at which the others meet, and a new one would take its place.

        While its name is taken, as by a pod on a node that does not answer, a new one would get another.
        """
        if not job.meeting or any(pod.name == job.meeting and not pod.ending for pod in pods):
            return False
        return not any(pod.key == f"{job.namespace}/{job.meeting}" for pod in self._foreign)

    def _held(self, pods: Iterable[PodFacts]) -> tuple[Held, ...]:
        """Give what bound masters and parameter servers hold; their nodes count it as used."""
        held = [
            Held(node=pod.node, request=vector(pod.requests, self._names))
            for pod in pods
            if pod.role != "trainer" and pod.is_live and pod.node in self._used
        ]
        return tuple(sorted(held, key=lambda room: (room.node, room.request)))


def _trainer(job: JobFacts, pod: PodFacts) -> Trainer:
    return Trainer(
        name=pod.name,
        node=pod.node,
        planned=pod.planned,
        created_ms=pod.created_ms,
        is_ready=pod.is_ready,
        is_tried=pod.is_tried,
        is_meeting=pod.name == job.meeting,
    )


def _resources(
    present: Sequence[PodFacts], jobs: Iterable[JobFacts], nodes: Iterable[NodeFacts]
) -> tuple[str, ...]:
    """Give the resources that matter: those that every pod takes, that some ask for, and all devices.

    A node with GPUs is one also while nobody asks for them: who asks next finds it free of others.
    Ports of nodes matter only where jobs or pods that wait for room ask for them: else room would be made
    for a pod on nodes whose port others keep. Of ports that are always asked for together one is enough: a
    job may ask for hundreds.
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
