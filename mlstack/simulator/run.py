"""A whole simulated cluster: the store and all that works on it but the controller under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mlstack.elastic import facts as nodes
from mlstack.elastic import facts as pods
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.controller import LEASE_NAME, LEASE_NAMESPACE
from mlstack.elastic.controller.leader import DURATION_S, LeaderElector, NotLeadingError
from mlstack.elastic.controller.reconciler import Pass, Reconciler
from mlstack.elastic.controller.requeue import TICK_MS, RequeuePolicy
from mlstack.elastic.facts import JOB_LABEL, ROLE_LABEL, NodeFacts, PodFacts
from mlstack.elastic.policy.edl import edl_v010
from mlstack.elastic.resources import BASIC, vector
from mlstack.elastic.snapshot import (
    Arriving,
    Decision,
    Demand,
    Job,
    Node,
    PolicyConfig,
    ScalePlan,
    Snapshot,
    Trainer,
    Vector,
    stands_still,
)
from mlstack.elastic.training_job import parse
from mlstack.errors import ClusterError, ConflictError, TransientError, UnreachableError
from mlstack.kube.client import ClientWrapper, Cluster, ObjectRef, WatchEvent
from mlstack.kube.lease import Lease
from mlstack.kube.retrying import FencedClient
from mlstack.simulator import scenario as cases
from mlstack.simulator import scenario as objects
from mlstack.simulator.engine import (
    START_MS,
    EventFeed,
    Kernel,
    Obj,
    SimulatedCluster,
    SimulatedStore,
    changed,
    end,
    is_live,
)
from mlstack.simulator.measures import ClusterObserver, JobSample, Sample
from mlstack.simulator.nodes import Collector, Kubelets, NodeLifecycle, Workloads
from mlstack.simulator.scenario import NAMESPACE, JobPlan, NodeGroup, Scenario, ScenarioEvent, training_job
from mlstack.simulator.scheduler import Scheduler

# --- A whole simulated cluster: the store and all that works on it but the controller under test ---

SAMPLE_MS = 1_000

_OBSERVED = ("Pod", "Node", "TrainingJob", "Deployment")


class SimulationEnvironment:
    """A cluster with its scheduler, kubelets and controllers.

    Attributes:
        kernel: the time.
        store: the objects.
        kubelets: what runs on the nodes.
        lifecycle: makes nodes fail.
        samples: one a second, from the beginning of the scenario's window.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.kernel = Kernel(seed)
        self.store = SimulatedStore(self.kernel)
        self.samples: list[Sample] = []
        self._observer = ClusterObserver()
        self.store.watch(_OBSERVED, self._observer.hear)
        self.kubelets = Kubelets(self.store, self.kernel, scenario.kubelet)
        self.lifecycle = NodeLifecycle(self.store, self.kernel, self.kubelets)
        self._scheduler = Scheduler(self.store, self.kernel, scenario.scheduler)
        self._workloads = Workloads(self.store, self.kernel, scenario.workloads)
        self._collector = Collector(self.store, self.kernel)
        for priority_class in objects.classes():
            self.store.write(priority_class)
        for group in scenario.nodes:
            self.add_nodes(group)
        for service in scenario.services:
            self.later(service.at_ms, lambda service=service: self.store.write(objects.deployment(service)))  # type: ignore[misc]  # bound now

    def add_nodes(self, group: NodeGroup) -> None:
        """Add nodes, numbered on from those of the same group."""
        first = sum(node["metadata"]["name"].startswith(f"{group.name}-") for node in self.store.all("Node"))
        for node in objects.nodes(group, first):
            if group.background:  # it is there when the scheduler first hears of the node
                self.store.write(objects.background(node["metadata"]["name"], group.background))
            self.store.write(node)

    def more_nodes(self, name: str, count: int) -> None:
        """Add so many nodes like those of a group."""
        for group in self.scenario.nodes:
            if group.name == name:
                self.add_nodes(replace(group, count=count))

    def later(self, at_ms: int, action: Callable[[], object]) -> None:
        """Do something at a time of the scenario."""
        self.kernel.at(START_MS + at_ms, lambda: _without_result(action))

    def run(self) -> None:
        """Let the scenario happen, and take a sample every second."""
        self.later(self.scenario.begin_ms, self._sample)
        self.kernel.run(START_MS + self.scenario.end_ms)

    def _sample(self) -> None:
        self.samples.append(self._observer.sample(self.kernel.now_ms - START_MS - self.scenario.begin_ms))
        self.kernel.after(SAMPLE_MS, self._sample)


def _without_result(action: Callable[[], object]) -> None:
    action()


# --- A controller in a simulated cluster: world and reconciler of production, and the Lease among
# several

WATCHED = ("Node", "PriorityClass", "TrainingJob", "StatefulSet", "Pod")
AROUND = ("Service", "PodDisruptionBudget")


class RunLine(ClientWrapper):
    """A cluster at the end of a line that can be cut.

    Attributes:
        is_cut: whether nothing comes through.
    """

    is_cut = False

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        if self.is_cut and verb != "expect":
            raise UnreachableError("the server does not answer")
        return super()._call(verb, *args, **named)


class SimulatedController:
    """One process: it starts, stands for election, works while it leads, dies.

    Attributes:
        name: its name in the Lease.
        is_running: whether it runs.
        lives: how often it began or ended.

    Args:
        name: its name in the Lease.
        is_alone: whether it leads in any case.
        passed: is told of each pass.
        writes: is told its name before each write.
        tick_ms: longest time between two passes.
    """

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        store: SimulatedStore,
        cluster: Cluster,
        config: PolicyConfig,
        *,
        is_alone: bool,
        passed: Callable[[Pass], None],
        writes: Callable[[str], None],
        tick_ms: int = TICK_MS,
    ) -> None:
        self.name, self.is_running = name, False
        self._kernel, self._store, self._cluster, self._config = kernel, store, RunLine(cluster), config
        self._is_alone, self._passed, self._writes = is_alone, passed, writes
        self._tick_ms = tick_ms
        self.lives = 0
        self._pause_ms, self._frozen_until_ms = 0, 0
        self._feeds: tuple[EventFeed, ...] = ()
        self._due_ms: int | None = None
        self._leadership: LeaderElector | None = None
        self._reconciler: Reconciler | None = None

    @property
    def is_leading(self) -> bool:
        """Tell whether it runs and may write."""
        return self.is_running and (self._leadership is None or self._leadership.is_leading)

    def start(self) -> None:
        """Begin to run, knowing nothing."""
        self.lives += 1
        self.is_running = True
        self._cache = ClusterCache()
        self._reconciler, self._leadership = None, None if self._is_alone else self._candidacy()
        self._pause_ms, self._frozen_until_ms = 0, 0
        self._cluster.is_cut = False
        self._listen()
        self._stand(self.lives)

    def die(self) -> None:
        """End at once, with all that it knew; the Lease is left to expire."""
        self.lives += 1
        self.is_running = False
        self._stop_listening()

    def stop(self) -> None:
        """End as it is told to: the Lease is free at once."""
        self.die()
        if self._leadership is not None:
            self._leadership.stop()

    def deafen(self, seconds: float) -> None:
        """Hear nothing for so long; what was missed is learnt from a list."""
        self._stop_listening()
        self._later(round(seconds * 1000), self._listen)

    def isolate(self, seconds: float) -> None:
        """Reach the server no more for so long, and hear nothing."""
        self._cluster.is_cut = True
        self._stop_listening()
        self._later(round(seconds * 1000), self._reconnect)

    def freeze(self, seconds: float) -> None:
        """Stand still for so long right before the next write, in the middle of a pass, and not notice."""
        self._pause_ms = round(seconds * 1000)

    def _reconnect(self) -> None:
        self._cluster.is_cut = False
        self._listen()

    def _candidacy(self) -> LeaderElector:
        lease = Lease(
            cluster=self._cluster,
            namespace=LEASE_NAMESPACE,
            name=LEASE_NAME,
            holder=self.name,
            now_s=self._now_s,
            duration_s=DURATION_S,
        )
        return LeaderElector(lease, self._now_s, lambda text: None)

    def _now_s(self) -> float:
        return self._kernel.now_ms / 1000

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something in a while, unless it died by then; while it stands still nothing is done."""
        life = self.lives

        def do() -> None:
            if life == self.lives and self._kernel.now_ms <= self._frozen_until_ms:
                self._kernel.at(self._frozen_until_ms + 1, do)
            elif life == self.lives:
                action()

        self._kernel.after(delay_ms, do)

    def _listen(self) -> None:
        """List everything, then hear of what changes; whoever reaches no server does so later."""
        if self._cluster.is_cut:
            return
        for kind in (*WATCHED, *AROUND):
            listing = self._cluster.list("", kind)
            self._cache.replace(kind, listing.items, listing.resource_version)
        # Two watches: what is heard on one must not change when something is heard on the other.
        self._feeds = (
            self._store.watch(WATCHED, self._hear, name=self.name),
            self._store.watch(AROUND, self._hear, name=f"{self.name}/around"),
        )
        if self._reconciler is not None:
            self._requeue.changed(self._kernel.now_ms)
            self._plan_next()

    def _stop_listening(self) -> None:
        for feed in self._feeds:
            feed.close()

    def _hear(self, event: WatchEvent) -> None:
        if self._kernel.now_ms <= self._frozen_until_ms:
            self._later(0, lambda: self._hear(event))
        elif self._cache.handle(event) and self._reconciler is not None:
            self._requeue.changed(self._kernel.now_ms)
            self._plan_next()

    def _stand(self, life: int) -> None:
        """Take the Lease or renew it, and work or cease to."""
        if self._leadership is not None:
            pause_s = self._leadership.attempt()
            self._later(round(pause_s * 1000), lambda: self._stand(life))
        if not self.is_leading:
            self._reconciler = None
        elif self._reconciler is None:
            # What another leader did meanwhile is known; what this one remembered is out of date.
            self._reconciler = self._new_reconciler(life)
            self._requeue, self._due_ms = RequeuePolicy(tick_ms=self._tick_ms), None
            self._plan_next()

    def _new_reconciler(self, life: int) -> Reconciler:
        leadership = self._leadership
        return Reconciler(
            FencedClient(self._cluster, lambda: self._check(life), lambda ref: None),
            self._cache,
            self._config,
            transitions=lambda: leadership.transitions if leadership is not None else life,
            instance=f"{self.name}-{life}",
        )

    def _check(self, life: int) -> None:
        """Stand still if it is time to, and return if a write may be made."""
        if self._pause_ms:
            self._frozen_until_ms, self._pause_ms = self._kernel.now_ms + self._pause_ms, 0
            self._kernel.run(self._frozen_until_ms)
        if life != self.lives:
            raise NotLeadingError("it runs no more")
        if self._leadership is not None:
            self._leadership.check()
        self._writes(self.name)

    def _plan_next(self) -> None:
        """Put the next pass on the calendar, unless an earlier one stands there."""
        due_ms = max(self._requeue.next_ms(), self._kernel.now_ms)
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._later(due_ms - self._kernel.now_ms, lambda: self._pass(due_ms))

    def _pass(self, due_ms: int) -> None:
        reconciler = self._reconciler
        if due_ms != self._due_ms or reconciler is None:
            return
        if not self.is_leading:
            self._reconciler = None
            return
        now_ms, life = self._kernel.now_ms, self.lives
        try:
            done = reconciler.reconcile(now_ms)
        except NotLeadingError:
            if life == self.lives:
                self._reconciler = None
            return
        except ClusterError:
            self._requeue.started(now_ms)
        else:
            self._passed(done)
            self._requeue.started(now_ms, done.next_ms)
        self._due_ms = None
        self._plan_next()


# --- What holds for every plan and every sample (I1 to I4 and I8 of the design): each breach as a
# line

Rooms = dict[str, list[int]]


WITHOUT_PLACES = frozenset({"edl"})
"""Policies that decide by numbers alone: the scheduler finds places, and a gang need not be whole."""


def breaches_of_plan(snapshot: Snapshot, plan: ScalePlan, *, has_places: bool = True) -> Iterator[str]:
    """Give what is wrong with a plan.

    Args:
        has_places: whether it has to say where everything goes.
    """
    names = {node.name for node in snapshot.nodes}
    kept = Counter(row.key for row in plan.reservations)
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        yield from _targets(job, decision)
        yield from _victims(job, decision)
        if has_places:
            yield from _places(job, decision, names)
            yield from _gang(snapshot, job, decision, kept)
    yield from _room(snapshot, plan)


def _targets(job: Job, decision: Decision) -> Iterator[str]:
    """I1: a target is 0 for jobs without pods, else from minimum to maximum."""
    if job.state == "finishing" and (decision.victims or decision.places):
        yield f"I1: {job.key} is about to end and is scaled"
    if decision.is_admitted and not job.least <= decision.target <= job.maximum:
        yield f"I1: {job.key} is to have {decision.target} trainers"
    elif not decision.is_admitted and (decision.target or decision.places):
        yield f"I1: {job.key} is not admitted and is to have {decision.target} trainers"


def _places(job: Job, decision: Decision, names: set[str]) -> Iterator[str]:
    """I3: every trainer asked for has a node."""
    if any(node not in names for node in decision.places):
        yield f"I3: {job.key} is to have a trainer without a node"
    live = len(job.trainers) - len(decision.victims) + len(decision.places)
    if decision.is_admitted and job.state != "finishing" and decision.target != live:
        yield f"I3: {job.key} is to have {decision.target} trainers, {live} of which are accounted for"


def _victims(job: Job, decision: Decision) -> Iterator[str]:
    """I4: nobody at or below the minimum loses a running trainer, but with the whole job."""
    bound = [trainer for trainer in job.trainers if trainer.node]
    lost = [trainer for trainer in bound if trainer.name in decision.victims]
    if decision.is_admitted and any(trainer.is_meeting for trainer in lost):
        yield f"I4: {job.key} loses the trainer at which the others meet"
    if decision.is_admitted and lost and len(bound) - len(lost) < job.minimum and not stands_still(job):
        yield f"I4: {job.key} goes below its minimum of {job.minimum}"


def _gang(snapshot: Snapshot, job: Job, decision: Decision, kept: Counter[str]) -> Iterator[str]:
    """I8: a job with pods has all of them placed, one without has none."""
    if job.state == "waiting" and decision.is_admitted:
        for role in job.gang:
            if len(decision.hints.get(role.name, ())) != role.count:
                yield f"I8: {job.key} is admitted without a place for each {role.name}"
    for demand in snapshot.demands:
        if demand.job == job.key and decision.is_admitted and not kept[demand.key]:
            yield f"I8: {job.key} goes on without a place for {demand.key}"


def _room(snapshot: Snapshot, plan: ScalePlan) -> Iterator[str]:
    """I2: bound, planned and reserved requests of a node are within what it has."""
    before: Rooms = {
        node.name: [a - b for a, b in zip(node.allocatable, node.used, strict=True)]
        for node in snapshot.nodes
    }
    for job in snapshot.jobs:
        for trainer in job.trainers:
            _take(before, trainer.node, job.trainer)
    after = {name: list(free) for name, free in before.items()}
    for row in plan.reservations:
        _take(after, row.node, row.request)
    for job in snapshot.jobs:
        _follow(after, job, plan.decisions[job.key])
    for name, free in after.items():
        if any(left < min(0, was) for left, was in zip(free, before[name], strict=True)):
            yield f"I2: {name} is over-allocated by {[left for left in free if left < 0]}"


def _follow(rooms: Rooms, job: Job, decision: Decision) -> None:
    for trainer in job.trainers:
        if trainer.name in decision.victims:
            _take(rooms, trainer.node, job.trainer, sign=-1)
    for node in (*decision.places, *decision.waiting.values()):
        _take(rooms, node, job.trainer)
    if job.state != "waiting" and not decision.is_admitted:
        for held in job.held:
            _take(rooms, held.node, held.request, sign=-1)


def _take(rooms: Rooms, node: str, request: Vector, *, sign: int = 1) -> None:
    if node in rooms:
        rooms[node] = [left - sign * amount for left, amount in zip(rooms[node], request, strict=True)]


def breaches_of_sample(sample: Sample) -> Iterator[str]:
    """Give what is wrong with what can be seen of a cluster."""
    for name in sample.crowded:
        yield f"I2: {name} has more bound than it offers"
    for job in sample.jobs:
        if job.target and job.is_answered and not _is_in_range(job):
            yield f"I1: {job.key} was told to have {job.target} trainers"


def _is_in_range(job: JobSample) -> bool:
    return job.minimum <= (job.target or 0) <= job.maximum


def stale_pods(samples: Sequence[Sample], *, allowed: int = 60) -> Iterator[str]:
    """Give the jobs that had pods for more than so many samples while they were told to have none (I8)."""
    since: Counter[str] = Counter()
    for sample in samples:
        for job in sample.jobs:
            is_stale = job.target == 0 and job.pods > 0
            since[job.key] = since[job.key] + 1 if is_stale else 0
            if since[job.key] == allowed:
                yield f"I8: {job.key} is not admitted and has {job.pods} pods at {sample.at_ms // 1000} s"


# --- The controllers under test in a simulated cluster, what disturbs them, and who watches over
# them


class Managed:
    """Submits the jobs of a scenario and lets one or more controllers run them.

    Attributes:
        violations: breaches of the laws of plans, each with its time.
        passes: how often a controller looked.
        cluster: what they write to.

    Args:
        tick_ms: longest time between two passes of one controller.
    """

    def __init__(
        self, environment: SimulationEnvironment, config: PolicyConfig, *, tick_ms: int = TICK_MS
    ) -> None:
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
        self._end(SimulatedController.die, seconds)

    def stop(self, seconds: float) -> None:
        """Let the leader end as it should, and come back after so long."""
        self._end(SimulatedController.stop, seconds)

    def freeze(self, seconds: float) -> None:
        """Let the leader stand still for so long before its next write, and not notice."""
        self._leader().freeze(seconds)

    def isolate(self, seconds: float) -> None:
        """Let the leader reach the server no more for so long."""
        self._leader().isolate(seconds)

    def deafen(self, seconds: float) -> None:
        """Let the leader hear nothing for so long; what it missed it learns from a list."""
        self._leader().deafen(seconds)

    def _made(self, count: int, config: PolicyConfig, tick_ms: int) -> list[SimulatedController]:
        is_alone = count == 1
        names = ["controller"] if is_alone else [f"controller-{index}" for index in range(count)]
        return [
            SimulatedController(
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

    def _leader(self) -> SimulatedController:
        """Give who leads, or one that runs, or one that will."""
        return max(self._contenders, key=lambda one: (one.is_leading, one.is_running))

    def _end(self, how: Callable[[SimulatedController], None], seconds: float) -> None:
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


# --- EDL's own way to run jobs: ReplicaSets and a Job, and every 5 s a parallelism from policy
# `edl-v010`
# Policy `off` leaves the parallelism as it was created: rigid jobs.

BASELINE_TICK_MS = 5_000
MAX_LOAD_PCT = 97


class Baseline:
    """Submits jobs as EDL's server did, and scales them as its controller did.

    Args:
        mode: `edl-v010`, or `off` for jobs that are never scaled.
    """

    def __init__(self, environment: SimulationEnvironment, mode: str) -> None:
        self._environment = environment
        self._kernel, self._store = environment.kernel, environment.store
        self._config = PolicyConfig(mode=mode, max_load_pct=MAX_LOAD_PCT)
        self._is_on = mode != "off"
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, PodFacts] = {}
        self._jobs: list[JobPlan] = []
        self.violations: list[str] = []
        self._store.watch(["Pod", "Node"], self._hear)
        for job in environment.scenario.jobs:
            environment.later(job.at_ms, lambda job=job: self._submit(job))  # type: ignore[misc]  # bound now
        if self._is_on:
            chance = self._kernel.generator("baseline")
            self._kernel.after(chance.randrange(BASELINE_TICK_MS), self._tick)

    def _hear(self, event: WatchEvent) -> None:
        if event.object["kind"] == "Node":
            facts = nodes.parse_node(event.object)
            self._nodes[facts.place.name] = facts
            return
        pod = pods.parse_pod(event.object)
        if event.type == "DELETED" or pod.ending:
            self._pods.pop(pod.uid, None)
        else:
            self._pods[pod.uid] = pod

    def _submit(self, job: JobPlan) -> None:
        wanted = self._store.write(training_job(job, self._environment.scenario.grace_s))
        spec = parse(wanted)
        self._jobs.append(job)
        grace_s = self._environment.scenario.grace_s
        for kind, role, count, requests in (
            ("Deployment", "pserver", spec.pserver.count, spec.pserver.resources.container),
            ("Deployment", "master", spec.master.count, spec.master.resources.container),
            ("Job", "trainer", job.first or spec.trainer.minimum, spec.trainer.resources.container),
        ):
            self._store.write(_workload(kind, job.name, role, count, requests, grace_s))
        if self._is_on:
            self._kernel.after(100, self._round)

    def _tick(self) -> None:
        self._round()
        self._kernel.after(BASELINE_TICK_MS, self._tick)

    def _round(self) -> None:
        """Decide, and write the parallelism of every job that changes."""
        decided = edl_v010(self._snapshot(), self._config)
        for job in self._jobs:
            live = self._store.get("Job", f"{job.name}-trainer", NAMESPACE)
            target = decided.decisions[f"{NAMESPACE}/{job.name}"].target
            if live is not None and live["spec"]["parallelism"] != target:
                self._store.write(changed(live, spec={"parallelism": target}))

    def _snapshot(self) -> Snapshot:
        """Give what EDL's controller read: it asked the API server for everything, each time."""
        names = sorted({name for node in self._nodes.values() for name in node.allocatable} - set(BASIC))
        resources = (*BASIC, *names)
        live = sorted(self._pods.values(), key=lambda pod: pod.key)
        used = {name: [0] * len(resources) for name in self._nodes}
        for pod in live:
            if pod.node and pod.gone_ms is None and pod.role != "trainer":
                used[pod.node] = [
                    a + b for a, b in zip(used[pod.node], vector(pod.requests, resources), strict=True)
                ]
        return Snapshot(
            now_ms=self._kernel.now_ms,
            resources=resources,
            nodes=tuple(
                Node(
                    name=name,
                    allocatable=vector(node.allocatable, resources),
                    used=tuple(used[name]),
                )
                for name, node in sorted(self._nodes.items())
            ),
            demands=tuple(_demand(pod, resources) for pod in live if not pod.node and pod.role != "trainer"),
            arriving=tuple(_arriving(pod, resources) for pod in live if pod.node and pod.gone_ms is not None),
            jobs=tuple(self._job(job, live, resources) for job in self._jobs),
        )

    def _job(self, job: JobPlan, live: list[PodFacts], resources: tuple[str, ...]) -> Job:
        spec = parse(training_job(job, self._environment.scenario.grace_s))
        own = [pod for pod in live if pod.job == job.name and pod.role == "trainer"]
        stored = self._store.get("Job", f"{job.name}-trainer", NAMESPACE)
        return Job(
            key=f"{NAMESPACE}/{job.name}",
            minimum=spec.trainer.minimum,
            maximum=spec.trainer.maximum,
            trainer=vector({**spec.trainer.resources.requests, "pods": 1}, resources),
            created_ms=START_MS + job.at_ms,
            state="admitted",
            target=int(stored["spec"]["parallelism"]) if stored else 0,
            trainers=tuple(_trainer(pod) for pod in own if pod.gone_ms is None),
            leaving=sum(pod.gone_ms is not None for pod in own),
        )


def _trainer(pod: PodFacts) -> Trainer:
    return Trainer(
        name=pod.name,
        node=pod.node,
        planned="",
        created_ms=pod.created_ms,
        is_ready=pod.phase == "Running",
    )


def _demand(pod: PodFacts, resources: tuple[str, ...]) -> Demand:
    request: Vector = vector(pod.requests, resources)
    return Demand(key=pod.key, request=request, priority=0, created_ms=pod.created_ms)


def _arriving(pod: PodFacts, resources: tuple[str, ...]) -> Arriving:
    return Arriving(node=pod.node, request=vector(pod.requests, resources), at_ms=pod.gone_ms or 0)


def _workload(kind: str, job: str, role: str, count: int, requests: Mapping[str, Any], grace_s: int) -> Obj:
    labels = {JOB_LABEL: job, ROLE_LABEL: role}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": role, "resources": dict(requests)}],
        },
    }
    field = "parallelism" if kind == "Job" else "replicas"
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": f"{job}-{role}", "namespace": NAMESPACE},
        "spec": {field: count, "selector": {"matchLabels": labels}, "template": template},
    }


# --- Lets the events of a scenario happen, and jobs with an end do their work ---

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


class ScenarioEvents:
    """Puts what happens on the calendar.

    Args:
        controller: who scales the jobs, None for nobody who could be disturbed.
    """

    def __init__(self, environment: SimulationEnvironment, controller: Driven | None = None) -> None:
        self._environment = environment
        self._kernel, self._store = environment.kernel, environment.store
        self._controller = controller
        self._chance = environment.kernel.generator("happenings")
        for event in environment.scenario.events:
            environment.later(event.at_ms, lambda event=event: self._happen(event))  # type: ignore[misc]  # bound now
        for job in environment.scenario.jobs:
            if job.work_s:
                environment.later(job.at_ms, lambda job=job: self._train(job, 0))  # type: ignore[misc]  # bound now

    def _happen(self, event: ScenarioEvent) -> None:
        self._doing(event)()
        if event.every_ms:
            self._kernel.after(event.every_ms, lambda: self._happen(event))

    def _doing(self, event: ScenarioEvent) -> Callable[[], None]:
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


# --- Run a scenario under a policy: the door to the simulator ---

BASELINES = ("edl-v010", "off")
"""Policies with EDL's own way to run jobs instead of the controller."""


@dataclass(frozen=True, kw_only=True)
class SimulationOutcome:
    """What a simulation gave."""

    scenario: Scenario  # what it was of
    policy: str  # how the jobs were scaled
    seed: int  # of chance
    samples: tuple[Sample, ...]  # one a second
    violations: tuple[str, ...]  # breaches of the laws of plans and samples, with their times
    passes: int  # how often the controller looked
    calls: Mapping[str, int]  # its requests to the API server, by verb


def simulate(scenario: Scenario, policy: str = "fair", *, seed: int = 0) -> SimulationOutcome:
    """Run a scenario to its end.

    Args:
        policy: a policy of the controller, or `edl-v010` or `off` for EDL's own way.
        seed: of chance; the same one gives the same outcome.

    Raises:
        NotFoundError: there is no such policy.
    """
    return simulate_with(scenario, PolicyConfig(mode=policy), seed=seed)


def simulate_with(
    scenario: Scenario, config: PolicyConfig, *, seed: int = 0, tick_ms: int = TICK_MS
) -> SimulationOutcome:
    """Run a scenario to its end with all settings given.

    Args:
        tick_ms: longest time between two passes of the controller; EDL's own way has one of its own.
    """
    if config.mode == "off":
        scenario = cases.unelastic(scenario)
    environment = SimulationEnvironment(scenario, seed)
    if config.mode in BASELINES:
        Baseline(environment, config.mode)
        ScenarioEvents(environment)
        environment.run()
        return _outcome(environment, config, seed, None)
    managed = Managed(environment, config, tick_ms=tick_ms)
    ScenarioEvents(environment, managed)
    environment.run()
    return _outcome(environment, config, seed, managed)


def _outcome(
    environment: SimulationEnvironment, config: PolicyConfig, seed: int, managed: Managed | None
) -> SimulationOutcome:
    found = list(managed.violations) if managed else []
    for sample in environment.samples if managed else ():
        found += [f"{sample.at_ms / 1000:g} s: {text}" for text in breaches_of_sample(sample)]
    found += stale_pods(environment.samples) if managed else ()
    return SimulationOutcome(
        scenario=environment.scenario,
        policy=config.mode,
        seed=seed,
        samples=tuple(environment.samples),
        violations=tuple(found),
        passes=managed.passes if managed else 0,
        calls=dict(sorted(managed.cluster.calls.items())) if managed else {},
    )
