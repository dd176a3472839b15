"""What a StatefulSet leaves behind when it is made anew."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.kube.client import ObjectRef
from mlstack.testing.cluster import MemoryCluster
from mlstack.testing.controllers import Simulation
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"), clock=VirtualClock())


@pytest.fixture
def stack(tmp_path: Any, cluster: MemoryCluster) -> Stack:
    return Stack(tmp_path / "app", namespace="ml", opener=lambda context: cluster, clock=VirtualClock())


def stateful_set(
    service: str = "db", size: str = "1Gi", recreate: str = "true", **labels: str
) -> dict[str, Any]:
    marks = {"app": "db", **labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "annotations": {"mlstack.dev/recreate": recreate}},
        "spec": {
            "serviceName": service,
            "replicas": 1,
            "selector": {"matchLabels": marks},
            "template": {
                "metadata": {"labels": marks},
                "spec": {"containers": [{"name": "main", "image": "db:1"}]},
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": size}},
                    },
                }
            ],
        },
    }


def pod_uid(cluster: MemoryCluster) -> str | None:
    found = cluster.get(ObjectRef("v1", "Pod", "ml", "db-0"))
    return str(found["metadata"]["uid"]) if found else None


def test_pods_go_on_where_the_new_set_can_adopt_them(stack: Stack, cluster: MemoryCluster) -> None:
    stack.write("db", stateful_set())
    stack.apply()
    Simulation(cluster).settle()
    before = pod_uid(cluster)
    stack.write("db", stateful_set(size="2Gi"))
    (row,) = (row for row in stack.apply().objects if row.name == "db")
    assert row.outcome == "recreated"
    assert before is not None
    assert pod_uid(cluster) == before


@pytest.mark.parametrize("changed", [{"service": "other"}, {"tier": "x"}], ids=["service", "selector"])
def test_pods_end_where_the_new_set_could_not_adopt_them(
    stack: Stack, cluster: MemoryCluster, changed: dict[str, str]
) -> None:
    stack.write("db", stateful_set())
    stack.apply()
    Simulation(cluster).settle()
    claims = [one["metadata"]["uid"] for one in cluster.list("v1", "PersistentVolumeClaim").items]
    stack.write("db", stateful_set(**changed))
    stack.apply()
    assert pod_uid(cluster) is None
    assert [one["metadata"]["uid"] for one in cluster.list("v1", "PersistentVolumeClaim").items] == claims
