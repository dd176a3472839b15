"""EDL's rules against cases computed by hand: where the mended and the original ones agree, and where not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mlstack.elastic.policy.plan import edl, edl_v010
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
    Vector,
)

Policy = Callable[[Snapshot, PolicyConfig], ScalePlan]

BOTH = pytest.mark.parametrize("policy", [edl, edl_v010], ids=["edl", "edl-v010"])
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


def request(cpu: float = 1, memory: float = 1, gpu: int = 0) -> Vector:
    """CPU in cores, memory in GB."""
    return (round(cpu * 1000), round(memory * 10**9), gpu)


def job(
    name: str,
    count: int,
    *,
    least: int = 1,
    most: int = 20,
    ready: int | None = None,
    node: str = "n0",
    trainer: Vector | None = None,
) -> Job:
    """A job whose `count` trainers sit on one node, the first `ready` of them running, the others unbound."""
    ready = count if ready is None else ready
    pods = tuple(
        Trainer(
            name=f"{name}-{number}",
            node=node if number < ready else "",
            planned="",
            created_ms=number,
            is_ready=number < ready,
        )
        for number in range(count)
    )
    return Job(
        key=f"default/{name}",
        minimum=least,
        maximum=most,
        trainer=trainer or request(),
        state="admitted",
        target=count,
        trainers=pods,
    )


def cluster(*jobs: Job, nodes: tuple[Vector, ...], demands: tuple[Demand, ...] = ()) -> Snapshot:
    """A cluster of empty nodes n0, n1 and so on beside the jobs."""
    return Snapshot(
        now_ms=0,
        resources=RESOURCES,
        nodes=tuple(
            Node(name=f"n{index}", allocatable=node, used=(0, 0, 0)) for index, node in enumerate(nodes)
        ),
        demands=demands,
        jobs=jobs,
    )


def targets(policy: Policy, snapshot: Snapshot, *, load: int = 100) -> list[int]:
    """What the policy gives each job, in the order of the snapshot."""
    name = "edl" if policy is edl else "edl-v010"
    plan = policy(snapshot, PolicyConfig(mode=name, max_load_pct=load))
    return [plan.decisions[job.key].target for job in snapshot.jobs]


GPU = request(gpu=1)
BIG = request(100, 100)
WEB = Demand(key="default/web", request=request(3), priority=0, created_ms=0)


AGREED = {
    "a job grows to its maximum": (100, cluster(job("a", 1, most=3), nodes=(BIG,)), [3]),
    # 10 cores, 1 asked for
    "a job grows until all CPU is asked for": (100, cluster(job("a", 1), nodes=(request(10, 99),)), [10]),
    # 0.9 cores idle on each of ten nodes
    "a job grows only where a node has room": (
        100,
        cluster(job("a", 1), nodes=(request(1.9, 99), *[request(0.9, 99)] * 9)),
        [1],
    ),
    "growth ends when every GPU is given": (
        100,
        cluster(job("a", 1, trainer=GPU), nodes=(request(99, 99, 8),)),
        [8],
    ),
    "nothing grows where every GPU is taken": (
        100,
        cluster(job("a", 8, trainer=GPU), nodes=(request(99, 99, 8),)),
        [8],
    ),
    "a job above its maximum goes to it": (100, cluster(job("a", 5, most=3), nodes=(BIG,)), [3]),
    # 10 GB, 9 asked for: the 1 left is not more than a trainer takes
    "memory short": (100, cluster(job("a", 9), nodes=(request(99, 10),)), [9]),
    # 10.5 GB: 1.5 left after the 9th, 0.5 after the 10th
    "memory for two more": (100, cluster(job("a", 8), nodes=(request(99, 10.5),)), [10]),
    # the line is at 8 of 10 cores
    "load 0.8 up": (80, cluster(job("a", 1), nodes=(request(10, 99),)), [8]),
    "load 0.8 down": (80, cluster(job("a", 10), nodes=(request(10, 99),)), [8]),
    "load 0.8 not below the minimum": (80, cluster(job("a", 10, least=9), nodes=(request(10, 99),)), [9]),
    # 5 cores, 3 asked for: b takes the 2, for the larger a there is 1 left
    "tie: less CPU first": (
        100,
        cluster(job("a", 1, trainer=request(2)), job("b", 1), nodes=(request(5, 99),)),
        [1, 3],
    ),
    # room for one
    "tie: less memory first": (
        100,
        cluster(job("a", 1, trainer=request(1, 2)), job("b", 1), nodes=(request(3, 99),)),
        [1, 2],
    ),
    # 5 cores, 3 asked for: b without a GPU goes first, though it takes more CPU
    "tie: GPU before CPU": (
        100,
        cluster(job("a", 1, trainer=GPU), job("b", 1, trainer=request(2)), nodes=(request(5, 99, 9),)),
        [1, 2],
    ),
    "tie: key last": (100, cluster(job("b", 1), job("a", 1), nodes=(request(3, 99),)), [1, 2]),
    "the least fulfilled first": (100, cluster(job("a", 5), job("b", 2), nodes=(request(8, 99),)), [5, 3]),
    "fulfilment is relative to the range": (
        100,
        cluster(job("a", 5, most=41), job("b", 4, most=11), nodes=(request(10, 99),)),
        [6, 4],
    ),
    # 14 cores, 10 asked for: equal increments, not equal levels
    "free room is shared in equal steps": (
        100,
        cluster(job("a", 8), job("b", 2), nodes=(request(14, 99),)),
        [10, 4],
    ),
    # 11 cores, 12 asked for
    "the most fulfilled yields first": (
        100,
        cluster(job("a", 8), job("b", 4), nodes=(request(11, 99),)),
        [7, 4],
    ),
    "a waiting pod pushes trainers out": (
        100,
        cluster(job("a", 10), nodes=(request(10, 99),), demands=(WEB,)),
        [7],
    ),
    "a job with one trainer that does not run is left alone": (
        100,
        cluster(job("a", 10, ready=9), nodes=(request(9, 99),)),
        [10],
    ),
    # 10 cores, 12 asked for
    "a wholly pending job makes all yield": (
        100,
        cluster(job("a", 10, ready=9), job("b", 2, least=2, ready=0), nodes=(request(10, 99),)),
        [8, 2],
    ),
    "a job with a trainer on its way out is left alone": (
        100,
        cluster(replace(job("a", 3), leaving=1), nodes=(BIG,)),
        [3],
    ),
    "a job of fixed size stays": (100, cluster(job("a", 5, least=5, most=5), nodes=(request(4, 99),)), [5]),
    "room of pods on their way out is used": (
        100,
        replace(
            cluster(job("a", 1), nodes=(request(10, 99),)), arriving=(Held(node="n0", request=request(4)),)
        ),
        [6],
    ),
}


@BOTH
@pytest.mark.parametrize(("load", "snapshot", "expected"), AGREED.values(), ids=AGREED.keys())
def test_both_agree_with_rules(policy: Policy, load: int, snapshot: Snapshot, expected: list[int]) -> None:
    assert targets(policy, snapshot, load=load) == expected


@pytest.mark.parametrize(("policy", "expected"), [(edl, 3), (edl_v010, 60)], ids=["edl", "edl-v010"])
def test_one_node_with_room_means_room_everywhere_in_the_original(policy: Policy, expected: int) -> None:
    """99 nodes have 4.9 idle cores and one has 5.0: the original plans 58 more trainers of 5 cores."""
    nodes = (*[request(16.9, 99)] * 99, request(17, 99), request(12, 99))
    snapshot = cluster(job("a", 2, least=2, most=60, node="n100", trainer=request(5)), nodes=nodes)
    used = [request(12)] * 100 + [request(2)]
    snapshot = replace(
        snapshot,
        nodes=tuple(replace(node, used=cores) for node, cores in zip(snapshot.nodes, used, strict=True)),
    )
    assert targets(policy, snapshot, load=97) == [expected]


@pytest.mark.parametrize(("policy", "expected"), [(edl, 8), (edl_v010, 7)], ids=["edl", "edl-v010"])
def test_gpus_above_the_line_end_the_walk(policy: Policy, expected: int) -> None:
    """8 GPUs, floor(8 * 0.97) = 7: the original gives and takes the eighth in every pass."""
    snapshot = cluster(job("a", 7, trainer=GPU), nodes=(request(99, 99, 8),))
    assert targets(policy, snapshot, load=97) == [expected]


@pytest.mark.parametrize(
    ("policy", "expected"), [(edl, [8, 20]), (edl_v010, [8, 3])], ids=["edl", "edl-v010"]
)
def test_a_job_without_gpus_does_not_answer_for_them(policy: Policy, expected: list[int]) -> None:
    gpus = job("a", 8, least=8, most=8, trainer=GPU)
    assert targets(policy, cluster(gpus, job("b", 3), nodes=(request(99, 99, 8),)), load=97) == expected


@pytest.mark.parametrize(("policy", "expected"), [(edl, 9), (edl_v010, 10)], ids=["edl", "edl-v010"])
def test_memory_above_the_total_is_given_back(policy: Policy, expected: int) -> None:
    assert targets(policy, cluster(job("a", 10), nodes=(request(99, 9.5),))) == [expected]


def test_the_original_names_no_pods_and_no_nodes() -> None:
    plan = edl_v010(cluster(job("a", 1), nodes=(BIG,)), PolicyConfig(mode="edl-v010"))
    (decision,) = plan.decisions.values()
    assert (decision.victims, decision.places, dict(decision.hints)) == ((), (), {})


def test_the_mended_rules_start_a_waiting_job_at_once_and_make_room_for_its_gang() -> None:
    """10 cores, all taken; the new job asks for a master, two parameter servers and two trainers."""
    gang = tuple(
        GangRole(name=name, count=n, request=request()) for name, n in (("master", 1), ("pserver", 2))
    )
    new = Job(key="default/new", minimum=2, maximum=9, trainer=request(), gang=gang)
    plan = edl(
        cluster(job("a", 10), new, nodes=(request(10, 99),)), PolicyConfig(mode="edl", max_load_pct=100)
    )
    started, shrunk = plan.decisions["default/new"], plan.decisions["default/a"]
    assert (started.target, started.is_admitted, started.places) == (2, True, ("", ""))
    assert (started.reasons[0].cause, shrunk.reasons[0].cause) == ("admitted", "yield")
    assert (shrunk.target, len(shrunk.victims)) == (5, 5)


def test_the_mended_rules_name_the_node_of_each_new_trainer() -> None:
    plan = edl(
        cluster(job("a", 1), nodes=(request(2, 99), request(1, 99))),
        PolicyConfig(mode="edl", max_load_pct=100),
    )
    assert plan.decisions["default/a"].places == ("n0", "n1")


def test_who_does_not_run_goes_first_then_the_youngest() -> None:
    a = job("a", 5, ready=4)
    waiting = job("b", 1, ready=0)
    plan = edl(cluster(a, waiting, nodes=(request(4, 99),)), PolicyConfig(mode="edl", max_load_pct=100))
    assert plan.decisions["default/a"].victims == ("a-4", "a-3")


def test_a_finishing_job_is_left_alone_by_the_mended_rules() -> None:
    finishing = replace(job("a", 2), state="finishing")
    plan = edl(cluster(finishing, nodes=(BIG,)), PolicyConfig(mode="edl", max_load_pct=100))
    decision = plan.decisions["default/a"]
    assert (decision.target, decision.reasons[0].cause) == (2, "finishing")
