"""Field sets, and what differs in them."""

from typing import Any

from mlstack.objects import managed_fields
from mlstack.objects.managed_fields import FieldChange

CONTAINER = 'k:{"name":"main"}'
TREE: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:a.b/c": {}}},
    "f:spec": {"f:replicas": {}, "f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:image": {}}}},
}


def live(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"a.b/c": "1"}}, "spec": {"replicas": 1, **spec}}


def containers(image: str) -> list[dict[str, Any]]:
    return [{"name": "main", "image": image, "imagePullPolicy": "Always"}]


def test_only_owned_fields_are_compared() -> None:
    one, other = live(containers=containers("a")), live(containers=containers("b"), paused=True)
    other["metadata"]["generation"] = 4
    assert list(managed_fields.compare(one, other, TREE)) == [
        FieldChange(path="spec.containers[main].image", action="changed", old="a", new="b")
    ]


def test_a_new_list_item_is_one_change_without_server_defaults() -> None:
    assert list(managed_fields.compare(live(), live(containers=containers("a")), TREE)) == [
        FieldChange(path="spec.containers", action="added", new=[{"name": "main", "image": "a"}])
    ]


def test_a_removed_label_is_named_as_people_write_it() -> None:
    one, other = live(), live()
    other["metadata"]["labels"] = {}
    assert list(managed_fields.compare(one, other, TREE)) == [
        FieldChange(path='metadata.labels["a.b/c"]', action="removed", old="1")
    ]


def test_list_items_are_found_by_all_their_keys() -> None:
    tree = {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:name": {}}}}
    one = {
        "ports": [{"port": 80, "protocol": "UDP", "name": "x"}, {"port": 80, "protocol": "TCP", "name": "y"}]
    }
    other = {"ports": [{"port": 80, "protocol": "TCP", "name": "z"}]}
    assert [change.path for change in managed_fields.compare(one, other, tree)] == ["ports[80,TCP].name"]


def test_items_of_sets_appear_and_go() -> None:
    tree = {"f:finalizers": {'v:"x"': {}, 'v:"y"': {}}}
    changes = list(managed_fields.compare({"finalizers": ["x"]}, {"finalizers": ["y"]}, tree))
    assert [(change.path, change.action) for change in changes] == [
        ('finalizers["x"]', "removed"),
        ('finalizers["y"]', "added"),
    ]


def test_minus_leaves_what_the_other_lacks() -> None:
    other = {"f:spec": {"f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:image": {}}}}}
    assert managed_fields.minus(TREE, other) == {
        "f:metadata": {"f:labels": {"f:a.b/c": {}}},
        "f:spec": {"f:replicas": {}},
    }
    assert managed_fields.minus(TREE, TREE) == {}
    assert managed_fields.minus(TREE, {}) == TREE


def test_minus_tells_a_thing_from_its_fields() -> None:
    assert managed_fields.minus({"f:a": {}}, {"f:a": {"f:b": {}}}) == {"f:a": {}}
    assert managed_fields.minus({"f:a": {".": {}, "f:b": {}}}, {"f:a": {}}) == {"f:a": {"f:b": {}}}


def test_union_keeps_a_leaf_beside_its_fields() -> None:
    assert managed_fields.union({"f:a": {}}, {"f:a": {"f:b": {}}}) == {"f:a": {".": {}, "f:b": {}}}


def test_paths_name_things_and_their_fields() -> None:
    assert [managed_fields.path_text(path) for path in managed_fields.paths(TREE)] == [
        'metadata.labels["a.b/c"]',
        "spec.replicas",
        "spec.containers[main]",
        "spec.containers[main].name",
        "spec.containers[main].image",
    ]


def test_entries_of_one_manager_are_merged() -> None:
    managed = [
        {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:a": {}}},
        {"manager": "m", "operation": "Apply", "apiVersion": "v2", "fieldsV1": {"f:b": {}}},
        {"manager": "m", "operation": "Update", "subresource": "scale", "fieldsV1": {"f:c": {}}},
    ]
    found = managed_fields.entries({"metadata": {"managedFields": managed}})
    assert [(entry.key, entry.tree) for entry in found] == [
        (("m", "Apply", ""), {"f:a": {}, "f:b": {}}),
        (("m", "Update", "scale"), {"f:c": {}}),
    ]
    assert managed_fields.owned({"metadata": {"managedFields": managed}}, "m") == {"f:a": {}, "f:b": {}}
    assert managed_fields.owned({}, "m") == {}


def test_where_nothing_is_owned_nothing_differs() -> None:
    assert list(managed_fields.compare(live(), live(replicas=4), {})) == []
