"""Contexts are read as kubectl reads them, without a client."""

import json
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ConfigError, NotFoundError, UsageError, YamlError
from mlstack.files.kubeconfig import load
from tests.support.builders import kubeconfig, write_tree


def test_the_option_wins_over_the_variable_and_that_over_home(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"option": kubeconfig("a"), "variable": kubeconfig("b"), ".kube/config": kubeconfig("c")}
    )
    home = {"HOME": str(tmp_path)}
    variable = {**home, "KUBECONFIG": str(tmp_path / "variable")}
    assert load(str(tmp_path / "option"), variable).current_context == "a"
    assert load(None, variable).current_context == "b"
    assert load(None, home).current_context == "c"
    assert load(None, {}).contexts == {}


def test_a_context_knows_cluster_server_and_namespace(tmp_path: Path) -> None:
    content = json.loads(kubeconfig("gke", server="https://10.0.0.1"))
    content["contexts"][0]["context"]["namespace"] = "ml"
    write_tree(tmp_path, {"config": json.dumps(content)})
    context = load(str(tmp_path / "config"), {}).context("gke")
    assert (context.cluster, context.server, context.namespace) == ("gke", "https://10.0.0.1", "ml")


def test_without_a_namespace_it_is_default(tmp_path: Path) -> None:
    write_tree(tmp_path, {"config": kubeconfig("a")})
    assert load(str(tmp_path / "config"), {}).context("a").namespace == "default"


def test_of_several_files_the_first_word_counts(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {"one": kubeconfig("a", server="https://1"), "two": kubeconfig("b", "a", server="https://2")},
    )
    found = load(None, {"KUBECONFIG": f"{tmp_path}/missing:{tmp_path}/one:{tmp_path}/two:"})
    assert found.current_context == "a"
    assert found.context("a").server == "https://1"
    assert found.context("b").server == "https://2"


def test_an_unknown_context_tells_the_nearest(tmp_path: Path) -> None:
    write_tree(tmp_path, {"config": kubeconfig("minikube")})
    with pytest.raises(NotFoundError) as caught:
        load(str(tmp_path / "config"), {}).context("minkube")
    assert caught.value.near == "minikube"
    assert str(tmp_path / "config") in caught.value.message


def test_a_file_given_by_option_must_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no kubeconfig at"):
        load(str(tmp_path / "nothing"), {})


def test_the_current_context_is_told_apart_from_no_kubeconfig(tmp_path: Path) -> None:
    place = {"KUBECONFIG": str(tmp_path / "config")}
    with pytest.raises(NotFoundError, match="there is no kubeconfig at"):
        load(None, place).current()
    write_tree(tmp_path, {"config": kubeconfig("minikube").replace('"minikube"', '""', 1)})
    with pytest.raises(UsageError, match="no kubectl context is current"):
        load(None, place).current()
    write_tree(tmp_path, {"config": kubeconfig("minikube")})
    assert load(None, place).current().name == "minikube"


def test_a_folder_in_the_place_of_a_kubeconfig_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the kubeconfig: is a directory"):
        load(None, {"KUBECONFIG": str(tmp_path)})


@pytest.mark.parametrize(("content", "kind"), [("a: [", YamlError), ("- a\n", ConfigError)])
def test_a_broken_file_is_told(tmp_path: Path, content: str, kind: type[ConfigError]) -> None:
    write_tree(tmp_path, {"config": content})
    with pytest.raises(kind) as caught:
        load(str(tmp_path / "config"), {})
    assert str(tmp_path / "config") in caught.value.describe()


@pytest.mark.parametrize(
    "content", ["", "contexts: x\n", "contexts: [1, {name: 2}]\n", "contexts: [{name: a}]\n"]
)
def test_odd_entries_are_passed_over(tmp_path: Path, content: Any) -> None:
    write_tree(tmp_path, {"config": content})
    assert load(str(tmp_path / "config"), {}).current_context == ""


def test_contexts_are_found_by_server(tmp_path: Path) -> None:
    write_tree(tmp_path, {"config": kubeconfig("a", "b", server="https://10.0.0.1/")})
    assert [context.name for context in load(str(tmp_path / "config"), {}).by_server("https://10.0.0.1")] == [
        "a",
        "b",
    ]
