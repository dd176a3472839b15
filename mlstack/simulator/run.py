"""Run a scenario under a policy: the door to the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mlstack.dataclass import Record
from mlstack.elastic import snapshot
from mlstack.elastic.cache import ClusterCache
from mlstack.elastic.controller import (
    LEASE_NAME,
    LEASE_NAMESPACE,
    TICK_MS,
    LeaderElector,
    NotLeadingError,
    RequeuePolicy,
)
from mlstack.elastic.facts import PodFacts
from mlstack.elastic.policy.plan import edl_v010
from mlstack.elastic.reconciler import Reconciler
from mlstack.elastic.snapshot import PolicyConfig
from mlstack.elastic.training_job import JOB_LABEL, ROLE_LABEL, parse
from mlstack.errors import ClusterError, ConflictError, TransientError, UnreachableError
from mlstack.kube.client import ClientWrapper, GuardedClient, ObjectRef, WatchEvent
from mlstack.kube.parallel import Lease
from mlstack.simulator import engine, measures
from mlstack.simulator import scenario as objects
from mlstack.simulator.control_plane import Scheduler, Workloads, collect_garbage
from mlstack.simulator.engine import START_MS, Callback, Kernel, SimulatedStore
from mlstack.simulator.scenario import EVENTS, NAMESPACE, JobPlan, NodeGroup, Scenario, ScenarioEvent
from mlstack.testing.store import Obj

SAMPLE_MS = 1_000
WORK_MS = 1_000
BASELINES = ("edl-v010", "off")
"""Policies with EDL's own way to run jobs instead of the controller."""


class SimulationOutcome(Record):
    """What a simulation gave."""

    scenario: Scenario
    policy: str  # how the jobs were scaled
    seed: int
    samples: tuple[measures.Sample, ...]  # one a second
    violations: tuple[str, ...]  # breaches of the laws of plans and samples, with their times
    passes: int  # how often the controller looked
    calls: Mapping[str, int]  # its requests to the API server, by verb


def simulate(
    scenario: Scenario, policy: str | PolicyConfig = "fair", *, seed: int = 0, tick_ms: int = TICK_MS
) -> SimulationOutcome:
    """Run a scenario to its end; the same seed gives the same outcome.

    Args:
        policy: one of the controller, or `edl-v010` or `off` for EDL's own way; its name or all its settings.
        tick_ms: longest time between two passes of the controller; EDL's own way has one of its own.

    Raises:
        NotFoundError: there is no such policy.
    """
    config = PolicyConfig(mode=policy) if isinstance(policy, str) else policy
    if config.mode == "off":  # jobs keep what they are created with: 15 in case 2, their most elsewhere
        most = {job.name: parse(objects.training_job(job, 0)).trainer.maximum for job in scenario.jobs}
        jobs = (job if job.first > 2 else replace(job, first=most[job.name]) for job in scenario.jobs)
        scenario = replace(scenario, jobs=tuple(jobs))
    environment = SimulationEnvironment(scenario, seed)
    violations = environment.violations
    if config.mode in BASELINES:
        Baseline(environment, config.mode)
        environment.run()
    else:
        environment.start_controllers(config, tick_ms)
        environment.run()
        for sample in environment.samples:
            at_s, texts = sample.at_ms / 1000, measures.breaches_of_sample(sample)
            violations += [f"{at_s:g} s: {text}" for text in texts]
        violations += measures.stale_pods(environment.samples)
    return SimulationOutcome(
        scenario=scenario,
        policy=config.mode,
        seed=seed,
        samples=tuple(environment.samples),
        violations=tuple(violations),
        passes=environment.passes,
        calls=dict(sorted(environment.cluster.calls.items())),
    )


class SimulationEnvironment:
    """A cluster with its scheduler, kubelets and controllers, and all that happens to them."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.kernel = scenario, Kernel(seed)
        self.store = SimulatedStore(self.kernel)
        self.cluster = engine.SimulatedCluster(self.store, self._refuse)
        self.samples: list[measures.Sample] = []  # one a second, from the beginning of the scenario's window
        self.violations: list[str] = []  # breaches of the laws of plans, each with its time
        self.passes = 0  # how often a controller looked
        self._controllers: list[SimulatedController] = []
        self._faults = self.kernel.generator("faults")
        self._chance = self.kernel.generator("happenings")
        self._made = Counter[str]()  # nodes of each group, those that are gone again included
        self.observer = measures.ClusterObserver()
        self.store.watch(("Pod", "Node", "TrainingJob", "Deployment"), self.observer.hear)
        self._kubelets = engine.Kubelets(self.store, scenario.start_ms)
        Scheduler(self.store, scenario.scheduler)
        Workloads(self.store, scenario.workloads)
        collect_garbage(self.store)
        for priority_class in objects.classes():
            self.store.write(priority_class)
        for group in scenario.nodes:
            self._add_nodes(group)
        for service in scenario.services:
            self.later(service.at_ms, partial(self.store.write, objects.deployment(service)))

    def later(self, at_ms: int, action: Callback) -> None:
        """Do something at a time of the scenario."""
        self.kernel.at(START_MS + at_ms, action)

    def start_controllers(self, config: PolicyConfig, tick_ms: int) -> None:
        """Let jobs be submitted, and one or more controllers run them."""
        for job in self.scenario.jobs:
            self.later(job.at_ms, partial(self.store.write, objects.training_job(job, self.scenario.grace_s)))
        count = self.scenario.controllers
        names = ["controller"] if count == 1 else [f"controller-{index}" for index in range(count)]
        self._controllers = [SimulatedController(name, self, config, tick_ms) for name in names]
        for controller in self._controllers:
            controller.start()

    def run(self) -> None:
        """Let the scenario happen, and take a sample every second."""
        for event in self.scenario.events:
            self.later(event.at_ms, partial(self._happen, event))
        for job in self.scenario.jobs:
            if job.work_s:
                self.later(job.at_ms, partial(self._train, job, 0))
        self.later(self.scenario.begin_ms, self._sample)
        self.kernel.run(START_MS + self.scenario.end_ms)

    def accuse(self, *texts: str) -> None:
        """Take note of what must not be."""
        at_s = (self.kernel.now_ms - START_MS) / 1000
        self.violations += [f"{at_s:g} s: {text}" for text in texts]

    def _sample(self) -> None:
        self.samples.append(self.observer.sample(self.kernel.now_ms - START_MS - self.scenario.begin_ms))
        self.kernel.after(SAMPLE_MS, self._sample)

    def _refuse(self, verb: str, ref: ObjectRef) -> None:
        """Let some writes fail, as often as the scenario has it."""
        conflict_pct, error_pct = self.scenario.conflict_pct, self.scenario.error_pct
        draw = self._faults.random() * 100
        if draw < conflict_pct and verb != "create":
            raise ConflictError(f"{ref} changed meanwhile", where=str(ref))
        if draw >= 100 - error_pct:
            raise TransientError("the server is busy", where=str(ref))

    def _add_nodes(self, group: NodeGroup) -> None:
        for node in objects.nodes(group, self._made[group.name]):
            if group.background:  # it is there when the scheduler first hears of the node
                self.store.write(objects.background(node["metadata"]["name"], group.background))
            self.store.write(node)
        self._made[group.name] += group.count

    def _happen(self, event: ScenarioEvent) -> None:
        name, kubelets = event.name, self._kubelets
        job = self.store.get("TrainingJob", name, NAMESPACE)
        match event.what:
            case "scale":
                self._set_spec(self.store.get("Deployment", name, NAMESPACE), replicas=event.count)
            case "suspend-job" | "resume-job":
                self._set_spec(job, suspend=event.what == "suspend-job")
            case "limit-job" if job:
                self._set_spec(job, trainer={**job["spec"]["trainer"], "max-instance": event.count})
            case "delete-job" if job:
                self.store.remove(job)
            case "finish-job":
                for pod in self._trainers(name):
                    kubelets.exit(pod, 0)
            case "crash-trainers" | "delete-trainers":
                running = self._trainers(name)
                for pod in self._chance.sample(running, min(event.count, len(running))):
                    if event.what == "crash-trainers":
                        kubelets.exit(pod, 1)
                    else:
                        self.store.delete(pod)
            case "add-nodes":
                group = next(group for group in self.scenario.nodes if group.name == name)
                self._add_nodes(replace(group, count=event.count))
            case "cordon-node" | "uncordon-node":
                kubelets.cordon(name, is_closed=event.what == "cordon-node")
            case "fail-node" | "heal-node" | "remove-node":
                acts = {"fail-node": kubelets.fail, "heal-node": kubelets.heal}
                acts.get(event.what, kubelets.remove)(name)
            case what if self._controllers and not EVENTS[what]:
                # Who leads, or one that runs, or one that will.
                leader = max(self._controllers, key=lambda process: (process.is_leading, process.is_running))
                leader.disturb(event.what, round(event.seconds * 1000))
        if event.every_ms:
            self.kernel.after(event.every_ms, partial(self._happen, event))

    def _set_spec(self, live: Obj | None, **fields: object) -> None:
        if live is not None:
            generation = live["metadata"].get("generation", 1) + 1
            self.store.update(live, metadata={"generation": generation}, spec=fields)

    def _trainers(self, job: str) -> list[Obj]:
        labels = {JOB_LABEL: job, ROLE_LABEL: "trainer"}.items()
        return [
            pod
            for pod in self.store.all("Pod")
            if labels <= (pod["metadata"].get("labels") or {}).items()
            and engine.is_live(pod)
            and pod["status"].get("phase") == "Running"
        ]

    def _train(self, job: JobPlan, done_s: int) -> None:
        """Count a second for each running trainer; when the work is done all of them end, late ones too.

        Without a controller that says so, the job has then succeeded: EDL wrote no phase.
        """
        running = self._trainers(job.name)
        done_s += len(running)
        if done_s >= job.work_s:
            for pod in running:
                self._kubelets.exit(pod, 0)
            live = None if self._controllers else self.store.get("TrainingJob", job.name, NAMESPACE)
            if live is not None and not live.get("status"):
                self.store.update(live, status={"phase": "Succeeded"})
        self.kernel.after(WORK_MS, partial(self._train, job, done_s))


# --- a controller in a simulated cluster: cache and reconciler of production, and the Lease among several ---

WATCHED = ("Node", "PriorityClass", "TrainingJob", "StatefulSet", "Pod")
AROUND = ("Service", "PodDisruptionBudget")


class _Line(ClientWrapper):
    """A cluster at the end of a line that can be cut: then nothing comes through."""

    is_cut = False

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        if self.is_cut:
            raise UnreachableError("the server does not answer")
        return super()._call(verb, *args, **named)


class SimulatedController:
    """One process: it starts, stands for election, works while it leads, dies."""

    def __init__(
        self, name: str, environment: SimulationEnvironment, config: PolicyConfig, tick_ms: int
    ) -> None:
        self.name, self.is_running = name, False
        self._environment, self._kernel, self._config = environment, environment.kernel, config
        self._cluster, self._tick_ms = _Line(environment.cluster), tick_ms
        self._lives = 0  # how often it began or ended
        self._due_ms: int | None = None
        self._elector: LeaderElector | None = None
        self._reconciler: Reconciler | None = None

    @property
    def is_leading(self) -> bool:
        """Tell whether it runs and may write."""
        return self.is_running and (self._elector is None or self._elector.is_leading)

    def start(self) -> None:
        """Begin to run, knowing nothing."""
        self._lives, self.is_running = self._lives + 1, True
        self._cache = ClusterCache()
        self._reconciler, self._elector = None, None
        if self._environment.scenario.controllers > 1:
            lease = Lease(
                cluster=self._cluster,
                namespace=LEASE_NAMESPACE,
                name=LEASE_NAME,
                holder=self.name,
                now_s=self._now_s,
            )
            self._elector = LeaderElector(lease, self._now_s, lambda text: None)
        self._pause_ms, self._frozen_until_ms = 0, 0
        self._cluster.is_cut = False
        self._listen()
        self._stand(self._lives)

    def disturb(self, event: str, duration_ms: int) -> None:
        """Let an event of a scenario befall it, for so long."""
        if event == "freeze-controller":
            self._pause_ms = duration_ms
            return
        for watch in self._watches:
            watch.is_open = False
        if event in ("kill-controller", "stop-controller"):
            self._lives, self.is_running = self._lives + 1, False
            if event == "stop-controller" and self._elector is not None:
                self._elector.stop()
            life = self._lives
            self._kernel.after(duration_ms, lambda: self.start() if self._lives == life else None)
        else:
            self._cluster.is_cut = self._cluster.is_cut or event == "isolate-controller"
            self._later(duration_ms, partial(self._listen, is_reconnected=event == "isolate-controller"))

    def _now_s(self) -> float:
        return self._kernel.now_ms / 1000

    def _later(self, delay_ms: int, action: Callback) -> None:
        """Do something in a while, unless it died by then; while it stands still nothing is done."""
        life = self._lives

        def do() -> None:
            if life == self._lives and self._kernel.now_ms <= self._frozen_until_ms:
                self._kernel.at(self._frozen_until_ms + 1, do)
            elif life == self._lives:
                action()

        self._kernel.after(delay_ms, do)

    def _listen(self, *, is_reconnected: bool = False) -> None:
        """List everything, then hear of what changes; whoever reaches no server does so later."""
        if is_reconnected:
            self._cluster.is_cut = False
        if self._cluster.is_cut:
            return
        for kind in (*WATCHED, *AROUND):
            listing = self._cluster.list("", kind)
            self._cache.replace(kind, listing.items, listing.resource_version)
        # Two watches: what is heard on one must not change when something is heard on the other.
        store = self._environment.store
        self._watches = (
            store.watch(WATCHED, self._hear, name=self.name),
            store.watch(AROUND, self._hear, name=f"{self.name}/around"),
        )
        if self._reconciler is not None:
            self._requeue.changed(self._kernel.now_ms)
            self._plan_next()

    def _hear(self, event: WatchEvent) -> None:
        if self._kernel.now_ms <= self._frozen_until_ms:
            self._later(0, lambda: self._hear(event))
        elif self._cache.handle(event) and self._reconciler is not None:
            self._requeue.changed(self._kernel.now_ms)
            self._plan_next()

    def _stand(self, life: int) -> None:
        """Take the Lease or renew it, and work or cease to."""
        elector = self._elector
        if elector is not None:
            pause_s = elector.attempt()
            self._later(round(pause_s * 1000), lambda: self._stand(life))
        if not self.is_leading:
            self._reconciler = None
        elif self._reconciler is None:
            # What another leader did meanwhile is known; what this one remembered is out of date.
            self._reconciler = Reconciler(
                GuardedClient(self._cluster, fence=lambda verb, written: self._check(life)),
                self._cache,
                self._config,
                transitions=lambda: elector.transitions if elector is not None else life,
                instance=f"{self.name}-{life}",
            )
            self._requeue, self._due_ms = RequeuePolicy(tick_ms=self._tick_ms), None
            self._plan_next()

    def _check(self, life: int) -> None:
        """Stand still if it is time to, and return if a write may be made."""
        if self._pause_ms:
            self._frozen_until_ms, self._pause_ms = self._kernel.now_ms + self._pause_ms, 0
            self._kernel.run(self._frozen_until_ms)
        if life != self._lives:
            raise NotLeadingError("it runs no more")
        if self._elector is not None:
            self._elector.check()
            lease = self._environment.store.get("Lease", LEASE_NAME, LEASE_NAMESPACE) or {}
            holder = (lease.get("spec") or {}).get("holderIdentity")
            if holder != self.name:
                self._environment.accuse(f"lease: {self.name} writes while {holder or 'nobody'} leads")

    def _plan_next(self) -> None:
        due_ms = max(self._requeue.next_ms, self._kernel.now_ms)
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
        now_ms, life = self._kernel.now_ms, self._lives
        try:
            done = reconciler.reconcile(now_ms)
        except NotLeadingError:
            if life == self._lives:
                self._reconciler = None
            return
        except ClusterError:
            self._requeue.started(now_ms)
        else:
            self._environment.passes += 1
            has_places = self._config.mode not in measures.WITHOUT_PLACES
            breaches = measures.breaches_of_plan(done.snapshot, done.plan, has_places=has_places)
            self._environment.accuse(*breaches)
            self._requeue.started(now_ms, min(done.due, default=None))
        self._due_ms = None
        self._plan_next()


# --- EDL's own way to run jobs: ReplicaSets and a Job, and every 5 s a parallelism from policy `edl-v010` ---

BASELINE_TICK_MS = 5_000


class Baseline:
    """Submits jobs as EDL's server did, and scales them as its controller did; `off` never scales them."""

    def __init__(self, environment: SimulationEnvironment, mode: str) -> None:
        self._store, self._kernel = environment.store, environment.kernel
        self._seen = environment.observer
        self._grace_s = environment.scenario.grace_s
        self._config = PolicyConfig(mode=mode)
        self._jobs: list[JobPlan] = []
        for job in environment.scenario.jobs:
            environment.later(job.at_ms, partial(self._submit, job))
        if mode != "off":
            first_ms = self._kernel.generator("baseline").randrange(BASELINE_TICK_MS)
            self._kernel.after(first_ms, partial(self._scale, is_tick=True))

    def _submit(self, job: JobPlan) -> None:
        spec = parse(self._store.write(objects.training_job(job, self._grace_s)))
        self._jobs.append(job)
        trainers = job.first or spec.trainer.minimum
        for role, kind, field, count, resources in (
            ("pserver", "Deployment", "replicas", spec.pserver.count, spec.pserver.resources),
            ("master", "Deployment", "replicas", spec.master.count, spec.master.resources),
            ("trainer", "Job", "parallelism", trainers, spec.trainer.resources),
        ):
            labels = {JOB_LABEL: job.name, ROLE_LABEL: role}
            container = {"name": role, "resources": dict(resources.container)}
            pod = {"terminationGracePeriodSeconds": self._grace_s, "containers": [container]}
            template = {"metadata": {"labels": labels}, "spec": pod}
            owner = {field: count, "selector": {"matchLabels": labels}, "template": template}
            version = "batch/v1" if kind == "Job" else "apps/v1"
            self._store.write(engine.manifest(version, kind, f"{job.name}-{role}", NAMESPACE, spec=owner))
        if self._config.mode != "off":
            self._kernel.after(100, self._scale)

    def _scale(self, *, is_tick: bool = False) -> None:
        plan = edl_v010(self._snapshot(), self._config)
        for job in self._jobs:
            live = self._store.get("Job", f"{job.name}-trainer", NAMESPACE)
            target = plan.decisions[f"{NAMESPACE}/{job.name}"].target
            if live is not None and live["spec"]["parallelism"] != target:
                self._store.update(live, spec={"parallelism": target})
        if is_tick:
            self._kernel.after(BASELINE_TICK_MS, partial(self._scale, is_tick=True))

    def _snapshot(self) -> snapshot.Snapshot:
        """Give what EDL's controller read: it asked the API server for everything, each time."""
        nodes = self._seen.nodes
        names = {name for node in nodes.values() for name in node.allocatable}
        resources = (*snapshot.BASIC, *sorted(names - set(snapshot.BASIC)))
        pods = sorted([pod for pod in self._seen.pods.values() if not pod.ending], key=lambda pod: pod.key)
        requests = {pod.uid: snapshot.vector(pod.requests, resources) for pod in pods}
        used = {name: [0] * len(resources) for name in nodes}
        for pod in pods:
            if pod.node in nodes and pod.gone_ms is None and pod.role != "trainer":
                used[pod.node] = [a + b for a, b in zip(used[pod.node], requests[pod.uid], strict=True)]
        return snapshot.Snapshot(
            now_ms=self._kernel.now_ms,
            resources=resources,
            nodes=tuple(
                snapshot.Node(
                    name=name,
                    allocatable=snapshot.vector(node.allocatable, resources),
                    used=tuple(used[name]),
                )
                for name, node in sorted(nodes.items())
            ),
            demands=tuple(
                snapshot.Demand(key=pod.key, request=requests[pod.uid], priority=0, created_ms=pod.created_ms)
                for pod in pods
                if not pod.node and pod.role != "trainer"
            ),
            arriving=tuple(
                snapshot.Held(node=pod.node, request=requests[pod.uid])
                for pod in pods
                if pod.node and pod.gone_ms is not None
            ),
            jobs=tuple(self._job(job, pods, resources) for job in self._jobs),
        )

    def _job(self, job: JobPlan, pods: list[PodFacts], resources: tuple[str, ...]) -> snapshot.Job:
        trainer = parse(objects.training_job(job, self._grace_s)).trainer
        trainers = [pod for pod in pods if pod.job == job.name and pod.role == "trainer"]
        stored = self._store.get("Job", f"{job.name}-trainer", NAMESPACE)
        return snapshot.Job(
            key=f"{NAMESPACE}/{job.name}",
            minimum=trainer.minimum,
            maximum=trainer.maximum,
            trainer=snapshot.vector({**trainer.resources.requests, "pods": 1}, resources),
            created_ms=START_MS + job.at_ms,
            state="admitted",
            target=int(stored["spec"]["parallelism"]) if stored else 0,
            trainers=tuple(
                snapshot.Trainer(
                    name=pod.name,
                    node=pod.node,
                    planned="",
                    created_ms=pod.created_ms,
                    is_ready=pod.phase == "Running",
                )
                for pod in trainers
                if pod.gone_ms is None
            ),
            leaving=sum(pod.gone_ms is not None for pod in trainers),
        )
