"""The objects that a training job becomes: trainers, master, parameter servers, and what is around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.elastic import childnames, podspec
from mlstack.elastic.observed.amounts import requests
from mlstack.elastic.observed.pods import PLANNED
from mlstack.elastic.trainingjob import RoleName, Server, TrainingJob

TRANSITIONS = "mlstack.dev/lease-transitions"
"""How often the lease had changed hands when a leader wrote the object."""

Hints = Mapping[str, Sequence[str]]
Object = dict[str, Any]

_SERVERS: tuple[RoleName, ...] = ("master", "pserver")


def trainer(job: TrainingJob, index: int, *, node: str = "", transitions: int | None = None) -> Object:
    """Write a trainer's pod.

    Args:
        job: the job, as the cluster has it: it owns the pod.
        index: of the trainer: creating it twice makes one pod.
        node: name of the node that the plan has for it, empty for none; a wish, no demand.
        transitions: of the lease of the leader who creates it.
    """
    found = _object(job, "v1", "Pod", childnames.trainer_name(job.name, index), "trainer", transitions)
    metadata = found["metadata"]
    metadata["labels"] = {**job.pods.labels, **metadata["labels"]}
    marks = {**job.pods.annotations, **metadata.pop("annotations", {}), **({PLANNED: node} if node else {})}
    if marks:
        metadata["annotations"] = marks
    return {**found, "spec": podspec.trainer_spec(job, index, node=node)}


def server(job: TrainingJob, role: RoleName) -> Object:
    """Write the first pod of a role as its StatefulSet would make it, to be tried, not to be created."""
    name = childnames.role_name(job.name, role)
    found = _object(job, "v1", "Pod", f"{name}-0", role, None)
    found["metadata"]["labels"] = {**job.pods.labels, **found["metadata"]["labels"]}
    if job.pods.annotations:
        found["metadata"]["annotations"] = dict(job.pods.annotations)
    wanted = podspec.server_spec(job, role)
    claims = [one["metadata"]["name"] for one in podspec.claims(server_of(job, role))]
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
    """Write all objects of a job but its trainers, in the order in which they are created.

    Args:
        job: the job, as the cluster has it: it owns the objects.
        hints: nodes for the pods of `master` and `pserver`.
        required: whether the pods may go to these nodes alone.
        is_running: False for StatefulSets without pods, which keep their claims.
        transitions: of the lease of the leader who writes them.
    """
    found = [_service(job, "trainer", transitions)]
    if job.minimum:
        found.append(_budget(job, "trainer", {"minAvailable": job.minimum}, transitions))
    for role in _SERVERS:
        if not server_of(job, role).count:
            continue
        budget = {"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
        template = podspec.server_spec(job, role, nodes=hints.get(role, ()), is_required=required)
        found += [
            _service(job, role, transitions),
            _budget(job, role, budget, transitions),
            _stateful_set(job, role, template, is_running=is_running, transitions=transitions),
        ]
    return tuple(found)


def pod_requests(job: TrainingJob, role: RoleName) -> dict[str, int]:
    """Give what one pod of a role requests in all, as the scheduler counts it."""
    if role == "trainer":
        return requests(podspec.trainer_spec(job, 0))
    return requests(podspec.server_spec(job, role))


def server_of(job: TrainingJob, role: RoleName) -> Server:
    """Give what a job wants of its master or parameter servers."""
    return job.master if role == "master" else job.pserver


def _object(
    job: TrainingJob, api_version: str, kind: str, name: str, role: RoleName, transitions: int | None
) -> Object:
    metadata: Object = {
        "name": name,
        "namespace": job.namespace,
        "labels": childnames.labels(job.name, role),
        "ownerReferences": [childnames.owner(job)],
    }
    if transitions is not None:
        metadata["annotations"] = {TRANSITIONS: str(transitions)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _service(job: TrainingJob, role: RoleName, transitions: int | None) -> Object:
    """Write the Service that gives each pod of a role a name, from before it is ready."""
    name = childnames.role_name(job.name, role)
    return {
        **_object(job, "v1", "Service", name, role, transitions),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": childnames.selector(job.name, role),
        },
    }


def _budget(job: TrainingJob, role: RoleName, limits: Mapping[str, Any], transitions: int | None) -> Object:
    """Write what a drain must leave, in numbers: shares would need an owner that counts the pods."""
    name = childnames.role_name(job.name, role)
    return {
        **_object(job, "policy/v1", "PodDisruptionBudget", name, role, transitions),
        "spec": {**limits, "selector": {"matchLabels": childnames.selector(job.name, role)}},
    }


def _stateful_set(
    job: TrainingJob,
    role: RoleName,
    template: Mapping[str, Any],
    *,
    is_running: bool,
    transitions: int | None,
) -> Object:
    name, server = childnames.role_name(job.name, role), server_of(job, role)
    metadata: Object = {"labels": {**job.pods.labels, **childnames.labels(job.name, role)}}
    if job.pods.annotations:
        metadata["annotations"] = dict(job.pods.annotations)
    is_kept = server.storage is None or server.storage.is_kept
    claims = podspec.claims(server)
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
            "selector": {"matchLabels": childnames.selector(job.name, role)},
            "template": {"metadata": metadata, "spec": dict(template)},
            **({"volumeClaimTemplates": claims} if claims else {}),
        },
    }
