"""The life of a cluster: jobs, nodes and pods of others come and go, plans are carried out late."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import (
    Decision,
    Demand,
    GangRole,
    Job,
    Node,
    PolicyConfig,
    Reason,
    ScalePlan,
    Snapshot,
)
from tests.property.elastic.moments import MANY
from tests.property.elastic.test_fair import FREELY, rest
from tests.support import elastic_laws as laws
from tests.support.actuation import actuate, begin, room

CONFIG = PolicyConfig(moves=3, stuck_ms=60_000)
SMALL = st.integers(1, 3)


class Life(RuleBasedStateMachine):
    """A cluster that a controller looks at: whatever happened, its next plan keeps the laws."""

    def __init__(self) -> None:
        super().__init__()
        node = Node(name="n0", allocatable=(8, 4), used=(0, 0), devices=(0, 4))
        self.now = Snapshot(now_ms=0, resources=("cpu", "nvidia.com/gpu"), nodes=(node,))
        self.snapshots: list[Snapshot] = []
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count:03}"

    @rule(
        minimum=st.integers(0, 3),
        more=st.sampled_from([0, 1, 4]),
        size=SMALL,
        gpus=st.sampled_from([0, 0, 1]),
        servers=st.integers(0, 2),
        priority=st.integers(0, 2),
    )
    def submit(self, minimum: int, more: int, size: int, gpus: int, servers: int, priority: int) -> None:
        gang = (GangRole(name="pserver", count=servers, request=(1, 0)),) if servers else ()
        job = Job(
            key=f"default/{self.name('j')}",
            minimum=minimum,
            maximum=max(1, minimum + more),
            trainer=(size, gpus),
            gang=gang,
            priority=priority,
            pod_priority=-10,
            created_ms=self.now.now_ms,
        )
        self.now = replace(self.now, jobs=(*self.now.jobs, job))

    @rule(size=st.integers(2, 12), gpus=st.sampled_from([0, 0, 2]))
    def add_node(self, size: int, gpus: int) -> None:
        node = Node(name=self.name("n"), allocatable=(size, gpus), used=(0, 0), devices=(0, gpus))
        self.now = replace(self.now, nodes=(*self.now.nodes, node))

    @rule(size=SMALL, priority=st.sampled_from([-100, 0, 1000]))
    def foreign_pod_comes(self, size: int, priority: int) -> None:
        demand = Demand(
            key=f"web/{self.name('p')}", request=(size, 0), priority=priority, created_ms=self.now.now_ms
        )
        self.now = replace(self.now, demands=(*self.now.demands, demand))

    @rule(index=st.integers(0, 9))
    def foreign_pod_goes(self, index: int) -> None:
        left = [demand for demand in self.now.demands if demand.job]
        others = [demand for demand in self.now.demands if not demand.job]
        if others:
            others.pop(index % len(others))
        self.now = replace(self.now, demands=(*left, *others))

    @rule(index=st.integers(0, 9))
    def job_ends(self, index: int) -> None:
        if self.now.jobs:
            job = self.now.jobs[index % len(self.now.jobs)]
            self.now = without(self.now, job)

    @rule(index=st.integers(0, 9))
    def job_is_about_to_end(self, index: int) -> None:
        if self.now.jobs:
            job = self.now.jobs[index % len(self.now.jobs)]
            if job.state == "admitted":
                self.change(job, replace(job, state="finishing"))

    @rule(index=st.integers(0, 9))
    def trainer_is_lost(self, index: int) -> None:
        for job in self.now.jobs:
            if len(job.trainers) > index:
                left = job.trainers[:index] + job.trainers[index + 1 :]
                self.change(job, replace(job, trainers=left))
                return

    @rule(index=st.integers(0, 9))
    def node_is_cordoned(self, index: int) -> None:
        if len(self.now.nodes) > 1:
            gone = self.now.nodes[index % len(self.now.nodes)]
            self.now = replace(self.now, nodes=tuple(node for node in self.now.nodes if node is not gone))

    @rule(index=st.integers(0, 9))
    def node_fails(self, index: int) -> None:
        if len(self.now.nodes) > 1:
            gone = self.now.nodes[index % len(self.now.nodes)].name
            self.now = fail(self.now, gone, lambda: self.name("s"))

    @rule()
    def plan_is_carried_out(self) -> None:
        self.now = actuate(self.now, plan(self.now, CONFIG))

    @rule()
    def plan_is_begun(self) -> None:
        self.now = begin(self.now, plan(self.now, CONFIG))

    @rule()
    def controller_looks(self) -> None:
        self.snapshots.append(self.now)

    @rule(index=st.integers(0, 3))
    def plan_of_an_old_look_is_begun(self, index: int) -> None:
        if self.snapshots:
            old = self.snapshots[index % len(self.snapshots)]
            self.now = begin(self.now, belated(self.now, plan(old, CONFIG)))

    def change(self, old: Job, new: Job) -> None:
        self.now = replace(self.now, jobs=tuple(new if job is old else job for job in self.now.jobs))

    @invariant()
    def next_plan_is_sound(self) -> None:
        laws.check_plan(self.now, plan(self.now, CONFIG))

    @invariant()
    def nothing_is_bound_without_room(self) -> None:
        for node in self.now.nodes:
            assert min(room(node, self.now)) >= 0, node.name

    def teardown(self) -> None:
        """At the end everything comes to rest, with no room idle and no move left that is fairer."""
        after = rest(self.now)
        laws.check_fixed_point(after, plan(after, FREELY))
        laws.check_no_fairer_swap(after)


def without(snapshot: Snapshot, job: Job) -> Snapshot:
    """Take a job away with all its pods."""
    nodes = []
    for node in snapshot.nodes:
        used = list(node.used)
        for held in job.held:
            if held.node == node.name:
                used = [a - b for a, b in zip(used, held.request, strict=True)]
        nodes.append(replace(node, used=tuple(used)))
    return replace(
        snapshot,
        nodes=tuple(nodes),
        jobs=tuple(other for other in snapshot.jobs if other is not job),
        demands=tuple(demand for demand in snapshot.demands if demand.job != job.key),
    )


def fail(snapshot: Snapshot, gone: str, name: object) -> Snapshot:
    """Take a node away with all that runs there; masters and parameter servers come back without a node."""
    demands = list(snapshot.demands)
    jobs = []
    for job in snapshot.jobs:
        for held in job.held:
            if held.node == gone:
                key = f"{job.key}-{name()}"  # type: ignore[operator]
                demands.append(
                    Demand(
                        key=key, request=held.request, priority=100, created_ms=snapshot.now_ms, job=job.key
                    )
                )
        jobs.append(
            replace(
                job,
                held=tuple(held for held in job.held if held.node != gone),
                trainers=tuple(trainer for trainer in job.trainers if trainer.node != gone),
            )
        )
    return replace(
        snapshot,
        nodes=tuple(node for node in snapshot.nodes if node.name != gone),
        arriving=tuple(held for held in snapshot.arriving if held.node != gone),
        demands=tuple(demands),
        jobs=tuple(jobs),
    )


def belated(snapshot: Snapshot, scale_plan: ScalePlan) -> ScalePlan:
    """Give what is left of an old plan where jobs and pods have names, so that nothing is made twice."""
    decisions = {}
    for job in snapshot.jobs:
        old = scale_plan.decisions.get(job.key)
        live = {trainer.name for trainer in job.trainers}
        if old is None or old.is_admitted != (job.state != "waiting"):
            reason = Reason(cause="steady", text="of an old plan")
            old = Decision(
                job=job.key, target=len(live), is_admitted=job.state != "waiting", hints={}, reasons=(reason,)
            )
        victims = tuple(name for name in old.victims if name in live)
        room_left = max(0, old.target - len(live) + len(victims))
        decisions[job.key] = replace(old, victims=victims, places=old.places[:room_left], hints={})
    return ScalePlan(decisions=decisions, moves=scale_plan.moves)


Life.TestCase.settings = settings(max_examples=MANY.max_examples // 4, stateful_step_count=20)
TestPolicyLife = Life.TestCase
