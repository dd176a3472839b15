"""Make the CustomResourceDefinitions that the prototype `kubeflow-core` ships.

    python -m tests.generate.crds

writes one file a kind, and into packages whose prototypes use a kind without bringing it a copy for offline
validation; MPIJob stands there alone, with the rules of the MPI operator's own validation. The kinds, their
roles and rules stand here; pod templates, metrics and label selectors come fully typed from the schemas of
Kubernetes 1.36, the version that the training operator 1.9.4 is built with: one mistyped template that gets
past the API server stops it for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mlstack.objects.kube_object import Schemas
from mlstack.validate.validate import load_schemas
from tests.generate.structural import CORE, INT_OR_STRING, META, PORT, QUANTITY, STRING, typed

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "prototypes" / "core" / "kubeflow-core" / "files" / "crds"
TRAINING = ROOT / "prototypes" / "training" / "crds"
# Packages that use a kind without bringing it carry its definition for offline validation.
COPIES = {
    "tfjobs": (ROOT / "prototypes" / "tf-job" / "crds",),
    **{plural: (TRAINING,) for plural in ("pytorchjobs", "xgboostjobs", "jaxjobs", "paddlejobs")},
}
KUBERNETES = "1.36"
MAX_NAME = 50

Rule = tuple[str, str]

BOOLEAN = {"type": "boolean"}
TIME = {"type": "string", "format": "date-time"}
INT32 = {"type": "integer", "format": "int32"}
COUNT = {**INT32, "minimum": 0}
POSITIVE = {**INT32, "minimum": 1}
SECONDS = {"type": "integer", "format": "int64", "minimum": 1}


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """One kind of training job, as the training operator reads it.

    Attributes:
        kind: name of the kind.
        replicas: the field that maps roles to replicas.
        roles: the roles there are.
        container: the container that must be in every pod.
        role_rules: CEL rules on the map of roles, each with its message.
        spec_rules: CEL rules on the spec.
        fields: further fields of the spec.
        scaled: whether the workers can be scaled in place.
        version: of the API.
        name_rules: CEL rules on the whole job, in place of the longest name.
        restart_policies: of a role.
        manager: who works on the job where `runPolicy.managedBy` does not say.
    """

    kind: str
    replicas: str
    roles: tuple[str, ...]
    container: str  # empty for any
    role_rules: tuple[Rule, ...]
    spec_rules: tuple[Rule, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    scaled: bool = False
    version: str = "v1"
    name_rules: tuple[Rule, ...] = (
        (
            f"size(self.metadata.name) <= {MAX_NAME}",
            f"metadata.name must have at most {MAX_NAME} characters: pods and Services are named after it",
        ),
    )
    restart_policies: tuple[str, ...] = ("Always", "OnFailure", "Never", "ExitCode")
    manager: str = "kubeflow.org/training-operator"

    @property
    def plural(self) -> str:
        """Give the name in addresses: `tfjobs`."""
        return f"{self.kind.lower()}s"


def at_most_one(role: str) -> Rule:
    """Refuse more than one replica of a role."""
    unset = f"!('{role}' in self) || !has(self['{role}'].replicas)"
    return f"{unset} || self['{role}'].replicas <= 1", f"{role} has at most 1 replica"


def exactly_one(role: str) -> Rule:
    """Demand that a role, where it is given, says that it has one replica."""
    rule = f"!('{role}' in self) || (has(self['{role}'].replicas) && self['{role}'].replicas == 1)"
    return rule, f"{role} needs replicas: 1"


def workers_without(leaders: Sequence[str], *, why: str) -> Rule:
    """Demand a worker where no leading role is given."""
    led = " || ".join(f"'{role}' in self" for role in leaders)
    some = "!('Worker' in self) || !has(self['Worker'].replicas) || self['Worker'].replicas > 0"
    return f"{led} || {some}", f"without a {leaders[0]} at least one Worker is needed{why}"


MIN_TO_MAX: Rule = (
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    "minReplicas must not be above maxReplicas",
)


def elastic_needs_worker(replicas: str) -> Rule:
    """Demand workers where there is an elastic policy: they are what it scales."""
    return f"!has(self.elasticPolicy) || 'Worker' in self.{replicas}", "elasticPolicy needs a Worker role"


def kinds(schemas: Schemas) -> tuple[JobKind, ...]:
    """Give the kinds of job that the operator runs."""
    metrics = {"type": "array", "items": typed(schemas, "io.k8s.api.autoscaling.v2.MetricSpec")}
    elastic = {"minReplicas": POSITIVE, "maxReplicas": POSITIVE, "maxRestarts": COUNT, "metrics": metrics}
    return (
        JobKind(
            kind="TFJob",
            replicas="tfReplicaSpecs",
            roles=("Chief", "Master", "Worker", "PS", "Evaluator"),
            container="tensorflow",
            role_rules=(
                (
                    "!('Chief' in self && 'Master' in self)",
                    "Chief and Master are two names for one role: give only one",
                ),
                ("'Worker' in self || 'Chief' in self || 'Master' in self", "a Worker or a Chief is needed"),
                *(at_most_one(role) for role in ("Chief", "Master", "Evaluator")),
                workers_without(("Chief", "Master"), why=": with 0 the job counts as succeeded at once"),
            ),
            fields={
                "enableDynamicWorker": BOOLEAN,
                "successPolicy": {"type": "string", "enum": ["", "AllWorkers"]},
            },
        ),
        JobKind(
            kind="PyTorchJob",
            replicas="pytorchReplicaSpecs",
            roles=("Master", "Worker"),
            container="pytorch",
            role_rules=(exactly_one("Master"), workers_without(("Master",), why="")),
            spec_rules=(
                elastic_needs_worker("pytorchReplicaSpecs"),
                (
                    "!has(self.nprocPerNode) || !has(self.elasticPolicy)"
                    " || !has(self.elasticPolicy.nProcPerNode)",
                    "give nprocPerNode once: elasticPolicy.nProcPerNode is its old place",
                ),
            ),
            fields={
                "elasticPolicy": {
                    "type": "object",
                    "properties": elastic
                    | {
                        "nProcPerNode": POSITIVE,
                        "rdzvBackend": {"type": "string", "enum": ["c10d", "etcd", "etcd-v2"]},
                        "rdzvConf": {
                            "type": "array",
                            "items": {"type": "object", "properties": {"key": STRING, "value": STRING}},
                        },
                        "rdzvHost": STRING,
                        "rdzvId": STRING,
                        "rdzvPort": {**INT32, **PORT},
                        "standalone": BOOLEAN,
                    },
                    "x-kubernetes-validations": rules(MIN_TO_MAX),
                },
                "nprocPerNode": {"type": "string", "pattern": "^([1-9][0-9]*|auto|cpu|gpu)$"},
            },
            scaled=True,
        ),
        JobKind(
            kind="XGBoostJob",
            replicas="xgbReplicaSpecs",
            roles=("Master", "Worker"),
            container="xgboost",
            role_rules=(("'Master' in self", "a Master is needed"), exactly_one("Master")),
        ),
        JobKind(
            kind="JAXJob",
            replicas="jaxReplicaSpecs",
            roles=("Worker",),
            container="jax",
            role_rules=(("'Worker' in self", "a Worker is needed"),),
            scaled=True,
        ),
        JobKind(
            kind="PaddleJob",
            replicas="paddleReplicaSpecs",
            roles=("Master", "Worker"),
            container="paddle",
            role_rules=(workers_without(("Master",), why=""),),
            spec_rules=(elastic_needs_worker("paddleReplicaSpecs"),),
            fields={
                "elasticPolicy": {
                    "type": "object",
                    "properties": elastic,
                    "x-kubernetes-validations": rules(MIN_TO_MAX),
                }
            },
            scaled=True,
        ),
    )


def mpi_job() -> JobKind:
    """Give the kind of the MPI operator 0.8, with its rules (pkg/apis/kubeflow/validation/validation.go)."""
    worker = "'Worker' in self.spec.mpiReplicaSpecs && has(self.spec.mpiReplicaSpecs['Worker'].replicas)"
    last = f"{worker} ? self.spec.mpiReplicaSpecs['Worker'].replicas - 1 : 0"
    return JobKind(
        kind="MPIJob",
        version="v2beta1",
        replicas="mpiReplicaSpecs",
        roles=("Launcher", "Worker"),
        container="",
        role_rules=(
            ("'Launcher' in self", "a Launcher is needed"),
            (
                "!('Launcher' in self) || !has(self['Launcher'].replicas) || self['Launcher'].replicas == 1",
                "Launcher has 1 replica",
            ),
            (
                "!('Worker' in self) || !has(self['Worker'].replicas) || self['Worker'].replicas >= 1",
                "Worker has at least 1 replica",
            ),
        ),
        fields={
            "launcherCreationPolicy": {"type": "string", "enum": ["AtStartup", "WaitForWorkersReady"]},
            "mpiImplementation": {"type": "string", "enum": ["OpenMPI", "Intel", "MPICH"]},
            "runLauncherAsWorker": BOOLEAN,
            "slotsPerWorker": COUNT,
            "sshAuthMountPath": {"type": "string", "minLength": 1},
        },
        name_rules=(
            (
                f"size(self.metadata.name + '-worker-' + string({last})) <= 63",
                "metadata.name is too long: the last worker's name has more than 63 characters",
            ),
        ),
        restart_policies=("Never", "OnFailure"),
        manager="kubeflow.org/mpi-operator",
    )


def rules(*pairs: Rule) -> list[dict[str, str]]:
    """Write CEL rules as a schema holds them."""
    return [{"rule": rule, "message": message} for rule, message in pairs]


def crd(job: JobKind, schemas: Schemas) -> dict[str, Any]:
    """Write the CustomResourceDefinition of one kind of job."""
    names = {
        "kind": job.kind,
        "listKind": f"{job.kind}List",
        "plural": job.plural,
        "singular": job.kind.lower(),
    }
    version = {
        "name": job.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns(job),
        "subresources": subresources(job),
        "schema": {"openAPIV3Schema": root_schema(job, schemas)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{job.plural}.kubeflow.org"},
        "spec": {"group": "kubeflow.org", "names": names, "scope": "Namespaced", "versions": [version]},
    }


def columns(job: JobKind) -> list[dict[str, str]]:
    """Say what `kubectl get` shows."""
    workers = f".spec.{job.replicas}.Worker.replicas"
    return [
        {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
        {"name": "Workers", "type": "integer", "jsonPath": workers},
        {"name": "Active", "type": "integer", "jsonPath": ".status.replicaStatuses.Worker.active"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def subresources(job: JobKind) -> dict[str, Any]:
    """Give status, and scale where the operator lives through it (a TFJob that shrinks fails)."""
    if not job.scaled:
        return {"status": {}}
    worker = ".status.replicaStatuses.Worker"
    scale = {
        "specReplicasPath": f".spec.{job.replicas}.Worker.replicas",
        "statusReplicasPath": f"{worker}.active",
        "labelSelectorPath": f"{worker}.selector",
    }
    return {"status": {}, "scale": scale}


def root_schema(job: JobKind, schemas: Schemas) -> dict[str, Any]:
    """Write the schema of a whole job."""
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": {"type": "object"},
            "spec": spec_schema(job, schemas),
            "status": status_schema(schemas),
        },
        "x-kubernetes-validations": rules(
            (
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "metadata.name must start with a letter and hold only lower-case letters, digits and -",
            ),
            *job.name_rules,
        ),
    }


def spec_schema(job: JobKind, schemas: Schemas) -> dict[str, Any]:
    """Write the schema of a job's spec."""
    schema: dict[str, Any] = {
        "type": "object",
        "required": [job.replicas],
        "properties": {
            **dict(sorted(job.fields.items())),
            "runPolicy": run_policy(job.manager),
            job.replicas: roles_schema(job, schemas),
        },
    }
    if job.spec_rules:
        schema["x-kubernetes-validations"] = rules(*job.spec_rules)
    return schema


def roles_schema(job: JobKind, schemas: Schemas) -> dict[str, Any]:
    """Write the map of roles: one schema for all of them, which roles there are is a rule."""
    quoted = ", ".join(f"'{role}'" for role in job.roles)
    *most, last = job.roles
    named = f"{', '.join(most)} and {last}" if most else last
    known_roles: Rule = (
        f"self.all(t, t in [{quoted}])",
        f"replica types are {named}" if most else f"the only replica type is {last}",
    )
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": len(job.roles),
        "additionalProperties": {
            "type": "object",
            "required": ["template"],
            "properties": {
                "replicas": COUNT,
                "restartPolicy": {"type": "string", "enum": list(job.restart_policies)},
                "template": template_schema(job, schemas),
            },
        },
        "x-kubernetes-validations": rules(known_roles, *job.role_rules),
    }


def template_schema(job: JobKind, schemas: Schemas) -> dict[str, Any]:
    """Write the pod template with the container that the operator looks for."""
    template = typed(schemas, f"{CORE}.PodTemplateSpec")
    if not job.container:
        return template
    template["properties"]["spec"]["properties"]["containers"]["x-kubernetes-validations"] = rules(
        (f"self.exists(c, c.name == '{job.container}')", f"one container must be named {job.container}")
    )
    return template


def run_policy(manager: str) -> dict[str, Any]:
    """Write the policy that all kinds of job share; its queue and manager cannot change later."""

    def fixed(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        return {**schema, "x-kubernetes-validations": rules(("self == oldSelf", f"{name} cannot be changed"))}

    quantity = {**INT_OR_STRING, "pattern": QUANTITY}
    managers = [manager, "kueue.x-k8s.io/multikueue"]
    scheduling = {
        "minAvailable": COUNT,
        "minResources": {"type": "object", "additionalProperties": quantity},
        "priorityClass": STRING,
        "queue": fixed("queue", STRING),
        "scheduleTimeoutSeconds": COUNT,
    }
    return {
        "type": "object",
        "properties": {
            "activeDeadlineSeconds": SECONDS,
            "backoffLimit": COUNT,
            "cleanPodPolicy": {"type": "string", "enum": ["None", "Running", "All"]},
            "managedBy": fixed("managedBy", {"type": "string", "enum": managers}),
            "schedulingPolicy": {"type": "object", "properties": scheduling},
            "suspend": BOOLEAN,
            "ttlSecondsAfterFinished": COUNT,
        },
    }


def status_schema(schemas: Schemas) -> dict[str, Any]:
    """Write the status, which the operator alone sets."""
    condition = {
        "type": "object",
        "required": ["status", "type"],
        "properties": {
            "lastTransitionTime": TIME,
            "lastUpdateTime": TIME,
            "message": STRING,
            "reason": STRING,
            "status": STRING,
            "type": STRING,
        },
    }
    role = {
        "type": "object",
        "properties": {
            "active": INT32,
            "failed": INT32,
            "labelSelector": typed(schemas, f"{META}.LabelSelector"),
            "selector": STRING,
            "succeeded": INT32,
        },
    }
    return {
        "type": "object",
        "properties": {
            "completionTime": TIME,
            "conditions": {"type": "array", "items": condition},
            "lastReconcileTime": TIME,
            "replicaStatuses": {"type": "object", "additionalProperties": role},
            "startTime": TIME,
        },
    }


FLOW_BELOW = 16
"""From the fields of the pod spec on, a field is one line: indentation would double the file."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        self.depth = getattr(self, "depth", 0) + 1
        flow = True if self.depth > FLOW_BELOW else flow_style
        node = super().represent_mapping(tag, mapping, flow_style=flow)
        self.depth -= 1
        return node


def texts() -> dict[str, str]:
    """Write every file: plural and its text."""
    schemas = load_schemas(KUBERNETES)
    return {job.plural: written(crd(job, schemas)) for job in kinds(schemas)}


def written(definition: Mapping[str, Any]) -> str:
    """Write a definition as text: deep fields on one line each."""
    return yaml.dump(
        dict(definition), Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=1_000_000
    )


def main() -> None:
    """Write the files."""
    for plural, text in texts().items():
        for folder in (FOLDER, *COPIES.get(plural, ())):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{plural}.yaml").write_text(text, "utf-8")
    (TRAINING / "mpijobs.yaml").write_text(written(crd(mpi_job(), load_schemas(KUBERNETES))), "utf-8")


if __name__ == "__main__":
    main()
