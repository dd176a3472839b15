"""Laws of the policies that share out free room (I1 to I14)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import Job, Node, PolicyConfig, ScalePlan, Snapshot
from mlstack.simulator.measures import breaches_of_plan
from tests.property.elastic.moments import MANY, moments
from tests.support import elastic_laws as laws
from tests.support.actuation import actuate, begin, is_still, rescaled

FREELY = PolicyConfig(moves=10**9, stuck_ms=10**9)
MODES = st.sampled_from(["fair", "throughput"])
ROUNDS = 40


def rest(snapshot: Snapshot, config: PolicyConfig = FREELY) -> Snapshot:
    """Carry out plans until nothing changes."""
    for _ in range(ROUNDS):
        scale_plan = plan(snapshot, config)
        after = actuate(snapshot, scale_plan)
        if is_still(scale_plan, snapshot):
            return after
        snapshot = after
    raise AssertionError("never comes to rest")


@MANY
@given(moments(), MODES, st.integers(0, 3))
def test_every_plan_is_sound(snapshot: Snapshot, mode: str, moves: int) -> None:
    """I1, I2, I3, I4, I8, I13: targets, room, places, victims, gangs and steps of any plan are in order."""
    laws.check_plan(snapshot, plan(snapshot, PolicyConfig(mode=mode, moves=moves)))


@MANY
@given(moments())
def test_carried_out_plan_has_nothing_left_to_do(snapshot: Snapshot) -> None:
    """I9: what a plan leaves needs no further plan, but for what it may not do at once."""
    first = plan(snapshot, FREELY)
    after = actuate(snapshot, first)
    if has_to_wait(snapshot, first):
        rest(after)
    else:
        scale_plan = plan(after, FREELY)
        assert is_still(scale_plan, after), scale_plan


def has_to_wait(snapshot: Snapshot, scale_plan: ScalePlan) -> bool:
    """Tell whether a job was taken off, and may fit elsewhere, or has to gain before it can give.

    Room that is withheld from one whose trainers failed stays idle if nobody fits it; a gang that finds it so
    at the next look may come off where it did not among trainers that were only planned.
    """
    for job in snapshot.jobs:
        decision = scale_plan.decisions[job.key]
        running = sum(bool(trainer.node) and trainer.name not in decision.victims for trainer in job.trainers)
        if decision.withheld or (job.state == "admitted" and not decision.is_admitted):
            return True
        if running <= job.minimum and (decision.places or decision.waiting) and job.state == "admitted":
            return True
    return False


@MANY
@given(moments())
def test_at_rest_nobody_waits_for_room_that_is_there(snapshot: Snapshot) -> None:
    """I5, I6: at rest no trainer above a minimum keeps a higher pod out, and no room lies idle."""
    after = rest(snapshot)
    laws.check_fixed_point(after, plan(after, FREELY))


@MANY
@given(moments())
def test_at_rest_no_single_move_is_fairer(snapshot: Snapshot) -> None:
    """I7: at rest no move raises the smaller fulfilment without making it the larger."""
    laws.check_no_fairer_swap(rest(snapshot))


@MANY
@given(moments(), st.integers(1, 50))
def test_headroom_disturbs_neither_soundness_nor_rest(snapshot: Snapshot, percent: int) -> None:
    """I1 to I4, I8, I9: places that stay free are one more reason to give and no reason to give by turns."""
    config = replace(FREELY, headroom_pct=percent)
    laws.check_plan(snapshot, plan(snapshot, config))
    after = rest(snapshot, config)
    assert is_still(plan(after, config), after)


@MANY
@given(
    moments(), st.randoms(use_true_random=False), st.sampled_from(["fair", "throughput", "edl", "edl-v010"])
)
def test_order_of_listing_does_not_matter(snapshot: Snapshot, dice: Random, mode: str) -> None:
    """I11: the same things in another order give the same plan."""

    def turned(things: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dice.sample(things, len(things)))

    jobs = tuple(replace(job, trainers=turned(job.trainers)) for job in turned(snapshot.jobs))
    lists = {name: turned(getattr(snapshot, name)) for name in ("nodes", "demands", "arriving")}
    config = PolicyConfig(mode=mode, moves=3)
    assert plan(replace(snapshot, jobs=jobs, **lists), config) == plan(snapshot, config)


@MANY
@given(moments(has_others=False, has_limits=False, has_gangs=False, is_alike=True), st.integers(1, 4))
def test_bounded_moves_come_to_rest_in_as_many_rounds_as_they_need(snapshot: Snapshot, most: int) -> None:
    """I9, I10: with K moves a round, rest is reached in 1 + moves / K rounds; no target turns back twice."""
    needed = plan(snapshot, FREELY).moves
    last = follow(snapshot, PolicyConfig(moves=most, moves_window_ms=1), rounds=2 + -(-needed // most))
    assert is_still(*last)


@MANY
@given(moments(), st.integers(1, 4))
def test_targets_turn_back_once_at_most(snapshot: Snapshot, most: int) -> None:
    """I10: while nothing happens outside, no job grows and shrinks by turns."""
    follow(snapshot, PolicyConfig(moves=most, moves_window_ms=1, stuck_ms=10**9), rounds=12)


def follow(snapshot: Snapshot, config: PolicyConfig, *, rounds: int) -> tuple[ScalePlan, Snapshot]:
    """Carry out so many plans, in which no target turns back twice; give the last and its snapshot."""
    targets: dict[str, list[int]] = {job.key: [] for job in snapshot.jobs}
    for _ in range(rounds):
        scale_plan = plan(snapshot, config)
        for key, decision in scale_plan.decisions.items():
            targets[key].append(decision.target)
        last, snapshot = snapshot, actuate(snapshot, scale_plan)
    assert all(turns(numbers) <= 1 for numbers in targets.values()), targets
    return scale_plan, last


def turns(numbers: list[int]) -> int:
    """Count how often a sequence changes its direction."""
    steps = [after > before for before, after in pairwise(numbers) if after != before]
    return sum(before != after for before, after in pairwise(steps))


@MANY
@given(moments(has_limits=False, has_others=False, has_gangs=False, is_alike=True))
def test_equal_jobs_differ_by_one_trainer_at_most(snapshot: Snapshot) -> None:
    """I7: at rest equal jobs have equally many trainers, give or take one."""
    model = next(iter(snapshot.jobs), None)
    alike = tuple(
        replace(job, minimum=1, maximum=6, weight=1, speed="linear")
        for job in snapshot.jobs
        if model and (job.state == "waiting" or job.trainers)
    )
    after = rest(replace(snapshot, jobs=alike))
    running = [len(job.trainers) for job in after.jobs if job.state == "admitted"]
    assert not running or max(running) - min(running) <= 1, running


@MANY
@given(moments(has_limits=False, has_others=False, has_gangs=False, is_alike=True))
def test_more_room_harms_nobody(snapshot: Snapshot) -> None:
    """I12: an empty node more takes no job off, and leaves the worst-off job no worse off."""
    size = len(snapshot.resources)
    node = Node(name="spare", allocatable=(4,) * size, used=(0,) * size)
    before, after = rest(snapshot), rest(replace(snapshot, nodes=(*snapshot.nodes, node)))
    for old, new in zip(snapshot.jobs, after.jobs, strict=True):
        assert new.state == "admitted" or old.state == "waiting", old.key
    assert worst(after) >= worst(before)


@MANY
@given(moments(has_limits=False, has_others=False, has_gangs=False, is_alike=True), st.integers(0, 4))
def test_end_of_a_job_harms_nobody(snapshot: Snapshot, index: int) -> None:
    """I12: while nobody waits, a job less lowers no target."""
    before = rest(snapshot)
    left = tuple(job for job in before.jobs if not job.key.endswith(str(index)))
    if all(job.state == "admitted" for job in before.jobs):
        after = rest(replace(before, jobs=left))
        for old, new in zip(left, after.jobs, strict=True):
            assert len(new.trainers) >= len(old.trainers), old.key


def worst(snapshot: Snapshot) -> Fraction:
    """Give the lowest fulfilment of any job, that of a waiting one being below all."""
    return min(
        (
            Fraction(-1)
            if job.state == "waiting"
            else Fraction(len(job.trainers) - job.minimum, (job.maximum - job.minimum) * job.weight)
            if job.maximum > job.minimum
            else Fraction(1)
            for job in snapshot.jobs
        ),
        default=Fraction(1),
    )


@MANY
@given(moments(), st.integers(2, 1000), st.integers(0, 2))
def test_units_do_not_matter(snapshot: Snapshot, factor: int, resource: int) -> None:
    """I14: a resource counted in smaller units changes nothing but the amounts that are told."""
    resource %= len(snapshot.resources)
    before, after = plan(snapshot, PolicyConfig()), plan(rescaled(snapshot, resource, factor), PolicyConfig())
    for key, decision in before.decisions.items():
        assert replace(after.decisions[key], reasons=()) == replace(decision, reasons=()), key
    assert [row.node for row in after.reservations] == [row.node for row in before.reservations]


@MANY
@given(moments())
def test_names_do_not_matter(snapshot: Snapshot) -> None:
    """I11: other names in the same order give the same plan under other names."""

    def other(name: str) -> str:
        return name.replace("default/", "other/")

    jobs = tuple(replace(job, key=other(job.key)) for job in snapshot.jobs)
    demands = tuple(replace(pod, key=other(pod.key), job=other(pod.job)) for pod in snapshot.demands)
    before = plan(snapshot, PolicyConfig())
    after = plan(replace(snapshot, jobs=jobs, demands=demands), PolicyConfig())
    for key, decision in before.decisions.items():
        same = replace(after.decisions[other(key)], job=key, reasons=())
        assert same == replace(decision, reasons=())


@MANY
@given(moments(has_limits=False, has_gangs=False), st.integers(0, 4))
def test_what_is_on_its_way_is_not_decided_twice(snapshot: Snapshot, moves: int) -> None:
    """I15: while pods of a plan are not bound and its victims not gone, no more running ones are taken."""
    config = PolicyConfig(moves=moves, stuck_ms=10**9)
    # Several pods of different sizes may be packed in another way at the second look.
    snapshot = replace(snapshot, demands=tuple(replace(pod, nodes=None) for pod in snapshot.demands[:1]))
    first = plan(snapshot, config)
    halfway = begin(snapshot, first)
    laws.check_plan(halfway, plan(halfway, config))
    whole = PolicyConfig(moves=0, stuck_ms=10**9)
    if not has_to_wait(snapshot, first):
        second = plan(halfway, whole)
        running = {trainer.name for job in halfway.jobs for trainer in job.trainers if trainer.node}
        assert not [name for row in second.decisions.values() for name in row.victims if name in running]


@MANY
@given(moments(has_limits=False))
def test_victims_serve_somebody_of_no_lower_priority(snapshot: Snapshot) -> None:
    """I4: a pod takes trainers of jobs whose pods rank no higher, and none at all if it finds no room."""
    others = [demand for demand in snapshot.demands if not demand.job][:1]
    running = tuple(job for job in snapshot.jobs if job.state == "admitted" and is_whole(job, snapshot))
    scale_plan = plan(
        replace(snapshot, jobs=running, demands=tuple(others)), PolicyConfig(moves=0, stuck_ms=10**9)
    )
    live = {trainer.name: trainer for job in running for trainer in job.trainers}
    for job in running:
        spare = max(0, len(job.trainers) - job.maximum)
        lost = [name for name in scale_plan.decisions[job.key].victims if live[name].node]
        if len(lost) > spare:
            assert others and not scale_plan.unplaced, lost
            assert job.pod_priority <= others[0].priority, job.key


def is_whole(job: Job, snapshot: Snapshot) -> bool:
    """Tell whether all that a job cannot run without is bound."""
    bound = sum(bool(trainer.node) for trainer in job.trainers)
    return bound >= job.minimum and not any(demand.job == job.key for demand in snapshot.demands)


# --- Jobs that are to have exactly so many trainers: `scaling: Manual` ---


def manual(job: Job) -> Job:
    """Let a job want all that it may have, and go on with one trainer."""
    return replace(job, priority=0, minimum=job.maximum, floor=min(1, job.maximum))


@MANY
@given(moments(jobs=8))
def test_a_job_of_fixed_size_that_runs_goes_on_with_what_it_has(snapshot: Snapshot) -> None:
    jobs = tuple(
        manual(job) if number % 2 else replace(job, priority=0) for number, job in enumerate(snapshot.jobs)
    )
    lacking = {demand.job for demand in snapshot.demands}
    moment = replace(snapshot, jobs=jobs)
    scale_plan = plan(moment, PolicyConfig())
    assert not [breach for breach in breaches_of_plan(moment, scale_plan) if breach.startswith("I1")]
    for job in jobs:
        seated = [trainer.name for trainer in job.trainers if trainer.node]
        runs = job.state == "admitted" and len(seated) == len(job.trainers) and job.key not in lacking
        if job.floor is not None and runs and job.floor <= len(seated) <= job.maximum:
            assert scale_plan.decisions[job.key].is_admitted, job.key
            assert not set(seated) & set(scale_plan.decisions[job.key].victims), job.key
