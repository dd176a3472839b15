"""Random writes by several managers end the same on the memory cluster and on a real one.

The contract suite says what must hold; this looks for what nobody thought of. A seed that fails prints its
writes: the real server is right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mlstack.errors import ClusterError, ConflictError, InvalidError
from mlstack.kube.api_server import connect
from mlstack.kube.client import Applied, Cluster, ObjectRef
from mlstack.objects import managed_fields
from mlstack.testing import server_side_apply
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas

pytestmark = pytest.mark.cluster

NOTHING_RUNS = True

Obj = dict[str, Any]

# Rules between fields that only the real server's validation knows.
UNKNOWN_RULES = ("Required value", "may not be specified", "Duplicate value", "must be unique")


def some(random: Random, values: str, most: int) -> list[str]:
    return random.sample(values, random.randint(0, most))


def container(random: Random, name: str) -> Obj:
    filled: Obj = {"name": name, "image": f"i:{random.randint(1, 2)}"}
    if random.random() < 0.6:
        filled["env"] = [
            {"name": row, "value": random.choice(["1", "2", None])} for row in some(random, "ABCD", 4)
        ]
    if random.random() < 0.3:
        filled["args"] = some(random, "ab", 2)
    if random.random() < 0.3:
        filled["ports"] = [{"containerPort": port} for port in random.sample([80, 81], random.randint(0, 2))]
    if random.random() < 0.3:
        filled["resources"] = random.choice([{}, {"limits": {"cpu": "1"}}, {"limits": {}}])
    if random.random() < 0.2:
        filled["livenessProbe"] = {"httpGet": {"path": "/", "port": 80}}
    return filled


def stateful_set(random: Random) -> Obj:
    names = random.sample(["main", "side", "extra"], random.randint(1, 2))
    template = {
        "metadata": {"labels": {"app": "x", **{name: "1" for name in some(random, "ab", 1)}}},
        "spec": {"containers": [container(random, name) for name in names]},
    }
    if random.random() < 0.3:
        template["spec"]["tolerations"] = [
            {"key": key, "operator": "Exists"} for key in some(random, "ab", 2)
        ]
    spec: Obj = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    if random.random() < 0.5:
        spec["replicas"] = random.choice([0, 0, None])
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": labels(random), "spec": spec}


def service(random: Random) -> Obj:
    ports = [
        {"name": f"p{port}{protocol.lower()}", "port": port, "protocol": protocol}
        for port in random.sample([80, 81], random.randint(1, 2))
        for protocol in random.sample(["TCP", "UDP"], random.randint(1, 2))
    ]
    spec = {"clusterIP": "None", "selector": {"a": random.choice("12")}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": labels(random), "spec": spec}


def config_map(random: Random) -> Obj:
    data = {key: random.choice("12") for key in some(random, "xyz", 3)}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels(random), "data": data}
    if random.random() < 0.3:
        manifest["metadata"]["finalizers"] = [f"x.y/{name}" for name in some(random, "abc", 3)]
    return manifest


def labels(random: Random) -> Obj:
    if random.random() < 0.5:
        return {}
    return {"labels": {name: random.choice(["1", "2", None]) for name in some(random, "ab", 2)}}


PATCHES: dict[str, list[Obj]] = {
    "ConfigMap": [
        {"data": {"x": "3"}},
        {"data": {"y": None}},
        {"data": None},
        {"metadata": {"labels": None}},
    ],
    "Service": [{"spec": {"selector": {"z": "1"}}}, {"metadata": {"annotations": {"q": "1"}}}],
    "StatefulSet": [
        {"spec": {"replicas": 0}},
        {"metadata": {"labels": {"a": "3"}}},
        {"spec": {"template": {"metadata": {"annotations": {"r": "1"}}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "i:3"}]}}}},
    ],
}


def write(random: Random, obj: Obj) -> tuple[str, Callable[[Cluster], Applied]]:
    """Choose one write and say what it is."""
    chance, manager = random.random(), random.choice(["one", "two"])
    if chance < 0.7:
        force, dry_run = random.random() < 0.6, random.random() < 0.1
        text = f"apply {manager} {force=} {dry_run=} {json.dumps(obj)}"
        return text, lambda cluster: cluster.apply(obj, manager=manager, force=force, dry_run=dry_run)
    if chance < 0.75:
        return f"create {json.dumps(obj)}", lambda cluster: cluster.create(obj, manager="creator")
    patch = random.choice(PATCHES[obj["kind"]])
    ref = ObjectRef.of(obj)
    return f"patch {manager} {patch}", lambda cluster: cluster.patch(ref, patch, manager=manager)


def outcome(act: Callable[[Cluster], Applied], cluster: Cluster) -> Any:
    try:
        applied = act(cluster)
    except ConflictError as error:
        return "conflict", sorted((conflict.manager, conflict.path) for conflict in error.conflicts)
    except InvalidError as error:
        return "invalid", str(error)
    except ClusterError as error:
        return "error", type(error).__name__
    return "ok", comparable(applied.object), applied.created


def comparable(obj: Any) -> Obj:
    """Give what must be the same: no times, no versions, no status, no work of controllers."""
    metadata = dict(obj["metadata"])
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        metadata.pop(name, None)
    entries = metadata.pop("managedFields", [])
    owned = {
        f"{entry['manager']} {entry['operation']}": leaves(entry)
        for entry in entries
        if entry["manager"] != "kube-controller-manager"
    }
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    return {**rest, "metadata": metadata, "owned": owned}


def leaves(entry: Obj) -> list[str]:
    """Give the fields of an entry; of an update without containers, which depend on the server's Go types."""
    paths = set(managed_fields.paths(entry["fieldsV1"]))
    if entry["operation"] == "Update":
        inner = {path[:length] for path in paths for length in range(len(path))}
        paths -= inner
    return sorted(server_side_apply.spell(path) for path in paths)


@pytest.mark.parametrize("seed", range(24))
def test_random_writes_end_the_same_on_both(kubeconfig: Path, namespace: str, seed: int) -> None:
    real = connect("minikube", kubeconfig=str(kubeconfig))
    memory = MemoryCluster(load_schemas("1.36"))
    memory.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    random = Random(seed)
    make = random.choice([stateful_set, stateful_set, service, config_map])
    steps: list[str] = []
    ref = None
    for _ in range(random.randint(3, 9)):
        obj = make(random)
        obj["metadata"] |= {"name": "x", "namespace": namespace}
        ref = ObjectRef.of(obj)
        text, act = write(random, obj)
        steps.append(text)
        first, second = outcome(act, real), outcome(act, memory)
        if first[0] == "invalid":
            assert second[0] == "invalid" or any(rule in first[1] for rule in UNKNOWN_RULES), "\n".join(steps)
            break
        assert second == first, "\n".join(steps)
    if ref is not None and real.get(ref) is not None:
        real.patch(ref, {"metadata": {"finalizers": None}})
        real.delete(ref, propagation="Background")
