"""Comparing with a cluster in memory: what is asked, whose fields are left, what is taken over."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import ObjectChange
from mlstack.deploy.compare import read_side
from mlstack.errors import (
    Cause,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    SchemaError,
    TransientError,
)
from mlstack.kube.client import ObjectRef
from mlstack.operations.status import CompareResult, compare_environments
from mlstack.testing.cluster import MemoryCluster
from tests.support.counted import Counted
from tests.support.deploying import Stack, autoscaler, config_map, crd, deployment, outcomes, refuse

Clusters = dict[str, MemoryCluster]

MAP = ObjectRef("v1", "ConfigMap", "ml", "settings")
WEB = ObjectRef("apps/v1", "Deployment", "ml", "web")


@pytest.fixture
def watched(stack: Stack, clusters: Clusters) -> Callable[[], Counted]:
    """Let the app meet its cluster through a counter from now on, and give that."""
    counters: list[Counted] = []

    def opener(context: str) -> Any:
        counters.append(Counted(clusters[context]))
        return counters[-1]

    def begin() -> Counted:
        stack.opener = opener
        return counters[-1]

    stack.opener = opener
    return begin


def get(clusters: Clusters, ref: ObjectRef) -> dict[str, Any]:
    live = clusters["minikube"].get(ref)
    assert live is not None
    return live


def test_unchanged_objects_are_not_tried(stack: Stack, watched: Callable[[], Counted]) -> None:
    maps = [config_map(f"map-{number}", a="1") for number in range(40)]
    widget = {"apiVersion": "x.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    stack.write("a", crd(group="x.org"), widget, *maps)
    stack.apply()
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
    counter = watched()
    assert counter.asked["dry run"] == 0
    assert counter.asked["metadata"] == 3
    assert counter.written == []


def test_an_apply_of_what_is_there_asks_little(stack: Stack, watched: Callable[[], Counted]) -> None:
    stack.write("a", *(config_map(f"map-{number}", a="1") for number in range(6)), deployment())
    stack.apply()
    stack.apply()
    counter = watched()
    stack.apply()
    assert counter.total <= 7


def test_a_definition_of_two_apps_is_known_without_trying(
    stack: Stack, clusters: Clusters, tmp_path: Path, watched: Callable[[], Counted]
) -> None:
    other = Stack(
        tmp_path / "other", namespace="other", opener=clusters.__getitem__, name="other", clock=stack.clock
    )
    names = [f"widgets{number}" for number in range(6)]
    definitions = [crd(name, name.capitalize(), group="x.org") for name in names]
    other.write("a", *definitions)
    other.apply()
    stack.write("a", *definitions)
    assert stack.apply().counts == {"unchanged": 6, "created": 1}
    assert stack.apply().counts == {"unchanged": 6}
    assert watched().asked["dry run"] == 0

    def described(definition: dict[str, Any]) -> dict[str, Any]:
        changed = copy.deepcopy(definition)
        changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "other"
        return changed

    other.write("a", described(definitions[0]), *definitions[1:])
    other.apply()
    with pytest.raises(ConflictError, match="belongs to environment `minikube` of app `other`"):
        stack.apply()
    other.write("a", *definitions)
    other.apply()
    assert stack.apply().counts == {"unchanged": 6}
    assert watched().asked["dry run"] == 1
    assert stack.apply().counts == {"unchanged": 6}
    assert watched().asked["dry run"] == 0


def test_without_an_inventory_everything_is_tried_and_nothing_written(
    stack: Stack, clusters: Clusters, watched: Callable[[], Counted]
) -> None:
    stack.write("a", config_map(a="1"), deployment())
    stack.apply()
    before = get(clusters, WEB)["metadata"]["resourceVersion"]
    inventory = next(
        item["metadata"]["name"]
        for item in clusters["minikube"].list("v1", "ConfigMap", namespace="ml").items
        if item["metadata"]["name"].startswith("mlstack-")
    )
    clusters["minikube"].delete(ObjectRef("v1", "ConfigMap", "ml", inventory))
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
    assert watched().asked["dry run"] == 2
    assert get(clusters, WEB)["metadata"]["resourceVersion"] == before


def test_the_same_fields_of_another_environment_are_not_taken_for_unchanged(
    stack: Stack, clusters: Clusters
) -> None:
    stack.write("a", config_map(a="1"))
    stack.apply()
    stolen = get(clusters, MAP)
    stolen["metadata"] = {
        "name": "settings",
        "namespace": "ml",
        "labels": {**stolen["metadata"]["labels"], "mlstack.dev/environment": "gke"},
    }
    clusters["minikube"].apply({**stolen, "data": {"a": "2"}})
    assert [row.action for row in stack.diff().objects] != ["unchanged"]


def test_an_annotation_that_holds_no_path_is_an_error(stack: Stack) -> None:
    broken = config_map(a="1")
    broken["metadata"]["annotations"] = {"mlstack.dev/ignore-fields": "data..a"}
    stack.write("a", config_map(a="1"))
    stack.apply()
    stack.write("a", broken)
    with pytest.raises(
        ConfigError, match=r"annotation `mlstack.dev/ignore-fields` of `ConfigMap ml/settings`"
    ):
        stack.diff()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{path: data, take: mine}", "take"),
        ("{path: 'data..a', take: ours}", "is no path of a field"),
        ("{take: ours}", "path"),
        ("{path: data, take: ours, who: x}", "who"),
    ],
)
def test_wrong_rules_are_refused(stack: Stack, rule: str, message: str) -> None:
    file: Path = stack.root / "app.yaml"
    file.write_text(file.read_text() + f"conflicts:\n- {rule}\n")
    stack.write("a", config_map())
    with pytest.raises(SchemaError, match=message) as caught:
        stack.diff()
    assert "app.yaml:5" in f"{caught.value.message} {caught.value.where}"


def test_rules_of_the_app_are_followed(stack: Stack, clusters: Clusters) -> None:
    file: Path = stack.root / "app.yaml"
    file.write_text(file.read_text() + "conflicts:\n- {path: data.a, manager: operator, take: ours}\n")
    stack.write("a", config_map(a="1", b="1"))
    stack.apply()
    clusters["minikube"].patch(MAP, {"data": {"a": "x", "b": "x"}}, manager="operator")
    stack.apply()
    assert get(clusters, MAP)["data"] == {"a": "1", "b": "x"}


def test_what_goes_with_an_item_of_ours_is_said(stack: Stack, clusters: Clusters) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
    stack.write("a", deployment(env=env))
    stack.apply()
    theirs = get(clusters, WEB)["spec"]
    theirs["template"]["spec"]["containers"][0]["env"][0]["value"] = "theirs"
    clusters["minikube"].patch(WEB, {"spec": theirs}, manager="operator")
    stack.write("a", deployment(env=env[1:]))
    (row,) = stack.diff().objects
    assert row.notes[0] == (
        "removes `spec.template.spec.containers[main].env[A].value` of `operator` with what it is part of"
    )
    stack.apply()
    assert get(clusters, WEB)["spec"]["template"]["spec"]["containers"][0]["env"] == env[1:]


def test_adoption_takes_over_and_then_removes(stack: Stack, clusters: Clusters) -> None:
    theirs = deployment(args=["old"])
    theirs["metadata"] |= {"namespace": "ml", "labels": {"team": "ml"}}
    clusters["minikube"].create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    clusters["minikube"].create(theirs, manager="kubectl-client-side-apply")
    stack.write("a", deployment())
    (row,) = stack.diff().objects
    assert "taking it over with --adopt would remove `metadata.labels.team`" in row.notes[0]
    (row,) = stack.diff(adopt=True).objects
    assert ("metadata.labels.team", "removed") in [(field.path, field.action) for field in row.fields]
    stack.apply(adopt=True)
    live = get(clusters, WEB)
    assert "args" not in live["spec"]["template"]["spec"]["containers"][0]
    assert "team" not in live["metadata"]["labels"]
    assert stack.diff().ok


def by_hand(clusters: Clusters, patch: dict[str, Any], manager: str = "kubectl-edit") -> None:
    clusters["minikube"].patch(MAP, patch, manager=manager)


def test_what_a_person_changed_goes_when_the_files_drop_it(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map(a="1", b="1"))
    stack.apply()
    by_hand(clusters, {"data": {"b": "2"}})
    stack.write("a", config_map(a="1"))
    (row,) = stack.diff().objects
    assert [(field.path, field.action, field.old) for field in row.fields] == [("data.b", "removed", "2")]
    assert row.notes == ("removes `data.b`, which `kubectl-edit` changed and the files no longer have",)
    assert outcomes(stack.apply()) == {"settings": "updated"}
    assert get(clusters, MAP)["data"] == {"a": "1"}
    assert stack.diff().ok


def test_what_a_program_changed_stays_and_is_said_when_the_files_drop_it(
    stack: Stack, clusters: Clusters
) -> None:
    stack.write("a", config_map(a="1", b="1"))
    stack.apply()
    by_hand(clusters, {"data": {"b": "2"}}, manager="operator")
    stack.write("a", config_map(a="1"))
    report = stack.diff()
    assert report.ok
    assert report.notes == ("`ConfigMap ml/settings` leaves `data.b` to `operator`",)
    stack.apply()
    assert get(clusters, MAP)["data"] == {"a": "1", "b": "2"}
    assert stack.diff().notes == ()


def test_a_dropped_field_is_known_although_the_run_that_dropped_it_failed(
    stack: Stack, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.write("a", config_map(a="1", b="1"))
    stack.apply()
    by_hand(clusters, {"data": {"b": "2"}})
    stack.write("a", config_map(a="1"), config_map("new", x="1"))
    error = InvalidError("not now", causes=[Cause(field="x", message="y")])
    with monkeypatch.context() as refusing, pytest.raises(InvalidError, match="not now"):
        refuse(refusing, clusters["minikube"], "patch", lambda *_, **how: error)
        stack.apply()
    assert get(clusters, MAP)["data"] == {"a": "1", "b": "2"}
    assert stack.revisions()[0].result == "failed"
    assert [row.fields[0].path for row in stack.diff().objects if row.fields] == ["data.b"]
    stack.apply()
    assert get(clusters, MAP)["data"] == {"a": "1"}


def test_without_a_history_what_may_stay_is_said(
    stack: Stack, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.write("a", config_map(a="1", b="1"))
    stack.apply()
    by_hand(clusters, {"data": {"b": "2"}})
    stack.write("a", config_map(a="1"))
    error = ForbiddenError("no right to list Secret")
    refuse(monkeypatch, clusters["minikube"], "list", lambda _, kind, **how: kind == "Secret" and error)
    assert stack.diff().notes == (
        "what was applied before cannot be read, so fields that others changed and the files no longer have"
        " may stay: no right to list Secret",
    )


def broken(name: str) -> dict[str, Any]:
    return {**config_map(name), "nonsense": 1}


def test_everything_that_is_not_valid_is_told_before_anything_is_written(
    stack: Stack, clusters: Clusters
) -> None:
    stack.write("a", config_map("one", a="1"), config_map("two", a="1"))
    stack.apply()
    stack.write("a", broken("one"), broken("new"), config_map("two", a="2"))
    with pytest.raises(InvalidError) as caught:
        stack.apply()
    message = caught.value.message
    assert "2 objects were refused" in message and "`ConfigMap ml/one`, `ConfigMap ml/new`" in message
    stack.write("a", config_map("one", a="1"), broken("new"), config_map("two", a="2"))
    with pytest.raises(InvalidError, match="`ConfigMap ml/new` is refused"):
        stack.apply()
    two = clusters["minikube"].get(ObjectRef("v1", "ConfigMap", "ml", "two"))
    assert two is not None and two["data"] == {"a": "1"}


def test_a_first_apply_and_one_of_many_new_objects_do_not_ask_twice(
    stack: Stack, watched: Callable[[], Counted]
) -> None:
    stack.write("a", config_map())
    stack.apply()
    assert watched().asked["dry run"] == 0
    stack.write("a", config_map(), *(config_map(f"map-{number}") for number in range(40)))
    stack.apply()
    assert watched().asked["dry run"] == 0


def test_what_only_other_objects_of_the_run_let_pass_is_written(
    stack: Stack, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.write("a", config_map())
    stack.apply()
    faults = [
        InvalidError("`ConfigMap ml/new` is refused: no such account"),
        InvalidError("admission webhook `x` denied the request", causes=[Cause(field="data", message="no")]),
        ForbiddenError("exceeded quota", why="quota"),
        TransientError("admission webhook `x` does not answer", webhook="x"),
    ]

    def fault(obj: Any, **how: Any) -> Any:
        name = obj["metadata"]["name"]
        return how.get("dry_run") and name.startswith("new") and faults[int(name.removeprefix("new"))]

    refuse(monkeypatch, clusters["minikube"], "apply", fault)
    stack.write("a", config_map(), *(config_map(f"new{number}") for number in range(len(faults))))
    assert outcomes(stack.apply())["new0"] == "created"


@pytest.mark.parametrize("may_look", [True, False])
def test_the_number_of_an_autoscaler_that_went_before_comes_back(
    stack: Stack, clusters: Clusters, may_look: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters["minikube"]
    stack.write("a", deployment(replicas=3))
    stack.write("b", autoscaler())
    stack.apply(wait=False)
    cluster.patch(WEB, {"spec": {"replicas": 5}}, subresource="scale", manager="kube-controller-manager")
    stack.remove("b")
    stack.delete(components=("b",))
    error = None if may_look else ForbiddenError("you may not list autoscalers")
    refuse(monkeypatch, cluster, "list", lambda _, kind, **how: kind == "HorizontalPodAutoscaler" and error)
    stack.apply(wait=False)
    assert get(clusters, WEB)["spec"]["replicas"] == (3 if may_look else 5)


@pytest.mark.parametrize("brought", [True, False], ids=["with an autoscaler", "dropped by the files"])
def test_a_number_of_ours_stays_when_we_let_go_of_it(stack: Stack, clusters: Clusters, brought: bool) -> None:
    stack.write("a", deployment(replicas=3))
    stack.apply(wait=False)
    bare = deployment()
    del bare["spec"]["replicas"]
    stack.write("a", *([deployment(replicas=3), autoscaler()] if brought else [bare]))
    assert [row.action for row in stack.diff().objects if row.name == "web"] == ["unchanged"]
    stack.apply(wait=False)
    live = get(clusters, WEB)
    assert live["spec"]["replicas"] == 3
    owners = [
        entry["manager"]
        for entry in live["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]
    assert owners == ["mlstack-handover"]
    assert set(outcomes(stack.apply(wait=False)).values()) == {"unchanged"}


def test_a_number_that_the_object_says_is_ours_is_not_handed_over(stack: Stack, clusters: Clusters) -> None:
    wanted = deployment(replicas=3)
    wanted["metadata"]["annotations"] = {"mlstack.dev/force-fields": "spec.replicas"}
    stack.write("a", wanted, autoscaler())
    stack.apply(wait=False)
    clusters["minikube"].patch(
        WEB, {"spec": {"replicas": 5}}, subresource="scale", manager="kube-controller-manager"
    )
    stack.apply(wait=False)
    assert get(clusters, WEB)["spec"]["replicas"] == 3


def test_an_autoscaler_that_was_there_gets_the_number_at_once(stack: Stack, clusters: Clusters) -> None:
    clusters["minikube"].create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    clusters["minikube"].create({**autoscaler(), "metadata": {"name": "theirs", "namespace": "ml"}})
    stack.write("a", deployment(replicas=2))
    stack.apply(wait=False)
    live = get(clusters, WEB)
    assert live["spec"]["replicas"] == 2
    before = live["metadata"]["resourceVersion"]
    assert outcomes(stack.apply(wait=False)) == {"web": "unchanged"}
    assert get(clusters, WEB)["metadata"]["resourceVersion"] == before


def test_a_kind_of_the_apps_own_hands_its_number_over(stack: Stack, clusters: Clusters) -> None:
    definition = crd(group="x.org")
    scale = {"specReplicasPath": ".spec.workers", "statusReplicasPath": ".status.workers"}
    definition["spec"]["versions"][0]["subresources"] = {"status": {}, "scale": scale}
    widget = {
        "apiVersion": "x.org/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"workers": 3, "color": "red"},
    }
    hpa = autoscaler(api_version="x.org/v1", kind="Widget", of="w")
    stack.write("a", definition, widget, hpa)
    stack.apply(wait=False)
    live = get(clusters, ObjectRef("x.org/v1", "Widget", "ml", "w"))
    assert live["spec"] == {"workers": 3, "color": "red"}
    ours = next(entry for entry in live["metadata"]["managedFields"] if entry["manager"] == "mlstack")
    assert "f:workers" not in ours["fieldsV1"]["f:spec"]
    assert set(outcomes(stack.apply(wait=False)).values()) == {"unchanged"}


# --- two environments ---

PATCH = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: gke}\n"


@pytest.fixture
def two(stack: Stack) -> Stack:
    """An app whose environments differ in one value and in their namespaces."""
    stack.write("web", config_map(a="1", b="1"), deployment(replicas=2))
    stack.write_text("environments/gke/patches/web.yaml", PATCH)
    text = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\nnamespace: prod\n"
    stack.write_text("environments/gke/environment.yaml", text)
    return stack


def look(stack: Stack, left: str, right: str, **facts: Any) -> CompareResult:
    sides = read_side(left), read_side(right)
    return compare_environments(stack.target(**facts), *sides, opener=stack.opener)


def different(result: CompareResult) -> dict[str, ObjectChange]:
    return {row.object: row for row in result.objects if row.action != "unchanged"}


def values(row: ObjectChange) -> list[tuple[str, Any, Any]]:
    return [(field.path, field.old, field.new) for field in row.fields]


def test_clusters_are_compared_by_what_we_own_there(two: Stack, clusters: dict[str, MemoryCluster]) -> None:
    two.apply("minikube")
    two.apply("gke")
    clusters["gke"].patch(
        ObjectRef("apps/v1", "Deployment", "prod", "web"),
        {"spec": {"replicas": 2, "paused": True}},
        manager="kubectl-edit",
    )
    changes = different(look(two, "remote:minikube", "remote:gke"))
    assert changes.keys() == {"ConfigMap prod/settings"}


def test_components_filter_both_sides(two: Stack) -> None:
    two.write("more", config_map("more"))
    two.apply("minikube")
    two.apply("gke")
    result = look(two, "remote:minikube", "remote:gke", components=["more"])
    assert result.ok
    result = look(two, "local:minikube", "remote:gke", components=["more"])
    assert {row.name for row in result.objects} == {"more"}


def test_comparing_writes_nothing(two: Stack, clusters: dict[str, MemoryCluster]) -> None:
    two.apply("gke")
    before = clusters["gke"].list("v1", "ConfigMap").resource_version
    look(two, "local:minikube", "remote:gke")
    look(two, "remote:minikube", "remote:gke")
    assert clusters["gke"].list("v1", "ConfigMap").resource_version == before
