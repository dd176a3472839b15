"""History and rollback of 1,000 objects in 20 namespaces on a real API server: time, memory, size."""

import base64
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.apps import MLSTACK, crowded_app
from tests.bench.measure import Command, Timing, run_once, show
from tests.controlplane.recipes import Programs
from tests.support.cluster import TestCluster
from tests.support.kubeconfig import write_kubeconfig

pytestmark = pytest.mark.bench

FIRST = "apply, first"


def test_history_of_1000_objects(tmp_path: Path, cluster: TestCluster, programs: Programs) -> None:
    app = crowded_app(tmp_path / "app", namespaces=20, objects=50)
    file = write_kubeconfig(tmp_path / "kubeconfig", [cluster.login()], current_context=cluster.context)
    environ = {"KUBECONFIG": str(file), "PATH": str(Path(sys.executable).parent)}
    cluster.kubectl("create", "namespace", "crowd")
    folder = app / "environments" / "crowd"
    folder.mkdir(parents=True)
    (folder / "environment.yaml").write_text(
        f"apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: {cluster.context}\nnamespace: crowd\n"
    )

    def ours(*words: str, name: str = "") -> Timing:
        statuses = frozenset({0, 1})  # `history diff` finds a difference
        command = Command(name=name, argv=[*MLSTACK, *words], cwd=app, environ=environ, statuses=statuses)
        return replace(run_once(command), name=name or " ".join(words))

    timings = [ours("apply", "crowd", "--yes", name=FIRST)]
    for component in (app / "components").glob("*.yaml"):
        text = component.read_text(encoding="utf-8")
        component.write_text(text.replace("setting7 =", "setting7 = new"), encoding="utf-8")
    timings += [
        ours("apply", "crowd", "--yes", name="apply, 700 changes"),
        ours("apply", "crowd", "--yes", name="apply, no change"),
        ours("history", "crowd"),
        ours("history", "show", "crowd", "1"),
        ours("history", "diff", "crowd", "1", "2"),
        ours("rollback", "crowd", "1", "--yes", name="rollback, 700 changes"),
    ]
    show("history of 1,000 objects in 20 namespaces", timings, unit=FIRST)
    secrets = cluster.request("GET", "/api/v1/namespaces/crowd/secrets")["items"]
    sizes = {
        item["metadata"]["name"]: len(base64.b64decode(item["data"]["set.json.gz"]))
        for item in secrets
        if item["type"] == "mlstack.dev/history"
    }
    print("\n".join(f"{name}: {size / 1000:.0f} kB" for name, size in sizes.items()))
    assert len(sizes) == 3
