"""Readiness of machine-learning kinds."""

from collections.abc import Mapping
from typing import Any

from mlstack.model.readiness import pods
from mlstack.model.readiness.base import (
    Facts,
    Readiness,
    condition_text,
    failed,
    number,
    ready,
    rule,
    waiting,
)

# After this time without a sign of life the operator is most likely not there.
UNSEEN_S = 10.0

_ROLE_FIELDS = (
    "tfReplicaSpecs",
    "pytorchReplicaSpecs",
    "mpiReplicaSpecs",
    "xgbReplicaSpecs",
    "paddleReplicaSpecs",
    "jaxReplicaSpecs",
)
_ROLE_LABEL = "training.kubeflow.org/replica-type"
_PLURALS = {"worker": "workers", "chief": "chief", "master": "master", "ps": "PS", "evaluator": "evaluator"}


@rule(
    "kubeflow.org/TFJob",
    "kubeflow.org/PyTorchJob",
    "kubeflow.org/MPIJob",
    "kubeflow.org/XGBoostJob",
    "kubeflow.org/PaddleJob",
    "kubeflow.org/JAXJob",
)
def training_job(facts: Facts) -> Readiness:
    """A training job is ready when every role has all its pods at work.

    The condition Running says less: it is true as soon as one worker runs. The counts of a finished
    job say nothing: pods that still run are counted as succeeded.
    """
    if facts.has("Failed"):
        return failed(_failure(facts))
    if facts.has("Succeeded"):
        return Readiness(state="done", reason=condition_text(facts.condition("Succeeded")))
    if facts.has("Suspended"):
        return Readiness(state="suspended", reason="suspended")
    counts = [(role, *_count(facts, role, spec)) for role, spec in _roles(facts).items()]
    lacking = [(role, have, want) for role, have, want in counts if have < want]
    if not lacking:
        return ready(", ".join(_counted(role, have, want) for role, have, want in counts))
    if not facts.status and not facts.events and facts.age_s > UNSEEN_S:
        return waiting(f"no training operator has picked it up after {int(facts.age_s)} s")
    role, have, want = lacking[0]
    others = [_counted(*one) for one in counts if one[0] != role]
    rest = f" ({', '.join(others)})" if others else ""
    text = f"{have} of {want} {_words(role)} run{rest}"
    why, resource = _why(facts, role)
    who = _words(role)[:1].upper() + _words(role)[1:]
    return waiting(f"{text}. {who} wait: {why}" if why else text, resource=resource)


def _roles(facts: Facts) -> dict[str, Mapping[str, Any]]:
    """Give the roles of the job, the ones people look at first in front."""
    named = [facts.spec[name] for name in _ROLE_FIELDS if isinstance(facts.spec.get(name), Mapping)]
    roles = named[0] if named else {}
    return {role: roles[role] for role in sorted(roles, key=_importance)}


def _importance(role: str) -> tuple[int, str]:
    known = list(_PLURALS)
    return known.index(role.lower()) if role.lower() in known else len(known), role


def _count(facts: Facts, role: str, spec: Mapping[str, Any]) -> tuple[int, int]:
    status = (facts.status.get("replicaStatuses") or {}).get(role) or {}
    return number(status, "active") + number(status, "succeeded"), number(spec, "replicas", 1)


def _counted(role: str, have: int, want: int) -> str:
    return f"{_words(role)} {have} of {want}"


def _words(role: str) -> str:
    return _PLURALS.get(role.lower(), role)


def _why(facts: Facts, role: str) -> tuple[str, str]:
    """Give what a role waits for, and the extended resource if it is one."""
    own = [pod for pod in facts.pods if _role_of(pod) == role.lower()]
    found = pods.worst(own, facts)
    if found is not None:
        return found.reason, found.resource
    events = facts.own_events()
    if events:
        return _refusal(events[-1]), ""
    if facts.has("Restarting"):
        return "a pod that failed is being started again", ""
    return "", ""


def _role_of(pod: Mapping[str, Any]) -> str:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return str(labels.get(_ROLE_LABEL, "")).lower()


def _refusal(event: Mapping[str, Any]) -> str:
    if event.get("reason") == "FailedCreatePod":
        return f"a pod was refused: {event.get('message')}"
    return pods.event_text(event)


def _failure(facts: Facts) -> str:
    """Give the job's own message, and the end of the first failed pod if it is still there."""
    text = condition_text(facts.condition("Failed"))
    found = pods.worst(facts.pods, facts)
    return f"{text} ({found.reason})" if found is not None and found.is_final else text
