"""Deleting from a real API server beside `kubectl delete --cascade=foreground`: until everything is gone."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.apps import mixed_app
from tests.bench.measure import Command, Timing, run_once, show
from tests.bench.test_apply import Bench
from tests.controlplane.recipes import Programs
from tests.support.cluster import TestCluster

pytestmark = pytest.mark.bench

ROUNDS = 3
KUBECTL, OURS = "kubectl delete --cascade=foreground", "mlstack delete"


@pytest.mark.parametrize(("deployments", "maps"), [(48, 0), (200, 800)], ids=["48", "1000"])
def test_deleting(
    tmp_path: Path, cluster: TestCluster, programs: Programs, deployments: int, maps: int
) -> None:
    bench = Bench(
        app=mixed_app(tmp_path / "app", deployments=deployments, maps=maps),
        cluster=cluster,
        kubectl=programs.kubectl,
        environ={"KUBECONFIG": str(cluster.kubeconfig), "PATH": str(Path(sys.executable).parent)},
        prefix=f"delete-{deployments}",
    )
    timings: dict[str, list[Timing]] = {KUBECTL: [], OURS: []}
    for number in range(ROUNDS):
        both = [_theirs, _ours] if number % 2 else [_ours, _theirs]
        for make in both:
            command = make(bench, bench.environment(f"{make.__name__.strip('_')}-{number}"))
            timings[command.name].append(run_once(command))
    joined = [Timing.joined(runs) for runs in timings.values()]
    show(f"deleting {deployments} Deployments and {maps} ConfigMaps", joined, unit=KUBECTL)


def _applied(bench: Bench, name: str) -> Command:
    """Apply an environment, wait until it works, and give the command."""
    command = bench.ours("apply", name)
    run_once(replace(command, argv=[word for word in command.argv if word != "--no-wait"]))
    return command


def _ours(bench: Bench, name: str) -> Command:
    _applied(bench, name)
    command = bench.ours("delete", name)
    return replace(command, argv=[word for word in command.argv if word != "--no-wait"])


def _theirs(bench: Bench, name: str) -> Command:
    command = replace(bench.theirs(name), name=KUBECTL)
    _applied(bench, name)
    argv = [str(bench.kubectl), "delete", "-n", name, "--cascade=foreground", "-f", command.argv[-1]]
    return replace(command, argv=argv)
