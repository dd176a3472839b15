"""Every example of the shipped prototypes: applied and ready, applied again, compared by kubectl, deleted.

The namespaces admit only pods of the Pod Security level `restricted`, or of the level that the prototype's
README says it needs. What an example expects of others is there: accounts, claims, nodes with its labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.prune import KeepOptions
from mlstack.deploy.target import Target
from mlstack.kube.api_server import connect
from mlstack.kube.client import Opener
from mlstack.objects.kube_object import Kinds, KubeObject
from mlstack.objects.references import templates
from mlstack.operations import deploy
from mlstack.operations.status import status
from mlstack.yaml import write
from tests.controlplane.recipes import Programs
from tests.support import dryrun, examples, upstream
from tests.support.cluster import TestCluster
from tests.support.controlplane import GKE, ControlPlane
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
ROWS = dict.fromkeys(("core", "tf-job", "training"), "jobs")  # what stands in one row; else a package
CLAIM = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}}
ROOMY = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "16", "pods": "250"}
WORKING = ("ready", "done", "suspended")


@pytest.fixture(scope="module")
def control_plane(isolated_programs: Programs) -> Iterator[ControlPlane]:
    """A cluster for this file alone: to remove its definitions again would take minutes."""
    plane = ControlPlane.start(isolated_programs, (GKE,))
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def gke(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> TestCluster:
    """The cluster with the definitions that the examples need, as somebody else has installed them."""
    gke = control_plane.clusters["gke"]
    app = examples.shipped_app(tmp_path_factory.mktemp("examples") / "app")
    objects = [obj for case in examples.served_cases() for obj in examples.render(app, case).objects]
    ours = {file.name for file in CRDS}
    theirs = [file for file in upstream.crds_of(objects) if file.name not in ours]
    dryrun.install(gke, (*CRDS, *theirs))
    return gke


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
    request: pytest.FixtureRequest, gke: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> Outcomes:
    """What went wrong with each example that is asked for; several at once, since they mostly wait.

    The examples of one package follow each other: they share names of objects outside of namespaces. Those of
    jobs follow those of the core, whose webhook is asked of every job while it is there.
    """
    folder = tmp_path_factory.mktemp("apps")
    for name in ELSEWHERE:
        gke.ensure_namespace(name)
    asked = {item.callspec.params["case"] for item in request.session.items if item.path == request.path}
    rows: dict[str, list[Case]] = {}
    for case in (case for case in examples.served_cases() if case in asked):
        rows.setdefault(ROWS.get(case.prototype.package, case.prototype.package), []).append(case)

    def follow(cases: Sequence[Case]) -> Outcomes:
        opener = cache(lambda context: connect(context, kubeconfig=str(gke.kubeconfig)))
        return {case: outcome(case, opener) for case in cases}

    def outcome(case: Case, opener: Opener) -> BaseException | None:
        try:
            live(case, folder / case.component, gke, f"of-{case.component}"[:63], opener)
        except BaseException as error:  # the test of the example raises it
            return error
        return None

    with ThreadPoolExecutor(4) as pool:
        longest_first = sorted(rows.values(), key=len, reverse=True)
        done = {case: error for row in pool.map(follow, longest_first) for case, error in row.items()}
    return done


@pytest.mark.parametrize("case", examples.served_cases(), ids=str)
def test_example_is_applied_once_and_for_all(case: Case, outcomes: Outcomes) -> None:
    if (error := outcomes[case]) is not None:
        raise error


def live(case: Case, root: Path, gke: TestCluster, namespace: str, opener: Opener) -> None:
    """Apply an example, see it work, find nothing to change by any means, delete it and find nothing left."""
    app, clock = write_app(root, case, namespace), RealClock()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    gke.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    gke.wait_for_service_account(namespace)

    target = Target(app=app, environment=case.environment)
    rendered = target.desired().objects
    core = {str(obj.identity): obj for obj in rendered if Kinds.builtin().lookup(obj.api_version, obj.kind)}
    provide(gke, namespace, [*core.values()])
    plan = deploy.plan_apply(target, opener=opener, options=ApplyOptions(wait=False))
    assert deploy.apply(plan, clock=clock).ok

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
    again = deploy.plan_apply(replace(target, app=AppDir(app.root, store=examples.STORE)), opener=opener)
    assert {change.action for change in again.changes.changes} == {"unchanged"}
    assert again.changes.writes == ()
    tried = looked_at(target, opener)
    assert {change.action for change in tried.changes} == {"unchanged"}
    assert tried.writes == ()

    gone = deploy.plan_delete(target, opener=opener, spare=KeepOptions(claims=False))
    assert deploy.apply(gone, clock=clock).ok
    left = deploy.plan_delete(target, opener=opener, spare=KeepOptions(claims=False))
    assert {change.action for change in left.changes.changes} <= {"kept"}
    gke.request("DELETE", f"/api/v1/namespaces/{namespace}")


def provide(gke: TestCluster, namespace: str, objects: Sequence[KubeObject]) -> None:
    """Have what objects expect of others: accounts, claims, volumes, and nodes with a cloud's labels."""
    pods = [template.spec for obj in objects for template in templates(obj)]
    accounts = {pod.get("serviceAccountName", "default") for pod in pods}
    brought = {obj.name for obj in objects if obj.kind == "ServiceAccount"}
    lacking = [item("v1", "ServiceAccount", name) for name in accounts - brought - {"default"}]
    selectors = {write.to_json(pod.get("nodeSelector") or {}): pod for pod in pods}
    nodes = [node(f"{namespace}-{index}", pod) for index, pod in enumerate(selectors.values())]
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
    if every := [*lacking, *nodes, *volumes]:
        gke.kubectl("create", "-n", namespace, "-f", "-", input=write.to_yaml_documents(every))


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
