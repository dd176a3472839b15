"""From what is known of nodes, pods and jobs to the snapshot that a policy reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from mlstack.elastic import snapshot
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.jobs import JobFacts, RoleFacts
from mlstack.elastic.facts import NodeFacts, PodFacts
from mlstack.elastic.resources import BASIC, Amounts, vector
from mlstack.elastic.snapshot import Arriving, Demand, Held, Job, Node, Role, Snapshot, Trainer

MOVES_KEPT_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class JobLimits:
    """What the controller has a plan wait for, of one job: what went wrong with it before."""

    barred: Mapping[str, int] = field(default_factory=dict)  # nodes passed over, with the time until when
    failed: int = 0  # trainers that failed and are not to be replaced yet
    not_before_ms: int = 0  # when it may be admitted again at the earliest
    refused: str = ""  # why the API server does not take its gang, or more trainers of it
    ceiling: int = 0  # trainers beyond which it is refused more, 0 for no such number


_NO_LIMITS = JobLimits()


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
    return SnapshotBuilder(cache, now_ms, limits or {}).build(recent)


class SnapshotBuilder:
    """Builds one snapshot."""

    def __init__(self, cache: ClusterCache, now_ms: int, limits: Mapping[str, JobLimits]) -> None:
        self._cache, self._now_ms, self._limits = cache, now_ms, limits
        self._nodes, self._jobs = cache.nodes(), cache.jobs()
        self._own, self._foreign = cache.assign_pods()
        self._classes, self._weights = cache.class_values(), cache.weights()
        self._names = resources_of(chain(self._foreign, *self._own.values()), self._jobs, self._nodes)
        self._ports = {name: 1 for name in self._names if snapshot.is_key(name)}
        self._used: dict[str, list[int]] = {node.place.name: [0] * len(self._names) for node in self._nodes}
        self._arriving: list[Arriving] = []
        self._demands: list[Demand] = []

    def build(self, moves_ms: tuple[int, ...]) -> Snapshot:
        """Give the snapshot."""
        for pod in self._foreign:
            if pod.holds_room:
                self._hold(pod)
            elif pod.is_live and pod.wants_room:
                self._demands.append(self._demand(pod, ""))
        jobs = [self._job(job) for job in self._jobs]
        return Snapshot(
            now_ms=self._now_ms,
            resources=self._names,
            nodes=tuple(map(self._node, sorted(self._nodes, key=lambda node: node.place.name))),
            demands=tuple(sorted(self._demands, key=lambda demand: demand.key)),
            arriving=tuple(sorted(self._arriving, key=lambda room: (room.node, room.at_ms, room.request))),
            jobs=tuple(job for job in jobs if job is not None),
            moves_ms=moves_ms,
        )

    def _node(self, node: NodeFacts) -> Node:
        return Node(
            name=node.place.name,
            allocatable=vector({**node.allocatable, **self._ports}, self._names),
            used=tuple(self._used[node.place.name]),
            devices=vector(node.devices, self._names),
        )

    def _hold(self, pod: PodFacts, *, is_leaving: bool | None = None) -> None:
        """Count the room of a bound pod: as held, or as about to be free where it goes or is made to."""
        used = self._used.get(pod.node)
        if used is None:
            return
        if pod.gone_ms is not None if is_leaving is None else is_leaving:
            at_ms = pod.gone_ms if pod.gone_ms is not None else self._now_ms + pod.grace_ms
            room = Arriving(node=pod.node, request=vector(pod.requests, self._names), at_ms=at_ms)
            self._arriving.append(room)
            return
        for index, name in enumerate(self._names):
            used[index] += pod.requests.get(name, 0)

    def _demand(self, pod: PodFacts, job: str) -> Demand:
        nodes = self._cache.eligible_nodes(pod.shape)
        if pod.nominated in self._used and (nodes is None or pod.nominated in nodes):
            # The scheduler makes room for it there already: more victims elsewhere would be too many.
            nodes = frozenset((pod.nominated,))
        return Demand(
            key=pod.key,
            request=vector(pod.requests, self._names),
            priority=self._class_value(pod.priority_class) if pod.priority is None else pod.priority,
            created_ms=pod.created_ms,
            job=job,
            nodes=nodes,
        )

    def _class_value(self, name: str) -> int:
        return self._classes.get(name, 0)

    def _job(self, job: JobFacts) -> Job | None:
        """Give a job as the policy sees it, None where it takes no part; its pods are counted either way."""
        pods = self._own[job.key]
        bound = [pod for pod in pods if pod.holds_room]
        servers = [pod for pod in bound if pod.role != "trainer"]
        trainers = [pod for pod in bound if pod.role == "trainer"]
        stage = job.stage(pods)
        if job.spec is None or job.trainer is None:  # nobody can read it: nothing is done about its pods
            self._hold_all(bound)
            return None
        if not job.wants_pods or stage == "waiting":
            self._hold_all(bound, is_leaving=True)
            return self._as_job(job, pods, stage) if job.wants_pods else None
        if stage == "admitted" and job.is_paused(pods, self._now_ms):
            self._hold_all(servers)
            self._hold_all(trainers, is_leaving=True)
            return None
        self._hold_all(servers)
        self._demand_servers(job, {pod.name: pod for pod in pods if pod.role != "trainer" and pod.is_live})
        self._hold_all([pod for pod in trainers if pod.gone_ms is not None], is_leaving=True)
        return self._as_job(job, pods, stage)

    def _hold_all(self, pods: Iterable[PodFacts], *, is_leaving: bool | None = None) -> None:
        for pod in pods:
            self._hold(pod, is_leaving=is_leaving)

    def _demand_servers(self, job: JobFacts, live: Mapping[str, PodFacts]) -> None:
        """Demand room for masters and parameter servers that wait, or that are not there yet."""
        for role in job.servers:
            for index in range(role.count):
                name = f"{role.set_name}-{index}"
                if name not in live:
                    self._demands.append(self._missing_server(job, role, name))
                elif not live[name].node:
                    self._demands.append(self._demand(live[name], job.key))

    def _missing_server(self, job: JobFacts, role: RoleFacts, name: str) -> Demand:
        """Give a demand for a pod that its StatefulSet will create."""
        known = self._cache.stateful_set(f"{job.namespace}/{role.set_name}")
        assert job.spec is not None
        return Demand(
            key=f"{job.namespace}/{name}",
            request=vector(role.requests, self._names),
            priority=self._class_value(role.priority_class),
            created_ms=known.created_ms if known else job.spec.created_ms,
            job=job.key,
            nodes=self._cache.eligible_nodes(known.shape if known else role.shape),
        )

    def _as_job(self, job: JobFacts, pods: Sequence[PodFacts], stage: snapshot.JobStage) -> Job:
        spec, limits = job.spec, self._limits.get(job.key, _NO_LIMITS)
        assert spec is not None and job.trainer is not None
        trainers = [pod for pod in pods if pod.role == "trainer"]
        has_pods = stage != "waiting"  # those that are left of a job that waits are on their way out
        live = sorted((pod for pod in trainers if pod.is_live and has_pods), key=lambda pod: pod.name)
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
            pod_priority=self._class_value(job.trainer.priority_class),
            weight=self._weights[job.key],
            created_ms=spec.created_ms,
            state=stage,
            target=job.target,
            trainers=tuple(_trainer(job, pod) for pod in live),
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
        key = f"{job.namespace}/{job.meeting}"
        return not any(pod.key == key for pod in self._foreign)

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
    asked = [role.requests for job in jobs for role in (*job.servers, job.trainer) if role]
    asked += [pod.requests for pod in present if not pod.node and pod.wants_room]
    ports = {name for amounts in asked for name in amounts if snapshot.is_key(name)}
    names = {name for name in set[str]().union(*held, *asked) if not snapshot.is_key(name)}
    names.update(*(node.devices for node in nodes))
    names.update(_distinct_ports(ports, [*asked, *held]) if ports else ())
    return (*BASIC, *sorted(names.difference(BASIC)))


def _distinct_ports(ports: Set[str], requests: Iterable[Amounts]) -> Iterable[str]:
    """Give one of those ports that are always asked for together: a job may ask for hundreds."""
    askers: dict[str, list[int]] = {port: [] for port in sorted(ports)}
    for number, amounts in enumerate(requests):
        for port in ports & amounts.keys():
            askers[port].append(number)
    return {tuple(numbers): port for port, numbers in askers.items()}.values()
