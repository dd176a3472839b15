"""Health and metrics of the controller; the only door to prometheus_client."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mlstack.elastic.cache import free_room
from mlstack.elastic.policy.sharing import jain
from mlstack.elastic.policy.state import fits, total
from mlstack.elastic.reconciler import Pass
from mlstack.elastic.snapshot import Decision, Job, Snapshot, Vector, minus

_NO_ANSWER = "<error>"  # the code of a request without an answer, as Kubernetes' own clients have it
_ALIVE_S = 60.0  # the loop goes round every second; a pass with hundreds of writes takes some

_PLANS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_BUCKETS_S: Mapping[str, Sequence[float]] = {
    "plan_seconds": _PLANS_S,
    "pass_seconds": (*_PLANS_S, 5, 10, 25, 60),
    "wait_seconds": (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600),
}
_JOB, _RESOURCE = ("namespace", "job"), ("resource",)
# Names (after `mlstack_elastic_`), types, labels and help. Of type `pass` are the gauges of the last pass.
_METRICS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("job_desired", "pass", _JOB, "Trainers of a job: as many as it was told to have"),
    ("job_bound", "pass", _JOB, "Trainers of a job: with a node"),
    ("job_ready", "pass", _JOB, "Trainers of a job: ready"),
    ("job_min", "pass", _JOB, "Trainers of a job: fewest"),
    ("job_max", "pass", _JOB, "Trainers of a job: most"),
    ("job_fulfilment", "pass", _JOB, "Trainers of a job: share of its elastic range that it was given"),
    ("jobs", "pass", ("phase",), "Jobs by phase"),
    ("pending_jobs", "pass", (), "Jobs of which no trainer runs, as EDL counts"),
    ("incomplete_jobs", "pass", (), "Jobs whose gang (servers, fewest trainers) does not run as a whole"),
    ("jain_index", "pass", (), "Jain's index of the trainers of admitted jobs, 1 is even"),
    ("plan_steps", "pass", (), "Steps of the last plan"),
    ("cluster_allocatable", "pass", _RESOURCE, "What nodes have: thousandths of a core, bytes, pieces"),
    ("cluster_requested_ratio", "pass", _RESOURCE, "Requests of bound pods by what nodes have"),
    ("cluster_placeable_ratio", "pass", _RESOURCE, "Free room for jobs that want more, by what nodes have"),
    ("stranded_ratio", "pass", _RESOURCE, "Free room in which no such job has a place, by what nodes have"),
    ("foreign_pods_pending", "pass", ("priority",), "Pods of others without a node"),
    ("snapshot_age_seconds", "pass", (), "Time since the last pass"),
    ("leader", "gauge", (), "1 while this process leads"),
    ("scale_operations", "counter", ("direction", "reason"), "Changes of the number of trainers of a job"),
    ("trainer_deletions", "counter", (), "Trainers that this controller deleted before they had ended"),
    (
        "api_requests",
        "counter",
        ("verb", "code"),
        "Requests to the API server, each try of one, by verb (lists are get, a watch is one request) "
        f"and HTTP code of the answer ({_NO_ANSWER}: there was none)",
    ),
    ("failed_passes", "counter", (), "Passes that the cluster cut short"),
    ("plan_seconds", "histogram", (), "Time in which the policy decides"),
    ("pass_seconds", "histogram", (), "Time of a pass: looking, deciding, writing"),
    ("wait_seconds", "histogram", ("until",), "Time until the first trainer or the whole gang is ready"),
)
Rows = Iterable[tuple[Sequence[str], float]]


class Metrics:
    """What Prometheus reads of the controller; of jobs and room from the leader alone, a pass at a time."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        import prometheus_client as prometheus

        self._monotonic_s, self._looked_s, self._is_synced = monotonic_s, monotonic_s(), False
        self._last_pass: tuple[float, Mapping[str, Rows]] | None = None
        self._registry = prometheus.CollectorRegistry()
        self._registry.register(self)
        self._own: dict[str, Any] = {}
        for name, kind, labels, text in _METRICS:
            if kind != "pass":
                options: dict[str, Any] = {"buckets": _BUCKETS_S[name]} if kind == "histogram" else {}
                options["registry"] = self._registry
                new = getattr(prometheus, kind.title())
                self._own[name] = new(f"mlstack_elastic_{name}", text, labels, **options)

    def collect(self) -> Iterator[Any]:
        """Give the gauges of the last pass, for the registry."""
        from prometheus_client.core import GaugeMetricFamily

        if self._last_pass is None:
            return
        passed_s, rows = self._last_pass
        rows = {**rows, "snapshot_age_seconds": _one(self._monotonic_s() - passed_s)}
        for name, kind, labels, text in _METRICS:
            if kind == "pass":
                family = GaugeMetricFamily(f"mlstack_elastic_{name}", text, labels=labels)
                for values, value in rows[name]:
                    family.add_metric(values, value)
                yield family

    def observe_loop(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take note that the loop goes round."""
        self._looked_s, self._is_synced = self._monotonic_s(), is_synced
        self._own["leader"].set(1 if is_leading else 0)
        if not is_leading:
            self._last_pass = None

    def observe_failure(self, error: Exception) -> None:
        """Take note of a pass that failed."""
        self._own["failed_passes"].inc()

    def observe_pass(self, done: Pass, *, seconds: float) -> None:
        """Take note of a pass."""
        self._last_pass = (self._monotonic_s(), {**_of_jobs(done), **_of_room(done.snapshot)})
        self._own["pass_seconds"].observe(seconds)
        self._own["plan_seconds"].observe(done.plan_s)
        self._own["trainer_deletions"].inc(sum(action.stops == "trainer" for action in done.taken))
        written = {action.job for action in done.taken if action.verb == "status"}  # the cluster took it
        for key, until, waited_s in done.waits:
            if key in written:
                self._own["wait_seconds"].labels(until).observe(waited_s)
        for job in done.snapshot.jobs:
            decision = _decision(done, job)
            if job.key in written and decision.target != job.target:
                direction = "up" if decision.target > job.target else "down"
                self._own["scale_operations"].labels(direction, decision.reasons[0].cause).inc()

    def answered(self, verb: str, status: int | None) -> None:
        """Take note of a request to the API server and the HTTP status of its answer; from any thread."""
        self._own["api_requests"].labels(verb, _NO_ANSWER if status is None else str(status)).inc()

    @property
    def is_alive(self) -> bool:
        """Tell whether the loop still goes round."""
        return self._monotonic_s() - self._looked_s < _ALIVE_S

    @property
    def is_ready(self) -> bool:
        """Tell whether everything there is has been seen, so that this process could lead."""
        return self._is_synced and self.is_alive

    def text(self) -> bytes:
        """Write all metrics in Prometheus' format."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


def _one(value: float) -> Rows:
    return [((), value)]


def _decision(done: Pass, job: Job) -> Decision:
    return done.decisions.get(job.key) or done.plan.decisions[job.key]


def _of_jobs(done: Pass) -> dict[str, Rows]:
    snapshot, without_trainer = done.snapshot, done.lacks.get("trainer", 0)
    foreign = Counter(demand.priority for demand in snapshot.demands if not demand.job)
    rows: dict[str, Rows] = {
        "jobs": [((phase,), number) for phase, number in sorted(done.phases.items())],
        "pending_jobs": _one(without_trainer),
        "incomplete_jobs": _one(without_trainer + done.lacks.get("gang", 0)),
        "jain_index": _one(jain([len(job.trainers) for job in snapshot.jobs if job.state == "admitted"])),
        "plan_steps": _one(done.plan.steps),
        "foreign_pods_pending": [((str(priority),), number) for priority, number in sorted(foreign.items())],
    }
    of_job: dict[str, Any] = {name: [] for name, _, labels, _ in _METRICS if labels == _JOB}
    for job in snapshot.jobs:
        target, span = _decision(done, job).target, job.maximum - job.minimum
        values = {
            "job_desired": target,
            "job_bound": sum(bool(trainer.node) for trainer in job.trainers),
            "job_ready": sum(trainer.is_ready for trainer in job.trainers),
            "job_min": job.minimum,
            "job_max": job.maximum,
            "job_fulfilment": (target - job.minimum) / span if span > 0 and target else float(target > 0),
        }
        for name, value in values.items():
            of_job[name].append((job.key.split("/", 1), value))
    return {**rows, **of_job}


def _of_room(snapshot: Snapshot) -> dict[str, Rows]:
    free, size = free_room(snapshot), len(snapshot.resources)
    # Jobs that want more trainers can have one where there is room for it.
    growing = [job for job in snapshot.jobs if job.state != "finishing" and len(job.trainers) < job.maximum]
    stranded = [
        room
        for name, room in free.items()
        if not any(
            fits(room, enumerate(job.trainer)) for job in growing if job.nodes is None or name in job.nodes
        )
    ]
    whole = total([node.allocatable for node in snapshot.nodes], size)
    left, lost = total(free.values(), size), total(stranded, size)
    offered = [(index, name) for index, name in enumerate(snapshot.resources) if whole[index]]

    def ratio(parts: Vector) -> Rows:
        return [((resource,), parts[index] / whole[index]) for index, resource in offered]

    return {
        "cluster_allocatable": [((name,), whole[index]) for index, name in offered],
        "cluster_requested_ratio": ratio(minus(whole, left)),
        "cluster_placeable_ratio": ratio(minus(left, lost)),
        "stranded_ratio": ratio(lost),
    }


# --- probes ---


class HealthServer:
    """Answers `/healthz`, `/readyz` and `/metrics`."""

    def __init__(self, metrics: Metrics, *, address: str, port: int) -> None:
        if address in ("", "::") and socket.has_dualstack_ipv6():
            # Kubelets of an IPv6-only cluster probe by IPv6, and a node may have IPv6 switched off.
            listening = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            family = socket.getaddrinfo(address or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]
            listening = socket.create_server((address, port), family=family)
        self.port = int(listening.getsockname()[1])
        name = listening.getsockname()[:2]
        self._server = ThreadingHTTPServer(name, _handler(metrics), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening

    def start(self) -> None:
        """Begin to answer, in a thread."""
        Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            path, kind = self.path.partition("?")[0], "text/plain"
            code, body = 404, b"there are /healthz, /readyz and /metrics\n"
            if path == "/metrics":
                code, body, kind = 200, metrics.text(), "text/plain; version=0.0.4; charset=utf-8"
            elif path in ("/healthz", "/readyz"):
                is_good = metrics.is_alive if path == "/healthz" else metrics.is_ready
                code, body = (200, b"ok\n") if is_good else (503, b"not yet\n")
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: probes come every few seconds."""

    return Handler
