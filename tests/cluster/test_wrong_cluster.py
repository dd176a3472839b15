"""Clusters that refuse, change, fall silent or die: one message, the exit code, files and objects whole."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders import read_tree, write_tree
from tests.support.cluster import TestCluster, User
from tests.support.fakeapi import Answer
from tests.support.kubeconfig import Login, write_kubeconfig
from tests.support.shell import Shell
from tests.support.troubled import Troubled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

MANY = 400
ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: minikube\nnamespace: {}\n"
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}}}\ndata: {{a: b}}\n"
ONE = ("prod", "-c", "one")
VERBS = [
    ("apply", *ONE),
    ("apply", *ONE, "--dry-run"),
    ("diff", *ONE),
    ("status", *ONE),
    ("delete", *ONE, "--yes"),
]


class Person(Shell):
    """Works on an app that deploys ConfigMaps to a namespace of minikube."""

    def log_in(self, *logins: Login) -> None:
        """Put other credentials into the kubeconfig."""
        write_kubeconfig(self.kubeconfig, logins, current_context="minikube")

    def refused(self, *words: str) -> str:
        """Run a command that the cluster fails; give what it says, one error, having written nothing."""
        before = read_tree(self.root)
        code, ran = self.run(*words)
        errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
        assert (code, len(errors)) == (6, 1), ran.err
        assert "\nhint: " in ran.err
        assert read_tree(self.root) == before
        return ran.err


@pytest.fixture
def shell(tmp_path: Path, kubeconfig: Path, namespace: str) -> Iterator[Person]:
    many = "---\n".join(OBJECT.format(f"many-{number:03}") for number in range(MANY))
    tree = {
        "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
        "components/one.yaml": OBJECT.format("one"),
        "components/many.yaml": many,
        "environments/prod/environment.yaml": ENVIRONMENT.format(namespace),
    }
    with closing(Person(root=write_tree(tmp_path / "app", tree), kubeconfig=kubeconfig)) as person:
        yield person


def ours(cluster: TestCluster, namespace: str) -> set[str]:
    """Give the names of the ConfigMaps that components of the app have made."""
    query = f"/api/v1/namespaces/{namespace}/configmaps?labelSelector=mlstack.dev%2Fcomponent"
    return {obj["metadata"]["name"] for obj in cluster.request("GET", query)["items"]}


def namespaces_of(out: str, outcome: str) -> set[str]:
    """Give the names of the objects whose line says how they ended."""
    lines = [line.split() for line in out.splitlines() if line.startswith(outcome)]
    return {words[2].rstrip(":").rpartition("/")[2] for words in lines}


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_somebody_without_any_right_is_told_which_one_is_missing(
    shell: Person, minikube: TestCluster, words: tuple[str, ...]
) -> None:
    shell.log_in(minikube.login(minikube.nobody))
    err = shell.refused(*words)
    if words[0] in ("status", "delete"):
        assert 'User "nobody" cannot get resource "configmaps"' in err
    else:
        assert "create, get, patch configmaps in namespace" in err


def test_somebody_who_may_only_look_is_told_so_and_changes_nothing(
    shell: Person, minikube: TestCluster, namespace: str
) -> None:
    shell.log_in(minikube.login(minikube.viewer))
    assert shell.run("status", *ONE)[0] == 1
    for words in (("diff", *ONE), ("apply", *ONE, "--dry-run")):
        assert "  create, patch configmaps in namespace" in shell.refused(*words)
    err = shell.refused("apply", *ONE)
    assert "  create, patch configmaps in namespace" in err
    assert "  create, delete, get, update leases.coordination.k8s.io in namespace" in err
    assert ours(minikube, namespace) == set()


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_credentials_that_have_expired_are_told(
    shell: Person, minikube: TestCluster, words: tuple[str, ...]
) -> None:
    shell.log_in(minikube.login(User(name="late", token="expired")))
    assert "does not accept the credentials" in shell.refused(*words)


def test_a_server_behind_another_certificate_is_not_spoken_to(
    shell: Person, minikube: TestCluster, gke: TestCluster
) -> None:
    shell.log_in(replace(minikube.login(), ca_pem=gke.ca_pem))
    assert "TLS fails" in shell.refused("apply", *ONE)
    shell.log_in(replace(minikube.login(), server=minikube.server.replace("https://", "http://")))
    assert "speaks HTTPS alone" in shell.refused("apply", *ONE)


def test_another_cluster_behind_the_context_is_left_alone(
    shell: Person, minikube: TestCluster, gke: TestCluster, namespace: str
) -> None:
    assert shell.run("apply", *ONE)[0] == 0
    shell.log_in(replace(gke.login(), context="minikube"))
    for words in VERBS:
        message = shell.refused(*words)
        assert "context `minikube` leads to another cluster than environment `prod`" in message
        assert gke.server in message
    assert ours(gke, namespace) == set()
    assert shell.run("env", "set", "prod", "--forget-cluster")[0] == 0
    assert shell.run("apply", *ONE)[0] == 0
    assert ours(gke, namespace) == {"one"}


def test_a_namespace_that_is_going_is_told_once_for_all_objects(
    shell: Person, minikube: TestCluster, namespace: str
) -> None:
    stuck = OBJECT.format("stuck, finalizers: [example.org/stuck]")
    minikube.kubectl("apply", "-n", namespace, "-f", "-", input=stuck)
    minikube.kubectl("delete", "namespace", namespace, "--wait=false")
    try:
        begun_s = time.monotonic()
        code, ran = shell.run("apply", "prod", "--timeout", "5s")
        assert time.monotonic() - begun_s < 80
        assert (code, namespaces_of(ran.out, "failed")) == (7, {namespace})
        assert ran.err.count(f"`Namespace {namespace}`: is being deleted") == 1
        assert "example.org/stuck" in ran.err
        assert f"{MANY + 1} skipped" in ran.out.splitlines()[-1]
    finally:
        remove = '{"metadata": {"finalizers": null}}'
        minikube.kubectl("patch", "configmap", "stuck", "-n", namespace, "--type=merge", "-p", remove)


def test_a_server_that_goes_for_good_is_told_and_the_next_apply_finishes(
    shell: Person, minikube: TestCluster, namespace: str, tmp_path: Path, kubeconfig: Path
) -> None:
    proxy = Troubled(replace(minikube.login(namespace=namespace), context="minikube"))
    away = Person(root=shell.root, kubeconfig=tmp_path / "away")
    with proxy.running(away.kubeconfig):
        started = away.start("apply", "prod")
        started.wait_for_lines(5)
        proxy.trouble = lambda method, path: Answer(breaks=True)
        assert started.end(timeout_s=120) == 6
    assert started.err.count("error: no answer from the API server of context `minikube`") == 1
    assert started.err.count("waiting: the API server does not answer") == 1
    assert "Traceback" not in started.err
    assert "skipped" in started.out.splitlines()[-1]
    assert namespaces_of(started.out, "created") <= ours(minikube, namespace)
    assert shell.run("apply", "prod")[0] == 0
    assert len(ours(minikube, namespace)) == MANY + 1


@pytest.mark.parametrize("lines", [1, 40])
def test_ctrl_c_ends_with_what_was_done_and_the_next_apply_finishes(
    shell: Person, minikube: TestCluster, namespace: str, lines: int
) -> None:
    started = shell.start("apply", "prod")
    started.wait_for_lines(lines)
    started.interrupt()
    assert started.end() == 130
    assert started.err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in started.err
    done = namespaces_of(started.out, "created")
    assert done == ours(minikube, namespace)
    assert " interrupted: " in shell.run("history", "prod")[1].out
    code, again = shell.run("apply", "prod")
    assert (code, namespaces_of(again.out, "unchanged")) == (0, done)
    assert len(ours(minikube, namespace)) == MANY + 1


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")]
)
def test_other_signals_end_a_run_like_ctrl_c(
    shell: Person, minikube: TestCluster, namespace: str, number: signal.Signals, code: int, word: str
) -> None:
    started = shell.start("apply", "prod")
    started.wait_for_lines(5)
    started.interrupt(number)
    assert started.end() == code
    assert started.err.splitlines()[-1] == word
    assert "Traceback" not in started.err
    assert namespaces_of(started.out, "created") == ours(minikube, namespace)
    assert minikube.kubectl("get", "lease", "-n", namespace, "-o", "name").stdout == ""
    assert " interrupted: " in shell.run("history", "prod")[1].out
    assert shell.run("apply", "prod")[0] == 0


def test_ctrl_c_does_not_wait_long_for_a_silent_server(shell: Person, minikube: TestCluster) -> None:
    started = shell.start("apply", "prod")
    started.wait_for_lines(40)  # by now there is always something under way
    with minikube.machinery.paused("kube-apiserver"):
        started.interrupt()
        assert started.end(timeout_s=20) == 130
    assert started.err.splitlines()[-1] == "interrupted"
    assert "interrupted before the API server answered" in " ".join(started.out.split())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_does_not_wait_at_all(
    shell: Person, minikube: TestCluster, number: signal.Signals, code: int
) -> None:
    def ended() -> bool:
        started.interrupt(number)
        return started.process.poll() is not None

    started = shell.start("apply", "prod")
    started.wait_for_lines(1)
    with minikube.machinery.paused("kube-apiserver"):
        wait_until(ended, what="the end", timeout_s=4)
    assert started.end() == code
    assert "Traceback" not in started.err
