"""Where a controller outside of the cluster stands for election: beside those that there are."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic.controller.leader import lease_namespace
from mlstack.errors import ForbiddenError, UnreachableError, UsageError
from mlstack.kube.client import ClientWrapper
from mlstack.kube.lease import Lease
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"), clock=lambda: 1_700_000_000.0)


def hold(cluster: MemoryCluster, namespace: str, name: str = "mlstack-elastic") -> None:
    Lease(cluster=cluster, namespace=namespace, name=name, holder="pod-0", now_s=lambda: 1.7e9).take()


def find(cluster: Any) -> tuple[str, list[str]]:
    told: list[str] = []
    return lease_namespace(cluster, "mlstack-elastic", default="default", log=told.append), told


class Failing(ClientWrapper):
    """A cluster that lists nothing."""

    def __init__(self, cluster: MemoryCluster, error: Exception) -> None:
        super().__init__(cluster)
        self._error = error

    def list(self, *words: Any, **options: Any) -> Any:
        raise self._error


def test_the_lease_that_is_there_is_used(cluster: MemoryCluster) -> None:
    hold(cluster, "kube-system")
    hold(cluster, "kube-public", "another")

    assert find(cluster) == ("kube-system", [])


def test_without_any_the_default_is(cluster: MemoryCluster) -> None:
    assert find(cluster) == ("default", [])


def test_several_are_refused_by_name(cluster: MemoryCluster) -> None:
    hold(cluster, "kube-system")
    hold(cluster, "default")

    with pytest.raises(
        UsageError, match="`default/mlstack-elastic`, `kube-system/mlstack-elastic`"
    ) as caught:
        find(cluster)

    assert "--lease-namespace" in str(caught.value.hint)


def test_whoever_may_not_look_is_told_what_follows(cluster: MemoryCluster) -> None:
    namespace, told = find(Failing(cluster, ForbiddenError("no")))

    assert namespace == "default"
    [line] = told
    assert "`default/mlstack-elastic`" in line and "--lease-namespace" in line


def test_a_cluster_that_does_not_answer_is_no_empty_one(cluster: MemoryCluster) -> None:
    with pytest.raises(UnreachableError):
        find(Failing(cluster, UnreachableError("no answer")))
