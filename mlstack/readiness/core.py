"""Readiness of the core group and of what a platform brings: pods, claims, Services, webhooks, gateways."""

from __future__ import annotations

from collections.abc import Iterator

from mlstack.readiness import pods
from mlstack.readiness.operators import unseen
from mlstack.readiness.rule import (
    REPLACEMENTS,
    Facts,
    Readiness,
    Replacement,
    condition_text,
    done,
    failed,
    ready,
    rule,
    waiting,
)

REPLACEMENTS.register("PersistentVolumeClaim", "PersistentVolume")(
    Replacement(never="its data would be lost; make one of another name")
)
REPLACEMENTS.register("Namespace")(Replacement(never="everything in it would be lost", shared=True))
REPLACEMENTS.register("apiextensions.k8s.io/CustomResourceDefinition")(
    Replacement(never="every object of its kind would be lost", shared=True)
)


@rule("Pod")
def pod(facts: Facts) -> Readiness:
    """A pod is ready when it says so, done when it has succeeded."""
    phase = facts.status.get("phase")
    if phase == "Succeeded":
        return done()
    if pods.is_ready(facts.data):
        return ready()
    trouble = pods.trouble(facts.data, facts)
    if trouble is None:
        return waiting(pods.unready(facts.data))
    if trouble.is_final or phase == "Failed":
        return failed(trouble.reason)
    return waiting(trouble.reason, trouble.resource, trouble.queue)


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
    events = facts.about()
    late = [event.get("reason") in ("WaitForFirstConsumer", "WaitForPodScheduled") for event in events]
    # The event comes later than the claim, and goes away.
    binds_late = facts.late_classes is not None and facts.spec.get("storageClassName") in facts.late_classes
    if not facts.pods and (binds_late or any(late)):
        return ready("is bound when its first pod starts")
    trouble = pods.worst(facts.pods, facts)
    if trouble is not None and trouble.queue and all(late):
        return waiting(f"its pod waits: {trouble.reason}", trouble.resource, trouble.queue)
    return waiting(pods.event_text(events[-1]) if events else "no volume is bound to it yet")


@rule("Service")
def service(facts: Facts) -> Readiness:
    """A Service is ready at once; one of type LoadBalancer with its address, where that is waited for."""
    if facts.spec.get("type") != "LoadBalancer" or not facts.wait_for_load_balancer:
        return ready()
    if (facts.status.get("loadBalancer") or {}).get("ingress") or facts.spec.get("externalIPs"):
        return ready()
    warnings = facts.warnings()
    return waiting(pods.event_text(warnings[-1]) if warnings else "the load balancer has no address yet")


@rule("Namespace")
def namespace(facts: Facts) -> Readiness:
    """A namespace is ready when active."""
    phase = facts.status.get("phase")
    return ready() if phase in (None, "Active") else waiting(f"is {str(phase).lower()}")


@rule("apiextensions.k8s.io/CustomResourceDefinition")
def definition(facts: Facts) -> Readiness:
    """A definition is ready when its names are accepted and the API server serves it."""
    if facts.has("Terminating"):
        return Readiness("terminating", facts.why("Terminating"))
    for name in ("NamesAccepted", "Established"):
        condition = facts.condition(name)
        if condition.get("status") == "False" and condition.get("reason") != "Installing":
            return failed(condition_text(condition))
    return ready() if facts.has("Established") else waiting("the API server does not serve it yet")


@rule("apiregistration.k8s.io/APIService")
def api_service(facts: Facts) -> Readiness:
    """An API of another server is ready when that server answers."""
    if facts.has("Available"):
        return ready()
    return waiting(facts.why("Available") or "its server has not been asked yet")


@rule(
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
)
def webhooks(facts: Facts) -> Readiness:
    """A webhook is ready when the Service behind it has a ready endpoint: else every write it sees fails."""
    if facts.endpoints is None:
        return ready()
    dead = [f"{space}/{name}" for space, name in services_of(facts) if not facts.endpoints.get((space, name))]
    return waiting(f"Service {dead[0]} has no ready endpoint") if dead else ready()


def services_of(facts: Facts) -> Iterator[tuple[str, str]]:
    """Give namespace and name of the Services that webhooks are served by."""
    for webhook in facts.data.get("webhooks") or ():
        if service := (webhook.get("clientConfig") or {}).get("service"):
            yield str(service.get("namespace")), str(service.get("name"))


@rule("cert-manager.io/Issuer", "cert-manager.io/ClusterIssuer", "cert-manager.io/Certificate")
def certificate(facts: Facts) -> Readiness:
    """An issuer or certificate is ready when it says so; what fails is tried again."""
    if facts.has("Ready"):
        return ready()
    return unseen(facts) or waiting(facts.why("Ready") or facts.why("Issuing") or "is not issued yet")


@rule("gateway.networking.k8s.io/Gateway")
def gateway(facts: Facts) -> Readiness:
    """A Gateway is ready when it is programmed into whatever carries the traffic."""
    if facts.has("Programmed"):
        return ready()
    accepted = facts.condition("Accepted")
    if accepted.get("status") == "False" and accepted.get("reason") not in ("Pending", "NotReconciled"):
        return failed(condition_text(accepted))
    reason = facts.why("Programmed") or condition_text(accepted)
    return unseen(facts) or waiting(reason or "is not programmed yet")


@rule("autoscaling/HorizontalPodAutoscaler")
def autoscaler(facts: Facts) -> Readiness:
    """An autoscaler is ready at once: without metrics it changes nothing, which is worth a remark."""
    active = facts.condition("ScalingActive")
    is_stuck = active.get("status") == "False" and active.get("reason") != "ScalingDisabled"
    return ready(f"cannot scale: {condition_text(active)}" if is_stuck else "")


rule("policy/PodDisruptionBudget", "networking.k8s.io/Ingress")(lambda facts: ready())
