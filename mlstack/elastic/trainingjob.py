"""What a TrainingJob asks for, after it was parsed: a value that cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

GROUP = "paddlepaddle.org"
API_VERSION = f"{GROUP}/v1"
KIND = "TrainingJob"
MAX_NAME = 52
"""Names of pods are labels of DNS, at most 63 characters: room for `-trainer-` and an index."""

# What is multiplied is bounded: the address of each server stands in the environment of every pod, each port
# in its spec, and the controller keeps them all.
MAX_TRAINERS = 10_000
MAX_SERVERS = 256
MAX_PORTS = 100

TRAINER_CLASS = "mlstack-trainer"
SERVER_CLASS = "mlstack-training"
RoleName = Literal["trainer", "pserver", "master"]
Etcd = Literal["Sidecar", "External", "None"]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one pod of a role asks for.

    Attributes:
        container: `resources` of its container, with today's name of GPUs.
        requests: what is planned with: requests, or limits where nothing is requested; integers
            (thousandths of a core, bytes, whole pieces).
    """

    container: Mapping[str, Any]
    requests: Mapping[str, int]

    @property
    def gpus(self) -> int:
        """Give the GPUs of NVIDIA or AMD that one pod has."""
        return sum(count for name, count in self.requests.items() if name.endswith("/gpu"))


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A claim that outlives pods.

    Attributes:
        size: of the claim, as `10Gi`.
        storage_class: its StorageClass, empty for the cluster's default.
        path: where it is mounted.
        is_kept: whether it stays when the job is deleted.
    """

    size: str
    storage_class: str = ""
    path: str
    is_kept: bool = True


@dataclass(frozen=True, kw_only=True)
class Server:
    """The masters or parameter servers of a job.

    Attributes:
        count: how many there are; never scaled.
        resources: of each.
        entrypoint: shell command, empty for EDL's verb.
        storage: a claim for each, if any.
        priority_class: their PriorityClass.
    """

    count: int
    resources: Resources
    entrypoint: str = ""
    storage: Storage | None = None
    priority_class: str = SERVER_CLASS


@dataclass(frozen=True, kw_only=True)
class Trainers:
    """The trainers of a job.

    Attributes:
        minimum: fewest (`min-instance`).
        maximum: most (`max-instance`).
        resources: of each.
        entrypoint: shell command.
        workspace: working directory, also on PYTHONPATH.
        priority_class: their PriorityClass.
        node_selector: labels that a node must have, beside those of all pods.
        grace_s: time between SIGTERM and SIGKILL.
        unreachable_s: time they stay on a node that does not answer (Kubernetes' own default is 300 s).
    """

    minimum: int
    maximum: int
    resources: Resources
    entrypoint: str = ""
    workspace: str = ""
    priority_class: str = TRAINER_CLASS
    node_selector: Mapping[str, str] = field(default_factory=dict)
    grace_s: int = 5
    unreachable_s: int = 5


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """What all pods of a job share beyond their role; lists and maps as Kubernetes writes them.

    Attributes:
        image: of every process.
        image_pull_policy: `Always`, as EDL had it for masters and trainers, unless said.
        image_pull_secrets: names of Secrets.
        env: further environment; wins over ours.
        env_from: Secrets and ConfigMaps whose keys become environment variables.
        volumes: of every pod.
        volume_mounts: of every container but etcd's.
        host_network: whether pods use the network of their node.
        node_selector: labels a node must have.
        tolerations: of every pod.
        service_account: empty for the namespace's default, without its token.
        security_context: of the pod, over our defaults.
        scheduler: empty for the cluster's own.
        runtime_class: empty for the cluster's own.
        labels: of every pod.
        annotations: of every pod.
    """

    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    env: tuple[Mapping[str, Any], ...]
    env_from: tuple[Mapping[str, Any], ...]
    volumes: tuple[Mapping[str, Any], ...]
    volume_mounts: tuple[Mapping[str, Any], ...]
    host_network: bool
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    service_account: str
    security_context: Mapping[str, Any]
    scheduler: str
    runtime_class: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """An elastic training job.

    Attributes:
        name: its name.
        namespace: its namespace.
        uid: its uid, empty in a file.
        generation: of its spec.
        created_ms: when it was created, milliseconds since 1970; 0 in a file.
        is_deleted: whether it is being deleted.
        trainer: its trainers.
        pserver: its parameter servers.
        master: its master, at most one.
        etcd: where the task queue is kept: beside the master, elsewhere, nowhere.
        etcd_endpoint: address of an etcd elsewhere.
        etcd_image: image of the etcd beside the master.
        pods: settings of all pods.
        port: first port of trainers and parameter servers.
        ports_num: dense ports.
        ports_num_for_sparse: sparse ports.
        passes: epochs.
        is_fault_tolerant: whether trainers may come and go.
        priority: of the job among jobs, as it asks for it.
        priority_class: PriorityClass whose value it asks for instead, empty for none.
        weight: its share when jobs of one priority share.
        is_manual: whether it has exactly its maximum of trainers.
        is_suspended: whether it is to have no pods.
        cooldown_s: least time between two changes that nothing makes necessary.
        ttl_s: time after its end when it is deleted, None for never.
        checkpoint_s: time between two checkpoints.
        failures: trainers that may fail by themselves before the job has failed, None for any number.
        speed: name of a speed model.
        warnings: what was read in another way than it is written.
    """

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    created_ms: int = 0
    is_deleted: bool = False
    trainer: Trainers
    pserver: Server
    master: Server
    etcd: Etcd
    etcd_endpoint: str = ""
    etcd_image: str
    pods: PodSettings
    port: int
    ports_num: int = 1
    ports_num_for_sparse: int = 1
    passes: int = 1
    is_fault_tolerant: bool = False
    priority: int = 0
    priority_class: str = ""
    weight: int = 1
    is_manual: bool = False
    is_suspended: bool = False
    cooldown_s: int = 0
    ttl_s: int | None = None
    checkpoint_s: int = 600
    failures: int | None = None
    speed: str = "linear"
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Give `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def minimum(self) -> int:
        """Give the fewest trainers a plan may give."""
        return self.trainer.maximum if self.is_manual else self.trainer.minimum

    @property
    def maximum(self) -> int:
        """Give the most trainers a plan may give."""
        return self.trainer.maximum

    @property
    def is_elastic(self) -> bool:
        """Say whether the number of trainers may change."""
        return self.minimum < self.maximum
