"""Every result has a view and every format takes it."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

from mlstack import operations
from mlstack.cli import views, views_app, views_changes, views_cluster, views_prototypes
from mlstack.cli.output import FORMATS, plain
from mlstack.model.params import Origin
from mlstack.operations.env import EnvironmentChanged

# Shown by other means: objects as manifests, plans by their report.
NO_VIEW = {"DesiredState", "ApplyPlan", "DeletePlan"}


def result_types() -> Iterator[str]:
    for found in pkgutil.iter_modules(operations.__path__):
        module = import_module(f"mlstack.operations.{found.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                annotation = inspect.signature(function).return_annotation
                yield annotation if isinstance(annotation, str) else annotation.__name__


@pytest.mark.parametrize("name", sorted({*result_types()} - NO_VIEW))
def test_every_result_has_a_view(name: str) -> None:
    assert views_app and views_changes and views_cluster and views_prototypes
    assert name in views.VIEWS


def test_a_result_without_a_view_is_shown_as_yaml() -> None:
    page = views.page({"a": 1})
    assert [getattr(block, "text", "") for block in page.blocks] == ["a: 1"]


@pytest.mark.parametrize("name", FORMATS.names())
def test_every_format_takes_every_value(name: str) -> None:
    result = EnvironmentChanged(name="gke", changes={"namespace": "日本\n\x1b[31m", "protected": None})
    text = FORMATS.find(name)(result)
    assert "\x1b" not in text
    assert "gke" in text


def test_keys_are_written_as_in_files_and_places_as_text() -> None:
    value = EnvironmentChanged(name="gke", changes={"kube_version": (1, Origin("app.yaml", 3))})
    assert plain(value) == {
        "name": "gke",
        "changes": {"kube_version": [1, "app.yaml:3"]},
        "clusterForgotten": False,
    }
