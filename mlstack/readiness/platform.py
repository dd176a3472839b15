"""Readiness of what the platform brings: API extensions, webhooks, certificates, gateways, autoscalers."""

from __future__ import annotations

from collections.abc import Iterator

from mlstack.readiness.operators import unseen
from mlstack.readiness.rule import (
    REPLACEMENTS,
    Facts,
    Readiness,
    Replacement,
    condition_text,
    failed,
    ready,
    rule,
    waiting,
)

REPLACEMENTS.register("apiextensions.k8s.io/CustomResourceDefinition")(
    Replacement(never="every object of its kind would be lost", shared=True)
)


@rule("apiextensions.k8s.io/CustomResourceDefinition")
def definition(facts: Facts) -> Readiness:
    """A definition is ready when its names are accepted and the API server serves it."""
    if facts.has("Terminating"):
        return Readiness(state="terminating", reason=condition_text(facts.condition("Terminating")))
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
    return waiting(condition_text(facts.condition("Available")) or "its server has not been asked yet")


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
        service = (webhook.get("clientConfig") or {}).get("service")
        if service:
            yield str(service.get("namespace")), str(service.get("name"))


@rule("cert-manager.io/Issuer", "cert-manager.io/ClusterIssuer", "cert-manager.io/Certificate")
def certificate(facts: Facts) -> Readiness:
    """An issuer or certificate is ready when it says so; what fails is tried again."""
    if facts.has("Ready"):
        return ready()
    reason = condition_text(facts.condition("Ready")) or condition_text(facts.condition("Issuing"))
    return unseen(facts) or waiting(reason or "is not issued yet")


@rule("gateway.networking.k8s.io/Gateway")
def gateway(facts: Facts) -> Readiness:
    """A Gateway is ready when it is programmed into whatever carries the traffic."""
    if facts.has("Programmed"):
        return ready()
    refused = facts.condition("Accepted")
    if refused.get("status") == "False" and refused.get("reason") not in ("Pending", "NotReconciled"):
        return failed(condition_text(refused))
    reason = condition_text(facts.condition("Programmed")) or condition_text(refused)
    return unseen(facts) or waiting(reason or "is not programmed yet")


@rule("autoscaling/HorizontalPodAutoscaler")
def autoscaler(facts: Facts) -> Readiness:
    """An autoscaler is ready at once: without metrics it changes nothing, which is worth a remark."""
    active = facts.condition("ScalingActive")
    if active.get("status") == "False" and active.get("reason") != "ScalingDisabled":
        return ready(f"cannot scale: {condition_text(active)}")
    return ready()


@rule("policy/PodDisruptionBudget", "networking.k8s.io/Ingress")
def settled(facts: Facts) -> Readiness:
    """Nothing more is to be waited for once the newest version was looked at."""
    return ready()
