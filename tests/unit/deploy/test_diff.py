"""Objects that change while they are looked at, and what a first apply does without."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import Change, fingerprint, what_moved
from mlstack.errors import ConflictError
from mlstack.kube.client import Applied
from mlstack.objects.kube_object import MANAGER, Identity
from mlstack.objects.managed_fields import FieldChange
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.builders import MINIMAL_APP, write_tree
from tests.support.cli import Runner
from tests.support.deploying import Stack, VirtualClock, config_map
from tests.support.registry import small_app


class Busy(MemoryCluster):
    """A cluster in which each object has changed so many times before a question about it is answered."""

    def __init__(self, times: int) -> None:
        super().__init__(load_schemas("1.36"), clock=VirtualClock())
        self.times = times

    def apply(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
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
    [settings] = [obj for obj in cluster.list("v1", "ConfigMap").items if (obj.get("data") or {}).get("key")]
    assert settings["data"] == {"key": "new"}


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


# --- what makes two changes the same to who approved one of them ---

NAME = Identity("", "ConfigMap", "ml", "settings")


def change(*fields: FieldChange) -> Change:
    return Change(
        identity=NAME,
        component="a",
        action="update",
        fields=fields,
        live_uid="1",
        live_version="5",
        fingerprint=fingerprint(fields),
    )


def to(path: str, old: object, new: object) -> FieldChange:
    return FieldChange(path=path, action="changed", old=old, new=new)


ONE = change(to("data.a", "1", "2"))


def test_the_version_and_ownership_do_not_matter() -> None:
    moved = replace(ONE, live_version="6", prepare=({"op": "test"},), handover={"spec": {}}, notes=("x",))
    assert moved.digest == ONE.digest


def test_everything_approved_matters() -> None:
    others = [
        replace(ONE, live_uid="2"),
        replace(ONE, action="recreate"),
        replace(ONE, left=(("data.b", "operator"),)),
        change(to("data.a", "0", "2")),
        change(to("data.a", "1", "3")),
        change(to("data.a", "1", "2"), to("data.b", "1", "2")),
    ]
    assert len({change.digest for change in [ONE, *others]}) == len(others) + 1


def test_masked_values_are_told_apart_by_their_true_ones() -> None:
    hidden = [to("data.password", "********", "********")]
    first = replace(change(*hidden), fingerprint=fingerprint([to("data.password", "a", "b")]))
    second = replace(change(*hidden), fingerprint=fingerprint([to("data.password", "a", "c")]))
    assert first.digest != second.digest


def test_what_moved_is_said() -> None:
    assert (
        what_moved(ONE, change(to("data.a", "1", "2"), to("data.b", "x", "y"))) == "`data.b` differs as well"
    )
    assert what_moved(ONE, change(to("data.a", "9", "2"))) == "`data.a` has another value"
    assert what_moved(ONE, replace(ONE, live_uid="2")) == "it was made anew by somebody else"
    assert what_moved(ONE, replace(ONE, live_uid="", action="create")) == "it is gone"
    left = replace(change(), action="unchanged", left=(("data.a", "operator"),))
    assert what_moved(ONE, left) == (
        "it would be left as it is, `data.a` is as wanted already, `data.a` belongs to `operator` now"
    )
    many = change(*(to(f"data.{number}", 1, 2) for number in range(9)))
    assert what_moved(change(), many).endswith(" and 4 more")


# --- what changes do to pods that run ---

WORKLOAD = """\
    apiVersion: apps/v1
    kind: {kind}
    metadata:
      name: web
      annotations: {{mlstack.dev/restart-on-config: "{restarts}"}}
    spec:
      {how}
      selector: {{matchLabels: {{a: b}}}}
      template:
        metadata: {{labels: {{a: b}}}}
        spec:
          containers:
          - name: main
            image: web:{image}
            {reads}
          volumes: [{{name: files, configMap: {{name: settings}}}}]
    """
SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{level: {level}}}\n"
MOUNT = "volumeMounts: [{name: files, mountPath: /etc/web}]"
SUB_PATH = "volumeMounts: [{name: files, mountPath: /etc/web/level, subPath: level}]"
ENV = "envFrom: [{configMapRef: {name: settings}}]"
FILES = "running pods of Deployment default/web get the new files within minutes, and are not restarted"
NOTHING = "running pods of Deployment default/web do not notice it"
ON_DELETE = "its pods keep what they have until somebody deletes them (updateStrategy OnDelete)"


@pytest.fixture
def root(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    run.ok("env add minikube --no-preset -n default")
    return root


def write(root: Path, *, level: str = "low", **words: str) -> None:
    usual = {"kind": "Deployment", "restarts": "false", "how": "replicas: 4", "image": "1", "reads": ENV}
    files = {"web": WORKLOAD.format(**{**usual, **words}), "settings": SETTINGS.format(level=level)}
    write_tree(root, {f"components/{name}.yaml": text for name, text in files.items()})


@pytest.mark.parametrize(
    ("kind", "how", "note"),
    [
        ("Deployment", "replicas: 4", "restarts 4 pods: at most 1 missing and 1 more at a time"),
        ("Deployment", "replicas: 1", "restarts 1 pod: at most 0 missing and 1 more at a time"),
        ("Deployment", "{replicas: 2, strategy: {type: Recreate}}", "stops 2 pods, then starts them again"),
        (
            "Deployment",
            "{replicas: 10, strategy: {rollingUpdate: {maxUnavailable: 30%, maxSurge: 0}}}",
            "restarts 10 pods: at most 3 missing and 0 more at a time",
        ),
        ("StatefulSet", "replicas: 3", "restarts 3 pods, 1 at a time, the last one first"),
        (
            "StatefulSet",
            "{replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}}",
            "restarts 1 pod, 1 at a time, the last one first; those below 2 stay as they are (partition)",
        ),
        ("StatefulSet", "{replicas: 3, updateStrategy: {type: OnDelete}}", ON_DELETE),
        ("DaemonSet", "{}", "restarts the pod of every node, 1 of them at a time"),
        ("DaemonSet", "{updateStrategy: {type: OnDelete}}", ON_DELETE),
    ],
)
def test_a_changed_pod_template_tells_how_pods_are_restarted(
    run: Runner, root: Path, kind: str, how: str, note: str
) -> None:
    fields = how.removeprefix("{").removesuffix("}") if how.startswith("{") else how
    lines = "\n      ".join(_parts(fields))
    write(root, kind=kind, how=lines)
    run.ok("apply minikube --no-wait")
    assert "restart" not in run("diff minikube").out
    write(root, kind=kind, how=lines, image="2")
    assert f"    note: {note}" in " ".join(run("diff minikube").out.split()).replace("note:", "\n    note:")


def _parts(fields: str) -> list[str]:
    """Part `a: 1, b: {c: 2, d: 3}` at its outer commas."""
    parts, depth = [""], 0
    for letter in fields:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


@pytest.mark.parametrize(
    ("restarts", "reads", "note"),
    [
        ("false", ENV, NOTHING),
        ("false", MOUNT, FILES),
        ("false", SUB_PATH, NOTHING),
        ("true", ENV, "restarts 4 pods: at most 1 missing and 1 more at a time"),
    ],
)
def test_a_changed_setting_tells_who_does_not_notice(
    run: Runner, root: Path, restarts: str, reads: str, note: str
) -> None:
    write(root, restarts=restarts, reads=reads)
    run.ok("apply minikube --no-wait")
    write(root, restarts=restarts, reads=reads, level="high")
    out = " ".join(run("diff minikube").out.split())
    assert note in out
    assert [word for word in (NOTHING, FILES, "restarts 4") if word in out and word not in note] == []
