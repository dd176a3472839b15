"""Every object of every example passes a real API server's strict dry run, in whatever cluster it comes to.

In `minikube` upstream's definitions of training jobs are installed, in `gke` ours. The namespaces admit only
pods of the Pod Security level `restricted`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
DRY_RUN = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
OTHER_NAMESPACE = "research"  # an example names it beside its own


@pytest.fixture(scope="module", autouse=True)
def definitions(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Upstream's definitions in one cluster, ours in the other as far as we have them."""
    app = examples.shipped_app(tmp_path_factory.mktemp("examples") / "app")
    objects = [each for case in examples.cases() for each in examples.render(app, case).objects]
    theirs, ours = upstream.crds_of(objects), sorted(OURS.glob("*.yaml"))
    known = {file.name for file in ours}
    files = {
        "minikube": [*theirs, ELASTIC],
        "gke": [*ours, *(file for file in theirs if file.name not in known), ELASTIC],
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


@pytest.mark.parametrize("case", examples.served_cases(), ids=str)
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


@pytest.mark.parametrize("case", examples.served_cases(), ids=str)
def test_the_pods_of_an_example_pass_pod_security(
    case: Case, tmp_path: Path, namespace: str, minikube: TestCluster
) -> None:
    """What a controller makes of a template is refused where only `kubectl get events` tells it.

    A user who chooses root, as sshd of MPI's images needs it, chooses the level `baseline`.
    """
    objects = rendered(tmp_path / "app", case, namespace).objects
    templates = [template for each in objects for template in pod_templates(each.data)]
    for number, template in enumerate(templates):
        is_root = (template["spec"].get("securityContext") or {}).get("runAsUser") == 0
        restrict(minikube, namespace, "baseline" if is_root else "restricted")
        spec = {"restartPolicy": "Never", **template["spec"]}
        for field in ("serviceAccountName", "priorityClassName", "runtimeClassName"):
            spec.pop(field, None)  # objects that are not there
        # A StatefulSet's own claims are volumes that its controller adds.
        mounts = {mount["name"] for each in spec["containers"] for mount in each.get("volumeMounts", ())}
        lacking = sorted(mounts - {volume["name"] for volume in spec.get("volumes", ())})
        spec["volumes"] = [*spec.get("volumes", ()), *({"name": name, "emptyDir": {}} for name in lacking)]
        metadata = {**template.get("metadata", {}), "name": f"pod-{number}", "namespace": namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        said = minikube.kubectl("create", *DRY_RUN[3:], input=json.dumps(pod), check=False)
        assert said.stderr == ""


def pod_templates(data: Any) -> Iterator[Mapping[str, Any]]:
    """Give every pod template at any depth of an object, its definition's schema apart."""
    if isinstance(data, Mapping) and data.get("kind") != "CustomResourceDefinition":
        if isinstance(data.get("spec"), Mapping) and isinstance(data["spec"].get("containers"), list):
            yield data
        else:
            yield from (template for value in data.values() for template in pod_templates(value))
    elif isinstance(data, list):
        yield from (template for value in data for template in pod_templates(value))


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


def restrict(cluster: TestCluster, namespace: str, level: str = "restricted") -> None:
    """Admit only pods that a Pod Security level admits, the strictest unless said."""
    path = f"/api/v1/namespaces/{namespace}"
    body = {"metadata": {"labels": dict.fromkeys(RESTRICTED, level)}}
    cluster.api.request("PATCH", path, body, content_type="application/merge-patch+json")
