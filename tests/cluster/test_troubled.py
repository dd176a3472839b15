"""A real API server that is overloaded, slow or fails now and then: what is wanted is there in the end."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from mlstack.yaml import write
from tests.support.builders import write_tree
from tests.support.cluster import TestCluster
from tests.support.deploying import config_map, deployment, secret
from tests.support.fakeapi import Answer, status
from tests.support.shell import Shell
from tests.support.troubled import Troubled

pytestmark = pytest.mark.cluster

MANY = 60
ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: {}\nnamespace: {}\n"
PASSWORD = "correct-horse-battery-staple"


class Storm:
    """Refuses every n-th request that a filter takes, as an overloaded server does."""

    def __init__(self, answer: Answer, *, methods: str, every: int, limit: int = 10_000) -> None:
        self._answer, self._methods, self._every, self._left = answer, methods.split(), every, limit
        self._count, self._lock = 0, Lock()

    def __call__(self, method: str, path: str) -> Answer | None:
        if method not in self._methods:
            return None
        with self._lock:
            self._count += 1
            if self._left <= 0 or self._count % self._every:
                return None
            self._left -= 1
            return self._answer


@pytest.fixture
def shell(tmp_path: Path, gke: TestCluster, namespace: str, proxy: Troubled) -> Iterator[Shell]:
    many = [config_map(f"many-{number:02}", key="value") for number in range(MANY)]
    tree = {
        "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
        "components/many.yaml": write.to_yaml_documents(many),
        "components/web.yaml": write.to_yaml_documents([deployment()]),
        "components/keys.yaml": write.to_yaml_documents([secret(password=PASSWORD)]),
        "environments/prod/environment.yaml": ENVIRONMENT.format(gke.context, namespace),
    }
    root = write_tree(tmp_path / "app", tree)
    with closing(Shell(root=root, kubeconfig=tmp_path / "troubled-kubeconfig")) as opened:
        yield opened


def there(cluster: TestCluster, namespace: str, kind: str = "configmaps") -> dict[str, Any]:
    """Give the objects of a kind that the app has made, by name."""
    query = f"/api/v1/namespaces/{namespace}/{kind}?labelSelector=mlstack.dev%2Fcomponent"
    return {obj["metadata"]["name"]: obj for obj in cluster.request("GET", query)["items"]}


def apply(shell: Shell, *words: str) -> str:
    code, ran = shell.run("apply", "prod", "--yes", *words)
    assert code == 0, ran.out + ran.err
    assert "Traceback" not in ran.err
    return ran.out


TOO_MANY = Answer(
    code=429,
    body=status(429, "too many requests, please try again later", reason="TooManyRequests").body,
    headers=(("Retry-After", "1"),),
)
UNAVAILABLE = status(503, "the server is currently unable to handle the request", reason="ServiceUnavailable")
MODIFIED = status(
    409, "the object has been modified; please apply your changes to the latest", reason="Conflict"
)
BROKEN = Answer(breaks=True)
ALL = "GET POST PUT PATCH DELETE"


@pytest.mark.parametrize(
    "storm",
    [
        pytest.param(Storm(TOO_MANY, methods=ALL, every=3), id="429"),
        pytest.param(Storm(TOO_MANY, methods="PATCH", every=1, limit=40), id="429-only"),
        pytest.param(Storm(UNAVAILABLE, methods=ALL, every=4), id="503"),
        pytest.param(Storm(BROKEN, methods="GET PATCH", every=5), id="broken-connections"),
        pytest.param(Storm(MODIFIED, methods="PATCH PUT", every=4), id="409"),
    ],
)
def test_a_storm_of_refusals_is_ridden_out(
    shell: Shell, proxy: Troubled, gke: TestCluster, namespace: str, storm: Storm
) -> None:
    proxy.trouble = storm
    apply(shell)
    assert len(there(gke, namespace)) == MANY
    shell.root.joinpath("components/many.yaml").write_text(
        write.to_yaml_documents([config_map(f"many-{number:02}", key="new") for number in range(3, MANY)])
    )
    apply(shell)
    maps = there(gke, namespace)
    assert sorted(maps) == [f"many-{number:02}" for number in range(3, MANY)]
    assert {obj["data"]["key"] for obj in maps.values()} == {"new"}
    assert proxy.troubled


def test_a_slow_server_costs_time_and_nothing_else(
    shell: Shell, proxy: Troubled, gke: TestCluster, namespace: str
) -> None:
    proxy.delay_s = 0.2
    apply(shell)
    before = there(gke, namespace)
    assert len(before) == MANY
    proxy.passed.clear()
    assert "updated" not in apply(shell)
    assert proxy.passed["PATCH"] == 1  # of the Secret alone no hash is kept: the server compares it
    assert there(gke, namespace) == before


def test_no_secret_is_told_or_written_down(
    shell: Shell, proxy: Troubled, gke: TestCluster, namespace: str, tmp_path: Path
) -> None:
    encoded = base64.b64encode(PASSWORD.encode()).decode()
    plan = tmp_path / "plan.json"
    texts = []

    def run(*words: str) -> None:
        code, ran = shell.run(*words)
        assert code in (0, 1), ran.err
        texts.append(ran.out + ran.err)

    run("diff", "prod")
    run("plan", "prod", "--out", str(plan))
    texts.append(plan.read_text())
    for output in ("table", "json"):
        run("apply", "prod", "--yes", "-o", output)
    gke.kubectl(
        "patch", "secret", "keys", "-n", namespace, "-p", json.dumps({"stringData": {"password": "x"}})
    )
    for words in (
        ("diff", "prod"),
        ("diff", "prod", "-o", "json"),
        ("diff", "prod", "--live", "-o", "yaml"),
        ("plan", "prod", "-o", "json"),
        ("apply", "prod", "--yes", "--dry-run", "-o", "json"),
        ("apply", "prod", "--yes", "-o", "yaml"),
        ("status", "prod", "-o", "json"),
        ("history", "prod", "-o", "json"),
        ("history", "show", "prod", "1"),
        ("rollback", "prod", "1", "--yes"),
        ("delete", "prod", "--yes"),
    ):
        run(*words)
    assert not [text for text in texts if PASSWORD in text or encoded in text]
    inventory = json.dumps(gke.request("GET", f"/api/v1/namespaces/{namespace}/configmaps"))
    assert PASSWORD not in inventory
    assert encoded not in inventory
