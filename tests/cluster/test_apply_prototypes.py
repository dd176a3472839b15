"""Every example of the shipped prototypes: applied and ready, applied again, compared by kubectl, deleted.

In `gke` our definitions are installed, and those of upstream that we do not have; in `minikube` upstream's of
those that we do, and each example's objects of their kinds pass a strict dry run there. The namespaces admit
only pods of the Pod Security level `restricted`. What an example expects of others is there: accounts,
claims, nodes with its labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.deploy.changes import ApplyOptions, RunEvent
from mlstack.deploy.prune import KeepOptions
from mlstack.deploy.target import Target
from mlstack.kube.api_server import connect
from mlstack.kube.client import Opener
from mlstack.objects.kube_object import COMPONENT_LABEL, Kinds, KubeObject
from mlstack.objects.references import templates
from mlstack.operations import deploy
from mlstack.operations.status import status
from mlstack.yaml import write
from tests.controlplane.recipes import Programs
from tests.support import dryrun, examples, upstream
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.deploying import RealClock
from tests.support.examples import Case
from tests.support.looking import looked_at
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

PROTOTYPES = files.folder("prototypes")
CRDS = (
    *sorted((PROTOTYPES / "core/kubeflow-core/files/crds").glob("*.yaml")),
    PROTOTYPES / "elastic/crds/trainingjobs.yaml",
)
NAME = "shown"
ELSEWHERE = ("research",)  # namespaces that an example expects to be there
LEVELS = ("restricted", "baseline")  # of Pod Security; there is a namespace of each name
ROWS = dict.fromkeys(("core", "tf-job", "training"), "jobs")  # what stands in one row; else a package
CLAIM = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}}
ROOMY = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "16", "pods": "250"}
WORKING = ("ready", "done", "suspended")


@pytest.fixture(scope="module")
def control_plane(isolated_programs: Programs) -> Iterator[ControlPlane]:
    """Clusters for this file alone: to remove their definitions again would take minutes."""
    plane = ControlPlane.start(isolated_programs)
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def gke(control_plane: ControlPlane) -> TestCluster:
    """The cluster with the definitions that the examples need, as somebody else has installed them."""
    gke = control_plane.clusters["gke"]
    dryrun.install(gke, (*CRDS, *upstream_definitions(ours=False)))
    for name in ELSEWHERE:
        gke.ensure_namespace(name)
    return gke


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane) -> Kinds:
    """The kinds of `minikube` by upstream's definitions, which are installed there."""
    minikube, definitions = control_plane.clusters["minikube"], upstream_definitions(ours=True)
    dryrun.install(minikube, definitions)
    for level in LEVELS:
        marks = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
        minikube.request("POST", "/api/v1/namespaces", {"metadata": {"name": level, "labels": marks}})
        minikube.wait_for_service_account(level)
    return Kinds.builtin().with_crds(yaml.load(file.read_bytes(), yaml.CSafeLoader) for file in definitions)


def upstream_definitions(*, ours: bool) -> list[Path]:
    """Give upstream's definitions of what prototypes need: of kinds that we ship too, or of the others."""
    needed = (need.kind.rpartition("/") for entry in examples.prototypes() for need in entry.needs)
    objects = (KubeObject(data={"apiVersion": version, "kind": kind}) for version, _, kind in needed)
    names = {file.name for file in CRDS}
    return [file for file in upstream.crds_of(objects) if (file.name in names) is ours]


def write_app(root: Path, case: Case, namespace: str) -> AppDir:
    params = {key: value for key, value in case.example.params.items() if key != "namespace"}
    app = examples.write_app(root, {NAME: (case.prototype.full_name, params)})
    file = root / "environments" / case.environment / "environment.yaml"
    content = {**json.loads(file.read_text()), "context": "gke", "namespace": namespace}
    file.write_text(write.to_yaml(content))
    return app


Outcomes = Mapping[Case, BaseException | None]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    gke: TestCluster,
    kinds: Kinds,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outcomes:
    """What went wrong with each example that is asked for; several at once, since they mostly wait.

    The examples of one package follow each other in one app, whose templates are compiled once: they share
    names of objects outside of namespaces. Those of jobs follow those of the core, whose webhook is asked of
    every job while it is there.
    """
    folder = tmp_path_factory.mktemp("apps")
    items = [
        item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")
    ]
    asked = {item.callspec.params["case"] for item in items}
    rows: dict[str, list[Case]] = {}
    for case in (case for case in examples.served_cases() if case in asked):
        rows.setdefault(ROWS.get(case.prototype.package, case.prototype.package), []).append(case)
    ask = partial(refuse_nothing, control_plane.clusters["minikube"], kinds)

    def follow(row: str) -> Outcomes:
        opener = cache(lambda context: connect(context, kubeconfig=str(gke.kubeconfig)))
        return {case: outcome(case, folder / row, opener) for case in rows[row]}

    def outcome(case: Case, root: Path, opener: Opener) -> BaseException | None:
        try:
            app = write_app(root, case, f"of-{case.component}"[:63])
            target = Target(app=app, environment=case.environment)
            ask(target.desired().objects)
            live(case, target, gke, opener)
        except BaseException as error:  # the test of the example raises it
            return error
        return None

    with ThreadPoolExecutor(4) as pool:
        longest_first = sorted(rows, key=lambda row: len(rows[row]), reverse=True)
        return {case: error for row in pool.map(follow, longest_first) for case, error in row.items()}


@pytest.mark.parametrize("case", examples.served_cases(), ids=str)
def test_example_is_applied_once_and_for_all(case: Case, outcomes: Outcomes) -> None:
    if (error := outcomes[case]) is not None:
        raise error


def test_nothing_is_left_but_definitions_and_namespaces(outcomes: Outcomes, gke: TestCluster) -> None:
    served = gke.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    gone = [
        name for name in served if name.partition(".")[0] not in ("customresourcedefinitions", "namespaces")
    ]
    assert gke.kubectl("get", ",".join(gone), "-A", "-l", COMPONENT_LABEL, "-o", "name").stdout == ""


def refuse_nothing(cluster: TestCluster, kinds: Kinds, objects: Sequence[KubeObject]) -> None:
    """Dry-run objects of custom kinds, and the pods that controllers make of the templates of all."""
    assert ask(cluster, [obj for obj in objects if is_custom(obj, kinds)], kinds) == []
    assert ask_for_pods(cluster, objects) == []


def ask(cluster: TestCluster, objects: Sequence[KubeObject], kinds: Kinds) -> list[str]:
    """Give the warnings of a strict dry run of objects in a restricted namespace."""
    data = ({**obj.data, "metadata": {**obj.data["metadata"], "namespace": LEVELS[0]}} for obj in objects)
    return [warning for item in data for warning in dryrun.answer(cluster, item, kinds)]


def is_custom(obj: KubeObject, kinds: Kinds) -> bool:
    """Tell whether a definition that is installed makes the kind of an object."""
    kind = obj.api_version, obj.kind
    return kinds.lookup(*kind) is not None and Kinds.builtin().lookup(*kind) is None


def ask_for_pods(cluster: TestCluster, objects: Sequence[KubeObject]) -> list[str]:
    """Give the warnings of a strict dry run of the pods of templates.

    What a controller makes of a template is refused where only `kubectl get events` tells it. A user who
    chooses root, as sshd of MPI's images needs it, chooses the level `baseline`.
    """
    warnings = []
    pods = [template for obj in objects for template in pod_templates(obj.data)]
    for number, template in enumerate(pods):
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


def test_an_unknown_field_would_be_refused(control_plane: ControlPlane, kinds: Kinds) -> None:
    metadata = {"name": "x", "namespace": LEVELS[0]}
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "dat": {}}
    assert "dat" in str(dryrun.refusal(control_plane.clusters["minikube"], wrong, kinds))


def test_what_pod_security_refuses_or_warns_of_would_be_told(
    control_plane: ControlPlane, kinds: Kinds
) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    data = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    minikube, deployment = control_plane.clusters["minikube"], KubeObject(data=data)
    assert "restricted" in str(ask(minikube, [deployment], kinds))
    with pytest.raises(ApiRefusedError, match="restricted"):
        ask_for_pods(minikube, [deployment])


def live(case: Case, target: Target, gke: TestCluster, opener: Opener) -> None:
    """Apply an example without a warning, see it work, find nothing to change by any means, delete it."""
    clock, events, namespace = RealClock(), list[RunEvent](), target.place().namespace
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    gke.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    gke.wait_for_service_account(namespace)

    rendered = target.desired().objects
    core = {str(obj.identity): obj for obj in rendered if Kinds.builtin().lookup(obj.api_version, obj.kind)}
    provide(gke, namespace, [*core.values()])
    plan = deploy.plan_apply(target, opener=opener, options=ApplyOptions(wait=False))
    assert deploy.apply(plan, clock=clock, on_event=events.append).ok
    assert [event.text for event in events if event.kind == "warning"] == []

    def waiting() -> list[str]:
        """Give the objects of Kubernetes' own kinds that do not work yet; others wait for their operators."""
        parts = status(target, opener=opener, clock=clock).components
        rows = [row for part in parts for row in part.objects if row.state not in WORKING]
        return [f"{row.object}: {row.reason}" for row in rows if row.object in core]

    wait_until(lambda: not waiting(), what=f"{case} to work", timeout_s=120, interval_s=0.5, details=waiting)

    # Definitions outlive a delete: those that another example left carry its environment's marks.
    text = write.to_yaml_documents(obj.data for obj in rendered if obj.kind != "CustomResourceDefinition")
    assert gke.kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", input=text).stdout == ""
    assert deploy.diff(target, opener=opener).ok
    again = deploy.plan_apply(
        replace(target, app=AppDir(target.app.root, store=examples.STORE)), opener=opener
    )
    assert {change.action for change in again.changes.changes} == {"unchanged"}
    assert again.changes.writes == ()
    tried = looked_at(target, opener)
    assert {change.action for change in tried.changes} == {"unchanged"}
    assert tried.writes == ()

    gone = deploy.plan_delete(target, opener=opener, spare=KeepOptions(claims=False))
    assert deploy.apply(gone, clock=clock).ok


def provide(gke: TestCluster, namespace: str, objects: Sequence[KubeObject]) -> None:
    """Have what objects expect of others: accounts, claims, volumes, and nodes with a cloud's labels."""
    pods = [template.spec for obj in objects for template in templates(obj)]
    accounts = {pod.get("serviceAccountName", "default") for pod in pods}
    brought = {obj.name for obj in objects if obj.kind == "ServiceAccount"}
    lacking = [item("v1", "ServiceAccount", name) for name in accounts - brought - {"default"}]
    selectors = {write.to_json(pod.get("nodeSelector") or {}): pod for pod in pods}
    nodes = [node(hashlib.sha256(text.encode()).hexdigest()[:8], pod) for text, pod in selectors.items()]
    claims = {obj.name: obj.data for obj in objects if obj.kind == "PersistentVolumeClaim"}
    for obj in objects:  # whose controller makes claims of them
        for template in (obj.data.get("spec") or {}).get("volumeClaimTemplates") or ():
            claims[f"{template['metadata']['name']}-{obj.name}-0"] = template
    for mounted in (mounted for pod in pods for mounted in pod.get("volumes") or ()):
        name = mounted.get("persistentVolumeClaim", {}).get("claimName")
        if name not in (None, *claims):
            claims[name] = item("v1", "PersistentVolumeClaim", name, spec=CLAIM)
            lacking.append(claims[name])
    free = {name: claim["spec"] for name, claim in claims.items() if "volumeName" not in claim["spec"]}
    volumes = [volume(namespace, name, spec) for name, spec in free.items()]
    for data in (*lacking, *nodes, *volumes):
        place = "" if data["kind"] in ("Node", "PersistentVolume") else f"/namespaces/{namespace}"
        try:
            gke.request("POST", f"/api/v1{place}/{data['kind'].lower()}s", data)
        except ApiRefusedError as error:
            if error.status != 409:  # the node of another example that asks for the same labels
                raise


def item(api_version: str, kind: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **rest}


def node(name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Give a large node that the selector of a pod admits."""
    labels = {**(pod.get("nodeSelector") or {}), "kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": labels}
    return {
        **item("v1", "Node", name),
        "metadata": metadata,
        "status": {"capacity": ROOMY, "allocatable": ROOMY},
    }


def volume(namespace: str, name: str, claim: Mapping[str, Any]) -> dict[str, Any]:
    """Give a volume that is meant for a claim, whatever class and access it asks for."""
    spec = {
        "accessModes": claim["accessModes"],
        "capacity": {"storage": claim["resources"]["requests"]["storage"]},
        "claimRef": {"namespace": namespace, "name": name},
        "hostPath": {"path": f"/nowhere/{namespace}"},
        "storageClassName": claim.get("storageClassName", "standard-rwo"),
    }
    return item("v1", "PersistentVolume", f"{namespace}-{name}", spec=spec)
