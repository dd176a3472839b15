"""The memory cluster keeps the contract of clusters."""

from __future__ import annotations

import pytest

from mlstack.kube.client import Cluster
from mlstack.kube.retrying import FencedClient
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
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
        return FencedClient(inner, check=lambda: None, deleted=lambda ref: None)
