"""Readiness of built-in workloads: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job."""

from __future__ import annotations

from dataclasses import replace

from mlstack.readiness import pods
from mlstack.readiness.rule import (
    REPLACEMENTS,
    Facts,
    Readiness,
    Replacement,
    condition_text,
    done,
    failed,
    job_rule,
    number,
    ready,
    rule,
    suspended,
    waiting,
)

_REVISION_LABEL = "controller-revision-hash"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

# A new run is what a change of a Job means.
REPLACEMENTS.register("batch/Job")(Replacement(unasked="Kubernetes does not change the pods of a Job."))
REPLACEMENTS.register("apps/StatefulSet")(
    Replacement(
        mutable=(
            "spec.replicas",
            "spec.ordinals",
            "spec.template",
            "spec.updateStrategy",
            "spec.revisionHistoryLimit",
            "spec.persistentVolumeClaimRetentionPolicy",
            "spec.minReadySeconds",
        )
    )
)


@rule("apps/Deployment")
def deployment(facts: Facts) -> Readiness:
    """A Deployment is ready when all pods of its newest template are available and the old ones gone.

    A pod that waits for a node, a GPU say, only queues: it is no failure, although Kubernetes says
    ProgressDeadlineExceeded after ten minutes.
    """
    want, have = number(facts.spec, "replicas", 1), facts.status
    if facts.spec.get("paused"):
        return suspended("its rollout is paused")
    deadline = facts.condition("Progressing")
    if deadline.get("reason") == "ProgressDeadlineExceeded" and not _queues(facts):
        trouble = pods.worst(facts.pods, facts)
        return failed(trouble.reason if trouble else _refusal(facts) or condition_text(deadline))
    surplus = number(have, "replicas") - want
    new = _new_pods_ready(facts)
    if new < want or number(have, "readyReplicas") < want:
        is_update = number(have, "replicas") > number(have, "updatedReplicas")
        return _pods_missing(facts, new, want, what="new pods" if is_update else "pods")
    if surplus > 0:
        return _ending(surplus, "old pod")
    if number(have, "availableReplicas") < want:
        return waiting(f"{number(have, 'availableReplicas')} of {want} pods are available")
    return ready(f"{want} of {want} pods")


def _new_pods_ready(facts: Facts) -> int:
    """Count the ready pods of the newest template; the status counts those of all templates together."""
    have = facts.status
    updated, total, fit = (number(have, f"{name}eplicas") for name in ("updatedR", "r", "readyR"))
    if total <= updated:
        return min(updated, fit)
    if facts.pods:
        return min(updated, sum(pods.is_ready(pod) for pod in facts.pods))
    # Unless old pods are broken too, whatever is not ready is new.
    return max(0, min(updated, fit) - (total - fit))


def _queues(facts: Facts) -> bool:
    trouble = pods.worst(facts.pods, facts)
    return bool(trouble.queue if trouble else pods.refused(_refusal(facts)).queue)


@rule("apps/StatefulSet")
def stateful_set(facts: Facts) -> Readiness:
    """A StatefulSet is ready when all pods are ready at the newest revision that its strategy asks for."""
    want, have = number(facts.spec, "replicas", 1), facts.status
    strategy = facts.spec.get("updateStrategy") or {}
    old, facts = _apart(facts)
    is_ordered = facts.spec.get("podManagementPolicy") != "Parallel"
    if is_ordered and (stuck := pods.worst(old, facts)):
        name = next(str(pod["metadata"]["name"]) for pod in old if pods.trouble(pod, facts))
        return waiting(f"{_counted(facts)}: old pod {name} is stuck ({stuck.reason}){_NOT_REPLACED}{name}")
    if number(have, "readyReplicas") < want:
        return _pods_missing(facts, number(have, "readyReplicas"), want)
    if number(have, "replicas") > want:
        return _ending(number(have, "replicas") - want, "surplus pod")
    if strategy.get("type") == "OnDelete":
        return ready(f"{want} of {want} pods")
    partition = number(strategy.get("rollingUpdate") or {}, "partition")
    if partition and number(have, "updatedReplicas") < want - partition:
        return pods.because(
            facts, f"{number(have, 'updatedReplicas')} of {want - partition} pods are updated"
        )
    if not partition and have.get("currentRevision") != have.get("updateRevision"):
        return pods.because(facts, f"{number(have, 'updatedReplicas')} of {want} pods are updated")
    return ready(f"{want} of {want} pods")


# https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback
_NOT_REPLACED = "; a StatefulSet does not replace such a pod by itself: kubectl delete pod "


def _apart(facts: Facts) -> tuple[list[pods.Pod], Facts]:
    """Take the pods of an older revision out: their faults are not those of the new one."""
    wanted = facts.status.get("updateRevision")

    def is_new(pod: pods.Pod) -> bool:
        labels = (pod.get("metadata") or {}).get("labels") or {}
        return wanted is None or labels.get(_REVISION_LABEL, wanted) == wanted

    old = [pod for pod in facts.pods if not is_new(pod)]
    return old, replace(facts, pods=[pod for pod in facts.pods if is_new(pod)])


def _counted(facts: Facts) -> str:
    return f"{number(facts.status, 'readyReplicas')} of {number(facts.spec, 'replicas', 1)} pods ready"


@rule("apps/DaemonSet")
def daemon_set(facts: Facts) -> Readiness:
    """A DaemonSet is ready when every node it wants has a ready, updated pod.

    With the strategy OnDelete old pods stay until a person deletes them: nothing is to be waited for.
    """
    have = facts.status
    # The API server itself writes zeros into the status of a new one: 0 of 0 nodes would be ready at once.
    is_counted = "observedGeneration" in have or "generation" not in facts.metadata
    if "desiredNumberScheduled" not in have or not is_counted:
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
    if number(have, "readyReplicas") < want or number(have, "availableReplicas") < want:
        return _pods_missing(facts, number(have, "readyReplicas"), want)
    if number(have, "replicas") > want:
        return _ending(number(have, "replicas") - want, "surplus pod")
    return ready(f"{want} of {want} pods")


@job_rule("batch/Job")
def job(facts: Facts) -> Readiness:
    """A Job is done when complete, ready while all pods it may run now are running."""
    if facts.has("Complete"):
        return done("complete")
    for name in ("Failed", "FailureTarget"):
        if facts.has(name):
            trouble = pods.worst(facts.pods, facts)
            why = condition_text(facts.condition(name))
            return failed(f"{why} ({trouble.reason})" if trouble and trouble.is_final else why)
    queue = (facts.metadata.get("labels") or {}).get(_QUEUE_LABEL)
    if facts.has("Suspended") or facts.spec.get("suspend"):
        return suspended(f"waits in queue `{queue}`" if queue else "suspended")
    parallel = number(facts.spec, "parallelism", 1)
    want = min(parallel, number(facts.spec, "completions", parallel))
    have = number(facts.status, "ready") + number(facts.status, "succeeded")
    return ready("running") if have >= want else _pods_missing(facts, have, want, is_job=True)


@rule("batch/CronJob")
def cron_job(facts: Facts) -> Readiness:
    """A CronJob is ready when it is there: what it runs comes later."""
    return suspended() if facts.spec.get("suspend") else ready()


def _ending(count: int, what: str) -> Readiness:
    return waiting(f"{count} {what}{'s are' if count > 1 else ' is'} ending")


def _pods_missing(
    facts: Facts, have: int, want: int, *, is_job: bool = False, what: str = "pods"
) -> Readiness:
    """Count the pods and say what the first troubled one waits for."""
    counted = f"{have} of {want} {what} ready"
    has_trouble = pods.worst(facts.pods, facts) is not None
    refusal = _refusal(facts) if len(facts.pods) < want and not has_trouble else ""
    if not refusal:
        return pods.because(facts, counted, is_job=is_job)
    refused = pods.refused(refusal)
    return waiting(f"{counted}: {refused.reason}", queue=refused.queue)


def _refusal(facts: Facts) -> str:
    """Give the API server's reason for taking no more pods."""
    if facts.has("ReplicaFailure"):
        return condition_text(facts.condition("ReplicaFailure"))
    own = facts.own_events()
    return str(own[-1].get("message") or own[-1].get("reason")) if own else ""
