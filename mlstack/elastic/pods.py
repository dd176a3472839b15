"""The objects that a training job becomes: pods with their environment, Services, budgets, StatefulSets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.elastic import training_job
from mlstack.elastic.training_job import RENDEZVOUS_PORT, RoleName, Server, TrainingJob

Object = dict[str, Any]
PLANNED = "mlstack.dev/planned-node"

# --- environment variables: EDL's names, ours, and those that torchrun reads ---

_MASTER_PORT = 8080
_ETCD_PORT = 2379
_GPU_LIBRARIES = "/usr/local/cuda/lib64:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"


def environment(job: TrainingJob, role: RoleName, index: int | None) -> list[Mapping[str, Any]]:
    """Give the environment of a role's container; what the job sets itself wins."""
    trainer, storage = job.trainer, job.roles[role].storage
    pservers = [f"{_host(job, 'pserver', server)}:{job.port}" for server in range(job.pserver.count)]
    master = _host(job, "master", 0)
    values = {
        **_edl_environment(job),
        "MLSTACK_JOB_NAME": job.name,
        "MLSTACK_ROLE": role,
        "MLSTACK_MIN_INSTANCES": str(trainer.minimum),
        "MLSTACK_MASTER_ADDR": f"{master}:{_MASTER_PORT}" if job.master.count else "",
        "MLSTACK_PSERVER_ADDRS": ",".join(pservers),
        "MLSTACK_ETCD_ENDPOINT": _etcd_endpoint(job),
        "MLSTACK_PASSES": str(job.passes),
        "MLSTACK_CHECKPOINT_SECONDS": str(job.checkpoint_s),
    }
    if storage:
        values["MLSTACK_CHECKPOINT_DIR"] = storage.path
    if role == "trainer":  # the maximum may change while a job runs, and servers must not restart
        first = training_job.rendezvous_trainer(job)
        trainers = f"{training_job.role_name(job.name, 'trainer')}.{job.namespace}.svc"
        values |= {
            "MLSTACK_MAX_INSTANCES": str(job.maximum),
            "PET_NNODES": f"{max(1, trainer.minimum)}:{job.maximum}",
            "PET_NPROC_PER_NODE": str(trainer.resources.gpus or 1),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{f'{first}.{trainers}' if first else master}:{RENDEZVOUS_PORT}",
            "PET_RDZV_ID": job.name,
            # torchrun counts a trainer that left as a restart; the controller counts failures itself
            "PET_MAX_RESTARTS": "1000000",
            **({"PYTHONPATH": trainer.workspace} if trainer.workspace else {}),
        }
    if index is not None:
        values["MLSTACK_INDEX"] = str(index)
    given = {str(variable.get("name")) for variable in job.env}
    ours = [
        *_downward(is_numbered=index is None),
        *({"name": name, "value": value} for name, value in values.items()),
    ]
    return [*(variable for variable in ours if variable["name"] not in given), *job.env]


def _edl_environment(job: TrainingJob) -> dict[str, str]:
    gpus, minimum = job.trainer.resources.gpus, str(job.trainer.minimum)
    cores = round(job.trainer.resources.requests.get("cpu", 0) / 1000)
    values = {
        "PADDLE_JOB_NAME": job.name,
        "TRAINERS": minimum,
        "PSERVERS": str(job.pserver.count),
        "ENTRY": job.trainer.entrypoint,
        "TOPOLOGY": job.trainer.entrypoint,
        "TRAINER_PACKAGE": job.trainer.workspace,
        "PADDLE_INIT_PORT": str(job.port),
        "PADDLE_INIT_PORTS_NUM": str(job.ports_num),
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(job.ports_num_for_sparse),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": minimum,
        "PADDLE_INIT_TRAINER_COUNT": str(gpus or max(1, cores)),
        "PADDLE_INIT_NUM_PASSES": str(job.passes),
        "PADDLE_INIT_USE_GPU": "1" if gpus else "0",
    }
    if job.master.count:
        values["MASTER_IP"] = values["ETCD_IP"] = _host(job, "master", 0)
    if gpus:
        values["LD_LIBRARY_PATH"] = _GPU_LIBRARIES
    return values


def _downward(*, is_numbered: bool) -> list[Object]:
    """Give what a pod knows of itself alone."""
    paths = {"NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    if is_numbered:
        paths["MLSTACK_INDEX"] = "metadata.labels['apps.kubernetes.io/pod-index']"
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in paths.items()
    ]


def _host(job: TrainingJob, role: RoleName, index: int) -> str:
    """Give the name under which every pod of the cluster finds a master or parameter server."""
    name = training_job.role_name(job.name, role)
    return f"{name}-{index}.{name}.{job.namespace}.svc"


def _etcd_endpoint(job: TrainingJob) -> str:
    if job.etcd == "Sidecar" and job.master.count:
        return f"http://{_host(job, 'master', 0)}:{_ETCD_PORT}"
    return job.etcd_endpoint if job.etcd == "External" else ""


# --- the pod of a trainer, parameter server or master ---

HOSTNAME = "kubernetes.io/hostname"
_STATE_VOLUME = "mlstack-state"
_ETCD_FOLDER = "/var/lib/etcd"
# What `paddle_k8s`, the start program of EDL's images, is told where a job has no command of its own. Without
# fault tolerance parameter servers know no master, and trainers wait for each other and bear no failure.
_VERBS: Mapping[tuple[RoleName, bool], Sequence[str]] = {
    ("master", True): ["start_master"],
    ("master", False): ["start_master"],
    ("pserver", True): ["start_new_pserver"],
    ("pserver", False): ["start_pserver"],
    ("trainer", True): ["start_new_trainer"],
    ("trainer", False): ["start_trainer", "v2"],
}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod_spec(
    job: TrainingJob,
    role: RoleName,
    index: int | None = None,
    *,
    nodes: Sequence[str] = (),
    is_required: bool = False,
) -> Object:
    """Write the spec of a pod: `index` of trainers alone, `nodes` by host name as a wish unless required."""
    part, has_etcd = job.roles[role], role == "master" and job.etcd == "Sidecar"
    scratch = [{"name": _STATE_VOLUME, "emptyDir": {}}] if has_etcd and not part.storage else []
    name = "" if index is None else training_job.trainer_name(job.name, index)
    is_named = 0 < len(name) <= 63 and not job.host_network  # of a host name
    optional = {
        "hostname": name if is_named else "",
        "subdomain": training_job.role_name(job.name, role) if is_named else "",
        "priorityClassName": part.priority_class,
        "serviceAccountName": job.service_account,
        "schedulerName": job.scheduler,
        "runtimeClassName": job.runtime_class,
        "imagePullSecrets": [{"name": str(secret.get("name") or "")} for secret in job.image_pull_secrets],
        "hostNetwork": job.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if job.host_network else "",
        "nodeSelector": {**job.node_selector, **part.node_selector},
        "affinity": _affinity(nodes, is_required=is_required) if nodes else {},
        "volumes": [*job.volumes, *scratch],
    }
    return {
        **{field: value for field, value in optional.items() if value},
        "automountServiceAccountToken": bool(job.service_account),
        "enableServiceLinks": False,
        "securityContext": {**_POD_SECURITY, **job.security_context},
        "tolerations": [*job.tolerations, *_leaving(part.unreachable_s)],
        "restartPolicy": "Never" if role == "trainer" else "Always",
        "terminationGracePeriodSeconds": part.grace_s,
        "containers": [_container(job, role, index), *([_etcd(job)] if has_etcd else [])],
    }


def _leaving(after_s: int) -> list[Object]:
    """Let a pod leave a node so long after that has ceased to answer."""
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": after_s}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    ]


def _container(job: TrainingJob, role: RoleName, index: int | None) -> Object:
    part = job.roles[role]
    state = [{"name": _STATE_VOLUME, "mountPath": part.storage.path}] if part.storage else []
    ports = {f"jobport-{port}": port for port in range(job.port, job.last_port + 1)}
    if role == "master":
        ports = {"master": _MASTER_PORT}
    if role != "pserver":
        ports["rendezvous"] = RENDEZVOUS_PORT
    verbs = ["paddle_k8s", *_VERBS[role, job.is_fault_tolerant]]
    optional = {
        "envFrom": list(job.env_from),
        "workingDir": part.workspace,
        "resources": part.resources.container,
        "volumeMounts": [*job.volume_mounts, *state],
    }
    return {
        "name": role,
        "image": job.image,
        "imagePullPolicy": job.image_pull_policy,
        "command": ["/bin/sh", "-c", part.entrypoint] if part.entrypoint else verbs,
        "env": environment(job, role, index),
        "ports": _ports(ports),
        "securityContext": _CONTAINER_SECURITY,
        **{field: value for field, value in optional.items() if value},
    }


def _etcd(job: TrainingJob) -> Object:
    """Write the etcd that keeps the task queue: one member, which only its own pod may join."""
    return {
        "name": "etcd",
        "image": job.etcd_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "etcd",
            "--name=etcd0",
            f"--data-dir={_ETCD_FOLDER}/data",
            f"--listen-client-urls=http://0.0.0.0:{_ETCD_PORT},http://0.0.0.0:4001",
            f"--advertise-client-urls={_etcd_endpoint(job)}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=etcd0=http://127.0.0.1:2380",
        ],
        "env": _downward(is_numbered=False),
        "ports": _ports({"etcd": _ETCD_PORT, "etcd-old": 4001}),
        "readinessProbe": {"httpGet": {"path": "/health", "port": "etcd"}, "periodSeconds": 5},
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [{"name": _STATE_VOLUME, "mountPath": _ETCD_FOLDER, "subPath": "etcd"}],
    }


def _ports(numbers: Mapping[str, int]) -> list[Object]:
    return [{"name": name, "containerPort": number, "protocol": "TCP"} for name, number in numbers.items()]


def _affinity(nodes: Sequence[str], *, is_required: bool) -> Object:
    names = {"key": HOSTNAME, "operator": "In", "values": sorted(set(nodes))}
    term: Object = {"matchExpressions": [names]}
    if is_required:
        return {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        }
    wish = {"weight": 100, "preference": term}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


# --- the objects of a job ---

_VERSIONS = {"Pod": "v1", "Service": "v1", "PodDisruptionBudget": "policy/v1", "StatefulSet": "apps/v1"}
# By these labels programs of EDL's time find each other.
_EDL_LABELS: Mapping[RoleName, str] = {
    "trainer": "paddle-job",
    "pserver": "paddle-job-pserver",
    "master": "paddle-job-master",
}


def trainer(job: TrainingJob, index: int, *, node: str = "", transitions: int | None = None) -> Object:
    """Write a trainer's pod."""
    marks = {**_leadership(transitions), **({PLANNED: node} if node else {})}
    spec = pod_spec(job, "trainer", index, nodes=[node] if node else ())
    return _object(job, "trainer", "Pod", training_job.trainer_name(job.name, index), spec, marks)


def server(job: TrainingJob, role: RoleName) -> Object:
    """Write the first pod of a role as its StatefulSet would make it, to be tried, not to be created."""
    name, spec = f"{training_job.role_name(job.name, role)}-0", pod_spec(job, role)
    if job.roles[role].storage:
        claim = {"claimName": f"{_STATE_VOLUME}-{name}"}
        spec["volumes"] = [*spec.get("volumes", ()), {"name": _STATE_VOLUME, "persistentVolumeClaim": claim}]
    return _object(job, role, "Pod", name, spec, {})


def supporting(
    job: TrainingJob,
    *,
    hints: Mapping[str, Sequence[str]],
    required: bool = True,
    is_running: bool = True,
    transitions: int | None = None,
) -> tuple[Object, ...]:
    """Write all objects of a job but its trainers, in the order in which they are created."""
    marks, manifests = _leadership(transitions), []
    roles: tuple[RoleName, ...] = ("trainer", "master", "pserver")
    for role in roles:
        part, name = job.roles[role], training_job.role_name(job.name, role)
        specs: dict[str, Object] = {}
        selector = training_job.selector(job.name, role)
        # Its Service gives each pod a name, from before it is ready. A budget says what a drain must leave in
        # numbers: shares would need an owner that counts the pods.
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
        budget: Object = {"selector": {"matchLabels": selector}}
        if not isinstance(part, Server):
            specs["Service"] = service
            if job.minimum:
                specs["PodDisruptionBudget"] = {"minAvailable": job.minimum, **budget}
        elif part.count:
            most = {"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
            pod = pod_spec(job, role, nodes=hints.get(role, ()), is_required=required)
            specs["Service"], specs["PodDisruptionBudget"] = service, {**most, **budget}
            specs["StatefulSet"] = _stateful_set(job, role, pod, replicas=part.count if is_running else 0)
        manifests += [_object(job, role, kind, name, spec, marks) for kind, spec in specs.items()]
    return tuple(manifests)


def _stateful_set(job: TrainingJob, role: RoleName, pod: Object, *, replicas: int) -> Object:
    storage = job.roles[role].storage
    spec: Object = {
        "replicas": replicas,
        "serviceName": training_job.role_name(job.name, role),
        "podManagementPolicy": "Parallel",
        # A changed hint must not restart pods that have a place.
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": storage.when_deleted if storage else "Retain",
            "whenScaled": "Retain",
        },
        "selector": {"matchLabels": training_job.selector(job.name, role)},
        "template": {"metadata": _metadata(job, role, {}, is_pod=True), "spec": pod},
    }
    if storage:
        claim: Object = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage.size}},
            **({"storageClassName": storage.storage_class} if storage.storage_class else {}),
        }
        spec["volumeClaimTemplates"] = [{"metadata": {"name": _STATE_VOLUME}, "spec": claim}]
    return spec


def _object(
    job: TrainingJob, role: RoleName, kind: str, name: str, spec: Object, marks: Mapping[str, str]
) -> Object:
    owner = {
        "apiVersion": training_job.API_VERSION,
        "kind": training_job.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,  # what the job owns goes when it goes
    }
    metadata = {
        "name": name,
        "namespace": job.namespace,
        **_metadata(job, role, marks, is_pod=kind == "Pod"),
        "ownerReferences": [owner],
    }
    return {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}


def _metadata(job: TrainingJob, role: RoleName, marks: Mapping[str, str], *, is_pod: bool) -> Object:
    labels = {**training_job.selector(job.name, role), _EDL_LABELS[role]: job.name}
    annotations = {**(job.annotations if is_pod else {}), **marks}
    return {
        "labels": {**job.labels, **labels} if is_pod else labels,
        **({"annotations": annotations} if annotations else {}),
    }


def _leadership(transitions: int | None) -> dict[str, str]:
    """Say how often the lease had changed hands when a leader wrote an object."""
    return {} if transitions is None else {"mlstack.dev/lease-transitions": str(transitions)}
