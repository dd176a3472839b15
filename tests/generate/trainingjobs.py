"""Make the CustomResourceDefinition of TrainingJobs that the package `elastic` ships.

    python -m tests.generate.trainingjobs

Group, names and fields are EDL's, so that its manifests are accepted; fields of ours stand beside them. Every
field that EDL did not write in camel case may be written so too: `min-instance` or `minInstance`, not both.
Volumes, environment and the like come fully typed from the schemas of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlstack.elastic.training_job import (
    DEFAULT_PORT,
    IMAGE,
    KIND,
    MAX_NAME,
    MAX_PORT,
    MAX_PORTS,
    MAX_SERVERS,
    MAX_TRAINERS,
    OLD_GPU,
    RENDEZVOUS_PORT,
    spellings,
)
from mlstack.objects.kube_object import Schemas
from mlstack.validate.validate import load_schemas
from tests.generate.crds import BOOLEAN, COUNT, INT32, KUBERNETES, POSITIVE, TIME, Rule, rules, written
from tests.generate.structural import CORE, INT_OR_STRING, MAX_VOLUMES, PORT, QUANTITY, STRING, typed

PACKAGE = Path(__file__).resolve().parents[2] / "prototypes" / "elastic"
FILES = (
    PACKAGE / "elastic-controller" / "files" / "crds" / "trainingjobs.yaml",
    PACKAGE / "crds" / "trainingjobs.yaml",  # elastic-job is checked without the controller
)
PHASES = (
    "Pending",
    "Admitted",
    "Running",
    "Scaling",
    "Completing",
    "Paused",
    "Succeeded",
    "Failed",
    "Suspended",
)
TEXT = {"type": "string", "maxLength": 4096}
LABELS = {"type": "object", "maxProperties": 64, "additionalProperties": STRING}
NAME = {"type": "string", "maxLength": 253}
# What EDL's own controller wrote into specs: accepted, and looked at by nobody.
ANYTHING = {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
MANIFEST = {"etcd-endpoint": STRING, "replicaSpec": ANYTHING}

SCALED = "max-instance"
"""What `kubectl scale` sets; the subresource knows one path, so this spelling alone can be scaled."""
ASKED, LIMITED = "self.resources.requests", "self.resources.limits"
# What a pod asks for is never negative; exponents are those that the controller reads.
AMOUNT = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"


IMAGE_NAME = {"type": "string", "maxLength": 1024, "pattern": f"^{IMAGE}$"}


def wants_cpu(amounts: str) -> str:
    """Say in CEL that a CPU above 0 is named: a digit above 0 stands before any exponent."""
    cpu = f"{amounts}['cpu']"
    return f"(type({cpu}) == string ? {cpu}.matches('^[+0.]*[1-9]') : {cpu} > 0)"


def wants_gpu(amounts: str, *conditions: str) -> str:
    """Say in CEL that a GPU is named, under today's names or EDL's.

    Only the plain zero is told from other amounts: a regular expression for each name would cost too much.
    """
    named = f"(name.endsWith('/gpu') || name == '{OLD_GPU}')"
    some = (f"{amounts}[name] != 0", f"{amounts}[name] != '0'")
    return f"{amounts}.exists(name, {' && '.join((named, *some, *conditions))})"


# Kubernetes takes the limit of a resource for its request where that is left out, one by one.
REQUESTS = (
    f"has(self.resources) && ((has({ASKED}) && 'cpu' in {ASKED} ? {wants_cpu(ASKED)}"
    f" : has({LIMITED}) && 'cpu' in {LIMITED} && {wants_cpu(LIMITED)})"
    f" || has({ASKED}) && {wants_gpu(ASKED)}"
    f" || has({LIMITED}) && {wants_gpu(LIMITED, f'!(has({ASKED}) && name in {ASKED})')})"
)


def definition(schemas: Schemas) -> dict[str, Any]:
    """Write the definition."""
    plural = f"{KIND.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns(),
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": f".spec.trainer.{SCALED}",
                "statusReplicasPath": ".status.trainer.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "schema": {"openAPIV3Schema": root(schemas)},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": plural,
        "singular": KIND.lower(),
        "shortNames": ["tj"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.paddlepaddle.org"},
        "spec": {"group": "paddlepaddle.org", "names": names, "scope": "Namespaced", "versions": [version]},
    }


def columns() -> list[dict[str, Any]]:
    """Say what `kubectl get tj` shows."""
    return [
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Desired", "type": "integer", "jsonPath": ".status.trainer.desired"},
        {"name": "Ready", "type": "integer", "jsonPath": ".status.trainer.ready"},
        {"name": "Min", "type": "integer", "jsonPath": column("min-instance")},
        {"name": "Max", "type": "integer", "jsonPath": column("max-instance")},
        {"name": "Fulfilment", "type": "string", "jsonPath": ".status.trainer.fulfilment"},
        {"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.reason"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def column(name: str) -> str:
    """Write where a field of the trainers is found, in any spelling."""
    names = ",".join(f"'{spelling}'" for spelling in spellings(name))
    return f".spec.trainer[{names}]"


def root(schemas: Schemas) -> dict[str, Any]:
    """Write the schema of a whole job."""
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": {"type": "object"},
            "spec": spec(schemas),
            "status": status(),
        },
        "x-kubernetes-validations": rules(
            (
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "metadata.name must start with a letter and hold only lower-case letters, digits and -",
            ),
            (
                f"size(self.metadata.name) <= {MAX_NAME}",
                f"metadata.name must have at most {MAX_NAME} characters: pods are named after it",
            ),
        ),
    }


def spec(schemas: Schemas) -> dict[str, Any]:
    """Write what a job asks for."""

    def core(name: str) -> dict[str, Any]:
        return typed(schemas, f"{CORE}.{name}")

    def many(name: str, limit: int = MAX_VOLUMES) -> dict[str, Any]:
        return {"type": "array", "maxItems": limit, "items": core(name)}

    def old(name: str) -> dict[str, Any]:
        """Write a list that is null in what EDL's controller stored: its types did not leave it out."""
        return {**many(name), "nullable": True}

    labels = LABELS
    fields = {
        "image": IMAGE_NAME,
        "imagePullPolicy": {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]},
        "imagePullSecrets": old("LocalObjectReference"),
        "port": {**INT32, **PORT},
        "ports_num": {**COUNT, "maximum": MAX_PORTS},
        "ports_num_for_sparse": {**COUNT, "maximum": MAX_PORTS},
        "fault_tolerant": BOOLEAN,
        "passes": COUNT,
        "volumes": old("Volume"),
        "VolumeMounts": old("VolumeMount"),
        "host_network": BOOLEAN,
        "NodeSelector": labels,
        "tolerations": many("Toleration"),
        "env": many("EnvVar", 256),
        "envFrom": many("EnvFromSource"),
        "serviceAccountName": NAME,
        "securityContext": core("PodSecurityContext"),
        "schedulerName": NAME,
        "runtimeClassName": NAME,
        "podLabels": labels,
        "podAnnotations": labels,
        "priority": INT32,
        "priorityClassName": NAME,
        "weight": POSITIVE,
        "scaling": {"type": "string", "enum": ["Auto", "Manual"]},
        "suspend": BOOLEAN,
        "scaleUpCooldownSeconds": COUNT,
        "ttlSecondsAfterFinished": COUNT,
        "checkpointSeconds": POSITIVE,
        "failureLimit": COUNT,
        "speed": {
            "type": "string",
            "maxLength": 128,
            "pattern": r"^(linear|amdahl:[0-9.]+|optimus:[0-9.]+(,[0-9.]+){3})$",
        },
        "trainer": trainer(),
        "pserver": pserver(),
        "master": master(),
    }
    least = value("min-instance", "self.trainer", default="0")
    most = value("max-instance", "self.trainer", default=least)
    elastic: Rule = (
        f"{value('fault_tolerant', default='false')} || {least} == {most}",
        "fault_tolerant must be true when trainer.min-instance is below trainer.max-instance:"
        " trainers come and go",
    )
    ranked: Rule = (
        f"{value('priorityClassName', default=repr(''))} == '' || {value('priority', default='0')} == 0",
        "priority and priorityClassName both say the priority of the job: give one of them",
    )
    fixed = [stays(name) for name in ("image", "port", "ports_num", "ports_num_for_sparse")]
    validations = [*rules(elastic, ranked, *ports(), mounts(), *fixed), *frozen("pserver"), *frozen("master")]
    return {**level(fields, validations), "required": ["trainer"]}


def ports() -> list[Rule]:
    """Refuse ports that there are not, and the one at which trainers meet where pods share a node's."""
    first = value("port", default=str(DEFAULT_PORT))
    count = f"{value('ports_num', default='1')} + {value('ports_num_for_sparse', default='1')}"
    shared = value("host_network", default="false")
    return [
        (f"{first} + {count} <= {MAX_PORT + 1}", f"the ports from port on must end at {MAX_PORT} at most"),
        (
            f"!{shared} || {first} > {RENDEZVOUS_PORT} || {first} + {count} <= {RENDEZVOUS_PORT}"
            f" && {first} < {RENDEZVOUS_PORT}",
            f"with host_network the ports must leave out {RENDEZVOUS_PORT}, at which trainers meet",
        ),
    ]


def mounts() -> Rule:
    """Refuse a mount of a volume that is not there; either list is null in what EDL's controller stored."""
    none = "has(self.volumes) && self.volumes.exists(volume, volume.name == mount.name)"
    held = " && ".join(f"(!has({path}) || {path}.all(mount, {none}))" for path in paths("VolumeMounts"))
    return held, "VolumeMounts must name volumes that are in volumes"


def level(
    fields: Mapping[str, Any],
    validations: Sequence[Mapping[str, str]],
    *,
    hints: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write a level of a job: its fields under each of their spellings, of which one may be given.

    `hints` are what to add to the message about two spellings of a field.
    """
    twice = [once(name, (hints or {}).get(name, "")) for name in fields if len(spellings(name)) > 1]
    return {
        "type": "object",
        "properties": {spelling: schema for name, schema in fields.items() for spelling in spellings(name)},
        "x-kubernetes-validations": [*rules(*twice), *validations],
    }


def once(name: str, hint: str) -> Rule:
    """Refuse two spellings of one field."""
    both = " && ".join(f"has({path})" for path in paths(name))
    names = " and ".join(spellings(name))
    return f"!({both})", f"{names} are two spellings of one field: give one of them{hint}"


def paths(name: str, owner: str = "self") -> list[str]:
    """Write in CEL where a field may be."""
    return [f"{owner}.{spelling.replace('-', '__dash__')}" for spelling in spellings(name)]


def is_set(name: str, owner: str = "self") -> str:
    """Say in CEL that a field is given, in any spelling."""
    places = [f"has({path})" for path in paths(name, owner)]
    return places[0] if len(places) == 1 else f"({' || '.join(places)})"


def value(name: str, owner: str = "self", *, default: str = "") -> str:
    """Read a field in CEL, in any spelling; without a default it must be given."""
    *tried, last = [*paths(name, owner), *([default] if default else [])]
    return f"({''.join(f'has({path}) ? {path} : ' for path in tried)}{last})" if tried else last


def frozen(role: str) -> list[dict[str, str]]:
    """Refuse that a role comes or goes while a job is there."""
    return rules((f"has(self.{role}) == has(oldSelf.{role})", f"{role} cannot be added or removed"))


def stays(field: str) -> Rule:
    """Refuse a change of a field, its removal included, which a rule on the field itself would not see."""
    rule = (
        f"{is_set(field)} == {is_set(field, 'oldSelf')}"
        f" && (!{is_set(field)} || {value(field)} == {value(field, 'oldSelf')})"
    )
    return rule, f"{field} is immutable"


def trainer() -> dict[str, Any]:
    """Write the role that is scaled."""
    fields = {
        "entrypoint": TEXT,
        "workspace": TEXT,
        "min-instance": {**COUNT, "maximum": MAX_TRAINERS},
        "max-instance": {**COUNT, "maximum": MAX_TRAINERS},
        "resources": resources(),
        "priorityClassName": NAME,
        "terminationGracePeriodSeconds": COUNT,
        "unreachableSeconds": COUNT,
        "nodeSelector": LABELS,
        "passes": INT32,
        **MANIFEST,
    }
    most = value("max-instance", default="0")
    bounds = [
        {
            "rule": f"{value('min-instance', default='0')} <= {most}",
            "message": "min-instance must not exceed max-instance",
            "fieldPath": ".max-instance",
        },
        {
            "rule": f"{most} >= 1",
            "message": "max-instance must be at least 1; spec.suspend stops a job",
            "fieldPath": ".max-instance",
        },
    ]
    needed: Rule = (
        REQUESTS,
        "resources.requests must name a cpu above 0: what nothing is requested for cannot be planned",
    )
    fixed = map(stays, ("entrypoint", "workspace", "resources"))
    hints = {SCALED: f"; `kubectl scale` needs {' instead of '.join(spellings(SCALED))}"}
    return level(fields, [*bounds, *rules(needed, *fixed)], hints=hints)


def pserver() -> dict[str, Any]:
    """Write the role that holds the parameters: never scaled."""
    fields = {
        "min-instance": {**COUNT, "maximum": MAX_SERVERS},
        "max-instance": COUNT,
        "resources": resources(),
        "entrypoint": TEXT,
        "storage": storage(),
        "priorityClassName": NAME,
        **MANIFEST,
    }
    needed: Rule = (
        f"{value('min-instance', default='0')} == 0 || ({REQUESTS})",
        "resources.requests must name a cpu above 0: what nothing is requested for cannot be planned",
    )
    fixed = map(stays, ("min-instance", "resources", "storage", "entrypoint"))
    return level(fields, rules(needed, *fixed))


def master() -> dict[str, Any]:
    """Write the role that hands out tasks."""
    fields = {
        "enabled": BOOLEAN,
        "resources": resources(),
        "entrypoint": TEXT,
        "storage": storage(),
        "priorityClassName": NAME,
        "etcd": {"type": "string", "enum": ["Sidecar", "External", "None"]},
        "etcdImage": {**IMAGE_NAME, "minLength": 1},
        **MANIFEST,
    }
    endpoint = value("etcd-endpoint", default="''")
    external: Rule = (
        f"!has(self.etcd) || self.etcd != 'External' || {endpoint} != ''",
        "etcd: External needs etcd-endpoint",
    )
    fixed = map(stays, ("enabled", "resources", "storage", "entrypoint", "etcd"))
    return level(fields, rules(external, *fixed))


def resources() -> dict[str, Any]:
    """Write requests and limits."""
    quantity = {**INT_OR_STRING, "minimum": 0, "pattern": AMOUNT, "maxLength": 64}
    amounts = {"type": "object", "maxProperties": 16, "additionalProperties": quantity}
    device = f"(name.contains('/') && !name.contains('kubernetes.io/') || name == '{OLD_GPU}')"
    asked, limit = (f"quantity(string(self.{kind}[name]))" for kind in ("requests", "limits"))
    limited = "has(self.limits) && name in self.limits"
    within: Rule = (
        f"!has(self.requests) || self.requests.all(name, !({limited}) || !{asked}.isGreaterThan({limit}))",
        "a request must not be more than its limit",
    )
    whole: Rule = (
        f"!has(self.limits) || self.limits.all(name, !{device} || {limit}.isInteger())",
        "limits of devices, as GPUs, must be whole numbers",
    )
    same: Rule = (
        f"!has(self.requests) || self.requests.all(name, !({device} || name.startsWith('hugepages-'))"
        f" || {limited} && {asked}.compareTo({limit}) == 0)",
        "what is requested of devices, as GPUs, and of huge pages must be their limit too",
    )
    return {
        "type": "object",
        "properties": {"limits": amounts, "requests": amounts},
        "x-kubernetes-validations": rules(within, whole, same),
    }


def storage() -> dict[str, Any]:
    """Write a claim for each pod of a role."""
    fields: Mapping[str, Any] = {
        "size": {**INT_OR_STRING, "pattern": QUANTITY, "maxLength": 64},
        "storageClassName": NAME,
        "mountPath": {"type": "string", "pattern": "^/", "maxLength": 1024},
        "whenDeleted": {"type": "string", "enum": ["Retain", "Delete"]},
    }
    return {"type": "object", "required": ["size"], "properties": dict(fields)}


def status() -> dict[str, Any]:
    """Write what the controller tells; `throughput` is told by the job itself."""
    counts = {name: INT32 for name in ("desired", "bound", "ready", "failed")}
    condition = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": STRING,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": STRING,
            "message": STRING,
            "observedGeneration": {"type": "integer", "format": "int64"},
            "lastTransitionTime": TIME,
        },
    }
    record = {
        "type": "object",
        "properties": {
            **{"time": TIME, "from": INT32, "to": INT32},
            **{"cause": STRING, "reason": STRING, "moves": INT32},
        },
    }
    point = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    return {
        "type": "object",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "phase": {"type": "string", "enum": list(PHASES)},
            "reason": STRING,
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "trainer": {
                "type": "object",
                "properties": {**counts, "replicas": INT32, "succeeded": INT32, "fulfilment": STRING},
            },
            "pserver": {"type": "object", "properties": counts},
            "master": {"type": "object", "properties": counts},
            "priority": INT32,
            "selector": STRING,
            "scaleRecords": {"type": "array", "items": record, "x-kubernetes-list-type": "atomic"},
            "admittedTime": TIME,
            "startTime": TIME,
            "completionTime": TIME,
            "waitingSeconds": {"type": "integer", "format": "int64"},
            "setbacks": setbacks(),
            "throughput": {
                "type": "object",
                "properties": {
                    "curve": {
                        "type": "array",
                        "maxItems": 1024,
                        "items": point,
                        "x-kubernetes-list-type": "atomic",
                    }
                },
            },
        },
    }


def setbacks() -> dict[str, Any]:
    """Write what went wrong several times in a row, so that another controller counts on."""
    texts = {
        "failedTrainers": "Trainers that failed and still stand: others come for them later.",
        "trainerRetries": "How often in a row some failed.",
        "trainerRetryTime": "When others come for them; the pause doubles each time, up to a minute.",
        "failedRounds": "How often in a row all trainers failed; six times end the job.",
        "failedTrainer": "UID of a trainer of the last such round.",
        "gangRetries": "How often in a row its pods were refused, or some of them found no node.",
        "gangRetryTime": "When the gang is tried again; the wait doubles each time, up to an hour.",
        "gangRetryGeneration": "Generation of the spec that waits; one that was changed is tried at once.",
        "gangRefusal": "Why the API server does not take its pods; empty where they found no node.",
        "trainerCeiling": "Trainers beyond which it was refused more.",
        "growthRetries": "How often in a row it was refused more.",
        "growthRetryTime": "When more are tried again; the wait doubles each time, up to an hour.",
        "growthRetryGeneration": "Generation of the spec of which no more were taken.",
        "growthRefusal": "Why no more were taken.",
    }
    generation = {"type": "integer", "format": "int64"}
    types = (
        *(INT32, INT32, TIME, INT32, STRING, INT32, TIME, generation, STRING),
        *(INT32, INT32, TIME, generation, STRING),
    )
    fields = {
        name: {**kind, "description": text} for (name, text), kind in zip(texts.items(), types, strict=True)
    }
    barred = {
        "type": "object",
        "properties": {"nodes": {"type": "array", "items": STRING}, "times": INT32, "until": TIME},
    }
    passed_over = {
        "type": "array",
        "description": "Nodes on which its pods found no room although the plan saw some.",
        "items": barred,
        "x-kubernetes-list-type": "atomic",
    }
    return {
        "type": "object",
        "description": "What went wrong several times in a row.",
        "properties": {**fields, "passedOver": passed_over},
    }


def main() -> None:
    """Write the files."""
    text = written(definition(load_schemas(KUBERNETES)))
    for file in FILES:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
