"""One row a second of how a cluster fares, from watch events of a simulator or a real cluster alike.

Feed an `Observer` every event of pods, nodes, TrainingJobs and Deployments, and ask it for a `Sample` when
one is due. What belongs to the background is told by its namespace, what belongs to a service by the selector
of its Deployment.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Any

from mlstack.elastic import facts, snapshot
from mlstack.elastic.facts import NodeFacts, PodFacts
from mlstack.elastic.training_job import SpecError, parse
from mlstack.errors import UsageError
from mlstack.kube.client import WatchEvent

# --- One row a second of how a cluster fares, from watch events of a simulator or a real cluster
# alike
# Feed an `Observer` every event of pods, nodes, TrainingJobs and Deployments, and ask it for a `Sample`
# when one is due. What belongs to the background is told by its namespace, what belongs to a service by the
# selector of its Deployment.

BACKGROUND = "kube-system"

Amounts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSample:
    """One training job at one moment."""

    key: str  # `namespace/name`
    minimum: int  # fewest trainers of its range
    maximum: int  # most trainers of its range
    target: int | None  # trainers that it was told to have, None where nobody has said
    phase: str  # of its status, empty for none
    created_ms: int  # when it was submitted
    trainers: int  # that run and are not going
    bound: int  # trainers with a node that neither ended nor are going
    unbound: int  # trainers without a node
    servers: int  # masters and parameter servers that run and are not going
    wanted: int  # masters and parameter servers that it needs
    pods: int  # all its pods that neither ended nor are going
    is_answered: bool = True  # whether its status speaks of its spec as it stands, not of an earlier one

    @property
    def is_complete(self) -> bool:
        """Tell whether the whole gang runs."""
        return self.servers >= self.wanted and self.trainers >= max(1, self.minimum)

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
    running: int  # pods that run and are not going


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One moment of a cluster, in sums of requests by resource (thousandths of a core, bytes, pieces)."""

    at_ms: int  # the moment
    allocatable: Amounts  # of all nodes
    running: Amounts  # of pods that run, those on their way out included
    background: Amounts  # the part of it in the namespace of the background
    useful: Amounts  # the part of it of training jobs whose gang is complete, and of services
    requested: Amounts  # of all pods that have not ended, those without a node included
    stranded: Amounts  # free, but on nodes where not one trainer of any job fits
    crowded: tuple[str, ...]  # names of nodes with more bound than they have
    pending: int  # pods of others without a node
    jobs: tuple[JobSample, ...]  # the training jobs, by key
    services: tuple[ServiceSample, ...]  # the Deployments, by key
    created: int  # trainer pods made so far
    deleted: int  # trainer pods deleted so far, by whomever

    def share(self, part: Amounts, resource: str = "cpu") -> float:
        """Give a sum as percent of what all nodes offer, 0 for a cluster without that."""
        whole = self.allocatable.get(resource, 0)
        return 100 * part.get(resource, 0) / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Training:
    minimum: int
    maximum: int
    wanted: int
    trainer: Amounts
    target: int | None
    phase: str
    created_ms: int
    is_answered: bool


@dataclass(slots=True)
class _Count:
    trainers: int = 0
    bound: int = 0
    unbound: int = 0
    servers: int = 0
    pods: int = 0
    running: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Service:
    target: int
    namespace: str
    selector: Mapping[str, str]


class ClusterObserver:
    """Keeps what events tell, and sums it up on demand."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, PodFacts] = {}
        self._service_of: dict[str, str] = {}
        self._jobs: dict[str, _Training] = {}
        self._services: dict[str, _Service] = {}
        self._created = 0
        self._deleted: set[str] = set()

    def hear(self, event: WatchEvent) -> None:
        """Take note of one event; other kinds are passed over."""
        obj = event.object
        is_gone = event.type == "DELETED"
        match obj.get("kind"):
            case "Pod":
                self._hear_pod(obj, is_gone=is_gone)
            case "Node":
                self._keep(self._nodes, obj["metadata"]["name"], None if is_gone else facts.parse_node(obj))
            case "TrainingJob":
                self._keep(self._jobs, _key(obj), None if is_gone else _training(obj))
            case "Deployment":
                self._keep(self._services, _key(obj), None if is_gone else _service(obj))

    def _keep(self, known: dict[str, Any], key: str, value: object) -> None:
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value

    def _hear_pod(self, obj: Mapping[str, Any], *, is_gone: bool) -> None:
        pod = facts.parse_pod(obj)
        if pod.role == "trainer":
            self._created += pod.uid not in self._pods and not is_gone
            if pod.gone_ms is not None or (is_gone and not pod.ending):
                self._deleted.add(pod.uid)
        if is_gone:
            self._pods.pop(pod.uid, None)
            self._service_of.pop(pod.uid, None)
            return
        self._pods[pod.uid] = pod
        if not pod.of_training and pod.uid not in self._service_of:
            self._service_of[pod.uid] = self._find_service(pod, obj["metadata"].get("labels") or {})

    def _find_service(self, pod: PodFacts, labels: Mapping[str, str]) -> str:
        for key, service in self._services.items():
            if service.namespace == pod.namespace and service.selector.items() <= labels.items():
                return key
        return ""

    def sample(self, now_ms: int) -> Sample:
        """Sum up how things stand."""
        bound: dict[str, dict[str, int]] = {name: {} for name in self._nodes}
        running: dict[str, int] = {}
        background: dict[str, int] = {}
        requested: dict[str, int] = {}
        useful: dict[str, int] = {}
        counts: dict[str, _Count] = {key: _Count() for key in self._jobs}
        serving: dict[str, int] = dict.fromkeys(self._services, 0)
        pending = 0
        for pod in self._pods.values():
            if pod.ending:
                continue
            _add(requested, pod.requests)
            if pod.node in bound:
                _add(bound[pod.node], pod.requests)
            is_running = pod.phase == "Running" and pod.node in self._nodes
            if is_running:
                _add(running, pod.requests)
                if pod.namespace == BACKGROUND:
                    _add(background, pod.requests)
            if pod.of_training:
                _count(counts, pod, is_running=is_running)
                continue
            service = self._service_of.get(pod.uid, "")
            pending += not pod.node
            if is_running and service in serving:
                _add(useful, pod.requests)
                serving[service] += pod.is_live
        jobs = tuple(self._job(key, counts[key]) for key in sorted(self._jobs))
        for job in jobs:
            if job.is_complete:
                _add(useful, counts[job.key].running)
        return Sample(
            at_ms=now_ms,
            allocatable=_total(node.allocatable for node in self._nodes.values()),
            running=running,
            background=background,
            useful=useful,
            requested=requested,
            stranded=self._stranded(bound),
            crowded=tuple(name for name in sorted(bound) if self._is_crowded(name, bound[name])),
            pending=pending,
            jobs=jobs,
            services=tuple(
                ServiceSample(key=key, target=self._services[key].target, running=serving[key])
                for key in sorted(self._services)
            ),
            created=self._created,
            deleted=len(self._deleted),
        )

    def _job(self, key: str, count: _Count) -> JobSample:
        job = self._jobs[key]
        return JobSample(
            key=key,
            minimum=job.minimum,
            maximum=job.maximum,
            target=job.target,
            phase=job.phase,
            created_ms=job.created_ms,
            trainers=count.trainers,
            bound=count.bound,
            unbound=count.unbound,
            servers=count.servers,
            wanted=job.wanted,
            pods=count.pods,
            is_answered=job.is_answered,
        )

    def _is_crowded(self, name: str, held: Amounts) -> bool:
        offered = self._nodes[name].allocatable
        return any(
            amount > offered.get(resource, int(snapshot.is_key(resource)))
            for resource, amount in held.items()
        )

    def _stranded(self, bound: Mapping[str, Amounts]) -> Amounts:
        """Sum up what is free on nodes that have no room for one trainer of any job."""
        shapes = {tuple(job.trainer.items()) for job in self._jobs.values()}
        stranded: dict[str, int] = {}
        for name, node in self._nodes.items():
            free = {each: amount - bound[name].get(each, 0) for each, amount in node.allocatable.items()}
            if not any(all(free.get(each, 0) >= amount for each, amount in shape) for shape in shapes):
                _add(stranded, free)
        return stranded


def _count(counts: Mapping[str, _Count], pod: PodFacts, *, is_running: bool) -> None:
    count = counts.get(f"{pod.namespace}/{pod.job}")
    if count is None:
        return
    if is_running:
        _add(count.running, pod.requests)
    if not pod.is_live:
        return
    count.pods += 1
    if pod.role == "trainer":
        count.trainers += is_running
        count.bound += bool(pod.node)
        count.unbound += not pod.node
    else:
        count.servers += is_running


def _training(obj: Mapping[str, Any]) -> _Training | None:
    """Read a TrainingJob, None for one that cannot be used."""
    try:
        spec = parse(obj)
    except SpecError:
        return None
    status = obj.get("status") or {}
    target = (status.get("trainer") or {}).get("desired")
    return _Training(
        minimum=spec.trainer.minimum,
        maximum=spec.trainer.maximum,
        wanted=spec.pserver.count + spec.master.count,
        trainer=spec.trainer.resources.requests,
        target=None if target is None else int(target),
        phase=str(status.get("phase") or ""),
        created_ms=spec.created_ms,
        is_answered=int(status.get("observedGeneration") or 0) >= int(obj["metadata"].get("generation") or 0),
    )


def _service(obj: Mapping[str, Any]) -> _Service | None:
    """Read a Deployment, None for one whose pods are part of a training job."""
    spec = obj["spec"]
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    if facts.JOB_LABEL in selector:
        return None
    return _Service(
        target=int(spec.get("replicas", 1)),
        namespace=str(obj["metadata"].get("namespace") or ""),
        selector=selector,
    )


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}"


def _add(total: dict[str, int], part: Amounts) -> None:
    for name, amount in part.items():
        total[name] = total.get(name, 0) + amount


def _total(parts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        _add(total, part)
    return total


# --- What is measured of a run, from one sample a second; the same for the simulator and a real
# cluster
# Means over time weigh each sample by how long it stood. What never came about within the samples is
# censored: it counts with the time until the end, and is counted.

Samples = Sequence[Sample]
Value = Callable[[Sample], float]


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long jobs waited for something."""

    # of each job, by key; until the last sample of it for those that never got there
    seconds: dict[str, float]
    never: tuple[str, ...]  # those, by key

    @property
    def censored(self) -> int:
        """Count the jobs that never got there."""
        return len(self.never)

    @property
    def most(self) -> float:
        """Give the longest, 0 without jobs."""
        return max(self.seconds.values(), default=0.0)

    @property
    def mean(self) -> float:
        """Give the mean, 0 without jobs."""
        return mean(self.seconds.values())

    def percentile(self, percent: float) -> float:
        """Give the smallest wait that so many percent of the jobs do not exceed."""
        return percentile(self.seconds.values(), percent)


def window(samples: Samples, begin_s: float, end_s: float = float("inf")) -> list[Sample]:
    """Give the samples from one time to another, both included."""
    return [sample for sample in samples if begin_s * 1000 <= sample.at_ms <= end_s * 1000]


def over_time(samples: Samples, value: Value) -> float:
    """Give the mean of a value over time; each sample stands until the next."""
    if len(samples) < 2:
        return mean(map(value, samples))
    total = sum(value(one) * (following.at_ms - one.at_ms) for one, following in pairwise(samples))
    return total / (samples[-1].at_ms - samples[0].at_ms)


def mean(values: Iterable[float]) -> float:
    """Give the plain mean, 0 of nothing."""
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def percentile(values: Iterable[float], percent: float) -> float:
    """Give the smallest value that so many percent of them do not exceed, 0 of nothing."""
    known = sorted(values)
    return known[max(0, ceil(len(known) * percent / 100) - 1)] if known else 0.0


def utilisation(sample: Sample, resource: str = "cpu") -> float:
    """Give requests of running pods as percent of what all nodes offer."""
    return sample.share(sample.running, resource)


def resources(samples: Samples) -> tuple[str, ...]:
    """Name what nodes offered at any time, cores first; how many pods they take is left out."""
    names = {name for sample in samples for name, amount in sample.allocatable.items() if amount}
    return ("cpu", *sorted(names - {"cpu", "pods"}))


def useful(sample: Sample, resource: str = "cpu") -> float:
    """Give the part of the utilisation of services and of jobs whose gang is complete; no background."""
    return sample.share(sample.useful, resource)


def time_at(samples: Samples, value: Value, least: float) -> float:
    """Give in percent how much of the time a value was at least so much."""
    return over_time(samples, lambda sample: 100.0 * (value(sample) >= least))


def pending(sample: Sample) -> int:
    """Count the jobs without a running trainer."""
    return sum(job.is_pending and not job.is_over for job in sample.jobs)


def complete(sample: Sample) -> int:
    """Count the jobs whose whole gang runs."""
    return sum(job.is_complete for job in sample.jobs)


def trainers(sample: Sample) -> list[int]:
    """Give the running trainers of each job, by key."""
    return [job.trainers for job in sample.jobs if not job.is_over]


def jain(counts: Sequence[float]) -> float:
    """Give Jain's index of fairness: 1 for equal shares, 1/n when one has everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 1.0


def spread(counts: Sequence[int]) -> int:
    """Give the difference between most and least."""
    return max(counts) - min(counts) if counts else 0


def waits(samples: Samples, has_it: Callable[[JobSample], bool]) -> Waits:
    """Give how long each job, from its first sample on, waited for something."""
    since: dict[str, int] = {}
    until: dict[str, int] = {}
    last: dict[str, int] = {}
    for sample in samples:
        for job in sample.jobs:
            since.setdefault(job.key, sample.at_ms)
            last[job.key] = sample.at_ms
            if has_it(job) or job.is_over:
                until.setdefault(job.key, sample.at_ms)
    seconds = {key: (until.get(key, last[key]) - at) / 1000 for key, at in sorted(since.items())}
    return Waits(seconds=seconds, never=tuple(sorted(since.keys() - until.keys())))


def waits_for_trainer(samples: Samples) -> Waits:
    """Give how long each job waited for its first running trainer: EDL's pending time."""
    return waits(samples, lambda job: not job.is_pending)


def waits_for_gang(samples: Samples) -> Waits:
    """Give how long each job waited until its whole gang ran."""
    return waits(samples, lambda job: job.is_complete)


def succeeded_s(samples: Samples) -> dict[str, float]:
    """Give by job when it was first seen as succeeded, in seconds."""
    found: dict[str, float] = {}
    for sample in samples:
        for job in sample.jobs:
            if job.phase == "Succeeded":
                found.setdefault(job.key, sample.at_ms / 1000)
    return found


def below_minimum(samples: Samples) -> list[tuple[int, str]]:
    """Give when which jobs had fewer trainers with a node than their minimum after they had been complete.

    A job that was told to have none since then (suspended whole) is not among them, nor one that ends.
    """
    begun: set[str] = set()
    found = []
    for sample in samples:
        for job in sample.jobs:
            if job.is_complete:
                begun.add(job.key)
            elif job.target == 0 or job.is_over or job.phase == "Completing":
                begun.discard(job.key)
            elif job.key in begun and job.bound < job.minimum:
                found.append((sample.at_ms, job.key))
    return found


def last_change_s(samples: Samples) -> float:
    """Give when a trainer was last made, deleted, or began or ceased to run; 0 if none ever."""
    last = 0
    for before, after in pairwise(samples):
        if _state(before) != _state(after):
            last = after.at_ms
    return last / 1000


def _state(sample: Sample) -> tuple[object, ...]:
    return (sample.created, sample.deleted, {job.key: job.trainers for job in sample.jobs})


def operations(samples: Samples) -> int:
    """Count the trainers made and deleted between the first and the last sample."""
    first, last = samples[0], samples[-1]
    return last.created + last.deleted - first.created - first.deleted


def turns(samples: Samples) -> dict[str, int]:
    """Count by job how often what it was told to have went up after it went down, or the other way round.

    Its end does not count.
    """
    found: dict[str, int] = {}
    way: dict[str, int] = {}
    for key, step in _steps(samples):
        found[key] = found.get(key, 0) + (step * way.get(key, step) < 0)
        way[key] = step or way.get(key, 0)
    return found


def scalings(samples: Samples) -> dict[str, tuple[int, int]]:
    """Count by job how often it was told to have more trainers, and how often fewer.

    Its end does not count.
    """
    found: dict[str, tuple[int, int]] = {}
    for key, step in _steps(samples):
        up, down = found.get(key, (0, 0))
        found[key] = (up + (step > 0), down + (step < 0))
    return found


def _steps(samples: Samples) -> Iterator[tuple[str, int]]:
    """Give for each job of each sample by how much it was told to grow since the one before, until it ends.

    A job that comes after the first sample begins with none.
    """
    was = {job.key: _told(job) for sample in samples[:1] for job in sample.jobs}
    for sample in samples:
        for job in sample.jobs:
            if not job.is_over and job.phase != "Completing":
                yield job.key, _told(job) - was.get(job.key, 0)
                was[job.key] = _told(job)


def _told(job: JobSample) -> int:
    return job.bound + job.unbound if job.target is None else job.target


# --- How a service beside training jobs fares: when it has its pods, and when others use what it
# frees

SERVED = 0.99


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """A time during which a service asked for the same number of pods."""

    target: int  # the number
    before: int  # the number asked for before, 0 if it is the first
    samples: Samples  # of this time

    @property
    def grows(self) -> bool:
        """Tell whether more is asked for than before."""
        return 0 < self.before < self.target

    @property
    def shrinks(self) -> bool:
        """Tell whether less is asked for than before."""
        return self.before > self.target


@dataclass(frozen=True, kw_only=True)
class Raise:
    """A target of a service that was above the one before."""

    target: int  # the pods asked for
    seconds: float  # how long it took until 99 % of them ran; as long as it stood, if they never did
    is_served: bool  # whether they did


def service_of(sample: Sample, key: str) -> ServiceSample | None:
    """Give one service of a sample, None while there is none."""
    return next((service for service in sample.services if service.key == key), None)


def plateaus(samples: Samples, key: str) -> list[Plateau]:
    """Give the times between changes of what a service asks for."""
    found: list[tuple[int, list[Sample]]] = []
    for sample in samples:
        service = service_of(sample, key)
        if service is None:
            continue
        if not found or found[-1][0] != service.target:
            found.append((service.target, []))
        found[-1][1].append(sample)
    befores = [0, *(target for target, _ in found)]
    return [
        Plateau(target=target, before=before, samples=part)
        for (target, part), before in zip(found, befores, strict=False)
    ]


def missing(sample: Sample, key: str) -> int:
    """Count the pods that a service asks for and does not have."""
    service = service_of(sample, key)
    return max(0, service.target - service.running) if service else 0


def lacking(samples: Samples, key: str) -> float:
    """Give how many pods a service missed on average over the whole time."""
    return over_time(samples, lambda one: missing(one, key))


def shortfall(samples: Samples, key: str) -> float:
    """Give how many pods a service missed on average while it was growing."""
    parts = [(plateau, _length_s(plateau)) for plateau in plateaus(samples, key) if plateau.grows]
    whole = sum(seconds for _, seconds in parts)
    lacking = sum(over_time(part.samples, lambda one: missing(one, key)) * each for part, each in parts)
    return lacking / whole if whole else 0.0


def served_after_s(samples: Samples, key: str) -> list[float]:
    """Give for each raised target how long it took until 99 % of it ran, at most the whole plateau."""
    return [each.seconds for each in raises(samples, key)]


def raises(samples: Samples, key: str) -> list[Raise]:
    """Give the targets above the ones before, and how long each took to be served."""
    return [_raise(plateau, key) for plateau in plateaus(samples, key) if plateau.grows]


def _raise(plateau: Plateau, key: str) -> Raise:
    served = [one for one in plateau.samples if missing(one, key) <= (1 - SERVED) * plateau.target]
    until = served[0] if served else plateau.samples[-1]
    seconds = (until.at_ms - plateau.samples[0].at_ms) / 1000
    return Raise(target=plateau.target, seconds=seconds, is_served=bool(served))


def restored_after_s(samples: Samples, key: str, *, points: float = 1.0) -> list[float]:
    """Give for each lowered target how long the utilisation was further below its plateau than `points`.

    The plateau is the mean over the last 20 s of this target.
    """
    return [_settling_s(plateau, points) for plateau in plateaus(samples, key) if plateau.shrinks]


def _settling_s(plateau: Plateau, points: float) -> float:
    begin_ms, end_ms = plateau.samples[0].at_ms, plateau.samples[-1].at_ms
    level = mean(map(utilisation, window(plateau.samples, end_ms / 1000 - 20)))
    far = [one.at_ms for one in plateau.samples if utilisation(one) < level - points]
    return (far[-1] + 1000 - begin_ms) / 1000 if far else 0.0


def _length_s(plateau: Plateau) -> float:
    return (plateau.samples[-1].at_ms - plateau.samples[0].at_ms) / 1000


def ends(samples: Samples, key: str) -> Iterator[Sample]:
    """Give the last sample of each plateau."""
    return (plateau.samples[-1] for plateau in plateaus(samples, key))


# --- Draw samples: utilisation, trainers of each job, pending jobs and missing pods (only door to
# matplotlib)
# Matplotlib is an extra (`pip install 'mlstack[plot]'`); it takes about half a second to be imported.

_LEGEND = 12
"""Most jobs that are named beside their lines."""


def draw(samples: Samples, title: str) -> str:
    """Draw samples as SVG, the same for the same samples.

    Raises:
        UsageError: matplotlib is not installed.
    """
    matplotlib = library()
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "mlstack", "font.size": 9}):
        figure = Figure(figsize=(10, 8), layout="constrained")
        room, trainers, waiting = figure.subplots(3, 1, sharex=True)
        seconds = [sample.at_ms / 1000 for sample in samples]
        _room(room, seconds, samples)
        _trainers(trainers, seconds, samples)
        _waiting(waiting, seconds, samples)
        waiting.set_xlabel("seconds")
        figure.suptitle(title)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def library() -> Any:
    """Give matplotlib.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "plots need matplotlib, which is not installed", hint="pip install 'mlstack[plot]'"
        ) from error
    return matplotlib


def _room(axes: Any, seconds: list[float], samples: Samples) -> None:
    axes.plot(seconds, [sample.share(sample.requested) for sample in samples], label="requested", lw=0.8)
    axes.plot(seconds, [utilisation(sample) for sample in samples], label="running", lw=1.6)
    axes.plot(seconds, [useful(sample) for sample in samples], label="useful", lw=1.2)
    axes.plot(seconds, [sample.share(sample.stranded) for sample in samples], label="stranded", lw=0.8)
    for name in resources(samples)[1:]:
        shares = [utilisation(sample, name) for sample in samples]
        axes.plot(seconds, shares, label=f"running, {name}", lw=0.8, ls="--")
    axes.set_ylabel("% of cores, or as named")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right", ncols=4)


def _trainers(axes: Any, seconds: list[float], samples: Samples) -> None:
    jobs = sorted({job.key for sample in samples for job in sample.jobs})
    for key in jobs:
        known = [next((job.trainers for job in sample.jobs if job.key == key), None) for sample in samples]
        axes.plot(seconds, known, lw=1.0, label=key.partition("/")[2])
    axes.set_ylabel("trainers")
    axes.set_ylim(bottom=0)
    if 0 < len(jobs) <= _LEGEND:
        axes.legend(loc="upper right", ncols=3)


def _waiting(axes: Any, seconds: list[float], samples: Samples) -> None:
    axes.step(seconds, [pending(sample) for sample in samples], label="pending jobs", where="post")
    missing = [
        sum(max(0, service.target - service.running) for service in sample.services) for sample in samples
    ]
    if any(missing):
        axes.step(seconds, missing, label="missing pods of services", where="post")
    axes.set_ylabel("waiting")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
