"""The controllers under test in a simulated cluster, what disturbs them, and who watches over them."""

from __future__ import annotations

from collections.abc import Callable

from mlstack.cluster.api import ObjectRef
from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.pace import TICK_MS
from mlstack.elastic.reconcile import Pass
from mlstack.elastic.running.settings import LEASE_NAME, LEASE_NAMESPACE
from mlstack.elastic.simulate.api import SimulatedCluster
from mlstack.elastic.simulate.cluster import Environment
from mlstack.elastic.simulate.contender import Contender
from mlstack.elastic.simulate.laws import WITHOUT_PLACES, breaches_of_plan
from mlstack.elastic.simulate.objects import training_job
from mlstack.elastic.simulate.scenario import JobPlan
from mlstack.errors import ConflictError, TransientError


class Managed:
    """Submits the jobs of a scenario and lets one or more controllers run them.

    Attributes:
        violations: breaches of the laws of plans, each with its time.
        passes: how often a controller looked.
        cluster: what they write to.

    Args:
        environment: the cluster.
        config: of the policy.
        tick_ms: longest time between two passes of one controller.
    """

    def __init__(self, environment: Environment, config: PolicyConfig, *, tick_ms: int = TICK_MS) -> None:
        """Put the submissions on the calendar and start the controllers."""
        self._environment = environment
        self._kernel, self._store = environment.kernel, environment.store
        self._chance = self._kernel.generator("faults")
        self.cluster = SimulatedCluster(self._store, self._kernel, self._refuse)
        self.violations: list[str] = []
        self.passes = 0
        self._has_places = config.mode not in WITHOUT_PLACES
        for job in environment.scenario.jobs:
            environment.later(job.at_ms, lambda job=job: self._submit(job))  # type: ignore[misc]  # bound now
        self._contenders = self._made(environment.scenario.controllers, config, tick_ms)
        for contender in self._contenders:
            contender.start()

    def kill(self, seconds: float) -> None:
        """Let the leader die, with all that it knew; it comes back after so long."""
        self._end(Contender.die, seconds)

    def stop(self, seconds: float) -> None:
        """Let the leader end as it should, and come back after so long."""
        self._end(Contender.stop, seconds)

    def freeze(self, seconds: float) -> None:
        """Let the leader stand still for so long before its next write, and not notice."""
        self._leader().freeze(seconds)

    def isolate(self, seconds: float) -> None:
        """Let the leader reach the server no more for so long."""
        self._leader().isolate(seconds)

    def deafen(self, seconds: float) -> None:
        """Let the leader hear nothing for so long; what it missed it learns from a list."""
        self._leader().deafen(seconds)

    def _made(self, count: int, config: PolicyConfig, tick_ms: int) -> list[Contender]:
        is_alone = count == 1
        names = ["controller"] if is_alone else [f"controller-{index}" for index in range(count)]
        return [
            Contender(
                name,
                self._kernel,
                self._store,
                self.cluster,
                config,
                is_alone=is_alone,
                passed=self._passed,
                writes=self._writes,
                tick_ms=tick_ms,
            )
            for name in names
        ]

    def _leader(self) -> Contender:
        """Give who leads, or one that runs, or one that will."""
        return max(self._contenders, key=lambda one: (one.is_leading, one.is_running))

    def _end(self, how: Callable[[Contender], None], seconds: float) -> None:
        leader = self._leader()
        how(leader)
        life = leader.lives
        self._kernel.after(round(seconds * 1000), lambda: leader.start() if leader.lives == life else None)

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

    def _passed(self, done: Pass) -> None:
        self.passes += 1
        self._accuse(*breaches_of_plan(done.snapshot, done.plan, has_places=self._has_places))

    def _writes(self, name: str) -> None:
        """Hold against one of several controllers that it writes while the Lease is not its own."""
        if len(self._contenders) == 1:
            return
        lease = self._store.get("Lease", LEASE_NAME, LEASE_NAMESPACE) or {}
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder != name:
            self._accuse(f"lease: {name} writes while {holder or 'nobody'} leads")

    def _accuse(self, *texts: str) -> None:
        at_s = self._kernel.elapsed_ms / 1000
        self.violations += [f"{at_s:g} s: {text}" for text in texts]
