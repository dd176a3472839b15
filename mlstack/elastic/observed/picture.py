"""From what is known of nodes, pods and jobs to the snapshot that a policy reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from mlstack.elastic import hostports
from mlstack.elastic.observed.amounts import BASIC, Amounts, vector
from mlstack.elastic.observed.jobs import JobFacts, Kind, SetFacts
from mlstack.elastic.observed.nodes import NodeFacts
from mlstack.elastic.observed.placement import Eligible
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.snapshot import Arriving, Demand, Held, Job, JobState, Node, Role, Snapshot, Trainer
from mlstack.elastic.trainingjob import TrainingJob


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that is known at one moment.

    Attributes:
        nodes: those that take pods.
        own: pods of jobs, by the key of their job.
        foreign: all other pods.
        jobs: by key.
        sets: StatefulSets by key.
        priorities: of priority classes by name; the empty name is the default.
        weights: by job: its share when jobs of one priority share.
        ranks: by job: its priority among jobs.
        bars: by job: nodes that are passed over for its trainers, and until when.
        failed: by job: trainers that failed and are not to be replaced yet.
        not_before: by job: when it may be admitted again at the earliest.
        refused: by job: why the API server does not take its gang, or more trainers of it.
        ceilings: by job: trainers beyond which it is refused more.
        moves_ms: when trainers were last moved for fairness alone.
        eligible: tells which nodes a pod may go to.
    """

    nodes: Sequence[NodeFacts]
    own: Mapping[str, Sequence[PodFacts]]
    foreign: Sequence[PodFacts]
    jobs: Mapping[str, JobFacts]
    sets: Mapping[str, SetFacts]
    priorities: Mapping[str, int]
    weights: Mapping[str, int]
    ranks: Mapping[str, int]
    bars: Mapping[str, Mapping[str, int]]
    failed: Mapping[str, int]
    not_before: Mapping[str, int]
    refused: Mapping[str, str]
    ceilings: Mapping[str, int]
    moves_ms: Sequence[int]
    eligible: Eligible


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
    ports = {name for each in wanted for name in each if hostports.is_key(name)}
    names = {name for name in set[str]().union(*held, *wanted) if not hostports.is_key(name)}
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


class Picture:
    """Draws one snapshot.

    Args:
        known: what is known.
        now_ms: the moment.
    """

    def __init__(self, known: Known, now_ms: int) -> None:
        """Begin with empty nodes."""
        self._known, self._now_ms = known, now_ms
        everybody = chain(known.foreign, *known.own.values())
        self._names = resources_of(everybody, known.jobs.values(), known.nodes)
        self._ports = {name: 1 for name in self._names if hostports.is_key(name)}
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

    def _unseen(self, job: JobFacts, kind: Kind, index: int) -> Demand:
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
