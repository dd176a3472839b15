"""The objects and statuses that a cluster's controllers and kubelets write, as values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

NODE = "memory"
GPU = "nvidia.com/gpu"
OPERATOR_IMAGE = "training-operator"
"""A training job is worked on once a Deployment with such an image is available."""

Obj = Mapping[str, Any]

_TIMES = frozenset({"lastTransitionTime", "startTime", "startedAt", "finishedAt", "completionTime"})


def deployment_status(deployment: Obj, sets: list[Obj], now: str) -> Obj:
    """Say how far a Deployment is, from its ReplicaSets."""
    name = f"{deployment['metadata']['name']}-{template_hash(deployment)}"
    newest = next((found for found in sets if found["metadata"]["name"] == name), {})
    counts = newest.get("status") or {}
    ready = counts.get("readyReplicas", 0)
    is_done = ready >= deployment["spec"].get("replicas", 1)
    progressing = condition(
        "Progressing", now, reason="NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated"
    )
    available = condition("Available", now, is_true=is_done)
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": sum((found.get("status") or {}).get("replicas", 0) for found in sets),
        "updatedReplicas": counts.get("replicas", 0),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [available, progressing],
    }


def stateful_set_status(stateful_set: Obj, pods: list[Obj], revision: str) -> Obj:
    """Say how far a StatefulSet is, from its pods."""
    return {
        "observedGeneration": stateful_set["metadata"]["generation"],
        "replicas": len(pods),
        "currentReplicas": len(pods),
        "updatedReplicas": len(pods),
        "readyReplicas": ready(pods),
        "availableReplicas": ready(pods),
        "currentRevision": revision,
        "updateRevision": revision,
    }


def job_status(job: Obj, pods: list[Obj], now: str) -> Obj:
    """Say how far a Job is, from its pods."""
    succeeded = sum(phase(pod) == "Succeeded" for pod in pods)
    is_done = succeeded >= (job["spec"].get("completions") or 1)
    status = {"startTime": now, "active": len(pods) - succeeded, "succeeded": succeeded}
    if not is_done:
        return status
    rows = [condition("SuccessCriteriaMet", now), condition("Complete", now, reason="CompletionsReached")]
    return status | {"completionTime": now, "conditions": rows}


def training_status(kind: str, roles: Mapping[str, Any], pods: list[Obj], now: str) -> Obj:
    """Say how far a training job is, from its pods."""
    rows = [condition("Created", now, reason=f"{kind}Created")]
    running = [pod for pod in pods if phase(pod) == "Running"]
    if pods and len(running) == len(pods):
        rows.append(condition("Running", now, reason=f"{kind}Running"))
    counts = {
        role: sum(
            pod["metadata"]["labels"].get("training.kubeflow.org/replica-type") == role.lower()
            for pod in running
        )
        for role in sorted(roles)
    }
    statuses = {role: {"active": count} for role, count in counts.items()}
    return {"conditions": rows, "replicaStatuses": statuses, "startTime": now}


def replica_set(deployment: Obj, name: str, replicas: int) -> dict[str, Any]:
    """Give the ReplicaSet of a Deployment's present template."""
    labels = {"pod-template-hash": template_hash(deployment)}
    template = _labelled(deployment["spec"]["template"], labels)
    selector = deployment["spec"]["selector"]
    chosen = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **labels}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {**_owned(deployment, name), "labels": template["metadata"]["labels"]},
        "spec": {"replicas": replicas, "selector": chosen, "template": template},
    }


def pod(owner: Obj, name: str, template: Obj, labels: Mapping[str, str]) -> dict[str, Any]:
    """Give a pod from a template."""
    metadata = {**(_labelled(template, labels)["metadata"]), **_owned(owner, name)}
    spec = {**template["spec"], "nodeName": NODE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def endpoint_slice(service: Obj, pods: list[Obj]) -> dict[str, Any]:
    """Make the list of pods that a Service leads to, with whether each is ready."""
    name = service["metadata"]["name"]
    metadata = _owned(service, f"{name}-memory")
    labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": NODE}
    endpoints = [
        {
            "addresses": [f"10.0.0.{number}"],
            "conditions": {"ready": ready([one]) == 1},
            "targetRef": {"kind": "Pod", "name": one["metadata"]["name"]},
        }
        for number, one in enumerate(pods, start=1)
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": labels},
        "addressType": "IPv4",
        "endpoints": endpoints,
    }


def _labelled(template: Obj, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def _owned(owner: Obj, name: str) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": owner["metadata"]["namespace"], "ownerReferences": [reference]}


def _owners(obj: Obj) -> Iterator[Mapping[str, Any]]:
    yield from obj["metadata"].get("ownerReferences") or ()


def is_child(obj: Obj, owner: Obj) -> bool:
    """Say whether an object belongs to an owner."""
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in _owners(obj))


def is_owned_by(obj: Obj, kind: str) -> bool:
    """Say whether an object belongs to any owner of a kind."""
    return any(reference["kind"] == kind for reference in _owners(obj))


def runs_operator(deployment: Obj) -> bool:
    """Say whether a Deployment is a training operator at work."""
    images = (
        container.get("image", "") for container in deployment["spec"]["template"]["spec"]["containers"]
    )
    available = (deployment.get("status") or {}).get("availableReplicas", 0)
    return available > 0 and any(OPERATOR_IMAGE in image for image in images)


def phase(pod: Obj) -> str:
    """Give the phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "")


def revision(pod: Obj) -> str:
    """Give the revision of the template that a pod of a StatefulSet was made from."""
    return str((pod["metadata"].get("labels") or {}).get("controller-revision-hash") or "")


def ready(pods: list[Obj]) -> int:
    """Count the pods that run."""
    return sum(phase(pod) == "Running" for pod in pods)


def gpus(pod: Obj) -> int:
    """Count the GPUs that a pod asks for."""
    limits = (
        (container.get("resources") or {}).get("limits") or {} for container in pod["spec"]["containers"]
    )
    return sum(int(limit.get(GPU, 0)) for limit in limits)


def running(pod: Obj, now: str) -> Obj:
    """Give the status of a pod whose containers run and are ready."""
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": "10.0.0.1",
        "podIP": f"10.1.0.{number(pod['metadata']['name'], 250) + 2}",
        "conditions": [condition(kind, now) for kind in kinds],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def ended(pod: Obj, now: str) -> Obj:
    """Give the status of a pod whose containers have ended well."""
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": now}
    rows = [
        {**row, "ready": False, "state": {"terminated": ended}} for row in pod["status"]["containerStatuses"]
    ]
    return {"phase": "Succeeded", "containerStatuses": rows}


def unschedulable(now: str) -> Obj:
    """Give the status of a pod that no node has room for."""
    message = f"0/1 nodes are available: 1 Insufficient {GPU}."
    row = condition("PodScheduled", now, is_true=False, reason="Unschedulable") | {"message": message}
    return {"phase": "Pending", "conditions": [row]}


def condition(kind: str, now: str, *, is_true: bool = True, reason: str = "") -> dict[str, str]:
    """Give one row of conditions."""
    named = {"reason": reason} if reason else {}
    return {"type": kind, "status": str(is_true), "lastTransitionTime": now, **named}


def without_times(value: Any) -> Any:
    """Give a status without its times."""
    if isinstance(value, Mapping):
        return {name: without_times(inner) for name, inner in value.items() if name not in _TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def template_hash(workload: Obj) -> str:
    """Tell templates of pods apart."""
    text = json.dumps(workload["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def suffix(base: str, index: int) -> str:
    """Give the end of a pod's name."""
    return hashlib.sha256(f"{base} {index}".encode()).hexdigest()[:5]


def number(text: str, limit: int) -> int:
    """Give a number below a limit that depends on a text alone."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % limit
