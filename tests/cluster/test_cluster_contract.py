"""A real API server keeps the contract of clusters: what the suite says of the memory cluster is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlstack.kube.api_server import connect
from mlstack.kube.client import Cluster
from tests.support.cluster_contract import ClusterContract

pytestmark = pytest.mark.cluster

NOTHING_RUNS = True


class TestRealCluster(ClusterContract):
    @pytest.fixture
    def cluster(self, kubeconfig: Path) -> Cluster:
        return connect("minikube", kubeconfig=str(kubeconfig))
