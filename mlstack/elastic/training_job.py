"""What a TrainingJob asks for, after it was parsed: a value that cannot be wrong."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mlstack.elastic.facts import JOB_LABEL, ROLE_LABEL, time_ms
from mlstack.elastic.resources import amounts, is_device
from mlstack.elastic.speed import read_speed
from mlstack.errors import ConfigError
from mlstack.validate.formats import quantity

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
    """What one pod of a role asks for."""

    container: Mapping[str, Any]  # `resources` of its container, with today's name of GPUs
    # what is planned with: requests, or limits where nothing is requested; integers (thousandths of a core,
    # bytes, whole pieces)
    requests: Mapping[str, int]

    @property
    def gpus(self) -> int:
        """Give the GPUs of NVIDIA or AMD that one pod has."""
        return sum(count for name, count in self.requests.items() if name.endswith("/gpu"))


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A claim that outlives pods."""

    size: str  # of the claim, as `10Gi`
    storage_class: str = ""  # its StorageClass, empty for the cluster's default
    path: str  # where it is mounted
    is_kept: bool = True  # whether it stays when the job is deleted


@dataclass(frozen=True, kw_only=True)
class Server:
    """The masters or parameter servers of a job."""

    count: int  # how many there are; never scaled
    resources: Resources  # of each
    entrypoint: str = ""  # shell command, empty for EDL's verb
    storage: Storage | None = None  # a claim for each, if any
    priority_class: str = SERVER_CLASS  # their PriorityClass


@dataclass(frozen=True, kw_only=True)
class Trainers:
    """The trainers of a job."""

    minimum: int  # fewest (`min-instance`)
    maximum: int  # most (`max-instance`)
    resources: Resources  # of each
    entrypoint: str = ""  # shell command
    workspace: str = ""  # working directory, also on PYTHONPATH
    priority_class: str = TRAINER_CLASS  # their PriorityClass
    # labels that a node must have, beside those of all pods
    node_selector: Mapping[str, str] = field(default_factory=dict)
    grace_s: int = 5  # time between SIGTERM and SIGKILL
    unreachable_s: int = 5  # time they stay on a node that does not answer (Kubernetes' own default is 300 s)


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """What all pods of a job share beyond their role; lists and maps as Kubernetes writes them."""

    image: str  # of every process
    image_pull_policy: str  # `Always`, as EDL had it for masters and trainers, unless said
    image_pull_secrets: tuple[str, ...]  # names of Secrets
    env: tuple[Mapping[str, Any], ...]  # further environment; wins over ours
    env_from: tuple[Mapping[str, Any], ...]  # Secrets and ConfigMaps whose keys become environment variables
    volumes: tuple[Mapping[str, Any], ...]  # of every pod
    volume_mounts: tuple[Mapping[str, Any], ...]  # of every container but etcd's
    host_network: bool  # whether pods use the network of their node
    node_selector: Mapping[str, str]  # labels a node must have
    tolerations: tuple[Mapping[str, Any], ...]  # of every pod
    service_account: str  # empty for the namespace's default, without its token
    security_context: Mapping[str, Any]  # of the pod, over our defaults
    scheduler: str  # empty for the cluster's own
    runtime_class: str  # empty for the cluster's own
    labels: Mapping[str, str]  # of every pod
    annotations: Mapping[str, str]  # of every pod


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """An elastic training job."""

    name: str
    namespace: str
    uid: str = ""  # its uid, empty in a file
    generation: int = 0  # of its spec
    created_ms: int = 0  # when it was created, milliseconds since 1970; 0 in a file
    is_deleted: bool = False  # whether it is being deleted
    trainer: Trainers  # its trainers
    pserver: Server  # its parameter servers
    master: Server  # its master, at most one
    etcd: Etcd  # where the task queue is kept: beside the master, elsewhere, nowhere
    etcd_endpoint: str = ""  # address of an etcd elsewhere
    etcd_image: str  # image of the etcd beside the master
    pods: PodSettings  # settings of all pods
    port: int  # first port of trainers and parameter servers
    ports_num: int = 1  # dense ports
    ports_num_for_sparse: int = 1  # sparse ports
    passes: int = 1  # epochs
    is_fault_tolerant: bool = False  # whether trainers may come and go
    priority: int = 0  # of the job among jobs, as it asks for it
    priority_class: str = ""  # PriorityClass whose value it asks for instead, empty for none
    weight: int = 1  # its share when jobs of one priority share
    is_manual: bool = False  # whether it has exactly its maximum of trainers
    is_suspended: bool = False  # whether it is to have no pods
    cooldown_s: int = 0  # least time between two changes that nothing makes necessary
    ttl_s: int | None = None  # time after its end when it is deleted, None for never
    checkpoint_s: int = 600  # time between two checkpoints
    # trainers that may fail by themselves before the job has failed, None for any number
    failures: int | None = None
    speed: str = "linear"  # name of a speed model
    warnings: tuple[str, ...] = ()  # what was read in another way than it is written

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


# --- read the fields of a manifest under any of their spellings ---


@dataclass
class Findings:
    """What was found while a manifest was read."""

    faults: list[str] = field(default_factory=list)  # why it cannot be used; each names its field
    # what was understood in another way than it is written, or not at all
    warnings: list[str] = field(default_factory=list)


def spellings(name: str) -> tuple[str, ...]:
    """Give the names a field may be given by: its own, as `min-instance`, and that in camel case."""
    first, *others = re.split("[-_]", name)
    camel = first[:1].lower() + first[1:] + "".join(map(str.capitalize, others))
    return (name,) if camel == name else (name, camel)


def own_names(data: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Write fields that are given in camel case by their own names; two spellings of one stay two."""
    own = {spelling: name for name in known for spelling in spellings(name) if name not in data}
    return {own.get(name, name): value for name, value in data.items()}


class SpecFields:
    """The fields of one level of a manifest."""

    def __init__(self, data: Any, path: str, findings: Findings) -> None:
        self._path = path
        self._findings = findings
        if data is not None and not isinstance(data, Mapping):
            self._wrong("", "a map", data)
            data = None
        self._values: dict[str, Any] = {str(name): value for name, value in (data or {}).items()}

    def __contains__(self, name: str) -> bool:
        """Say whether the field is given."""
        return self.value(name) is not None

    def fault(self, text: str) -> None:
        """Note why the manifest cannot be used."""
        self._findings.faults.append(f"{self._path}: {text}")

    def warn(self, text: str) -> None:
        """Note what a person should know."""
        self._findings.warnings.append(f"{self._path}: {text}")

    def value(self, name: str) -> Any:
        """Give a field as it is, None where it is not given."""
        return self._values.get(self._given(name))

    def integer(self, name: str, default: int, *, minimum: int | None = 0, maximum: int = 2**31 - 1) -> int:
        """Give a whole number of at least `minimum` and at most `maximum`."""
        found = self.value(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int):
            self._wrong(name, "a whole number", found)
            return default
        number: int = found
        if minimum is not None and number < minimum:
            self._wrong(name, f"at least {minimum}", found)
            return default
        if number > maximum:
            self._wrong(name, f"at most {maximum}", found)
            return default
        return number

    def optional(self, name: str) -> int | None:
        """Give a whole number that is not negative, None where there is none."""
        return self.integer(name, 0) if name in self else None

    def text(self, name: str, default: str = "", *, among: Iterable[str] = ()) -> str:
        """Give a text, one of `among` where that is given."""
        found, choices = self.value(name), tuple(among)
        if found is None:
            return default
        if not isinstance(found, str):
            self._wrong(name, "text", found)
            return default
        if choices and found not in choices:
            self._wrong(name, "one of " + ", ".join(f"`{choice}`" for choice in choices), found)
            return default
        return found

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Give a claim that is true or false."""
        found = self.value(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            self._wrong(name, "true or false", found)
            return default
        return found

    def items(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """Give a list of maps, as they are."""
        found = self.value(name)
        if found is None:
            return ()
        if not isinstance(found, list | tuple) or not all(isinstance(item, Mapping) for item in found):
            self._wrong(name, "a list of maps", found)
            return ()
        return tuple(found)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Give a map, as it is."""
        found = self.value(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            self._wrong(name, "a map", found)
            return {}
        return found

    def level(self, name: str) -> SpecFields:
        """Give the fields below a field."""
        return SpecFields(self.value(name), f"{self._path}.{self._given(name)}", self._findings)

    def below(self, data: Any, path: str) -> SpecFields:
        """Give the fields of something that stands below these, as an item of a list."""
        return SpecFields(data, f"{self._path}.{path}", self._findings)

    def check(self, known: Iterable[str]) -> None:
        """Refuse two spellings of one field, and warn of fields that nobody reads."""
        own = {spelling: name for name in known for spelling in spellings(name)}
        for name in self._values:
            if name not in own:
                self.warn(f"`{name}` is no field of a TrainingJob and is ignored")
            elif own[name] != name and None not in (self._values[name], self._values.get(own[name])):
                self.fault(f"`{own[name]}` and `{name}` are two spellings of one field: give one of them")

    def _given(self, name: str) -> str:
        """Give the spelling by which a field is given; null is not given, as for the API server."""
        return next((each for each in spellings(name) if self._values.get(each) is not None), name)

    def _wrong(self, name: str, expected: str, found: Any) -> None:
        what = f"`{self._given(name)}` must be" if name else "must be"
        self.fault(f"{what} {expected}, got {found!r}")


# --- how the objects of a training job are called, labelled and found by their peers ---

MASTER_PORT = 8080
ETCD_PORT = 2379
RENDEZVOUS_PORT = 29400
EDL_LABELS: Mapping[RoleName, str] = {
    "trainer": "paddle-job",
    "pserver": "paddle-job-pserver",
    "master": "paddle-job-master",
}
"""The labels by which programs of EDL's time find each other."""

MAX_SET_NAME = 52
"""Pods of a StatefulSet are labelled `NAME-HASH`, 63 characters at most (kubernetes/kubernetes#64023)."""


def trainer_name(job: str, index: int) -> str:
    """Name a trainer's pod."""
    return f"{job}-trainer-{index}"


def trainer_index(job: str, pod: str) -> int | None:
    """Read the index out of a trainer's name, None where it is no trainer of the job."""
    index = pod.removeprefix(f"{job}-trainer-")
    is_index = index != pod and index.isascii() and index.isdigit() and str(int(index)) == index
    return int(index) if is_index else None


def role_name(job: str, role: RoleName) -> str:
    """Name a role's Service, PodDisruptionBudget and StatefulSet; a long name is cut and made unique."""
    name = f"{job}-{role}"
    if len(name) <= MAX_SET_NAME:
        return name
    digest = hashlib.sha256(job.encode()).hexdigest()[:6]
    kept = job[: MAX_SET_NAME - len(role) - len(digest) - 2].rstrip("-")
    return f"{kept}-{digest}-{role}"


def labels(job: str, role: RoleName) -> dict[str, str]:
    """Give the labels of a role's objects."""
    return {JOB_LABEL: job, ROLE_LABEL: role, EDL_LABELS[role]: job}


def selector(job: str, role: RoleName) -> dict[str, str]:
    """Give the labels that find the pods of a role."""
    return {JOB_LABEL: job, ROLE_LABEL: role}


def selector_text(job: str) -> str:
    """Write the selector of a job's trainers as the scale subresource gives it."""
    return ",".join(f"{name}={value}" for name, value in selector(job, "trainer").items())


def owner(job: TrainingJob) -> dict[str, Any]:
    """Refer to the job: what it owns goes when it goes."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }


def server_host(job: TrainingJob, role: RoleName, index: int) -> str:
    """Give the name under which every pod of the cluster finds a master or parameter server."""
    name = role_name(job.name, role)
    return f"{name}-{index}.{name}.{job.namespace}.svc"


def master_address(job: TrainingJob) -> str:
    """Give the address of the master, empty where there is none."""
    return f"{server_host(job, 'master', 0)}:{MASTER_PORT}" if job.master.count else ""


def pserver_addresses(job: TrainingJob) -> tuple[str, ...]:
    """Give the addresses of the parameter servers, by index."""
    return tuple(f"{server_host(job, 'pserver', index)}:{job.port}" for index in range(job.pserver.count))


def etcd_endpoint(job: TrainingJob) -> str:
    """Give the address of the job's etcd, empty where there is none."""
    if job.etcd == "External":
        return job.etcd_endpoint
    if job.etcd == "Sidecar" and job.master.count:
        return f"http://{server_host(job, 'master', 0)}:{ETCD_PORT}"
    return ""


def meeting_trainer(job: TrainingJob) -> str:
    """Name the trainer at which the others meet, empty where they meet at the master."""
    return "" if job.master.count else trainer_name(job.name, 0)


def rendezvous_address(job: TrainingJob) -> str:
    """Give where trainers of PyTorch meet: at the master, or at the first trainer where there is none."""
    first = meeting_trainer(job)
    if not first:
        return f"{server_host(job, 'master', 0)}:{RENDEZVOUS_PORT}"
    return f"{first}.{role_name(job.name, 'trainer')}.{job.namespace}.svc:{RENDEZVOUS_PORT}"


# --- parse a TrainingJob `paddlepaddle.org/v1`: EDL's fields as they were, ours beside them ---
# EDL's names and defaults come from its sources (PaddlePaddle/edl, v0.1.0 and the branch `develop_CRD`).

GPU = "nvidia.com/gpu"
OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
DEFAULT_IMAGE = "paddlepaddle/paddlecloud-job"
DEFAULT_PORT = 7164
MAX_PORT = 65535
ETCD_IMAGE = "quay.io/coreos/etcd:v3.5.21"

# What EDL's last controller asked for its masters.
_MASTER_RESOURCES = {
    "requests": {"cpu": "1", "memory": "500Mi"},
    "limits": {"cpu": "2", "memory": "1Gi"},
}
# References of images are ASCII without blanks (github.com/distribution/reference).
IMAGE = r"[!-~]*"
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ETCD: Mapping[str, Etcd] = {"Sidecar": "Sidecar", "External": "External", "None": "None"}
# EDL's types of trainer, pserver and master had these too; its controller used none of them.
_UNUSED = ("etcd-endpoint", "replicaSpec")
# What is read at each level, also in camel case; anything else is named in a warning.
SPEC_FIELDS = (
    *("image", "imagePullPolicy", "imagePullSecrets", "port", "ports_num", "ports_num_for_sparse"),
    *("fault_tolerant", "passes", "volumes", "VolumeMounts", "host_network", "NodeSelector"),
    *("env", "envFrom", "tolerations", "serviceAccountName"),
    *("securityContext", "schedulerName", "runtimeClassName"),
    *(
        "podLabels",
        "podAnnotations",
        "priority",
        "priorityClassName",
        "weight",
        "scaling",
        "suspend",
        "speed",
    ),
    *("scaleUpCooldownSeconds", "ttlSecondsAfterFinished", "checkpointSeconds", "failureLimit"),
    *("trainer", "pserver", "master"),
)
PSERVER_FIELDS = (
    "min-instance",
    "max-instance",
    "resources",
    "entrypoint",
    "storage",
    "priorityClassName",
    *_UNUSED,
)
MASTER_FIELDS = (
    "resources",
    "entrypoint",
    "storage",
    "priorityClassName",
    "enabled",
    "etcd",
    "etcdImage",
    *_UNUSED,
)
TRAINER_FIELDS = (
    *("entrypoint", "workspace", "min-instance", "max-instance", "resources", "priorityClassName"),
    *("terminationGracePeriodSeconds", "unreachableSeconds", "nodeSelector", "passes", *_UNUSED),
)


class SpecError(ConfigError):
    """A TrainingJob that cannot be used."""

    def __init__(self, subject: str, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)  # each reason, with its field
        super().__init__(f"{subject} cannot be used: " + "; ".join(self.faults))


def parse(data: Mapping[str, Any]) -> TrainingJob:
    """Parse a TrainingJob.

    Fields are read by EDL's names, as `min-instance`, and by the same in camel case, as `minInstance`.

    Raises:
        SpecError: it cannot be used; all its faults are told together.
    """
    findings = Findings()
    metadata = data.get("metadata") or {}
    spec = SpecFields(data.get("spec"), "spec", findings)
    _check_kind(data, findings)
    _check_name(str(metadata.get("name") or ""), findings)
    spec.check(SPEC_FIELDS)
    job = _job(metadata, spec)
    _check_range(job, findings)
    if job.priority and job.priority_class:
        spec.fault("`priority` and `priorityClassName` both say the priority of the job: give one of them")
    _check_ports(job, findings)
    _check_mounts(job, findings)
    _warn_of_old(spec)
    if findings.faults:
        raise SpecError(f"TrainingJob {job.key}", findings.faults)
    return replace(job, warnings=tuple(findings.warnings))


def own_spec_names(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Write a spec, or a part of one, by EDL's names where it has them in camel case."""
    named = own_names(spec, SPEC_FIELDS)
    levels = {"trainer": TRAINER_FIELDS, "pserver": PSERVER_FIELDS, "master": MASTER_FIELDS}
    below = {
        role: own_names(named[role], known)
        for role, known in levels.items()
        if isinstance(named.get(role), Mapping)
    }
    return {**named, **below}


def _job(metadata: Mapping[str, Any], spec: SpecFields) -> TrainingJob:
    master = spec.level("master")
    return TrainingJob(
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or "default"),
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 0),
        created_ms=time_ms(str(metadata.get("creationTimestamp") or "")),
        is_deleted=bool(metadata.get("deletionTimestamp")),
        trainer=_trainers(spec.level("trainer")),
        pserver=_pservers(spec.level("pserver")),
        master=_master(master),
        etcd=_ETCD[master.text("etcd", "Sidecar", among=_ETCD) or "Sidecar"],
        etcd_endpoint=master.text("etcd-endpoint"),
        etcd_image=_image(master, "etcdImage", ETCD_IMAGE),
        pods=_pods(spec),
        port=spec.integer("port", DEFAULT_PORT, minimum=1, maximum=MAX_PORT),
        ports_num=spec.integer("ports_num", 1, maximum=MAX_PORTS),
        ports_num_for_sparse=spec.integer("ports_num_for_sparse", 1, maximum=MAX_PORTS),
        passes=spec.integer("passes", 1),
        is_fault_tolerant=spec.flag("fault_tolerant"),
        priority=spec.integer("priority", 0, minimum=None),
        priority_class=spec.text("priorityClassName"),
        weight=spec.integer("weight", 1, minimum=1),
        is_manual=spec.text("scaling", "Auto", among=("Auto", "Manual")) == "Manual",
        is_suspended=spec.flag("suspend"),
        cooldown_s=spec.integer("scaleUpCooldownSeconds", 0),
        ttl_s=spec.optional("ttlSecondsAfterFinished"),
        checkpoint_s=spec.integer("checkpointSeconds", 600, minimum=1),
        failures=spec.optional("failureLimit"),
        speed=_speed(spec),
    )


def _trainers(given: SpecFields) -> Trainers:
    given.check(TRAINER_FIELDS)
    return Trainers(
        minimum=given.integer("min-instance", 0, maximum=MAX_TRAINERS),
        maximum=given.integer("max-instance", 0, maximum=MAX_TRAINERS),
        resources=_resources(given, is_needed=True),
        entrypoint=given.text("entrypoint"),
        workspace=given.text("workspace"),
        priority_class=given.text("priorityClassName", TRAINER_CLASS),
        node_selector=given.mapping("nodeSelector"),
        grace_s=given.integer("terminationGracePeriodSeconds", 5),
        unreachable_s=given.integer("unreachableSeconds", 5),
    )


def _pservers(given: SpecFields) -> Server:
    given.check(PSERVER_FIELDS)
    count = given.integer("min-instance", 0, maximum=MAX_SERVERS)
    maximum = given.integer("max-instance", count)
    if maximum != count:
        given.warn(f"`max-instance` {maximum} is ignored: parameter servers are never scaled")
    return Server(
        count=count,
        resources=_resources(given, is_needed=count > 0),
        entrypoint=given.text("entrypoint"),
        storage=_storage(given, "/checkpoint"),
        priority_class=given.text("priorityClassName", SERVER_CLASS),
    )


def _master(given: SpecFields) -> Server:
    given.check(MASTER_FIELDS)
    if given.text("etcd") == "External" and not given.text("etcd-endpoint"):
        given.fault("`etcd: External` needs `etcd-endpoint`")
    return Server(
        count=1 if given.flag("enabled", default=True) else 0,
        resources=_resources(given, default=_MASTER_RESOURCES),
        entrypoint=given.text("entrypoint"),
        storage=_storage(given, "/var/lib/etcd"),
        priority_class=given.text("priorityClassName", SERVER_CLASS),
    )


def _storage(given: SpecFields, path: str) -> Storage | None:
    if "storage" not in given:
        return None
    storage = given.level("storage")
    storage.check(("size", "storageClassName", "mountPath", "whenDeleted"))
    size = str(storage.value("size") or "")
    if not (quantity(size) or 0) > 0:
        storage.fault(f"`size` must be a quantity above 0, got {size!r}")
    return Storage(
        size=size,
        storage_class=storage.text("storageClassName"),
        path=storage.text("mountPath", path),
        is_kept=storage.text("whenDeleted", "Retain", among=("Retain", "Delete")) == "Retain",
    )


def _resources(
    given: SpecFields, *, is_needed: bool = False, default: Mapping[str, Any] | None = None
) -> Resources:
    asked: Mapping[str, Any] = given.mapping("resources") or default or {}
    container = {
        kind: _amounts_of(given, kind, asked[kind])
        for kind in ("requests", "limits")
        if isinstance(asked.get(kind), Mapping)
    }
    _check_limits(given, container.get("requests", {}), container.get("limits", {}))
    planned = amounts({**container.get("limits", {}), **container.get("requests", {})})
    if is_needed and not any(n for name, n in planned.items() if name == "cpu" or name.endswith("/gpu")):
        given.fault(
            "`resources.requests` must name a cpu above 0: what nothing is requested for cannot be planned"
        )
    if is_needed and not planned.get("memory"):
        given.warn("`resources.requests` names no memory, so that memory is not planned with")
    return Resources(container=container, requests={name: n for name, n in planned.items() if n})


def _check_limits(given: SpecFields, asked: Mapping[str, str], limits: Mapping[str, str]) -> None:
    """Refuse what the API server refuses of a container (`ValidateResourceRequirements` of Kubernetes)."""
    for name, limit in limits.items():
        if is_device(name) and (quantity(limit) or 0) % 1:
            given.fault(f"`resources.limits.{name}` must be a whole number, got {limit!r}")
    for name, request in asked.items():
        is_exact = is_device(name) or name.startswith("hugepages-")
        wanted, most = quantity(request) or 0, quantity(limits.get(name, ""))
        if most is not None and wanted > most:
            given.fault(f"`resources.requests.{name}` is {request}, more than its limit, {limits[name]}")
        elif is_exact and wanted != most:
            given.fault(f"`resources.requests.{name}` is {request}: `resources.limits` must name the same")


def _amounts_of(given: SpecFields, kind: str, wanted: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in wanted.items():
        read = quantity(value)
        if read is None or read < 0:
            given.fault(f"`resources.{kind}.{name}` must be a quantity that is not negative, got {value!r}")
        elif name == OLD_GPU:
            given.warn(f"`{OLD_GPU}` is read as `{GPU}`")
            found.setdefault(GPU, str(value))
        else:
            found[name] = str(value)
    return found


def _pods(spec: SpecFields) -> PodSettings:
    return PodSettings(
        image=_image(spec, "image", DEFAULT_IMAGE),
        image_pull_policy=spec.text("imagePullPolicy", "Always", among=("Always", "IfNotPresent", "Never")),
        image_pull_secrets=tuple(str(each.get("name") or "") for each in spec.items("imagePullSecrets")),
        env=spec.items("env"),
        env_from=spec.items("envFrom"),
        volumes=spec.items("volumes"),
        volume_mounts=spec.items("VolumeMounts"),
        host_network=spec.flag("host_network"),
        node_selector=spec.mapping("NodeSelector"),
        tolerations=spec.items("tolerations"),
        service_account=spec.text("serviceAccountName"),
        security_context=spec.mapping("securityContext"),
        scheduler=spec.text("schedulerName"),
        runtime_class=spec.text("runtimeClassName"),
        labels=spec.mapping("podLabels"),
        annotations=spec.mapping("podAnnotations"),
    )


def _image(given: SpecFields, name: str, default: str) -> str:
    image = given.text(name, default) or default
    if not re.fullmatch(IMAGE, image):
        given.fault(f"`{name}` must be the name of an image, without blanks, got {image!r}")
    return image


def _speed(spec: SpecFields) -> str:
    found = spec.text("speed", "linear") or "linear"
    try:
        read_speed(found)
    except ValueError as error:
        spec.fault(f"`speed`: {error}")
    return found


def _check_kind(data: Mapping[str, Any], findings: Findings) -> None:
    given = (data.get("apiVersion", API_VERSION), data.get("kind", KIND))
    if given != (API_VERSION, KIND):
        findings.faults.append(f"it is a `{given[0]}` `{given[1]}`, not a `{API_VERSION}` `{KIND}`")


def _check_name(name: str, findings: Findings) -> None:
    if len(name) > MAX_NAME:
        findings.faults.append(
            f"metadata.name: at most {MAX_NAME} characters, since pods are named after it; got {len(name)}"
        )
    if not _NAME.fullmatch(name):
        findings.faults.append(
            "metadata.name: lower-case letters, digits and `-`, starting with a letter,"
            f" since Services are named after it; got {name!r}"
        )


def _check_range(job: TrainingJob, findings: Findings) -> None:
    trainer = job.trainer
    if trainer.maximum < max(trainer.minimum, 1):
        expected = f"`min-instance`, which is {trainer.minimum}" if trainer.minimum else "1"
        findings.faults.append(
            f"spec.trainer: `max-instance` must be at least {expected}, got {trainer.maximum}"
        )
    elif trainer.minimum < trainer.maximum and not job.is_fault_tolerant:
        findings.faults.append(
            "spec: `fault_tolerant` must be true when `min-instance` is below `max-instance`:"
            " trainers come and go"
        )


def _check_ports(job: TrainingJob, findings: Findings) -> None:
    last = job.port + max(1, job.ports_num + job.ports_num_for_sparse) - 1
    if last > MAX_PORT:
        findings.faults.append(
            f"spec: `port` is {job.port}: with `ports_num` and `ports_num_for_sparse`"
            f" its ports end above {MAX_PORT}"
        )
    if job.pods.host_network and job.port <= RENDEZVOUS_PORT <= last:
        findings.faults.append(
            f"spec: `port` is {job.port}: with `host_network` its ports must leave out {RENDEZVOUS_PORT},"
            " at which trainers meet"
        )


def _check_mounts(job: TrainingJob, findings: Findings) -> None:
    volumes = {str(volume.get("name")) for volume in job.pods.volumes}
    for mount in job.pods.volume_mounts:
        if str(mount.get("name")) not in volumes:
            findings.faults.append(
                f"spec.VolumeMounts: there is no volume `{mount.get('name')}` in `volumes`"
            )


def _warn_of_old(spec: SpecFields) -> None:
    trainer = spec.level("trainer")
    if "passes" in trainer:
        trainer.warn("`passes` is ignored here, as EDL did: it belongs to `spec`")
    for role in ("trainer", "pserver", "master"):
        level = spec.level(role)
        if "replicaSpec" in level:
            level.warn("`replicaSpec` is ignored: the controller makes the pods")
        if level.value("etcd-endpoint") and level.value("etcd") != "External":
            level.warn("`etcd-endpoint` is ignored, as EDL did, without `etcd: External` of the master")
