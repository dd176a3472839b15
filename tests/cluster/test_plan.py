"""A plan file on real API servers: what it holds is done exactly, or refused with what moved."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import ApplyOptions, RunResult
from mlstack.errors import ConflictError, MlstackError, WrongClusterError
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
    found = deploy.plan_approved(file, target, opener=stack.opener, options=ApplyOptions(wait=False))
    return deploy.apply(found, clock=stack.clock)


def edit(cluster: TestCluster, namespace: str, value: str) -> None:
    patch = json.dumps({"data": {"a": value}})
    cluster.kubectl("patch", "configmap", "settings", "-n", namespace, "-p", patch)


def test_a_plan_is_applied_as_it_was_approved(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path, settings: str
) -> None:
    stack.write("web", config_map(a="1"), config_map("old"), secret(password="hush"), deployment())
    stack.apply(wait=True)
    stack.write("web", config_map(a="2"), config_map("new"), secret(password="loud"), deployment(replicas=2))
    found = planned(stack, file)
    assert {row.name: row.action for row in found.objects} == {
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


def test_nobody_else_may_read_the_file_and_no_secret_is_in_it(stack: Stack, file: Path) -> None:
    stack.write("web", secret(password="hush-hush-hush"))
    planned(stack, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert not any(word in text for word in ("hush", "aHVzaC1odXNo"))


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
    minikube.wait_for(where, lambda found: found["status"].get("readyReplicas") == 1)
    minikube.kubectl("label", "deployment/web", "-n", namespace, "team=red")
    minikube.kubectl("annotate", "deployment/web", "-n", namespace, "note=mine")
    assert minikube.request("GET", where)["metadata"]["resourceVersion"] != before
    assert outcomes(applied(stack, file)) == {"web": "updated"}
    assert minikube.request("GET", where)["metadata"]["labels"]["team"] == "red"


def test_an_object_deleted_and_made_anew_is_refused(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path
) -> None:
    stack.deploy("web", config_map(a="1"))
    stack.write("web", config_map(a="2"))
    planned(stack, file)
    minikube.kubectl("delete", "configmap", "settings", "-n", namespace)
    with pytest.raises(ConflictError, match="is gone and would be created, not updated"):
        applied(stack, file)
    minikube.kubectl("create", "configmap", "settings", "-n", namespace, "--from-literal=a=1")
    with pytest.raises(ConflictError, match="was deleted and made anew by somebody else"):
        applied(stack, file)


def test_another_cluster_is_refused(stack: Stack, gke: TestCluster, settings: str, file: Path) -> None:
    stack.write("web", config_map(a="1"))
    planned(stack, file)
    with pytest.raises(WrongClusterError, match="the plan is for another cluster"):
        applied(stack, file, context="gke")
    assert gke.find(settings) is None


def test_an_apply_that_was_cut_off_is_taken_up_again(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path
) -> None:
    maps = [config_map(f"map-{number}", a="1") for number in range(10)]
    stack.deploy("web", *maps)
    stack.write("web", *({**each, "data": {"a": "2"}} for each in maps))
    planned(stack, file)
    stack.apply(components=["web"])  # another run did the same meanwhile
    assert set(outcomes(applied(stack, file)).values()) == {"unchanged"}


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


def test_an_object_that_appears_in_between_is_not_taken(
    stack: Stack, minikube: TestCluster, namespace: str, file: Path, settings: str
) -> None:
    stack.write("web", config_map(a="1"))
    planned(stack, file)
    minikube.kubectl("create", "configmap", "settings", "-n", namespace, "--from-literal=a=theirs")
    with pytest.raises(MlstackError):
        applied(stack, file)
    assert minikube.request("GET", settings)["data"] == {"a": "theirs"}


def test_two_plans_of_one_moment_allow_the_same(stack: Stack, file: Path, tmp_path: Path) -> None:
    stack.deploy("web", config_map(a="1"))
    stack.write("web", config_map(a="2"))
    first, again = planned(stack, file), planned(stack, tmp_path / "again.json")
    assert first.objects == again.objects
    assert file.read_text() != (tmp_path / "again.json").read_text()  # another salt
    assert outcomes(applied(stack, tmp_path / "again.json")) == {"settings": "updated"}
    assert outcomes(applied(stack, file)) == {"settings": "unchanged"}
