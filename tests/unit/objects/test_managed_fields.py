"""Sets of fields: who owns what, what differs, what is cut, and how people write paths."""

from typing import Any

import pytest

from mlstack.objects import managed_fields
from mlstack.objects.managed_fields import MISSING, FieldChange

CONTAINER = 'k:{"name":"main"}'
TREE: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:a.b/c": {}}},
    "f:spec": {"f:replicas": {}, "f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:image": {}}}},
}


def live(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"a.b/c": "1"}}, "spec": {"replicas": 1, **spec}}


def containers(image: str) -> list[dict[str, Any]]:
    return [{"name": "main", "image": image, "imagePullPolicy": "Always"}]


def test_a_new_list_item_is_one_change_without_server_defaults() -> None:
    assert list(managed_fields.compare(live(), live(containers=containers("a")), TREE)) == [
        FieldChange(path="spec.containers", action="added", new=[{"name": "main", "image": "a"}])
    ]


def test_a_removed_label_is_named_as_people_write_it() -> None:
    first, other = live(), live()
    other["metadata"]["labels"] = {}
    assert list(managed_fields.compare(first, other, TREE)) == [
        FieldChange(path='metadata.labels["a.b/c"]', action="removed", old="1")
    ]


def test_list_items_are_found_by_all_their_keys() -> None:
    tree = {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:name": {}}}}
    first = {
        "ports": [{"port": 80, "protocol": "UDP", "name": "x"}, {"port": 80, "protocol": "TCP", "name": "y"}]
    }
    other = {"ports": [{"port": 80, "protocol": "TCP", "name": "z"}]}
    assert [change.path for change in managed_fields.compare(first, other, tree)] == ["ports[80,TCP].name"]


def test_items_of_sets_appear_and_go() -> None:
    tree = {"f:finalizers": {'v:"x"': {}, 'v:"y"': {}}}
    changes = list(managed_fields.compare({"finalizers": ["x"]}, {"finalizers": ["y"]}, tree))
    assert [(change.path, change.action) for change in changes] == [
        ('finalizers["x"]', "removed"),
        ('finalizers["y"]', "added"),
    ]


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
    entries = managed_fields.entries({"metadata": {"managedFields": managed}})
    assert [(entry.owner, entry.tree) for entry in entries] == [
        (("m", "Apply", ""), {"f:a": {}, "f:b": {}}),
        (("m", "Update", "scale"), {"f:c": {}}),
    ]
    assert managed_fields.owned({"metadata": {"managedFields": managed}}, "m") == {"f:a": {}, "f:b": {}}
    assert managed_fields.owned({}, "m") == {}


MAIN = 'k:{"name":"main"}'
TCP = 'k:{"port":80,"protocol":"TCP"}'


@pytest.mark.parametrize(
    ("data", "path", "left"),
    [
        ({"a": 1, "b": 2}, ("f:a",), {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, ("f:a", "f:b"), {"a": {"c": 2}}),
        ({"a": {"b": {"c": 1}}, "x": 1}, ("f:a", "f:b", "f:c"), {"x": 1}),
        ({"a": {}}, ("f:a", "f:b"), {"a": {}}),
        ({"l": [{"name": "main", "image": "x"}]}, ("f:l", MAIN, "f:image"), {"l": [{"name": "main"}]}),
        (
            {"l": [{"name": "main", "image": "x"}]},
            ("f:l", MAIN, "f:name"),
            {"l": [{"name": "main", "image": "x"}]},
        ),
        ({"l": [{"name": "main"}, {"name": "b"}]}, ("f:l", MAIN), {"l": [{"name": "b"}]}),
        ({"l": [{"name": "main"}]}, ("f:l", MAIN), {}),
        ({"l": [{"port": 80, "x": 1}]}, ("f:l", TCP, "f:x"), {"l": [{"port": 80}]}),
        (
            {"l": [{"port": 80, "protocol": "UDP", "x": 1}]},
            ("f:l", TCP, "f:x"),
            {"l": [{"port": 80, "protocol": "UDP", "x": 1}]},
        ),
        ({"l": ["a", "b"]}, ("f:l", 'v:"a"'), {"l": ["b"]}),
        ({"l": ["a", "b"]}, ("f:l", "i:1"), {"l": ["a"]}),
        ({"l": [1, 2]}, ("f:l",), {}),
        ({"a": "text"}, ("f:a", "f:b"), {"a": "text"}),
    ],
)
def test_cut(data: dict[str, Any], path: tuple[str, ...], left: dict[str, Any]) -> None:
    before = repr(data)
    assert managed_fields.cut(data, [path]) == left
    assert repr(data) == before


def test_the_item_that_says_all_its_keys_comes_first() -> None:
    vague, exact = {"port": 80, "x": 1}, {"port": 80, "protocol": "TCP", "x": 2}
    assert managed_fields.item_place([vague, exact], TCP) == 1


@pytest.mark.parametrize(
    ("data", "path", "result"),
    [
        ({}, ("f:a", "f:b"), {"a": {"b": 5}}),
        ({"a": {"b": 1}}, ("f:a", "f:b"), {"a": {"b": 5}}),
        ({"l": [{"name": "main"}]}, ("f:l", MAIN, "f:x"), {"l": [{"name": "main", "x": 5}]}),
        ({}, ("f:l", MAIN, "f:x"), {"l": [{"name": "main", "x": 5}]}),
    ],
)
def test_put(data: dict[str, Any], path: tuple[str, ...], result: dict[str, Any]) -> None:
    assert managed_fields.put(data, path, 5) == result
    assert managed_fields.value_at(result, path) == 5


def test_a_field_that_is_not_there_is_missing() -> None:
    assert managed_fields.value_at({"a": {"b": None}}, ("f:a", "f:b")) is None
    assert managed_fields.value_at({"a": {"b": None}}, ("f:a", "f:c")) is MISSING


CONTAINERS = ("f:spec", "f:template", "f:spec", "f:containers")
MAIN_CONTAINER = (*CONTAINERS, 'k:{"name":"main"}')
PORT = ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}')


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec.replicas", ("f:spec", "f:replicas")),
        (".spec.replicas", ("f:spec", "f:replicas")),
        ("spec", ("f:spec", "f:replicas")),
        ("spec.template.spec.containers[main].image", (*MAIN_CONTAINER, "f:image")),
        ("spec.template.spec.containers[name=main].image", (*MAIN_CONTAINER, "f:image")),
        ("spec.template.spec.containers[*].image", (*MAIN_CONTAINER, "f:image")),
        ("spec.*.spec", MAIN_CONTAINER),
        ("spec.ports[80,TCP].targetPort", (*PORT, "f:targetPort")),
        ('metadata.annotations["a.b/c"]', ("f:metadata", "f:annotations", "f:a.b/c")),
        ("metadata.annotations[a.b/c]", ("f:metadata", "f:annotations", "f:a.b/c")),
        ('metadata.finalizers["x/y"]', ("f:metadata", "f:finalizers", 'v:"x/y"')),
    ],
)
def test_a_path_covers_its_field_and_what_lies_in_it(text: str, path: tuple[str, ...]) -> None:
    assert managed_fields.read(text).covers(path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec.replicas", ("f:spec",)),
        ("spec.replicas", ("f:spec", "f:replicasMax")),
        ("spec.template.spec.containers[side]", MAIN_CONTAINER),
        ("spec.ports[80,UDP]", PORT),
    ],
)
def test_a_path_covers_nothing_else(text: str, path: tuple[str, ...]) -> None:
    assert not managed_fields.read(text).covers(path)


def test_what_a_diff_writes_can_be_read() -> None:
    for path in (MAIN_CONTAINER, PORT, ("f:metadata", "f:labels", "f:a/b"), ("f:data", "f:x.yaml")):
        assert managed_fields.read(managed_fields.path_text(path)).covers(path)


def test_a_list_has_commas_between_paths_not_in_them() -> None:
    fields = managed_fields.read_list('spec.ports[80,TCP], data["a,b"] ,spec.replicas')
    assert [field.steps for field in fields] == [
        ("spec", "ports", "80,TCP"),
        ("data", "a,b"),
        ("spec", "replicas"),
    ]


@pytest.mark.parametrize("text", ["", "spec..replicas", "spec[", "spec[]", "a b", "spec.]"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no path of a field"):
        managed_fields.read(text)
