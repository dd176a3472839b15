"""Deleting from a cluster in memory."""

from pathlib import Path
from typing import Any

import pytest

from mlstack.cluster.api import ObjectRef
from mlstack.cluster.memory import MemoryCluster
from mlstack.errors import InvalidError, NotFoundError
from mlstack.model.pruning import Spare
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


PARENT = ObjectRef("v1", "ConfigMap", "ml", "mlstack-demo.minikube")


def ours(cluster: MemoryCluster) -> list[str]:
    """Give the names of everything in the namespace that mlstack made."""
    marked = "app.kubernetes.io/managed-by=mlstack"
    kinds = (("v1", "ConfigMap"), ("v1", "Secret"), ("coordination.k8s.io/v1", "Lease"))
    return [
        item["metadata"]["name"]
        for kind in kinds
        for item in cluster.list(*kind, namespace="ml", labels=marked).items
    ]


def test_nothing_of_ours_stays_after_a_full_delete(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map("one"), config_map("two"))
    stack.apply()
    assert "mlstack-demo.minikube" in ours(clusters["minikube"])
    stack.delete()
    assert ours(clusters["minikube"]) == []


def test_the_inventory_stays_after_a_part_went(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map("one"))
    stack.write("b", config_map("two"))
    stack.apply()
    stack.delete(components=["a"])
    parent = clusters["minikube"].get(PARENT)
    assert parent is not None
    assert '"two"' in parent["data"]["members"] and '"one"' not in parent["data"]["members"]
    assert any(".r1" in name for name in ours(clusters["minikube"]))


def test_what_is_kept_stays_listed(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map("one"), crd(group="example.com"))
    stack.apply()
    stack.delete()
    parent = clusters["minikube"].get(PARENT)
    assert parent is not None
    assert [line.split('"')[7] for line in parent["data"]["members"].splitlines()] == ["widgets.example.com"]
    assert ours(clusters["minikube"]) == ["mlstack-demo.minikube"]
    assert outcomes(stack.delete(spare=Spare(definitions=False))) == {"widgets.example.com": "deleted"}
    assert ours(clusters["minikube"]) == []


def test_files_that_do_not_render_are_no_hindrance(stack: Stack) -> None:
    stack.write("a", config_map("one"))
    stack.apply()
    stack.write_text("components/a.yaml", "kind: [\n")
    result = stack.delete()
    assert outcomes(result) == {"one": "deleted"}
    assert result.notes[0].startswith("by the inventory alone, as the files cannot be rendered: ")


def test_a_component_that_is_gone_from_the_files_can_be_named(stack: Stack) -> None:
    stack.write("a", config_map("one"))
    stack.write("b", config_map("two"))
    stack.apply()
    stack.remove("b")
    assert outcomes(stack.delete(components=["b"])) == {"two": "deleted"}
    with pytest.raises(NotFoundError):
        stack.delete(components=["b"])


def test_a_module_that_is_gone_from_the_files_can_be_named(stack: Stack) -> None:
    stack.write("jobs/a", config_map("one"))
    stack.write("jobs/b", config_map("two"))
    stack.write("c", config_map("three"))
    stack.apply()
    stack.write_text("components/jobs/a.yaml", "kind: [\n")
    assert outcomes(stack.delete(components=["jobs"])) == {"one": "deleted", "two": "deleted"}


@pytest.mark.parametrize(("before", "after"), [("Namespaced", "Cluster"), ("Cluster", "Namespaced")])
def test_a_definition_that_changed_its_scope_in_the_files_is_no_hindrance(
    stack: Stack, clusters: Clusters, before: str, after: str
) -> None:
    widget = {"apiVersion": "x.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    stack.write("a", crd(group="x.org", scope=before), widget, config_map())
    stack.apply()
    stack.write("a", crd(group="x.org", scope=after), widget, config_map())
    place = "ml" if before == "Namespaced" else ""
    assert clusters["minikube"].get(ObjectRef("x.org/v1", "Widget", place, "w")) is not None
    assert stack.status() is not None
    assert outcomes(stack.delete()) == {"w": "deleted", "settings": "deleted", "widgets.x.org": "kept"}
    assert clusters["minikube"].get(ObjectRef("x.org/v1", "Widget", place, "w")) is None


def test_what_left_the_files_is_said(stack: Stack) -> None:
    stack.write("a", config_map("old"), config_map("new"))
    stack.apply()
    stack.write("a", config_map("new"))
    rows = stack.delete(dry_run=True).objects
    assert {row.name: row.text for row in rows} == {"old": "the files no longer bring it", "new": ""}


def test_a_lost_inventory_is_no_hindrance(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map("one"), tfjob(), crd("tfjobs", "TFJob", group="kubeflow.org"))
    stack.apply()
    clusters["minikube"].delete(PARENT)
    stack.write("a", config_map("one"))
    result = stack.delete()
    assert outcomes(result) == {"cnn": "deleted", "one": "deleted", "tfjobs.kubeflow.org": "kept"}
    assert result.notes[0] == "there is no inventory: 3 objects found by their labels"


def test_the_namespace_of_the_environment_goes_when_asked(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map("one"))
    stack.apply()
    result = stack.delete(spare=Spare(namespaces=False))
    assert outcomes(result) == {"one": "deleted", "ml": "deleted"}
    assert clusters["minikube"].get(ObjectRef("v1", "Namespace", "", "ml")) is None


def test_a_namespace_that_others_made_stays(stack: Stack, clusters: Clusters) -> None:
    clusters["minikube"].create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    stack.write("a", config_map("one"))
    stack.apply()
    result = stack.delete(spare=Spare(namespaces=False))
    assert outcomes(result) == {"one": "deleted", "ml": "kept"}
    assert result.objects[-1].text == "was not made by mlstack"


def test_a_failed_deletion_stays_listed(
    stack: Stack, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters["minikube"]
    stack.write("a", config_map("one"), config_map("two"))
    stack.apply()
    delete = cluster.delete

    def refuse(target: ObjectRef, **how: Any) -> Any:
        if target.name == "two" and not how.get("dry_run"):
            raise InvalidError("a webhook says no")
        return delete(target, **how)

    monkeypatch.setattr(cluster, "delete", refuse)
    with pytest.raises(InvalidError):
        stack.delete()
    monkeypatch.undo()
    parent = cluster.get(PARENT)
    assert parent is not None
    assert [line.split('"')[7] for line in parent["data"]["members"].splitlines()] == ["two"]
    assert outcomes(stack.delete()) == {"two": "deleted"}
    assert ours(cluster) == []


def test_who_does_not_wait_is_back_at_once(stack: Stack, clusters: Clusters) -> None:
    cluster = clusters["minikube"]
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    stack.write("a", held, config_map("one"))
    stack.apply()
    before = stack.clock.now_s()
    assert outcomes(stack.delete(wait=False)) == {"held": "deleted", "one": "deleted"}
    assert stack.clock.now_s() == before
    live = cluster.get(ObjectRef("v1", "ConfigMap", "ml", "held"))
    assert live is not None and live["metadata"]["deletionTimestamp"]
