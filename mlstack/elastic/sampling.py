"""One row a second of how a cluster fares, from watch events of a simulator or a real cluster alike.

Feed an `Observer` every event of pods, nodes, TrainingJobs and Deployments, and ask it for a `Sample` when
one is due. What belongs to the background is told by its namespace, what belongs to a service by the selector
of its Deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlstack.cluster.api import WatchEvent
from mlstack.elastic import hostports
from mlstack.elastic.observed import nodes, pods
from mlstack.elastic.observed.nodes import NodeFacts
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.spec import SpecError, parse

BACKGROUND = "kube-system"

Amounts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSample:
    """One training job at one moment.

    Attributes:
        key: `namespace/name`.
        minimum: fewest trainers of its range.
        maximum: most trainers of its range.
        target: trainers that it was told to have, None where nobody has said.
        phase: of its status, empty for none.
        created_ms: when it was submitted.
        trainers: that run and are not going.
        bound: trainers with a node that neither ended nor are going.
        unbound: trainers without a node.
        servers: masters and parameter servers that run and are not going.
        wanted: masters and parameter servers that it needs.
        pods: all its pods that neither ended nor are going.
        is_answered: whether its status speaks of its spec as it stands, not of an earlier one.
    """

    key: str
    minimum: int
    maximum: int
    target: int | None
    phase: str
    created_ms: int
    trainers: int
    bound: int
    unbound: int
    servers: int
    wanted: int
    pods: int
    is_answered: bool = True

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
    """One Deployment at one moment.

    Attributes:
        key: `namespace/name`.
        target: pods that it asks for.
        running: pods that run and are not going.
    """

    key: str
    target: int
    running: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One moment of a cluster, in sums of requests by resource (thousandths of a core, bytes, pieces).

    Attributes:
        at_ms: the moment.
        allocatable: of all nodes.
        running: of pods that run, those on their way out included.
        background: the part of it in the namespace of the background.
        useful: the part of it of training jobs whose gang is complete, and of services.
        requested: of all pods that have not ended, those without a node included.
        stranded: free, but on nodes where not one trainer of any job fits.
        crowded: names of nodes with more bound than they have.
        pending: pods of others without a node.
        jobs: the training jobs, by key.
        services: the Deployments, by key.
        created: trainer pods made so far.
        deleted: trainer pods deleted so far, by whomever.
    """

    at_ms: int
    allocatable: Amounts
    running: Amounts
    background: Amounts
    useful: Amounts
    requested: Amounts
    stranded: Amounts
    crowded: tuple[str, ...]
    pending: int
    jobs: tuple[JobSample, ...]
    services: tuple[ServiceSample, ...]
    created: int
    deleted: int

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


class Observer:
    """Keeps what events tell, and sums it up on demand."""

    def __init__(self) -> None:
        """Know of nothing yet."""
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
                self._keep(self._nodes, obj["metadata"]["name"], None if is_gone else nodes.parse(obj))
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
        pod = pods.parse(obj)
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
            amount > offered.get(resource, int(hostports.is_key(resource)))
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
    if pods.JOB_LABEL in selector:
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
