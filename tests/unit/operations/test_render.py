"""What a render brings in which order, and what is wrong with it, offline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.components import ComponentRequest
from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.operations import app, components
from mlstack.operations.render import validate_environment
from mlstack.render import render
from tests.support.builders import Tree, read_tree
from tests.support.deploying import Stack, config_map, deployment
from tests.support.kubectl import KUBECONFIG
from tests.support.packages import COMMON, JOBS, installed_app, vendored
from tests.support.registry import small_app

Build = Callable[[Tree | None], Path]


def test_sound_objects_pass(stack: Stack) -> None:
    stack.write("a", config_map(a="1"), deployment())
    result = validate_environment(stack.app, "minikube")
    assert (result.ok, result.count, result.faults, result.kubernetes_version) == (True, 2, (), "1.36")


def test_all_faults_are_listed_with_object_field_and_line(stack: Stack) -> None:
    stack.write("a", deployment(imagee="x"), config_map("b", a="1") | {"dataa": {}})
    result = validate_environment(stack.app, "minikube")
    assert not result.ok
    assert {(fault.object, fault.path) for fault in result.faults} == {
        ("Deployment ml/web", "spec.template.spec.containers[0].imagee"),
        ("ConfigMap ml/b", "dataa"),
    }
    places = {fault.path: fault.where for fault in result.faults}
    lines = (stack.root / "components/a.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "imagee" in text)
    assert places["spec.template.spec.containers[0].imagee"] == f"components/a.yaml:{line}"


def test_a_fault_in_a_template_names_its_line(app: Build) -> None:
    template = (
        "{% set unused = 1 %}\napiVersion: v1\nkind: ConfigMap\n"
        "metadata:\n  name: {{ name }}\ndata:\n  workers: {{ params.num_workers }}\n"
    )
    root = app(
        {**installed_app(), **vendored(COMMON, {**JOBS, "tf-cnn/templates/job.yaml.j2": template.encode()})}
    )
    (fault,) = validate_environment(AppDir.find(root), "minikube").faults
    assert fault.path == "data.workers"
    assert fault.where == "vendor/kubeflow/jobs@0.1.0/tf-cnn/templates/job.yaml.j2:7"
    assert fault.component == "cnn"


def test_notes_are_no_faults(app: Build) -> None:
    text = str(installed_app()["app.yaml"]).replace("params: {}", "params: {clout: gke}")
    result = validate_environment(AppDir.find(app({**installed_app(), "app.yaml": text})), "minikube")
    assert result.ok
    assert [note.partition(" (")[0] for note in result.notes] == ["no installed prototype declares `clout`"]


def test_a_fault_in_a_patch_names_the_patch(stack: Stack) -> None:
    stack.write("a", deployment())
    stack.write_text(
        "environments/minikube/patches/a.yaml",
        """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          replicas: many
        """,
    )
    (fault,) = validate_environment(stack.app, "minikube").faults
    assert (fault.path, fault.where) == ("spec.replicas", "environments/minikube/patches/a.yaml:5")


class Depending:
    """An app whose components are made from one prototype."""

    def __init__(self, folder: Path) -> None:
        app_dir = small_app(folder)
        app.add_environment(app_dir, "gke", kubeconfig=KUBECONFIG, use_preset=False)
        self.root = app_dir.root

    @property
    def app(self) -> AppDir:
        return AppDir(self.root)

    def write(self, name: str, *depends: str) -> None:
        """Make a component that depends on others."""
        components.generate(self.app, ComponentRequest(prototype="web", name=name, texts={"image": "nginx"}))
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
    assert list(dict.fromkeys(obj.component for obj in state.objects)) == ["c", "b", "a"]
    assert state.depends == {"a": ("b", "c"), "b": ("c",)}


def test_what_is_not_selected_still_orders_the_others(depending: Depending) -> None:
    depending.write("a", "b")
    depending.write("b", "c")
    depending.write("c")
    state = render.load(depending.app, "gke", components=("a", "c"))
    assert list(dict.fromkeys(obj.component for obj in state.objects)) == ["c", "a"]


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
    rows = components.list_components(depending.app).components
    assert [(row.name, row.depends_on) for row in rows] == [("a", ("b",)), ("b", ())]


def test_what_others_depend_on_is_not_removed(depending: Depending) -> None:
    depending.write("a", "b")
    depending.write("b")
    before = read_tree(depending.root)
    with pytest.raises(ConfigError, match="component `a` depends on `b`") as caught:
        components.remove_component(depending.app, "b")
    assert caught.value.where == "components/a.yaml:6"
    assert read_tree(depending.root) == before
    components.remove_component(depending.app, "a")
    assert components.remove_component(depending.app, "b").files == ("components/b.yaml",)
