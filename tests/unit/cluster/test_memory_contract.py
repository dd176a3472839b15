"""The memory cluster keeps the contract of clusters."""

from __future__ import annotations

import pytest

from mlstack.cluster.ahead import AheadCluster
from mlstack.cluster.api import Cluster
from mlstack.cluster.fenced import FencedCluster
from mlstack.cluster.memory import MemoryCluster
from mlstack.files.kubernetes import load_schemas
from tests.support.cluster_contract import ClusterContract


class TestMemoryCluster(ClusterContract):
    @pytest.fixture
    def cluster(self) -> Cluster:
        return MemoryCluster(load_schemas("1.36"))

    @pytest.fixture
    def namespace(self, cluster: Cluster) -> str:
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "contract"}})
        return "contract"


class TestFencedCluster(TestMemoryCluster):
    """Whoever may write sees no fence."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        inner = MemoryCluster(load_schemas("1.36"))
        return FencedCluster(inner, check=lambda: None, deleted=lambda ref: None)


class TestAheadCluster(TestMemoryCluster):
    """Whoever asks what nobody foresaw sees no difference."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        return AheadCluster(MemoryCluster(load_schemas("1.36")))
