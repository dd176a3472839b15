"""Fixtures of the cluster tests; their objects are described in `tests/support/controlplane.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from mlstack.app import files
from tests.controlplane.recipes import Programs, obtain_all
from tests.support import isolation
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster, User
from tests.support.controlplane import ControlPlane
from tests.support.deploying import Stack, is_established, opener_of
from tests.support.jupyterhub import Hub
from tests.support.training_operator import TrainingOperator
from tests.support.troubled import Troubled

_NUMBERS = count(1)
_AT_WORK = {  # what runs or lets others run, and what a search in all namespaces would find
    "api/v1": ("pods", "persistentvolumeclaims", "configmaps", "secrets"),
    "apis/apps/v1": ("deployments", "statefulsets", "daemonsets", "replicasets"),
    "apis/batch/v1": ("jobs", "cronjobs"),
    "apis/autoscaling/v2": ("horizontalpodautoscalers",),
}


class StartOperator(Protocol):
    """Start the training operator on a cluster for kinds in lower case (`tfjob`) whose CRDs are there."""

    def __call__(
        self, cluster: TestCluster, *schemes: str, user: User | None = None, **options: Any
    ) -> TrainingOperator:
        """Give the operator once its controllers may work; see `TrainingOperator` for the options."""


class StartHub(Protocol):
    """Start a JupyterHub beside a cluster with the configuration file under test."""

    def __call__(
        self,
        cluster: TestCluster,
        config: Path,
        *,
        namespace: str,
        user: User | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Hub:
        """Give the hub once it answers through its proxy; see `Hub` for the arguments."""


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Programs:
    """The built binaries; what the cache lacks is built now, while there is a network."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.write_line(line)

    return obtain_all(say)


@pytest.fixture(scope="session")
def isolated_programs(programs: Programs) -> Programs:
    """The built binaries, in a process that can reach nothing but loopback."""
    try:
        isolation.enter_network_namespace()
    except isolation.NoIsolationError as error:
        pytest.skip(str(error))
    for name in ("http_proxy", "https_proxy", "all_proxy"):  # no proxy can be reached from here either
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)
    # Programs in Go collected garbage for a third of their time, which is shorter here than memory.
    os.environ.update(GOGC="400", GOMEMLIMIT="2500MiB")
    return programs


@pytest.fixture(scope="session")
def control_plane(isolated_programs: Programs) -> Iterator[ControlPlane]:
    """Two running clusters, `minikube` and `gke`."""
    plane = ControlPlane.start(isolated_programs)
    yield plane
    plane.stop()


@pytest.fixture
def minikube(control_plane: ControlPlane) -> TestCluster:
    """The cluster with one node and no GPUs."""
    return control_plane.clusters["minikube"]


@pytest.fixture
def gke(control_plane: ControlPlane) -> TestCluster:
    """The cluster with three nodes of two GPUs each."""
    return control_plane.clusters["gke"]


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of this test alone, in the clusters it uses.

    It stays, since its end would be a hundred requests; what works in it goes, which is not waited for,
    unless the module says `NOTHING_RUNS`.
    """
    name = f"test-{next(_NUMBERS)}"
    clusters = control_plane.clusters
    used = [clusters[context] for context in clusters if context in request.fixturenames]
    for cluster in used:
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for cluster in used:
        cluster.wait_for_service_account(name)
    yield name
    for cluster in () if hasattr(request.module, "NOTHING_RUNS") else clusters.values():
        for group, kinds in _AT_WORK.items() if cluster.find(f"/api/v1/namespaces/{name}") else ():
            for kind in kinds:
                path = f"/{group}/namespaces/{name}/{kind}?propagationPolicy=Background"
                with suppress(ApiRefusedError):  # a policy or webhook of the test counts a while after it
                    cluster.request("DELETE", path)


@pytest.fixture
def training_operator(control_plane: ControlPlane) -> Iterator[StartOperator]:
    """A function that starts the real training operator on a cluster; it stops with the test."""
    started: list[TrainingOperator] = []

    def start(
        cluster: TestCluster, *schemes: str, user: User | None = None, **options: Any
    ) -> TrainingOperator:
        operator = TrainingOperator(cluster, control_plane.programs, schemes=schemes, user=user, **options)
        started.append(operator)
        operator.start()
        return operator

    yield start
    for operator in started:
        operator.stop()


@pytest.fixture
def start_hub(control_plane: ControlPlane) -> Iterator[StartHub]:
    """A function that starts a real JupyterHub beside a cluster; it stops with the test."""
    started: list[Hub] = []

    def start(
        cluster: TestCluster,
        config: Path,
        *,
        namespace: str,
        user: User | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Hub:
        hub = Hub(cluster, control_plane.programs, config, namespace=namespace, user=user, env=env)
        started.append(hub)
        hub.start()
        return hub

    yield start
    for hub in started:
        hub.stop()


@pytest.fixture(autouse=True)
def _nobody_elses_clusters(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let no test find the kubeconfig of the person who runs it."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def kubeconfig(
    control_plane: ControlPlane,
    minikube: TestCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    _nobody_elses_clusters: None,
) -> Path:
    """A kubeconfig of this test alone with both contexts, `minikube` being current; `KUBECONFIG` names it."""
    path = control_plane.write_kubeconfig(tmp_path / "kubeconfig", current_context=minikube.context)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def stack(tmp_path: Path, namespace: str, kubeconfig: Path) -> Stack:
    """An app that deploys into the test's own namespace, as the admin of both clusters."""
    return Stack(tmp_path / "app", namespace=namespace, opener=opener_of(kubeconfig))


@pytest.fixture
def definitions(minikube: TestCluster) -> Iterator[None]:
    """The TFJob definition of kubeflow-core in minikube, for one test."""
    file = files.folder("prototypes") / "core/kubeflow-core/files/crds/tfjobs.yaml"
    minikube.kubectl("apply", "--server-side", "-f", str(file))
    name = "tfjobs.kubeflow.org"
    minikube.wait_for(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", is_established)
    yield
    minikube.kubectl("delete", "crd", name, "--ignore-not-found", "--wait=true")


@pytest.fixture
def proxy(gke: TestCluster, namespace: str, tmp_path: Path) -> Iterator[Troubled]:
    """A proxy before the cluster that has nodes of two GPUs; `troubled-kubeconfig` leads to it."""
    troubled = Troubled(gke.login(namespace=namespace))
    with troubled.running(tmp_path / "troubled-kubeconfig"):
        yield troubled
