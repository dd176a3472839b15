"""What the check of capacity says, against what the real scheduler then does with the pods."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mlstack.deploy.changes import ApplyOptions
from mlstack.errors import ClusterError
from mlstack.kube.api_server import connect
from mlstack.operations import deploy
from tests.controlplane.recipes import Programs
from tests.support.cluster import ClusterSpec, TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.deploying import Stack
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

SPEC = ClusterSpec(context="minikube", nodes=[], storage_class="standard", binding_mode="Immediate")
CASES = int(os.environ.get("CAPACITY_CASES", "12"))  # more by hand: the claim is about random clusters


@pytest.fixture(scope="module")
def cluster(isolated_programs: Programs) -> Iterator[TestCluster]:
    """A cluster of this module alone, without nodes."""
    plane = ControlPlane.start(isolated_programs, (SPEC,))
    yield plane.clusters["minikube"]
    plane.stop()


@pytest.fixture
def stack(tmp_path: Path, cluster: TestCluster) -> Iterator[Stack]:
    """An app that deploys into a namespace of its own; what the test made in the cluster goes with it."""
    namespace = f"room-{tmp_path.name.replace('_', '-').lower()[-40:]}".rstrip("-")
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    cluster.wait_for_service_account(namespace)
    yield Stack(
        tmp_path / "app",
        namespace=namespace,
        opener=lambda context: connect(context, kubeconfig=str(cluster.kubeconfig)),
    )
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}")
    pods = f"/api/v1/namespaces/{namespace}/pods"  # what else is there takes no room from the next test
    wait_until(lambda: not cluster.request("GET", pods)["items"], what="the end of its pods")
    for node in cluster.request("GET", "/api/v1/nodes")["items"]:
        cluster.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


def add_node(cluster: TestCluster, name: str, taints: Any = (), labels: Any = None, **room: str) -> None:
    resources = {"pods": "20", **{key.replace("gpu", "nvidia.com/gpu"): value for key, value in room.items()}}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {"capacity": resources, "allocatable": resources},
    }
    cluster.request("POST", "/api/v1/nodes", node)
    path = f"/api/v1/nodes/{name}"
    wait_until(lambda: takes_pods(cluster.request("GET", path)), what=f"a ready node {name}")


def takes_pods(node: Any) -> bool:
    keys = [taint["key"] for taint in node["spec"].get("taints", ())]
    ready = {"type": "Ready", "status": "True"}.items()
    is_ready = any(ready <= row.items() for row in node["status"].get("conditions", ()))
    return is_ready and not any(key.startswith("node.kubernetes.io/") for key in keys)


def workload(
    name: str, replicas: int, requests: Any, kind: str = "Deployment", **spec: Any
) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "none",
        "resources": {
            "requests": requests,
            "limits": {key: value for key, value in requests.items() if "/" in key},
        },
        **spec.pop("container", {}),
    }
    pod = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    body: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    if kind == "Job":
        pod["restartPolicy"] = "Never"
        body = {"parallelism": replicas, "completions": replicas, "template": template}
    if kind == "StatefulSet":
        body |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    if kind == "DaemonSet":
        del body["replicas"]
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}


def check(stack: Stack) -> dict[str, Any]:
    how = ApplyOptions(dry_run=True, check_capacity=True)
    result = deploy.plan(stack.target(), opener=stack.opener, clock=stack.clock, options=how)
    return {row.object.rpartition("/")[2]: row for row in result.capacity}


def pods_of(cluster: TestCluster, stack: Stack, name: str) -> list[Any]:
    path = f"/api/v1/namespaces/{stack.namespace}/pods?labelSelector=app%3D{name}"
    pods = cluster.request("GET", path)["items"]
    return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def is_placed(pod: Any) -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_tried(pod: Any) -> bool:
    rows = pod["status"].get("conditions", ())
    return is_placed(pod) or any(row["type"] == "PodScheduled" and row["status"] == "False" for row in rows)


def settle(cluster: TestCluster, stack: Stack, counts: dict[str, int | None]) -> dict[str, list[bool]]:
    """Wait until the scheduler has tried every pod; give of each workload which of its pods have a node.

    Pods that a quota refuses are none that have a node. Without a count it is a DaemonSet's.
    """

    def rows_of(name: str, count: int | None) -> list[bool] | None:
        if count is None:
            path = f"/apis/apps/v1/namespaces/{stack.namespace}/daemonsets/{name}"
            status = cluster.request("GET", path)["status"]
            if not status.get("observedGeneration"):
                return None
            count = int(status["desiredNumberScheduled"])
        pods = pods_of(cluster, stack, name)
        if not all(map(is_tried, pods)):
            return None
        missing = count - len(pods)
        if missing and not is_refused(cluster, stack, name):
            return None
        return [is_placed(pod) for pod in pods] + [False] * missing

    def tried() -> dict[str, list[bool]] | None:
        rows = {name: row for name, count in counts.items() if (row := rows_of(name, count)) is not None}
        return rows if rows.keys() == counts.keys() else None

    return wait_until(tried, what=f"pods that were tried: {counts}", timeout_s=60, interval_s=0.2)


def is_refused(cluster: TestCluster, stack: Stack, name: str) -> bool:
    events = cluster.request("GET", f"/api/v1/namespaces/{stack.namespace}/events")["items"]
    return any(
        row["reason"] == "FailedCreate" and row["involvedObject"]["name"].startswith(name) for row in events
    )


# --- random clusters ---


def random_node(cluster: TestCluster, random: Random, name: str) -> None:
    taints, labels = [], {"pool": random.choice(["a", "b"]), "zone": random.choice(["x", "y"])}
    room = {"cpu": str(random.choice([2, 4, 8])), "memory": f"{random.choice([4, 8, 16])}Gi"}
    if random.random() < 0.4:
        room["gpu"] = str(random.choice([1, 2, 4]))
    if random.random() < 0.4:
        taints.append({"key": "gpu" if "gpu" in room else "team", "value": "x", "effect": "NoSchedule"})
    if random.random() < 0.2:
        room["pods"] = str(random.randint(2, 4))
    add_node(cluster, name, taints, labels, **room)


def random_requests(random: Random) -> dict[str, str]:
    asked = {"cpu": random.choice(["250m", "500m", "1", "1500m", "3"])}
    asked["memory"] = random.choice(["256Mi", "1Gi", "3Gi"])
    if random.random() < 0.2:
        asked["nvidia.com/gpu"] = str(random.choice([1, 1, 2]))
    return asked


def random_workload(random: Random, name: str) -> tuple[dict[str, Any], int | None]:
    spec: dict[str, Any] = {}
    if random.random() < 0.5:
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    if random.random() < 0.25:
        spec["nodeSelector"] = {"pool": random.choice(["a", "b"])}
    if random.random() < 0.3:
        first = {"name": "first", "image": "none", "resources": {"requests": random_requests(random)}}
        first["resources"]["requests"].pop("nvidia.com/gpu", None)
        spec["initContainers"] = [first | ({"restartPolicy": "Always"} if random.random() < 0.5 else {})]
    if random.random() < 0.2:
        spec["container"] = {"ports": [{"containerPort": 80, "hostPort": random.choice([8080, 9090])}]}
    if random.random() < 0.2:
        spec["runtimeClassName"] = "sandbox"
    selector = {"matchLabels": {"app": name}}
    where = {"topologyKey": random.choice(["kubernetes.io/hostname", "kubernetes.io/hostname", "zone"])}
    if random.random() < 0.3:
        about = random.choice(
            [selector, selector, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}]
        )
        term = {**where, "labelSelector": about}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": required}
    elif random.random() < 0.4:
        rule = {**where, "maxSkew": random.randint(1, 2), "labelSelector": selector}
        spec["topologySpreadConstraints"] = [{**rule, "whenUnsatisfiable": "DoNotSchedule"}]
    kind = random.choice(["Deployment", "Deployment", "StatefulSet", "Job", "DaemonSet"])
    replicas = random.randint(1, 5)
    body = workload(name, replicas, random_requests(random), kind, **spec)
    return body, None if kind == "DaemonSet" else replicas


def random_limits(cluster: TestCluster, stack: Stack, random: Random) -> None:
    """Give the namespace a quota, a LimitRange, both or none."""
    bodies: dict[str, Any] = {}
    if random.random() < 0.3:
        hard = {"requests.cpu": str(random.randint(2, 20)), "pods": str(random.randint(3, 15))}
        bodies["resourcequotas"] = {"hard": hard}
    if random.random() < 0.3:
        default = {"type": "Container", "defaultRequest": {"ephemeral-storage": "1Gi"}}
        most = {"type": "Container", "max": {"nvidia.com/gpu": "1"}}
        bodies["limitranges"] = {"limits": random.choice([[default], [most]])}
    for plural, spec in bodies.items():
        path = f"/api/v1/namespaces/{stack.namespace}/{plural}"
        cluster.request("POST", path, {"metadata": {"name": "team"}, "spec": spec})
    if "resourcequotas" in bodies:
        path = f"/api/v1/namespaces/{stack.namespace}/resourcequotas/team"
        wait_until(lambda: "used" in cluster.request("GET", path).get("status", {}), what="a quota in use")


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """How often each verdict met which outcome, printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    sys.stdout.write("\n" + "".join(f"{count:5} {what}\n" for what, count in sorted(counts.items())))


@pytest.fixture(scope="module")
def sandbox(cluster: TestCluster) -> None:
    """A runtime class whose pods take more than they say."""
    overhead = {"podFixed": {"cpu": "500m", "memory": "512Mi"}}
    body = {"metadata": {"name": "sandbox"}, "handler": "runc", "overhead": overhead}
    cluster.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)


@pytest.mark.parametrize("seed", range(CASES))
def test_what_fits_is_placed_and_what_never_fits_is_not(
    cluster: TestCluster, stack: Stack, sandbox: None, tally: Counter[str], seed: int
) -> None:
    random = Random(500 + seed)
    for index in range(random.randint(2, 5)):
        random_node(cluster, random, f"n{index}")
    counts: dict[str, int | None] = {}
    running = [random_workload(random, f"old{index}") for index in range(random.randint(0, 2))]
    if running:
        stack.write("running", *(body for body, _ in running))
        stack.apply()
        counts = {body["metadata"]["name"]: count for body, count in running}
        settle(cluster, stack, counts)
    random_limits(cluster, stack, random)
    wanted = [random_workload(random, f"new{index}") for index in range(random.randint(1, 3))]
    stack.write("wanted", *(body for body, _ in wanted))
    verdicts = check(stack)
    stack.apply()
    new = {body["metadata"]["name"]: count for body, count in wanted}
    outcome = settle(cluster, stack, counts | new)
    for name in new:
        verdict, placed = verdicts[name].verdict, outcome[name]
        ended = "placed" if all(placed) else "in part" if any(placed) else "waiting"
        tally[f"{verdict}: {ended}"] += 1
        if verdict == "fits now":
            assert all(placed), (verdicts[name], outcome)
        if verdict == "never":
            assert not any(placed), (verdicts[name], outcome)
        if verdict in ("does not fit now", "blocked by quota"):
            assert not all(placed), (verdicts[name], outcome)


@pytest.mark.parametrize("seed", range(CASES // 2))
def test_updates_that_fit_go_through(
    cluster: TestCluster, stack: Stack, tally: Counter[str], seed: int
) -> None:
    random = Random(1000 + seed)
    for index in range(random.randint(1, 3)):
        add_node(cluster, f"n{index}", cpu=str(random.choice([4, 6])), memory="8Gi")
    count = random.randint(2, 6)
    strategy = random.choice(
        [{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, {}]
    )

    def web(cpu: str) -> dict[str, Any]:
        body = workload("web", count, {"cpu": cpu})
        return body | {"spec": body["spec"] | {"strategy": strategy}}

    stack.write("web", web("1"))
    stack.apply()
    settle(cluster, stack, {"web": count})
    stack.write("web", web(random.choice(["900m", "1100m", "2"])))
    verdict = check(stack)["web"].verdict
    stack.apply()
    path = f"/apis/apps/v1/namespaces/{stack.namespace}/deployments/web"

    def is_through() -> bool:
        live = cluster.request("GET", path)
        status = live["status"]
        if status.get("observedGeneration") != live["metadata"]["generation"]:
            return False
        names = ("updatedReplicas", "readyReplicas", "replicas")
        return {status.get(name) for name in names} == {count}

    def is_stuck() -> bool:
        pods = pods_of(cluster, stack, "web")
        return any(is_tried(pod) and not is_placed(pod) for pod in pods)

    if verdict == "fits now":
        wait_until(is_through, what=f"an update that fits ({count} pods, {strategy})", timeout_s=60)
    else:
        wait_until(lambda: is_through() or is_stuck(), what="an end of the update", timeout_s=60)
    tally[f"update {verdict}: {'through' if is_through() else 'stuck'}"] += 1


# --- apply ---


def test_a_quota_blocks_before_anything_is_written(cluster: TestCluster, stack: Stack) -> None:
    add_node(cluster, "big", cpu="32", memory="64Gi")
    path = f"/api/v1/namespaces/{stack.namespace}/resourcequotas"
    cluster.request("POST", path, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "3"}}})
    cluster.wait_for(f"{path}/q", lambda quota: "used" in quota.get("status", {}))
    stack.write("web", workload("web", 4, {"cpu": "1"}))
    row = check(stack)["web"]
    assert row.verdict == "blocked by quota"
    assert row.reason == "exceeded quota: q, for all its pods: requests.cpu: 4 more, 0 of 3 used"
    with pytest.raises(ClusterError, match="nothing was written"):
        stack.apply(check_capacity=True)
    assert cluster.find(f"/apis/apps/v1/namespaces/{stack.namespace}/deployments/web") is None


def test_pods_of_a_priority_below_all_others_may_make_room(cluster: TestCluster, stack: Stack) -> None:
    classes, pods = "/apis/scheduling.k8s.io/v1/priorityclasses", f"/api/v1/namespaces/{stack.namespace}/pods"
    add_node(cluster, "n", cpu="4", memory="16Gi")
    cluster.request("POST", classes, {"metadata": {"name": "trainer"}, "value": -10})
    try:
        pod = workload("t", 1, {"cpu": "3"}, priorityClassName="trainer")["spec"]["template"]["spec"]
        cluster.request("POST", pods, {"metadata": {"name": "t"}, "spec": pod})
        cluster.wait_for(f"{pods}/t", lambda pod: pod["status"].get("phase") == "Running")
        stack.write("web", workload("web", 1, {"cpu": "3"}))
        row = check(stack)["web"]
        assert row.verdict == "not known" and row.reason.endswith("its priority may displace other pods")
        stack.apply(check_capacity=True)  # waits until it runs
    finally:
        cluster.request("DELETE", f"{classes}/trainer")


def test_an_autoscaler_is_believed_where_it_says_so(cluster: TestCluster, stack: Stack) -> None:
    add_node(cluster, "pool-1-abcd", cpu="4", memory="16Gi")
    stack.write("web", workload("web", 3, {"cpu": "3"}))
    assert check(stack)["web"].verdict == "does not fit now"
    group = {
        "name": "https://x/instanceGroups/pool-1-grp",
        "health": {"cloudProviderTarget": 1, "maxSize": 3},
    }
    body = {
        "metadata": {"name": "cluster-autoscaler-status"},
        "data": {"status": json.dumps({"nodeGroups": [group]})},
    }
    path = "/api/v1/namespaces/kube-system/configmaps"
    cluster.request("POST", path, body)
    try:
        row = check(stack)["web"]
        assert row.verdict == "fits after autoscaling" and "2 nodes to pool-1" in row.reason
        stack.write("web", workload("web", 4, {"cpu": "3"}))
        assert check(stack)["web"].verdict == "does not fit now"
    finally:
        cluster.request("DELETE", f"{path}/cluster-autoscaler-status")


def test_without_rights_it_says_what_it_could_not_read(cluster: TestCluster, stack: Stack) -> None:
    add_node(cluster, "n", cpu="4", memory="16Gi")
    cluster.bind(cluster.viewer, "edit")
    file = cluster.write_kubeconfig(stack.root.parent / "viewer", cluster.viewer)
    stack.opener = lambda context: connect(context, kubeconfig=str(file))
    stack.write("web", workload("web", 1, {"cpu": "1"}))
    row = check(stack)["web"]
    assert (row.verdict, "no right to list nodes" in row.reason) == ("not known", True)
