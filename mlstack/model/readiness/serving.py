"""Readiness of model serving and notebooks: KServe, Knative, Seldon, Argo Rollouts, Notebook."""

from mlstack.model.readiness import pods
from mlstack.model.readiness.base import (
    Facts,
    Readiness,
    condition_text,
    failed,
    number,
    ready,
    rule,
    suspended,
    waiting,
)
from mlstack.model.readiness.operators import unseen

_STOPPED_NOTEBOOK = "kubeflow-resource-stopped"


@rule("serving.kserve.io/InferenceService")
def inference_service(facts: Facts) -> Readiness:
    """An InferenceService is ready when every condition holds and the wanted model is loaded."""
    if facts.has("Stopped"):
        return suspended("stopped")
    model = facts.status.get("modelStatus") or {}
    transition = model.get("transitionStatus") or "UpToDate"
    if transition not in ("UpToDate", "InProgress"):
        return failed(_model_failure(facts) or str(transition))
    conditions = [
        one
        for one in facts.status.get("conditions") or ()
        if one.get("type") != "Stopped" and one.get("severity") != "Info"
    ]
    lacking = [one for one in conditions if one.get("status") != "True"]
    if conditions and not lacking and transition == "UpToDate":
        return ready()
    said = [text for one in lacking if (text := condition_text(one))]
    text = said[0] if said else "its model is being loaded" if conditions else "is being started"
    return unseen(facts) or pods.because(facts, text)


def _model_failure(facts: Facts) -> str:
    found = (facts.status.get("modelStatus") or {}).get("lastFailureInfo") or {}
    parts = [str(found[name]) for name in ("reason", "message") if found.get(name)]
    return ": ".join(parts)


@rule("serving.knative.dev/Service")
def knative_service(facts: Facts) -> Readiness:
    """A Knative Service is ready when it says so."""
    if facts.has("Ready"):
        return ready()
    said = condition_text(facts.condition("Ready"))
    return unseen(facts) or pods.because(facts, said or "is being started")


@rule("machinelearning.seldon.io/SeldonDeployment")
def seldon_deployment(facts: Facts) -> Readiness:
    """A SeldonDeployment says in its state how it is."""
    state = str(facts.status.get("state") or "")
    why = str(facts.status.get("description") or "")
    if state == "Available":
        return ready()
    if state == "Failed":
        return failed(why or "failed")
    return unseen(facts) or pods.because(facts, why or f"is {state.lower() or 'new'}")


@rule("argoproj.io/Rollout")
def rollout(facts: Facts) -> Readiness:
    """A Rollout is ready when healthy; one that waits for a person's promotion is held on purpose."""
    phase, why = str(facts.status.get("phase") or ""), str(facts.status.get("message") or "")
    if phase == "Healthy":
        return ready()
    if phase == "Degraded":
        return failed(why or "degraded")
    if phase == "Paused" or facts.spec.get("paused"):
        return suspended(why or "paused")
    return unseen(facts) or pods.because(facts, why or "is being rolled out")


@rule("kubeflow.org/Notebook")
def notebook(facts: Facts) -> Readiness:
    """A Notebook is ready when its pod is, held on purpose when it was stopped."""
    if _STOPPED_NOTEBOOK in (facts.metadata.get("annotations") or {}):
        return suspended("stopped")
    if number(facts.status, "readyReplicas"):
        return ready()
    container = (facts.status.get("containerState") or {}).get("waiting") or {}
    text = ": ".join(str(container[name]) for name in ("reason", "message") if container.get(name))
    if pods.worst(facts.pods, facts) is None and text:
        return waiting(text)
    return unseen(facts) or pods.because(facts, "is being started")
