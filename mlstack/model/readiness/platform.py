"""Readiness of kinds that extend the API server."""

from mlstack.model.readiness.base import Facts, Readiness, condition_text, failed, ready, rule, waiting


@rule("apiextensions.k8s.io/CustomResourceDefinition")
def definition(facts: Facts) -> Readiness:
    """A definition is ready when its names are accepted and the API server serves it."""
    if facts.has("Terminating"):
        return Readiness(state="terminating", reason=condition_text(facts.condition("Terminating")))
    for name in ("NamesAccepted", "Established"):
        found = facts.condition(name)
        if found.get("status") == "False" and found.get("reason") != "Installing":
            return failed(condition_text(found))
    return ready() if facts.has("Established") else waiting("the API server does not serve it yet")


@rule("apiregistration.k8s.io/APIService")
def api_service(facts: Facts) -> Readiness:
    """An API of another server is ready when that server answers."""
    if facts.has("Available"):
        return ready()
    return waiting(condition_text(facts.condition("Available")) or "its server has not been asked yet")
