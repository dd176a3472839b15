"""Environment variables of a job's containers: EDL's names, ours, and those that torchrun reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlstack.elastic import training_job
from mlstack.elastic.facts import PLANNED
from mlstack.elastic.resources import requests
from mlstack.elastic.training_job import RoleName, Server, TrainingJob

# torchrun counts a trainer that left as a restart; the controller counts failures itself.
_MAX_RESTARTS = 1_000_000
_GPU_LIBRARIES = "/usr/local/cuda/lib64:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"
_INDEX_LABEL = "metadata.labels['apps.kubernetes.io/pod-index']"

Variable = Mapping[str, Any]


def environment(job: TrainingJob, role: RoleName, index: int | None) -> list[Variable]:
    """Give the environment of a role's container; what the job sets itself wins."""
    values = {**_edl(job), **_ours(job, role)}
    if role == "trainer":
        values |= _trainer(job)
    if index is not None:
        values["MLSTACK_INDEX"] = str(index)
    own = {str(each.get("name")) for each in job.pods.env}
    found = [*downward(is_numbered=index is None), *_literals(values)]
    return [*(each for each in found if each["name"] not in own), *job.pods.env]


def downward(*, is_numbered: bool) -> list[Variable]:
    """Give what a pod knows of itself alone."""
    fields = {"NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    if is_numbered:
        fields["MLSTACK_INDEX"] = _INDEX_LABEL
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def _literals(values: Mapping[str, str]) -> Iterable[Variable]:
    return ({"name": name, "value": value} for name, value in values.items())


def _edl(job: TrainingJob) -> dict[str, str]:
    gpus = job.trainer.resources.gpus
    cores = round(job.trainer.resources.requests.get("cpu", 0) / 1000)
    found = {
        "PADDLE_JOB_NAME": job.name,
        "TRAINERS": str(job.trainer.minimum),
        "PSERVERS": str(job.pserver.count),
        "ENTRY": job.trainer.entrypoint,
        "TOPOLOGY": job.trainer.entrypoint,
        "TRAINER_PACKAGE": job.trainer.workspace,
        "PADDLE_INIT_PORT": str(job.port),
        "PADDLE_INIT_PORTS_NUM": str(job.ports_num),
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(job.ports_num_for_sparse),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(job.trainer.minimum),
        "PADDLE_INIT_TRAINER_COUNT": str(gpus or max(1, cores)),
        "PADDLE_INIT_NUM_PASSES": str(job.passes),
        "PADDLE_INIT_USE_GPU": "1" if gpus else "0",
    }
    if job.master.count:
        found["MASTER_IP"] = found["ETCD_IP"] = training_job.server_host(job, "master", 0)
    if gpus:
        found["LD_LIBRARY_PATH"] = _GPU_LIBRARIES
    return found


def _ours(job: TrainingJob, role: RoleName) -> dict[str, str]:
    found = {
        "MLSTACK_JOB_NAME": job.name,
        "MLSTACK_ROLE": role,
        "MLSTACK_MIN_INSTANCES": str(job.trainer.minimum),
        "MLSTACK_MASTER_ADDR": training_job.master_address(job),
        "MLSTACK_PSERVER_ADDRS": ",".join(training_job.pserver_addresses(job)),
        "MLSTACK_ETCD_ENDPOINT": training_job.etcd_endpoint(job),
        "MLSTACK_PASSES": str(job.passes),
        "MLSTACK_CHECKPOINT_SECONDS": str(job.checkpoint_s),
    }
    servers: Mapping[RoleName, Server] = {"pserver": job.pserver, "master": job.master}
    storage = servers[role].storage if role in servers else None
    if storage:
        found["MLSTACK_CHECKPOINT_DIR"] = storage.path
    return found


def _trainer(job: TrainingJob) -> dict[str, str]:
    """Give what only trainers need: the maximum may change while a job runs, and servers must not restart."""
    found = {
        "MLSTACK_MAX_INSTANCES": str(job.maximum),
        "PET_NNODES": f"{max(1, job.trainer.minimum)}:{job.maximum}",
        "PET_NPROC_PER_NODE": str(job.trainer.resources.gpus or 1),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": training_job.rendezvous_address(job),
        "PET_RDZV_ID": job.name,
        "PET_MAX_RESTARTS": str(_MAX_RESTARTS),
    }
    if job.trainer.workspace:
        found["PYTHONPATH"] = job.trainer.workspace
    return found


# --- the pods of a job ---

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
    """Write the spec of a trainer's pod."""
    trainer, name = job.trainer, training_job.trainer_name(job.name, index)
    container = {
        **_container(job, "trainer", index),
        **_command(job, "trainer", trainer.entrypoint),
        "ports": [*_job_ports(job), _port("rendezvous", training_job.RENDEZVOUS_PORT)],
        **({"workingDir": trainer.workspace} if trainer.workspace else {}),
        **_resources(trainer.resources.container),
        **_mounts(job.pods.volume_mounts),
    }
    # A host name has at most 63 characters.
    named = {"hostname": name, "subdomain": training_job.role_name(job.name, "trainer")}
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
    """Write the spec of a master's or parameter server's pod."""
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


def volume_claims(server: Server) -> list[dict[str, Any]]:
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
    port = training_job.ETCD_PORT
    return {
        "name": "etcd",
        "image": job.etcd_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "etcd",
            "--name=etcd0",
            f"--data-dir={_ETCD_FOLDER}/data",
            f"--listen-client-urls=http://0.0.0.0:{port},http://0.0.0.0:4001",
            f"--advertise-client-urls={training_job.etcd_endpoint(job)}",
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
        _port("master", training_job.MASTER_PORT),
        _port("rendezvous", training_job.RENDEZVOUS_PORT),
    ]


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    return {"resources": container} if container else {}


def _mounts(mounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"volumeMounts": list(mounts)} if mounts else {}


def _volumes(volumes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"volumes": list(volumes)} if volumes else {}


# --- the objects that a training job becomes ---

TRANSITIONS = "mlstack.dev/lease-transitions"
"""How often the lease had changed hands when a leader wrote the object."""

Hints = Mapping[str, Sequence[str]]
Object = dict[str, Any]

_SERVERS: tuple[RoleName, ...] = ("master", "pserver")


def trainer(job: TrainingJob, index: int, *, node: str = "", transitions: int | None = None) -> Object:
    """Write a trainer's pod."""
    found = _object(job, "v1", "Pod", training_job.trainer_name(job.name, index), "trainer", transitions)
    metadata = found["metadata"]
    metadata["labels"] = {**job.pods.labels, **metadata["labels"]}
    marks = {**job.pods.annotations, **metadata.pop("annotations", {}), **({PLANNED: node} if node else {})}
    if marks:
        metadata["annotations"] = marks
    return {**found, "spec": trainer_spec(job, index, node=node)}


def server(job: TrainingJob, role: RoleName) -> Object:
    """Write the first pod of a role as its StatefulSet would make it, to be tried, not to be created."""
    name = training_job.role_name(job.name, role)
    found = _object(job, "v1", "Pod", f"{name}-0", role, None)
    found["metadata"]["labels"] = {**job.pods.labels, **found["metadata"]["labels"]}
    if job.pods.annotations:
        found["metadata"]["annotations"] = dict(job.pods.annotations)
    wanted = server_spec(job, role)
    claims = [one["metadata"]["name"] for one in volume_claims(server_of(job, role))]
    volumes = [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}-0"}} for claim in claims
    ]
    if volumes:
        wanted["volumes"] = [*wanted.get("volumes", ()), *volumes]
    return {**found, "spec": wanted}


def supporting(
    job: TrainingJob,
    *,
    hints: Hints,
    required: bool = True,
    is_running: bool = True,
    transitions: int | None = None,
) -> tuple[Object, ...]:
    """Write all objects of a job but its trainers, in the order in which they are created."""
    found = [_service(job, "trainer", transitions)]
    if job.minimum:
        found.append(_budget(job, "trainer", {"minAvailable": job.minimum}, transitions))
    for role in _SERVERS:
        if not server_of(job, role).count:
            continue
        budget = {"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
        template = server_spec(job, role, nodes=hints.get(role, ()), is_required=required)
        found += [
            _service(job, role, transitions),
            _budget(job, role, budget, transitions),
            _stateful_set(job, role, template, is_running=is_running, transitions=transitions),
        ]
    return tuple(found)


def pod_requests(job: TrainingJob, role: RoleName) -> dict[str, int]:
    """Give what one pod of a role requests in all, as the scheduler counts it."""
    if role == "trainer":
        return requests(trainer_spec(job, 0))
    return requests(server_spec(job, role))


def server_of(job: TrainingJob, role: RoleName) -> Server:
    """Give what a job wants of its master or parameter servers."""
    return job.master if role == "master" else job.pserver


def _object(
    job: TrainingJob, api_version: str, kind: str, name: str, role: RoleName, transitions: int | None
) -> Object:
    metadata: Object = {
        "name": name,
        "namespace": job.namespace,
        "labels": training_job.labels(job.name, role),
        "ownerReferences": [training_job.owner(job)],
    }
    if transitions is not None:
        metadata["annotations"] = {TRANSITIONS: str(transitions)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _service(job: TrainingJob, role: RoleName, transitions: int | None) -> Object:
    """Write the Service that gives each pod of a role a name, from before it is ready."""
    name = training_job.role_name(job.name, role)
    return {
        **_object(job, "v1", "Service", name, role, transitions),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": training_job.selector(job.name, role),
        },
    }


def _budget(job: TrainingJob, role: RoleName, limits: Mapping[str, Any], transitions: int | None) -> Object:
    """Write what a drain must leave, in numbers: shares would need an owner that counts the pods."""
    name = training_job.role_name(job.name, role)
    return {
        **_object(job, "policy/v1", "PodDisruptionBudget", name, role, transitions),
        "spec": {**limits, "selector": {"matchLabels": training_job.selector(job.name, role)}},
    }


def _stateful_set(
    job: TrainingJob,
    role: RoleName,
    template: Mapping[str, Any],
    *,
    is_running: bool,
    transitions: int | None,
) -> Object:
    name, server = training_job.role_name(job.name, role), server_of(job, role)
    metadata: Object = {"labels": {**job.pods.labels, **training_job.labels(job.name, role)}}
    if job.pods.annotations:
        metadata["annotations"] = dict(job.pods.annotations)
    is_kept = server.storage is None or server.storage.is_kept
    claims = volume_claims(server)
    return {
        **_object(job, "apps/v1", "StatefulSet", name, role, transitions),
        "spec": {
            "replicas": server.count if is_running else 0,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            # A changed hint must not restart pods that have a place.
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain" if is_kept else "Delete",
                "whenScaled": "Retain",
            },
            "selector": {"matchLabels": training_job.selector(job.name, role)},
            "template": {"metadata": metadata, "spec": dict(template)},
            **({"volumeClaimTemplates": claims} if claims else {}),
        },
    }
