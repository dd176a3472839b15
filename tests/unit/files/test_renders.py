"""What templates gave is remembered for the same prototype and variables, and never with a secret."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mlstack import program
from mlstack.app.prototype import Param, Prototype
from mlstack.render.cache import Render, Renders

PARAMS = {"a": Param(name="a", schema={}), "token": Param(name="token", schema={}, secret=True)}
PROTOTYPE = Prototype(name="p", package="x", registry="r", params=PARAMS, digest="sha256:1")
VARIABLES: Mapping[str, Any] = {"params": {"a": {"b": 1, "c": "ü"}, "token": None}, "name": "cnn"}
RENDER = Render(
    objects=[("a.yaml.j2", {"kind": "ConfigMap", "data": {"x": "\udce9", "y": None, "z": 1.5}})], notes=["n"]
)


class Store(dict[str, bytes]):
    """A cache in memory."""

    def put(self, key: str, data: bytes) -> None:
        self[key] = data


def test_a_render_comes_back_as_it_was() -> None:
    renders = Renders(Store())
    key = renders.key(PROTOTYPE, VARIABLES)
    assert renders.get(key) is None
    renders.put(key, RENDER)
    found = renders.get(renders.key(PROTOTYPE, VARIABLES))
    assert found is not None
    assert [tuple(each) for each in found.objects] == RENDER.objects
    assert list(found.notes) == RENDER.notes


def changed(**params: Any) -> Mapping[str, Any]:
    return {**VARIABLES, "params": {**VARIABLES["params"], **params}}


def test_whatever_templates_see_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    renders = Renders(Store())
    keys = {renders.key(PROTOTYPE, VARIABLES), renders.key(replace(PROTOTYPE, digest="sha256:2"), VARIABLES)}
    keys |= {renders.key(PROTOTYPE, {**VARIABLES, "name": "dnn"})}
    keys |= {renders.key(PROTOTYPE, changed(a=value)) for value in (1, 1.0, "1", True, None, [1], {"c": 1})}
    keys |= {renders.key(PROTOTYPE, changed(a={"c": "ü", "b": 1}))}  # templates see the order as well
    monkeypatch.setattr(program, "identity", lambda: "another")
    keys |= {renders.key(PROTOTYPE, VARIABLES)}
    assert None not in keys
    assert len(keys) == 12


def test_a_secret_parameter_is_not_remembered() -> None:
    assert Renders(Store()).key(PROTOTYPE, changed(token="hunter2")) is None


def test_a_secret_is_not_remembered() -> None:
    store = Store()
    renders = Renders(store)
    secret = Render(objects=[*RENDER.objects, ("a.yaml.j2", {"kind": "Secret"})], notes=[])
    renders.put(renders.key(PROTOTYPE, VARIABLES), secret)
    assert not store


def test_a_prototype_without_a_digest_is_not_remembered() -> None:
    assert Renders(Store()).key(replace(PROTOTYPE, digest=""), VARIABLES) is None


def test_sources_that_cannot_be_looked_at_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise NotADirectoryError

    monkeypatch.setattr(program, "identity", refuse)
    assert Renders(Store()).key(PROTOTYPE, VARIABLES) is None


def test_without_a_store_nothing_happens() -> None:
    renders = Renders(None)
    key = renders.key(PROTOTYPE, VARIABLES)
    renders.put(key, RENDER)
    assert renders.get(key) is None
