"""The pods of a job: containers, volumes, security, placement; clean under the policy "restricted"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.elastic import childnames
from mlstack.elastic.environment import downward, environment
from mlstack.elastic.trainingjob import RoleName, Server, TrainingJob

STATE_VOLUME = "mlstack-state"
HOSTNAME = "kubernetes.io/hostname"
SERVER_UNREACHABLE_S = 30
SERVER_GRACE_S = 30
"""Time for a last checkpoint."""

_USER = 1000
_ETCD_FOLDER = "/var/lib/etcd"
# What `paddle_k8s`, the start program of EDL's images, is told where a job has no command of its own. Without
# fault tolerance parameter servers know no master, and trainers wait for each other and bear no failure.
_VERBS: Mapping[RoleName, tuple[str, ...]] = {
    "master": ("start_master",),
    "pserver": ("start_new_pserver",),
    "trainer": ("start_new_trainer",),
}
_RIGID_VERBS: Mapping[RoleName, tuple[str, ...]] = {
    "master": ("start_master",),
    "pserver": ("start_pserver",),
    "trainer": ("start_trainer", "v2"),
}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def trainer_spec(job: TrainingJob, index: int, *, node: str = "") -> dict[str, Any]:
    """Write the spec of a trainer's pod.

    Args:
        job: the job.
        index: of the trainer.
        node: `kubernetes.io/hostname` of the node that is planned for it, empty for none.
    """
    trainer, name = job.trainer, childnames.trainer_name(job.name, index)
    container = {
        **_container(job, "trainer", index),
        **_command(job, "trainer", trainer.entrypoint),
        "ports": [*_job_ports(job), _port("rendezvous", childnames.RENDEZVOUS_PORT)],
        **({"workingDir": trainer.workspace} if trainer.workspace else {}),
        **_resources(trainer.resources.container),
        **_mounts(job.pods.volume_mounts),
    }
    # A host name has at most 63 characters.
    named = {"hostname": name, "subdomain": childnames.role_name(job.name, "trainer")}
    return {
        **(named if len(name) <= 63 and not job.pods.host_network else {}),
        **_common(job, trainer.priority_class, trainer.unreachable_s),
        **_selector({**job.pods.node_selector, **trainer.node_selector}),
        **(_affinity([node], is_required=False) if node else {}),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": trainer.grace_s,
        "containers": [container],
        **_volumes(job.pods.volumes),
    }


def server_spec(
    job: TrainingJob, role: RoleName, *, nodes: Sequence[str] = (), is_required: bool = True
) -> dict[str, Any]:
    """Write the spec of a master's or parameter server's pod.

    Args:
        job: the job.
        role: `master` or `pserver`.
        nodes: `kubernetes.io/hostname` of the nodes that are planned for the pods of the role.
        is_required: whether they may go nowhere else.
    """
    server = job.master if role == "master" else job.pserver
    state = [{"name": STATE_VOLUME, "mountPath": server.storage.path}] if server.storage else []
    container = {
        **_container(job, role, None),
        **_command(job, role, server.entrypoint),
        "ports": _master_ports() if role == "master" else _job_ports(job),
        **_resources(server.resources.container),
        **_mounts([*job.pods.volume_mounts, *state]),
    }
    has_etcd = role == "master" and job.etcd == "Sidecar"
    scratch = [{"name": STATE_VOLUME, "emptyDir": {}}] if has_etcd and not server.storage else []
    return {
        **_common(job, server.priority_class, SERVER_UNREACHABLE_S),
        **_selector(job.pods.node_selector),
        **(_affinity(sorted(set(nodes)), is_required=is_required) if nodes else {}),
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": SERVER_GRACE_S,
        "containers": [container, *([_etcd(job)] if has_etcd else [])],
        **_volumes([*job.pods.volumes, *scratch]),
    }


def claims(server: Server) -> list[dict[str, Any]]:
    """Write the claims of a StatefulSet."""
    if not server.storage:
        return []
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": server.storage.size}},
    }
    if server.storage.storage_class:
        spec["storageClassName"] = server.storage.storage_class
    return [{"metadata": {"name": STATE_VOLUME}, "spec": spec}]


def _container(job: TrainingJob, role: RoleName, index: int | None) -> dict[str, Any]:
    return {
        "name": role,
        "image": job.pods.image,
        "imagePullPolicy": job.pods.image_pull_policy,
        "env": environment(job, role, index),
        **({"envFrom": list(job.pods.env_from)} if job.pods.env_from else {}),
        "securityContext": _CONTAINER_SECURITY,
    }


def _command(job: TrainingJob, role: RoleName, entrypoint: str) -> dict[str, Any]:
    if entrypoint:
        return {"command": ["/bin/sh", "-c", entrypoint]}
    verbs = _VERBS if job.is_fault_tolerant else _RIGID_VERBS
    return {"command": ["paddle_k8s", *verbs[role]]}


def _etcd(job: TrainingJob) -> dict[str, Any]:
    """Write the etcd that keeps the task queue: one member, which only its own pod may join."""
    port = childnames.ETCD_PORT
    return {
        "name": "etcd",
        "image": job.etcd_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "etcd",
            "--name=etcd0",
            f"--data-dir={_ETCD_FOLDER}/data",
            f"--listen-client-urls=http://0.0.0.0:{port},http://0.0.0.0:4001",
            f"--advertise-client-urls={childnames.etcd_endpoint(job)}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=etcd0=http://127.0.0.1:2380",
        ],
        "env": downward(is_numbered=False),
        "ports": [_port("etcd", port), _port("etcd-old", 4001)],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "etcd"}, "periodSeconds": 5},
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [{"name": STATE_VOLUME, "mountPath": _ETCD_FOLDER, "subPath": "etcd"}],
    }


def _common(job: TrainingJob, priority_class: str, unreachable_s: int) -> dict[str, Any]:
    pods = job.pods
    found: dict[str, Any] = {
        "automountServiceAccountToken": bool(pods.service_account),
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
            **pods.security_context,
        },
        "tolerations": [*pods.tolerations, *_leaving(unreachable_s)],
    }
    optional = {
        "priorityClassName": priority_class,
        "serviceAccountName": pods.service_account,
        "schedulerName": pods.scheduler,
        "runtimeClassName": pods.runtime_class,
        "imagePullSecrets": [{"name": name} for name in pods.image_pull_secrets],
    }
    found |= {name: value for name, value in optional.items() if value}
    if pods.host_network:
        found |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return found


def _selector(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"nodeSelector": dict(labels)} if labels else {}


def _leaving(seconds: int) -> list[dict[str, Any]]:
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in keys
    ]


def _affinity(nodes: Sequence[str], *, is_required: bool) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}
    wish: dict[str, Any] = (
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        if is_required
        else {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
    )
    return {"affinity": {"nodeAffinity": wish}}


def _job_ports(job: TrainingJob) -> list[dict[str, Any]]:
    count = max(1, job.ports_num + job.ports_num_for_sparse)
    return [_port(f"jobport-{port}", port) for port in range(job.port, job.port + count)]


def _master_ports() -> list[dict[str, Any]]:
    return [
        _port("master", childnames.MASTER_PORT),
        _port("rendezvous", childnames.RENDEZVOUS_PORT),
    ]


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    return {"resources": container} if container else {}


def _mounts(mounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"volumeMounts": list(mounts)} if mounts else {}


def _volumes(volumes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"volumes": list(volumes)} if volumes else {}
