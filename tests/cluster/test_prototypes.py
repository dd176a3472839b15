"""Every object of every example passes a real API server's strict dry run, in whatever cluster it comes to.

In `gke` our definitions are installed, and those of upstream that we do not have; in `minikube` upstream's of
those that we do, and their kinds alone are tried again there. The namespaces admit only pods of the Pod
Security level `restricted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from mlstack.app import files
from mlstack.objects.kube_object import Kinds, KubeObject
from tests.controlplane.recipes import Programs
from tests.support import dryrun, examples, upstream
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.examples import Case

pytestmark = pytest.mark.cluster

ELASTIC = files.folder("prototypes") / "elastic" / "crds" / "trainingjobs.yaml"  # upstream has none
OURS = files.folder("prototypes") / "core" / "kubeflow-core" / "files" / "crds"
LEVELS = ("restricted", "baseline")  # of Pod Security; there is a namespace of each name
OTHER_NAMESPACE = "research"  # an example names it beside its own
Rendered = Mapping[Case, Sequence[KubeObject]]
Answers = Mapping[tuple[Case, str], Future[list[str]]]
"""What a cluster says of an example, or of its pods: warnings, or the error with which it refuses one."""


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Every example, for a namespace that admits only what its level admits."""
    app = examples.app_of_examples(tmp_path_factory.mktemp("examples") / "app")
    return {case: examples.render(app, case, namespace=LEVELS[0]).objects for case in examples.served_cases()}


@pytest.fixture(scope="module")
def control_plane(isolated_programs: Programs) -> Iterator[ControlPlane]:
    """Clusters for this file alone: to remove their definitions again would take minutes."""
    plane = ControlPlane.start(isolated_programs)
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane, rendered: Rendered) -> Mapping[str, Kinds]:
    """The kinds of each cluster, whose definitions are installed."""
    theirs = upstream.crds_of(obj for objects in rendered.values() for obj in objects)
    ours = sorted(OURS.glob("*.yaml"))
    names = {file.name for file in ours}
    files = {
        "minikube": [file for file in theirs if file.name in names],
        "gke": [*ours, *(file for file in theirs if file.name not in names), ELASTIC],
    }
    for name, cluster in control_plane.clusters.items():
        dryrun.install(cluster, files[name])
        for namespace in (*LEVELS, OTHER_NAMESPACE):
            cluster.ensure_namespace(namespace)
            restrict(cluster, namespace, "baseline" if namespace == "baseline" else "restricted")
    return {
        name: Kinds.builtin().with_crds(yaml.load(file.read_bytes(), yaml.CSafeLoader) for file in crds)
        for name, crds in files.items()
    }


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    """Asks for many examples at once: who asks waits more than the cluster computes."""
    with ThreadPoolExecutor(6) as pool:
        yield pool
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def answers(
    control_plane: ControlPlane, pool: ThreadPoolExecutor, kinds: Mapping[str, Kinds], rendered: Rendered
) -> Answers:
    """What each cluster says of the objects of each example."""
    return {
        (case, name): pool.submit(ask, cluster, objects, kinds[name])
        for case, objects in rendered.items()
        for name, cluster in control_plane.clusters.items()
    }


def ask(cluster: TestCluster, objects: Sequence[KubeObject], kinds: Kinds) -> list[str]:
    """Give the warnings of a strict dry run of an example's objects, in `minikube` of custom ones alone."""
    sent = [obj for obj in objects if cluster.context == "gke" or is_custom(obj, kinds)]
    return [warning for obj in sent for warning in dryrun.answer(cluster, obj.data, kinds)]


def is_custom(obj: KubeObject, kinds: Kinds) -> bool:
    """Tell whether a definition that is installed makes the kind of an object."""
    kind = obj.api_version, obj.kind
    return kinds.lookup(*kind) is not None and Kinds.builtin().lookup(*kind) is None


@pytest.mark.parametrize("case", examples.served_cases(), ids=str)
def test_an_example_passes_a_strict_dry_run(case: Case, answers: Answers) -> None:
    assert answers[case, "minikube"].result() == []
    assert answers[case, "gke"].result() == []


@pytest.fixture(scope="module")
def pod_answers(
    control_plane: ControlPlane, pool: ThreadPoolExecutor, kinds: Mapping[str, Kinds], rendered: Rendered
) -> Answers:
    """What a cluster says of the pods that controllers make of each example's templates."""
    cluster = control_plane.clusters["minikube"]
    return {(case, "pods"): pool.submit(ask_for_pods, cluster, objects) for case, objects in rendered.items()}


def ask_for_pods(cluster: TestCluster, objects: Sequence[KubeObject]) -> list[str]:
    """Give the warnings of a strict dry run of the pods of an example's templates.

    A user who chooses root, as sshd of MPI's images needs it, chooses the level `baseline`.
    """
    warnings = []
    templates = [template for obj in objects for template in pod_templates(obj.data)]
    for number, template in enumerate(templates):
        is_root = (template["spec"].get("securityContext") or {}).get("runAsUser") == 0
        namespace = "baseline" if is_root else "restricted"
        spec = {"restartPolicy": "Never", **template["spec"]}
        for field in ("serviceAccountName", "priorityClassName", "runtimeClassName"):
            spec.pop(field, None)  # objects that are not there
        # A StatefulSet's own claims are volumes that its controller adds.
        mounts = {mount["name"] for item in spec["containers"] for mount in item.get("volumeMounts", ())}
        lacking = sorted(mounts - {volume["name"] for volume in spec.get("volumes", ())})
        spec["volumes"] = [*spec.get("volumes", ()), *({"name": name, "emptyDir": {}} for name in lacking)]
        metadata = {**template.get("metadata", {}), "name": f"pod-{number}", "namespace": namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/pods?fieldValidation=Strict&dryRun=All"
        warnings += cluster.api.request_with_warnings("POST", path, pod)[1]
    return warnings


@pytest.mark.parametrize("case", examples.served_cases(), ids=str)
def test_the_pods_of_an_example_pass_pod_security(case: Case, pod_answers: Answers) -> None:
    """What a controller makes of a template is refused where only `kubectl get events` tells it."""
    assert pod_answers[case, "pods"].result() == []


def pod_templates(data: Any) -> Iterator[Mapping[str, Any]]:
    """Give every whole pod template at any depth of an object, its definition's schema apart."""
    if isinstance(data, Mapping) and data.get("kind") != "CustomResourceDefinition":
        if isinstance(data.get("spec"), Mapping) and isinstance(data["spec"].get("containers"), list):
            if all("image" in container for container in data["spec"]["containers"]):  # Seldon brings its own
                yield data
        else:
            yield from (template for value in data.values() for template in pod_templates(value))
    elif isinstance(data, list):
        yield from (template for value in data for template in pod_templates(value))


def test_an_unknown_field_would_be_refused(gke: TestCluster, kinds: Mapping[str, Kinds]) -> None:
    wrong = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": LEVELS[0]},
        "dat": {},
    }
    assert "dat" in str(dryrun.refusal(gke, wrong, kinds["gke"]))


def test_what_pod_security_refuses_or_warns_of_would_be_told(
    minikube: TestCluster, gke: TestCluster, kinds: Mapping[str, Kinds]
) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": "x", "namespace": LEVELS[0]}
    data = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    deployment = KubeObject(data=data)
    assert "restricted" in str(ask(gke, [deployment], kinds["gke"]))
    with pytest.raises(ApiRefusedError, match="restricted"):
        ask_for_pods(minikube, [deployment])


def restrict(cluster: TestCluster, namespace: str, level: str) -> None:
    """Admit only pods that a Pod Security level admits."""
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
    cluster.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
