"""The inventory on real API servers: kubectl's own tooling, prune, kill -9 at any moment, large sets."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mlstack.deploy import inventory
from mlstack.deploy.inventory import ID_LABEL, Inventory, Member
from mlstack.deploy.prune import KeepOptions
from mlstack.objects.kube_object import Identity
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, config_map, crd, deployment, outcomes, secret
from tests.support.shell import Shell

pytestmark = pytest.mark.cluster

NAME = "mlstack-demo.minikube"
KILLS = int(os.environ.get("KILLS", "5"))
"""How many runs are killed; `KILLS=50 pytest -m cluster tests/cluster/test_inventory.py` takes minutes."""


def path(namespace: str, name: str = "", kind: str = "configmaps") -> str:
    group = {"deployments": "apis/apps/v1", "leases": "apis/coordination.k8s.io/v1"}.get(kind, "api/v1")
    return f"/{group}/namespaces/{namespace}/{kind}/{name}".rstrip("/")


def recorded(stack: Stack, namespace: str) -> Mapping[Identity, Member]:
    cluster = stack.opener("minikube")
    empty = Inventory(app="demo", environment="minikube", namespace=namespace)
    return inventory.load_inventory(cluster, empty).members


# --- kubectl --------------------------------------------------------------------------------------


def kubectl_applyset(
    cluster: TestCluster, namespace: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    monkeypatch.setenv("KUBECTL_APPLYSET", "true")
    words = ("apply", "-n", namespace, "--prune", f"--applyset=configmap/{NAME}", "-f", "-")
    done = cluster.kubectl(*words, input=text, check=False)
    return done.returncode, done.stdout + done.stderr


PLAIN = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}}'


def test_kubectl_leaves_our_set_to_us(
    stack: Stack, minikube: TestCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.deploy("a", config_map("one"), config_map("two"), secret("three", a="b"))
    status, output = kubectl_applyset(minikube, namespace, PLAIN, monkeypatch)
    assert status != 0
    assert 'is managed by tooling "mlstack" instead of "kubectl"' in output
    assert minikube.find(path(namespace, "two"))


def test_kubectl_can_work_with_our_set(
    stack: Stack, minikube: TestCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handed over to it, kubectl finds the set valid and prunes what it does not apply."""
    stack.write("a", config_map("one"), config_map("two"), secret("three", a="b"), deployment())
    stack.apply(wait=False)
    minikube.kubectl(
        "annotate", "configmap", NAME, "-n", namespace, "--overwrite", f"{inventory.TOOLING}=kubectl/v1.32.0"
    )
    status, output = kubectl_applyset(minikube, namespace, PLAIN, monkeypatch)
    assert status == 0, output
    assert sorted(line for line in output.splitlines() if line.endswith(" pruned")) == [
        "configmap/two pruned",
        "deployment.apps/web pruned",
        "secret/three pruned",
    ]
    with pytest.raises(Exception, match="instead of `mlstack`"):
        stack.apply()


def test_the_parent_is_as_the_convention_says(
    stack: Stack, minikube: TestCluster, namespace: str, gke: TestCluster
) -> None:
    elsewhere = config_map("far")
    elsewhere["metadata"]["namespace"] = "default"
    group = f"{namespace}.example.com"
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": 1}}
    stack.deploy("a", config_map(), elsewhere, crd(group=group), widget)
    parent = minikube.request("GET", path(namespace, NAME))["metadata"]
    set_id = inventory.set_id(NAME, namespace)
    assert parent["labels"][ID_LABEL] == set_id
    assert parent["annotations"][inventory.NAMESPACES] == "default"
    assert parent["annotations"][inventory.GROUP_KINDS] == (
        f"ConfigMap,CustomResourceDefinition.apiextensions.k8s.io,Widget.{group}"
    )
    members = minikube.request("GET", f"/api/v1/configmaps?labelSelector={inventory.MEMBER_LABEL}={set_id}")
    assert [item["metadata"]["name"] for item in members["items"]] == ["far", "settings"]
    assert {entry["manager"] for entry in parent["managedFields"]} == {inventory.APPLYSET_MANAGER}
    stack.delete(spare=KeepOptions(definitions=False))
    assert minikube.find(path(namespace, NAME)) is None
    assert minikube.find(path("default", "far")) is None


# --- prune ----------------------------------------------------------------------------------------


def test_three_of_three_hundred_go_and_nothing_else(
    stack: Stack, minikube: TestCluster, namespace: str, tmp_path: Path
) -> None:
    minikube.request(
        "POST", path(namespace), {"metadata": {"name": "unlabelled"}, "data": {"nobody": "knows"}}
    )
    other = Stack(tmp_path / "other", namespace=namespace, opener=stack.opener, name="other")
    other.deploy("a", *(config_map(f"theirs-{number}") for number in range(5)))
    everything = [config_map(f"c{number:03}", n=str(number)) for number in range(300)]
    stack.deploy("a", *everything)
    before = versions(minikube, namespace)
    stack.write("a", *(obj for obj in everything if obj["metadata"]["name"] not in ("c007", "c150", "c299")))
    result = stack.apply()
    assert result.counts == {"deleted": 3, "unchanged": 297}
    for name in ("c007", "c150", "c299"):  # the run did not wait for its deletions
        minikube.wait_until_gone(path(namespace, name))
    after = versions(minikube, namespace)
    assert set(before) - set(after) == {"c007", "c150", "c299"}
    ours = {NAME, *(set(before) - set(after))}
    assert {name: version for name, version in before.items() if name not in ours} == {
        name: version for name, version in after.items() if name not in ours
    }
    assert len(recorded(stack, namespace)) == 297
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
    assert versions(minikube, namespace) == after


def versions(cluster: TestCluster, namespace: str) -> dict[str, str]:
    """Give the resourceVersion of every ConfigMap in a namespace."""
    items = cluster.request("GET", path(namespace))["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


def test_labels_that_controllers_copied_make_no_member(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    """The endpoints controller copies a Service's labels, ours included, to its Endpoints."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    stack.deploy("a", service, deployment())
    endpoints = minikube.wait_for(path(namespace, "web", "endpoints"), lambda live: bool(live))
    assert inventory.MEMBER_LABEL in endpoints["metadata"]["labels"]
    minikube.request("DELETE", path(namespace, NAME))
    stack.apply()
    assert {(key.kind, key.name) for key in recorded(stack, namespace)} == {
        ("Service", "web"),
        ("Deployment", "web"),
    }
    assert sorted(row.kind for row in stack.delete().objects) == ["Deployment", "Service"]


# --- size -----------------------------------------------------------------------------------------


def test_six_thousand_members_are_kept_in_parts(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    cluster = stack.opener("minikube")
    empty = Inventory(app="demo", environment="minikube", namespace=namespace)
    many = [
        Member(
            identity=Identity("apps", "Deployment", f"team-{number % 20}", f"training-service-{number:05}"),
            api_version="apps/v1",
            component=f"component-{number % 40}",
            uid=f"0f1e2d3c-4b5a-4978-8695-a4b3c2d1{number:04x}",
            payload_hash=f"{number:016x}",
            owned_hash=f"{number:016x}",
        )
        for number in range(6_000)
    ]
    stored = inventory.write(cluster, empty, empty.with_members(many))
    assert len(stored.parts) == 2
    loaded = inventory.load_inventory(cluster, empty)
    assert loaded.members == stored.members
    fewer = inventory.write(cluster, loaded, loaded.without(list(loaded.members)[:3_000]))
    assert fewer.parts == ()
    assert set(versions(minikube, namespace)) == {NAME, "kube-root-ca.crt"}


# --- kill -9 --------------------------------------------------------------------------------------


def states(namespace: str) -> tuple[dict[str, list[Mapping[str, Any]]], dict[str, list[Mapping[str, Any]]]]:
    """Give two states of an app, which go over into each other by all that can happen to an object."""
    group = f"{namespace}.example.com"
    widgets = [
        {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": f"w{number}"}, "spec": {"a": 1}}
        for number in range(3)
    ]
    first: dict[str, list[Mapping[str, Any]]] = {
        "web": [deployment(image="nginx:1"), *(config_map(f"c{n}", value="1") for n in range(8))],
        "more": [*(config_map(f"m{n}", value="1") for n in range(4)), secret(value="1")],
    }
    second: dict[str, list[Mapping[str, Any]]] = {
        "web": [
            deployment(image="nginx:2"),
            *(config_map(f"c{n}", value="2") for n in range(5)),
            config_map("m0", value="1"),
        ],
        "more": [*(config_map(f"m{n}", value="2") for n in range(1, 3)), secret(value="2")],
        "new": [crd(group=group), *widgets, *(config_map(f"n{n}") for n in range(4))],
    }
    return first, second


def write(stack: Stack, state: Mapping[str, list[Mapping[str, Any]]]) -> None:
    for component in ("web", "more", "new"):
        if component in state:
            stack.write(component, *state[component])
        elif (stack.root / f"components/{component}.yaml").exists():
            stack.remove(component)


def picture(stack: Stack, cluster: TestCluster, namespace: str) -> dict[str, Any]:
    """Give all that must not depend on how often a run was killed: objects, inventory, no lock left."""
    group = f"{namespace}.example.com"
    lists = [path(namespace, kind=kind) for kind in ("configmaps", "secrets", "deployments")]
    if cluster.find(f"/apis/{group}/v1"):
        lists.append(f"/apis/{group}/v1/namespaces/{namespace}/widgets")
    facts: dict[str, Any] = {}
    for place in lists:
        for item in cluster.request("GET", f"{place}?labelSelector=mlstack.dev/component")["items"]:
            metadata = item["metadata"]
            key = f"{place.rpartition('/')[2]}/{metadata['name']}"
            facts[key] = (metadata["labels"], item.get("data"), item.get("spec"))
    members = recorded(stack, namespace)
    facts["inventory"] = sorted(
        (str(key), member.component, member.payload_hash, member.owned_hash, bool(member.uid))
        for key, member in members.items()
    )
    facts["locks"] = cluster.request("GET", path(namespace, kind="leases"))["items"]
    return facts


def wait_for_a_moment(name: str, *, within_s: float) -> None:
    """Let a run get somewhere: how far is what is tested, and differs from name to name."""
    time.sleep(Random(name).uniform(0.2, 1.0) * within_s)


def test_whenever_a_run_is_killed_the_next_one_makes_it_good(
    stack: Stack, minikube: TestCluster, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    shell = Shell(root=stack.root, kubeconfig=kubeconfig)
    minikube.request("POST", path(namespace), {"metadata": {"name": "unlabelled"}, "data": {"a": "1"}})
    other = Stack(tmp_path / "other", namespace=namespace, opener=stack.opener, name="other")
    other.deploy("a", config_map("theirs"), secret("their-keys", a="b"))
    foreign = ("unlabelled", "theirs", "mlstack-other.minikube")
    bystanders = {name: minikube.request("GET", path(namespace, name)) for name in foreign}
    expected: list[dict[str, Any]] = []
    lasted: list[float] = []
    both = states(namespace)
    for number in range(4):  # twice there and back: the definition stays once it is there
        write(stack, both[number % 2])
        begun = time.monotonic()
        status, ran = shell.run("apply", "minikube", "--yes")
        assert status == 0, ran.err
        lasted.append(time.monotonic() - begun)
        expected.append(picture(stack, minikube, namespace))
    for number in range(KILLS):
        write(stack, both[number % 2])
        killed = shell.start("apply", "minikube", "--yes")
        wait_for_a_moment(f"{number}", within_s=lasted[2 + number % 2])
        killed.kill()
        status, ran = shell.run("apply", "minikube", "--yes")
        assert status == 0, f"after kill {number}: {ran.out}{ran.err}"
        state = picture(stack, minikube, namespace)
        assert state == expected[2 + number % 2], f"after kill {number}: {killed.out}{killed.err}"
    assert {name: minikube.request("GET", path(namespace, name)) for name in foreign} == bystanders
    status, ran = shell.run("delete", "minikube", "--yes", "--crds")
    assert status == 0, ran.err
    assert {name: minikube.request("GET", path(namespace, name)) for name in foreign} == bystanders
    marked = "?labelSelector=mlstack.dev/app=demo"
    for kind in ("configmaps", "secrets", "leases", "deployments"):
        assert minikube.request("GET", path(namespace, kind=kind) + marked)["items"] == []


def test_a_first_run_and_a_delete_may_be_killed_too(
    stack: Stack, minikube: TestCluster, namespace: str, kubeconfig: Path
) -> None:
    shell = Shell(root=stack.root, kubeconfig=kubeconfig)
    minikube.request("POST", path(namespace), {"metadata": {"name": "unlabelled"}, "data": {"a": "1"}})
    bystander = minikube.request("GET", path(namespace, "unlabelled"))
    write(stack, states(namespace)[0])
    words = {"apply": ("apply", "minikube"), "delete": ("delete", "minikube", "--yes")}
    lasted: dict[str, float] = {}
    expected: dict[str, Any] = {}
    for name, typed in words.items():
        begun = time.monotonic()
        status, ran = shell.run(*typed)
        assert status == 0, ran.err
        lasted[name] = time.monotonic() - begun
        expected[name] = picture(stack, minikube, namespace)
    for number in range(KILLS):
        for name, typed in words.items():
            killed = shell.start(*typed)
            wait_for_a_moment(f"{name} {number}", within_s=lasted[name])
            killed.kill()
            status, ran = shell.run(*typed)
            assert status == 0, f"after {name} {number} was killed: {ran.out}{ran.err}"
            state = picture(stack, minikube, namespace)
            assert state == expected[name], f"after {name} {number} was killed: {killed.out}{killed.err}"
    marked = "?labelSelector=mlstack.dev/app=demo"
    for kind in ("configmaps", "secrets", "leases", "deployments"):
        assert minikube.request("GET", path(namespace, kind=kind) + marked)["items"] == []
    assert minikube.request("GET", path(namespace, "unlabelled")) == bystander
