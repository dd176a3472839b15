"""Defects, put back one by one: each breaks a law; EDL's (elastic.md 2.6, B1, B3, B4, B5) and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.policy import sharing
from mlstack.elastic.policy.plan import plan
from mlstack.elastic.policy.state import ClusterState, JobState, NodeInfo, Sparse, TrainerSlot
from mlstack.elastic.snapshot import PolicyConfig, Snapshot
from tests.property.elastic.moments import MANY, moment, moments
from tests.property.elastic.test_fair import FREELY, rest
from tests.support import elastic_laws as laws
from tests.support.actuation import is_still

EXAMPLES = 150


def examples(**kind: bool | int) -> Iterator[Snapshot]:
    """Give the same moments in every run."""
    for seed in range(EXAMPLES):
        dice = Random(seed)
        yield moment(seed, dice.randint(1, 6), dice.randint(1, 5), dice.randint(0, 4), **kind)


def breaks(law: Callable[[Snapshot], None], **kind: bool | int) -> bool:
    """Tell whether any moment breaks a law."""
    for snapshot in examples(**kind):
        try:
            law(snapshot)
        except (AssertionError, RuntimeError):
            return True
    return False


def is_sound(snapshot: Snapshot) -> None:
    laws.check_plan(snapshot, plan(snapshot, PolicyConfig()))


def is_work_done(snapshot: Snapshot) -> None:
    after = rest(snapshot)
    laws.check_fixed_point(after, plan(after, FREELY))


def is_even(snapshot: Snapshot) -> None:
    """Of equal jobs none grows beyond one that could have had the room instead."""
    jobs = tuple(
        replace(job, minimum=1, maximum=9, weight=1)
        for job in snapshot.jobs
        if job.state == "admitted" and len(job.trainers) in range(1, 10)
    )
    decisions = plan(replace(snapshot, jobs=jobs), PolicyConfig(moves=0)).decisions.values()
    grown = [decision.target for decision in decisions if decision.places]
    assert not grown or max(grown) <= min(decision.target for decision in decisions) + 1


def comes_to_rest(snapshot: Snapshot) -> None:
    after = rest(snapshot)
    assert is_still(plan(after, FREELY), after)


PLAIN = {"has_others": False, "has_limits": False, "has_gangs": False, "is_alike": True}


def test_unchanged_policy_breaks_none_of_these_laws() -> None:
    assert not breaks(is_sound)
    assert not breaks(is_work_done)
    assert not breaks(is_even, **PLAIN)
    assert not breaks(comes_to_rest)


def test_room_that_grows_with_every_trainer_breaks_the_law_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """B1: the dry run adds a trainer's request to what is free instead of taking it away."""
    shift = ClusterState._shift

    def wrongly(self: ClusterState, node: NodeInfo, amounts: Sparse, sign: int, *rooms: list[int]) -> None:
        shift(self, node, amounts, -sign, *rooms)

    def add(self: ClusterState, state: JobState, node: NodeInfo, cause: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ClusterState, "_shift", wrongly)
            original(self, state, node, cause)  # type: ignore[arg-type]

    original = ClusterState.add
    monkeypatch.setattr(ClusterState, "add", add)
    assert breaks(is_sound)


def test_job_frozen_by_a_trainer_without_a_node_leaves_room_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """B3: a job of which a trainer is not bound is not scaled at all."""
    can_gain = sharing.can_gain

    def frozen(state: JobState, now_ms: int) -> bool:
        return can_gain(state, now_ms) and all(trainer.node for trainer in state.job.trainers)

    monkeypatch.setattr(sharing, "can_gain", frozen)
    monkeypatch.setattr("mlstack.elastic.policy.sharing.place_unbound", lambda *_, **__: None)
    assert breaks(is_work_done)


def test_equal_increments_instead_of_equal_levels_are_not_even(monkeypatch: pytest.MonkeyPatch) -> None:
    """B4: what is free goes to jobs by turns, not to the one that is worst off."""
    monkeypatch.setattr(
        sharing,
        "_rank",
        lambda state: (-state.job.priority, len(state.slots) - len(state.job.trainers), state.job.key),
    )
    assert breaks(is_even, **PLAIN)


def test_shrinking_by_another_rule_than_growing_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """B5: a trainer is given where there is room, and taken where little is left, in the same plan."""

    def grow(cluster: ClusterState, headroom: sharing.Headroom) -> None:
        original(cluster, headroom)
        for state in cluster.states.values():
            for slot in [slot for slot in state.slots if slot.is_planned][: state.surplus]:
                cluster.evict(slot, "bounds")

    original = sharing.grow
    monkeypatch.setattr("mlstack.elastic.policy.sharing.grow", grow)
    assert breaks(is_work_done)


def test_moves_over_a_gap_of_one_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A swap that makes the poorer job the richer one is undone by the next one."""
    monkeypatch.setattr("mlstack.elastic.policy.state.Fulfilment.is_fairer", lambda *_: True)
    assert breaks(comes_to_rest)


# --- The trainer at which the others of a job meet stays for as long as the job does ---


MODES = st.sampled_from(["fair", "throughput", "edl"])


@MANY
@given(moments(), MODES, st.sampled_from([0, 25]))
def test_no_plan_takes_the_rendezvous_of_a_job_that_goes_on(
    snapshot: Snapshot, mode: str, headroom: int
) -> None:
    """A job without a master keeps the bound trainer at which the others meet, or goes off whole."""
    scale_plan = plan(snapshot, PolicyConfig(mode=mode, headroom_pct=headroom))
    for job in snapshot.jobs:
        decision = scale_plan.decisions[job.key]
        first = {trainer.name for trainer in job.trainers if trainer.is_rendezvous and trainer.node}
        assert not decision.target or not first & set(decision.victims), job.key


def test_a_rendezvous_that_goes_as_any_other_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    never = property(lambda _: False, lambda *_: None)
    monkeypatch.setattr(TrainerSlot, "is_rendezvous", never, raising=False)
    assert breaks(is_sound)
