"""Images are looked for as the nodes of a real cluster would, in a real registry with a login."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack.operations import deploy
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, deployment, secret
from tests.support.images import push_image
from tests.support.oci import PASSWORD, USER, real_registry
from tests.unit.registries.test_oci import log_in

pytestmark = pytest.mark.cluster


@pytest.fixture
def arm_node(minikube: TestCluster, namespace: str) -> Iterator[str]:
    """A second node, of another architecture."""
    name = f"arm-{namespace}"
    info = {"architecture": "arm64", "operatingSystem": "linux"}
    labels = {"kubernetes.io/arch": "arm64"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    minikube.kubectl("create", "-f", "-", input=json.dumps({**node, "status": {"nodeInfo": info}}))
    yield name
    minikube.kubectl("delete", "node", name)


def problems(stack: Stack) -> list[tuple[str, str]]:
    planned = deploy.plan(stack.target(), opener=stack.opener, clock=stack.clock, check_images=True)
    return [(fault.image.rpartition("/")[2], fault.problem) for fault in planned.images]


def test_images_are_checked_for_all_nodes_with_the_secrets_of_the_cluster(
    stack: Stack, minikube: TestCluster, namespace: str, arm_node: str, tmp_path: Path
) -> None:
    (tmp_path / "registry").mkdir()
    with real_registry(tmp_path / "registry", login=True) as host:
        log_in(host)
        push_image(host, "both", "1", "amd64", "arm64")
        push_image(host, "single", "1", "amd64")
        (Path.home() / ".docker/config.json").unlink()
        names = ("both:1", "single:1", "none:1")
        workloads = [deployment(name[:-2], image=f"{host}/{name}") for name in names]
        stack.write("web", *workloads)
        assert problems(stack) == [(name, "forbidden") for name in names]
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        content = json.dumps({"auths": {host: {"auth": auth}}})
        pulls = secret("pulls", **{".dockerconfigjson": content}) | {"type": "kubernetes.io/dockerconfigjson"}
        minikube.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(pulls))
        patch = json.dumps({"imagePullSecrets": [{"name": "pulls"}]})
        minikube.kubectl("patch", "serviceaccount", "default", "-n", namespace, "-p", patch)
        assert problems(stack) == [("single:1", "platform"), ("none:1", "missing")]
