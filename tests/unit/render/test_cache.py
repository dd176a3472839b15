"""What templates gave is remembered for the same prototype and what they read, and never with a secret."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mlstack import disk_cache
from mlstack.app.prototype import Param, Prototype
from mlstack.disk_cache import NO_STORE
from mlstack.render.template import Pack, Render, Renders
from tests.support.builders import MemoryCache

PARAMS = {"a": Param(name="a", schema={}), "token": Param(name="token", schema={}, secret=True)}
PROTOTYPE = Prototype(name="p", package="x", registry="r", params=PARAMS, digest="sha256:1")
VARIABLES: Mapping[str, Any] = {
    "params": {"a": {"b": 1, "c": "ü"}, "token": None},
    "name": "cnn",
    "namespace": "n",
}
RENDER = Render(
    objects=[("a.yaml.j2", {"kind": "ConfigMap", "data": {"x": "\udce9", "y": None, "z": 1.5}})],
    notes=["n"],
    reads={"params", "name", "range"},
)


def stored(prototype: Prototype = PROTOTYPE, render: Render = RENDER, **variables: Any) -> Renders:
    """Give what another run finds after this render was remembered."""
    store = MemoryCache()
    pack = Pack(store, "renders")
    Renders(pack).put("cnn", prototype, {**VARIABLES, **variables}, render)
    pack.save()
    return Renders(Pack(store, "renders"))


def test_a_render_comes_back_as_it_was() -> None:
    again = stored().get("cnn", PROTOTYPE, VARIABLES)
    assert again is not None
    assert [tuple(obj) for obj in again.objects] == RENDER.objects
    assert list(again.notes) == RENDER.notes
    assert stored().get("dnn", PROTOTYPE, VARIABLES) is None


CHANGED = [{"b": 2, "c": "ü"}, {"c": "ü", "b": 1}, 1, 1.0, "1", True, None, [1]]  # templates see the order


@pytest.mark.parametrize(
    "variables", [{"name": "dnn"}, *({"params": {"a": value, "token": None}} for value in CHANGED)], ids=repr
)
def test_what_templates_read_decides(variables: Mapping[str, Any]) -> None:
    assert stored().get("cnn", PROTOTYPE, {**VARIABLES, **variables}) is None


def test_what_templates_do_not_read_may_change() -> None:
    assert stored().get("cnn", PROTOTYPE, {**VARIABLES, "namespace": "other"}) is not None


def test_another_prototype_or_program_is_another_render(monkeypatch: pytest.MonkeyPatch) -> None:
    renders = stored()
    assert renders.get("cnn", replace(PROTOTYPE, digest="sha256:2"), VARIABLES) is None
    monkeypatch.setattr(disk_cache, "program_identity", lambda: "another")
    assert renders.get("cnn", PROTOTYPE, VARIABLES) is None


def test_nothing_is_remembered_with_a_secret_or_of_an_unknown_prototype() -> None:
    params = {**VARIABLES["params"], "token": "hunter2"}
    assert stored(params=params).get("cnn", PROTOTYPE, {**VARIABLES, "params": params}) is None
    secret = replace(RENDER, objects=[*RENDER.objects, ("a.yaml.j2", {"kind": "Secret"})])
    assert stored(render=secret).get("cnn", PROTOTYPE, VARIABLES) is None
    unknown = replace(PROTOTYPE, digest="")
    assert stored(unknown).get("cnn", unknown, VARIABLES) is None


def test_sources_that_cannot_be_looked_at_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise NotADirectoryError

    monkeypatch.setattr(disk_cache, "program_identity", refuse)
    assert stored().get("cnn", PROTOTYPE, VARIABLES) is None


@pytest.mark.parametrize("data", [b"", b"odd", b"entries\0", b"entries\0\xff", b"entries\0i\x01\0\0\0"])
def test_a_file_of_another_kind_is_an_empty_pack(data: bytes) -> None:
    assert Pack(MemoryCache(renders=data), "renders").get("cnn") is None


def test_a_pack_keeps_what_one_run_did_not_use_until_that_is_most() -> None:
    store = MemoryCache()
    for names in (["a"], ["b"], [f"n{number}" for number in range(999)], ["c"]):
        pack = Pack(store, "p")
        for name in names:
            pack.put(name, b"1")
        pack.save()
        if names == ["b"]:
            assert Pack(store, "p").get("a") == b"1"
    assert Pack(store, "p").get("c") == b"1"
    assert Pack(store, "p").get("a") == b"1"
    pack = Pack(store, "p")
    pack.put("d", b"1")
    pack.save()
    assert (Pack(store, "p").get("a"), Pack(store, "p").get("d")) == (None, b"1")


def test_without_a_store_nothing_happens() -> None:
    pack = Pack(NO_STORE, "p")
    Renders(pack).put("cnn", PROTOTYPE, VARIABLES, RENDER)
    pack.save()
    assert Pack(NO_STORE, "p").get("cnn") is None
