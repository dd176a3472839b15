"""Which workloads are scaled, and by which field."""

from typing import Any

from mlstack.deploy import autoscaling
from mlstack.objects.kube_object import Identity


def hpa(**target: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "ml"},
        "spec": {"scaleTargetRef": target},
    }


def test_an_autoscaler_names_its_target() -> None:
    found = autoscaling.autoscaler(hpa(apiVersion="apps/v1", kind="StatefulSet", name="db"))
    assert found is not None
    assert found.target == Identity("apps", "StatefulSet", "ml", "db")
    assert found.name == "HorizontalPodAutoscaler web"


def test_keda_scales_deployments_unless_told() -> None:
    data = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "q", "namespace": "ml"},
        "spec": {"scaleTargetRef": {"name": "worker"}},
    }
    found = autoscaling.autoscaler(data)
    assert found is not None
    assert found.target == Identity("apps", "Deployment", "ml", "worker")


def test_other_objects_scale_nothing() -> None:
    assert autoscaling.autoscaler({"apiVersion": "v1", "kind": "ConfigMap"}) is None
    assert autoscaling.autoscaler(hpa()) is None


def test_a_definition_says_which_field_is_scaled() -> None:
    scale = {"scale": {"specReplicasPath": ".spec.tfReplicaSpecs.Worker.replicas"}}
    definition = {"spec": {"versions": [{"name": "v1", "subresources": scale}, {"name": "v2"}]}}
    path = ("f:spec", "f:tfReplicaSpecs", "f:Worker", "f:replicas")
    assert autoscaling.replicas_path(definition, "v1") == path
    assert autoscaling.replicas_path(definition, "v2") == ()
    assert autoscaling.replicas_path(None, "v1") == ()
