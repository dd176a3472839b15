"""How long jobs take: cases small enough to be reckoned by hand, and the goals over them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mlstack.elastic.snapshot import PolicyConfig
from mlstack.simulator.experiments import (
    JOBS,
    LOADS,
    SLOTS,
    JctOutcome,
    JctTrial,
    TraceJob,
    at_least,
    at_most,
    draw,
    judge_jct,
    run_policy,
    run_rigid,
)

MODES = pytest.mark.parametrize("mode", ["fair", "throughput"])


def job(name: str, *, at_s: int, work_s: int, most: int, parallel: str = "1") -> TraceJob:
    return TraceJob(
        key=f"trace/{name}",
        at_ms=at_s * 1000,
        work_ms=work_s * 1000,
        parallel=parallel,
        minimum=1,
        maximum=most,
    )


def test_rigid_jobs_wait_for_all_their_trainers_and_for_those_before_them() -> None:
    """Of 250 slots the first takes 200 for 10 s; the second, of 100, waits, and so does the third, of 1."""
    trace = [
        job("a", at_s=0, work_s=2000, most=200),
        job("b", at_s=1, work_s=1000, most=100),
        job("c", at_s=2, work_s=1, most=1),
    ]
    outcome = run_rigid(trace)
    assert outcome.mean_jct_s == (10 + 19 + 9) / 3
    assert outcome.makespan_s == 20


def test_amdahl_says_how_long_a_rigid_job_takes() -> None:
    """Half of 300 s in parallel on 3 trainers: 150 + 50 s."""
    assert run_rigid([job("a", at_s=0, work_s=300, most=3, parallel="0.5")]).makespan_s == 200


@MODES
def test_a_job_alone_stands_still_only_to_start(mode: str) -> None:
    outcome = run_policy([job("a", at_s=0, work_s=2000, most=200)], PolicyConfig(mode=mode))
    assert (outcome.makespan_s, outcome.changes) == (5 + 10, 0)


@MODES
def test_two_equal_jobs_share_the_slots(mode: str) -> None:
    """125 slots each, 10 s of work after 5 s of starting."""
    trace = [job(name, at_s=0, work_s=1250, most=250) for name in "ab"]
    assert run_policy(trace, PolicyConfig(mode=mode)).mean_jct_s == 15


def test_a_job_that_grows_stands_still_once_more() -> None:
    """Both start with 125; a ends after 5 + 10 s; b stands still for 5 s, then does 1250 s on 250 slots."""
    trace = [job("a", at_s=0, work_s=1250, most=250), job("b", at_s=0, work_s=2500, most=250)]
    outcome = run_policy(trace, PolicyConfig(mode="fair"))
    assert (outcome.makespan_s, outcome.changes) == (15 + 5 + 5, 1)


def test_throughput_gives_more_to_the_job_that_scales() -> None:
    trace = [
        job("a", at_s=0, work_s=1000, most=250, parallel="0.9"),
        job("b", at_s=0, work_s=20_000, most=250, parallel="0.999"),
    ]
    fair, best = (run_policy(trace, PolicyConfig(mode=mode)) for mode in ("fair", "throughput"))
    assert best.mean_jct_s < fair.mean_jct_s


def test_a_seed_gives_one_trace_at_every_load() -> None:
    slow, fast = draw(7, Fraction(1)), draw(7, Fraction(2))
    assert draw(7, Fraction(1)) == slow
    assert [each.work_ms for each in slow] == [each.work_ms for each in fast]
    assert slow[-1].at_ms == pytest.approx(2 * fast[-1].at_ms, rel=1e-6)


def test_the_load_is_what_rigid_jobs_take_over_what_there_is() -> None:
    trace = draw(3, Fraction(9, 5))
    taken = sum(each.alone_ms * each.maximum for each in trace)
    assert len(trace) == JOBS
    assert taken / (SLOTS * trace[-1].at_ms) == pytest.approx(1.8, rel=1e-6)


def test_goals_compare_percent_at_each_load() -> None:
    def outcome(seconds: float) -> JctOutcome:
        return JctOutcome(mean_jct_s=seconds, p95_jct_s=seconds, makespan_s=seconds)

    trials = [
        JctTrial(seed=0, load=load, rigid=outcome(100), fair=outcome(40), throughput=outcome(best))
        for load, best in zip(LOADS, (36, 38), strict=True)
    ]
    rows = judge_jct(trials)
    assert [row.value for row in rows] == [60, 60, 10, 10, 60, 60, 5, 5]
    assert [row.is_met for row in rows] == [True] * 6 + [False, True]


def test_a_goal_is_judged_over_all_seeds() -> None:
    assert at_least("x", [1, 3], 2).is_met
    assert not at_least("x", [1, 3], 2, over=min).is_met
    assert at_most("x", [1, 3], 2).is_met
    assert not at_most("x", [1, 3], 2, over=max).is_met


def test_elastic_jobs_end_sooner_than_rigid_ones_and_with_curves_sooner_still() -> None:
    trace = draw(0, LOADS[0])[:50]
    rigid, *elastic = (
        run_rigid(trace),
        *(run_policy(trace, PolicyConfig(mode=mode)) for mode in ("fair", "throughput")),
    )
    fair, best = (outcome.mean_jct_s for outcome in elastic)
    assert best < 0.95 * fair
    assert fair < 0.7 * rigid.mean_jct_s
