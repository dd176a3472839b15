"""Readiness of the core group: pods, claims, Services, namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlstack.readiness import pods
from mlstack.readiness.rule import REPLACEMENTS, Facts, Readiness, Replacement, failed, ready, rule, waiting

REPLACEMENTS.register("PersistentVolumeClaim", "PersistentVolume")(
    Replacement(never="its data would be lost; make one of another name")
)
REPLACEMENTS.register("Namespace")(Replacement(never="everything in it would be lost", shared=True))


@rule("Pod")
def pod(facts: Facts) -> Readiness:
    """A pod is ready when it says so, done when it has succeeded."""
    if facts.status.get("phase") == "Succeeded":
        return Readiness(state="done")
    if pods.is_ready(facts.data):
        return ready()
    trouble = pods.trouble(facts.data, facts)
    if trouble is None:
        return waiting(pods.unready(facts.data))
    if trouble.is_final or facts.status.get("phase") == "Failed":
        return failed(trouble.reason)
    return waiting(trouble.reason, resource=trouble.resource, queue=trouble.queue)


@rule("PersistentVolumeClaim")
def claim(facts: Facts) -> Readiness:
    """A claim is ready when bound, or when it waits for the first pod and no pod uses it yet.

    Its status says no more than `Pending`; the reason stands only in its events.
    """
    phase = facts.status.get("phase")
    if phase == "Bound":
        return ready()
    if phase == "Lost":
        return failed("its volume is gone")
    uid = facts.metadata.get("uid")
    own = [event for event in facts.events if (event.get("involvedObject") or {}).get("uid") == uid]
    if not facts.pods and (_binds_late(facts) or any(_says_late(event) for event in own)):
        return ready("is bound when its first pod starts")
    trouble = pods.worst(facts.pods, facts)
    if trouble is not None and trouble.queue and all(_says_late(event) for event in own):
        return waiting(f"its pod waits: {trouble.reason}", resource=trouble.resource, queue=trouble.queue)
    return waiting(pods.event_text(own[-1]) if own else "no volume is bound to it yet")


def _says_late(event: Mapping[str, Any]) -> bool:
    return event.get("reason") in ("WaitForFirstConsumer", "WaitForPodScheduled")


def _binds_late(facts: Facts) -> bool:
    """Tell whether the storage class waits for a pod; the event that says so comes later, and goes away."""
    return facts.late_classes is not None and facts.spec.get("storageClassName") in facts.late_classes


@rule("Service")
def service(facts: Facts) -> Readiness:
    """A Service is ready at once; one of type LoadBalancer with its address, where that is waited for."""
    if facts.spec.get("type") != "LoadBalancer" or not facts.wait_for_load_balancer:
        return ready()
    if (facts.status.get("loadBalancer") or {}).get("ingress") or facts.spec.get("externalIPs"):
        return ready()
    own = facts.own_events()
    return waiting(pods.event_text(own[-1]) if own else "the load balancer has no address yet")


@rule("Namespace")
def namespace(facts: Facts) -> Readiness:
    """A namespace is ready when active."""
    phase = facts.status.get("phase")
    return ready() if phase in (None, "Active") else waiting(f"is {str(phase).lower()}")
