"""A TrainingJob `paddlepaddle.org/v1`: its fields, declared once, and the names of its objects.

EDL's fields are as they were, ours stand beside them. EDL's names and defaults come from its sources
(PaddlePaddle/edl, v0.1.0 and the branch `develop_CRD`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields, replace
from typing import Any, Literal, TypeVar, cast, get_args

from mlstack.clock import time_ms
from mlstack.dataclass import Record
from mlstack.elastic.snapshot import read_speed
from mlstack.errors import ConfigError
from mlstack.objects.resources import amounts, is_device, quantity

API_VERSION = "paddlepaddle.org/v1"
KIND = "TrainingJob"
JOB_LABEL = "mlstack.dev/training-job"
ROLE_LABEL = "mlstack.dev/role"
MAX_NAME = 52
"""Names of pods are labels of DNS, at most 63 characters: room for `-trainer-` and an index."""

# What is multiplied is bounded: the address of each server stands in the environment of every pod, each port
# in its spec, and the controller keeps them all.
MAX_TRAINERS = 10_000
MAX_SERVERS = 256
MAX_PORTS = 100
MAX_PORT = 65535

TRAINER_CLASS = "mlstack-trainer"
SERVER_CLASS = "mlstack-training"
DEFAULT_PORT = 7164
RENDEZVOUS_PORT = 29400
OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
# References of images are ASCII without blanks (github.com/distribution/reference).
IMAGE = r"[!-~]*"

RoleName = Literal["trainer", "pserver", "master"]
Etcd = Literal["Sidecar", "External", "None"]


class SpecError(ConfigError):
    """A TrainingJob that cannot be used."""

    def __init__(self, subject: str, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)  # each reason, with its field
        super().__init__(f"{subject} cannot be used: " + "; ".join(self.faults))


# --- read the fields of a manifest under any of their spellings ---


def spellings(name: str) -> tuple[str, ...]:
    """Give the names a field may be given by: its own, as `min-instance`, and that in camel case."""
    first, *others = re.split("[-_]", name)
    camel = first[:1].lower() + first[1:] + "".join(map(str.capitalize, others))
    return (name,) if camel == name else (name, camel)


T = TypeVar("T")
# Of a default's type, those that a field may have, and what it must be.
_TYPES: Mapping[type, tuple[Any, str]] = {
    int: (int, "a whole number"),
    str: (str, "text"),
    bool: (bool, "true or false"),
    tuple: (list | tuple, "a list of maps"),
    dict: (Mapping, "a map"),
}


class SpecFields:
    """The fields of one level of a manifest; a reader notes what is wrong and gives the default instead."""

    def __init__(self, data: Any, path: str, within: SpecFields | None = None) -> None:
        self._path = path
        # Of the whole manifest: why it cannot be used, and what was read in another way than it is written.
        self.faults: list[str] = within.faults if within else []
        self.warnings: list[str] = within.warnings if within else []
        if data is not None and not isinstance(data, Mapping):
            self.fault(f"must be a map, got {data!r}")
            data = None
        self._values: dict[str, Any] = {str(name): value for name, value in (data or {}).items()}

    def __contains__(self, name: str) -> bool:
        return self.value(name) is not None

    def fault(self, text: str) -> None:
        """Note why the manifest cannot be used."""
        self.faults.append(f"{self._path}: {text}")

    def warn(self, text: str) -> None:
        """Note what a person should know."""
        self.warnings.append(f"{self._path}: {text}")

    def value(self, name: str) -> Any:
        """Give a field as it is, None where it is not given."""
        return self._values.get(self._given(name))

    def _given(self, name: str) -> str:
        """Give the spelling by which a field is given; null is not given, as for the API server."""
        return next(
            (spelling for spelling in spellings(name) if self._values.get(spelling) is not None), name
        )

    def get(
        self,
        name: str,
        default: T,
        *,
        minimum: int | None = 0,
        maximum: int = 2**31 - 1,
        among: Iterable[str] = (),
    ) -> T:
        """Give a field of the default's type; the default where it is missing, or not as expected."""
        value, kind, choices = self.value(name), type(default), tuple(among)
        if value is None:
            return default
        types, expected = _TYPES[kind]
        is_right = isinstance(value, types) and isinstance(value, bool) is (kind is bool)
        if is_right and kind is tuple:
            value = tuple(value)
            is_right = all(isinstance(item, Mapping) for item in value)
        if is_right and kind is int and minimum is not None and value < minimum:
            is_right, expected = False, f"at least {minimum}"
        elif is_right and kind is int and value > maximum:
            is_right, expected = False, f"at most {maximum}"
        elif is_right and choices and value not in choices:
            is_right, expected = False, "one of " + ", ".join(f"`{choice}`" for choice in choices)
        if not is_right:
            self.fault(f"`{self._given(name)}` must be {expected}, got {self.value(name)!r}")
            return default
        return cast("T", value)

    def optional(self, name: str, default: int | None) -> int | None:
        """Give a whole number that is not negative, None where there is none."""
        return self.get(name, 0) if name in self else default

    def level(self, name: str) -> SpecFields:
        """Give the fields below a field."""
        return self.below(self.value(name), self._given(name))

    def below(self, data: Any, path: str) -> SpecFields:
        """Give the fields of something that stands below these, as an item of a list."""
        return SpecFields(data, f"{self._path}.{path}", self)

    def check(self, known: Iterable[str]) -> None:
        """Refuse two spellings of one field, and warn of fields that nobody reads."""
        names = {spelling: name for name in known for spelling in spellings(name)}
        for name in self._values:
            if name not in names:
                self.warn(f"`{name}` is no field of a TrainingJob and is ignored")
            elif names[name] != name and None not in (self._values[name], self._values.get(names[name])):
                self.fault(f"`{names[name]}` and `{name}` are two spellings of one field: give one of them")


def spec_field(name: str, default: Any, **options: Any) -> Any:
    """Declare a field of a spec: its name there, its default, and bounds or another reader (`read`)."""
    of_value: dict[str, Any] = {"default_factory": dict} if default == {} else {"default": default}
    return field(**of_value, metadata={"name": name, "read": SpecFields.get, "default": default, **options})


def read_fields(kind: type, level: SpecFields, **options: Mapping[str, Any]) -> dict[str, Any]:
    """Read all fields that a type declares with `spec_field`; `options` are those of single fields here."""
    values = {}
    for declared in fields(kind):
        if declared.metadata:
            given = {**declared.metadata, **options.get(declared.name, {})}
            read, name, default = (given.pop(key) for key in ("read", "name", "default"))
            values[declared.name] = read(level, name, default=default, **given)
    return values


# --- readers of single fields ---


def _image(level: SpecFields, name: str, default: str) -> str:
    image = level.get(name, default) or default
    if not re.fullmatch(IMAGE, image):
        level.fault(f"`{name}` must be the name of an image, without blanks, got {image!r}")
    return image


def _speed(level: SpecFields, name: str, default: str) -> str:
    speed = level.get(name, default) or default
    try:
        read_speed(speed)
    except ValueError as error:
        level.fault(f"`speed`: {error}")
    return speed


class Resources(Record):
    """What one pod of a role asks for."""

    container: Mapping[str, Any]  # `resources` of its container, with today's name of GPUs
    # what is planned with: requests, or limits where nothing is requested; integers (thousandths of a core,
    # bytes, whole pieces)
    requests: Mapping[str, int]

    @property
    def gpus(self) -> int:
        """Give the GPUs of NVIDIA or AMD that one pod has."""
        return sum(count for name, count in self.requests.items() if name.endswith("/gpu"))


def _resources(
    level: SpecFields, name: str, default: Mapping[str, Any], *, is_needed: bool = False
) -> Resources:
    """Read resources, and refuse what the API server refuses (`ValidateResourceRequirements`)."""
    given = level.get(name, default) or default
    container = {
        kind: _quantities(level, kind, given[kind])
        for kind in ("requests", "limits")
        if isinstance(given.get(kind), Mapping)
    }
    requests, limits = container.get("requests", {}), container.get("limits", {})
    for resource, limit in limits.items():
        if is_device(resource) and (quantity(limit) or 0) % 1:
            level.fault(f"`resources.limits.{resource}` must be a whole number, got {limit!r}")
    for resource, request in requests.items():
        is_exact = is_device(resource) or resource.startswith("hugepages-")
        asked, most = quantity(request) or 0, quantity(limits.get(resource, ""))
        text = f"`resources.requests.{resource}` is {request}"
        if most is not None and asked > most:
            level.fault(f"{text}, more than its limit, {limits[resource]}")
        elif is_exact and asked != most:
            level.fault(f"{text}: `resources.limits` must name the same")
    planned = {resource: n for resource, n in amounts({**limits, **requests}).items() if n}
    if is_needed and not any(resource == "cpu" or resource.endswith("/gpu") for resource in planned):
        level.fault(
            "`resources.requests` must name a cpu above 0: what nothing is requested for cannot be planned"
        )
    if is_needed and "memory" not in planned:
        level.warn("`resources.requests` names no memory, so that memory is not planned with")
    return Resources(container=container, requests=planned)


def _quantities(level: SpecFields, kind: str, quantities: Mapping[str, Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for resource, value in quantities.items():
        number = quantity(value)
        if number is None or number < 0:
            level.fault(
                f"`resources.{kind}.{resource}` must be a quantity that is not negative, got {value!r}"
            )
        elif resource == OLD_GPU:
            level.warn(f"`{OLD_GPU}` is read as `nvidia.com/gpu`")
            texts.setdefault("nvidia.com/gpu", str(value))
        else:
            texts[resource] = str(value)
    return texts


class Storage(Record):
    """A claim that outlives pods."""

    size: str  # of the claim, as `10Gi`
    storage_class: str = spec_field("storageClassName", "")  # empty for the cluster's default
    path: str = spec_field("mountPath", "")
    when_deleted: str = spec_field("whenDeleted", "Retain", among=("Retain", "Delete"))  # what becomes of it


def _storage(level: SpecFields, name: str, default: str) -> Storage | None:
    """Read the claim of a role, which is mounted at `default` unless said."""
    if name not in level:
        return None
    storage = level.level(name)
    storage.check(("size", *_names(Storage)))
    size = str(storage.value("size") or "")
    if not (quantity(size) or 0) > 0:
        storage.fault(f"`size` must be a quantity above 0, got {size!r}")
    return Storage(size=size, **read_fields(Storage, storage, path={"default": default}))


# --- what a job asks for: values that cannot be wrong; their declarations are the table of all fields ---


class Trainers(Record):
    """The trainers of a job."""

    minimum: int = spec_field("min-instance", 0, maximum=MAX_TRAINERS)
    maximum: int = spec_field("max-instance", 0, maximum=MAX_TRAINERS)
    resources: Resources = spec_field("resources", {}, read=_resources, is_needed=True)
    entrypoint: str = spec_field("entrypoint", "")  # shell command
    workspace: str = spec_field("workspace", "")  # working directory, also on PYTHONPATH
    priority_class: str = spec_field("priorityClassName", TRAINER_CLASS)
    # labels that a node must have, beside those of all pods
    node_selector: Mapping[str, str] = spec_field("nodeSelector", {})
    grace_s: int = spec_field("terminationGracePeriodSeconds", 5)
    # time they stay on a node that does not answer (Kubernetes' own default is 300 s)
    unreachable_s: int = spec_field("unreachableSeconds", 5)
    storage: None = None


class Server(Record):
    """The masters or parameter servers of a job."""

    count: int  # never scaled
    resources: Resources = spec_field("resources", {}, read=_resources)
    entrypoint: str = spec_field("entrypoint", "")  # shell command, empty for EDL's verb
    storage: Storage | None = spec_field("storage", "/checkpoint", read=_storage)  # a claim for each, if any
    priority_class: str = spec_field("priorityClassName", SERVER_CLASS)
    workspace: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    grace_s: int = 30  # for a last checkpoint
    unreachable_s: int = 30


class TrainingJob(Record):
    """An elastic training job; lists and maps are as Kubernetes writes them."""

    name: str
    namespace: str
    uid: str  # empty in a file
    created_ms: int  # milliseconds since 1970; 0 in a file
    trainer: Trainers
    pserver: Server
    master: Server  # at most one
    etcd: Etcd  # where the task queue is kept: beside the master, elsewhere, nowhere
    etcd_endpoint: str  # address of an etcd elsewhere
    etcd_image: str  # image of the etcd beside the master
    image: str = spec_field("image", "paddlepaddle/paddlecloud-job", read=_image)
    # `Always`, as EDL had it for masters and trainers, unless said
    image_pull_policy: str = spec_field(
        "imagePullPolicy", "Always", among=("Always", "IfNotPresent", "Never")
    )
    image_pull_secrets: tuple[Mapping[str, Any], ...] = spec_field("imagePullSecrets", ())
    env: tuple[Mapping[str, Any], ...] = spec_field("env", ())  # wins over ours
    env_from: tuple[Mapping[str, Any], ...] = spec_field("envFrom", ())
    volumes: tuple[Mapping[str, Any], ...] = spec_field("volumes", ())
    volume_mounts: tuple[Mapping[str, Any], ...] = spec_field("VolumeMounts", ())  # not of etcd's container
    host_network: bool = spec_field("host_network", False)
    node_selector: Mapping[str, str] = spec_field("NodeSelector", {})
    tolerations: tuple[Mapping[str, Any], ...] = spec_field("tolerations", ())
    # empty for the namespace's default, without its token
    service_account: str = spec_field("serviceAccountName", "")
    security_context: Mapping[str, Any] = spec_field("securityContext", {})  # of the pod, over our defaults
    scheduler: str = spec_field("schedulerName", "")
    runtime_class: str = spec_field("runtimeClassName", "")
    labels: Mapping[str, str] = spec_field("podLabels", {})
    annotations: Mapping[str, str] = spec_field("podAnnotations", {})
    port: int = spec_field("port", DEFAULT_PORT, minimum=1, maximum=MAX_PORT)
    ports_num: int = spec_field("ports_num", 1, maximum=MAX_PORTS)  # dense ports
    ports_num_for_sparse: int = spec_field("ports_num_for_sparse", 1, maximum=MAX_PORTS)
    passes: int = spec_field("passes", 1)  # epochs
    is_fault_tolerant: bool = spec_field("fault_tolerant", False)  # whether trainers may come and go
    priority: int = spec_field("priority", 0, minimum=None)  # of the job among jobs
    priority_class: str = spec_field("priorityClassName", "")  # PriorityClass whose value it asks for instead
    weight: int = spec_field("weight", 1, minimum=1)  # its share when jobs of one priority share
    scaling: str = spec_field("scaling", "Auto", among=("Auto", "Manual"))
    is_suspended: bool = spec_field("suspend", False)  # whether it is to have no pods
    cooldown_s: int = spec_field("scaleUpCooldownSeconds", 0)
    ttl_s: int | None = spec_field(
        "ttlSecondsAfterFinished", None, read=SpecFields.optional
    )  # None for never
    checkpoint_s: int = spec_field("checkpointSeconds", 600, minimum=1)
    # trainers that may fail by themselves before the job has failed, None for any number
    failures: int | None = spec_field("failureLimit", None, read=SpecFields.optional)
    speed: str = spec_field("speed", "linear", read=_speed)  # name of a speed model
    warnings: tuple[str, ...] = ()  # what was read in another way than it is written

    @property
    def roles(self) -> Mapping[RoleName, Trainers | Server]:
        """Give what it asks for by role."""
        return {"trainer": self.trainer, "pserver": self.pserver, "master": self.master}

    @property
    def is_manual(self) -> bool:
        """Say whether it has exactly its maximum of trainers."""
        return self.scaling == "Manual"

    @property
    def minimum(self) -> int:
        """Give the fewest trainers a plan may give."""
        return self.trainer.maximum if self.is_manual else self.trainer.minimum

    @property
    def maximum(self) -> int:
        """Give the most trainers a plan may give."""
        return self.trainer.maximum

    @property
    def last_port(self) -> int:
        """Give the last port of its trainers and parameter servers."""
        return self.port + max(1, self.ports_num + self.ports_num_for_sparse) - 1


def _names(kind: type) -> tuple[str, ...]:
    return tuple(declared.metadata["name"] for declared in fields(kind) if declared.metadata)


# EDL's types of trainer, pserver and master had these too; its controller used none of them.
_UNUSED = ("etcd-endpoint", "replicaSpec")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "spec": (*_names(TrainingJob), "trainer", "pserver", "master"),
    "trainer": (*_names(Trainers), "passes", *_UNUSED),
    "pserver": (*_names(Server), "min-instance", "max-instance", *_UNUSED),
    "master": (*_names(Server), "enabled", "etcd", "etcdImage", *_UNUSED),
}
"""What is read at each level, also in camel case; anything else is named in a warning."""


def own_spec_names(spec: Mapping[str, Any], level: str = "spec") -> dict[str, Any]:
    """Write a spec, or a part of one, by EDL's names; two spellings of one field stay two."""
    edl_names = {spelling: name for name in FIELDS[level] for spelling in spellings(name) if name not in spec}
    named = {edl_names.get(name, name): value for name, value in spec.items()}
    for role in get_args(RoleName) if level == "spec" else ():
        if isinstance(named.get(role), Mapping):
            named[role] = own_spec_names(named[role], role)
    return named


# --- parse a whole job ---

# What EDL's last controller asked for its masters.
_MASTER_RESOURCES = {"requests": {"cpu": "1", "memory": "500Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}


def parse(data: Mapping[str, Any]) -> TrainingJob:
    """Parse a TrainingJob.

    Fields are read by EDL's names, as `min-instance`, and by the same in camel case, as `minInstance`.

    Raises:
        SpecError: it cannot be used; all its faults are told together.
    """
    metadata, spec = data.get("metadata") or {}, SpecFields(data.get("spec"), "spec")
    spec.faults += _head_faults(data)
    levels = {role: spec.level(role) for role in get_args(RoleName)}
    for name, fields_there in {"spec": spec, **levels}.items():
        fields_there.check(FIELDS[name])
    job = TrainingJob(
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or "default"),
        uid=str(metadata.get("uid") or ""),
        created_ms=time_ms(str(metadata.get("creationTimestamp") or "")),
        **_read_roles(**levels),
        **read_fields(TrainingJob, spec),
    )
    spec.faults += _conflicts(job)
    if "passes" in levels["trainer"]:
        levels["trainer"].warn("`passes` is ignored here, as EDL did: it belongs to `spec`")
    for level in levels.values():
        if "replicaSpec" in level:
            level.warn("`replicaSpec` is ignored: the controller makes the pods")
        if level.value("etcd-endpoint") and level.value("etcd") != "External":
            level.warn("`etcd-endpoint` is ignored, as EDL did, without `etcd: External` of the master")
    if spec.faults:
        raise SpecError(f"TrainingJob {job.namespace}/{job.name}", spec.faults)
    return replace(job, warnings=tuple(spec.warnings))


def _read_roles(trainer: SpecFields, pserver: SpecFields, master: SpecFields) -> dict[str, Any]:
    trainers = Trainers(**read_fields(Trainers, trainer))
    count = pserver.get("min-instance", 0, maximum=MAX_SERVERS)
    if (maximum := pserver.get("max-instance", count)) != count:
        pserver.warn(f"`max-instance` {maximum} is ignored: parameter servers are never scaled")
    endpoint = master.get("etcd-endpoint", "")
    if master.value("etcd") == "External" and not endpoint:
        master.fault("`etcd: External` needs `etcd-endpoint`")
    ours: dict[str, Any] = {
        "resources": {"default": _MASTER_RESOURCES},
        "storage": {"default": "/var/lib/etcd"},
    }
    return {
        "trainer": trainers,
        "pserver": Server(count=count, **read_fields(Server, pserver, resources={"is_needed": count > 0})),
        "master": Server(count=int(master.get("enabled", True)), **read_fields(Server, master, **ours)),
        "etcd": master.get("etcd", "Sidecar", among=get_args(Etcd)),
        "etcd_endpoint": endpoint,
        "etcd_image": _image(master, "etcdImage", "quay.io/coreos/etcd:v3.5.21"),
    }


def _head_faults(data: Mapping[str, Any]) -> Iterator[str]:
    name = str((data.get("metadata") or {}).get("name") or "")
    version, kind = data.get("apiVersion", API_VERSION), data.get("kind", KIND)
    if (version, kind) != (API_VERSION, KIND):
        yield f"it is a `{version}` `{kind}`, not a `{API_VERSION}` `{KIND}`"
    if len(name) > MAX_NAME:
        yield f"metadata.name: at most {MAX_NAME} characters, since pods are named after it; got {len(name)}"
    if not re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name):
        yield (
            "metadata.name: lower-case letters, digits and `-`, starting with a letter,"
            f" since Services are named after it; got {name!r}"
        )


def _conflicts(job: TrainingJob) -> Iterator[str]:
    minimum, maximum = job.trainer.minimum, job.trainer.maximum
    if maximum < max(minimum, 1):
        expected = f"`min-instance`, which is {minimum}" if minimum else "1"
        yield f"spec.trainer: `max-instance` must be at least {expected}, got {maximum}"
    elif minimum < maximum and not job.is_fault_tolerant:
        yield (
            "spec: `fault_tolerant` must be true when `min-instance` is below `max-instance`:"
            " trainers come and go"
        )
    if job.priority and job.priority_class:
        yield "spec: `priority` and `priorityClassName` both say the priority of the job: give one of them"
    if job.last_port > MAX_PORT:
        yield (
            f"spec: `port` is {job.port}: with `ports_num` and `ports_num_for_sparse`"
            f" its ports end above {MAX_PORT}"
        )
    if job.host_network and job.port <= RENDEZVOUS_PORT <= job.last_port:
        yield (
            f"spec: `port` is {job.port}: with `host_network` its ports must leave out {RENDEZVOUS_PORT},"
            " at which trainers meet"
        )
    volumes = {str(volume.get("name")) for volume in job.volumes}
    for mount in job.volume_mounts:
        if str(mount.get("name")) not in volumes:
            yield f"spec.VolumeMounts: there is no volume `{mount.get('name')}` in `volumes`"


# --- how the objects of a training job are called and found by their peers ---

MAX_SET_NAME = 52
"""Pods of a StatefulSet are labelled `NAME-HASH`, 63 characters at most (kubernetes/kubernetes#64023)."""


def trainer_name(job: str, index: int) -> str:
    """Name a trainer's pod."""
    return f"{job}-trainer-{index}"


def rendezvous_trainer(job: TrainingJob) -> str:
    """Name the trainer at which the others meet, empty where they meet at the master."""
    return "" if job.master.count else trainer_name(job.name, 0)


def role_name(job: str, role: RoleName) -> str:
    """Name a role's Service, PodDisruptionBudget and StatefulSet; a long name is cut and made unique."""
    name = f"{job}-{role}"
    if len(name) <= MAX_SET_NAME:
        return name
    digest = hashlib.sha256(job.encode()).hexdigest()[:6]
    kept = job[: MAX_SET_NAME - len(role) - len(digest) - 2].rstrip("-")
    return f"{kept}-{digest}-{role}"


def selector(job: str, role: RoleName) -> dict[str, str]:
    """Give the labels that find the pods of a role."""
    return {JOB_LABEL: job, ROLE_LABEL: role}
