"""What the real client sends for each verb, and how it reads lists, kinds and watches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlstack import http
from mlstack.errors import (
    ForbiddenError,
    InvalidError,
    ObjectNotFoundError,
    TransientError,
    WatchExpiredError,
)
from mlstack.kube.client import ObjectRef
from tests.support.fakeapi import Answer, Serve, always, in_turn, status

MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "q", "resourceVersion": "7"},
}
REF = ObjectRef("v1", "ConfigMap", "q", "a")
PATH = "/api/v1/namespaces/q/configmaps/a"


# What is sent


def test_apply_is_one_server_side_apply_with_strict_fields(served: Serve) -> None:
    api, cluster = served(always(Answer(code=201, body=MAP, headers=(("Warning", '299 - "old"'),))))
    applied = cluster.apply(MAP, manager="m", force=True, dry_run=True)
    (request,) = api.asked
    assert (request.method, request.path) == ("PATCH", PATH)
    assert request.query == {
        "fieldManager": "m",
        "fieldValidation": "Strict",
        "force": "true",
        "dryRun": "All",
    }
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert request.headers["authorization"] == "Bearer token-of-tests"
    assert request.body == MAP
    assert (applied.created, applied.warnings, applied.object) == (True, ("old",), MAP)


LAST = {"lines": 5, "most_bytes": 900, "timeout_s": 2.0}


def test_logs_are_text_and_asked_for_once(served: Serve) -> None:
    api, cluster = served(always(Answer(body="one\nlast", content_type="text/plain")))
    assert cluster.logs(ObjectRef("v1", "Pod", "q", "p"), "main", previous=True, **LAST) == "one\nlast"
    (request,) = api.asked
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/q/pods/p/log")
    assert request.query == {"container": "main", "previous": "true", "tailLines": "5", "limitBytes": "900"}
    assert request.headers["accept"] == "*/*"


def test_a_node_that_breaks_off_is_not_the_api_server(served: Serve) -> None:
    api, cluster = served(always(Answer(breaks=True)))
    with pytest.raises(TransientError) as caught:
        cluster.logs(ObjectRef("v1", "Pod", "q", "p"), "main", **LAST)
    assert caught.value.message == "`Pod q/p`: its node does not give its logs"
    assert len(api.asked) == 1


def test_delete_puts_everything_into_the_body(served: Serve) -> None:
    api, cluster = served(always(Answer(body={"kind": "Status", "status": "Success"})))
    answer = cluster.delete(REF, propagation="Background", uid="u", resource_version="7", grace_period_s=0)
    (request,) = api.asked
    assert answer is None
    assert request.query == {}
    assert request.body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }


def test_delete_names_the_propagation_by_default(served: Serve) -> None:
    api, cluster = served(always(Answer(body={"kind": "Status"})))
    cluster.delete(REF)
    assert api.asked[0].body["propagationPolicy"] == "Foreground"


def test_delete_gives_the_object_while_finalizers_hold_it(served: Serve) -> None:
    held = {
        **MAP,
        "metadata": {**MAP["metadata"], "deletionTimestamp": "2026-11-23T06:00:00Z", "finalizers": ["f"]},
    }  # type: ignore[dict-item]
    _, cluster = served(always(Answer(body=held)))
    assert cluster.delete(REF) == held


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [("merge", "application/merge-patch+json"), ("json", "application/json-patch+json")],
)
def test_patch_goes_to_the_subresource(served: Serve, kind: Any, content_type: str) -> None:
    api, cluster = served(always(Answer(body=MAP)))
    cluster.patch(REF, {"status": {}}, kind=kind, subresource="status", manager="m")
    assert api.asked[0].path == f"{PATH}/status"
    assert api.asked[0].query["fieldManager"] == "m"
    assert api.asked[0].headers["content-type"] == content_type


def test_names_are_quoted_in_paths(served: Serve) -> None:
    api, cluster = served(always(Answer(body=MAP)))
    cluster.get(ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:a/b?c"))
    assert api.asked[0].path == "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%2Fb%3Fc"


def test_a_list_is_read_page_by_page_and_every_item_knows_its_kind(served: Serve) -> None:
    first = {
        "metadata": {"resourceVersion": "9", "continue": "token"},
        "items": [{"metadata": {"name": "a"}}],
    }
    last = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "b"}}]}
    api, cluster = served(in_turn(Answer(body=first), Answer(body=last)))
    listing = cluster.list("v1", "ConfigMap", namespace="q", labels="a=b", fields="metadata.name=x")
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
    assert {(item["apiVersion"], item["kind"]) for item in listing.items} == {("v1", "ConfigMap")}
    assert listing.resource_version == "9"
    assert api.asked[0].query["labelSelector"] == "a=b"
    assert api.asked[0].query["fieldSelector"] == "metadata.name=x"
    assert api.asked[1].query["continue"] == "token"


def test_a_list_that_expires_between_pages_is_read_in_one_piece(served: Serve) -> None:
    page = Answer(body={"metadata": {"resourceVersion": "1", "continue": "token"}, "items": [MAP]})
    whole = Answer(body={"metadata": {"resourceVersion": "2"}, "items": None})
    api, cluster = served(in_turn(page, status(410, "expired", reason="Expired"), whole))
    assert cluster.list("v1", "ConfigMap").items == ()
    assert "limit" not in api.asked[2].query


def test_a_metadata_list_asks_for_no_more(served: Serve) -> None:
    api, cluster = served(
        always(
            Answer(
                body={
                    "metadata": {"resourceVersion": "1"},
                    "items": [{**MAP, "kind": "PartialObjectMetadata"}],
                }
            )
        )
    )
    assert cluster.list("v1", "ConfigMap", metadata_only=True).items[0]["kind"] == "ConfigMap"
    assert "PartialObjectMetadataList" in api.asked[0].headers["accept"]


# Kinds


def aggregated(group: str, kind: str, plural: str) -> dict[str, Any]:
    resource = {"resource": plural, "scope": "Namespaced", "responseKind": {"kind": kind}}
    return {"metadata": {"name": group}, "versions": [{"version": "v1", "resources": [resource]}]}


def test_kinds_come_from_two_requests(served: Serve) -> None:
    media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = {"/api": aggregated("", "Pod", "pods"), "/apis": aggregated("kubeflow.org", "TFJob", "tfjobs")}
    api, cluster = served(
        lambda request: Answer(body={"items": [groups[request.path]]}, content_type=media)
        if request.path in groups
        else Answer(body=MAP)
    )
    kind = cluster.kinds().lookup("kubeflow.org/v1", "TFJob")
    assert kind is not None
    assert (kind.plural, kind.namespaced) == ("tfjobs", True)
    cluster.get(ObjectRef("kubeflow.org/v1", "TFJob", "q", "cnn"))
    paths = [request.path for request in api.asked]
    assert sorted(paths[:2]) == ["/api", "/apis"]
    assert paths[2:] == ["/apis/kubeflow.org/v1/namespaces/q/tfjobs/cnn"]


def test_older_servers_are_asked_group_by_group_and_one_broken_group_hides_no_other(served: Serve) -> None:
    pages: dict[str, Answer] = {
        "/api": Answer(body={"versions": ["v1"]}),
        "/apis": Answer(
            body={
                "groups": [
                    {"versions": [{"groupVersion": "metrics.k8s.io/v1"}]},
                    {"versions": [{"groupVersion": "kubeflow.org/v1"}]},
                ]
            }
        ),
        "/api/v1": Answer(
            body={
                "groupVersion": "v1",
                "resources": [
                    {"name": "nodes", "kind": "Node", "namespaced": False},
                    {"name": "nodes/status", "kind": "Node", "namespaced": False},
                ],
            }
        ),
        "/apis/metrics.k8s.io/v1": Answer(code=503, body="no endpoints", content_type="text/plain"),
        "/apis/kubeflow.org/v1": Answer(
            body={
                "groupVersion": "kubeflow.org/v1",
                "resources": [{"name": "tfjobs", "kind": "TFJob", "namespaced": True}],
            }
        ),
    }
    _, cluster = served(lambda request: pages[request.path])
    assert {(kind.api_version, kind.plural) for kind in cluster.kinds()} == {
        ("v1", "nodes"),
        ("kubeflow.org/v1", "tfjobs"),
    }


def test_an_unknown_kind_is_asked_for_once_more_then_told(served: Serve) -> None:
    api, cluster = served(always(Answer(body={"versions": [], "groups": []})))
    with pytest.raises(ObjectNotFoundError) as caught:
        cluster.list("kubeflow.org/v1", "TFJob")
    assert caught.value.what == "kind"
    assert sorted(request.path for request in api.asked) == ["/api", "/api", "/apis", "/apis"]
    assert cluster.get(ObjectRef("kubeflow.org/v1", "TFJob", "q", "cnn")) is None


def test_a_kind_we_define_ourselves_is_known_before_discovery_shows_it(served: Serve) -> None:
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "tfjobs.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "names": {"kind": "TFJob", "plural": "tfjobs"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
    }
    api, cluster = served(always(Answer(body=crd)))
    cluster.apply(crd)
    cluster.get(ObjectRef("kubeflow.org/v1", "TFJob", "q", "cnn"))
    assert api.asked[-1].path == "/apis/kubeflow.org/v1/namespaces/q/tfjobs/cnn"


# Objects that cannot be sent


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "q"}}, "has no name"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, "needs a namespace"),
        ({**MAP, "data": {"x": float("nan")}}, "cannot be written as JSON"),
    ],
    ids=["name", "namespace", "nan"],
)
def test_objects_that_cannot_be_addressed_are_not_sent(served: Serve, obj: dict[str, Any], text: str) -> None:
    api, cluster = served(always(Answer(body={})))
    with pytest.raises(InvalidError, match=text):
        cluster.apply(obj)
    assert api.asked == []


# Watches


def line(kind: str, name: str, version: str = "1", **metadata: Any) -> bytes:
    obj = {"metadata": {"name": name, "resourceVersion": version, **metadata}}
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


END = {"annotations": {"k8s.io/initial-events-end": "true"}}


def test_a_watch_begins_with_what_there_is_and_ends_with_its_connection(served: Serve) -> None:
    whole = line("ADDED", "a") + line("BOOKMARK", "", "5", **END) + line("DELETED", "a", "6")
    api, cluster = served(always(Answer(body=[whole[:30], whole[30:95], whole[95:]], breaks=True)))
    events = list(cluster.watch("v1", "ConfigMap", namespace="q", labels="a=b", timeout_s=2.5))
    assert [event.type for event in events] == ["ADDED", "BOOKMARK", "DELETED"]
    assert [event.is_initial_end for event in events] == [False, True, False]
    assert events[2].resource_version == "6"
    assert events[0].object["kind"] == "ConfigMap"
    (request,) = api.asked
    assert request.query["sendInitialEvents"] == "true"
    assert request.query["timeoutSeconds"] == "3"


def test_a_watch_goes_on_from_a_version(served: Serve) -> None:
    api, cluster = served(always(Answer(body=[line("MODIFIED", "a", "8")])))
    assert len(list(cluster.watch("v1", "ConfigMap", resource_version="7", timeout_s=1))) == 1
    assert api.asked[0].query["resourceVersion"] == "7"
    assert "sendInitialEvents" not in api.asked[0].query


def test_older_servers_are_listed_first(served: Serve) -> None:
    listed = {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]}
    refused = status(422, "sendInitialEvents is forbidden", reason="Invalid")
    api, cluster = served(in_turn(refused, Answer(body=listed), Answer(body=[line("MODIFIED", "a", "6")])))
    events = list(cluster.watch("v1", "ConfigMap", timeout_s=1))
    assert [event.type for event in events] == ["ADDED", "BOOKMARK", "MODIFIED"]
    assert events[1].is_initial_end
    assert api.asked[2].query["resourceVersion"] == "5"


def test_an_expired_watch_says_list_again(served: Serve) -> None:
    expired = {"type": "ERROR", "object": status(410, "too old resource version", reason="Expired").body}
    _, cluster = served(always(Answer(body=[json.dumps(expired).encode() + b"\n"])))
    with pytest.raises(WatchExpiredError):
        list(cluster.watch("v1", "ConfigMap", resource_version="1", timeout_s=1))


def test_the_error_that_ends_a_watch_keeps_no_connection(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up, give_up = [], http.give_up
    monkeypatch.setattr(http, "give_up", lambda raw: (given_up.append(raw), give_up(raw)))
    expired = {"type": "ERROR", "object": status(410, "too old resource version", reason="Expired").body}
    _, cluster = served(always(Answer(body=[json.dumps(expired).encode() + b"\n"])))
    with pytest.raises(WatchExpiredError) as caught:
        list(cluster.watch("v1", "ConfigMap", resource_version="1", timeout_s=1))
    assert (len(given_up), caught.tb is not None) == (1, True)


def test_a_refused_watch_is_an_error(served: Serve) -> None:
    _, cluster = served(
        always(status(403, 'User "u" cannot watch resource "configmaps"', reason="Forbidden"))
    )
    with pytest.raises(ForbiddenError):
        list(cluster.watch("v1", "ConfigMap", timeout_s=1))
