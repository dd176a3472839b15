"""One deterministic writer: block style as kubectl prints it, literal blocks where they are exact."""

import json
from typing import Any

import pytest

from mlstack.yaml import write

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {}, "annotations": {"note": "yes"}},
    "spec": {
        "replicas": 2,
        "template": {
            "containers": [
                {"name": "a", "args": ["--port=80", "a: b"], "env": []},
                {"name": "b", "ports": [{"containerPort": 80}]},
            ]
        },
    },
}


def test_mappings_and_lists_look_as_kubectl_prints_them() -> None:
    assert write.to_yaml(DEPLOYMENT) == (
        "apiVersion: apps/v1\n"
        "kind: Deployment\n"
        "metadata:\n"
        "  name: web\n"
        "  labels: {}\n"
        "  annotations:\n"
        '    note: "yes"\n'
        "spec:\n"
        "  replicas: 2\n"
        "  template:\n"
        "    containers:\n"
        "    - name: a\n"
        "      args:\n"
        "      - --port=80\n"
        '      - "a: b"\n'
        "      env: []\n"
        "    - name: b\n"
        "      ports:\n"
        "      - containerPort: 80\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "k: |-\n  a\n  b\n"),
        ("a\nb\n", "k: |\n  a\n  b\n"),
        ("a\n\n  b\n\n\n", "k: |+\n  a\n\n    b\n\n\n"),
        ("#!/bin/sh\nset -e\n", "k: |\n  #!/bin/sh\n  set -e\n"),
        (" a\nb", 'k: " a\\nb"\n'),
        ("\na", 'k: "\\na"\n'),
        ("\n", 'k: "\\n"\n'),
        ("a\n \nb", 'k: "a\\n \\nb"\n'),
        ("a\n\tb", 'k: "a\\n\\tb"\n'),
        ("a\r\nb", 'k: "a\\r\\nb"\n'),
        ("a\nb\x07", 'k: "a\\nb\\u0007"\n'),
    ],
)
def test_several_lines_are_a_literal_block_where_that_is_exact(value: str, text: str) -> None:
    assert write.to_yaml({"k": value}) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null\n"),
        ("a", "a\n"),
        ("a\nb\n", "|\n  a\n  b\n"),
        ({}, "{}\n"),
        ([], "[]\n"),
        ([[1, [2]], {"a": [3]}, {}, []], "- - 1\n  - - 2\n- a:\n  - 3\n- {}\n- []\n"),
        ([{"a": "x\ny\n", "b": 1}], "- a: |\n    x\n    y\n  b: 1\n"),
        ((1, 2), "- 1\n- 2\n"),
        ({"yes": 1, "012": 2, "a: b": 3, "": 4}, '"yes": 1\n"012": 2\n"a: b": 3\n"": 4\n'),
    ],
)
def test_documents_of_every_shape(value: Any, text: str) -> None:
    assert write.to_yaml(value) == text


def test_the_lines_of_a_text_in_a_list_stand_below_it() -> None:
    assert write.to_yaml({"args": ["run", "a\nb\n"]}) == "args:\n- run\n- |\n  a\n  b\n"


def test_a_key_that_readers_would_not_find_is_announced() -> None:
    key = "x" * 2000
    assert write.to_yaml({key: {"a": [1]}, "b": 2}) == f"? {key}\n:\n  a:\n  - 1\nb: 2\n"


def test_documents_are_separated() -> None:
    assert write.to_yaml_documents([{"a": 1}, {"b": 2}]) == "a: 1\n---\nb: 2\n"
    assert write.to_yaml_documents([]) == ""


def test_json_keeps_the_order_of_keys_and_writes_no_needless_escapes() -> None:
    value = {"b": ["größe 🚀", 1.5, None, True], "a": {"x": {}, "y": []}}
    assert write.to_json(value) == json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def test_flow_is_one_line_that_json_reads_too() -> None:
    value = {"a": ["yes", {"b": None}], "c": 'say "hi"\n'}
    assert write.to_flow(value) == '{"a": ["yes", {"b": null}], "c": "say \\"hi\\"\\n"}'
    assert write.to_flow("a b") == "a b"


@pytest.mark.parametrize("write", [write.to_yaml, write.to_json, write.to_flow])
def test_what_cannot_be_written_is_refused(write: Any) -> None:
    with pytest.raises(TypeError, match="a key must be a string, not `1`"):
        write({"a": {1: 2}})
    with pytest.raises(TypeError, match="`object` is no scalar"):
        write({"a": [object()]})
    with pytest.raises(ValueError, match=r"U\+0000"):
        write({"a": "x\x00\ny"})
    with pytest.raises(ValueError, match="inf"):
        write([float("inf")])
