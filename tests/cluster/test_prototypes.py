"""Every object of every example passes a real API server's strict dry run, in whatever cluster it comes to.

In `minikube` upstream's definitions of training jobs are installed, in `gke` ours. The namespaces admit only
pods of the Pod Security level `restricted`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.objects.kube_object import DesiredState
from mlstack.render import render
from mlstack.yaml import write
from tests.support import examples, upstream
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.examples import Case

pytestmark = pytest.mark.cluster

ELASTIC = files.folder("prototypes") / "elastic" / "crds" / "trainingjobs.yaml"  # upstream has none
OURS = files.folder("prototypes") / "core" / "kubeflow-core" / "files" / "crds"
KINDS = ("tfjobs", "pytorchjobs", "xgboostjobs", "jaxjobs", "paddlejobs")
DRY_RUN = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
OTHER_NAMESPACE = "research"  # an example names it beside its own


@pytest.fixture(scope="module", autouse=True)
def definitions(control_plane: ControlPlane) -> Iterator[None]:
    """Upstream's definitions in one cluster, ours in the other."""
    files = {
        "minikube": [*(upstream.crd(f"kubeflow.org/{kind}.yaml") for kind in KINDS), ELASTIC],
        "gke": [*(OURS / f"{kind}.yaml" for kind in KINDS), ELASTIC],
    }
    arguments = {name: [word for file in each for word in ("-f", str(file))] for name, each in files.items()}
    for name, cluster in control_plane.clusters.items():
        cluster.kubectl("apply", "--server-side", "--force-conflicts", *arguments[name])
        cluster.kubectl("wait", "--for=condition=Established", *arguments[name], "--timeout=30s")
        labels = [f"{key}={value}" for key, value in RESTRICTED.items()]
        cluster.ensure_namespace(OTHER_NAMESPACE)
        cluster.kubectl("label", "namespace", OTHER_NAMESPACE, "--overwrite", *labels)
    yield
    for name, cluster in control_plane.clusters.items():
        cluster.kubectl("delete", *arguments[name], "--wait=true")


@pytest.mark.parametrize("case", examples.cases(), ids=str)
def test_an_example_passes_a_strict_dry_run(
    case: Case, tmp_path: Path, namespace: str, minikube: TestCluster, gke: TestCluster
) -> None:
    objects = rendered(tmp_path / "app", case, namespace).objects
    for cluster in (minikube, gke):
        restrict(cluster, namespace)
        # Ours over upstream's would be a mixture of both.
        sent = [each for each in objects if cluster is gke or each.kind != "CustomResourceDefinition"]
        said = cluster.kubectl(*DRY_RUN, input=write.to_yaml_documents(each.data for each in sent))
        assert len(said.stdout.splitlines()) == len(sent)
        assert said.stderr == ""


def test_an_unknown_field_would_be_refused(namespace: str, gke: TestCluster) -> None:
    wrong = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": namespace},
        "dat": {},
    }
    said = gke.kubectl(*DRY_RUN, input=json.dumps(wrong), check=False)
    assert said.returncode == 1
    assert "dat" in said.stderr


def rendered(root: Path, case: Case, namespace: str) -> DesiredState:
    """Render an example for a namespace of the test."""
    params = {key: value for key, value in case.example.params.items() if key != "namespace"}
    app = examples.write_app(root, {case.component: (case.prototype.full_name, params)})
    return render.load(app, case.environment, namespace=namespace)


def restrict(cluster: TestCluster, namespace: str) -> None:
    """Admit only pods that the strictest Pod Security level admits."""
    path = f"/api/v1/namespaces/{namespace}"
    body = {"metadata": {"labels": RESTRICTED}}
    cluster.api.request("PATCH", path, body, content_type="application/merge-patch+json")
