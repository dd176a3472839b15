"""Lets the events of a scenario happen, and jobs with an end do their work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mlstack.elastic.observed.pods import JOB_LABEL, ROLE_LABEL
from mlstack.elastic.simulate.admission import end, is_live
from mlstack.elastic.simulate.cluster import Environment
from mlstack.elastic.simulate.objects import NAMESPACE
from mlstack.elastic.simulate.scenario import Event, JobPlan
from mlstack.elastic.simulate.store import Obj, changed

_WORK_MS = 1_000


class Driven(Protocol):
    """What events do to whoever scales the jobs."""

    def kill(self, seconds: float) -> None:
        """Let it die, and come back after so long."""

    def stop(self, seconds: float) -> None:
        """Let it end as it should, and come back after so long."""

    def freeze(self, seconds: float) -> None:
        """Let it stand still for so long before its next write."""

    def isolate(self, seconds: float) -> None:
        """Let it reach the server no more for so long."""

    def deafen(self, seconds: float) -> None:
        """Let it hear nothing for so long."""


class Happenings:
    """Puts what happens on the calendar.

    Args:
        environment: the cluster.
        controller: who scales the jobs, None for nobody who could be disturbed.
    """

    def __init__(self, environment: Environment, controller: Driven | None = None) -> None:
        """Enter all events of the scenario."""
        self._environment = environment
        self._kernel, self._store = environment.kernel, environment.store
        self._controller = controller
        self._chance = environment.kernel.generator("happenings")
        for event in environment.scenario.events:
            environment.later(event.at_ms, lambda event=event: self._happen(event))  # type: ignore[misc]  # bound now
        for job in environment.scenario.jobs:
            if job.work_s:
                environment.later(job.at_ms, lambda job=job: self._train(job, 0))  # type: ignore[misc]  # bound now

    def _happen(self, event: Event) -> None:
        self._doing(event)()
        if event.every_ms:
            self._kernel.after(event.every_ms, lambda: self._happen(event))

    def _doing(self, event: Event) -> Callable[[], None]:
        """Give what an event does."""
        name, lifecycle = event.name, self._environment.lifecycle
        return {
            "scale": lambda: self._change("Deployment", name, replicas=event.count),
            "delete-job": lambda: self._delete(name),
            "suspend-job": lambda: self._change("TrainingJob", name, suspend=True),
            "resume-job": lambda: self._change("TrainingJob", name, suspend=False),
            "limit-job": lambda: self._limit(name, event.count),
            "finish-job": lambda: self._exit(name, 0, self._running(name)),
            "crash-trainers": lambda: self._exit(name, 1, self._some(name, event.count)),
            "delete-trainers": lambda: self._end(self._some(name, event.count)),
            "fail-node": lambda: lifecycle.fail(name),
            "heal-node": lambda: lifecycle.heal(name),
            "cordon-node": lambda: lifecycle.cordon(name, is_closed=True),
            "uncordon-node": lambda: lifecycle.cordon(name, is_closed=False),
            "remove-node": lambda: lifecycle.remove(name),
            "add-nodes": lambda: self._environment.more_nodes(name, event.count),
            "kill-controller": lambda: self._disturb("kill", event.seconds),
            "stop-controller": lambda: self._disturb("stop", event.seconds),
            "freeze-controller": lambda: self._disturb("freeze", event.seconds),
            "isolate-controller": lambda: self._disturb("isolate", event.seconds),
            "break-watch": lambda: self._disturb("deafen", event.seconds),
        }[event.what]

    def _disturb(self, how: str, seconds: float) -> None:
        if self._controller is not None:
            getattr(self._controller, how)(seconds)

    def _change(self, kind: str, name: str, **fields: Any) -> None:
        live = self._store.get(kind, name, NAMESPACE)
        if live is not None:
            generation = live["metadata"].get("generation", 1) + 1
            self._store.write(changed(live, metadata={"generation": generation}, spec=fields))

    def _limit(self, name: str, count: int) -> None:
        live = self._store.get("TrainingJob", name, NAMESPACE)
        if live is not None:
            self._change("TrainingJob", name, trainer={**live["spec"]["trainer"], "max-instance": count})

    def _delete(self, name: str) -> None:
        live = self._store.get("TrainingJob", name, NAMESPACE)
        if live is not None:
            self._store.remove(live)

    def _running(self, name: str) -> list[Obj]:
        labels = {JOB_LABEL: name, ROLE_LABEL: "trainer"}
        return [
            pod
            for pod in self._store.all("Pod")
            if labels.items() <= (pod["metadata"].get("labels") or {}).items()
            and is_live(pod)
            and pod["status"].get("phase") == "Running"
        ]

    def _some(self, name: str, count: int) -> list[Obj]:
        running = self._running(name)
        return self._chance.sample(running, min(count, len(running)))

    def _exit(self, name: str, code: int, pods: list[Obj]) -> None:
        for pod in pods:
            self._environment.kubelets.exit(pod, code)

    def _end(self, pods: list[Obj]) -> None:
        for pod in pods:
            end(self._store, pod, now_ms=self._kernel.now_ms)

    def _train(self, job: JobPlan, done_s: int) -> None:
        """Count a second for each running trainer; when the work is done all of them end, late ones too.

        Without a controller that says so, the job has then succeeded: EDL wrote no phase.
        """
        running = self._running(job.name)
        done_s += len(running)
        if done_s >= job.work_s:
            self._exit(job.name, 0, running)
            if self._controller is None:
                self._note_success(job.name)
        self._kernel.after(_WORK_MS, lambda: self._train(job, done_s))

    def _note_success(self, name: str) -> None:
        live = self._store.get("TrainingJob", name, NAMESPACE)
        if live is not None and not live.get("status"):
            self._store.write(changed(live, status={"phase": "Succeeded"}))
