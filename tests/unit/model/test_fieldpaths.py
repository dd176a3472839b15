"""Paths as people write them."""

import pytest

from mlstack.objects import managed_fields

CONTAINERS = ("f:spec", "f:template", "f:spec", "f:containers")
MAIN = (*CONTAINERS, 'k:{"name":"main"}')
PORT = ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}')


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec.replicas", ("f:spec", "f:replicas")),
        (".spec.replicas", ("f:spec", "f:replicas")),
        ("spec", ("f:spec", "f:replicas")),
        ("spec.template.spec.containers[main].image", (*MAIN, "f:image")),
        ("spec.template.spec.containers[name=main].image", (*MAIN, "f:image")),
        ("spec.template.spec.containers[*].image", (*MAIN, "f:image")),
        ("spec.*.spec", MAIN),
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
        ("spec.template.spec.containers[side]", MAIN),
        ("spec.ports[80,UDP]", PORT),
    ],
)
def test_a_path_covers_nothing_else(text: str, path: tuple[str, ...]) -> None:
    assert not managed_fields.read(text).covers(path)


def test_what_a_diff_writes_can_be_read() -> None:
    for path in (MAIN, PORT, ("f:metadata", "f:labels", "f:a/b"), ("f:data", "f:x.yaml")):
        assert managed_fields.read(managed_fields.path_text(path)).covers(path)


def test_a_list_has_commas_between_paths_not_in_them() -> None:
    found = managed_fields.read_list('spec.ports[80,TCP], data["a,b"] ,spec.replicas')
    assert [one.steps for one in found] == [
        ("spec", "ports", "80,TCP"),
        ("data", "a,b"),
        ("spec", "replicas"),
    ]


@pytest.mark.parametrize("text", ["", "spec..replicas", "spec[", "spec[]", "a b", "spec.]"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no path of a field"):
        managed_fields.read(text)
