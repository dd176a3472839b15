"""What a difference says of pods that run: which restart, how many at a time, which notice nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

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
    ("kind", "how", "said"),
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
    run: Runner, root: Path, kind: str, how: str, said: str
) -> None:
    fields = how.removeprefix("{").removesuffix("}") if how.startswith("{") else how
    lines = "\n      ".join(_parts(fields))
    write(root, kind=kind, how=lines)
    run.ok("apply minikube --no-wait")
    assert "restart" not in run("diff minikube").out
    write(root, kind=kind, how=lines, image="2")
    assert f"    note: {said}" in " ".join(run("diff minikube").out.split()).replace("note:", "\n    note:")


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
    ("restarts", "reads", "said"),
    [
        ("false", ENV, NOTHING),
        ("false", MOUNT, FILES),
        ("false", SUB_PATH, NOTHING),
        ("true", ENV, "restarts 4 pods: at most 1 missing and 1 more at a time"),
    ],
)
def test_a_changed_setting_tells_who_does_not_notice(
    run: Runner, root: Path, restarts: str, reads: str, said: str
) -> None:
    write(root, restarts=restarts, reads=reads)
    run.ok("apply minikube --no-wait")
    write(root, restarts=restarts, reads=reads, level="high")
    out = " ".join(run("diff minikube").out.split())
    assert said in out
    assert [word for word in (NOTHING, FILES, "restarts 4") if word in out and word not in said] == []
