"""List items that a person put in the place of ours."""

from typing import Any

from mlstack.deploy.adopt import displaced, take_items
from mlstack.errors import Cause
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER

KEY_81 = 'k:{"port":81,"protocol":"TCP"}'
ITEM = ("f:spec", "f:ports", KEY_81)
BELOW = {".": {}, "f:port": {}}
WANTED = {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}
REQUIRED = [Cause(field="spec.ports[1].name", message="Required value")]


def entry(manager: str, operation: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": {"f:spec": spec}}


def service(*others: dict[str, Any]) -> dict[str, Any]:
    """Give a Service whose port was changed from 80 to 81 by the first of these managers."""
    ours = entry(MANAGER, "Apply", {"f:selector": {}})
    metadata = {"name": "web", "resourceVersion": "7", "managedFields": [ours, *others]}
    return {"metadata": metadata, "spec": {"ports": [{"port": 81, "protocol": "TCP"}], "selector": {}}}


PATCHED = service(entry("kubectl-patch", "Update", {"f:ports": {KEY_81: BELOW}, "f:type": {}}))


def test_an_item_that_a_person_put_in_place_of_ours_is_found() -> None:
    assert displaced(PATCHED, WANTED, REQUIRED) == (ITEM,)


def test_items_of_programs_and_of_lists_that_are_not_ours_stay() -> None:
    by_a_program = service(entry("some-operator", "Update", {"f:ports": {KEY_81: BELOW}}))
    assert displaced(by_a_program, WANTED, REQUIRED) == ()
    assert displaced(PATCHED, {"spec": {"selector": {}}}, REQUIRED) == ()


def test_a_fault_of_something_else_is_not_cured_by_it() -> None:
    assert displaced(PATCHED, WANTED, [*REQUIRED, Cause(field="spec.clusterIP", message="fixed")]) == ()
    assert displaced(PATCHED, WANTED, []) == ()


def test_taken_items_are_ours_and_the_rest_stays_with_its_owner() -> None:
    version, replaced = take_items(PATCHED, [ITEM], api_version="v1")
    assert version == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    after = {"metadata": {"managedFields": replaced["value"]}}
    assert managed_fields.owned(after, MANAGER) == {"f:spec": {"f:selector": {}, "f:ports": {KEY_81: BELOW}}}
    (theirs,) = [one for one in managed_fields.entries(after) if one.manager == "kubectl-patch"]
    assert theirs.tree == {"f:spec": {"f:type": {}}}


def test_an_owner_of_nothing_any_more_goes() -> None:
    alone = service(entry("kubectl-edit", "Update", {"f:ports": {KEY_81: BELOW}}))
    _, replaced = take_items(alone, [ITEM], api_version="v1")
    assert [one["manager"] for one in replaced["value"]] == [MANAGER]
