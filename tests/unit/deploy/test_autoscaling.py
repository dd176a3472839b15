"""Which workloads are scaled, and by which field."""

from typing import Any

import pytest

from mlstack.objects.kube_object import Identity
from mlstack.objects.references import scaled_workload


def scaler(identity: tuple[str, str], **target: str) -> dict[str, Any]:
    kind, api_version = identity
    metadata = {"name": "web", "namespace": "ml"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"scaleTargetRef": target}}


HPA = ("HorizontalPodAutoscaler", "autoscaling/v2")
KEDA = ("ScaledObject", "keda.sh/v1alpha1")


@pytest.mark.parametrize(
    ("data", "workload"),
    [
        (
            scaler(HPA, apiVersion="apps/v1", kind="StatefulSet", name="db"),
            Identity("apps", "StatefulSet", "ml", "db"),
        ),
        (scaler(KEDA, name="worker"), Identity("apps", "Deployment", "ml", "worker")),
        (scaler(HPA), None),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, None),
    ],
    ids=["as it says", "a Deployment unless KEDA is told", "no target", "no autoscaler"],
)
def test_an_autoscaler_names_its_workload(data: dict[str, Any], workload: Identity | None) -> None:
    assert scaled_workload(data) == workload
