"""Tasks of Kubeflow's guides on the real control plane: what they apply is taken, and works."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.kube.api_server import connect
from mlstack.objects.kube_object import Kinds
from mlstack.render import render
from tests.support import dryrun, upstream
from tests.support.cli import Runner
from tests.support.controlplane import ControlPlane
from tests.support.deploying import RealClock
from tests.support.guides import GUIDES
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

WORKING = ("ready", "done", "suspended")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], namespace: str, kubeconfig: Path) -> Runner:
    """Command lines against the real clusters, in a namespace of the test's own."""
    return Runner(
        capsys,
        new_cluster=lambda context: connect(context, kubeconfig=str(kubeconfig)),
        contexts=dict.fromkeys(("minikube", "gke"), namespace),
        clock=RealClock(),
    )


@pytest.mark.parametrize("task", GUIDES)
def test_what_a_guide_asks_for_works(
    run: Runner, control_plane: ControlPlane, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = GUIDES[task]
    guide.prepare(run, tmp_path, monkeypatch)
    cluster = control_plane.clusters[guide.environment]
    objects = render.load(AppDir(Path()), guide.environment).objects
    definitions = upstream.lacking_of(objects)
    own = {str(obj.identity) for obj in objects if Kinds.builtin().lookup(obj.api_version, obj.kind)}

    def waiting() -> list[str]:
        """Give the objects of Kubernetes' own kinds that do not work yet; others wait for their operators."""
        components = run("status", guide.environment, "-o", "json").json["components"]
        rows = [row for component in components for row in component["objects"] if row["object"] in own]
        return [f"{row['object']}: {row['reason']}" for row in rows if row["state"] not in WORKING]

    dryrun.install(cluster, definitions)
    try:
        run.ok(f"{guide.ours[-1]} --no-wait")
        wait_until(lambda: not waiting(), what=task, timeout_s=120, interval_s=0.5, details=waiting)
        assert run(f"diff {guide.environment}").code == 0
    finally:
        run(f"delete {guide.environment} --yes --crds --claims")
        dryrun.remove((cluster, definitions))
