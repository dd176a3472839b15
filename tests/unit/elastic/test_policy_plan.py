"""What the policy `fair` decides in small, ordinary cases."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from mlstack.elastic.policy.plan import BASELINES, POLICIES, plan
from mlstack.elastic.snapshot import (
    Demand,
    GangRole,
    Held,
    Job,
    Node,
    PolicyConfig,
    ScalePlan,
    Snapshot,
    Trainer,
)
from mlstack.errors import NotFoundError

CPU = ("cpu",)


def nodes(*cores: int) -> tuple[Node, ...]:
    return tuple(Node(name=f"n{index}", allocatable=(size,), used=(0,)) for index, size in enumerate(cores))


def running(key: str, *where: str, minimum: int = 1, maximum: int = 9, size: int = 1, **more: object) -> Job:
    trainers = tuple(
        Trainer(name=f"{key}-{index}", node=node, planned=node, created_ms=0, is_ready=True)
        for index, node in enumerate(where)
    )
    job = Job(key=key, minimum=minimum, maximum=maximum, trainer=(size,), state="admitted", trainers=trainers)
    return replace(job, target=len(where), **more)  # type: ignore[arg-type]


def waiting(key: str, *, minimum: int = 1, maximum: int = 9, size: int = 1, **more: object) -> Job:
    return replace(Job(key=key, minimum=minimum, maximum=maximum, trainer=(size,)), **more)  # type: ignore[arg-type]


def decide(snapshot: Snapshot, **settings: object) -> ScalePlan:
    return plan(snapshot, PolicyConfig(**settings))  # type: ignore[arg-type]


def moment(*jobs: Job, cores: tuple[int, ...], demands: tuple[Demand, ...] = (), now_ms: int = 0) -> Snapshot:
    return Snapshot(now_ms=now_ms, resources=CPU, nodes=nodes(*cores), jobs=jobs, demands=demands)


def targets(plan: ScalePlan) -> dict[str, int]:
    return {key: decision.target for key, decision in plan.decisions.items()}


def causes(plan: ScalePlan, key: str) -> list[str]:
    return [reason.cause for reason in plan.decisions[key].reasons]


def why(plan: ScalePlan, key: str) -> str:
    return plan.decisions[key].reasons[0].text


def test_waiting_job_is_admitted_whole_and_grows_into_free_room() -> None:
    gang = (GangRole(name="master", count=1, request=(1,)), GangRole(name="pserver", count=2, request=(2,)))
    plan = decide(moment(waiting("a", gang=gang, maximum=3), cores=(4, 5)))
    decision = plan.decisions["a"]
    assert (decision.is_admitted, decision.target, len(decision.places)) == (True, 3, 3)
    assert {role: len(where) for role, where in decision.hints.items()} == {"master": 1, "pserver": 2}
    assert causes(plan, "a") == ["admitted", "growth"]


def test_waiting_job_without_a_minimum_is_admitted_with_a_trainer_or_keeps_no_room() -> None:
    plan = decide(moment(waiting("a", minimum=0, maximum=2), cores=(2,)))
    assert (targets(plan), causes(plan, "a")) == ({"a": 2}, ["admitted", "growth"])
    gang = (GangRole(name="master", count=1, request=(1,)),)
    plan = decide(moment(waiting("a", minimum=0, size=3, gang=gang), waiting("b"), cores=(3,)))
    assert (targets(plan), why(plan, "a")) == ({"a": 0, "b": 3}, "no room for 0.004 cpu of its gang")


def test_job_waits_without_pods_where_its_gang_does_not_fit() -> None:
    plan = decide(moment(waiting("a", minimum=3), cores=(1, 1)))
    assert (targets(plan), causes(plan, "a")) == ({"a": 0}, ["waiting"])
    assert [row.key for row in plan.unplaced] == ["a"]
    assert not plan.decisions["a"].places


def test_free_room_goes_to_the_job_that_is_worst_off() -> None:
    plan = decide(moment(running("a", "n0", "n0", "n0"), running("b", "n0"), cores=(8,)))
    assert targets(plan) == {"a": 4, "b": 4}


def test_pod_of_others_takes_a_trainer_above_the_minimum_of_the_richest_job() -> None:
    demand = Demand(key="web", request=(1,), priority=1000, created_ms=0)
    jobs = (running("a", "n0", "n0", "n0"), running("b", "n0", "n0"))
    plan = decide(moment(*jobs, cores=(5,), demands=(demand,)), moves=0)
    assert targets(plan) == {"a": 2, "b": 2}
    assert causes(plan, "a") == ["yield"]
    assert [(row.key, row.node) for row in plan.reservations] == [("web", "n0")]


def test_pod_of_others_goes_to_the_node_where_the_richest_job_loses() -> None:
    demand = Demand(key="web", request=(1,), priority=1000, created_ms=0)
    jobs = (running("poor", "n0", "n0"), running("rich", "n1", "n1", "n1"))
    plan = decide(moment(*jobs, cores=(2, 3), demands=(demand,)), moves=0)
    assert targets(plan) == {"poor": 2, "rich": 2}


def test_pod_that_is_tied_to_a_node_comes_before_one_that_may_go_anywhere() -> None:
    free = Demand(key="a-free", request=(1,), priority=1000, created_ms=0)
    tied = Demand(key="b-tied", request=(1,), priority=1000, created_ms=0, nodes=frozenset({"n0"}))
    plan = decide(moment(cores=(1, 1), demands=(free, tied)))
    assert {(row.key, row.node) for row in plan.reservations} == {("a-free", "n1"), ("b-tied", "n0")}


def test_pod_that_cannot_be_placed_costs_nobody_a_trainer() -> None:
    demand = Demand(key="web", request=(4,), priority=1000, created_ms=0)
    plan = decide(moment(running("a", "n0", "n0"), cores=(3,), demands=(demand,)))
    assert not plan.decisions["a"].victims
    assert [row.key for row in plan.unplaced] == ["web"]


def test_room_that_is_about_to_come_free_is_promised_once() -> None:
    demand = Demand(key="web", request=(1,), priority=1000, created_ms=0)
    snapshot = moment(running("a", "n0"), cores=(2,), demands=(demand,))
    plan = decide(replace(snapshot, arriving=(Held(node="n0", request=(1,)),)))
    assert (targets(plan), plan.decisions["a"].places) == ({"a": 1}, ())


def test_trainer_goes_where_there_is_room_at_once_rather_than_soon() -> None:
    snapshot = moment(waiting("a", maximum=1), cores=(1, 1))
    plan = decide(replace(snapshot, arriving=(Held(node="n0", request=(1,)),)))
    assert plan.decisions["a"].places == ("n1",)


def test_gang_of_a_new_job_takes_trainers_above_minima() -> None:
    plan = decide(moment(running("a", *["n0"] * 4), waiting("b", minimum=2), cores=(4,)))
    assert targets(plan) == {"a": 2, "b": 2}
    assert causes(plan, "a") == ["gang"]


def test_gang_of_large_trainers_takes_many_small_ones() -> None:
    small = (running("a", *["n0"] * 12, maximum=12), running("b", *["n1"] * 12, maximum=12))
    plan = decide(moment(*small, waiting("large", minimum=4, maximum=4, size=5), cores=(12, 12)))
    assert targets(plan) == {"a": 2, "b": 2, "large": 4}


def test_waiting_job_is_admitted_on_the_nodes_that_it_is_tied_to() -> None:
    tied = waiting("tied", minimum=2, maximum=9, nodes=frozenset({"n1"}))
    plan = decide(moment(tied, cores=(5, 3)))
    assert plan.decisions["tied"].places == ("n1", "n1", "n1")


def test_job_of_lower_priority_is_taken_off_whole_for_a_higher_gang() -> None:
    low = (
        running("old", "n0", "n0", minimum=2, created_ms=1),
        running("new", "n0", "n0", minimum=2, created_ms=2),
    )
    plan = decide(moment(*low, waiting("high", minimum=2, priority=1), cores=(4,)))
    assert targets(plan) == {"old": 2, "new": 0, "high": 2}
    assert causes(plan, "new") == ["suspended"]


def test_job_of_large_trainers_is_taken_off_for_a_gang_as_large() -> None:
    low = running("low", *["n0"] * 4, minimum=4, size=5)
    plan = decide(moment(low, waiting("high", minimum=4, maximum=4, size=5, priority=1), cores=(20,)))
    assert targets(plan) == {"low": 0, "high": 4}


def test_no_job_is_taken_off_whose_room_is_of_no_use() -> None:
    far = [running(f"far{index}", "n1", created_ms=3 + index) for index in range(4)]
    near = running("near", "n0", "n0", minimum=2, created_ms=2)
    high = waiting("high", minimum=2, maximum=2, priority=1, nodes=frozenset({"n0"}))
    plan = decide(moment(*far, near, high, cores=(2, 4)))
    assert targets(plan) == {**{job.key: 1 for job in far}, "near": 0, "high": 2}


def test_job_of_equal_priority_is_not_taken_off() -> None:
    plan = decide(moment(running("a", "n0", "n0", minimum=2), waiting("b", minimum=2), cores=(2,)))
    assert targets(plan) == {"a": 2, "b": 0}


def test_fairness_moves_are_bounded_and_need_a_gap_of_two() -> None:
    jobs = (running("a", *["n0"] * 8), running("b", "n0", "n0"))
    snapshot = moment(*jobs, cores=(10,), now_ms=20_000)
    assert targets(decide(snapshot)) == {"a": 5, "b": 5}
    assert targets(decide(snapshot, moves=2)) == {"a": 6, "b": 4}
    spent = replace(snapshot, moves_ms=(9_999, 10_001, 19_000))
    assert targets(decide(spent, moves=3)) == {"a": 7, "b": 3}
    uneven = moment(running("a", "n0", "n0"), running("b", "n0"), cores=(3,))
    assert decide(uneven).moves == 0


def test_for_a_large_trainer_nobody_becomes_poorer_than_the_one_who_gets_it() -> None:
    rich = running("rich", *["n0"] * 3, minimum=0, maximum=4)
    poor = running("poor", minimum=0, maximum=4, size=3)
    assert targets(decide(moment(rich, poor, cores=(3,)))) == {"rich": 3, "poor": 0}
    richer = running("rich", *["n0"] * 6, minimum=0, maximum=6)
    assert targets(decide(moment(richer, poor, cores=(6,)))) == {"rich": 3, "poor": 1}


def test_trainer_that_found_no_node_in_time_is_withdrawn_and_its_node_passed_over() -> None:
    job = running("a", "n0")
    lost = Trainer(name="late", node="", planned="n0", created_ms=100_000)
    snapshot = moment(replace(job, trainers=(*job.trainers, lost)), cores=(2,), now_ms=116_000)
    assert "stuck" not in causes(decide(replace(snapshot, now_ms=114_000)), "a")
    plan = decide(snapshot)
    assert (plan.decisions["a"].victims, targets(plan)) == (("late",), {"a": 1})
    assert "stuck" in causes(plan, "a")
    unseen = replace(job, trainers=(*job.trainers, replace(lost, is_tried=False)))
    assert causes(decide(moment(unseen, cores=(2,), now_ms=116_000)), "a") == ["steady"]
    assert "stuck" in causes(decide(moment(unseen, cores=(2,), now_ms=161_000)), "a")
    barred = decide(moment(replace(job, barred={"n0": 120_000}), cores=(2,), now_ms=116_000))
    assert targets(barred) == {"a": 1}


def test_trainer_waits_as_long_as_its_node_waits_for_somebody_to_go() -> None:
    job = running("a", "n0")
    late = Trainer(name="late", node="", planned="n0", created_ms=0)
    snapshot = moment(replace(job, trainers=(*job.trainers, late)), cores=(2,), now_ms=16_000)
    plan = decide(replace(snapshot, arriving=(Held(node="n0", request=(1,)),)))
    assert not plan.decisions["a"].victims


def test_job_above_its_maximum_shrinks_at_once() -> None:
    plan = decide(moment(running("a", *["n0"] * 4, maximum=2), cores=(4,)))
    assert (targets(plan), causes(plan, "a")) == ({"a": 2}, ["bounds"])


def test_finishing_job_is_left_alone() -> None:
    plan = decide(moment(running("a", "n0", state="finishing"), running("b", "n1"), cores=(2, 1)))
    assert (targets(plan), causes(plan, "a")) == ({"a": 1, "b": 2}, ["finishing"])


def test_cooling_job_neither_grows_nor_gives_for_fairness() -> None:
    job = running("a", "n0", cooldown_ms=60_000, changed_ms=0)
    assert targets(decide(moment(job, cores=(3,), now_ms=59_999))) == {"a": 1}
    assert targets(decide(moment(job, cores=(3,), now_ms=60_000))) == {"a": 3}


def test_cooling_job_gets_back_what_it_lost_where_there_is_free_room() -> None:
    job = replace(running("a", "n0", cooldown_ms=60_000, changed_ms=0), target=3)
    plan = decide(moment(job, cores=(5,), now_ms=1))
    assert targets(plan) == {"a": 3}
    assert plan.decisions["a"].reasons[0].text == "gets 2 back to 3 trainers of 1 to 9 in free room"


def test_cooling_job_takes_from_nobody_what_it_lost() -> None:
    job = replace(running("a", "n0", cooldown_ms=60_000, changed_ms=0), target=3)
    plan = decide(moment(job, running("b", "n0", "n0", "n0", "n0"), cores=(5,), now_ms=1))
    assert targets(plan) == {"a": 1, "b": 4}


def test_lost_minimum_is_restored_at_the_cost_of_others() -> None:
    plan = decide(moment(running("a", "n0", minimum=2), running("b", "n0", "n0"), cores=(3,)))
    assert targets(plan) == {"a": 2, "b": 1}
    assert causes(plan, "a") == ["minimum"]


def test_running_job_whose_minimum_has_no_place_is_taken_off() -> None:
    plan = decide(moment(running("a", "n0", minimum=2), cores=(1,)))
    assert (targets(plan), causes(plan, "a")) == ({"a": 0}, ["lost"])
    assert "no room for its minimum of trainers" in plan.decisions["a"].reasons[0].text


def test_of_trainers_of_one_age_the_highest_indexes_go_first() -> None:
    plan = decide(moment(running("a", *["n0"] * 12), waiting("b", minimum=10), cores=(12,)))
    assert targets(plan) == {"a": 2, "b": 10}
    assert plan.decisions["a"].victims[:3] == ("a-11", "a-10", "a-9")


def test_edl_keeps_the_lowest_indexes_too() -> None:
    plan = decide(moment(running("a", *["n0"] * 12), cores=(10,)), mode="edl")
    assert plan.decisions["a"].victims == ("a-11", "a-10", "a-9")


def rdzv(key: str, *where: str, created_ms: int = 0, **more: object) -> Job:
    """Give a job whose others meet at the first trainer, which is the youngest where that is said."""
    job = running(key, *where, **more)  # type: ignore[arg-type]
    first = replace(job.trainers[0], is_rendezvous=True, created_ms=created_ms)
    return replace(job, trainers=(first, *job.trainers[1:]))


WEB = Demand(key="web/p", request=(1,), priority=0, created_ms=0, nodes=frozenset({"n0"}))


@pytest.mark.parametrize("mode", ["fair", "throughput", "edl"])
@pytest.mark.parametrize(
    ("jobs", "demands", "cores"),
    [
        pytest.param([rdzv("a", "n0", "n1", "n1", created_ms=9, maximum=3)], (WEB,), (1, 2), id="others"),
        pytest.param([rdzv("a", *["n0"] * 6, created_ms=9), waiting("b", minimum=3)], (), (6,), id="gang"),
        pytest.param([rdzv("a", *["n0"] * 8, created_ms=9), running("b", "n0")], (), (9,), id="fairness"),
        pytest.param([rdzv("a", *["n0"] * 6, created_ms=9, maximum=2)], (), (6,), id="bounds"),
    ],
)
def test_the_trainer_at_which_the_others_meet_stays(
    mode: str, jobs: list[Job], demands: tuple[Demand, ...], cores: tuple[int, ...]
) -> None:
    plan = decide(moment(*jobs, cores=cores, demands=demands), mode=mode)
    assert "a-0" not in plan.decisions["a"].victims


def test_of_trainers_without_a_node_the_one_at_which_the_others_meet_comes_first() -> None:
    late = Trainer(name="a-1", node="", planned="n0", created_ms=0)
    first = Trainer(name="a-0", node="", planned="n0", created_ms=1, is_rendezvous=True)
    plan = decide(moment(running("a", trainers=(late, first)), cores=(1,)))
    assert plan.decisions["a"].victims == ("a-1",)


def test_headroom_is_made_by_the_richest_job() -> None:
    jobs = (running("poor", "n0", "n0"), running("rich", "n0", "n0", "n0"))
    plan = decide(moment(*jobs, cores=(5,)), headroom_pct=20, moves=0)
    assert targets(plan) == {"poor": 2, "rich": 2}


def test_headroom_leaves_the_trainer_at_which_the_others_meet() -> None:
    job = rdzv("a", "n0", "n1", "n1", created_ms=9)
    assert decide(moment(job, cores=(1, 2)), headroom_pct=100).decisions["a"].victims == ("a-2", "a-1")


def test_the_trainer_at_which_the_others_meet_goes_with_its_whole_job() -> None:
    job = rdzv("a", "n0", "n0", minimum=2)
    plan = decide(moment(job, waiting("b", minimum=2, priority=1), cores=(2,)))
    assert set(plan.decisions["a"].victims) == {"a-0", "a-1"}


def test_a_lost_rendezvous_is_made_anew_in_place_of_another_trainer() -> None:
    job = running("a", "n0", "n0", minimum=2, lacks_rendezvous=True)
    decision = decide(moment(job, cores=(2,))).decisions["a"]
    assert (decision.target, decision.victims, decision.places) == (2, ("a-1",), ("n0",))
    assert "meet" in decision.reasons[0].text


def test_a_lost_rendezvous_costs_no_other_trainer_where_there_is_room() -> None:
    job = running("a", "n0", "n0", lacks_rendezvous=True, cooldown_ms=60_000, changed_ms=0)
    decision = decide(moment(job, cores=(3,))).decisions["a"]
    assert (decision.target, decision.victims, decision.places) == (3, (), ("n0",))


def test_masters_and_parameter_servers_keep_away_from_nodes_that_are_passed_over() -> None:
    gang = (GangRole(name="pserver", count=1, request=(1,)),)
    job = waiting("a", gang=gang, maximum=1, barred={"n0": 60_000})
    assert decide(moment(job, cores=(4, 4))).decisions["a"].hints == {"pserver": ("n1",)}
    assert targets(decide(moment(replace(job, barred={"n0": 60_000, "n1": 60_000}), cores=(4, 4)))) == {
        "a": 0
    }


def test_a_server_tied_to_a_node_that_is_passed_over_keeps_its_job_running() -> None:
    gang = (GangRole(name="pserver", count=1, request=(1,)),)
    job = running("a", "n1", gang=gang, maximum=1, barred={"n0": 60_000})
    demand = replace(WEB, key="a-pserver-0", job="a", priority=100)
    assert targets(decide(moment(job, cores=(1, 1), demands=(demand,)))) == {"a": 1}


@pytest.mark.parametrize("mode", ["fair", "throughput", "edl"])
def test_a_job_that_was_given_up_waits_and_keeps_no_room_from_others(mode: str) -> None:
    job = waiting("a", minimum=4, created_ms=0, not_before_ms=200_000)
    other = waiting("b", created_ms=1, maximum=4)
    before = decide(moment(job, other, cores=(4,), now_ms=199_999), mode=mode)
    assert (targets(before)["a"], targets(before)["b"] >= 3) == (0, True)
    assert "next try" in why(before, "a")
    after = decide(moment(job, cores=(4,), now_ms=200_000), mode=mode)
    assert targets(after)["a"] == 4


def test_trainers_without_devices_avoid_nodes_with_them() -> None:
    gpu = Node(name="n0", allocatable=(4, 4), used=(0, 0), devices=(0, 4))
    plain = Node(name="n1", allocatable=(4, 0), used=(0, 0))
    job = Job(key="a", minimum=1, maximum=2, trainer=(2, 0))
    snapshot = Snapshot(now_ms=0, resources=("cpu", "nvidia.com/gpu"), nodes=(gpu, plain), jobs=(job,))
    assert decide(snapshot).decisions["a"].places == ("n1", "n1")


def test_gpu_trainers_fill_a_node_before_they_open_another() -> None:
    full = Node(name="full", allocatable=(8, 4), used=(2, 2), devices=(0, 4))
    empty = Node(name="empty", allocatable=(8, 4), used=(0, 0), devices=(0, 4))
    job = Job(key="a", minimum=1, maximum=1, trainer=(1, 2))
    snapshot = Snapshot(now_ms=0, resources=("cpu", "nvidia.com/gpu"), nodes=(empty, full), jobs=(job,))
    assert decide(snapshot).decisions["a"].places == ("full",)


def test_older_job_keeps_its_nodes_from_younger_ones_after_the_back_fill_limit() -> None:
    large = waiting("large", minimum=3, created_ms=0)
    small = waiting("small", minimum=1, maximum=1, created_ms=1)
    busy = running("busy", "n0", "n0", minimum=2, maximum=2, created_ms=0)
    assert targets(decide(moment(busy, large, small, cores=(3,), now_ms=1_000)))["small"] == 1
    late = decide(moment(busy, large, small, cores=(3,), now_ms=300_000))
    assert targets(late) == {"busy": 2, "large": 0, "small": 0}


@pytest.mark.parametrize(
    "never",
    [
        waiting("never", minimum=4, created_ms=0),
        waiting("never", minimum=1, created_ms=0, gang=(GangRole(name="master", count=1, request=(9,)),)),
    ],
    ids=["too many trainers", "too large a master"],
)
def test_older_job_that_could_never_run_keeps_no_nodes_from_younger_ones(never: Job) -> None:
    late = decide(moment(never, waiting("small", maximum=1, created_ms=1), cores=(3,), now_ms=300_000))
    assert targets(late) == {"never": 0, "small": 1}


def test_job_that_runs_gets_its_minimum_back_before_an_older_one_is_admitted() -> None:
    jobs = (waiting("older", created_ms=0), running("busy", "n0", minimum=2, created_ms=1))
    assert targets(decide(moment(*jobs, cores=(2,)))) == {"older": 0, "busy": 2}


def test_older_job_that_waits_keeps_no_nodes_from_one_that_runs() -> None:
    (full,) = nodes(3)
    large = waiting("large", minimum=3, priority=1, created_ms=0)
    busy = running("busy", "n0", minimum=2, maximum=2, created_ms=1)
    snapshot = moment(large, busy, cores=(3,), now_ms=300_000)
    plan = decide(replace(snapshot, nodes=(replace(full, used=(1,)),)))
    assert targets(plan) == {"large": 0, "busy": 2}


def test_headroom_is_kept_in_whole_places() -> None:
    assert targets(decide(moment(running("a", "n0"), cores=(5, 5)), headroom_pct=20)) == {"a": 8}


def test_headroom_that_others_took_is_made_free_again() -> None:
    plan = decide(moment(running("a", *["n0"] * 5), cores=(5, 5)), headroom_pct=60)
    assert (targets(plan), causes(plan, "a")) == ({"a": 4}, ["yield"])


def test_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(NotFoundError) as caught:
        decide(moment(cores=(1,)), mode="fairr")
    assert caught.value.near == "fair"


def test_baselines_are_policies() -> None:
    assert all(name in POLICIES for name in BASELINES)


def test_parameter_servers_stand_in_pairs_where_the_remainder_is_used() -> None:
    """Two 4-core servers cost a node of 23 cores one 5-core trainer; one on each of two nodes costs two."""
    gang = (GangRole(name="pserver", count=2, request=(4,)), GangRole(name="master", count=1, request=(1,)))
    job = waiting("a", size=5, minimum=1, maximum=9, gang=gang)
    decision = decide(moment(job, cores=(23, 23, 11))).decisions["a"]
    assert decision.hints["pserver"] == ("n0", "n0")
    assert decision.hints["master"] == ("n2",)
    assert decision.target == 9


def test_server_goes_where_a_further_one_costs_least_though_another_node_is_fuller() -> None:
    """The first costs a trainer on either node: on 13 cores a second one costs none, on 16 it costs one."""
    gang = (GangRole(name="pserver", count=2, request=(4,)),)
    old = running("old", "n0", "n0", "n1", "n1", "n1", size=5)
    plan = decide(moment(old, waiting("a", size=5, gang=gang), cores=(13, 16)), moves=0)
    assert plan.decisions["a"].hints["pserver"] == ("n0", "n0")


def test_pod_of_others_takes_no_trainer_of_higher_pod_priority() -> None:
    demand = Demand(key="batch", request=(1,), priority=-100, created_ms=0)
    plan = decide(moment(running("a", "n0", "n0", pod_priority=-10), cores=(2,), demands=(demand,)))
    assert (targets(plan), [row.key for row in plan.unplaced]) == ({"a": 2}, ["batch"])


def test_one_large_trainer_goes_rather_than_two_small_ones() -> None:
    demand = Demand(key="web", request=(2,), priority=0, created_ms=0)
    jobs = (running("large", "n0", "n0", size=2), running("small", "n0", "n0", "n0", maximum=4))
    plan = decide(moment(*jobs, cores=(7,), demands=(demand,)), moves=0)
    assert targets(plan) == {"large": 1, "small": 3}


def test_jobs_of_higher_priority_fill_up_first() -> None:
    plan = decide(moment(running("low", "n0"), running("high", "n0", priority=1, maximum=4), cores=(6,)))
    assert targets(plan) == {"low": 2, "high": 4}


def test_weight_shares_in_proportion() -> None:
    jobs = (running("a", "n0", maximum=41), running("b", "n0", maximum=41, weight=3))
    assert targets(decide(moment(*jobs, cores=(22,)))) == {"a": 6, "b": 16}


def test_lost_parameter_server_gets_room_of_its_own_job() -> None:
    demand = Demand(key="a-pserver-0", request=(2,), priority=100, created_ms=0, job="a")
    job = running("a", "n0", "n0", "n0", gang=(GangRole(name="pserver", count=1, request=(2,)),))
    plan = decide(moment(job, cores=(3,), demands=(demand,)))
    assert targets(plan) == {"a": 1}
    assert [row.key for row in plan.reservations] == ["a-pserver-0"]


def test_reasons_name_numbers_and_jobs() -> None:
    plan = decide(moment(running("a", *["n0"] * 4), waiting("b", minimum=2), cores=(4,)))
    assert plan.decisions["a"].reasons[0].text == "gives up 2 of its trainers for b"
    assert plan.decisions["b"].reasons[0].text == "room for its gang of 2 trainers"
    assert (
        why(decide(moment(running("a", "n0"), cores=(1,))), "a")
        == "stays at 1 trainer of 1 to 9: no room for more"
    )
    assert (
        why(decide(moment(running("a", "n0", maximum=1), cores=(2,))), "a")
        == "stays at 1 trainer, its maximum"
    )


def test_of_a_gang_that_has_places_in_part_only_the_rest_is_missing() -> None:
    gang = (GangRole(name="pserver", count=3, request=(2,)),)
    plan = decide(moment(waiting("a", gang=gang), cores=(3, 3, 1)))
    assert [(row.key, row.missing) for row in plan.unplaced] == [("a", (2,))]


def test_of_a_minimum_that_is_there_in_part_only_the_rest_is_missing() -> None:
    plan = decide(moment(running("a", "n0", minimum=2, size=2), cores=(3, 1)))
    assert [(row.key, row.missing) for row in plan.unplaced] == [("a", (2,))]


def test_a_job_that_waits_is_told_what_is_short_or_that_it_never_fits() -> None:
    short = moment(waiting("c", minimum=3, size=2000), cores=(3000,))
    assert why(decide(short), "c") == "no room for 6 cpu of its gang"
    large = moment(waiting("c", minimum=3, size=2000), cores=(1000, 1000))
    assert why(decide(large), "c") == "no node is large enough for one trainer of 2 cpu"
    nowhere = moment(replace(waiting("c"), nodes=frozenset()), cores=(9,))
    assert why(decide(nowhere), "c") == "no node takes its trainers: node selector, affinity or taints"


def test_trainers_of_a_lost_node_are_counted_until_they_are_gone() -> None:
    plan = decide(moment(running("a", "n0", "elsewhere", maximum=2), cores=(4,)))
    assert (targets(plan), plan.decisions["a"].places) == ({"a": 2}, ())


def test_a_plan_leaves_garbage_collection_as_it_was() -> None:
    decide(moment(waiting("j"), cores=(4,)))
    assert gc.isenabled()
    gc.disable()
    try:
        decide(moment(waiting("j"), cores=(4,)))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_job_is_taken_off_though_its_servers_have_no_node_yet() -> None:
    """What is kept for them comes free with the rest."""
    trainer = Trainer(name="low-0", node="n0", planned="n0", created_ms=0)
    gang = (GangRole(name="pserver", count=1, request=(2,)),)
    low = Job(key="low", minimum=1, maximum=1, trainer=(1,), gang=gang, state="admitted", trainers=(trainer,))
    high = Job(key="high", minimum=1, maximum=1, trainer=(3,), priority=1)
    server = Demand(key="low-pserver-0", request=(2,), priority=100, created_ms=0, job="low")
    node = Node(name="n0", allocatable=(4,), used=(0,))
    moment = Snapshot(now_ms=0, resources=("cpu",), nodes=(node,), jobs=(low, high), demands=(server,))
    scale_plan = plan(moment, PolicyConfig())
    assert (scale_plan.decisions["high"].target, scale_plan.decisions["low"].target) == (1, 0)


def server(job: str, created_ms: int) -> Demand:
    """Give a parameter server without a node, tied to the node that was emptied for one of them."""
    nodes = frozenset({"n0"})
    return Demand(
        key=f"{job}-pserver-0", request=(2,), priority=100, created_ms=created_ms, job=job, nodes=nodes
    )


@pytest.mark.parametrize(("low", "high"), [("a", "z"), ("z", "a")])
def test_room_made_for_a_gang_is_not_taken_by_an_older_one_of_lower_priority(low: str, high: str) -> None:
    gang = (GangRole(name="pserver", count=1, request=(2,)),)
    jobs = tuple(
        Job(key=key, minimum=0, maximum=1, trainer=(9,), gang=gang, state="admitted", priority=priority)
        for key, priority in ((low, 0), (high, 5))
    )
    nodes = tuple(Node(name=name, allocatable=(2,), used=(0,)) for name in ("n0", "n1"))
    demands = (server(low, 1), server(high, 2))
    scale_plan = plan(
        Snapshot(now_ms=9, resources=("cpu",), nodes=nodes, jobs=jobs, demands=demands), PolicyConfig()
    )
    assert {row.key: row.node for row in scale_plan.reservations} == {
        f"{high}-pserver-0": "n0",
        f"{low}-pserver-0": "n1",
    }


@pytest.mark.parametrize("mode", ["fair", "throughput", "edl"])
@pytest.mark.parametrize(("was", "target"), [(5, 5), (1, 3), (9, 6)])
def test_job_that_ends_is_to_have_what_it_was_to_have(mode: str, was: int, target: int) -> None:
    """However few trainers are left: the target stays in its range, which may have changed meanwhile."""
    trainers = tuple(Trainer(name=f"a-{index}", node="n0", planned="n0", created_ms=0) for index in range(2))
    job = Job(key="a", minimum=3, maximum=6, trainer=(1,), state="finishing", target=was, trainers=trainers)
    node = Node(name="n0", allocatable=(9,), used=(0,))
    result = plan(Snapshot(now_ms=0, resources=("cpu",), nodes=(node,), jobs=(job,)), PolicyConfig(mode=mode))
    decision = result.decisions["a"]
    assert (decision.target, decision.victims, decision.places) == (target, (), ())
