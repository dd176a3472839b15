"""What `plan`, `diff --live` and `diff A B` print, as a person approved it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlstack.kube.client import ObjectRef
from tests.conftest import Golden
from tests.support.cli import Runner
from tests.support.registry import small_app

FRONT = ObjectRef("v1", "ConfigMap", "default", "front")
# Digests are salted, and UIDs follow the order of writes, which are made by several at once.
RANDOM = re.compile(
    r"(scrypt|sha256):[0-9a-f]{64}|\"[0-9a-f]{32}\"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


@pytest.fixture
def deployed(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app with two environments, one of them applied."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add minikube --no-preset")
    run.ok("env add gke --context gke --no-preset -n prod")
    run.ok("generate web front --image nginx --token s3cret")
    run.ok("generate web back --image caddy")
    run.ok("apply minikube --no-wait")
    run.ok("param set --env=gke front replicas 3")
    return run


def record(run: Runner, line: str) -> str:
    ran = run(line)
    err = "".join(f"! {text}\n" for text in ran.err.splitlines())
    return f"$ mlstack {line}\n{ran.out}{err}[{ran.code}]\n"


def test_plan(deployed: Runner, golden: Golden) -> None:
    deployed.ok("param set front color green")
    deployed.ok("param set front token other")
    deployed.ok("component rm back")
    output = [record(deployed, "plan minikube --out plan.json")]
    text = Path("plan.json").read_text(encoding="utf-8")
    output += ["$ cat plan.json\n" + RANDOM.sub("(random)", text)]
    output += [record(deployed, line) for line in ("plan minikube -o json", "plan minikube --out plan")]
    deployed.cluster("minikube").patch(FRONT, {"data": {"color": "blue"}}, manager="kubectl-edit")
    output += [record(deployed, "apply plan.json")]
    deployed.cluster("minikube").patch(FRONT, {"data": {"color": "red"}}, manager="kubectl-edit")
    deployed.ok("param set front replicas 4")
    output += [record(deployed, "apply plan.json")]
    deployed.ok("param unset front replicas")
    output += [record(deployed, line) for line in ("apply plan.json --no-prune", "apply plan.json --no-wait")]
    output += [record(deployed, line) for line in ("apply plan.json --no-wait", "apply ./other.json")]
    golden("cli/plan.txt", "\n".join(output))


def test_drift(deployed: Runner, golden: Golden) -> None:
    records = [record(deployed, "diff minikube --live")]
    cluster = deployed.cluster("minikube")
    cluster.patch(FRONT, {"data": {"color": "blue", "image": None}}, manager="kubectl-edit")
    cluster.patch(FRONT, {"data": {"args": "--fast"}}, manager="operator")
    cluster.patch(
        ObjectRef("v1", "Secret", "default", "front"), {"stringData": {"token": "x"}}, manager="k9s"
    )
    cluster.delete(ObjectRef("v1", "ConfigMap", "default", "back"))
    deployed.ok("param set front replicas 2")
    records += [
        record(deployed, f"diff minikube --live{more}") for more in ("", " --summary", " -o json", " -o name")
    ]
    golden("cli/drift.txt", "\n".join(records))


def test_comparisons(deployed: Runner, golden: Golden) -> None:
    lines = [
        "diff minikube --summary",
        "diff local:minikube local:gke",
        "diff minikube gke --summary",
        "diff remote:minikube local:gke -o name",
        "diff local:minikube remote:gke --summary",
        "diff local:gke local:gke",
        "diff local:minikube local:gke -o json",
        "diff local:minikube live:gke",
        "diff local:minikube local:gke --live",
    ]
    golden("cli/compare.txt", "\n".join(record(deployed, line) for line in lines))
