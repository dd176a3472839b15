"""An app and two clusters in memory."""

from pathlib import Path

import pytest

from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock
from tests.support.registry import sound_registry


@pytest.fixture
def clusters() -> dict[str, MemoryCluster]:
    """Two empty clusters by context."""
    schemas, clock = load_schemas("1.36"), VirtualClock()
    return {name: MemoryCluster(schemas, name=name, clock=clock) for name in ("minikube", "gke")}


@pytest.fixture
def cluster(clusters: dict[str, MemoryCluster]) -> MemoryCluster:
    """The cluster of environment `minikube`."""
    return clusters["minikube"]


@pytest.fixture
def stack(tmp_path: Path, clusters: dict[str, MemoryCluster]) -> Stack:
    """An app whose environments lead to the two clusters, namespace `ml`."""
    return Stack(tmp_path / "app", namespace="ml", opener=clusters.__getitem__, clock=VirtualClock())


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry without fault; one stands in it."""
    folder = sound_registry(tmp_path)
    monkeypatch.chdir(folder)
    return folder
