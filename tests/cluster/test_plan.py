"""A plan file on real API servers: what it holds is done exactly, or refused with what moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import ApplyOptions, RunResult
from mlstack.errors import ConflictError
from mlstack.operations import deploy
from mlstack.operations.deploy import PlanResult
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, config_map, crd, deployment, outcomes, secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


@pytest.fixture
def settings(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/settings"


def planned(stack: Stack, file: Path, **facts: Any) -> PlanResult:
    return deploy.plan(stack.target(**facts), opener=stack.opener, clock=stack.clock, out=file)


def applied(stack: Stack, file: Path, *, environment: str = "minikube", **facts: Any) -> RunResult:
    target = stack.target(environment, **facts)
    approved = deploy.plan_approved(target, file, opener=stack.opener, options=ApplyOptions(wait=False))
    return deploy.apply(approved, clock=stack.clock)


def edit(cluster: TestCluster, namespace: str, value: str) -> None:
    patch = json.dumps({"data": {"a": value}})
    cluster.kubectl("patch", "configmap", "settings", "-n", namespace, "-p", patch)


def test_a_plan_is_applied_as_it_was_approved(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path, settings: str
) -> None:
    stack.write("web", config_map(a="1"), config_map("old"), secret(password="hush"), deployment())
    stack.apply(wait=True)
    stack.write("web", config_map(a="2"), config_map("new"), secret(password="loud"), deployment(replicas=2))
    report = planned(stack, file)
    assert {row.name: row.action for row in report.objects} == {
        "settings": "update",
        "new": "create",
        "keys": "update",
        "web": "update",
        "old": "delete",
    }
    assert minikube.request("GET", settings)["data"] == {"a": "1"}
    assert outcomes(applied(stack, file)) == {
        "settings": "updated",
        "new": "created",
        "keys": "updated",
        "web": "updated",
        "old": "deleted",
    }
    assert minikube.request("GET", settings)["data"] == {"a": "2"}
    old = f"/api/v1/namespaces/{namespace}/configmaps/old"
    wait_until(lambda: minikube.find(old) is None, what="the end of what was pruned")


def test_an_edit_in_between_is_refused_and_left_alone(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path, settings: str
) -> None:
    stack.deploy("web", config_map(a="1"), config_map("other", b="1"))
    stack.write("web", config_map(a="2"), config_map("other", b="2"))
    planned(stack, file)
    edit(minikube, namespace, "3")
    before = minikube.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    with pytest.raises(ConflictError) as caught:
        applied(stack, file)
    assert caught.value.exit_code == 6
    assert caught.value.message.splitlines() == [
        "the cluster has moved since the plan was made; nothing was done",
        f"  ConfigMap {namespace}/settings: differs in another way than when it was approved:"
        ' `data.a` is "3", was "1"',
    ]
    after = minikube.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    assert after == before
    edit(minikube, namespace, "1")
    assert outcomes(applied(stack, file)) == {"settings": "updated", "other": "updated"}


def test_what_controllers_and_others_do_to_their_own_fields_moves_nothing(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path
) -> None:
    where = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    stack.deploy("web", deployment(replicas=1))
    stack.write("web", deployment(replicas=1, env=[{"name": "A", "value": "1"}]))
    planned(stack, file)
    before = minikube.request("GET", where)["metadata"]["resourceVersion"]
    minikube.wait_for(where, lambda live: live["status"].get("readyReplicas") == 1)
    minikube.kubectl("label", "deployment/web", "-n", namespace, "team=red")
    minikube.kubectl("annotate", "deployment/web", "-n", namespace, "note=mine")
    assert minikube.request("GET", where)["metadata"]["resourceVersion"] != before
    assert outcomes(applied(stack, file)) == {"web": "updated"}
    assert minikube.request("GET", where)["metadata"]["labels"]["team"] == "red"


def test_definitions_and_their_objects_are_planned_in_one(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path
) -> None:
    group = f"{namespace}.plan.example.com"
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 1}}
    stack.write("widgets", crd(group=group), widget)
    try:
        planned(stack, file)
        assert set(outcomes(applied(stack, file)).values()) == {"created"}
        assert set(outcomes(applied(stack, file)).values()) == {"unchanged"}
    finally:
        minikube.kubectl("delete", "crd", f"widgets.{group}", "--wait=false")
