"""Deleting from a cluster in memory."""

from pathlib import Path
from typing import Any

from mlstack.cluster.api import ObjectRef
from mlstack.cluster.memory import MemoryCluster
from mlstack.engine.remains import Spare
from mlstack.model.report import RunResult
from tests.support.deploying import Stack, config_map, crd, deployment, tfjob

Clusters = dict[str, MemoryCluster]


def outcomes(result: RunResult) -> dict[str, str]:
    return {row.name: row.outcome for row in result.objects}


def test_delete_goes_in_reverse_and_keeps_the_namespace(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map(), deployment())
    stack.apply()
    result = stack.delete()
    assert [(row.kind, row.outcome) for row in result.objects] == [
        ("Deployment", "deleted"),
        ("ConfigMap", "deleted"),
    ]
    assert clusters["minikube"].get(ObjectRef("v1", "Namespace", "", "ml")) is not None
    assert stack.delete().objects == ()


def test_jobs_go_and_definitions_stay(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", tfjob(), crd("tfjobs", "TFJob", group="kubeflow.org"))
    stack.apply()
    result = stack.delete()
    assert outcomes(result) == {"cnn": "deleted", "tfjobs.kubeflow.org": "kept"}
    assert "every namespace" in result.objects[1].text


def test_definitions_go_when_asked_and_name_what_goes_along(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", crd("tfjobs", "TFJob", group="kubeflow.org"))
    stack.apply()
    foreign = tfjob("theirs")
    foreign["metadata"]["namespace"] = "default"
    clusters["minikube"].create(foreign)
    result = stack.delete(spare=Spare(definitions=False))
    assert outcomes(result) == {"tfjobs.kubeflow.org": "deleted"}
    assert result.notes == (
        "with definition `tfjobs.kubeflow.org` go 1 TFJob of all namespaces: default/theirs",
    )


def test_a_dry_run_deletes_nothing(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map())
    stack.apply()
    result = stack.delete(dry_run=True)
    assert (result.dry_run, outcomes(result)) == (True, {"settings": "deleted"})
    assert clusters["minikube"].get(ObjectRef("v1", "ConfigMap", "ml", "settings")) is not None


def test_one_component_alone(stack: Stack) -> None:
    stack.write("a", config_map("one"))
    stack.write("b", config_map("two"))
    stack.apply()
    assert outcomes(stack.delete(components=["a"])) == {"one": "deleted"}
    assert outcomes(stack.delete()) == {"two": "deleted"}


def test_what_the_files_no_longer_bring_goes_too(stack: Stack) -> None:
    stack.write("a", config_map("old"), config_map("new"))
    stack.apply()
    stack.write("a", config_map("new"))
    assert outcomes(stack.delete()) == {"old": "deleted", "new": "deleted"}


def test_what_belongs_to_others_stays(stack: Stack, clusters: Clusters, tmp_path: Path) -> None:
    other = Stack(
        tmp_path / "other", namespace="ml", opener=clusters.__getitem__, name="other", clock=stack.clock
    )
    other.write("a", config_map("shared"))
    other.apply()
    clusters["minikube"].create({**config_map(), "metadata": {"name": "foreign", "namespace": "ml"}})
    stack.write("a", config_map("shared"), config_map("foreign"))
    assert {row.name: row.text for row in stack.delete().objects} == {
        "shared": "belongs to environment `minikube` of app `other`",
        "foreign": "was not made by mlstack",
    }


def test_claims_stay_unless_asked(stack: Stack) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    stack.write("a", claim)
    stack.apply()
    assert outcomes(stack.delete()) == {"disk": "kept"}
    plan_only = stack.delete(spare=Spare(claims=False), dry_run=True)
    assert outcomes(plan_only) == {"disk": "deleted"}


def claim(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ml", "labels": labels},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def test_homes_of_the_hubs_users_are_named(stack: Stack, clusters: Clusters) -> None:
    stack.write("hub", config_map("jupyterhub-config", **{"jupyterhub_config.py": "c = get_config()"}))
    stack.apply()
    for name in ("claim-ada", "claim-bob"):
        clusters["minikube"].create(claim(name, app="jupyterhub"))
    clusters["minikube"].create(claim("unrelated"))
    assert stack.delete().notes == (
        "PersistentVolumeClaim `claim-ada`, `claim-bob` of the hub's users in namespace `ml` will stay",
    )


def test_claims_of_a_stateful_set_are_named(stack: Stack, clusters: Clusters) -> None:
    web = deployment()
    template = {"metadata": {"name": "disk"}, "spec": claim("x")["spec"]}
    spec = {key: web["spec"][key] for key in ("replicas", "selector", "template")}
    spec |= {"serviceName": "web", "volumeClaimTemplates": [template]}
    stack.write("a", {**web, "kind": "StatefulSet", "spec": spec})
    stack.apply()
    for number in range(7):
        clusters["minikube"].create(claim(f"disk-web-{number}"))
    (note,) = stack.delete().notes
    assert note.startswith("PersistentVolumeClaim `disk-web-0`, ")
    assert note.endswith(" and 2 more of `StatefulSet ml/web` will stay")
