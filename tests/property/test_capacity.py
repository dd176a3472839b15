"""Laws of the check of capacity, against a scheduler that takes any order and any node with room."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.objects.resources import NodePlace
from mlstack.readiness.capacity import fits
from mlstack.readiness.placement import HOST, NodeRoom, PodSet, pod_set

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


@st.composite
def node_rooms(draw: st.DrawFn) -> list[NodeRoom]:
    rooms = []
    for index in range(draw(st.integers(1, 4))):
        allocatable = {name: 1000 * draw(st.integers(0, 6)) for name in ("cpu",)}
        allocatable |= {name: draw(st.integers(0, 6)) for name in RESOURCES[1:]} | {"pods": 20}
        free = {name: value - draw(st.integers(0, value)) // 2 for name, value in allocatable.items()}
        taints = draw(st.sampled_from([(), ({"key": "gpu", "effect": "NoSchedule"},)]))
        labels = {"pool": draw(st.sampled_from("ab")), "zone": draw(st.sampled_from("xy")), HOST: f"n{index}"}
        place = NodePlace(f"n{index}", labels, taints)
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
        labels = {"app": f"w{index}", "side": draw(st.sampled_from("lr"))}
        selector = {"matchLabels": {"app": labels["app"]}}
        key = draw(st.sampled_from([HOST, "zone"]))
        if draw(st.integers(0, 3)) == 0:
            rule = {"topologyKey": key, "maxSkew": draw(st.integers(1, 2)), "labelSelector": selector}
            spec["topologySpreadConstraints"] = [rule]
        if draw(st.integers(0, 3)) == 0:
            if draw(st.booleans()):
                selector = {"matchLabels": {"side": draw(st.sampled_from("lr"))}}
            term = {"topologyKey": key, "labelSelector": selector}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {"podAntiAffinity": required}
        rows.append(pod_set(f"w{index}", spec, count=draw(st.integers(1, 6)), metadata={"labels": labels}))
    return rows


def lets(nodes: list[NodeRoom], there: list[tuple[PodSet, NodeRoom]], pods: PodSet, node: NodeRoom) -> bool:
    """Tell whether those that are placed let a pod onto a node, as kube-scheduler's plug-ins do."""

    def terms(holder: PodSet) -> Any:
        affinity = holder.spec.get("affinity", {}).get("podAntiAffinity", {})
        return affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ())

    for other, place in there:
        for holder, about in ((pods, other), (other, pods)):
            for term in terms(holder):
                is_about = term["labelSelector"]["matchLabels"].items() <= about.labels.items()
                key = term["topologyKey"]
                if is_about and place.place.labels[key] == node.place.labels[key]:
                    return False
    for rule in pods.spec.get("topologySpreadConstraints", ()):
        key = rule["topologyKey"]
        selector = pods.spec.get("nodeSelector", {})
        counts = {row.place.labels[key]: 0 for row in nodes if selector.items() <= row.place.labels.items()}
        for other, place in there:
            if other.object == pods.object:
                counts[place.place.labels[key]] += 1
        if counts[node.place.labels[key]] + 1 - min(counts.values()) > rule["maxSkew"]:
            return False
    return True


def placed(nodes: list[NodeRoom], wanted: list[PodSet], random: Random) -> dict[str, int]:
    """Place pods in a random order, each on a random node that takes it; those left over are tried again."""
    free = {node.place.name: dict(node.free) for node in nodes}
    queue = [pods for pods in wanted for _ in range(pods.count)]
    random.shuffle(queue)
    counts = dict.fromkeys((pods.object for pods in wanted), 0)
    there: list[tuple[PodSet, NodeRoom]] = []
    for pods in queue * 3:
        if counts[pods.object] == pods.count:
            continue
        open_nodes = [
            node
            for node in nodes
            if (not node.place.taints or pods.spec.get("tolerations"))
            and (pods.spec.get("nodeSelector") or node.place.labels).items() <= node.place.labels.items()
            and all(free[node.place.name].get(name, 0) >= value for name, value in pods.asked.items())
            and lets(nodes, there, pods, node)
        ]
        if open_nodes:
            chosen = random.choice(open_nodes) if random.random() < 0.5 else open_nodes[0]
            counts[pods.object] += 1
            there.append((pods, chosen))
            for name, value in pods.asked.items():
                free[chosen.place.name][name] -= value
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
    spec = {**wanted[0].spec, "topologySpreadConstraints": (), "affinity": {}}
    plain = pod_set("w", spec, count=wanted[0].count, metadata={})
    (row,) = fits([plain], nodes)
    assert row.verdict in ("fits now", "does not fit now", "never")
