"""Whether nodes can pull what an environment runs, before anything is applied."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlstack.testing.cluster import MemoryCluster
from mlstack.yaml.write import to_yaml
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import Stack, VirtualClock, deployment, secret
from tests.support.images import push_image
from tests.support.oci import PASSWORD, USER, FakeRegistry, Reply

pytestmark = pytest.mark.slow  # each runs a registry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        push_image(running.host, "both", "1", "amd64", "arm64")
        push_image(running.host, "single", "1", "amd64")
        yield running


@pytest.fixture
def shop(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app of plain manifests; its cluster has nodes of two architectures."""
    cluster = run.cluster("minikube")
    assert isinstance(cluster, MemoryCluster)
    Stack(tmp_path / "app", namespace="default", opener=lambda name: cluster, clock=VirtualClock())
    monkeypatch.chdir(tmp_path / "app")
    for name, architecture in (("a", "amd64"), ("b", "arm64")):
        labels = {"kubernetes.io/arch": architecture}
        info = {"architecture": architecture, "operatingSystem": "linux"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        cluster.create({**node, "status": {"nodeInfo": info}})
    return run


def runs(image: str, **spec: Any) -> None:
    """Make the app one Deployment of an image."""
    workload = deployment("web", image=image)
    workload["spec"]["template"]["spec"] |= spec
    write_tree(Path.cwd(), {"components/web.yaml": to_yaml(workload)})


def faults(run: Runner) -> list[tuple[str, str]]:
    planned = run("plan minikube --check-images -o json")
    rows = planned.json["images"]
    assert planned.code == (1 if any(row["problem"] != "unchecked" for row in rows) else 0), planned
    return [(row["problem"], row["message"]) for row in rows]


def pull_secret(host: str, password: str = PASSWORD) -> dict[str, Any]:
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    content = json.dumps({"auths": {host: {"auth": auth}}})
    return secret("pulls", **{".dockerconfigjson": content}) | {"type": "kubernetes.io/dockerconfigjson"}


def locked(registry: FakeRegistry) -> None:
    """Let the registry ask for the name and password."""
    right = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    refusal = Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="tests"'})
    registry.fault = lambda running, method, path, headers: (
        None if headers.get("Authorization") == right else refusal
    )


def test_an_image_for_all_nodes_is_fine_and_one_that_is_not_there_is_told(
    shop: Runner, registry: FakeRegistry
) -> None:
    runs(f"{registry.host}/both:1")
    assert faults(shop) == []
    runs(f"{registry.host}/both:2")
    assert faults(shop) == [("missing", "is not there")]
    ran = shop("plan minikube --check-images --out plan.json")
    line = f"image {registry.host}/both:2 of web: Deployment default/web: is not there"
    assert (ran.code, line in " ".join(ran.out.split()), Path("plan.json").exists()) == (1, True, False)


def test_a_platform_is_missed_where_a_pod_may_go_there(shop: Runner, registry: FakeRegistry) -> None:
    runs(f"{registry.host}/single:1")
    assert faults(shop) == [("platform", "has nothing for linux/arm64 of the nodes, only linux/amd64")]
    runs(f"{registry.host}/single:1", nodeSelector={"kubernetes.io/arch": "amd64"})
    assert faults(shop) == []


def test_the_pull_secrets_of_pod_and_service_account_are_used_and_never_told(
    shop: Runner, registry: FakeRegistry
) -> None:
    locked(registry)
    image = f"{registry.host}/both:1"
    runs(image)
    ((problem, message),) = faults(shop)
    assert (problem, "without a pull secret" in message) == ("forbidden", True)
    runs(image, imagePullSecrets=[{"name": "pulls"}])
    assert "Secret default/pulls is not there" in faults(shop)[0][1]
    write_tree(Path.cwd(), {"components/pulls.yaml": to_yaml(pull_secret(registry.host, "wrong-one"))})
    refused = shop("plan minikube --check-images")
    assert (refused.code, "wrong-one" in refused.out + refused.err) == (1, False)
    write_tree(Path.cwd(), {"components/pulls.yaml": to_yaml(pull_secret(registry.host))})
    assert faults(shop) == []
    anywhere = pull_secret(registry.host.replace("127", "*"))  # as kubelets match: `*.example.org`
    write_tree(Path.cwd(), {"components/pulls.yaml": to_yaml(anywhere)})
    assert faults(shop) == []
    write_tree(Path.cwd(), {"components/pulls.yaml": to_yaml(pull_secret("*." + registry.host))})
    assert [problem for problem, _ in faults(shop)] == ["forbidden"]  # a name too many
    write_tree(Path.cwd(), {"components/pulls.yaml": to_yaml(anywhere)})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web"}}
    account["imagePullSecrets"] = [{"name": "pulls"}]  # type: ignore[assignment]
    write_tree(Path.cwd(), {"components/account.yaml": to_yaml(account)})
    runs(image, serviceAccountName="web")
    assert faults(shop) == []


def test_a_registry_that_does_not_answer_leaves_it_open(shop: Runner) -> None:
    runs("127.0.0.1:1/both:1")
    ((problem, message),) = faults(shop)
    assert (problem, message.startswith("could not be checked: ")) == ("unchecked", True)
    applied = shop("apply minikube --check-images --no-wait")
    assert (applied.code, "could not be checked" in applied.err) == (0, True), applied


def test_apply_refuses_before_anything_is_written(shop: Runner, registry: FakeRegistry) -> None:
    runs(f"{registry.host}/none:1")
    refused = shop("apply minikube --check-images --no-wait --yes")
    assert (refused.code, "is not there" in refused.err) == (5, True), refused
    assert shop("diff minikube").code == 1
    shop.ok("apply minikube --no-wait --yes")
