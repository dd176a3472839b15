"""Sets of fields read and write as the API server does."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.testing import server_side_apply

V1: dict[str, Any] = {
    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
    "f:spec": {
        "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}},
        "f:finalizers": {'v:"a"': {}},
    },
}
PATHS = {
    ("f:metadata", "f:labels"),
    ("f:metadata", "f:labels", "f:app"),
    ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}'),
    ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:port"),
    ("f:spec", "f:finalizers", 'v:"a"'),
}


def test_fields_read_as_paths() -> None:
    assert server_side_apply.from_v1(V1) == PATHS


def test_paths_write_as_fields() -> None:
    assert server_side_apply.to_v1(PATHS) == V1


def test_keys_are_written_in_the_order_of_their_names() -> None:
    assert server_side_apply.key({"protocol": "TCP", "port": 80}) == 'k:{"port":80,"protocol":"TCP"}'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:data", "f:x.yaml"), ".data.x.yaml"),
        (
            ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:targetPort"),
            '.spec.ports[port=80,protocol="TCP"].targetPort',
        ),
        (("f:metadata", "f:finalizers", 'v:"ex.com/f"'), '.metadata.finalizers[="ex.com/f"]'),
        (("f:args", "i:1"), ".args[1]"),
    ],
    ids=["plain", "dotted key", "keyed", "set", "index"],
)
def test_paths_are_spelt_as_the_server_does(path: server_side_apply.Path, text: str) -> None:
    assert server_side_apply.spell(path) == text
