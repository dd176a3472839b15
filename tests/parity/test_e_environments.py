"""Rows E: environments."""

from pathlib import Path

import pytest

from mlstack.yaml.write import to_yaml
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.deploying import config_map


def file(root: Path, name: str) -> str:
    return (root / "environments" / name / "environment.yaml").read_text()


def test_e2_an_environment_holds_context_and_namespace_alone(demo: Path, run: Runner) -> None:
    run.ok("env add staging --context gke -n ml")
    lines = file(demo, "staging").splitlines()
    assert lines[2:] == ["context: gke", "namespace: ml"]


def test_e4_names_may_be_nested(demo: Path, run: Runner) -> None:
    run.ok("env add us-west/staging --context gke -n ml")
    assert "namespace: ml" in run.ok("render us-west/staging")


def test_e5_environments_inherit(demo: Path, run: Runner) -> None:
    run.ok("env set gke -n ml")
    run.ok("param set --env gke front replicas 3")
    run.ok("env add canary --extends gke")
    assert file(demo, "canary").splitlines()[2:] == ["extends: gke"]
    text = run.ok("render canary")
    assert ('replicas: "3"' in text, "namespace: ml" in text) == (True, True)
    run.ok("param set --env canary front replicas 4")
    assert 'replicas: "4"' in run.ok("render canary")
    write_tree(demo, {"environments/gke/environment.yaml": file(demo, "gke") + "extends: canary\n"})
    circle = run("render canary")
    assert (circle.code, "in a circle" in circle.err) == (3, True)


def test_e7_describe_uses_the_names_of_the_file(demo: Path, run: Runner) -> None:
    run.ok("env set gke --protected --target front")
    described = run("env describe gke -o json").json
    keys = [line.partition(":")[0] for line in file(demo, "gke").splitlines() if line[0].isalpha()]
    assert {"protected", "targets"} <= set(keys) <= {"apiVersion", "kind", *described}


def test_e8_the_current_environment_is_shown_set_and_unset(demo: Path, run: Runner) -> None:
    assert run.ok("env current") == ""
    run.ok("env current --set gke")
    assert run("env current --set gek").code == 4
    assert run.ok("env current") == "gke\n"
    assert run.ok("render") == run.ok("render gke")
    for _ in range(2):
        run.ok("env current --unset")
    assert run("render").code == 2
    run.ok("env current --set gke")
    run.ok("env set gke --name live")
    assert run.ok("env current") == "live\n"
    run.ok("env rm live")
    assert run.ok("env current") == ""


def test_e9_set_changes_several_things_at_once(demo: Path, run: Runner) -> None:
    run.ok("env add canary --extends gke")
    run.ok("env set gke --name live -n ml --context minikube --kubernetes-version 1.35 --protected")
    described = run("env describe live -o json").json
    assert (described["namespace"], described["context"]) == ("ml", "minikube")
    assert (described["kubernetesVersion"], described["protected"]) == ("1.35", True)
    assert run("env describe canary -o json").json["extends"] == "live"
    assert not (demo / "environments/gke/environment.yaml").exists()


def test_e11_rm_removes_exactly_that_environment(demo: Path, run: Runner) -> None:
    run.ok("env add us-west --context gke")
    run.ok("env add us-west/staging --context gke")
    run.ok("env add canary --extends us-west/staging")
    before = read_tree(demo)
    run.ok("env rm us-west")
    gone = set(before) - set(read_tree(demo))
    assert gone == {"environments/us-west/environment.yaml"}
    assert run("env rm us-west").code == 4
    assert run("env rm us-west/staging").code == 2
    assert run.clusters == {}


def test_e14_a_context_that_leads_elsewhere_is_refused(demo: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_wrong_cluster.py."""
    run.ok("apply gke --yes")
    run.clusters["gke"] = run.new_cluster("another")
    refused = run("apply gke --yes")
    assert (refused.code, "leads to another cluster" in refused.err) == (6, True)
    run.ok("env set gke --forget-cluster")
    run.ok("apply gke --yes")


def test_e15_without_a_kubeconfig_nothing_is_asked(demo: Path, run: Runner, tmp_path: Path) -> None:
    from mlstack.errors import NotFoundError
    from mlstack.kube.api_server import connect

    with pytest.raises(NotFoundError, match="kubeconfig"):
        connect("gke", kubeconfig=str(tmp_path / "nowhere"))


def test_e17_a_missing_namespace_is_created_first(demo: Path, run: Runner) -> None:
    run.ok("env set gke -n ml")
    assert "namespace `ml` is created first" in run("apply gke").err
    stray = config_map("stray")
    stray["metadata"]["namespace"] = "nowhere"
    write_tree(demo, {"components/stray.yaml": to_yaml(stray)})
    assert run("apply gke").code == 6


def test_e18_a_protected_environment_wants_its_name(demo: Path, run: Runner) -> None:
    run.ok("env set gke --protected")
    assert run("apply gke --yes").code == 2
    assert run("apply gke --yes-i-mean minikube").code == 2
    run.answer, run.typed = True, "minikube"
    assert run("apply gke").code == 1
    run.typed = "gke"
    run.ok("apply gke")
    assert "Type its name" in run.asked[-1]
    run.play(
        """
        env rm gke --yes-i-mean minikube | 2 | names another environment
        types minikube
        env rm gke | 1 | nothing was done
        types gke
        env rm gke
        env list -o name | 0 | minikube | !gke
        env add live --protected
        apply live --yes | 1 | nothing was done
        """
    )


def test_e18_a_protected_environment_is_not_removed_unasked(demo: Path, run: Runner) -> None:
    run.play(
        """
        env set gke --protected
        env rm gke | 2 | `env rm` would remove it from the app | repeat with: --yes-i-mean gke
        env rm gke --yes-i-mean gke
        env rm minikube
        """
    )
