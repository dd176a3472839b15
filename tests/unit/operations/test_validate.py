"""Offline validation of an environment."""

from collections.abc import Callable
from pathlib import Path

from mlstack.app.app_dir import AppDir
from mlstack.operations.render import validate_environment
from tests.support.builders import Tree
from tests.support.deploying import Stack, config_map, deployment
from tests.support.packages import COMMON, JOBS, installed_app, vendored

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
