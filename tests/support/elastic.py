"""Builders of nodes, pods and training jobs for tests of the elastic controller."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Obj = dict[str, Any]


def time(now_ms: int) -> str:
    """Write a time as the API server does."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(
    name: str,
    *,
    cpu: str = "8",
    memory: str = "64Gi",
    is_ready: bool = True,
    labels: Mapping[str, str] | None = None,
    taints: list[Obj] | None = None,
    unschedulable: bool = False,
    **resources: str,
) -> Obj:
    """Give a Node, Ready unless said."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110", **resources}
    spec: Obj = {"unschedulable": True} if unschedulable else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {**spec, **({"taints": taints} if taints else {})},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        },
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    node: str = "",
    cpu: str = "1",
    phase: str = "Pending",
    labels: Mapping[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    created_ms: int = 0,
    gone_ms: int | None = None,
    conditions: list[Obj] | None = None,
    priority: int | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Obj:
    """Give a Pod of one container; `owner` is kind and UID of its controller."""
    metadata: Obj = {"name": name, "namespace": namespace, "creationTimestamp": time(created_ms)}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owner:
        reference = {"apiVersion": "v1", "kind": owner[0], "name": "owner", "uid": owner[1]}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    if gone_ms is not None:
        metadata["deletionTimestamp"] = time(gone_ms)
    container = {"name": "main", "image": "example.com/x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": [container],
            **({"nodeName": node} if node else {}),
            **({"priority": priority} if priority is not None else {}),
            **spec,
        },
        "status": {"phase": phase, "conditions": conditions or []},
    }


def training_job(
    name: str = "train",
    *,
    namespace: str = "default",
    minimum: int = 1,
    maximum: int = 4,
    cpu: str = "1",
    pservers: int = 0,
    pserver_cpu: str = "1",
    with_master: bool = False,
    fault_tolerant: bool = True,
    **spec: Any,
) -> Obj:
    """Give a TrainingJob as a user writes it."""
    trainer = {
        "entrypoint": "python train.py",
        "min-instance": minimum,
        "max-instance": maximum,
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    pserver = {
        "min-instance": pservers,
        "max-instance": pservers,
        "resources": {"requests": {"cpu": pserver_cpu, "memory": "64Mi"}},
    }
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "image": "example.com/train:1",
            "fault_tolerant": fault_tolerant,
            "trainer": trainer,
            "pserver": pserver,
            "master": {"enabled": with_master, "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
            **spec,
        },
    }


def numbered(obj: Obj, version: int, uid: str = "") -> Obj:
    """Give an object as a server has it: with a resource version and a UID."""
    metadata = obj["metadata"]
    return {
        **obj,
        "metadata": {**metadata, "resourceVersion": str(version), "uid": uid or f"uid-{metadata['name']}"},
    }
