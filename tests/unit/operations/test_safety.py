"""What an apply refuses to begin with, and what lets it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy import lock
from mlstack.deploy.changes import ObjectChange
from mlstack.deploy.target import Holder
from mlstack.errors import (
    Cause,
    ClusterError,
    ConfigError,
    ConflictError,
    InvalidError,
    LockedError,
    OutdatedError,
)
from mlstack.kube.client import ObjectRef
from mlstack.operations import deploy
from mlstack.testing.cluster import MemoryCluster
from tests.support.deploying import Stack, config_map, crd, deployment, existing, outcomes, refuse

Clusters = dict[str, MemoryCluster]
SETTINGS = ObjectRef("v1", "ConfigMap", "ml", "settings")
LEASE = ObjectRef("coordination.k8s.io/v1", "Lease", "ml", "mlstack-demo.minikube")


def only(stack: Stack, environment: str = "minikube") -> ObjectChange:
    """Give the one object that a diff would change."""
    (change,) = (row for row in stack.diff(environment).objects if row.action != "unchanged")
    return change


def annotated(data: Mapping[str, Any], **annotations: str) -> dict[str, Any]:
    named = {f"mlstack.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {**data, "metadata": {**data["metadata"], "annotations": named}}


# --- objects of others ----------------------------------------------------------------------------


@pytest.fixture
def other(stack: Stack, clusters: Clusters, tmp_path: Path) -> Stack:
    """Another app that has an object in the cluster of ours."""
    shop = Stack(
        tmp_path / "other", namespace="ml", opener=clusters.__getitem__, name="shop", clock=stack.clock
    )
    shop.write("a", config_map(a="theirs"))
    shop.apply()
    return shop


def test_an_object_of_another_app_is_refused(stack: Stack, other: Stack, cluster: MemoryCluster) -> None:
    before = cluster.get(SETTINGS)
    stack.write("a", config_map(a="ours"), config_map("mine"))
    with pytest.raises(ConflictError) as refused:
        stack.apply()
    assert refused.value.message == (
        "`ConfigMap ml/settings`: it belongs to environment `minikube` of app `shop`"
    )
    assert "--adopt" in (refused.value.hint or "")
    assert cluster.get(SETTINGS) == before
    assert cluster.get(ObjectRef("v1", "ConfigMap", "ml", "mine")) is None


def test_a_diff_shows_what_is_refused_and_adopting_takes_it_and_says_from_whom(
    stack: Stack, other: Stack, cluster: MemoryCluster
) -> None:
    stack.write("a", config_map(a="ours"))
    row = only(stack)
    assert (row.action, row.refused) == ("update", ("it belongs to environment `minikube` of app `shop`",))
    assert [field.path for field in row.fields if field.path == "data.a"]
    result = stack.apply(adopt=True)
    assert outcomes(result) == {"settings": "updated"}
    assert "takes it from environment `minikube` of app `shop`" in result.objects[0].text
    live = existing(cluster, SETTINGS)
    assert live["data"] == {"a": "ours"}
    assert live["metadata"]["labels"]["mlstack.dev/app"] == "demo"


def test_an_object_of_another_environment_is_refused(stack: Stack, clusters: Clusters) -> None:
    clusters["gke"] = clusters["minikube"]
    stack.write("a", config_map())
    early = stack.plan("gke")  # of several environments all are planned before the first is applied
    stack.apply()
    with pytest.raises(OutdatedError, match="since it was shown: it belongs to environment `minikube`"):
        deploy.apply(early, clock=stack.clock)
    assert only(stack, "gke").refused == ("it belongs to environment `minikube` of app `demo`",)
    assert outcomes(stack.apply("gke", adopt=True)) == {"settings": "updated"}


def test_an_environment_under_a_new_name_is_taken_over_when_asked(
    stack: Stack, cluster: MemoryCluster
) -> None:
    stack.deploy("a", config_map(), config_map("old"))
    environments = stack.root / "environments"
    (environments / "minikube").rename(environments / "laptop")
    stack.write("a", config_map())
    with pytest.raises(ConflictError) as refused:
        stack.apply("laptop")
    assert refused.value.message == (
        "`ConfigMap ml/settings`: it belongs to environment `minikube`, which app `demo` does not have"
    )
    assert refused.value.hint == (
        "if `minikube` is called `laptop` now, take all of it over once with --adopt; if another copy of the"
        " app has it, leave it (its inventory: ConfigMap mlstack-demo.minikube)"
    )
    assert outcomes(stack.apply("laptop", adopt=True)) == {"settings": "updated"}
    (note,) = stack.notes
    assert note.startswith("environment `minikube`, which the app does not have, keeps its inventory")
    assert outcomes(stack.apply("laptop")) == {"settings": "unchanged"}
    # What the note says: the old environment may be had again, to be deleted.
    stack.write_text(
        "environments/minikube/environment.yaml",
        """\
        apiVersion: mlstack.dev/v1
        kind: Environment
        context: minikube
        namespace: ml
        """,
    )
    assert outcomes(stack.delete("minikube"))["old"] == "deleted"
    assert stack.apply("laptop", adopt=True).notes == ()
    assert cluster.get(SETTINGS) is not None


def test_definitions_that_two_environments_bring_alike_stay_with_the_first(
    stack: Stack, clusters: Clusters
) -> None:
    definition = crd(group="example.com")
    stack.deploy("a", definition)
    clusters["gke"] = clusters["minikube"]
    before = clusters["minikube"].get(ObjectRef.of(definition))
    assert outcomes(stack.apply("gke"))["widgets.example.com"] == "unchanged"
    assert clusters["minikube"].get(ObjectRef.of(definition)) == before
    changed = crd(group="example.com")
    changed["metadata"]["labels"] = {"team": "x"}
    stack.write("a", changed)
    assert only(stack, "gke").refused


def test_objects_that_nobody_marked_are_taken(stack: Stack, cluster: MemoryCluster) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    plain = config_map(a="1")
    cluster.create({**plain, "metadata": {**plain["metadata"], "namespace": "ml"}}, manager="kubectl-create")
    stack.write("a", config_map(a="2"))
    assert outcomes(stack.apply()) == {"settings": "updated"}


# --- fields that cannot change --------------------------------------------------------------------


def reselected(**more: Any) -> dict[str, Any]:
    """Build the Deployment `web` with another selector."""
    data = deployment(**more)
    data["spec"]["selector"]["matchLabels"] = {"app": "web", "tier": "front"}
    data["spec"]["template"]["metadata"]["labels"] = {"app": "web", "tier": "front"}
    return data


@pytest.mark.parametrize("causes", [[Cause(message="not on Sundays")], []], ids=["policy", "webhook"])
def test_a_policy_that_admits_a_new_object_makes_no_field_of_the_old_one_fixed(
    stack: Stack, cluster: MemoryCluster, causes: list[Cause], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.write("a", annotated(config_map(a="1"), recreate="true"))
    stack.apply()
    stack.write("a", annotated(config_map(a="2"), recreate="true"))
    error = InvalidError("`ConfigMap ml/settings` is refused: not on Sundays", causes=causes)
    refuse(monkeypatch, cluster, "apply", lambda obj, **how: obj["metadata"]["name"] == "settings" and error)
    for verb in (stack.diff, stack.apply):
        with pytest.raises(InvalidError, match="not on Sundays"):
            verb()


def test_the_annotation_may_come_by_a_patch(stack: Stack) -> None:
    stack.deploy("web", deployment())
    stack.write("web", reselected())
    stack.write_text(
        "environments/minikube/patches/web.yaml",
        """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web, annotations: {mlstack.dev/recreate: "true"}}
        """,
    )
    assert only(stack).action == "recreate"


def claim(storage_class: str, **annotations: str) -> dict[str, Any]:
    data = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return annotated(data, **annotations)


def test_a_claim_is_never_made_anew(stack: Stack) -> None:
    stack.deploy("a", claim("fast"))
    stack.write("a", claim("slow", recreate="true"))
    with pytest.raises(InvalidError) as refused:
        stack.apply()
    assert "`spec.storageClassName` cannot change" in refused.value.message
    assert "never made anew: its data would be lost" in (refused.value.hint or "")


def test_all_that_is_refused_is_told_together(stack: Stack, other: Stack) -> None:
    stack.deploy("web", deployment())
    stack.write("web", reselected(), config_map(a="ours"))
    with pytest.raises(ClusterError) as refused:
        stack.apply()
    assert refused.value.message.startswith("2 objects were refused")
    assert "`Deployment ml/web`: `spec.selector` cannot change" in refused.value.message
    assert "`ConfigMap ml/settings`: it belongs to environment" in refused.value.message


# --- definitions ----------------------------------------------------------------------------------


def with_fields(*names: str) -> dict[str, Any]:
    definition = crd(group="example.com")
    fields = {name: {"type": "string"} for name in names}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return definition


def test_a_definition_that_would_lose_a_field_is_refused(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", with_fields("size", "color"))
    before = cluster.get(ObjectRef.of(with_fields()))
    stack.write("a", with_fields("size"))
    reasons = ("version `v1`: field `spec.color` would be removed",)
    assert only(stack).refused == reasons
    with pytest.raises(InvalidError, match=r"field `spec\.color` would be removed") as refused:
        stack.apply()
    assert "--allow-destructive-crds" in (refused.value.hint or "")
    assert cluster.get(ObjectRef.of(with_fields())) == before
    result = stack.apply(allow_destructive=True)
    assert outcomes(result) == {"widgets.example.com": "updated"}
    assert "field `spec.color` would be removed" in result.objects[0].text


def test_a_definition_may_allow_it_itself(stack: Stack) -> None:
    stack.deploy("a", with_fields("size", "color"))
    stack.write("a", annotated(with_fields("size"), allow_destructive="true"))
    row = only(stack)
    assert row.refused == ()
    assert row.notes == ("version `v1`: field `spec.color` would be removed",)
    assert outcomes(stack.apply()) == {"widgets.example.com": "updated"}


@pytest.mark.parametrize("used", [True, False], ids=["objects", "no objects"])
def test_a_new_demand_on_objects_is_told(stack: Stack, used: bool) -> None:
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    stack.deploy("a", with_fields("size"), *([widget] if used else []))
    strict = with_fields("size")
    schema = strict["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"]["format"] = "date"
    stack.write("a", strict, *([widget] if used else []))
    row = next(row for row in stack.diff().objects if row.kind == "CustomResourceDefinition")
    note = "version `v1`: field `spec.size` has another `format` `date`"
    assert row.notes == (
        (f"{note}; objects that are there and break it may be refused when they change",) if used else ()
    )
    assert outcomes(stack.apply())["widgets.example.com"] == "updated"


@pytest.mark.parametrize("used", [True, False], ids=["objects", "no objects"])
def test_a_version_in_use_stays_served(stack: Stack, cluster: MemoryCluster, used: bool) -> None:
    definition = with_fields("size")
    versions = definition["spec"]["versions"]
    old = {**versions[0], "name": "v1alpha1", "storage": False}
    stack.deploy("a", {**definition, "spec": {**definition["spec"], "versions": [*versions, old]}})
    if used:
        metadata = {"name": "w", "namespace": "default"}
        cluster.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})
    stack.write("a", definition)
    refused = ("version `v1alpha1` would not be served any more",) if used else ()
    assert only(stack).refused == refused


# --- the lock -------------------------------------------------------------------------------------


def test_two_environments_do_not_lock_each_other(stack: Stack, clusters: Clusters) -> None:
    clusters["gke"] = clusters["minikube"]
    stack.deploy("a", config_map())
    stack.write("a", config_map(a="2"))
    place, holder = stack.target().place(), Holder(name="ada@laptop/1/x")
    with lock.hold(
        clusters["minikube"], place, "demo", holder=holder, clock=stack.clock, on_event=lambda event: None
    ):
        assert clusters["minikube"].get(LEASE) is not None
        with pytest.raises(LockedError, match=r"held by ada@laptop \(pid 1\)"):
            stack.apply(holder=Holder(name="grace@ci/2/y"), lock_timeout_s=0)
        stack.write("a", config_map("another"))
        stack.apply("gke", holder=Holder(name="grace@ci/2/y"), lock_timeout_s=0)
    assert clusters["minikube"].get(LEASE) is None


def test_an_apply_that_changes_nothing_takes_no_lock(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map())
    version = cluster.list("coordination.k8s.io/v1", "Lease").resource_version
    stack.apply()
    assert cluster.list("coordination.k8s.io/v1", "Lease").resource_version == version


# --- namespaces -----------------------------------------------------------------------------------


def test_objects_outside_the_allowed_namespaces_are_refused_before_the_cluster_is_asked(stack: Stack) -> None:
    stack.write_text(
        "environments/minikube/environment.yaml",
        """\
        apiVersion: mlstack.dev/v1
        kind: Environment
        context: minikube
        namespace: ml
        allowedNamespaces: [monitoring]
        """,
    )
    inside = {**config_map("a"), "metadata": {"name": "a", "namespace": "monitoring"}}
    outside = {**config_map("b"), "metadata": {"name": "b", "namespace": "kube-system"}}
    stack.write("a", inside, outside, config_map("c"))

    def nobody(context: str) -> MemoryCluster:
        raise AssertionError(f"{context} was asked")

    stack.opener = nobody
    for look in (stack.plan, stack.diff):
        with pytest.raises(ConfigError, match="ConfigMap kube-system/b` of component `a`"):
            look()
    with pytest.raises(ConfigError, match="3 objects lie outside"):
        stack.write("a", outside, config_map("c"), config_map("d"))
        stack.plan(namespace="elsewhere")
