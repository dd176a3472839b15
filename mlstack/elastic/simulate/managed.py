"""The controller under test in a simulated cluster: world and reconciler of production, on virtual time."""

from __future__ import annotations

from mlstack.cluster.api import ObjectRef, WatchEvent
from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.pace import Pace
from mlstack.elastic.reconcile import Reconciler
from mlstack.elastic.simulate.api import SimulatedCluster
from mlstack.elastic.simulate.cluster import Environment
from mlstack.elastic.simulate.laws import breaches_of_plan
from mlstack.elastic.simulate.objects import training_job
from mlstack.elastic.simulate.scenario import JobPlan
from mlstack.elastic.simulate.store import Feed
from mlstack.elastic.world import World
from mlstack.errors import ConflictError, TransientError

WATCHED = ("Node", "PriorityClass", "TrainingJob", "StatefulSet", "Pod")


class Managed:
    """Submits the jobs of a scenario and lets the controller run them.

    Attributes:
        violations: breaches of the laws of plans, each with its time.
        passes: how often the controller looked.
        cluster: what it writes to.

    Args:
        environment: the cluster.
        config: of the policy.
    """

    def __init__(self, environment: Environment, config: PolicyConfig) -> None:
        """Put the submissions on the calendar and start the controller."""
        self._environment = environment
        self._kernel, self._store = environment.kernel, environment.store
        self._config = config
        self._chance = self._kernel.generator("faults")
        self.cluster = SimulatedCluster(self._store, self._kernel, self._refuse)
        self.violations: list[str] = []
        self.passes = 0
        self._lives = 0
        self._feed: Feed | None = None
        for job in environment.scenario.jobs:
            environment.later(job.at_ms, lambda job=job: self._submit(job))  # type: ignore[misc]  # bound now
        self._start()

    def kill(self, seconds: float) -> None:
        """Let the controller die, with all that it knew; another one takes over after so long."""
        self._lives += 1
        if self._feed is not None:
            self._feed.close()
        life = self._lives
        self._kernel.after(round(seconds * 1000), lambda: self._start() if life == self._lives else None)

    def deafen(self, seconds: float) -> None:
        """Let the controller hear nothing for so long; what it missed it learns from a list."""
        if self._feed is not None:
            self._feed.close()
        life = self._lives
        self._kernel.after(round(seconds * 1000), lambda: self._listen() if life == self._lives else None)

    def _submit(self, job: JobPlan) -> None:
        self._store.write(training_job(job, self._environment.scenario.grace_s))

    def _refuse(self, verb: str, ref: ObjectRef) -> None:
        """Let some writes fail, as often as the scenario wants it."""
        faults = self._environment.scenario.faults
        if not faults.conflict_pct and not faults.error_pct:
            return
        draw = self._chance.random() * 100
        if draw < faults.conflict_pct and verb != "create":
            raise ConflictError(f"{ref} changed meanwhile", where=str(ref))
        if draw >= 100 - faults.error_pct:
            raise TransientError("the server is busy", where=str(ref))

    def _start(self) -> None:
        life = self._lives
        self._world = World()
        self._pace = Pace()
        self._reconciler = Reconciler(
            self.cluster, self._world, self._config, transitions=lambda: life, instance=f"simulated-{life}"
        )
        self._due_ms: int | None = None
        self._listen()
        self._plan_next()

    def _listen(self) -> None:
        """List everything, then hear of what changes."""
        for kind in WATCHED:
            listing = self.cluster.list("", kind)
            self._world.replace(kind, listing.items, listing.resource_version)
        self._feed = self._store.watch(WATCHED, self._hear, name="controller")
        self._pace.heard(self._kernel.now_ms)
        self._plan_next()

    def _hear(self, event: WatchEvent) -> None:
        if self._world.hear(event):
            self._pace.heard(self._kernel.now_ms)
            self._plan_next()

    def _plan_next(self) -> None:
        """Put the next pass on the calendar, unless an earlier one stands there."""
        due_ms = max(self._pace.next_ms(), self._kernel.now_ms)
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            life = self._lives
            self._kernel.at(due_ms, lambda: self._pass(due_ms, life))

    def _pass(self, due_ms: int, life: int) -> None:
        if life != self._lives or due_ms != self._due_ms:
            return
        now_ms = self._kernel.now_ms
        done = self._reconciler.step(now_ms)
        self.passes += 1
        at_s = self._kernel.elapsed_ms / 1000
        self.violations += [f"{at_s:g} s: {text}" for text in breaches_of_plan(done.snapshot, done.plan)]
        self._pace.passed(now_ms, done.next_ms)
        self._due_ms = None
        self._plan_next()
