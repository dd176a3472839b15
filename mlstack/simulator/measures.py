"""What is measured of a cluster, one sample a second, simulated or real; the laws that must hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, pairwise
from math import ceil
from typing import Any, NamedTuple

from mlstack.dataclass import Record, dataclass
from mlstack.elastic import facts
from mlstack.elastic.facts import NodeFacts, PodFacts, key_of
from mlstack.elastic.policy.sharing import jain
from mlstack.elastic.snapshot import Decision, Job, ScalePlan, Snapshot, Vector, minus, stands_still
from mlstack.elastic.training_job import JOB_LABEL
from mlstack.kube.client import WatchEvent
from mlstack.objects.resources import Amounts, is_host_port, total

BACKGROUND = "kube-system"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSample:
    """One training job at one moment."""

    key: str  # `namespace/name`
    minimum: int  # fewest trainers of its range
    maximum: int  # most trainers of its range
    target: int | None  # trainers that it was told to have, None where nobody has said
    phase: str  # of its status, empty for none
    trainers: int = 0  # that run and are not going
    bound: int = 0  # trainers with a node that neither ended nor are going
    unbound: int = 0  # trainers without a node
    servers: int = 0  # masters and parameter servers that run and are not going
    needed: int  # masters and parameter servers that it needs
    pods: int = 0  # all its pods that neither ended nor are going
    is_answered: bool = True  # whether its status speaks of its spec as it stands, not of an earlier one

    @property
    def is_complete(self) -> bool:
        """Tell whether the whole gang runs."""
        return self.servers >= self.needed and self.trainers >= max(1, self.minimum)

    @property
    def is_pending(self) -> bool:
        """Tell whether none of its trainers runs: EDL's word."""
        return self.trainers == 0

    @property
    def is_over(self) -> bool:
        """Tell whether the job has ended."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSample:
    """One Deployment at one moment."""

    key: str  # `namespace/name`
    target: int  # pods that it asks for
    running: int = 0  # pods that run and are not going

    @property
    def missing(self) -> int:
        """Count the pods that it asks for and does not have."""
        return max(0, self.target - self.running)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One moment of a cluster, in sums of requests by resource (thousandths of a core, bytes, pieces)."""

    at_ms: int
    allocatable: Amounts  # of all nodes
    running: Amounts  # of pods that run, those on their way out included
    background: Amounts  # the part of it in the namespace of the background
    useful: Amounts  # the part of it of training jobs whose gang is complete, and of services
    requested: Amounts  # of all pods that have not ended, those without a node included
    stranded: Amounts  # free, but on nodes where not one trainer of any job fits
    crowded: tuple[str, ...]  # names of nodes with more bound than they have
    jobs: tuple[JobSample, ...]  # by key
    services: tuple[ServiceSample, ...]  # by key
    created: int  # trainer pods made so far
    deleted: int  # trainer pods deleted so far, by whomever

    def share(self, part: str, resource: str = "cpu") -> float:
        """Give a sum as percent of what all nodes offer, 0 for a cluster without that."""
        whole = self.allocatable.get(resource, 0)
        amounts: Amounts = getattr(self, part)
        return 100 * amounts.get(resource, 0) / whole if whole else 0.0

    @property
    def trainers(self) -> list[int]:
        """Give the running trainers of each job that has not ended, by key."""
        return [job.trainers for job in self.jobs if not job.is_over]

    @property
    def complete(self) -> int:
        """Count the jobs whose whole gang runs."""
        return sum(job.is_complete for job in self.jobs)

    @property
    def pending_jobs(self) -> int:
        """Count the jobs without a running trainer."""
        return sum(job.is_pending and not job.is_over for job in self.jobs)


class ClusterObserver:
    """Keeps what events of pods, nodes, TrainingJobs and Deployments tell, and sums it up on demand."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, PodFacts] = {}
        self._service_of: dict[str, str] = {}
        self._jobs: dict[str, tuple[JobSample, Amounts]] = {}  # without pods, and what a trainer requests
        self._services: dict[str, tuple[int, Mapping[str, str]]] = {}  # pods asked for, and their labels
        self._kinds: dict[str, tuple[dict[str, Any], Callable[[Mapping[str, Any]], object]]] = {
            "Node": (self.nodes, facts.parse_node),
            "TrainingJob": (self._jobs, _job),
            "Deployment": (self._services, _service),
        }
        # Of each node what was last seen of it, and what that came to: most stay as they are.
        self._rooms: dict[str, tuple[tuple[object, ...], tuple[bool, Amounts]]] = {}
        self._created = 0
        self._deleted: set[str] = set()
        self._latest: Sample | None = None  # until something changes

    def hear(self, event: WatchEvent) -> None:
        """Take note of one event; other kinds are passed over."""
        self._latest = None
        obj, kind, is_gone = event.object, event.object.get("kind"), event.type == "DELETED"
        if kind == "Pod":
            self._hear_pod(obj, is_gone=is_gone)
        elif kind in self._kinds:
            values, parse = self._kinds[kind]
            key, value = key_of(obj["metadata"]), None if is_gone else parse(obj)
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value

    def _hear_pod(self, obj: Mapping[str, Any], *, is_gone: bool) -> None:
        pod = facts.parse_pod(obj)
        if pod.role == "trainer":
            self._created += pod.uid not in self.pods and not is_gone
            if pod.gone_ms is not None or (is_gone and not pod.ending):
                self._deleted.add(pod.uid)
        if is_gone:
            self.pods.pop(pod.uid, None)
            self._service_of.pop(pod.uid, None)
            return
        self.pods[pod.uid] = pod
        if not pod.of_training and pod.uid not in self._service_of:
            labels = (obj["metadata"].get("labels") or {}).items()
            self._service_of[pod.uid] = ""
            for key, (_, selector) in self._services.items():
                if key.partition("/")[0] == pod.namespace and selector.items() <= labels:
                    self._service_of[pod.uid] = key
                    break

    def sample(self, now_ms: int) -> Sample:
        """Sum up how things stand."""
        if self._latest is not None:
            return replace(self._latest, at_ms=now_ms)
        pods = [pod for pod in self.pods.values() if not pod.ending]
        held = defaultdict[str, list[PodFacts]](list)
        for pod in pods:
            held[pod.node].append(pod)
        shapes = frozenset(tuple(trainer.items()) for _, trainer in self._jobs.values())
        for name, node in self.nodes.items():
            known = (node, held[name], shapes)
            if name not in self._rooms or self._rooms[name][0] != known:
                self._rooms[name] = (known, _room(*known))
        rooms = {name: self._rooms[name][1] for name in self.nodes}
        running = {pod.uid: pod for pod in pods if pod.phase == "Running" and pod.node in self.nodes}
        jobs = self._sample_jobs(pods, running)
        complete = {job.key for job in jobs if job.is_complete}
        serving = Counter(self._service_of.get(uid) for uid, pod in running.items() if pod.is_live)
        self._latest = Sample(
            at_ms=now_ms,
            allocatable=total(*(node.allocatable for node in self.nodes.values())),
            running=total(*(pod.requests for pod in running.values())),
            background=total(*(pod.requests for pod in running.values() if pod.namespace == BACKGROUND)),
            useful=total(*(pod.requests for pod in running.values() if self._is_useful(pod, complete))),
            requested=total(*(pod.requests for pod in pods)),
            stranded=total(*(stranded for _, stranded in rooms.values())),
            crowded=tuple(name for name in sorted(rooms) if rooms[name][0]),
            jobs=jobs,
            services=tuple(
                ServiceSample(key=key, target=self._services[key][0], running=serving[key])
                for key in sorted(self._services)
            ),
            created=self._created,
            deleted=len(self._deleted),
        )
        return self._latest

    def _sample_jobs(self, pods: Iterable[PodFacts], running: Container[str]) -> tuple[JobSample, ...]:
        counts: dict[str, Any] = {key: Counter() for key in self._jobs}
        for pod in pods:
            count = counts.get(f"{pod.namespace}/{pod.job}") if pod.of_training and pod.is_live else None
            if count is not None:
                count["pods"] += 1
                count["trainers" if pod.role == "trainer" else "servers"] += pod.uid in running
                count["bound" if pod.node else "unbound"] += pod.role == "trainer"
        return tuple(replace(self._jobs[key][0], **counts[key]) for key in sorted(self._jobs))

    def _is_useful(self, pod: PodFacts, complete: Container[str]) -> bool:
        if pod.of_training:
            return f"{pod.namespace}/{pod.job}" in complete
        return self._service_of[pod.uid] in self._services


def _room(node: NodeFacts, pods: Iterable[PodFacts], shapes: Iterable[Any]) -> tuple[bool, Amounts]:
    """Tell whether a node has more bound than it offers; give what is free but fits no trainer of any job."""
    offered, held = node.allocatable, total(*(pod.requests for pod in pods))
    is_crowded = any(amount > offered.get(part, int(is_host_port(part))) for part, amount in held.items())
    free = {part: amount - held.get(part, 0) for part, amount in offered.items()}
    is_useful = any(all(free.get(part, 0) >= amount for part, amount in shape) for shape in shapes)
    return is_crowded, {} if is_useful else free


def _job(obj: Mapping[str, Any]) -> tuple[JobSample, Amounts] | None:
    spec = facts.parse_job(obj).spec
    if spec is None:
        return None
    status = obj.get("status") or {}
    target = (status.get("trainer") or {}).get("desired")
    job = JobSample(
        key=key_of(obj["metadata"]),
        minimum=spec.trainer.minimum,
        maximum=spec.trainer.maximum,
        needed=spec.pserver.count + spec.master.count,
        target=None if target is None else int(target),
        phase=str(status.get("phase") or ""),
        is_answered=int(status.get("observedGeneration") or 0) >= int(obj["metadata"].get("generation") or 0),
    )
    return job, spec.trainer.resources.requests


def _service(obj: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
    selector = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return None if JOB_LABEL in selector else (int(obj["spec"].get("replicas", 1)), selector)


# --- what is measured of samples ---
# Means over time weigh each sample by how long it stood. What never came about within the samples is
# censored: it counts with the time until the end, and is counted.

Samples = Sequence[Sample]
Measure = Callable[[Sample], float]


class Series(NamedTuple):
    """What is measured of every sample."""

    digits: int  # after the point
    value: Measure


# What is measured of every resource, in percent of what all nodes offer, and the field of a sample it is.
PARTS = {"utilisation": "running"} | {
    name: name for name in ("useful", "background", "requested", "stranded")
}

SERIES = {
    **{name: Series(3, partial(Sample.share, part=part)) for name, part in PARTS.items()},
    "pending_jobs": Series(0, lambda sample: sample.pending_jobs),
    "complete_jobs": Series(0, lambda sample: sample.complete),
    "jain": Series(4, lambda sample: jain(sample.trainers)),
    "trainers": Series(0, lambda sample: sum(sample.trainers)),
    "created": Series(0, lambda sample: sample.created),
    "deleted": Series(0, lambda sample: sample.deleted),
}


def window(samples: Samples, begin_s: float, end_s: float = float("inf")) -> list[Sample]:
    """Give the samples from one time to another, both included."""
    return [sample for sample in samples if begin_s * 1000 <= sample.at_ms <= end_s * 1000]


def over_time(samples: Samples, value: Measure) -> float:
    """Give the mean of a value over time; each sample stands until the next."""
    if len(samples) < 2:
        return mean(map(value, samples))
    total = sum(value(sample) * (after.at_ms - sample.at_ms) for sample, after in pairwise(samples))
    return total / (samples[-1].at_ms - samples[0].at_ms)


def mean(values: Iterable[float]) -> float:
    """Give the plain mean, 0 of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def percentile(values: Iterable[float], percent: float) -> float:
    """Give the smallest value that so many percent of them do not exceed, 0 of nothing."""
    values = sorted(values)
    return values[max(0, ceil(len(values) * percent / 100) - 1)] if values else 0.0


def resources(samples: Samples) -> tuple[str, ...]:
    """Name what nodes offered at any time, cores first; how many pods they take is left out."""
    names = {name for sample in samples for name, amount in sample.allocatable.items() if amount}
    return ("cpu", *sorted(names - {"cpu", "pods"}))


def spread(counts: Sequence[int]) -> int:
    """Give the difference between most and least."""
    return max(counts) - min(counts) if counts else 0


def last_change_s(samples: Samples) -> float:
    """Give when a trainer was last made, deleted, or began or ceased to run; 0 if none ever."""

    def state(sample: Sample) -> tuple[object, ...]:
        return sample.created, sample.deleted, {job.key: job.trainers for job in sample.jobs}

    changes = [after.at_ms for before, after in pairwise(samples) if state(before) != state(after)]
    return changes[-1] / 1000 if changes else 0.0


def operations(samples: Samples) -> int:
    """Count the trainers made and deleted between the first and the last sample."""
    first, last = samples[0], samples[-1]
    return last.created + last.deleted - first.created - first.deleted


# --- how one job fares ---

JobHistory = Sequence[tuple[int, JobSample]]
"""A job as it was in each sample since it came, with the time."""


def histories(samples: Samples) -> dict[str, list[tuple[int, JobSample]]]:
    """Give the jobs by key, in the order of these."""
    rows: dict[str, list[tuple[int, JobSample]]] = {}
    for sample in samples:
        for job in sample.jobs:
            rows.setdefault(job.key, []).append((sample.at_ms, job))
    return dict(sorted(rows.items()))


def wait(history: JobHistory, *, for_gang: bool) -> tuple[float, bool]:
    """Give how many seconds a job waited for its first trainer or its whole gang, and whether that came."""
    times = [
        at_ms
        for at_ms, job in history
        if job.is_over or (job.is_complete if for_gang else not job.is_pending)
    ]
    return ((times[0] if times else history[-1][0]) - history[0][0]) / 1000, bool(times)


def succeeded_s(history: JobHistory) -> float | None:
    """Give when a job was first seen as succeeded, in seconds."""
    return next((at_ms / 1000 for at_ms, job in history if job.phase == "Succeeded"), None)


def below_minimum(history: JobHistory) -> list[int]:
    """Give when a job that had been complete and goes on had fewer bound trainers than its minimum."""
    moments, has_begun = [], False
    for at_ms, job in history:
        if job.is_complete:
            has_begun = True
        elif job.target == 0 or job.is_over or job.phase == "Completing":
            has_begun = False
        elif has_begun and job.bound < job.minimum:
            moments.append(at_ms)
    return moments


def scalings(history: JobHistory, begin_ms: int) -> tuple[int, int, int]:
    """Count how often a job was told to have more trainers, fewer (not at its end), and how that turned."""
    targets = [job.bound + job.unbound if job.target is None else job.target for _, job in history]
    is_scaled = [not job.is_over and job.phase != "Completing" for _, job in history]
    counts = [targets[0] if history[0][0] == begin_ms else 0, *compress(targets, is_scaled)]
    steps = [after - before for before, after in pairwise(counts) if after != before]
    turns = sum(step * following < 0 for step, following in pairwise(steps))
    return sum(step > 0 for step in steps), sum(step < 0 for step in steps), turns


# --- how a service beside training jobs fares: when it has its pods, and when others use what it frees ---

SERVED = 0.99


class Plateau(NamedTuple):
    """A time during which a service asked for the same number of pods."""

    target: int  # the number
    before: int  # the number asked for before, 0 if it is the first
    samples: list[Sample]

    @property
    def seconds(self) -> float:
        """Give how long it was."""
        return (self.samples[-1].at_ms - self.samples[0].at_ms) / 1000


class Raise(Record):
    """A target of a service that was above the one before."""

    target: int  # the pods asked for
    seconds: float  # how long it took until 99 % of them ran; as long as it stood, if they never did
    is_served: bool  # whether they did


def missing(sample: Sample, key: str) -> int:
    """Count the pods that a service asks for and does not have."""
    return sum(service.missing for service in sample.services if service.key == key)


def plateaus(samples: Samples, key: str) -> list[Plateau]:
    """Give the times between changes of what a service asks for."""
    parts: list[Plateau] = []
    for sample in samples:
        for service in sample.services:
            if service.key == key:
                if not parts or parts[-1].target != service.target:
                    parts.append(Plateau(service.target, parts[-1].target if parts else 0, []))
                parts[-1].samples.append(sample)
    return parts


def raised(samples: Samples, key: str) -> list[Plateau]:
    """Give the times after a service asked for more than before."""
    return [part for part in plateaus(samples, key) if 0 < part.before < part.target]


def shortfall(samples: Samples, key: str) -> float:
    """Give how many pods a service missed on average while it was growing."""
    parts = raised(samples, key)
    whole = sum(part.seconds for part in parts)
    total = sum(over_time(part.samples, partial(missing, key=key)) * part.seconds for part in parts)
    return total / whole if whole else 0.0


def raises(samples: Samples, key: str) -> list[Raise]:
    """Give the targets above the ones before, and how long each took to be served."""
    steps = []
    for part in raised(samples, key):
        served = [sample for sample in part.samples if missing(sample, key) <= (1 - SERVED) * part.target]
        end = served[0] if served else part.samples[-1]
        seconds = (end.at_ms - part.samples[0].at_ms) / 1000
        steps.append(Raise(target=part.target, seconds=seconds, is_served=bool(served)))
    return steps


def restored_after_s(samples: Samples, key: str) -> list[float]:
    """Give for each lowered target how long utilisation was a point below the mean of its last 20 s."""
    times = []
    for part in plateaus(samples, key):
        if part.before > part.target:
            end_s = part.samples[-1].at_ms / 1000
            level = mean(sample.share("running") for sample in window(part.samples, end_s - 20))
            far = [sample.at_ms for sample in part.samples if sample.share("running") < level - 1.0]
            times.append((far[-1] + 1000 - part.samples[0].at_ms) / 1000 if far else 0.0)
    return times


# --- what holds for every plan and every sample (I1 to I4 and I8 of the design): each breach as a line ---

# Policies that decide by numbers alone: the scheduler finds places, and a gang need not be whole.
WITHOUT_PLACES = frozenset({"edl"})


def breaches_of_plan(snapshot: Snapshot, plan: ScalePlan, *, has_places: bool = True) -> Iterator[str]:
    """Give what is wrong with a plan; `has_places` says whether it has to say where everything goes."""
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        # I1: a target is 0 for jobs without pods, else from minimum to maximum.
        if job.state == "finishing" and (decision.victims or decision.places):
            yield f"I1: {job.key} is about to end and is scaled"
        if decision.is_admitted and not job.least <= decision.target <= job.maximum:
            yield f"I1: {job.key} is to have {decision.target} trainers"
        elif not decision.is_admitted and (decision.target or decision.places):
            yield f"I1: {job.key} is not admitted and is to have {decision.target} trainers"
        # I4: nobody at or below the minimum loses a running trainer, but with the whole job.
        bound = [trainer for trainer in job.trainers if trainer.node]
        lost = [trainer for trainer in bound if trainer.name in decision.victims]
        if decision.is_admitted and any(trainer.is_rendezvous for trainer in lost):
            yield f"I4: {job.key} loses the trainer at which the others meet"
        if decision.is_admitted and lost and len(bound) - len(lost) < job.minimum and not stands_still(job):
            yield f"I4: {job.key} goes below its minimum of {job.minimum}"
        if has_places:
            yield from _breaches_of_places(snapshot, plan, job, decision)
    yield from _breaches_of_nodes(snapshot, plan)


def _breaches_of_places(snapshot: Snapshot, plan: ScalePlan, job: Job, decision: Decision) -> Iterator[str]:
    # I3: every trainer asked for has a node.
    names = {node.name for node in snapshot.nodes}
    if any(node not in names for node in decision.places):
        yield f"I3: {job.key} is to have a trainer without a node"
    live = len(job.trainers) - len(decision.victims) + len(decision.places)
    if decision.is_admitted and job.state != "finishing" and decision.target != live:
        yield f"I3: {job.key} is to have {decision.target} trainers, {live} of which are accounted for"
    # I8: a job with pods has all of them placed, one without has none.
    for role in job.gang if job.state == "waiting" and decision.is_admitted else ():
        if len(decision.hints.get(role.name, ())) != role.count:
            yield f"I8: {job.key} is admitted without a place for each {role.name}"
    reserved = {row.key for row in plan.reservations}
    for demand in snapshot.demands:
        is_due = demand.job == job.key and decision.is_admitted and job.state != "finishing"
        if is_due and demand.key not in reserved:
            yield f"I8: {job.key} goes on without a place for {demand.key}"


def _breaches_of_nodes(snapshot: Snapshot, plan: ScalePlan) -> Iterator[str]:
    """I2: bound, planned and reserved requests of a node are within what it has."""
    free = {node.name: minus(node.allocatable, node.used) for node in snapshot.nodes}

    def take(node: str, request: Vector, sign: int = 1) -> None:
        if node in free:
            free[node] = minus(free[node], [sign * amount for amount in request])

    for job in snapshot.jobs:
        for trainer in job.trainers:
            take(trainer.node, job.trainer)
    before = dict(free)
    for row in plan.reservations:
        take(row.node, row.request)
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        for trainer in job.trainers:
            if trainer.name in decision.victims:
                take(trainer.node, job.trainer, sign=-1)
        for name in (*decision.places, *decision.waiting.values()):
            take(name, job.trainer)
        for held in job.held if job.state != "waiting" and not decision.is_admitted else ():
            take(held.node, held.request, sign=-1)
    for name, after in sorted(free.items() - before.items()):
        if any(left < min(0, was) for left, was in zip(after, before[name], strict=True)):
            yield f"I2: {name} is over-allocated by {[left for left in after if left < 0]}"


def breaches_of_sample(sample: Sample) -> Iterator[str]:
    """Give what is wrong with what can be seen of a cluster."""
    for name in sample.crowded:
        yield f"I2: {name} has more bound than it offers"
    for job in sample.jobs:
        if job.target and job.is_answered and not job.minimum <= job.target <= job.maximum:
            yield f"I1: {job.key} was told to have {job.target} trainers"


def stale_pods(samples: Sequence[Sample], *, allowed: int = 60) -> Iterator[str]:
    """Give the jobs that had pods for more than so many samples while they were told to have none (I8)."""
    since: Counter[str] = Counter()
    for sample in samples:
        for job in sample.jobs:
            is_stale = job.target == 0 and job.pods > 0
            since[job.key] = since[job.key] + 1 if is_stale else 0
            if since[job.key] == allowed:
                yield f"I8: {job.key} is not admitted and has {job.pods} pods at {sample.at_ms // 1000} s"
