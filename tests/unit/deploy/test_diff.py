"""Objects that change while they are looked at, and what a first apply does without."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ConflictError
from mlstack.kube.client import Applied
from mlstack.objects.kube_object import MANAGER
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.builders import MINIMAL_APP, write_tree
from tests.support.deploying import Stack, VirtualClock, config_map


class Busy(MemoryCluster):
    """A cluster in which each object has changed so many times before a question about it is answered."""

    def __init__(self, times: int) -> None:
        super().__init__(load_schemas("1.36"), clock=VirtualClock())
        self.times = times

    def apply(
        self,
        obj: Mapping[str, Any],
        *,
        manager: str = MANAGER,
        force: bool = False,
        dry_run: bool = False,
    ) -> Applied:
        if dry_run and self.times and obj["kind"] == "ConfigMap":
            self.times -= 1
            raise ConflictError("`ConfigMap settings` changed or was replaced in the meantime")
        return super().apply(obj, manager=manager, force=force, dry_run=dry_run)


def test_an_object_that_changes_again_and_again_is_looked_at_until_it_holds_still(tmp_path: Path) -> None:
    cluster = Busy(0)
    stack = Stack(tmp_path / "app", namespace="ml", opener=lambda context: cluster, clock=VirtualClock())
    stack.write("web", config_map(key="old"))
    stack.apply()
    stack.write("web", config_map(key="new"))
    cluster.times = 12
    stack.apply()
    assert cluster.times == 0
    [found] = [each for each in cluster.list("v1", "ConfigMap").items if (each.get("data") or {}).get("key")]
    assert found["data"] == {"key": "new"}


FIRST_APPLY = """
import sys
from pathlib import Path
from mlstack.app.app_dir import AppDir
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.target import Target
from mlstack.operations import deploy
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
cluster = MemoryCluster(load_schemas("1.36"))
target = Target(app=AppDir.find(Path.cwd()), environment="gke")
plan = deploy.plan_apply(target, opener=lambda context: cluster, options=ApplyOptions(dry_run=True))
assert plan.changes.counts() == {"create": 2}, plan.changes.counts()
print(*sorted(name for name in sys.modules if name.startswith("mlstack.deploy.")))
"""


@pytest.mark.slow
def test_a_first_apply_loads_nothing_that_only_objects_that_are_there_need(tmp_path: Path) -> None:
    environment = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\nnamespace: ml\n"
    component = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    files = {"app.yaml": MINIMAL_APP, "environments/gke/environment.yaml": environment}
    write_tree(tmp_path, {**files, "components/web.yaml": component})
    command = [sys.executable, "-c", FIRST_APPLY]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("mlstack.deploy.") for name in done.stdout.split()}
    assert "plan" in loaded
    assert not loaded & {"capacity", "compare", "conflicts", "object_diff", "reapply", "replacement"}
