"""Whose fields a forced apply takes."""

from typing import Any

import pytest

from mlstack.model import conflicts
from mlstack.model.conflicts import Taken

REPLICAS = {"f:spec": {"f:replicas": {}}}


def managed(**managers: dict[str, Any]) -> dict[str, Any]:
    entries = [
        {"manager": name, "operation": "Apply" if name == "mlstack" else "Update", "fieldsV1": tree}
        for name, tree in managers.items()
    ]
    return {"metadata": {"managedFields": entries}}


def test_fields_another_manager_loses_are_named() -> None:
    live = managed(hpa={**REPLICAS, "f:other": {}}, mlstack={})
    forced = managed(hpa={"f:other": {}}, mlstack=REPLICAS)
    assert conflicts.taken(live, forced) == (Taken(manager="hpa", subresource="", paths=("spec.replicas",)),)


def test_a_manager_that_loses_everything_is_named() -> None:
    assert conflicts.taken(managed(hpa=REPLICAS), managed(mlstack=REPLICAS))[0].manager == "hpa"


def test_shared_fields_are_no_loss() -> None:
    assert conflicts.taken(managed(hpa=REPLICAS), managed(hpa=REPLICAS, mlstack=REPLICAS)) == ()


def test_what_a_controller_drops_itself_is_no_loss() -> None:
    live = managed(controller={"f:status": {"f:conditions": {}}})
    assert conflicts.taken(live, managed(mlstack=REPLICAS)) == ()


@pytest.mark.parametrize(
    ("manager", "person"),
    [
        ("kubectl", True),
        ("kubectl-edit", True),
        ("kubectl-client-side-apply", True),
        ("k9s", True),
        ("before-first-apply", True),
        ("helm", False),
        ("kube-controller-manager", False),
        ("argocd-controller", False),
    ],
)
def test_peoples_tools_are_told_from_programs(manager: str, person: bool) -> None:
    assert Taken(manager=manager, subresource="", paths=("a",)).by_person is person
