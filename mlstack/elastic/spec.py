"""Parse a TrainingJob `paddlepaddle.org/v1`: EDL's fields as they were, ours beside them.

EDL's names and defaults come from its sources (PaddlePaddle/edl, v0.1.0 and the branch `develop_CRD`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mlstack.elastic import specfields
from mlstack.elastic.childnames import RENDEZVOUS_PORT
from mlstack.elastic.observed.amounts import amounts, is_device, time_ms
from mlstack.elastic.policy.curves import read_speed
from mlstack.elastic.specfields import Fields, Findings
from mlstack.elastic.trainingjob import (
    API_VERSION,
    KIND,
    MAX_NAME,
    MAX_PORTS,
    MAX_SERVERS,
    MAX_TRAINERS,
    SERVER_CLASS,
    TRAINER_CLASS,
    Etcd,
    PodSettings,
    Resources,
    Server,
    Storage,
    Trainers,
    TrainingJob,
)
from mlstack.errors import ConfigError
from mlstack.model.validation.formats import quantity

__all__ = ["SpecError", "TrainingJob", "parse"]

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
    """A TrainingJob that cannot be used.

    Attributes:
        faults: each reason, with its field.
    """

    def __init__(self, subject: str, faults: Iterable[str]) -> None:
        """Name the object and all that is wrong with it."""
        self.faults = tuple(faults)
        super().__init__(f"{subject} cannot be used: " + "; ".join(self.faults))


def parse(data: Mapping[str, Any]) -> TrainingJob:
    """Parse a TrainingJob.

    Fields are read by EDL's names, as `min-instance`, and by the same in camel case, as `minInstance`.

    Raises:
        SpecError: it cannot be used; all its faults are told together.
    """
    findings = Findings()
    metadata = data.get("metadata") or {}
    spec = Fields(data.get("spec"), "spec", findings)
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


def own_names(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Write a spec, or a part of one, by EDL's names where it has them in camel case."""
    named = specfields.own_names(spec, SPEC_FIELDS)
    levels = {"trainer": TRAINER_FIELDS, "pserver": PSERVER_FIELDS, "master": MASTER_FIELDS}
    below = {
        role: specfields.own_names(named[role], known)
        for role, known in levels.items()
        if isinstance(named.get(role), Mapping)
    }
    return {**named, **below}


def _job(metadata: Mapping[str, Any], spec: Fields) -> TrainingJob:
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


def _trainers(given: Fields) -> Trainers:
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


def _pservers(given: Fields) -> Server:
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


def _master(given: Fields) -> Server:
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


def _storage(given: Fields, path: str) -> Storage | None:
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
    given: Fields, *, is_needed: bool = False, default: Mapping[str, Any] | None = None
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


def _check_limits(given: Fields, asked: Mapping[str, str], limits: Mapping[str, str]) -> None:
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


def _amounts_of(given: Fields, kind: str, wanted: Mapping[str, Any]) -> dict[str, str]:
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


def _pods(spec: Fields) -> PodSettings:
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


def _image(given: Fields, name: str, default: str) -> str:
    image = given.text(name, default) or default
    if not re.fullmatch(IMAGE, image):
        given.fault(f"`{name}` must be the name of an image, without blanks, got {image!r}")
    return image


def _speed(spec: Fields) -> str:
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


def _warn_of_old(spec: Fields) -> None:
    trainer = spec.level("trainer")
    if "passes" in trainer:
        trainer.warn("`passes` is ignored here, as EDL did: it belongs to `spec`")
    for role in ("trainer", "pserver", "master"):
        level = spec.level(role)
        if "replicaSpec" in level:
            level.warn("`replicaSpec` is ignored: the controller makes the pods")
        if level.value("etcd-endpoint") and level.value("etcd") != "External":
            level.warn("`etcd-endpoint` is ignored, as EDL did, without `etcd: External` of the master")
