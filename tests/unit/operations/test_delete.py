"""Deleting from a cluster in memory."""

from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.prune import KeepOptions
from mlstack.errors import InvalidError, NotFoundError, UsageError
from mlstack.kube.client import ObjectRef
from mlstack.testing.cluster import MemoryCluster
from tests.support.deploying import Stack, config_map, crd, deployment, existing, outcomes, refuse, tfjob

Clusters = dict[str, MemoryCluster]


def test_definitions_go_when_asked_and_name_what_goes_along(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", crd("tfjobs", "TFJob", group="kubeflow.org"))
    foreign = tfjob("theirs")
    foreign["metadata"]["namespace"] = "default"
    cluster.create(foreign)
    result = stack.delete(spare=KeepOptions(definitions=False))
    assert outcomes(result) == {"tfjobs.kubeflow.org": "deleted"}
    assert result.notes == (
        "with definition `tfjobs.kubeflow.org` go 1 TFJob of all namespaces: default/theirs",
    )


def test_what_belongs_to_others_stays(stack: Stack, clusters: Clusters, tmp_path: Path) -> None:
    other = Stack(
        tmp_path / "other", namespace="ml", opener=clusters.__getitem__, name="other", clock=stack.clock
    )
    other.deploy("a", config_map("shared"))
    clusters["minikube"].create({**config_map(), "metadata": {"name": "foreign", "namespace": "ml"}})
    stack.write("a", config_map("shared"), config_map("foreign"))
    result = stack.delete()
    assert (result.objects, result.notes) == (
        (),
        (
            "ConfigMap ml/foreign is left alone: it was not made by mlstack",
            "ConfigMap ml/shared is left alone: it belongs to environment `minikube` of app `other`",
        ),
    )


def test_what_has_lost_its_label_is_not_said_to_be_made_by_others(
    stack: Stack, cluster: MemoryCluster
) -> None:
    stack.deploy("a", config_map("one"))
    lost = {"metadata": {"labels": {"mlstack.dev/app": None}}}
    cluster.patch(ObjectRef("v1", "ConfigMap", "ml", "one"), lost)
    (row,) = stack.delete().objects
    assert row.text == (
        "was applied by mlstack, and has lost its label `mlstack.dev/app`: nothing says whose it is"
    )


def claim(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ml", "labels": labels},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def test_homes_of_the_hubs_users_are_named(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("hub", config_map("jupyterhub-config", **{"jupyterhub_config.py": "c = get_config()"}))
    for name in ("claim-ada", "claim-bob"):
        cluster.create(claim(name, app="jupyterhub"))
    cluster.create(claim("unrelated"))
    assert stack.delete().notes == (
        "PersistentVolumeClaim `claim-ada`, `claim-bob` of the hub's users in namespace `ml` will stay",
    )


def test_claims_of_a_stateful_set_are_named(stack: Stack, cluster: MemoryCluster) -> None:
    web = deployment()
    template = {"metadata": {"name": "disk"}, "spec": claim("x")["spec"]}
    spec = {key: web["spec"][key] for key in ("replicas", "selector", "template")}
    spec |= {"serviceName": "web", "volumeClaimTemplates": [template]}
    stack.deploy("a", {**web, "kind": "StatefulSet", "spec": spec})
    for number in range(7):
        cluster.create(claim(f"disk-web-{number}"))
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


def test_nothing_of_ours_stays_after_a_full_delete(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map("one"), config_map("two"))
    assert "mlstack-demo.minikube" in ours(cluster)
    stack.delete()
    assert ours(cluster) == []


def test_the_inventory_stays_after_a_part_went(stack: Stack, cluster: MemoryCluster) -> None:
    stack.write("a", config_map("one"))
    stack.deploy("b", config_map("two"))
    stack.delete(components=["a"])
    parent = existing(cluster, PARENT)
    assert '"two"' in parent["data"]["members"] and '"one"' not in parent["data"]["members"]
    assert any(".r1" in name for name in ours(cluster))


def test_what_is_kept_stays_listed(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map("one"), crd(group="example.com"))
    stack.delete()
    parent = existing(cluster, PARENT)
    assert [line.split('"')[7] for line in parent["data"]["members"].splitlines()] == ["widgets.example.com"]
    assert ours(cluster) == ["mlstack-demo.minikube"]
    assert outcomes(stack.delete(spare=KeepOptions(definitions=False))) == {"widgets.example.com": "deleted"}
    assert ours(cluster) == []


def test_files_that_do_not_render_are_no_hindrance(stack: Stack) -> None:
    stack.deploy("a", config_map("one"))
    stack.write_text("components/a.yaml", "kind: [\n")
    result = stack.delete()
    assert outcomes(result) == {"one": "deleted"}
    assert result.notes[0].startswith("by the inventory alone, as the files cannot be rendered: ")


def test_a_component_that_is_gone_from_the_files_can_be_named(stack: Stack) -> None:
    stack.write("a", config_map("one"))
    stack.deploy("b", config_map("two"))
    stack.remove("b")
    assert outcomes(stack.delete(components=["b"])) == {"two": "deleted"}
    with pytest.raises(NotFoundError):
        stack.delete(components=["b"])


def test_a_module_that_is_gone_from_the_files_can_be_named(stack: Stack) -> None:
    stack.write("jobs/a", config_map("one"))
    stack.write("jobs/b", config_map("two"))
    stack.deploy("c", config_map("three"))
    stack.write_text("components/jobs/a.yaml", "kind: [\n")
    assert outcomes(stack.delete(components=["jobs"])) == {"one": "deleted", "two": "deleted"}


@pytest.mark.parametrize(("before", "after"), [("Namespaced", "Cluster"), ("Cluster", "Namespaced")])
def test_a_definition_that_changed_its_scope_in_the_files_is_no_hindrance(
    stack: Stack, cluster: MemoryCluster, before: str, after: str
) -> None:
    widget = {"apiVersion": "x.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    stack.deploy("a", crd(group="x.org", scope=before), widget, config_map())
    stack.write("a", crd(group="x.org", scope=after), widget, config_map())
    place = "ml" if before == "Namespaced" else ""
    assert cluster.get(ObjectRef("x.org/v1", "Widget", place, "w")) is not None
    assert stack.status() is not None
    assert outcomes(stack.delete()) == {"w": "deleted", "settings": "deleted", "widgets.x.org": "kept"}
    assert cluster.get(ObjectRef("x.org/v1", "Widget", place, "w")) is None


def test_what_left_the_files_is_said(stack: Stack) -> None:
    stack.deploy("a", config_map("old"), config_map("new"))
    stack.write("a", config_map("new"))
    rows = stack.delete(dry_run=True).objects
    assert {row.name: row.text for row in rows} == {"old": "the files no longer bring it", "new": ""}


def test_a_lost_inventory_is_no_hindrance(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map("one"), tfjob(), crd("tfjobs", "TFJob", group="kubeflow.org"))
    cluster.delete(PARENT)
    stack.write("a", config_map("one"))
    result = stack.delete()
    assert outcomes(result) == {"cnn": "deleted", "one": "deleted", "tfjobs.kubeflow.org": "kept"}
    assert result.notes[0] == "there is no inventory: 3 objects found by their labels"


def test_a_namespace_that_others_made_stays(stack: Stack, cluster: MemoryCluster) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    stack.deploy("a", config_map("one"))
    result = stack.delete(spare=KeepOptions(namespaces=False))
    assert outcomes(result) == {"one": "deleted", "ml": "kept"}
    assert result.objects[-1].text == "was not made by mlstack"


def test_a_failed_deletion_stays_listed(
    stack: Stack, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters["minikube"]
    stack.deploy("a", config_map("one"), config_map("two"))
    error = InvalidError("a webhook says no")
    refuse(monkeypatch, cluster, "delete", lambda ref, **how: ref.name == "two" and error)
    with pytest.raises(InvalidError):
        stack.delete()
    monkeypatch.undo()
    parent, newest = existing(cluster, PARENT), stack.revisions()[0]
    assert [line.split('"')[7] for line in parent["data"]["members"].splitlines()] == ["two"]
    assert (newest.what, newest.result, newest.counts) == ("delete", "failed", {"deleted": 1, "failed": 1})
    assert outcomes(stack.delete()) == {"two": "deleted"}
    assert ours(cluster) == []


KEPT = {"mlstack.dev/prune": "false"}
NAMESPACES = KeepOptions(namespaces=False)


def retained(name: str) -> dict[str, Any]:
    data = config_map(name)
    return {**data, "metadata": {**data["metadata"], "annotations": KEPT}}


def foreign(name: str, **metadata: Any) -> dict[str, Any]:
    return {**config_map(name), "metadata": {"name": name, "namespace": "ml", **metadata}}


IN_THE_WAY = [
    ([claim("data")], [], "PersistentVolumeClaim ml/data: volume claims are kept", {"claims": False}),
    ([], [claim("of-db-0")], "PersistentVolumeClaim ml/of-db-0: was not made by mlstack", {"claims": False}),
    ([retained("precious")], [], "ConfigMap ml/precious: is kept: annotation", {"foreign": False}),
    ([], [foreign("theirs")], "ConfigMap ml/theirs: was not made by mlstack", {"foreign": False}),
]


@pytest.mark.parametrize(
    ("own", "others", "line", "allowed"), IN_THE_WAY, ids=["claim", "set", "kept", "foreign"]
)
def test_a_namespace_goes_only_with_what_may_go(
    stack: Stack,
    cluster: MemoryCluster,
    own: list[dict[str, Any]],
    others: list[dict[str, Any]],
    line: str,
    allowed: dict[str, bool],
) -> None:
    stack.deploy("a", config_map("one"), *own)
    for obj in others:
        cluster.create(obj)
    option = "--claims" if "claims" in allowed else "--foreign"
    for dry_run in (True, False):
        with pytest.raises(UsageError) as refused:
            stack.delete(spare=NAMESPACES, dry_run=dry_run)
        assert f"\n  {line}" in refused.value.message
        assert refused.value.hint is not None and f": {option};" in refused.value.hint
        assert "ml/one" not in refused.value.message
    assert cluster.get(ObjectRef("v1", "ConfigMap", "ml", "one")) is not None
    result = stack.delete(spare=KeepOptions(namespaces=False, **allowed))
    assert set(outcomes(result).values()) == {"deleted"}
    assert cluster.get(ObjectRef("v1", "Namespace", "", "ml")) is None


def test_what_goes_with_others_or_is_in_every_namespace_stands_in_no_way(
    stack: Stack, clusters: Clusters
) -> None:
    stack.deploy("a", deployment("web"))
    cluster = clusters["minikube"]
    owner = existing(cluster, ObjectRef("apps/v1", "Deployment", "ml", "web"))
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": owner["metadata"]["uid"],
    }
    cluster.create(foreign("web-1", ownerReferences=[reference]))
    cluster.create(foreign("kube-root-ca.crt"))
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "ml"},
    }
    cluster.create(account)
    assert outcomes(stack.delete(spare=NAMESPACES)) == {"web": "deleted", "ml": "deleted"}


def test_the_objects_of_a_component_that_stays_keep_the_namespace(stack: Stack) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    stack.write("a", namespace)
    stack.deploy("b", config_map("two"))
    with pytest.raises(UsageError, match=r"ConfigMap ml/two: is of component `b`, which stays"):
        stack.delete(components=["a"], spare=NAMESPACES)
