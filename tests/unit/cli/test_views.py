"""Every result has a view that fits a terminal, and every format takes it."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

from mlstack import operations
from mlstack.app.document import Origin
from mlstack.cli import page as views
from mlstack.cli.page import FORMATS, plain, table_text, text_width
from mlstack.operations.app import EnvironmentChanged, EnvironmentList, EnvironmentRow
from mlstack.operations.components import ComponentList, ComponentRow
from mlstack.operations.params import ParamList, ParamRow
from mlstack.operations.status import ComponentStatus, ObjectStatus, PodStatus, StatusResult
from mlstack.readiness.rule import State

# Shown by other means: objects as manifests or files, plans by their report.
NO_VIEW = {"Component", "DesiredState", "ExportResult", "ApplyPlan", "ApplyPlan | str", "UnlockPlan"}


def result_types() -> Iterator[str]:
    for info in pkgutil.iter_modules(operations.__path__):
        module = import_module(f"mlstack.operations.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                annotation = inspect.signature(function).return_annotation
                result = annotation if isinstance(annotation, str) else annotation.__name__
                if not result.startswith("Iterator"):  # a context has no view
                    yield result


@pytest.mark.parametrize("name", sorted({*result_types()} - NO_VIEW))
def test_every_result_has_a_view(name: str) -> None:
    for module in ("views_app", "views_deploy", "views_packages"):
        import_module(f"mlstack.cli.{module}")
    assert name in {**views.VIEWS, **views.TABLE_VIEWS}


def test_a_result_without_a_view_is_shown_as_yaml() -> None:
    page = views.page_of({"a": 1})
    assert [getattr(block, "text", "") for block in page.blocks] == ["a: 1"]


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_takes_every_value(name: str) -> None:
    result = EnvironmentChanged(name="gke", changes={"namespace": "日本\n\x1b[31m", "protected": None})
    text = FORMATS[name](result)
    assert "\x1b" not in text
    assert "gke" in text


def test_keys_are_written_as_in_files_and_places_as_text() -> None:
    value = EnvironmentChanged(name="gke", changes={"kube_version": (1, Origin("app.yaml", 3))})
    assert plain(value) == {
        "name": "gke",
        "changes": {"kube_version": [1, "app.yaml:3"]},
        "clusterForgotten": False,
        "overridden": False,
        "notes": [],
    }


LONG = "a-component-with-a-name-of-47-characters-日本-and-x"


@pytest.mark.parametrize(
    "result",
    [
        EnvironmentList(
            environments=tuple(
                EnvironmentRow(
                    name=name,
                    context="gke_a-project-with-a-long-name_us-central1-a_a-cluster-with-a-long-name",
                    namespace="kubeflow",
                    kubernetes_version="1.36",
                    extends=None,
                    protected=True,
                    current=True,
                )
                for name in ("gke", "us-west/staging")
            )
        ),
        ComponentList(
            components=(
                ComponentRow(
                    name="a-job-of-thirty-characters-日本",
                    type="prototype",
                    module="",
                    prototype="tf-job-simple",
                    package="kubeflow/tf-job@0.1.0",
                    file="components/a.yaml",
                ),
            )
        ),
        ParamList(
            environment="staging",
            rows=(
                ParamRow(
                    component=LONG,
                    name="gcpCredentialSecretName",
                    value="日本" * 100,
                    level="environment",
                    origin="environments/staging/params.yaml:102",
                ),
            ),
        ),
    ],
    ids=lambda result: type(result).__name__,
)
def test_tables_fit_a_terminal_of_80_columns(result: object) -> None:
    lines = table_text(result).splitlines()
    assert len(lines) >= 2
    assert all(text_width(line) <= 80 for line in lines)


def test_components_are_named_where_there_are_several() -> None:
    rows = tuple(
        ParamRow(component=name, name="x", value=1, level="default", origin="") for name in ("one", "two")
    )
    assert table_text(ParamList(environment=None, rows=rows)).startswith("COMPONENT")
    assert table_text(ParamList(environment=None, rows=rows[:1])).startswith("PARAM")


NO_GPUS = "no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)"
HINT = "add GPU nodes with the device plugin, or: mlstack param set --env=gke cnn num_gpus 0"


def row(
    kind: str, state: State, *, reason: str = "", hint: str = "", pods: tuple[PodStatus, ...] = ()
) -> ObjectStatus:
    return ObjectStatus(
        object=f"{kind} default/cnn",
        kind=kind,
        namespace="default",
        name="cnn",
        state=state,
        reason=reason,
        hint=hint,
        pods=pods,
    )


def table(*objects: ObjectStatus) -> list[str]:
    result = StatusResult(
        ok=False,
        app="demo",
        environment="gke",
        namespace="default",
        context="gke",
        components=(ComponentStatus(name="cnn", ok=False, objects=objects),),
    )
    return table_text(result).splitlines()


def test_status_is_a_tree_that_fits_a_terminal() -> None:
    pods = (
        PodStatus(name="cnn-ps-0", state="ready", reason="", node="node-1"),
        PodStatus(name="cnn-worker-0", state="waiting", reason=NO_GPUS, node=""),
    )
    reason = f"0 of 1 workers run (PS 1 of 1). Workers wait: {NO_GPUS}"
    lines = table(row("ConfigMap", "ready"), row("TFJob", "waiting", reason=reason, hint=HINT, pods=pods))
    assert all(text_width(line) <= 80 for line in lines)
    assert lines == [
        "cnn: not ready",
        "  ready    ConfigMap default/cnn",
        "  waiting  TFJob default/cnn: 0 of 1 workers run (PS 1 of 1). Workers wait: no",
        "           node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient",
        "           nvidia.com/gpu)",
        "      ready    pod cnn-ps-0 on node-1",
        "      waiting  pod cnn-worker-0: no node of this cluster has nvidia.com/gpu (0/1",
        "               nodes: Insufficient nvidia.com/gpu)",
        "      hint: add GPU nodes with the device plugin, or:",
        "            mlstack param set --env=gke cnn num_gpus 0",
        "`gke` (context gke, namespace default): not everything works",
    ]


def test_the_same_hint_stands_once_below_the_objects_it_is_for() -> None:
    hint = "mlstack apply gke -c cnn"
    lines = table(
        row("ConfigMap", "missing", hint=hint),
        row("Secret", "missing", hint=hint),
        row("TFJob", "waiting", hint="other"),
    )
    assert [line.strip() for line in lines if "hint" in line] == [f"hint: {hint}", "hint: other"]
    assert "Secret" in lines[lines.index(f"      hint: {hint}") - 1]


def test_many_pods_with_the_same_trouble_stand_in_one_line() -> None:
    pods = tuple(
        PodStatus(name=f"cnn-worker-{number}", state="waiting", reason="no node fits", node="")
        for number in range(6)
    )
    server = PodStatus(name="cnn-ps-0", state="ready", reason="", node="node-1")
    lines = table(row("TFJob", "waiting", pods=(server, *pods)))
    assert lines[2:4] == [
        "      ready    pod cnn-ps-0 on node-1",
        "      waiting  6 pods cnn-worker-0 … cnn-worker-5: no node fits",
    ]
