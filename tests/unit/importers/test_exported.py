"""Manifests as `kubectl get -o yaml` gives them: what the server had set is left out, comments stay."""

import json
from pathlib import Path

import pytest

from mlstack.yaml.read import read_documents
from tests.support.cli import Runner

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
    kept = DEPLOYMENT.replace(METADATA, "  name: web\n")
    assert Path("components/web.yaml").read_text() == kept[: kept.index("status:")]
    told = "metadata.creationTimestamp, metadata.generation, metadata.resourceVersion, metadata.uid"
    assert f"web.yaml: left out what the server had set: {told}, metadata.annotations, status" in " ".join(
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
