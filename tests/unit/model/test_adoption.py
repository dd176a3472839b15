"""Taking objects over from other tools: whose entries, and what then belongs to nobody."""

from typing import Any

import pytest

from mlstack.deploy import adopt
from mlstack.objects import managed_fields


def live(*entries: tuple[str, str, dict[str, Any]], subresource: str = "") -> dict[str, Any]:
    listed = [
        {
            "manager": manager,
            "operation": operation,
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
            **({"subresource": subresource} if subresource else {}),
        }
        for manager, operation, tree in entries
    ]
    return {"metadata": {"resourceVersion": "7", "managedFields": listed}}


DATA = {"f:data": {"f:a": {}, "f:b": {}}}


@pytest.mark.parametrize(
    ("manager", "operation", "taken"),
    [
        ("kubectl-client-side-apply", "Update", True),
        ("kubectl-create", "Update", True),
        ("kubectl", "Apply", True),
        ("helm", "Apply", True),
        ("helm", "Update", True),
        ("before-first-apply", "Update", True),
        ("kubectl-rollout", "Update", False),
        ("kubectl", "Update", False),
        ("kubectl-edit", "Update", False),
        ("argocd-controller", "Apply", False),
    ],
)
def test_tools_that_applied_are_told_from_those_that_changed(
    manager: str, operation: str, taken: bool
) -> None:
    assert bool(adopt.adoptable(live((manager, operation, DATA)))) is taken


def test_nothing_written_through_a_subresource_is_taken() -> None:
    assert not adopt.adoptable(live(("helm", "Update", DATA), subresource="status"))


def test_what_goes_is_theirs_and_nobody_elses() -> None:
    found = live(
        ("helm", "Apply", {"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}}),
        ("operator", "Update", {"f:data": {"f:c": {}}}),
    )
    assert adopt.going(found, {"f:data": {"f:a": {}}}) == {"f:data": {"f:b": {}}}
    assert adopt.going(found, {}, spare=[("f:data", "f:a")]) == {"f:data": {"f:b": {}}}


def test_entries_become_one_of_ours_and_others_stay() -> None:
    found = live(
        ("mlstack", "Apply", {"f:data": {"f:a": {}}}),
        ("helm", "Apply", {"f:data": {"f:b": {}}, "f:spec": {"f:replicas": {}}}),
        ("operator", "Update", {"f:data": {"f:c": {}}}),
    )
    test, replace = adopt.take_over(found, api_version="v1", spare=[("f:spec", "f:replicas")])
    assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    mine, other = replace["value"]
    assert (mine["manager"], mine["operation"]) == ("mlstack", "Apply")
    assert mine["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}
    assert other == found["metadata"]["managedFields"][2]


def test_entries_of_every_version_are_written_down_in_one() -> None:
    found = live(("mlstack", "Apply", DATA), ("operator", "Update", DATA))
    found["metadata"]["managedFields"][0]["apiVersion"] = "x.org/v1alpha1"
    _, replace = adopt.reversioned(found, api_version="x.org/v1")
    assert [one["apiVersion"] for one in replace["value"]] == ["x.org/v1", "x.org/v1"]
    assert [
        one.tree for one in managed_fields.entries({"metadata": {"managedFields": replace["value"]}})
    ] == [
        DATA,
        DATA,
    ]


@pytest.mark.parametrize(
    ("path", "allocated"),
    [("spec.clusterIP", True), ("spec.ports[80,TCP].nodePort", True), ("spec.type", False)],
)
def test_what_the_server_allocates_is_kept(path: str, allocated: bool) -> None:
    assert adopt.is_allocated(path) is allocated
