"""Readiness of built-in workloads: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job."""

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


@rule("apps/Deployment")
def deployment(facts: Facts) -> Readiness:
    """A Deployment is ready when all pods of its newest template are available and the old ones gone.

    A pod that waits for a node, a GPU say, only queues: it is no failure, although Kubernetes says
    ProgressDeadlineExceeded after ten minutes.
    """
    want, have = number(facts.spec, "replicas", 1), facts.status
    if facts.condition("Progressing").get("reason") == "ProgressDeadlineExceeded":
        found = pods.worst(facts.pods, facts)
        if found is None or found.is_final:
            return failed(found.reason if found else condition_text(facts.condition("Progressing")))
    if facts.has("ReplicaFailure"):
        return waiting(_refused(condition_text(facts.condition("ReplicaFailure"))))
    if number(have, "updatedReplicas") < want or number(have, "readyReplicas") < want:
        return _pods_missing(facts, min(number(have, "updatedReplicas"), number(have, "readyReplicas")), want)
    if number(have, "replicas") > want:
        return waiting(f"{number(have, 'replicas') - want} old pods are ending")
    if number(have, "availableReplicas") < want:
        return waiting(f"{number(have, 'availableReplicas')} of {want} pods are available")
    return ready(f"{want} of {want} pods")


@rule("apps/StatefulSet")
def stateful_set(facts: Facts) -> Readiness:
    """A StatefulSet is ready when all pods are ready at the newest revision that its strategy asks for."""
    want, have = number(facts.spec, "replicas", 1), facts.status
    strategy = facts.spec.get("updateStrategy") or {}
    if number(have, "readyReplicas") < want:
        return _pods_missing(facts, number(have, "readyReplicas"), want)
    if number(have, "replicas") > want:
        return waiting(f"{number(have, 'replicas') - want} pods too many are ending")
    if strategy.get("type") == "OnDelete":
        return ready(f"{want} of {want} pods")
    partition = number(strategy.get("rollingUpdate") or {}, "partition")
    if partition and number(have, "updatedReplicas") < want - partition:
        return waiting(f"{number(have, 'updatedReplicas')} of {want - partition} pods are updated")
    if not partition and have.get("currentRevision") != have.get("updateRevision"):
        return waiting(f"{number(have, 'updatedReplicas')} of {want} pods are updated")
    return ready(f"{want} of {want} pods")


@rule("apps/DaemonSet")
def daemon_set(facts: Facts) -> Readiness:
    """A DaemonSet is ready when every node it wants has a ready, updated pod."""
    have = facts.status
    if "desiredNumberScheduled" not in have:
        return waiting("its controller has not counted the nodes yet")
    want = number(have, "desiredNumberScheduled")
    updates = (facts.spec.get("updateStrategy") or {}).get("type") != "OnDelete"
    counts = ["currentNumberScheduled", "numberAvailable", "numberReady"]
    least = min(number(have, name) for name in [*counts, *(["updatedNumberScheduled"] if updates else [])])
    return ready(f"{want} of {want} nodes") if least >= want else _pods_missing(facts, least, want)


@rule("apps/ReplicaSet", "ReplicationController")
def replica_set(facts: Facts) -> Readiness:
    """A ReplicaSet is ready when its pods are."""
    want, have = number(facts.spec, "replicas", 1), facts.status
    if facts.has("ReplicaFailure"):
        return waiting(_refused(condition_text(facts.condition("ReplicaFailure"))))
    if number(have, "readyReplicas") < want or number(have, "availableReplicas") < want:
        return _pods_missing(facts, number(have, "readyReplicas"), want)
    return ready(f"{want} of {want} pods")


@rule("batch/Job")
def job(facts: Facts) -> Readiness:
    """A Job is done when complete, ready while all pods it may run now are running."""
    if facts.has("Complete"):
        return Readiness(state="done", reason="complete")
    if facts.has("Failed"):
        found = pods.worst(facts.pods, facts)
        why = condition_text(facts.condition("Failed"))
        return failed(f"{why} ({found.reason})" if found and found.is_final else why)
    if facts.has("Suspended"):
        return Readiness(state="suspended", reason="suspended")
    parallel = number(facts.spec, "parallelism", 1)
    want = min(parallel, number(facts.spec, "completions", parallel))
    have = number(facts.status, "ready") + number(facts.status, "succeeded")
    return ready("running") if have >= want else _pods_missing(facts, have, want)


def _pods_missing(facts: Facts, have: int, want: int) -> Readiness:
    """Count the pods and say what the first troubled one waits for."""
    counted = f"{have} of {want} pods ready"
    found = pods.worst(facts.pods, facts)
    if found is not None:
        text = f"{counted}: {found.reason}"
        return failed(text) if found.is_final else waiting(text, resource=found.resource)
    own = facts.own_events()
    if own and len(facts.pods) < want:
        return waiting(f"{counted}: {_refused(str(own[-1].get('message') or own[-1].get('reason')))}")
    return waiting(counted)


def _refused(message: str) -> str:
    return f"a pod was refused: {message}"
