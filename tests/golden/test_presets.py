"""Environments of the presets `minikube` and `gke` differ in what such clusters differ in, nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.app.prototype import Prototype
from mlstack.objects.kube_object import KubeObject
from mlstack.operations.components import init_stack
from mlstack.render import render
from tests.support import examples
from tests.support.examples import Case

pytestmark = pytest.mark.slow

ALLOWED = {
    "whose object it is": r"labels\.mlstack\.dev/environment$",
    "what pods are made anew for": r"annotations\.(checksum/\w+|mlstack\.dev/config-hash)$",
    "a password of the environment's own": r"^Secret/.*\.data\.proxy-token$",
    "CPU and memory": r"\.(requests|limits|resourcesPerNode\.\w+)\.(cpu|memory)$|\.coreRequest$",
    "claims of notebooks": r"\.json\.notebook\.storage$|^PersistentVolumeClaim/lab\..*\.storage$",
    "the product of GPUs": r"\.(node|gpuNode)Selector\b",
}
"""Fields by what is said of the two kinds of clusters: one small machine, and pools of nodes with GPUs."""
WITH_GPUS = {
    "GPUs": r"\.(requests|limits)\.\w+\.com/gpu$|\.executor\.gpu\.|\.slotsPerWorker$",
    "the taint of their nodes": r"\.tolerations\.\d+\.",
    "images and flags for GPUs": r"\.containers\.\d+\.(image|(args|command)(\.\d+)?)$",
    "two would need twice the GPUs": r"\.spec\.strategy\.",
}
"""Further fields of what asks for GPUs in one of the two."""


@pytest.mark.parametrize("stack", files.stacks())
def test_environments_of_a_stack_differ_in_what_their_clusters_differ_in(tmp_path: Path, stack: str) -> None:
    init_stack(tmp_path / "app", "demo", stack)
    app = AppDir(tmp_path / "app")
    minikube, gke = (render.load(app, name).objects for name in ("minikube", "gke"))
    assert differences(minikube, gke) <= {**ALLOWED, **WITH_GPUS}.keys()
    assert "GPUs" in differences(minikube, gke)
    assert not any(path.endswith("nvidia.com/gpu") for path in flat(minikube))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> AppDir:
    return examples.shipped_app(tmp_path_factory.mktemp("examples") / "app")


def of_gke(prototype: Prototype) -> Case:
    """Give the example that shows most of GKE."""
    cases = sorted(prototype.examples.values(), key=lambda example: example.environment != "gke")
    return Case(prototype, cases[0])


@pytest.mark.parametrize("case", [of_gke(prototype) for prototype in examples.prototypes()], ids=str)
def test_an_example_differs_in_what_clusters_differ_in(app: AppDir, case: Case) -> None:
    minikube, gke = (
        render.load(app, name, components=[case.component]).objects for name in ("minikube", "gke")
    )
    has_gpus = any("gpu" in path for path in flat(gke))
    assert differences(minikube, gke) <= {**ALLOWED, **(WITH_GPUS if has_gpus else {})}.keys()


def differences(first: Sequence[KubeObject], second: Sequence[KubeObject]) -> set[str]:
    """Give what the fields that differ belong to; a field that no row allows is given itself."""
    mine, theirs = flat(first), flat(second)
    paths = {path for path in {*mine, *theirs} if mine.get(path) != theirs.get(path)}
    return {row_of(path) for path in paths}


def row_of(path: str) -> str:
    rows = {**ALLOWED, **WITH_GPUS}
    return next((row for row, pattern in rows.items() if re.search(pattern, path)), path)


def flat(objects: Sequence[KubeObject]) -> dict[str, Any]:
    """Give every value by its path; definitions are the same bytes wherever they go."""
    return {
        path: value
        for obj in objects
        if obj.kind != "CustomResourceDefinition"
        for path, value in leaves(obj.data, f"{obj.kind}/{obj.name}")
    }


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str) and path.endswith(".json"):
        value = json.loads(value)
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{number}")
    else:
        yield path, value
