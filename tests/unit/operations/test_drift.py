"""`diff --live` says of each live difference who made it; nothing else is told."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.deploy.compare import DriftRow
from mlstack.kube.client import ObjectRef
from mlstack.operations.status import DriftResult, find_drift
from mlstack.testing.cluster import MemoryCluster
from tests.support.deploying import Stack, autoscaler, config_map, crd, deployment

WEB = ObjectRef("apps/v1", "Deployment", "ml", "web")
SETTINGS = ObjectRef("v1", "ConfigMap", "ml", "settings")


@pytest.fixture
def cluster(clusters: dict[str, MemoryCluster]) -> MemoryCluster:
    return clusters["minikube"]


@pytest.fixture
def applied(stack: Stack) -> Stack:
    """A Deployment and a ConfigMap that were applied."""
    stack.write("web", config_map(a="1", b="1"), deployment(replicas=2))
    stack.apply()
    return stack


def look(stack: Stack, **facts: Any) -> DriftResult:
    return find_drift(stack.target(**facts), opener=stack.opener)


def rows(result: DriftResult) -> dict[str, DriftRow]:
    return {row.name: row for row in result.objects if row.state != "same"}


def test_a_person_and_a_controller_are_told_apart(applied: Stack, cluster: MemoryCluster) -> None:
    cluster.patch(WEB, {"spec": {"replicas": 7}}, manager="kube-controller-manager", subresource="scale")
    cluster.patch(SETTINGS, {"data": {"a": "2"}}, manager="kubectl-edit")
    result = look(applied)
    assert not result.ok
    assert result.counts == {"controller": 1, "person": 1}
    (row,) = rows(result)["web"].differences
    assert (row.path, row.live, row.wanted, row.manager) == ("spec.replicas", 7, 2, "kube-controller-manager")
    assert row.time


def test_an_apply_that_is_behind_its_files_is_stale(applied: Stack) -> None:
    applied.write("web", config_map(a="9", c="1"), deployment(replicas=2), config_map("more"))
    result = look(applied)
    assert {diff.path: diff.cause for diff in rows(result)["settings"].differences} == {
        "data.a": "stale",
        "data.b": "stale",
        "data.c": "stale",
    }
    assert rows(result)["more"].state == "new"
    assert result.counts == {"stale": 4}
    assert look(applied).counts == result.counts  # looking has written nothing


def test_a_removed_field_is_known_from_the_last_apply(applied: Stack, cluster: MemoryCluster) -> None:
    cluster.patch(SETTINGS, {"data": {"a": None}}, manager="kubectl-edit")
    applied.write("web", config_map(a="1", b="1", c="1"), deployment(replicas=2))
    diffs = {diff.path: diff for diff in rows(look(applied))["settings"].differences}
    assert (diffs["data.a"].action, diffs["data.a"].cause) == ("removed", "unknown")
    assert (diffs["data.c"].action, diffs["data.c"].cause) == ("removed", "stale")


def test_what_the_files_dropped_after_others_changed_it_is_laid_to_them(
    applied: Stack, cluster: MemoryCluster
) -> None:
    cluster.patch(SETTINGS, {"data": {"b": "2"}}, manager="kubectl-edit")
    applied.write("web", config_map(a="1"), deployment(replicas=2))
    (diff,) = rows(look(applied))["settings"].differences
    assert (diff.path, diff.action, diff.live, diff.cause, diff.manager) == (
        "data.b",
        "added",
        "2",
        "person",
        "kubectl-edit",
    )
    applied.apply()
    assert look(applied).ok


def test_what_was_deleted_is_missing(applied: Stack, cluster: MemoryCluster) -> None:
    cluster.delete(SETTINGS)
    result = look(applied)
    assert rows(result)["settings"].state == "missing"
    assert result.counts == {"missing": 1}


def test_what_was_deleted_and_made_anew_is_said(applied: Stack, cluster: MemoryCluster) -> None:
    live = cluster.get(SETTINGS)
    assert live is not None
    cluster.delete(SETTINGS)
    metadata = {key: live["metadata"][key] for key in ("name", "namespace", "labels")}
    cluster.create({**config_map(a="2", b="1"), "metadata": metadata}, manager="kubectl-create")
    row = rows(look(applied))["settings"]
    assert row.reason == "was deleted and made anew since it was applied"
    assert [(diff.path, diff.cause) for diff in row.differences] == [("data.a", "person")]


def test_what_the_files_no_longer_bring_is_extra(applied: Stack) -> None:
    applied.write("web", deployment(replicas=2))
    row = rows(look(applied))["settings"]
    assert (row.state, row.reason) == ("extra", "the files do not bring it any more")


def test_a_copy_with_our_labels_is_extra(applied: Stack, cluster: MemoryCluster) -> None:
    live = cluster.get(SETTINGS)
    assert live is not None
    copy = {**config_map("copy"), "metadata": {"name": "copy", "namespace": "ml"}}
    copy["metadata"]["labels"] = live["metadata"]["labels"]
    cluster.create(copy, manager="kubectl-create")
    row = rows(look(applied))["copy"]
    assert (row.state, row.manager) == ("extra", "kubectl-create")
    assert row.reason == "carries our labels, and mlstack did not make it"


def test_what_a_controller_labels_like_ours_is_no_extra(applied: Stack, cluster: MemoryCluster) -> None:
    live = cluster.get(SETTINGS)
    assert live is not None
    copy = {**config_map("copy"), "metadata": {"name": "copy", "namespace": "ml"}}
    copy["metadata"]["labels"] = live["metadata"]["labels"]
    cluster.create(copy, manager="endpoints-controller")
    assert look(applied).ok


def test_fields_and_objects_of_others_are_none_of_ours(applied: Stack, cluster: MemoryCluster) -> None:
    cluster.patch(WEB, {"metadata": {"annotations": {"team": "red"}}}, manager="kubectl-annotate")
    other = config_map("other")
    cluster.create({**other, "metadata": {"name": "other", "namespace": "ml"}}, manager="kubectl-create")
    assert look(applied).ok


def test_only_selected_components_are_looked_at(applied: Stack, cluster: MemoryCluster) -> None:
    applied.write("side", config_map("side", a="1"), config_map("gone"))
    applied.apply()
    applied.write("side", config_map("side", a="1"))
    cluster.patch(SETTINGS, {"data": {"a": "2"}}, manager="kubectl-edit")
    assert rows(look(applied, components=["side"])).keys() == {"gone"}
    assert rows(look(applied, components=["web"])).keys() == {"settings"}


def test_an_environment_that_was_never_applied_is_all_new(stack: Stack) -> None:
    stack.write("web", config_map(a="1"), crd(group="x.org"))
    result = look(stack)
    assert {row.state for row in result.objects} == {"new"}


def test_what_cannot_change_in_place_is_told_all_the_same(stack: Stack, cluster: MemoryCluster) -> None:
    stack.write("web", deployment())
    stack.apply()
    changed = deployment()
    changed["spec"]["selector"]["matchLabels"]["tier"] = "a"
    changed["spec"]["template"]["metadata"]["labels"]["tier"] = "a"
    stack.write("web", changed)
    assert {diff.cause for diff in rows(look(stack))["web"].differences} == {"stale"}


def test_what_a_foreign_autoscaler_has_is_told_and_comes_back_once_that_is_gone(
    applied: Stack, cluster: MemoryCluster
) -> None:
    scaler = autoscaler("theirs")
    scaler["metadata"]["namespace"] = "ml"
    cluster.create(scaler, manager="kubectl-autoscale")
    cluster.patch(WEB, {"spec": {"replicas": 7}}, manager="kube-controller-manager", subresource="scale")
    result = look(applied)
    assert (result.ok, result.notes) == (
        True,
        (
            "`Deployment ml/web` leaves `spec.replicas` to `HorizontalPodAutoscaler theirs`"
            " (7 in the cluster, 2 in the files)",
        ),
    )
    applied.apply()
    cluster.delete(ObjectRef("autoscaling/v2", "HorizontalPodAutoscaler", "ml", "theirs"))
    assert not look(applied).ok
    applied.apply()
    live = cluster.get(WEB)
    assert live is not None
    assert live["spec"]["replicas"] == 2
    assert look(applied).ok


def test_what_people_add_goes_and_what_a_program_adds_stays(applied: Stack, cluster: MemoryCluster) -> None:
    before = cluster.get(WEB)
    assert before is not None
    side = {"name": "side", "image": "x", "securityContext": {"privileged": True}}
    cluster.patch(
        WEB,
        [
            {"op": "add", "path": "/spec/template/spec/containers/-", "value": side},
            {"op": "add", "path": "/spec/template/spec/hostNetwork", "value": True},
        ],
        kind="json",
        manager="kubectl-patch",
    )
    cluster.patch(SETTINGS, {"data": {"theirs": "1"}}, manager="operator")
    cluster.patch(SETTINGS, {"data": {"mine": "1"}, "metadata": {"labels": {"team": "red"}}}, manager="k9s")
    result = look(applied)
    assert {diff.path: diff.manager for row in result.objects for diff in row.differences if diff.time} == {
        "spec.template.spec.containers[side]": "kubectl-patch",
        "spec.template.spec.hostNetwork": "kubectl-patch",
        "data.mine": "k9s",
    }
    assert result.notes == (
        "labels and annotations that people added stay:"
        " `metadata.labels.team` of `ConfigMap ml/settings` (k9s)",
    )
    assert applied.apply(keep_foreign_fields=True).counts == {"unchanged": 2}
    assert applied.apply().counts == {"updated": 2}
    live, settings = cluster.get(WEB), cluster.get(SETTINGS)
    assert live is not None
    assert settings is not None
    assert live["spec"] == before["spec"]
    assert settings["data"] == {"a": "1", "b": "1", "theirs": "1"}
    assert settings["metadata"]["labels"]["team"] == "red"
    assert look(applied).ok
