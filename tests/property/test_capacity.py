"""Laws of the check of capacity, against a scheduler that takes any order and any node with room."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.objects.nodes import NodePlace
from mlstack.readiness.capacity import NodeRoom, PodSet, fits, pod_set

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


@st.composite
def node_rooms(draw: st.DrawFn) -> list[NodeRoom]:
    rooms = []
    for index in range(draw(st.integers(1, 4))):
        allocatable = {name: 1000 * draw(st.integers(0, 6)) for name in ("cpu",)}
        allocatable |= {name: draw(st.integers(0, 6)) for name in RESOURCES[1:]} | {"pods": 20}
        free = {name: value - draw(st.integers(0, value)) // 2 for name, value in allocatable.items()}
        taints = draw(st.sampled_from([(), ({"key": "gpu", "effect": "NoSchedule"},)]))
        place = NodePlace(f"n{index}", {"pool": draw(st.sampled_from("ab"))}, taints)
        rooms.append(NodeRoom(place=place, allocatable=allocatable, free=free))
    return rooms


@st.composite
def pod_sets(draw: st.DrawFn) -> list[PodSet]:
    rows = []
    for index in range(draw(st.integers(1, 3))):
        asked = {"cpu": str(draw(st.integers(0, 4))), "memory": str(draw(st.integers(0, 3)))}
        if draw(st.booleans()):
            asked["nvidia.com/gpu"] = str(draw(st.integers(1, 2)))
        spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": asked}}]}
        if draw(st.booleans()):
            spec["tolerations"] = [{"operator": "Exists"}]
        if draw(st.booleans()):
            spec["nodeSelector"] = {"pool": draw(st.sampled_from("ab"))}
        rows.append(pod_set(f"w{index}", spec, count=draw(st.integers(1, 6)), metadata={}))
    return rows


def placed(nodes: list[NodeRoom], wanted: list[PodSet], random: Random) -> dict[str, int]:
    """Place pods in a random order, each on a random node that takes it."""
    free = {node.place.name: dict(node.free) for node in nodes}
    queue = [pods for pods in wanted for _ in range(pods.count)]
    random.shuffle(queue)
    counts = dict.fromkeys((pods.object for pods in wanted), 0)
    for pods in queue:
        open_nodes = [
            node.place.name
            for node in nodes
            if (not node.place.taints or pods.spec.get("tolerations"))
            and (pods.spec.get("nodeSelector") or node.place.labels).items() <= node.place.labels.items()
            and all(free[node.place.name].get(name, 0) >= value for name, value in pods.asked.items())
        ]
        if open_nodes:
            chosen = random.choice(open_nodes) if random.random() < 0.5 else open_nodes[0]
            counts[pods.object] += 1
            for name, value in pods.asked.items():
                free[chosen][name] -= value
    return counts


@given(node_rooms(), pod_sets(), st.integers(0, 2**32))
def test_no_order_and_no_choice_of_nodes_leaves_out_what_fits(
    nodes: list[NodeRoom], wanted: list[PodSet], seed: int
) -> None:
    random = Random(seed)
    verdicts = {row.object: row.verdict for row in fits(wanted, nodes)}
    for _ in range(8):
        counts = placed(nodes, wanted, random)
        for pods in wanted:
            if verdicts[pods.object] == "fits now":
                assert counts[pods.object] == pods.count
            if verdicts[pods.object] == "never":
                assert counts[pods.object] == 0
            if verdicts[pods.object] == "does not fit now":
                assert counts[pods.object] < pods.count


@given(node_rooms(), pod_sets())
def test_of_pods_that_are_alike_it_is_always_certain(nodes: list[NodeRoom], wanted: list[PodSet]) -> None:
    (row,) = fits(wanted[:1], nodes)
    assert row.verdict in ("fits now", "does not fit now", "never")
