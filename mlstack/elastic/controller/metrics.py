"""Health and metrics of the controller; the only door to prometheus_client."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mlstack.elastic.controller.reconciler import Pass
from mlstack.elastic.snapshot import Decision, Job, Snapshot, Vector


def jain(counts: Iterable[int]) -> float:
    """Give Jain's fairness index: 1 when all have the same, 1/n when one has all."""
    values = list(counts)
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


def free_by_node(snapshot: Snapshot) -> Mapping[str, Vector]:
    """Give what is free on each node: neither held nor about to come free."""
    free = {node.name: _less(node.allocatable, node.used) for node in snapshot.nodes}
    for room in snapshot.arriving:
        if room.node in free:
            free[room.node] = _less(free[room.node], room.request)
    for job in snapshot.jobs:
        for trainer in job.trainers:
            if trainer.node in free:
                free[trainer.node] = _less(free[trainer.node], job.trainer)
    return free


def is_placeable(node: str, room: Vector, snapshot: Snapshot) -> bool:
    """Tell whether a job that wants more trainers could have one there."""
    return any(
        all(wanted <= there for wanted, there in zip(job.trainer, room, strict=True))
        and (job.nodes is None or node in job.nodes)
        for job in snapshot.jobs
        if job.state != "finishing" and len(job.trainers) < job.maximum
    )


def _less(room: Vector, taken: Vector) -> Vector:
    return tuple(amount - minus for amount, minus in zip(room, taken, strict=True))


def sum_room(vectors: Iterable[Vector]) -> Vector:
    """Add vectors up; of none the sum is empty."""
    return tuple(sum(amounts) for amounts in zip(*vectors, strict=True))


# --- metrics ---

PREFIX = "mlstack_elastic"

NO_ANSWER = "<error>"
"""The code of a request without an answer, as Kubernetes' own clients have it."""

# The loop goes round every second; a pass with hundreds of writes takes some.
ALIVE_S = 60.0

_WAITS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_PLANS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_PASSES_S = (*_PLANS_S, 5, 10, 25, 60)

_OF_A_JOB = {
    "desired": "as many as it was told to have",
    "bound": "with a node",
    "ready": "ready",
    "min": "fewest",
    "max": "most",
    "fulfilment": "share of its elastic range that it was given",
}


class Metrics:
    """What is told of the controller, as Prometheus reads it; a `controller.Watcher`.

    What only a leader knows (jobs, room) is told while it leads: several replicas must not tell it twice.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        import prometheus_client as prometheus

        self._monotonic_s = monotonic_s
        self._looked_s = monotonic_s()
        self._is_synced = False
        registry = self._registry = prometheus.CollectorRegistry()
        self._led = _Led(monotonic_s)
        registry.register(self._led)

        def counter(name: str, text: str, *labels: str) -> Any:
            return prometheus.Counter(f"{PREFIX}_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Any:
            return prometheus.Histogram(f"{PREFIX}_{name}", text, labels, buckets=buckets, registry=registry)

        self._leader = prometheus.Gauge(f"{PREFIX}_leader", "1 while this process leads", registry=registry)
        self._operations = counter(
            "scale_operations", "Changes of the number of trainers of a job", "direction", "reason"
        )
        self._deletions = counter(
            "trainer_deletions", "Trainers that this controller deleted before they had ended"
        )
        self._requests = counter(
            "api_requests",
            "Requests to the API server, each try of one, by verb (lists are get, a watch is one request) "
            f"and HTTP code of the answer ({NO_ANSWER}: there was none)",
            "verb",
            "code",
        )
        self._failures = counter("failed_passes", "Passes that the cluster cut short")
        self._plans = histogram("plan_seconds", "Time in which the policy decides", _PLANS_S)
        self._passes = histogram("pass_seconds", "Time of a pass: looking, deciding, writing", _PASSES_S)
        self._wait = histogram(
            "wait_seconds",
            "Time from the creation of a job until its first trainer, and its whole gang, are ready",
            _WAITS_S,
            "until",
        )

    def observe_loop(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take note that the loop goes round."""
        self._looked_s, self._is_synced = self._monotonic_s(), is_synced
        self._leader.set(1 if is_leading else 0)
        if not is_leading:
            self._led.forget()

    def observe_failure(self, error: Exception) -> None:
        """Take note of a pass that failed."""
        self._failures.inc()

    def observe_pass(self, done: Pass, *, seconds: float) -> None:
        """Take note of a pass."""
        self._led.keep(done)
        self._passes.observe(seconds)
        self._plans.observe(done.plan_s)
        for until, seconds in done.waits:
            self._wait.labels(until).observe(seconds)
        self._deletions.inc(sum(action.stops == "trainer" for action in done.taken))
        # Jobs that were told to have another number of trainers, where the cluster took it.
        told = {action.job for action in done.taken if action.verb == "status"}
        for job in done.snapshot.jobs:
            decision = _decision(done, job)
            if job.key in told and decision.target != job.target:
                direction = "up" if decision.target > job.target else "down"
                self._operations.labels(direction, decision.reasons[0].cause).inc()

    def answered(self, verb: str, status: int | None) -> None:
        """Take note of a request to the API server and the HTTP status of its answer; from any thread."""
        self._requests.labels(verb, NO_ANSWER if status is None else str(status)).inc()

    @property
    def is_alive(self) -> bool:
        """Tell whether the loop still goes round."""
        return self._monotonic_s() - self._looked_s < ALIVE_S

    @property
    def is_ready(self) -> bool:
        """Tell whether everything there is has been seen, so that this process could lead."""
        return self._is_synced and self.is_alive

    def text(self) -> bytes:
        """Write all metrics in Prometheus' format."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


class _Led:
    """What the last pass of a leader saw; a collector, so that a scrape sees one pass and not half of two."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._kept: tuple[float, Sequence[Any]] | None = None

    def keep(self, done: Pass) -> None:
        self._kept = (self._monotonic_s(), tuple(_gauges(done)))

    def forget(self) -> None:
        self._kept = None

    def collect(self) -> Iterator[Any]:
        if self._kept is None:
            return
        passed_s, gauges = self._kept
        yield from gauges
        age_s = self._monotonic_s() - passed_s
        yield _gauge("snapshot_age_seconds", "Time since the last pass", age_s)


def _gauge(name: str, text: str, value: float) -> Any:
    return _family(name, text, (), [((), value)])


def _family(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _gauges(done: Pass) -> Iterator[Any]:
    snapshot = done.snapshot
    trainers = [len(job.trainers) for job in snapshot.jobs if job.state == "admitted"]
    incomplete = done.lacks.get("trainer", 0) + done.lacks.get("gang", 0)
    phases = [((phase,), number) for phase, number in sorted(done.phases.items())]
    foreign = Counter(demand.priority for demand in snapshot.demands if not demand.job)
    waiting = [((str(priority),), number) for priority, number in sorted(foreign.items())]
    yield from _job_gauges(done)
    yield _family("jobs", "Jobs by phase", ("phase",), phases)
    yield _gauge("pending_jobs", "Jobs of which no trainer runs, as EDL counts", done.lacks.get("trainer", 0))
    yield _gauge(
        "incomplete_jobs",
        "Jobs whose gang (fewest trainers, master, parameter servers) does not run as a whole, or not at all",
        incomplete,
    )
    yield _gauge("jain_index", "Jain's index of the trainers of admitted jobs, 1 is even", jain(trainers))
    yield _gauge("plan_steps", "Steps of the last plan", done.plan.steps)
    yield from _room_gauges(snapshot)
    yield _family("foreign_pods_pending", "Pods of others without a node", ("priority",), waiting)


def _job_gauges(done: Pass) -> Iterator[Any]:
    rows: dict[str, list[tuple[Sequence[str], float]]] = {name: [] for name in _OF_A_JOB}
    for job in done.snapshot.jobs:
        target, span = _decision(done, job).target, job.maximum - job.minimum
        values = {
            "desired": target,
            "bound": sum(bool(trainer.node) for trainer in job.trainers),
            "ready": sum(trainer.is_ready for trainer in job.trainers),
            "min": job.minimum,
            "max": job.maximum,
            "fulfilment": (target - job.minimum) / span if span > 0 and target else float(target > 0),
        }
        for name, value in values.items():
            rows[name].append((job.key.split("/", 1), value))
    for name, text in _OF_A_JOB.items():
        yield _family(f"job_{name}", f"Trainers of a job: {text}", ("namespace", "job"), rows[name])


def _room_gauges(snapshot: Snapshot) -> Iterator[Any]:
    free = free_by_node(snapshot)
    left, total = sum_room(free.values()), sum_room(node.allocatable for node in snapshot.nodes)
    lost = sum_room(room for node, room in free.items() if not is_placeable(node, room, snapshot))
    lost = lost or (0,) * len(total)
    offered = [(index, name) for index, name in enumerate(snapshot.resources) if total and total[index]]

    def ratio(name: str, text: str, parts: Sequence[int]) -> Any:
        rows = [((resource,), parts[index] / total[index]) for index, resource in offered]
        return _family(name, text, ("resource",), rows)

    yield _family(
        "cluster_allocatable",
        "What nodes have: thousandths of a core, bytes, pieces",
        ("resource",),
        [((name,), total[index]) for index, name in offered],
    )
    yield ratio("cluster_requested_ratio", "Requests of bound pods by what nodes have", _less(total, left))
    yield ratio(
        "cluster_placeable_ratio",
        "Free room in which a job that wants more has a place, by what nodes have",
        _less(left, lost),
    )
    yield ratio(
        "stranded_ratio",
        "Free room in which no waiting or growing job has a place, by what nodes have",
        lost,
    )


def _decision(done: Pass, job: Job) -> Decision:
    return done.decisions.get(job.key) or done.plan.decisions[job.key]


# --- probes ---


class HealthServer:
    """Answers `/healthz`, `/readyz` and `/metrics`."""

    def __init__(self, metrics: Metrics, *, address: str, port: int) -> None:
        listening = _listening_socket(address, port)
        self._server = ThreadingHTTPServer(
            listening.getsockname()[:2], _handler(metrics), bind_and_activate=False
        )
        self._server.socket.close()
        self._server.socket = listening

    @property
    def port(self) -> int:
        """Give the port."""
        return int(self._server.socket.getsockname()[1])

    def start(self) -> None:
        """Begin to answer, in a thread."""
        Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _listening_socket(address: str, port: int) -> socket.socket:
    """Open a port; kubelets of an IPv6-only cluster probe by IPv6, and a node may have IPv6 switched off."""
    if address in ("", "::") and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.getaddrinfo(address or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family)


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, metrics.text(), "text/plain; version=0.0.4; charset=utf-8")
            elif path in ("/healthz", "/readyz"):
                good = metrics.is_alive if path == "/healthz" else metrics.is_ready
                self._answer(200 if good else 503, b"ok\n" if good else b"not yet\n", "text/plain")
            else:
                self._answer(404, b"there are /healthz, /readyz and /metrics\n", "text/plain")

        def _answer(self, code: int, body: bytes, content_type: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: probes come every few seconds."""

    return Handler
