"""Components that come after others: `dependsOn` in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.draft import ComponentRequest
from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.operations import app, prototypes
from mlstack.render import render
from tests.support.builders import read_tree
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import small_app


class Depending:
    """An app whose components are made from one prototype."""

    def __init__(self, folder: Path) -> None:
        made = small_app(folder)
        app.add_environment(made, "gke", kubeconfig=KUBECONFIG, use_preset=False)
        self.root = made.root

    @property
    def app(self) -> AppDir:
        return AppDir(self.root)

    def write(self, name: str, *depends: str) -> None:
        """Make a component that depends on others."""
        prototypes.generate(self.app, ComponentRequest(prototype="web", name=name, texts={"image": "nginx"}))
        file = self.root / f"components/{name.replace('.', '/')}.yaml"
        if depends:
            file.write_text(f"{file.read_text()}dependsOn: [{', '.join(depends)}]\n")


@pytest.fixture
def depending(tmp_path: Path) -> Depending:
    return Depending(tmp_path)


def test_a_component_comes_after_those_it_depends_on(depending: Depending) -> None:
    depending.write("a", "b")
    depending.write("b", "c")
    depending.write("c")
    state = render.load(depending.app, "gke")
    assert list(dict.fromkeys(one.component for one in state.objects)) == ["c", "b", "a"]
    assert state.depends == {"a": ("b", "c"), "b": ("c",)}


def test_what_is_not_selected_still_orders_the_others(depending: Depending) -> None:
    depending.write("a", "b")
    depending.write("b", "c")
    depending.write("c")
    state = render.load(depending.app, "gke", components=("a", "c"))
    assert list(dict.fromkeys(one.component for one in state.objects)) == ["c", "a"]


def test_a_module_stands_for_all_its_components(depending: Depending) -> None:
    depending.write("core.one")
    depending.write("core.two", "core")
    depending.write("jobs", "core")
    state = render.load(depending.app, "gke")
    assert state.depends == {"core.two": ("core.one",), "jobs": ("core.one", "core.two")}


def test_an_unknown_component_is_told_with_the_nearest_and_its_line(depending: Depending) -> None:
    depending.write("front", "bakc")
    depending.write("back")
    with pytest.raises(NotFoundError) as caught:
        render.load(depending.app, "gke")
    assert caught.value.message == "no component or module `bakc`"
    assert (caught.value.near, caught.value.where) == ("back", "components/front.yaml:6")


def test_a_circle_is_named(depending: Depending) -> None:
    depending.write("a", "b")
    depending.write("b", "c")
    depending.write("c", "a")
    with pytest.raises(ConfigError, match="in a circle: `a` → `b` → `c` → `a`") as caught:
        render.load(depending.app, "gke")
    assert caught.value.where == "components/a.yaml"


def test_a_component_does_not_depend_on_itself(depending: Depending) -> None:
    depending.write("a", "a")
    with pytest.raises(ConfigError, match="in a circle: `a` → `a`"):
        render.load(depending.app, "gke")


@pytest.mark.parametrize("text", ["b", "[1]", "[b, b]", "{b: c}"])
def test_it_is_a_list_of_different_names(depending: Depending, text: str) -> None:
    depending.write("a")
    depending.write("b")
    file = depending.root / "components/a.yaml"
    file.write_text(f"{file.read_text()}dependsOn: {text}\n")
    with pytest.raises(SchemaError, match="dependsOn"):
        render.load(depending.app, "gke")


def test_the_list_of_components_shows_it(depending: Depending) -> None:
    depending.write("a", "b")
    depending.write("b")
    rows = prototypes.list_components(depending.app).components
    assert [(row.name, row.depends_on) for row in rows] == [("a", ("b",)), ("b", ())]


def test_what_others_depend_on_is_not_removed(depending: Depending) -> None:
    depending.write("a", "b")
    depending.write("b")
    before = read_tree(depending.root)
    with pytest.raises(ConfigError, match="component `a` depends on `b`") as caught:
        prototypes.remove_component(depending.app, "b")
    assert caught.value.where == "components/a.yaml:6"
    assert read_tree(depending.root) == before
    prototypes.remove_component(depending.app, "a")
    assert prototypes.remove_component(depending.app, "b").files == ("components/b.yaml",)
