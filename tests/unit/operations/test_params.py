"""Parameters: set at every level, listed, compared, explained."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.params import ParamScope
from mlstack.errors import NotFoundError
from mlstack.objects.masking import MASK
from mlstack.operations import app as env
from mlstack.operations import params
from mlstack.operations.explain import ExplainedParameter, explain_param
from tests.support.builders import Tree
from tests.support.kubectl import KUBECONFIG
from tests.support.packages import COMMON, JOBS, installed_app, vendored
from tests.support.registry import generate, small_app


@pytest.fixture
def app_dir(tmp_path: Path) -> AppDir:
    app = small_app(tmp_path)
    for name in ("gke", "minikube"):
        env.add_environment(app, name, kubeconfig=KUBECONFIG, place=env.Place(context=name), use_preset=False)
    generate(app)
    generate(app, "shop.cart")
    return app


def test_new_values_read_as_a_person_would_write_them(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path)
    generate(app_dir)
    env.add_environment(app_dir, "minikube", kubeconfig=KUBECONFIG)
    file = app_dir.root / "environments/minikube/params.yaml"
    before = file.read_text()
    params.set_param(app_dir, ParamScope(component="front", environment="minikube"), "replicas", "1")
    params.set_param(app_dir, ParamScope(component="front", environment="minikube"), "args", "a,b")
    assert file.read_text() == (
        f"{before}components:\n  front:\n    replicas: 1\n    args:\n    - a\n    - b\n"
    )


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("image", "-1", "-1"),
        ("image", "--steps=9", "--steps=9"),
        ("image", "yes", "yes"),
        ("args", "--a,--b", ["--a", "--b"]),
        ("args", '["x y", "z"]', ["x y", "z"]),
        ("tags", "a=b,c=d", {"a": "b", "c": "d"}),
        ("tags.team", "ml", "ml"),
        ("debug", "true", True),
        ("num_replicas", "3", 3),
        ("num-replicas", "3", 3),
    ],
)
def test_text_is_typed_by_the_schema(app_dir: AppDir, key: str, text: str, value: object) -> None:
    assert params.set_param(app_dir, ParamScope(component="front"), key, text).value == value


def test_a_value_that_an_environment_overrides_is_noted(app_dir: AppDir) -> None:
    params.set_param(app_dir, ParamScope(component="front", environment="gke"), "replicas", "3")
    (note,) = params.set_param(app_dir, ParamScope(component="front"), "replicas", "2").notes
    assert "`gke`" in note
    assert "environments/gke/params.yaml" in note


def test_unset_says_what_counts_now_and_when_nothing_was_set(app_dir: AppDir) -> None:
    params.set_param(app_dir, ParamScope(component="front"), "replicas", "2")
    (note,) = params.unset_param(app_dir, ParamScope(component="front"), "replicas").notes
    assert "prototype ours/tools/web" in note
    with pytest.raises(NotFoundError, match="not set for front"):
        params.unset_param(app_dir, ParamScope(component="front"), "replicas")


def test_secrets_are_masked_everywhere(app_dir: AppDir) -> None:
    result = params.set_param(app_dir, ParamScope(component="front", environment="gke"), "token", "s3cret")
    rows = params.list_params(app_dir, environment="gke").rows
    assert [result.value, *(row.value for row in rows if row.name == "token")] == [MASK, MASK]
    (row,) = params.diff_params(app_dir, "gke", "minikube").rows
    assert (row.name, row.first, row.second) == ("token", MASK, None)


def test_list_can_leave_out_defaults_and_other_components(app_dir: AppDir) -> None:
    rows = params.list_params(app_dir, component="front", set_only=True).rows
    assert [(row.component, row.name, row.value) for row in rows] == [("front", "image", "nginx")]
    rows = params.list_params(app_dir, module="shop", set_only=True).rows
    assert {row.component for row in rows} == {"shop.cart"}


Build = Callable[[Tree | None], Path]

TEMPLATE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ name }}
  annotations: {"example.com/cloud": {{ params.cloud }}}
spec:
  replicas: {{ params.num_workers }}
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers:
      - name: main
        image: {{ params.image }}
{% if params.num_gpus %}
        resources: {limits: {nvidia.com/gpu: {{ params.num_gpus }}}}
{% endif %}
        args: {{ params.args or [] }}
        env:
        - {name: WORKERS, value: "many"}
{% if params.cloud == "minikube" %}
        - {name: SMALL, value: "yes"}
{% endif %}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {token: {{ params.token or "" }}}
"""


MAPS = """\
apiVersion: mlstack.dev/v1
kind: Prototype
name: tf-cnn
summary: x
parameters:
  type: object
  properties:
    name: {type: string}
    labels: {type: object, additionalProperties: {type: string}, default: {}}
"""
MAP_TEMPLATE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ name }}
  labels:
    app: a
{% for key, value in params.labels.items() %}
    {{ key }}: {{ value }}
{% endfor %}
spec:
  template:
    spec:
      containers:
      - name: main
        env:
        - name: X
{% for key, value in params.labels.items() %}
        - name: {{ key }}
{% endfor %}
{% for key, value in params.labels.items() %}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ key }}}
{% endfor %}
"""
ENV_PATH = "spec.template.spec.containers[0].env[1]"


@pytest.fixture
def root(app: Build) -> Path:
    jobs = {**JOBS, "tf-cnn/templates/job.yaml.j2": TEMPLATE.encode()}
    return app({**installed_app(), **vendored(COMMON, jobs)})


def explained(root: Path, name: str, environment: str | None = "gke", **options: Any) -> ExplainedParameter:
    (param,) = explain_param(AppDir.find(root), "cnn", name, environment=environment, **options).parameters
    return param


def test_without_environment_its_layers_are_left_out(root: Path) -> None:
    assert explained(root, "num_gpus", None).layer == "default"


def test_old_spellings_are_understood(root: Path) -> None:
    assert explained(root, "numGpus").name == "num_gpus"


@pytest.mark.parametrize(
    ("name", "environment", "paths"),
    [
        ("image", "gke", [("spec.template.spec.containers[0].image", "registry.example.org/cnn:1")]),
        ("num_workers", "gke", [("spec.replicas", 1)]),
        ("num_gpus", "gke", [('spec.template.spec.containers[0].resources.limits["nvidia.com/gpu"]', 1)]),
        ("num_gpus", "minikube", [("spec.template.spec.containers[0].resources", None)]),
        (
            "cloud",
            "minikube",
            [
                ('metadata.annotations["example.com/cloud"]', "minikube"),
                ("spec.template.spec.containers[0].env[1]", {"name": "SMALL", "value": "yes"}),
            ],
        ),
        ("args", "gke", [("spec.template.spec.containers[0].args", [])]),
    ],
)
def test_the_fields_a_parameter_reaches(
    root: Path, name: str, environment: str, paths: list[tuple[str, object]]
) -> None:
    reaches = explained(root, name, environment).reaches
    assert [(reach.path, reach.value) for reach in reaches] == paths
    assert {reach.object for reach in reaches} == {"Deployment cnn"}


@pytest.mark.parametrize(
    ("labels", "paths"),
    [
        ({}, [("metadata.labels", {}), ("spec.template.spec.containers[0].env", [{"name": "X"}])]),
        ({"team": "vision"}, [("metadata.labels.team", "vision"), (ENV_PATH, {"name": "team"}), ("", None)]),
    ],
)
def test_what_a_map_reaches_is_told_without_a_key_that_nobody_set(
    app: Build, labels: Mapping[str, str], paths: list[tuple[str, object]]
) -> None:
    jobs = {
        "package.yaml": JOBS["package.yaml"],
        "tf-cnn/prototype.yaml": MAPS.encode(),
        "tf-cnn/templates/job.yaml.j2": MAP_TEMPLATE.encode(),
    }
    own = {path: data for path, data in installed_app().items() if not path.startswith("vendor/")}
    tree = {**own, **vendored(COMMON, jobs)}
    tree["components/cnn.yaml"] = (
        "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: tf-cnn\n"
        f"params: {{labels: {json.dumps(labels)}}}\n"
    )
    tree.pop("environments/gke/params.yaml", None)
    reaches = explained(app(tree), "labels", None).reaches
    assert [(reach.path, reach.value) for reach in reaches] == paths
    assert "trial" not in str(reaches)


def test_secrets_stay_hidden(root: Path) -> None:
    from mlstack.app.components import read_overrides

    parameter = explained(root, "token", overrides=read_overrides(["token=hush"], []))
    assert "hush" not in repr(parameter)
    assert [reach.path for reach in parameter.reaches] == ["stringData.token"]


def test_a_parameter_without_effect_says_so(root: Path) -> None:
    parameter = explained(root, "labels")
    assert parameter.reaches == ()
    assert parameter.notes == ("it changes no field with the other parameters as they are",)


def test_the_chain_is_told_of_values_that_render_nothing(app: Build) -> None:
    guard = '{{ fail("`num_gpus` is more than `num_workers`") if params.num_gpus }}'
    jobs = {**JOBS, "tf-cnn/templates/job.yaml.j2": (guard + TEMPLATE).encode()}
    parameter = explained(app({**installed_app(), **vendored(COMMON, jobs)}), "num_gpus")
    assert (parameter.value, parameter.where) == (1, "environments/gke/params.yaml:8")
    assert parameter.reaches == ()
    assert len(parameter.notes) == 1
    assert "nothing is rendered as it is now: " in parameter.notes[0]
    assert "`num_gpus` is more than `num_workers`" in parameter.notes[0]


def test_without_a_name_all_that_somebody_set_are_explained(root: Path) -> None:
    result = explain_param(AppDir.find(root), "cnn", environment="gke")
    assert [row.name for row in result.parameters] == ["image", "num_gpus", "cloud"] or {
        row.name for row in result.parameters
    } == {"image", "num_gpus", "cloud"}
    assert result.prototype == "kubeflow/jobs/tf-cnn"


def test_of_a_text_with_many_lines_the_decided_ones_are_shown(app: Build) -> None:
    configuration = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  settings.ini: {{ "[job]\\n  workers = " ~ params.num_workers ~ "\\nretries = 3\\n" }}
"""
    jobs = {**JOBS, "tf-cnn/templates/job.yaml.j2": (TEMPLATE + configuration).encode()}
    parameter = explained(app({**installed_app(), **vendored(COMMON, jobs)}), "num_workers", None)
    (reach,) = (reach for reach in parameter.reaches if reach.object == "ConfigMap settings")
    assert reach.value.startswith("workers = ")
    assert "retries" not in reach.value
