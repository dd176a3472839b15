"""What an apply takes away, on a cluster in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy import inventory
from mlstack.deploy.inventory import ID_LABEL
from mlstack.errors import ClusterError, ConfigError, InvalidError, MlstackError, OutdatedError
from mlstack.kube.client import ObjectRef
from mlstack.operations import deploy
from mlstack.testing.cluster import MemoryCluster
from tests.support.deploying import (
    Stack,
    config_map,
    crd,
    deployment,
    existing,
    outcomes,
    refuse,
    secret,
    tfjob,
)

PARENT = ObjectRef("v1", "ConfigMap", "ml", "mlstack-demo.minikube")


def ref(name: str, namespace: str = "ml") -> ObjectRef:
    return ObjectRef("v1", "ConfigMap", namespace, name)


def listed(cluster: MemoryCluster) -> list[str]:
    """Give the names of the members that the inventory in the cluster lists."""
    parent = existing(cluster, PARENT)
    return sorted(line.split('"')[7] for line in parent["data"]["members"].splitlines())


def maps(*names: str) -> list[dict[str, Any]]:
    return [config_map(name) for name in names]


def turned(stack: Stack, before: list[str], now: list[str]) -> None:
    """Apply objects of component `a`, then make the files bring others."""
    stack.deploy("a", *maps(*before))
    stack.write("a", *maps(*now))


def test_members_carry_the_label_of_the_set(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one"))
    parent, live = cluster.get(PARENT), cluster.get(ref("one"))
    assert parent is not None and live is not None
    set_id = inventory.set_id("mlstack-demo.minikube", "ml")
    assert parent["metadata"]["labels"][ID_LABEL] == set_id
    assert live["metadata"]["labels"][inventory.MEMBER_LABEL] == set_id
    assert inventory.MEMBER_LABEL not in parent["metadata"]["labels"]


def test_kinds_of_the_set_follow_what_is_there(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map(), tfjob(), crd("tfjobs", "TFJob", group="kubeflow.org"))
    parent = existing(cluster, PARENT)
    annotations = parent["metadata"]["annotations"]
    kinds = "ConfigMap,CustomResourceDefinition.apiextensions.k8s.io,TFJob.kubeflow.org"
    assert annotations[inventory.GROUP_KINDS] == kinds
    assert annotations[inventory.NAMESPACES] == ""
    elsewhere = {**config_map("far"), "metadata": {"name": "far", "namespace": "default"}}
    stack.deploy("a", elsewhere, crd("tfjobs", "TFJob", group="kubeflow.org"))
    parent = existing(cluster, PARENT)
    annotations = parent["metadata"]["annotations"]
    assert annotations[inventory.GROUP_KINDS] == "ConfigMap,CustomResourceDefinition.apiextensions.k8s.io"
    assert annotations[inventory.NAMESPACES] == "default"


@pytest.mark.parametrize("value", ["theirs", ""])
def test_a_member_label_in_a_manifest_is_refused(stack: Stack, value: str) -> None:
    data = config_map()
    data["metadata"]["labels"] = {inventory.MEMBER_LABEL: value}
    stack.write("a", data)
    with pytest.raises(ConfigError, match="brings the label"):
        stack.diff()


def test_a_second_apply_leaves_the_inventory_alone(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map(), secret(a="b"), deployment())
    before = cluster.get(PARENT)
    stack.apply()
    assert cluster.get(PARENT) == before


def test_protected_kinds_stay_and_stay_listed(stack: Stack, cluster: MemoryCluster) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    stack.deploy("a", claim, namespace, crd(group="example.com"), config_map("one"))
    stack.write("a", *maps("one"))
    assert stack.diff().ok
    result = stack.apply()
    assert outcomes(result) == {
        "one": "unchanged",
        "disk": "kept",
        "widgets.example.com": "kept",
        "team": "kept",
    }
    assert result.ok
    assert listed(cluster) == ["disk", "one", "team", "widgets.example.com"]


def test_selected_components_prune_their_own_alone(stack: Stack, cluster: MemoryCluster) -> None:
    stack.write("a", *maps("a1", "a2"))
    stack.deploy("b", *maps("b1", "b2"))
    stack.write("a", *maps("a1"))
    stack.write("b", *maps("b1"))
    assert outcomes(stack.apply(components=["a"])) == {"a1": "unchanged", "a2": "deleted"}
    assert listed(cluster) == ["a1", "b1", "b2"]


@pytest.mark.parametrize("components", [[], ["a"], ["b"]], ids=["all", "from", "to"])
def test_a_move_between_components_is_no_deletion(
    stack: Stack, cluster: MemoryCluster, components: list[str]
) -> None:
    stack.write("a", *maps("stays", "moves"))
    stack.deploy("b", *maps("other"))
    stack.write("a", *maps("stays"))
    stack.write("b", *maps("other", "moves"))
    assert "deleted" not in outcomes(stack.apply(components=components)).values()
    assert cluster.get(ref("moves")) is not None
    assert "deleted" not in outcomes(stack.apply()).values()
    assert listed(cluster) == ["moves", "other", "stays"]


def test_what_may_have_moved_to_a_broken_component_stays(stack: Stack) -> None:
    stack.write("a", *maps("stays", "moves"))
    stack.deploy("b", *maps("other"))
    stack.write("a", *maps("stays"))
    stack.write_text("components/b.yaml", "kind: [\n")
    (row,) = (row for row in stack.apply(components=["a"]).objects if row.name == "moves")
    assert row.outcome == "kept"
    assert "may have moved to a component that cannot be rendered" in row.text


def test_another_api_version_is_no_deletion(stack: Stack, cluster: MemoryCluster) -> None:
    definition = crd(group="example.com")
    versions = definition["spec"]["versions"]
    versions.append({**versions[0], "name": "v2", "storage": False})
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": 1}}
    stack.deploy("a", definition, widget)
    stack.write("a", definition, {**widget, "apiVersion": "example.com/v2"})
    assert "deleted" not in outcomes(stack.apply()).values()
    assert cluster.get(ObjectRef("example.com/v2", "Widget", "ml", "w")) is not None


def test_what_others_took_is_left_alone_and_forgotten(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "taken", "remade", "unmarked"))
    labels = {"mlstack.dev/app": "other", "mlstack.dev/environment": "prod"}
    cluster.patch(ref("taken"), {"metadata": {"labels": labels}})
    cluster.patch(ref("unmarked"), {"metadata": {"labels": {"mlstack.dev/app": None}}})
    live = existing(cluster, ref("remade"))
    cluster.delete(ref("remade"), propagation="Background")
    copied = {key: live["metadata"][key] for key in ("name", "namespace", "labels")}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": copied}, manager="kubectl-create")
    result = stack.deploy("a", *maps("one"))
    assert outcomes(result) == {"one": "unchanged"}
    assert sorted(result.notes) == [
        "ConfigMap ml/remade is left alone: it was made anew by somebody else",
        "ConfigMap ml/taken is left alone: it belongs to environment `prod` of app `other`",
        "ConfigMap ml/unmarked is left alone: it was applied by mlstack, and has lost its label"
        " `mlstack.dev/app`: nothing says whose it is",
    ]
    assert all(cluster.get(ref(name)) for name in ("taken", "remade", "unmarked"))
    assert listed(cluster) == ["one"]


def test_what_was_gone_already_is_forgotten(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "two"))
    cluster.delete(ref("two"))
    stack.write("a", *maps("one"))
    assert outcomes(stack.apply()) == {"one": "unchanged"}
    assert listed(cluster) == ["one"]


def test_owned_objects_stay(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "two"))
    owner = cluster.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": "ml"}}
    )
    uid = owner.object["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    cluster.patch(ref("two"), {"metadata": {"ownerReferences": [reference]}})
    stack.write("a", *maps("one"))
    (row,) = (row for row in stack.apply().objects if row.name == "two")
    assert (row.outcome, row.text) == ("kept", "is owned by ConfigMap `owner`")


def test_a_rejected_deletion_fails_the_run_and_is_tried_again(
    stack: Stack, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned(stack, ["one", "two", "three"], ["one"])
    error = InvalidError("a webhook says no")
    refuse(monkeypatch, cluster, "delete", lambda ref, **how: ref.name == "two" and error)
    with pytest.raises(InvalidError, match="a webhook says no"):
        stack.apply()
    assert listed(cluster) == ["one", "two"]
    monkeypatch.undo()
    assert outcomes(stack.apply()) == {"one": "unchanged", "two": "deleted"}
    assert listed(cluster) == ["one"]


def test_nothing_is_pruned_when_a_write_failed(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "two"))
    stack.write("a", config_map("one"), {**crd(group="broken.org"), "nonsense": 1})
    with pytest.raises(MlstackError):
        stack.apply()
    assert [event.text for event in stack.events if event.kind == "skipped"] == [
        "pruned only when everything else works"
    ]
    assert cluster.get(ref("two")) is not None
    assert listed(cluster) == ["one", "two", "widgets.broken.org"]


def test_a_set_of_another_tool_is_refused(stack: Stack, cluster: MemoryCluster) -> None:
    labels = {ID_LABEL: inventory.set_id(PARENT.name, "ml")}
    metadata = {"name": PARENT.name, "namespace": "ml", "labels": labels}
    metadata["annotations"] = {inventory.TOOLING: "kubectl/v1.32"}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    stack.write("a", config_map())
    with pytest.raises(ClusterError, match="instead of `mlstack`"):
        stack.apply()
    assert cluster.get(ref("settings")) is None


def test_a_damaged_inventory_is_rebuilt_from_the_marks(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "two"))
    cluster.patch(PARENT, {"data": {"members": "nonsense"}}, manager="kubectl-edit")
    result = stack.deploy("a", *maps("one"))
    assert outcomes(result) == {"one": "unchanged", "two": "deleted"}
    assert "is damaged (a line is no JSON): 2 objects found by their labels" in result.notes[0]
    assert listed(cluster) == ["one"]
    warnings = [event.text for event in stack.events if event.kind == "warning"]
    assert warnings == ["`ConfigMap ml/mlstack-demo.minikube` was changed by `kubectl-edit`: set right again"]


def test_a_lost_inventory_is_rebuilt_from_the_marks(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "two"))
    cluster.delete(PARENT)
    result = stack.deploy("a", *maps("one"))
    assert outcomes(result) == {"one": "unchanged", "two": "deleted"}
    assert result.notes[0] == "there is no inventory: 2 objects found by their labels"
    assert listed(cluster) == ["one"]


def test_a_lost_inventory_is_seen_though_all_is_new(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "two"))
    cluster.delete(PARENT)
    stack.write("a", *maps("three"))
    assert outcomes(stack.apply()) == {"three": "created", "one": "deleted", "two": "deleted"}


def test_a_first_apply_scans_nothing(
    stack: Stack, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    listing = cluster.list

    def count(api_version: str, kind: str, **how: Any) -> Any:
        asked.append(kind)
        return listing(api_version, kind, **how)

    stack.write("a", *maps("one"))
    monkeypatch.setattr(cluster, "list", count)
    assert stack.apply().notes == ("namespace `ml` is created first",)
    assert len(asked) < 10


def test_marks_alone_make_no_member(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one"))
    live = existing(cluster, ref("one"))
    copied = {"name": "copy", "namespace": "ml", "labels": live["metadata"]["labels"]}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": copied}, manager="controller")
    cluster.delete(PARENT)
    stack.apply()
    assert listed(cluster) == ["one"]
    stack.delete()
    assert cluster.get(ref("copy")) is not None


def test_two_namespaces_are_two_sets(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one", "two"))
    stack.apply(namespace="other")
    stack.write("a", *maps("one"))
    stack.apply(namespace="other")
    assert cluster.get(ref("two", "other")) is None
    assert cluster.get(ref("two")) is not None
    cluster.delete(ObjectRef("v1", "ConfigMap", "other", PARENT.name))
    stack.apply(namespace="other")
    assert cluster.get(ref("two")) is not None


def test_what_is_left_in_another_namespace_is_said(stack: Stack) -> None:
    stack.deploy("a", *maps("one"))
    note = "environment `minikube` has objects in namespace `ml` too: mlstack delete minikube -n ml"
    assert note in stack.apply(namespace="other").notes
    assert note not in stack.apply(namespace="other").notes
    stack.delete(namespace="ml")
    assert outcomes(stack.delete(namespace="other")) == {"one": "deleted"}


def test_an_inventory_of_a_newer_version_is_left_alone(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one"))
    cluster.patch(PARENT, {"data": {"format": "7"}})
    with pytest.raises(ClusterError, match=r"was written by a newer mlstack \(format 7\)"):
        stack.apply()


def test_another_app_in_the_same_namespace_is_left_alone(
    stack: Stack, cluster: MemoryCluster, tmp_path: Path
) -> None:
    other = Stack(tmp_path / "other", namespace="ml", opener=stack.opener, name="other", clock=stack.clock)
    other.deploy("a", *maps("theirs", "theirs-too"))
    stack.deploy("a", *maps("one", "two"))
    before = cluster.list("v1", "ConfigMap", labels="mlstack.dev/app=other").items
    stack.deploy("a", *maps("one"))
    stack.delete()
    assert cluster.list("v1", "ConfigMap", labels="mlstack.dev/app=other").items == before


def test_another_run_that_did_the_same_is_no_trouble(stack: Stack, cluster: MemoryCluster) -> None:
    turned(stack, ["one", "two"], ["one", "three"])
    first, second = stack.plan(), stack.plan()
    deploy.apply(first, clock=stack.clock)
    result = deploy.apply(second, clock=stack.clock)
    assert outcomes(result) == {"one": "unchanged", "three": "unchanged", "two": "gone"}
    assert result.ok
    assert listed(cluster) == ["one", "three"]


def test_another_run_that_did_something_else_stops_this_one(stack: Stack, cluster: MemoryCluster) -> None:
    turned(stack, ["one", "two"], ["one"])
    late = stack.plan()
    stack.deploy("a", *maps("one", "two", "three"))
    with pytest.raises(OutdatedError, match="another run was faster, and `ConfigMap ml/three`"):
        deploy.apply(late, clock=stack.clock)
    assert listed(cluster) == ["one", "three", "two"]


def test_a_delete_that_was_overtaken_stops(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", *maps("one"))
    late = deploy.plan_delete(stack.target(), opener=stack.opener)
    stack.deploy("a", *maps("one", "two"))
    with pytest.raises(OutdatedError, match="was deployed since this was shown"):
        deploy.apply(late, clock=stack.clock)
    assert listed(cluster) == ["one", "two"]
