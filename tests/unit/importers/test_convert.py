"""`--convert`: versions that are gone become those that are served, and pass validation."""

from typing import Any

import pytest

from mlstack.importers.convert import converted, is_served, told_unserved
from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import load_schemas, validate_objects

POD = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def obj(version: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "ml"}, **more}


BACKEND = {"serviceName": "web", "servicePort": 80}
OLD = [
    obj("extensions/v1beta1", "Deployment", spec={"template": POD, "rollbackTo": {"revision": 1}}),
    obj("apps/v1beta1", "StatefulSet", spec={"serviceName": "x", "template": POD}),
    obj("apps/v1beta2", "DaemonSet", spec={"selector": {"matchLabels": {"app": "web"}}, "template": POD}),
    obj(
        "extensions/v1beta1",
        "Ingress",
        spec={
            "backend": BACKEND,
            "rules": [
                {"http": {"paths": [{"path": "/", "backend": {"serviceName": "web", "servicePort": "http"}}]}}
            ],
        },
    ),
    obj("policy/v1beta1", "PodDisruptionBudget", spec={"minAvailable": 1}),
    obj(
        "rbac.authorization.k8s.io/v1alpha1",
        "RoleBinding",
        roleRef={"kind": "Role", "name": "r"},
        subjects=[{"kind": "User", "name": "u", "apiVersion": "v1"}],
    ),
    obj(
        "batch/v1beta1",
        "CronJob",
        spec={
            "schedule": "* * * * *",
            "jobTemplate": {
                "spec": {
                    "template": {"spec": {"restartPolicy": "Never", "containers": POD["spec"]["containers"]}}
                }
            },
        },
    ),
    obj(
        "autoscaling/v2beta1",
        "HorizontalPodAutoscaler",
        spec={
            "maxReplicas": 2,
            "scaleTargetRef": {"kind": "Deployment", "name": "x"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}}],
        },
    ),
    obj(
        "admissionregistration.k8s.io/v1beta1",
        "ValidatingWebhookConfiguration",
        webhooks=[{"name": "a.b.c", "clientConfig": {"url": "https://x"}}],
    ),
    {
        **obj(
            "apiextensions.k8s.io/v1beta1",
            "CustomResourceDefinition",
            spec={
                "group": "example.com",
                "version": "v1",
                "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "validation": {
                    "openAPIV3Schema": {"properties": {"spec": {"properties": {"n": {"minimum": 1}}}}}
                },
                "additionalPrinterColumns": [{"name": "N", "type": "integer", "JSONPath": ".spec.n"}],
            },
        ),
        "metadata": {"name": "widgets.example.com"},
    },
]


@pytest.mark.parametrize("data", OLD, ids=lambda data: f"{data['apiVersion']} {data['kind']}")
def test_what_is_converted_is_served_and_valid(data: dict[str, Any]) -> None:
    before = repr(data)
    assert not is_served(data)
    after, told = converted(data)
    assert told.endswith(f"{after['apiVersion']} now")
    assert repr(data) == before
    assert is_served(after)
    assert not validate_objects([KubeObject(data=after)], load_schemas("1.36")).faults
    assert converted(after) == (after, "")


def test_a_selector_is_that_of_the_pods() -> None:
    assert converted(OLD[0])[0]["spec"] == {"template": POD, "selector": {"matchLabels": {"app": "web"}}}


def test_the_first_training_jobs_name_their_replicas_by_role() -> None:
    replica = {
        "replicas": 2,
        "tfReplicaType": "WORKER",
        "tfPort": 2222,
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "OnFailure"}},
    }
    old = obj("kubeflow.org/v1alpha1", "TFJob", spec={"replicaSpecs": [replica], "cleanPodPolicy": "None"})
    new = converted(old)[0]
    assert new["apiVersion"] == "kubeflow.org/v1"
    assert new["spec"]["runPolicy"] == {"cleanPodPolicy": "None"}
    worker = new["spec"]["tfReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (2, "OnFailure")
    assert worker["template"]["spec"]["containers"][0]["name"] == "tensorflow"


def test_what_nothing_serves_is_named_once() -> None:
    gone = obj("policy/v1beta1", "PodSecurityPolicy")
    assert converted(gone) == (gone, "")
    assert told_unserved(
        [gone, gone, obj("v1", "Pod"), obj("example.com/v1", "Widget")], has_converted=False
    ) == ["no server serves policy/v1beta1 PodSecurityPolicy any more (2): --convert rewrites what can be"]
