"""Contexts are read as kubectl reads them, without a client."""

import json
import re
from pathlib import Path

import pytest

from mlstack.errors import ClusterError, NotFoundError, UsageError
from mlstack.kube import login as logins
from mlstack.kube.kubeconfig import load
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
    config = load(None, {"KUBECONFIG": f"{tmp_path}/missing:{tmp_path}/one:{tmp_path}/two:"})
    assert config.current_context == "a"
    assert config.context("a").server == "https://1"
    assert config.context("b").server == "https://2"


def test_an_unknown_context_tells_the_nearest(tmp_path: Path) -> None:
    write_tree(tmp_path, {"config": kubeconfig("minikube")})
    with pytest.raises(NotFoundError) as caught:
        load(str(tmp_path / "config"), {}).context("minkube")
    assert caught.value.near == "minikube"
    assert caught.value.where == str(tmp_path / "config")


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


# What kubectl says of each is "error loading config file".
BROKEN = {
    "no YAML": "a: [",
    "a list": "- a\n",
    "sections": "contexts: x\n",
    "entries": "clusters: [1]\n",
    "a nameless entry": "users: [{user: {token: t}}]\n",
    "an odd name": "contexts: [{name: 2}]\n",
    "an odd entry": "contexts: [{name: a, context: 3}]\n",
    "an odd current context": "current-context: 3\n",
    "a name twice": "contexts: [{name: a}, {name: a}]\n",
    "a folder": None,
    "a device": "/dev/zero",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_kubectl_does_not_read_is_told_by_whoever_reads_it(tmp_path: Path, broken: str) -> None:
    file, content = tmp_path / "config", BROKEN[broken]
    if content is None:
        file.mkdir()
    elif content.startswith("/"):
        file.symlink_to(content)
    else:
        file.write_text(content)
    messages = []
    for reads in (lambda: load(str(file), {}), lambda: logins.find("a", str(file), {})):
        with pytest.raises(ClusterError, match="the kubeconfig cannot be read") as caught:
            reads()
        assert str(file) in (caught.value.where or "")
        messages.append(caught.value.describe())
    assert messages[0] == messages[1]


@pytest.mark.parametrize("content", ["", "# nothing\n", "contexts: [{name: a}]\n", "contexts: null\n"])
def test_what_says_little_is_read(tmp_path: Path, content: str) -> None:
    write_tree(tmp_path, {"config": content})
    assert load(str(tmp_path / "config"), {}).contexts.keys() <= {"a"}


@pytest.mark.parametrize("name", ["with:colon", "with blank", "~", "config.d"])
def test_the_option_names_one_file_whatever_its_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers agree: that of contexts and that of logins."""
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path, {name: kubeconfig("a", server="https://127.0.0.1:1")})
    assert load(name, {}).current().name == "a"
    assert logins.find("", name, {}).context == "a"


@pytest.mark.parametrize(
    "variable", ["missing:one:two", "one:two", ":one::two:", "one", "two:one", "~/one", "missing", ""]
)
def test_the_readers_agree_on_lists(tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (kubeconfig("a", name, server=f"https://{name}") for name in ("b", "c"))
    write_tree(tmp_path, {"one": first, "two": second, ".kube/config": kubeconfig("h", server="https://h")})
    environ = {"KUBECONFIG": variable, "HOME": str(tmp_path)}
    config = load(None, environ)
    if not config.contexts:
        with pytest.raises(NotFoundError) as caught:
            logins.find("", None, environ)
        with pytest.raises(NotFoundError, match=re.escape(caught.value.message)):
            config.current()
    for name, context in config.contexts.items():
        assert logins.find(name, None, environ).login.server == context.server
    assert config.current_context == (config.current_context and logins.find("", None, environ).context)
