"""The program as a process that waits: interrupted, slowed down, cut off, watching."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mlstack.yaml import write
from tests.support.builders import write_tree
from tests.support.cluster import TestCluster
from tests.support.deploying import deployment
from tests.support.fakeapi import Answer, status
from tests.support.shell import Shell, Started
from tests.support.troubled import Troubled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: {}\nnamespace: {}\n"
GPUS = {"resources": {"limits": {"nvidia.com/gpu": 3}}}
NO_GPU = "all nvidia.com/gpu of this cluster is in use or too little for one pod"


@pytest.fixture
def shell(tmp_path: Path, gke: TestCluster, namespace: str, proxy: Troubled) -> Shell:
    """An app with one Deployment that asks for more GPUs than a node has."""
    tree = {
        "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
        "components/web.yaml": write.to_yaml_documents([deployment(**GPUS)]),
        "environments/gke/environment.yaml": ENVIRONMENT.format(gke.context, namespace),
    }
    write_tree(tmp_path / "app", tree)
    return Shell(root=tmp_path / "app", kubeconfig=tmp_path / "troubled-kubeconfig")


def make_it_fit(shell: Shell) -> None:
    write_tree(shell.root, {"components/web.yaml": write.to_yaml_documents([deployment()])})


def wait_for_text(started: Started, text: str, *, timeout_s: float = 40) -> None:
    wait_until(lambda: text in started.err, what=text, timeout_s=timeout_s, details=lambda: started.err)


def test_the_reason_stands_in_a_log_soon_and_ctrl_c_ends_the_wait(shell: Shell) -> None:
    run = shell.start("apply", "gke")
    wait_for_text(run, NO_GPU)
    begun_s = time.monotonic()
    run.interrupt()
    assert run.end() == 130
    assert time.monotonic() - begun_s < 60
    assert "1 created" in run.out


def test_a_wait_that_was_killed_leaves_nothing_behind(shell: Shell) -> None:
    run = shell.start("apply", "gke")
    wait_for_text(run, NO_GPU)
    run.kill()
    make_it_fit(shell)
    code, again = shell.run("apply", "gke", "--yes")
    assert (code, "1 updated" in again.out) == (0, True), again.err


def test_a_slow_server_is_waited_for(shell: Shell, proxy: Troubled) -> None:
    proxy.delay_s = 0.2
    run = shell.start("apply", "gke", "--timeout", "15s")
    wait_for_text(run, NO_GPU)
    assert run.end() == 7
    make_it_fit(shell)
    assert shell.run("apply", "gke", "--yes")[0] == 0


@pytest.mark.parametrize(
    "answer",
    [
        status(410, "too old resource version", reason="Expired"),
        status(429, "try again", reason="TooManyRequests"),
        status(500, "etcdserver: leader changed", reason="InternalError"),
        Answer(breaks=True),
    ],
    ids=["expired", "too many", "internal", "broken"],
)
def test_watches_that_are_refused_are_tried_again(shell: Shell, proxy: Troubled, answer: Answer) -> None:
    counts: dict[str, int] = {}

    def trouble(method: str, path: str) -> Answer | None:
        if "watch=true" not in path:
            return None
        kind = path.partition("?")[0]
        counts[kind] = counts.get(kind, 0) + 1
        return answer if counts[kind] % 3 else None

    proxy.trouble = trouble
    make_it_fit(shell)
    code, run = shell.run("apply", "gke", "--timeout", "60s")
    assert code == 0, run.err


def test_a_restart_of_the_api_server_is_outlived(shell: Shell, gke: TestCluster, namespace: str) -> None:
    run = shell.start("apply", "gke", "--timeout", "3m")
    wait_for_text(run, NO_GPU)
    gke.machinery.kill_apiserver()
    wait_for_text(run, "the API server does not answer")
    gke.machinery.start_apiserver()
    remove = '[{"op": "remove", "path": "/spec/template/spec/containers/0/resources"}]'
    patch = ("patch", "deployment", "web", "-n", namespace, "--type=json", "-p", remove)
    wait_until(
        lambda: gke.kubectl(*patch, check=False).returncode == 0, what="the server to be back", timeout_s=60
    )
    assert run.end(timeout_s=120) == 0, run.err


def test_status_watches_until_everything_works(shell: Shell) -> None:
    assert shell.run("apply", "gke", "--no-wait")[0] == 0
    run = shell.start("status", "gke", "--watch")
    wait_until(lambda: NO_GPU in run.out, what="the reason", details=lambda: (run.out, run.err))
    make_it_fit(shell)
    assert shell.run("apply", "gke", "--yes")[0] == 0
    assert run.end() == 0
    assert run.out.splitlines()[-1].endswith("everything works")


def test_watching_the_status_ends_with_ctrl_c(shell: Shell) -> None:
    assert shell.run("apply", "gke", "--no-wait")[0] == 0
    run = shell.start("status", "gke", "--watch")
    run.wait_for_lines(1)
    run.interrupt()
    assert run.end(timeout_s=10) == 130
