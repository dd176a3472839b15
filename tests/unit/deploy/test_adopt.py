"""What becomes of fields that other tools and people own."""

from typing import Any

import pytest

from mlstack.deploy import replacement
from mlstack.deploy.adopt import displaced, dropped, fields_of_no_file, own
from mlstack.deploy.conflicts import ConflictPolicy
from mlstack.errors import Cause
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER
from mlstack.objects.managed_fields import Owner, path_text, read_list


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
    assert bool(managed_fields.adoptable(live((manager, operation, DATA)))) is taken


def test_nothing_written_through_a_subresource_is_taken() -> None:
    assert not managed_fields.adoptable(live(("helm", "Update", DATA), subresource="status"))


def test_entries_become_one_of_ours_and_others_stay() -> None:
    found = live(
        ("mlstack", "Apply", {"f:data": {"f:a": {}}}),
        ("helm", "Apply", {"f:data": {"f:b": {}}, "f:spec": {"f:replicas": {}}}),
        ("operator", "Update", {"f:data": {"f:c": {}}}),
    )
    test, replace = own(found, api_version="v1", adopt=True, spare=[("f:spec", "f:replicas")])
    assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    mine, other = replace["value"]
    assert (mine["manager"], mine["operation"]) == ("mlstack", "Apply")
    assert mine["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}
    assert other == found["metadata"]["managedFields"][2]


@pytest.mark.parametrize(
    ("path", "allocated"),
    [("spec.clusterIP", True), ("spec.ports[80,TCP].nodePort", True), ("spec.type", False)],
)
def test_what_the_server_allocates_is_kept(path: str, allocated: bool) -> None:
    assert replacement.is_allocated(path) is allocated


EDITED_GOES = (["kubectl-edit data.b"], [])
PORT = 'k:{"port":81,"protocol":"TCP"}'
WANTED = {"data": {"a": "1"}}
EDIT = ("kubectl-edit", "Update", "", {"f:data": {"f:b": {}}})
OURS = (MANAGER, "Apply", "", {"f:data": {"f:a": {}}})


def live_of(*entries: tuple[str, str, str, dict[str, Any]], **content: Any) -> dict[str, Any]:
    managed = [
        {"manager": name, "operation": how, "subresource": sub, "fieldsV1": tree}
        for name, how, sub, tree in entries
    ]
    return {"metadata": {"managedFields": managed}, "data": {"a": "1", "b": "2"}, **content}


Parted = tuple[list[str], list[str]]
NOTHING: Parted = ([], [])


def judged(
    found: dict[str, Any],
    *applied: Any,
    wanted: Any = WANTED,
    policy: ConflictPolicy = ConflictPolicy(),  # noqa: B008
    after: dict[str, Any] | None = None,
    **facts: Any,
) -> Parted:
    """Give manager and path of each field that goes, and of each that stays."""
    fields = fields_of_no_file(after or found, wanted)
    going, staying = (
        [f"{owner.manager} {path_text(path)}" for owner, path in part]
        for part in dropped(fields, found, applied, policy, **facts)
    )
    return going, staying


def test_what_a_person_changed_and_the_files_dropped_goes() -> None:
    assert judged(live_of(OURS, EDIT), {"data": {"a": "1", "b": "1"}}) == EDITED_GOES


def test_what_a_person_added_was_never_ours() -> None:
    assert judged(live_of(OURS, EDIT), {"data": {"a": "1"}}) == NOTHING
    assert judged(live_of(OURS, EDIT)) == NOTHING


def test_any_of_the_sets_before_may_have_brought_it() -> None:
    assert judged(live_of(OURS, EDIT), {"data": {"a": "1"}}, {"data": {"b": "0"}}) == EDITED_GOES


def test_what_the_files_still_have_is_no_matter_of_this() -> None:
    both = {"data": {"a": "1", "b": "1"}}
    assert judged(live_of(OURS, EDIT), both, wanted=both) == NOTHING


@pytest.mark.parametrize("manager", ["vpa-updater", "argocd"])
def test_what_a_program_owns_stays_and_is_told(manager: str) -> None:
    theirs = (manager, "Update", "", {"f:data": {"f:b": {}}})
    found = judged(live_of(OURS, theirs), {"data": {"b": "1"}})
    assert found == ([], [f"{manager} data.b"])


def test_a_program_beside_a_person_keeps_it() -> None:
    theirs = ("argocd", "Apply", "", {"f:data": {"f:b": {}}})
    found = judged(live_of(OURS, EDIT, theirs), {"data": {"b": "1"}})
    assert found[0] == []
    assert "argocd data.b" in found[1]


def test_rules_of_the_app_and_annotations_decide() -> None:
    once = {"data": {"b": "1"}}
    theirs = ("operator", "Update", "", {"f:data": {"f:b": {}}})
    for policy in (ConflictPolicy(force=read_list("data.b")), ConflictPolicy(forced=True)):
        assert judged(live_of(OURS, theirs), once, policy=policy) == (["operator data.b"], [])
    ignoring = ConflictPolicy(ignore=read_list("data.b"))
    assert judged(live_of(OURS, EDIT), once, policy=ignoring) == NOTHING


def test_spared_fields_stay_and_are_told() -> None:
    replicas = ("kubectl", "Update", "scale", {"f:spec": {"f:replicas": {}}})
    found = judged(
        live_of(OURS, replicas, spec={"replicas": 5}), {"spec": {"replicas": 3}}, spare=[_REPLICAS]
    )
    assert found == ([], ["kubectl spec.replicas"])


_REPLICAS = ("f:spec", "f:replicas")


def test_what_a_tool_applied_beside_us_stays_until_it_is_taken_over() -> None:
    before = (MANAGER, "Apply", "", {"f:data": {"f:a": {}, "f:b": {}}})
    theirs = ("kubectl", "Apply", "", {"f:data": {"f:b": {}}})
    after, now = live_of(OURS, theirs), live_of(before, theirs)
    assert judged(now, after=after) == ([], ["kubectl data.b"])
    adopting = ConflictPolicy(adopted=frozenset({Owner(manager="kubectl", operation="Apply")}))
    assert judged(now, after=after, policy=adopting) == (["kubectl data.b"], [])


def test_a_whole_item_is_known_by_its_keys_although_one_was_not_written() -> None:
    below = {".": {}, "f:port": {}, "f:name": {}}
    edit = ("kubectl-edit", "Update", "", {"f:spec": {"f:ports": {PORT: below}}})
    item = {"port": 81, "protocol": "TCP", "name": "x"}
    found = judged(
        live_of(OURS, edit, spec={"ports": [item]}), {"spec": {"ports": [{"port": 81, "name": "y"}]}}
    )
    assert found == (["kubectl-edit spec.ports[81,TCP]"], [])


def test_only_values_count_not_the_maps_around_them() -> None:
    edit = ("kubectl-create", "Update", "", {"f:data": {".": {}, "f:c": {}}})
    found = judged(live_of(OURS, edit, data={"a": "1", "c": "3"}), {"data": {"a": "1"}})
    assert found == NOTHING


KEY_81 = 'k:{"port":81,"protocol":"TCP"}'
ITEM = ("f:spec", "f:ports", KEY_81)
BELOW = {".": {}, "f:port": {}}
SERVICE = {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}
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
    assert displaced(PATCHED, SERVICE, REQUIRED) == (ITEM,)


def test_items_of_programs_and_of_lists_that_are_not_ours_stay() -> None:
    by_a_program = service(entry("some-operator", "Update", {"f:ports": {KEY_81: BELOW}}))
    assert displaced(by_a_program, SERVICE, REQUIRED) == ()
    assert displaced(PATCHED, {"spec": {"selector": {}}}, REQUIRED) == ()


def test_a_fault_of_something_else_is_not_cured_by_it() -> None:
    assert displaced(PATCHED, SERVICE, [*REQUIRED, Cause(field="spec.clusterIP", message="fixed")]) == ()
    assert displaced(PATCHED, SERVICE, []) == ()


def test_taken_items_are_ours_and_the_rest_stays_with_its_owner() -> None:
    version, replaced = own(PATCHED, api_version="v1", paths=[ITEM])
    assert version == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    after = {"metadata": {"managedFields": replaced["value"]}}
    assert managed_fields.owned(after, MANAGER) == {"f:spec": {"f:selector": {}, "f:ports": {KEY_81: BELOW}}}
    (theirs,) = [one for one in managed_fields.entries(after) if one.owner.manager == "kubectl-patch"]
    assert theirs.tree == {"f:spec": {"f:type": {}}}


def test_an_owner_of_nothing_any_more_goes() -> None:
    alone = service(entry("kubectl-edit", "Update", {"f:ports": {KEY_81: BELOW}}))
    _, replaced = own(alone, api_version="v1", paths=[ITEM])
    assert [one["manager"] for one in replaced["value"]] == [MANAGER]
