"""What every test of the elastic controller on a real cluster begins with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import TestCluster
from tests.support.elastic_controller import Jobs, Start, controllers_of, installed_on, jobs_of


@pytest.fixture(scope="package", autouse=True)
def installed(control_plane: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Definition, priority classes, service account and rights of the controller."""
    with installed_on(control_plane.clusters["gke"], tmp_path_factory.mktemp("elastic") / "app"):
        yield


@pytest.fixture
def start(gke: TestCluster, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """A function that starts a controller for the test's namespace; it is killed with the test."""
    with controllers_of(gke, namespace, tmp_path) as begin:
        yield begin


@pytest.fixture
def jobs(gke: TestCluster, namespace: str) -> Iterator[Jobs]:
    """The jobs of the test's namespace; their pods are gone before the next test."""
    with jobs_of(gke, namespace) as jobs:
        yield jobs


@pytest.fixture
def others(gke: TestCluster, namespace: str) -> Iterator[Jobs]:
    """The jobs of another namespace."""
    name = f"{namespace}-others"
    gke.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    gke.wait_for_service_account(name)
    with jobs_of(gke, name) as others:
        yield others
    gke.request("DELETE", f"/api/v1/namespaces/{name}")
