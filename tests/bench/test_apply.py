"""Applying 300 objects to a real API server beside `kubectl apply --server-side`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.apps import MLSTACK, serving_app
from tests.bench.measure import Command, Timing, run_in_turn, run_once, show
from tests.controlplane.recipes import Programs, obtain_all
from tests.support import isolation
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane

pytestmark = pytest.mark.bench

COMPONENTS = 100
ROUNDS = 3


@pytest.fixture(scope="module")
def programs() -> Programs:
    built = obtain_all(print)
    try:
        isolation.enter_network_namespace()
    except isolation.NoIsolationError as error:
        pytest.skip(str(error))
    return built


@pytest.fixture(scope="module")
def cluster(programs: Programs) -> Iterator[TestCluster]:
    plane = ControlPlane.start(programs)
    yield plane.clusters["gke"]
    plane.stop()


def test_first_apply_of_300_objects(tmp_path: Path, cluster: TestCluster, programs: Programs) -> None:
    app = serving_app(tmp_path / "app", components=COMPONENTS, environments=0)
    environ = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": str(Path(sys.executable).parent)}
    timings: dict[str, list[Timing]] = {"kubectl apply --server-side": [], "mlstack apply": []}
    for number in range(ROUNDS):
        ours, theirs = (_environment(app, cluster, f"{who}-{number}") for who in ("ours", "theirs"))
        manifest = app / "theirs.yaml"
        render = Command(
            name="render", argv=["sh", "-c", f"{MLSTACK[0]} render {theirs} > {manifest}"], cwd=app
        )
        run_once(render)
        kubectl = [str(programs.kubectl), "apply", "--server-side", "-f", str(manifest)]
        for name, argv in (
            ("kubectl apply --server-side", kubectl),
            ("mlstack apply", [*MLSTACK, "apply", ours]),
        ):
            timings[name].append(run_once(Command(name=name, argv=argv, cwd=app, environ=environ)))
    show(
        "first apply of 300 objects", [Timing.joined(runs) for runs in timings.values()], unit="mlstack apply"
    )

    again = Command(
        name="mlstack apply, nothing changed", argv=[*MLSTACK, "apply", ours], cwd=app, environ=environ
    )
    diff = Command(
        name="mlstack diff, nothing changed", argv=[*MLSTACK, "diff", ours], cwd=app, environ=environ
    )
    show("the same again", run_in_turn([again, diff], rounds=ROUNDS), unit=again.name)


def _environment(app: Path, cluster: TestCluster, name: str) -> str:
    cluster.kubectl("create", "namespace", name)
    folder = app / "environments" / name
    folder.mkdir(parents=True)
    (folder / "environment.yaml").write_text(
        f"apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: {cluster.context}\nnamespace: {name}\n"
    )
    return name
