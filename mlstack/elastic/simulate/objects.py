"""The objects that a scenario begins with, and those that come into it, as the API server would have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.elastic.sampling import BACKGROUND
from mlstack.elastic.simulate.scenario import JobPlan, NodeGroup, Service
from mlstack.elastic.simulate.store import Obj
from mlstack.elastic.trainingjob import SERVER_CLASS, TRAINER_CLASS

NAMESPACE = "default"

_PODS_A_NODE = "110"


def nodes(group: NodeGroup, first: int = 0) -> Iterator[Obj]:
    """Give the nodes of a group, Ready.

    Args:
        group: what they are like.
        first: number of the first of them.
    """
    for index in range(first, first + group.count):
        name = f"{group.name}-{index}"
        offered = {"pods": _PODS_A_NODE, **group.allocatable}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **group.labels}},
            "spec": {"taints": list(group.taints)} if group.taints else {},
            "status": {
                "allocatable": offered,
                "capacity": offered,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def background(node: str, requests: Mapping[str, str]) -> Obj:
    """Give the pod of the background of a node, already running."""
    container = {"name": "agent", "resources": {"requests": dict(requests)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"agent-{node}", "namespace": BACKGROUND},
        "spec": {
            "nodeName": node,
            "priority": 2_000_001_000,
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def classes() -> Iterator[Obj]:
    """Give the priority classes that come with the controller."""
    for name, value, policy in (
        (TRAINER_CLASS, -10, "Never"),
        (SERVER_CLASS, 100, "Never"),
    ):
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }


def training_job(job: JobPlan, grace_s: int) -> Obj:
    """Give the TrainingJob of a job."""
    trainer = {"terminationGracePeriodSeconds": grace_s, **(job.spec.get("trainer") or {})}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": job.name, "namespace": NAMESPACE},
        "spec": {"fault_tolerant": True, **job.spec, "trainer": trainer},
    }


def preemption_policy(service: Service) -> str:
    """Give what the class of a service's pods says of pushing others aside."""
    return "PreemptLowerPriority" if service.is_preempting else "Never"


def deployment(service: Service) -> Obj:
    """Give the Deployment of a service."""
    labels = {"app": service.name}
    container = {"name": service.name, "resources": {"requests": dict(service.requests)}}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {
            "priority": service.priority,
            "preemptionPolicy": preemption_policy(service),
            "terminationGracePeriodSeconds": service.grace_s,
            "containers": [container],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }
