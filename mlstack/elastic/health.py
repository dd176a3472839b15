"""Health and metrics of the controller; the only door to prometheus_client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlstack.elastic import room
from mlstack.elastic.reconcile import Pass
from mlstack.elastic.snapshot import Job, Snapshot

PREFIX = "mlstack_elastic"

# The loop goes round every second; a pass with hundreds of writes takes some.
ALIVE_S = 60.0

_WAITS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_PLANS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """What is told of the controller, as Prometheus reads it; a `controller.Watcher`.

    Args:
        monotonic_s: gives a time that never goes back, in seconds.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        """Begin with nothing measured."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._monotonic_s = monotonic_s
        self._looked_s = monotonic_s()
        self._passed_s: float | None = None
        self._is_synced = False
        registry = self._registry = CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Any:
            return Gauge(f"{PREFIX}_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Any:
            return Counter(f"{PREFIX}_{name}", text, labels, registry=registry)

        job = ("namespace", "job")
        self._job = {
            name: gauge(f"job_{name}", f"Trainers of a job: {text}", *job)
            for name, text in (
                ("desired", "as many as it was told to have"),
                ("bound", "with a node"),
                ("ready", "ready"),
                ("min", "fewest"),
                ("max", "most"),
                ("fulfilment", "share of its elastic range that it was given"),
            )
        }
        self._jobs = gauge("jobs", "Jobs by phase", "phase")
        self._pending = gauge("pending_jobs", "Jobs without a trainer that has a node")
        self._leader = gauge("leader", "1 while this process leads")
        self._age = gauge("snapshot_age_seconds", "Time since the last pass")
        self._age.set_function(self._snapshot_age_s)
        self._jain = gauge("jain_index", "Jain's index of the trainers of admitted jobs, 1 is even")
        self._requested = gauge(
            "cluster_requested_ratio", "Requests of bound pods by what nodes have", "resource"
        )
        self._allocatable = gauge(
            "cluster_allocatable", "What nodes have: thousandths of a core, bytes, pieces", "resource"
        )
        self._placeable = gauge(
            "cluster_placeable_ratio", "Free room in which a job that wants more has a place", "resource"
        )
        self._stranded = gauge(
            "stranded_ratio", "Free room in which no waiting or growing job has a place", "resource"
        )
        self._foreign = gauge("foreign_pods_pending", "Pods of others without a node", "priority")
        self._operations = counter(
            "scale_operations", "Changes of the number of trainers", "direction", "reason"
        )
        self._deletions = counter("trainer_deletions", "Trainers deleted")
        self._requests = counter("api_requests", "Writes to the cluster", "verb", "code")
        self._failures = counter("failed_passes", "Passes that the cluster cut short")
        self._steps = gauge("plan_steps", "Steps of the last plan")
        self._seconds = Histogram(
            f"{PREFIX}_plan_seconds", "Time of a pass, writes included", buckets=_PLANS_S, registry=registry
        )
        self._wait = Histogram(
            f"{PREFIX}_wait_seconds",
            "Time from the creation of a job until its first trainer, and its whole gang, are ready",
            ("until",),
            buckets=_WAITS_S,
            registry=registry,
        )

    def looked(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take note that the loop goes round."""
        self._looked_s, self._is_synced = self._monotonic_s(), is_synced
        self._leader.set(1 if is_leading else 0)

    def failed(self, error: Exception) -> None:
        """Take note of a pass that failed."""
        self._failures.inc()

    def passed(self, found: Pass, *, seconds: float) -> None:
        """Take note of a pass."""
        self._passed_s = self._monotonic_s()
        self._seconds.observe(seconds)
        self._steps.set(found.plan.steps)
        self._note_jobs(found)
        self._note_writes(found)
        self._note_room(found.snapshot)

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

    def _snapshot_age_s(self) -> float:
        return -1.0 if self._passed_s is None else self._monotonic_s() - self._passed_s

    def _note_jobs(self, found: Pass) -> None:
        for metric in self._job.values():
            metric.clear()
        for job in found.snapshot.jobs:
            decision = found.plan.decisions[job.key]
            self._note_job(job, decision.target)
            if decision.target != job.target:
                direction = "up" if decision.target > job.target else "down"
                self._operations.labels(direction, decision.reasons[0].cause).inc()
        self._jobs.clear()
        for phase, count in found.phases.items():
            self._jobs.labels(phase).set(count)
        for one in found.waits:
            self._wait.labels(one.until).observe(one.seconds)
        self._pending.set(sum(not any(one.node for one in job.trainers) for job in found.snapshot.jobs))
        self._jain.set(
            room.jain([len(job.trainers) for job in found.snapshot.jobs if job.state == "admitted"])
        )

    def _note_job(self, job: Job, target: int) -> None:
        namespace, _, name = job.key.partition("/")
        span = job.maximum - job.minimum
        values = {
            "desired": target,
            "bound": sum(bool(one.node) for one in job.trainers),
            "ready": sum(one.is_ready for one in job.trainers),
            "min": job.minimum,
            "max": job.maximum,
            "fulfilment": (target - job.minimum) / span if span > 0 and target else float(target > 0),
        }
        for key, value in values.items():
            self._job[key].labels(namespace, name).set(value)

    def _note_writes(self, found: Pass) -> None:
        refused = {id(one.action): type(one.error).__name__ for one in found.refused}
        for action in found.actions:
            self._requests.labels(action.verb, refused.get(id(action), "ok")).inc()
            if action.verb == "delete" and "-trainer-" in action.ref.name:
                self._deletions.inc()

    def _note_room(self, snapshot: Snapshot) -> None:
        free = room.free_by_node(snapshot)
        stranded = room.total(
            left for node, left in free.items() if not room.is_placeable(node, left, snapshot)
        )
        left, total = room.total(free.values()), room.total(node.allocatable for node in snapshot.nodes)
        for index, name in enumerate(snapshot.resources):
            if not total or not total[index]:
                continue
            lost = stranded[index] if stranded else 0
            self._allocatable.labels(name).set(total[index])
            self._requested.labels(name).set(1 - left[index] / total[index])
            self._stranded.labels(name).set(lost / total[index])
            self._placeable.labels(name).set((left[index] - lost) / total[index])
        self._foreign.clear()
        waiting: dict[int, int] = {}
        for demand in snapshot.demands:
            if not demand.job:
                waiting[demand.priority] = waiting.get(demand.priority, 0) + 1
        for priority, count in waiting.items():
            self._foreign.labels(str(priority)).set(count)
