"""Fields that the files had once, and that others own by now."""

from typing import Any

import pytest

from mlstack.deploy.adopt import RemovedFields, dropped, strange
from mlstack.deploy.conflicts import ConflictPolicy
from mlstack.objects.kube_object import MANAGER
from mlstack.objects.managed_fields import Owner, read_list

B = ("f:data", "f:b")
PORT = 'k:{"port":81,"protocol":"TCP"}'
WANTED = {"data": {"a": "1"}}
EDIT = ("kubectl-edit", "Update", "", {"f:data": {"f:b": {}}})
OURS = (MANAGER, "Apply", "", {"f:data": {"f:a": {}}})


def live(*entries: tuple[str, str, str, dict[str, Any]], **content: Any) -> dict[str, Any]:
    managed = [
        {"manager": name, "operation": how, "subresource": sub, "fieldsV1": tree}
        for name, how, sub, tree in entries
    ]
    return {"metadata": {"managedFields": managed}, "data": {"a": "1", "b": "2"}, **content}


def judged(found: dict[str, Any], *applied: Any, wanted: Any = WANTED, **facts: Any) -> RemovedFields:
    policy = facts.pop("policy", ConflictPolicy())
    return dropped(strange(found, wanted), found, applied, policy, **facts)


def told(found: RemovedFields) -> tuple[list[str], list[str]]:
    return (
        [f"{one.owner.manager} {text}" for one in found.taken for text in one.texts],
        [f"{one.owner.manager} {text}" for one in found.left for text in one.texts],
    )


def test_what_a_person_changed_and_the_files_dropped_goes() -> None:
    found = judged(live(OURS, EDIT), {"data": {"a": "1", "b": "1"}})
    assert told(found) == (["kubectl-edit data.b"], [])
    assert found.paths == (B,)


def test_what_a_person_added_was_never_ours() -> None:
    assert judged(live(OURS, EDIT), {"data": {"a": "1"}}) == RemovedFields()
    assert judged(live(OURS, EDIT)) == RemovedFields()


def test_any_of_the_sets_before_may_have_brought_it() -> None:
    assert judged(live(OURS, EDIT), {"data": {"a": "1"}}, {"data": {"b": "0"}}).paths == (B,)


def test_what_the_files_still_have_is_no_matter_of_this() -> None:
    both = {"data": {"a": "1", "b": "1"}}
    assert judged(live(OURS, EDIT), both, wanted=both) == RemovedFields()


@pytest.mark.parametrize("manager", ["vpa-updater", "argocd"])
def test_what_a_program_owns_stays_and_is_told(manager: str) -> None:
    theirs = (manager, "Update", "", {"f:data": {"f:b": {}}})
    found = judged(live(OURS, theirs), {"data": {"b": "1"}})
    assert told(found) == ([], [f"{manager} data.b"])


def test_a_program_beside_a_person_keeps_it() -> None:
    theirs = ("argocd", "Apply", "", {"f:data": {"f:b": {}}})
    found = judged(live(OURS, EDIT, theirs), {"data": {"b": "1"}})
    assert found.taken == ()
    assert "argocd data.b" in told(found)[1]


def test_rules_of_the_app_and_annotations_decide() -> None:
    once = {"data": {"b": "1"}}
    theirs = ("operator", "Update", "", {"f:data": {"f:b": {}}})
    assert judged(live(OURS, theirs), once, policy=ConflictPolicy(force=read_list("data.b"))).paths == (B,)
    assert judged(live(OURS, theirs), once, policy=ConflictPolicy(forced=True)).paths == (B,)
    assert (
        judged(live(OURS, EDIT), once, policy=ConflictPolicy(ignore=read_list("data.b"))) == RemovedFields()
    )


def test_spared_fields_stay_and_are_told() -> None:
    replicas = ("kubectl", "Update", "scale", {"f:spec": {"f:replicas": {}}})
    found = judged(live(OURS, replicas, spec={"replicas": 5}), {"spec": {"replicas": 3}}, spare=[_REPLICAS])
    assert told(found) == ([], ["kubectl spec.replicas"])


_REPLICAS = ("f:spec", "f:replicas")


def test_what_a_tool_applied_beside_us_stays_until_it_is_taken_over() -> None:
    before = (MANAGER, "Apply", "", {"f:data": {"f:a": {}, "f:b": {}}})
    theirs = ("kubectl", "Apply", "", {"f:data": {"f:b": {}}})
    found = strange(live(OURS, theirs), WANTED)
    now = live(before, theirs)
    assert told(dropped(found, now, (), ConflictPolicy())) == ([], ["kubectl data.b"])
    adopting = ConflictPolicy(adopted=frozenset({Owner(manager="kubectl", operation="Apply")}))
    assert dropped(found, now, (), adopting).paths == (B,)


def test_a_whole_item_is_known_by_its_keys_although_one_was_not_written() -> None:
    below = {".": {}, "f:port": {}, "f:name": {}}
    edit = ("kubectl-edit", "Update", "", {"f:spec": {"f:ports": {PORT: below}}})
    item = {"port": 81, "protocol": "TCP", "name": "x"}
    found = judged(live(OURS, edit, spec={"ports": [item]}), {"spec": {"ports": [{"port": 81, "name": "y"}]}})
    assert found.paths == (("f:spec", "f:ports", PORT),)


def test_only_values_count_not_the_maps_around_them() -> None:
    edit = ("kubectl-create", "Update", "", {"f:data": {".": {}, "f:c": {}}})
    found = judged(live(OURS, edit, data={"a": "1", "c": "3"}), {"data": {"a": "1"}})
    assert found == RemovedFields()
