"""Rows D: `diff`. What a real API server adds is tried in tests/cluster/test_diff.py and test_drift.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.kube.client import ObjectRef
from mlstack.yaml.write import to_yaml_documents
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import config_map

FRONT = ObjectRef("v1", "ConfigMap", "default", "front")


def write(root: Path, component: str, *objects: Mapping[str, Any]) -> None:
    write_tree(root, {f"components/{component}.yaml": to_yaml_documents(objects)})


def rows(run: Runner, line: str) -> dict[str, str]:
    """Give what would happen to each object that is not as it should be."""
    objects = run(f"{line} -o json").json["objects"]
    return {row["object"]: row["action"] for row in objects if row["action"] != "unchanged"}


@pytest.fixture
def live(demo: Path, run: Runner) -> Path:
    """Give the app with `minikube` applied."""
    run.ok("apply minikube")
    return demo


def test_d1_local_is_compared_with_live(live: Path, run: Runner) -> None:
    run.cluster("minikube").patch(FRONT, {"data": {"color": "by hand"}}, manager="kubectl-edit")
    assert "data.color: by hand -> red" in run("diff minikube").out


@pytest.mark.parametrize(
    ("sides", "change"),
    [
        ("local:minikube remote:minikube", "green -> blue"),
        ("remote:minikube local:minikube", "blue -> green"),
        ("local:minikube local:gke", "green -> red"),
        ("local:gke remote:gke", "red -> yellow"),
        ("remote:gke local:gke", "yellow -> red"),
        ("remote:minikube remote:gke", "blue -> yellow"),
        ("local:gke remote:minikube", "red -> blue"),
        ("remote:minikube local:gke", "blue -> red"),
    ],
)
def test_d2_two_environments_are_compared_on_either_side(
    live: Path, run: Runner, sides: str, change: str
) -> None:
    for environment, colour in {"minikube": "blue", "gke": "yellow"}.items():
        write(live, "colour", config_map("colour", color=colour))
        run.ok(f"apply {environment} --no-wait")
    write(live, "colour", config_map("colour", color="green"))
    write_tree(live, {"environments/gke/patches/colour.yaml": PATCH})
    ran = run(f"diff {sides}")
    assert (ran.code, f"data.color: {change}" in ran.out) == (1, True), ran.out


PATCH = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: colour}\ndata: {color: red}\n"


def test_d3_components_limit_both_sides(live: Path, run: Runner) -> None:
    write(live, "other", config_map("a"))
    write(live, "z", config_map("z"))
    assert set(rows(run, "diff minikube -c z")) == {"ConfigMap default/z"}
    assert set(rows(run, "diff minikube")) == {"ConfigMap default/a", "ConfigMap default/z"}


def test_d4_objects_outside_the_namespace_are_included(live: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_diff.py, `test_objects_without_namespace_and_in_others_…`."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    extra = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "extra"}}
    inside = config_map("inextra")
    inside["metadata"]["namespace"] = "extra"
    write(live, "wide", {**role, "rules": []}, extra, inside)
    assert set(rows(run, "diff minikube")) == {"ClusterRole r", "ConfigMap extra/inextra", "Namespace extra"}


def test_d5_the_exit_code_tells_whether_anything_differs(live: Path, run: Runner) -> None:
    assert run("diff minikube").code == 0
    assert run("diff gke").code == 1
    assert run("diff nope").code == 4


def test_d6_colour_is_for_terminals(live: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal: tests/unit/cli/test_page.py."""
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" not in run("diff gke").out


def test_d7_what_the_server_adds_is_no_difference(live: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_compare.py."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "s"}, "ports": [{"port": 80}]},
    }
    write(live, "service", service)
    run.ok("apply minikube --no-wait")
    ref = ObjectRef("v1", "Service", "default", "s")
    added = run.cluster("minikube").get(ref)
    assert added is not None and added["spec"]["type"] == "ClusterIP"  # and nobody asked for it
    assert rows(run, "diff minikube") == {}
    # A person who writes one aside makes it be compared field by field.
    run.cluster("minikube").patch(ref, {"metadata": {"labels": {"seen": "yes"}}}, manager="kubectl-edit")
    assert rows(run, "diff minikube") == {}


def test_d8_what_would_be_deleted_is_shown(live: Path, run: Runner) -> None:
    run.ok("component rm front")
    assert rows(run, "diff minikube") == {"ConfigMap default/front": "delete"}
    assert "- delete ConfigMap default/front" in run("diff minikube").out


def test_d9_other_apps_never_appear(live: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    run.ok("init second --dir ../second")
    monkeypatch.chdir(live.parent / "second")
    run.ok("env add minikube --no-preset")
    write(live.parent / "second", "own", config_map("own"))
    assert set(rows(run, "diff minikube")) == {"ConfigMap default/own"}
    run.ok("apply minikube")
    monkeypatch.chdir(live)
    assert rows(run, "diff minikube") == {}


def test_d10_secrets_are_masked(live: Path, run: Runner) -> None:
    run.ok("param set front token hunter2")
    run.ok("apply minikube")
    run.ok("param set front token hunter3")
    for line in ("diff minikube", "diff minikube -o json", "diff minikube -o yaml", "diff minikube --live"):
        ran = run(line)
        assert "hunter" not in ran.out + ran.err


def test_d11_the_difference_is_machine_readable(live: Path, run: Runner) -> None:
    result = run("diff gke -o json").json
    assert (result["apiVersion"], result["kind"], result["ok"]) == ("mlstack.dev/v1", "DiffResult", False)
    assert result["counts"] == {"create": 1}
    assert run("schema DiffResult").json["title"] == "DiffResult"
