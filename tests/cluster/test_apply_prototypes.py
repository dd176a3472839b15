"""Every example of the shipped prototypes: applied, applied again, compared by kubectl, deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.prune import KeepOptions
from mlstack.deploy.target import Target
from mlstack.kube import connect
from mlstack.operations import deploy
from mlstack.render import render
from mlstack.yaml import write
from tests.support import examples, upstream
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.deploying import RealClock
from tests.support.examples import Case
from tests.support.looking import looked_at

pytestmark = pytest.mark.cluster

PROTOTYPES = files.folder("prototypes")
CRDS = (
    *sorted((PROTOTYPES / "core/kubeflow-core/files/crds").glob("*.yaml")),
    PROTOTYPES / "elastic/crds/trainingjobs.yaml",
)
NAME = "shown"
ELSEWHERE = ("research",)  # namespaces that an example expects to be there


@pytest.fixture(scope="module")
def definitions(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The definitions that the examples need, ours and upstream's, as somebody else has installed them."""
    gke = control_plane.clusters["gke"]
    app = examples.shipped_app(tmp_path_factory.mktemp("examples") / "app")
    objects = [obj for case in examples.cases() for obj in examples.render(app, case).objects]
    ours = {file.name for file in CRDS}
    theirs = [file for file in upstream.crds_of(objects) if file.name not in ours]
    flags = [word for file in (*CRDS, *theirs) for word in ("-f", str(file))]
    gke.kubectl("apply", "--server-side", *flags)
    gke.kubectl("wait", "--for=condition=Established", *flags, "--timeout=30s")
    yield
    gke.kubectl("delete", *flags, "--ignore-not-found", "--wait=true")


def write_app(root: Path, case: Case, namespace: str) -> AppDir:
    params = {key: value for key, value in case.example.params.items() if key != "namespace"}
    app = examples.write_app(root, {NAME: (case.prototype.full_name, params)})
    file = root / "environments" / case.environment / "environment.yaml"
    content = {**json.loads(file.read_text()), "context": "gke", "namespace": namespace}
    file.write_text(write.to_yaml(content))
    return app


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("case", examples.served_cases(), ids=str)
def test_example_is_applied_once_and_for_all(
    case: Case, tmp_path: Path, gke: TestCluster, namespace: str, kubeconfig: Path
) -> None:
    app, clock = write_app(tmp_path / "app", case, namespace), RealClock()

    def opener(context: str) -> connect.Cluster:
        return connect.connect(context, kubeconfig=str(kubeconfig))

    for name in ELSEWHERE:
        gke.ensure_namespace(name)
    target = Target(app=app, environment=case.environment)
    plan = deploy.plan_apply(target, opener=opener, options=ApplyOptions(wait=False))
    assert deploy.apply(plan, clock=clock).ok

    # Definitions outlive a delete: those that another example left carry its environment's marks.
    rendered = render.load(app, case.environment).objects
    text = write.to_yaml_documents(
        found.data for found in rendered if found.kind != "CustomResourceDefinition"
    )
    assert gke.kubectl("diff", "-f", "-", input=text).stdout == ""
    assert deploy.diff(target, opener=opener).ok
    again = deploy.plan_apply(replace(target, app=AppDir(app.root)), opener=opener)
    assert {change.action for change in again.changes.changes} == {"unchanged"}
    assert again.changes.writes == ()
    tried = looked_at(target, opener)
    assert {change.action for change in tried.changes} == {"unchanged"}
    assert tried.writes == ()

    gone = deploy.plan_delete(target, opener=opener, spare=KeepOptions(claims=False))
    assert deploy.apply(gone, clock=clock).ok
    left = deploy.plan_delete(target, opener=opener, spare=KeepOptions(claims=False))
    assert {change.action for change in left.changes.changes} <= {"kept"}
