"""Make the CustomResourceDefinition of TrainingJobs that the package `elastic` ships.

    python -m tests.generate.trainingjobs

Group, names and fields are EDL's, so that its manifests are accepted; fields of ours stand beside them.
Volumes, environment and the like come fully typed from the schemas of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlstack.elastic.spec import OLD_GPU
from mlstack.elastic.trainingjob import KIND, MAX_NAME
from mlstack.files.kubernetes import load_schemas
from mlstack.model.schemas import Schemas
from tests.generate.crds import BOOLEAN, COUNT, INT32, KUBERNETES, POSITIVE, TIME, Rule, rules, written
from tests.generate.structural import CORE, INT_OR_STRING, MAX_VOLUMES, PORT, QUANTITY, STRING, typed

PACKAGE = Path(__file__).resolve().parents[2] / "prototypes" / "elastic"
FILES = (
    PACKAGE / "elastic-controller" / "files" / "crds" / "trainingjobs.yaml",
    PACKAGE / "crds" / "trainingjobs.yaml",  # elastic-job is checked without the controller
)
PHASES = ("Pending", "Admitted", "Running", "Scaling", "Completing", "Succeeded", "Failed", "Suspended")
TEXT = {"type": "string", "maxLength": 4096}
LABELS = {"type": "object", "maxProperties": 64, "additionalProperties": STRING}
NAME = {"type": "string", "maxLength": 253}
# What EDL's own controller wrote into specs: accepted, and looked at by nobody.
ANYTHING = {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
MANIFEST = {"etcd-endpoint": STRING, "replicaSpec": ANYTHING}

MIN, MAX = "self.min__dash__instance", "self.max__dash__instance"
ASKED, LIMITED = "self.resources.requests", "self.resources.limits"
# What a pod asks for is never negative; exponents are those that the controller reads.
AMOUNT = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"


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
                "specReplicasPath": ".spec.trainer.max-instance",
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
        {"name": "Min", "type": "integer", "jsonPath": ".spec.trainer.min-instance"},
        {"name": "Max", "type": "integer", "jsonPath": ".spec.trainer.max-instance"},
        {"name": "Fulfilment", "type": "string", "jsonPath": ".status.trainer.fulfilment"},
        {"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.reason"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


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
        "image": {"type": "string", "maxLength": 1024},
        "imagePullPolicy": {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]},
        "imagePullSecrets": old("LocalObjectReference"),
        "port": {**INT32, **PORT},
        "ports_num": COUNT,
        "ports_num_for_sparse": COUNT,
        "fault_tolerant": BOOLEAN,
        "passes": COUNT,
        "volumes": old("Volume"),
        "VolumeMounts": old("VolumeMount"),
        "hostNetwork": BOOLEAN,
        "host_network": BOOLEAN,
        "NodeSelector": labels,
        "nodeSelector": labels,
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
    elastic: Rule = (
        "(has(self.trainer.min__dash__instance) ? self.trainer.min__dash__instance : 0)"
        " == self.trainer.max__dash__instance || (has(self.fault_tolerant) && self.fault_tolerant)",
        "fault_tolerant must be true when trainer.min-instance is below trainer.max-instance:"
        " trainers come and go",
    )
    fixed = [stays(name) for name in ("image", "port", "ports_num", "ports_num_for_sparse")]
    return {
        "type": "object",
        "required": ["trainer"],
        "properties": fields,
        "x-kubernetes-validations": [*rules(elastic, *fixed), *kept("pserver"), *kept("master")],
    }


def kept(role: str) -> list[dict[str, str]]:
    """Refuse that a role comes or goes while a job is there."""
    return rules((f"has(self.{role}) == has(oldSelf.{role})", f"{role} cannot be added or removed"))


def stays(field: str, cel: str = "") -> Rule:
    """Refuse a change of a field, its removal included, which a rule on the field itself would not see."""
    name = cel or field
    rule = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
    return rule, f"{field} is immutable"


def trainer() -> dict[str, Any]:
    """Write the role that is scaled."""
    fields = {
        "entrypoint": TEXT,
        "workspace": TEXT,
        "min-instance": COUNT,
        "max-instance": COUNT,
        "resources": resources(),
        "priorityClassName": NAME,
        "terminationGracePeriodSeconds": COUNT,
        "unreachableSeconds": COUNT,
        "nodeSelector": LABELS,
        "passes": INT32,
        **MANIFEST,
    }
    bounds = [
        {
            "rule": f"!has({MIN}) || {MIN} <= {MAX}",
            "message": "min-instance must not exceed max-instance",
            "fieldPath": ".max-instance",
        },
        {
            "rule": f"{MAX} >= 1",
            "message": "max-instance must be at least 1; spec.suspend stops a job",
            "fieldPath": ".max-instance",
        },
    ]
    needed: Rule = (
        REQUESTS,
        "resources.requests must name a cpu above 0: what nothing is requested for cannot be planned",
    )
    return {
        "type": "object",
        "required": ["max-instance"],
        "properties": fields,
        "x-kubernetes-validations": [
            *bounds,
            *rules(needed, *map(stays, ("entrypoint", "workspace", "resources"))),
        ],
    }


def pserver() -> dict[str, Any]:
    """Write the role that holds the parameters: never scaled."""
    fields = {
        "min-instance": COUNT,
        "max-instance": COUNT,
        "resources": resources(),
        "entrypoint": TEXT,
        "storage": storage(),
        "priorityClassName": NAME,
        **MANIFEST,
    }
    needed: Rule = (
        f"!has({MIN}) || {MIN} == 0 || ({REQUESTS})",
        "resources.requests must name a cpu above 0: what nothing is requested for cannot be planned",
    )
    fixed = [
        stays("min-instance", "min__dash__instance"),
        *(stays(name) for name in ("resources", "storage", "entrypoint")),
    ]
    return {"type": "object", "properties": fields, "x-kubernetes-validations": rules(needed, *fixed)}


def master() -> dict[str, Any]:
    """Write the role that hands out tasks."""
    fields = {
        "enabled": BOOLEAN,
        "resources": resources(),
        "entrypoint": TEXT,
        "storage": storage(),
        "priorityClassName": NAME,
        "etcd": {"type": "string", "enum": ["Sidecar", "External", "None"]},
        "etcdImage": {"type": "string", "minLength": 1, "maxLength": 1024},
        **MANIFEST,
    }
    external: Rule = (
        "!has(self.etcd) || self.etcd != 'External' || (has(self.etcd__dash__endpoint)"
        " && self.etcd__dash__endpoint != '')",
        "etcd: External needs etcd-endpoint",
    )
    fixed = [stays(name) for name in ("enabled", "resources", "storage", "entrypoint", "etcd")]
    return {"type": "object", "properties": fields, "x-kubernetes-validations": rules(external, *fixed)}


def resources() -> dict[str, Any]:
    """Write requests and limits."""
    quantity = {**INT_OR_STRING, "minimum": 0, "pattern": AMOUNT, "maxLength": 64}
    amounts = {"type": "object", "maxProperties": 16, "additionalProperties": quantity}
    return {"type": "object", "properties": {"limits": amounts, "requests": amounts}}


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
    said = {
        "failedRounds": "How often in a row all trainers failed; six times end the job.",
        "failedTrainer": "UID of a trainer of the last such round.",
        "gangRetries": "How often in a row its master or parameter servers found no node.",
        "gangRetryTime": "When the gang is tried again; the wait doubles each time, up to an hour.",
        "gangRetryGeneration": "Generation of the spec that waits; one that was changed is tried at once.",
    }
    types = (INT32, STRING, INT32, TIME, {"type": "integer", "format": "int64"})
    fields = {
        name: {**kind, "description": text} for (name, text), kind in zip(said.items(), types, strict=True)
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
