"""One Kubernetes cluster of the tests: its users, and the ways to look at it and act on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.controlplane.recipes import Programs
from tests.support import kubeconfig
from tests.support.api import ApiClient, Json
from tests.support.machinery import STAGES, Machinery
from tests.support.waiting import wait_until

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine that kwok plays.

    Attributes:
        name: of the Node object.
        capacity: resources by name, as quantities.
        labels: beside the host name.
    """

    name: str
    capacity: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """What makes one cluster different from another.

    Attributes:
        context: its name in kubeconfig files.
        nodes: its machines.
        storage_class: name of its default storage class.
        binding_mode: of that class: `Immediate` or `WaitForFirstConsumer`.
        stages: what kwok does in the place of kubelets.
    """

    context: str
    nodes: Sequence[Node]
    storage_class: str
    binding_mode: str
    stages: Path = STAGES


@dataclass(frozen=True, kw_only=True)
class User:
    """Somebody the API server knows: the name it gives them in messages, and their bearer token."""

    name: str
    token: str


ADMIN = User(name="admin", token="token-of-admin")
VIEWER = User(name="viewer", token="token-of-viewer")
NOBODY = User(name="nobody", token="token-of-nobody")


class TestCluster:
    """A running cluster; `ControlPlane` makes it and stops it.

    Attributes:
        context: its name in kubeconfig files.
        server: URL of the API server.
        ca_pem: the certificate to check the server by.
        kubeconfig: a file with this cluster alone, for the admin.
        admin: may do everything.
        viewer: may read what the role `view` shows, in every namespace.
        nobody: is known to the server, and may do nothing.
        api: the API server as the admin sees it.
        machinery: its programs.
    """

    __test__: ClassVar[bool] = False  # the name looks like a test to pytest

    ca_pem: str
    api: ApiClient

    def __init__(self, spec: ClusterSpec, programs: Programs, directory: Path) -> None:
        """Choose ports and names; nothing is started.

        Args:
            spec: what the cluster is like.
            programs: where the binaries are.
            directory: must not exist; gets everything that belongs to the cluster.
        """
        self.context = spec.context
        self.admin, self.viewer, self.nobody = ADMIN, VIEWER, NOBODY
        self.machinery = Machinery(programs, directory)
        self.server = self.machinery.server
        self.kubeconfig = directory / "kubeconfig"
        self._spec = spec
        self._programs = programs
        self._home = directory / "home"

    def launch(self) -> None:
        """Start etcd and the API server."""
        groups = {ADMIN: "system:masters"}
        users = (ADMIN, VIEWER, NOBODY)
        self.machinery.launch(
            f"{user.token},{user.name},{user.name},{groups.get(user, '')}" for user in users
        )
        self._home.mkdir()

    def populate(self) -> None:
        """Wait for the API server, create nodes, storage class and rights, and start the controllers."""
        self.ca_pem = self.machinery.wait_until_certified()
        self.api = self.client()
        self.machinery.wait_until_serving(self.api)
        self.write_kubeconfig(self.kubeconfig)
        self.machinery.launch_controllers(self.kubeconfig, self._spec.stages)
        for node in self._spec.nodes:
            self.request("POST", "/api/v1/nodes", _node(node))
        self.request("POST", "/apis/storage.k8s.io/v1/storageclasses", _storage_class(self._spec))
        self.bind(self.viewer, "view")

    def wait_until_schedulable(self) -> None:
        """Wait until every node is Ready and pods can be created in the namespace `default`."""
        self.wait_for("/api/v1/nodes", _all_ready, what="ready nodes", timeout_s=60)
        self.wait_for_service_account("default")

    def stop(self) -> None:
        """Kill every program; a stopped cluster cannot be started again."""
        volumes = self._volume_directories()
        self.machinery.stop()
        for volume in volumes:
            shutil.rmtree(volume, ignore_errors=True)
            with suppress(OSError):  # other runs may have volumes there
                volume.parent.rmdir()

    def restart_apiserver(self) -> None:
        """Kill the API server as a power cut would, start it again and wait until it is ready."""
        self.machinery.kill_apiserver()
        self.machinery.start_apiserver()
        self.machinery.wait_until_serving(self.api)

    def login(self, user: User | None = None, *, namespace: str = "default") -> kubeconfig.Login:
        """Give the context of this cluster for a kubeconfig (default: as its admin)."""
        token = (user or self.admin).token
        return kubeconfig.Login(
            context=self.context, server=self.server, ca_pem=self.ca_pem, token=token, namespace=namespace
        )

    def write_kubeconfig(self, path: Path, user: User | None = None, *, namespace: str = "default") -> Path:
        """Write a kubeconfig with this cluster alone (default: for its admin) and give its path."""
        login = self.login(user, namespace=namespace)
        return kubeconfig.write_kubeconfig(path, [login], current_context=self.context)

    def client(self, user: User | None = None) -> ApiClient:
        """Give the API server as this user sees it (default: the admin)."""
        return ApiClient(self.server, ca_pem=self.ca_pem, token=(user or self.admin).token)

    def bind(self, user: User, cluster_role: str, *, namespace: str | None = None) -> None:
        """Give a user the rights of a ClusterRole, in one namespace or (default) everywhere."""
        kind, home = (
            ("ClusterRoleBinding", RBAC)
            if namespace is None
            else ("RoleBinding", f"{RBAC}/namespaces/{namespace}")
        )
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"generateName": "test-"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name}],
        }
        self.request("POST", f"{home}/{kind.lower()}s", body)

    def create_user(
        self, name: str, rules: Sequence[Mapping[str, Any]] = (), *, namespace: str | None = None
    ) -> User:
        """Create somebody who may do what the rules say, in one namespace or (default) everywhere.

        They are the service account `name` of the namespace `default`, the only kind of user that a running
        API server can be given.
        """
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        self.request("POST", accounts, {"metadata": {"name": name}})
        user = self.service_account("default", name)
        role = f"test-{name}"
        self.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": list(rules)})
        self.bind(user, role, namespace=namespace)
        return user

    def service_account(self, namespace: str, name: str) -> User:
        """Log in as a service account that exists, to try out the rights that it was given."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token = self.request("POST", path, {"spec": {"expirationSeconds": 86400}})["status"]["token"]
        return User(name=f"system:serviceaccount:{namespace}:{name}", token=token)

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, content_type: str = ""
    ) -> Json:
        """Send one request as the admin; see `ApiClient.request`."""
        return self.api.request(method, path, body, content_type=content_type)

    def find(self, path: str) -> Json | None:
        """Give the object (or list) at this path of the API, or None where there is none."""
        return self.api.find(path)

    def wait_for(
        self,
        path: str,
        accept: Callable[[Json], object] = lambda obj: True,
        *,
        what: str = "",
        timeout_s: float = 30.0,
    ) -> Json:
        """Wait until there is an object (or list) at `path` which `accept` finds true, and give it.

        Raises:
            AssertionError: the time is up; the message shows what was there at the end.
        """

        def probe() -> Json | None:
            obj = self.find(path)
            return obj if obj is not None and accept(obj) else None

        def details() -> str:
            return json.dumps(self.find(path), indent=1)

        return wait_until(probe, what=what or path, timeout_s=timeout_s, details=details)

    def wait_until_gone(self, path: str, *, timeout_s: float = 30.0) -> None:
        """Wait until nothing is at `path`."""
        wait_until(lambda: self.find(path) is None, what=f"the end of {path}", timeout_s=timeout_s)

    def wait_for_service_account(self, namespace: str) -> None:
        """Wait until pods can be created in a new namespace: they need its account `default`."""
        self.wait_for(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")

    def ensure_namespace(self, name: str) -> None:
        """Have a namespace that several tests share; nobody deletes it."""
        if self.find(f"/api/v1/namespaces/{name}") is None:
            self.kubectl("create", "namespace", name)
        self.wait_for_service_account(name)

    def kubectl(
        self, *arguments: str | Path, input: str | None = None, user: User | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the built kubectl on this cluster.

        Args:
            arguments: what follows `kubectl`.
            input: text for its standard input (`apply -f -`).
            user: whose rights it has (default: the admin).
            check: fail the test when kubectl does.

        Raises:
            AssertionError: kubectl did not exit 0, and `check` is set; the message has its output.
        """
        token = (user or self.admin).token
        login = [f"--kubeconfig={self.kubeconfig}", f"--context={self.context}", f"--token={token}"]
        done = subprocess.run(
            [self._programs.kubectl, *login, *arguments],
            input=input,
            env={**os.environ, "HOME": str(self._home)},
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            command = " ".join(map(str, arguments))
            raise AssertionError(f"kubectl {command} exited {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def _volume_directories(self) -> list[Path]:
        """Give the directories that claims were given; the controller that would remove them ends with us."""
        if not (self.kubeconfig.is_file() and self.api.is_ready()):
            return []
        volumes = self.request("GET", "/api/v1/persistentvolumes")["items"]
        return [
            Path(volume["spec"]["hostPath"]["path"]) for volume in volumes if "hostPath" in volume["spec"]
        ]


def _node(node: Node) -> Json:
    resources = {"pods": "110", **node.capacity}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name, **node.labels}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _storage_class(spec: ClusterSpec) -> Json:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": spec.storage_class, "annotations": marks},
        "provisioner": "kubernetes.io/host-path",
        "volumeBindingMode": spec.binding_mode,
    }


def _all_ready(nodes: Json) -> bool:
    return all(_is_ready(node) and not node["spec"].get("taints") for node in nodes["items"])


def _is_ready(node: Json) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)
