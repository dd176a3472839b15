"""What was written for other clusters: versions that are gone become those served, fields of servers go."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlstack.importers.convert import converted, is_served, unserved_notes
from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import load_schemas, validate_objects
from mlstack.yaml.read import read_documents
from tests.support.cli import Runner

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
    after, note = converted(data)
    assert note.endswith(f"{after['apiVersion']} now")
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
    assert unserved_notes(
        [gone, gone, obj("v1", "Pod"), obj("example.com/v1", "Widget")], has_converted=False
    ) == ["no server serves policy/v1beta1 PodSecurityPolicy any more (2): --convert rewrites what can be"]


# --- `kubectl get -o yaml`: what the server had set is left out, comments stay ---

METADATA = """\
  annotations:
    deployment.kubernetes.io/revision: "3"
  creationTimestamp: "2026-01-01T00:00:00Z"
  generation: 3
  name: web
  resourceVersion: "1234"
  uid: 6f1d9c3e-0000-4000-8000-000000000000
"""
DEPLOYMENT = f"""\
# the shop
apiVersion: apps/v1
kind: Deployment
metadata:
{METADATA}\
spec:
  replicas: 2  # enough for the night
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata:
      labels: {{app: web}}
    spec:
      containers:
      - {{name: main, image: "nginx:1.29"}}
status:
  readyReplicas: 2
"""
ASKED = json.dumps({"spec": {"ports": [{"port": 80, "nodePort": 30080}, {"port": 81}]}})
SERVICE = f"""\
apiVersion: v1
kind: Service
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{ASKED}'
    team: shop
  name: web
  uid: 6f1d9c3e-0000-4000-8000-000000000001
spec:
  clusterIP: 10.0.0.7
  clusterIPs: [10.0.0.7]
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  ports:
  - {{name: a, port: 80, nodePort: 30080}}
  - {{name: b, port: 81, nodePort: 31555}}
  selector: {{app: web}}
  type: NodePort
status:
  loadBalancer: {{}}
"""
CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  annotations: {pv.kubernetes.io/bound-by-controller: "yes", pv.kubernetes.io/bind-completed: "yes"}
  name: data
  uid: 6f1d9c3e-0000-4000-8000-000000000002
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: pvc-6f1d}
status: {phase: Bound}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  labels: {batch.kubernetes.io/controller-uid: x, job-name: once}
  name: once
  uid: 6f1d9c3e-0000-4000-8000-000000000003
spec:
  selector: {matchLabels: {batch.kubernetes.io/controller-uid: x}}
  template:
    metadata: {labels: {app: once, controller-uid: x}}
    spec: {restartPolicy: Never, containers: [{name: main, image: "busybox:1"}]}
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Path:
    monkeypatch.chdir(tmp_path)
    run("init demo")
    monkeypatch.chdir(tmp_path / "demo")
    return tmp_path / "demo"


def test_c25_an_import_leaves_out_what_the_server_had_set(app: Path, run: Runner) -> None:
    Path("web.yaml").write_text(DEPLOYMENT)
    ran = run("import web.yaml")
    assert ran.code == 0, ran.err
    manifest = DEPLOYMENT.replace(METADATA, "  name: web\n")
    assert Path("components/web.yaml").read_text() == manifest[: manifest.index("status:")]
    fields = "metadata.creationTimestamp, metadata.generation, metadata.resourceVersion, metadata.uid"
    assert f"web.yaml: left out what the server had set: {fields}, metadata.annotations, status" in " ".join(
        ran.err.split()
    )


def test_allotted_addresses_and_ports_go_and_chosen_ones_stay(app: Path, run: Runner) -> None:
    Path("web.yaml").write_text("---\n".join((SERVICE, CLAIM, JOB)))
    assert run("import web.yaml").code == 0
    service, claim, job = (
        document.value
        for document in read_documents(Path("components/web.yaml").read_text(), source="web.yaml")
    )
    ports = [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}]
    assert service["spec"] == {"ports": ports, "selector": {"app": "web"}, "type": "NodePort"}
    assert service["metadata"] == {"name": "web", "annotations": {"team": "shop"}}
    assert claim["metadata"] == {"name": "data"} and "volumeName" not in claim["spec"]
    assert job["metadata"] == {"name": "once"} and "selector" not in job["spec"]
    assert job["spec"]["template"]["metadata"] == {"labels": {"app": "once"}}


def test_a_list_of_exported_objects_is_cleaned(app: Path, run: Runner) -> None:
    items = [
        document.value for text in (DEPLOYMENT, SERVICE) for document in read_documents(text, source="x")
    ]
    Path("all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert run("import all.json").code == 0
    text = Path("components/all.json").read_text()
    assert json.loads(text)["kind"] == "List"
    assert not [word for word in ("uid", "status", "clusterIP", "31555", "resourceVersion") if word in text]
    assert "30080" in text


def test_what_no_server_has_kept_stays_to_the_byte(app: Path, run: Runner) -> None:
    spec = "spec: {clusterIP: 10.0.0.7, ports: [{port: 1}]}"
    text = f"apiVersion: v1\nkind: Service\nmetadata: {{name: web}}  # uid\n{spec}\n"
    Path("web.yaml").write_text(text)
    assert run("import web.yaml").code == 0
    assert Path("components/web.yaml").read_text() == text


def test_a_prototype_of_an_exported_manifest_passes_its_own_test(app: Path, run: Runner) -> None:
    Path("web.yaml").write_text("---\n".join((DEPLOYMENT, SERVICE)))
    ran = run("prototype new shop --from web.yaml")
    assert (ran.code, "left out what the server had set" in ran.err) == (0, True), ran.err
    template = Path("shop/shop/templates/shop.yaml.j2").read_text()
    assert "# enough for the night" in template and "uid" not in template
    tested = run("pkg test shop -o json")
    assert tested.json["ok"], tested.out
