"""The two clusters that cluster tests work on: real control planes, made for one test run.

What a test gets (fixtures of `tests/cluster/conftest.py`):

    control_plane   ControlPlane: both clusters; one for the whole run
    minikube, gke   TestCluster: one node without GPUs; three nodes with two GPUs each
    namespace       str: a fresh namespace in the clusters that the test asks for, emptied afterwards
    kubeconfig      Path: this test's own, contexts `minikube` (current) and `gke`; $KUBECONFIG
    training_operator   function: start the real operator, `training_operator(gke, "tfjob")`, CRDs being there
    start_hub       function: start a real JupyterHub, `start_hub(gke, config_file, namespace=namespace)`

    control_plane.clusters[context]                    -> TestCluster
    control_plane.write_kubeconfig(path, current_context="minikube", user=None) -> path, both contexts
    control_plane.programs                             -> where kubectl and the other binaries are

    cluster.context, .server, .ca_pem, .kubeconfig     this cluster alone, for its admin
    cluster.admin, .viewer, .nobody                    User(name, token): everything; role `view`; nothing
    cluster.create_user(name, rules, namespace=None)   -> User with just these RBAC rules
    cluster.service_account(namespace, name)           -> User: log in as an account that exists
    cluster.write_kubeconfig(path, user, namespace=)   -> path
    cluster.kubectl(*args, input=, user=, check=True)  -> CompletedProcess; fails the test unless check=False
    cluster.request(method, path, body, content_type=) -> JSON; raises ApiRefusedError(status, body)
    cluster.find(path)                                 -> JSON or None
    cluster.wait_for(path, accept, what=, timeout_s=)  -> JSON that `accept` finds true
    cluster.wait_until_gone(path)
    cluster.client(user)                               -> ApiClient of another user
    cluster.restart_apiserver()                        kill -9, start, wait
    cluster.machinery.log("kube-apiserver")            -> the end of a log; also .kill_apiserver(), .pids

Pods run after a moment on simulated nodes. Annotations of a pod (template) make them do more, and
`tests/controlplane/stages.yaml` says which: `mlstack.dev/test-exit: "0"` lets it end. Nothing runs in a pod:
no logs, no exec. Claims are bound to empty directories. Nothing beyond 127.0.0.1 can be dialled, not even by
accident.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Self

from tests.controlplane.recipes import Programs
from tests.support import broom
from tests.support.cluster import ClusterSpec, Node, TestCluster, User
from tests.support.kubeconfig import write_kubeconfig

MINIKUBE = ClusterSpec(
    context="minikube",
    nodes=[Node(name="minikube", capacity={"cpu": "8", "memory": "32Gi"}, labels={})],
    storage_class="standard",
    binding_mode="Immediate",
)
GKE = ClusterSpec(
    context="gke",
    nodes=[
        Node(
            name=f"gke-gpu-{index}",
            capacity={"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2"},
            labels={"cloud.google.com/gke-accelerator": "nvidia-l4"},
        )
        for index in range(3)
    ],
    storage_class="standard-rwo",
    binding_mode="WaitForFirstConsumer",
)


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """Running clusters by their context, and one kubeconfig that leads to them all.

    Attributes:
        clusters: by context.
        kubeconfig: all contexts, as admin. Shared: tests that switch contexts write their own.
        programs: where the binaries are.
    """

    clusters: dict[str, TestCluster]
    kubeconfig: Path
    programs: Programs
    _sweeper: Popen[bytes]

    @classmethod
    def start(cls, programs: Programs, specs: tuple[ClusterSpec, ...] = (MINIKUBE, GKE)) -> Self:
        """Start the clusters side by side and wait until pods can be scheduled on each.

        Enter the network namespace first (`isolation`). Stop them with `stop`; if this process dies, they die
        too.

        Raises:
            AssertionError: a program ended or was not ready in time; the message has the end of its log.
        """
        directory = Path(tempfile.mkdtemp(prefix="mlstack-clusters-"))
        sweeper = broom.sweep_after_us(directory)
        clusters = {spec.context: TestCluster(spec, programs, directory / spec.context) for spec in specs}
        plane = cls(
            clusters=clusters, kubeconfig=directory / "kubeconfig", programs=programs, _sweeper=sweeper
        )
        try:
            plane._bring_up()
        except BaseException:
            plane.stop()
            raise
        return plane

    def write_kubeconfig(self, path: Path, *, current_context: str, user: User | None = None) -> Path:
        """Write a kubeconfig with all contexts (default: as admin) and give its path."""
        logins = [cluster.login(user) for cluster in self.clusters.values()]
        return write_kubeconfig(path, logins, current_context=current_context)

    @property
    def pids(self) -> list[int]:
        """The process ids of all programs that run."""
        return [pid for cluster in self.clusters.values() for pid in cluster.machinery.pids]

    def stop(self) -> None:
        """Kill every program and remove every file."""
        for cluster in self.clusters.values():
            cluster.stop()
        self._sweeper.communicate()

    def _bring_up(self) -> None:
        steps = (TestCluster.launch, TestCluster.populate, TestCluster.wait_until_schedulable)
        for step in steps:
            for cluster in self.clusters.values():
                step(cluster)
        self.write_kubeconfig(self.kubeconfig, current_context=next(iter(self.clusters)))
