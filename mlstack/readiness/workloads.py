"""Readiness of built-in workloads: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job."""

from __future__ import annotations

from dataclasses import replace

from mlstack.readiness import pods
from mlstack.readiness.rule import (
    REPLACEMENTS,
    SUSPENDED,
    Facts,
    Readiness,
    Replacement,
    done,
    failed,
    job_rule,
    number,
    ready,
    rule,
    waiting,
)

# A new run is what a change of a Job means.
REPLACEMENTS.register("batch/Job")(Replacement(unasked="Kubernetes does not change the pods of a Job."))
_MUTABLE = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "minReadySeconds")
REPLACEMENTS.register("apps/StatefulSet")(
    Replacement(mutable=tuple(f"spec.{name}" for name in (*_MUTABLE, "persistentVolumeClaimRetentionPolicy")))
)


@rule("apps/Deployment")
def deployment(facts: Facts) -> Readiness:
    """A Deployment is ready when all pods of its newest template are available and the old ones gone.

    A pod that waits for a node, a GPU say, only queues: it is no failure, although Kubernetes says
    ProgressDeadlineExceeded after ten minutes.
    """
    if facts.spec.get("paused"):
        return Readiness("suspended", "its rollout is paused")
    want, names = number(facts.spec, "replicas", 1), ("replicas", "updatedReplicas", "readyReplicas")
    total, updated, fit = (number(facts.status, name) for name in names)
    if facts.condition("Progressing").get("reason") == "ProgressDeadlineExceeded":
        trouble = pods.worst(facts.pods, facts)
        if not (trouble or pods.refused(_refusal(facts))).queue:
            return failed(trouble.reason if trouble else _refusal(facts) or facts.why("Progressing"))
    # The status counts the ready pods of all templates together.
    if total <= updated:
        new = min(updated, fit)
    elif facts.pods:
        new = min(updated, sum(pods.is_ready(pod) for pod in facts.pods))
    else:  # unless old pods are broken too, whatever is not ready is new
        new = max(0, min(updated, fit) - (total - fit))
    if new < want or fit < want:
        return _pods_missing(facts, new, want, what="new pods" if total > updated else "pods")
    if total > want:
        return _ending(total - want, "old pod")
    available = number(facts.status, "availableReplicas")
    return waiting(f"{available} of {want} pods are available") if available < want else _all(want)


@rule("apps/StatefulSet")
def stateful_set(facts: Facts) -> Readiness:
    """A StatefulSet is ready when all pods are ready at the newest revision that its strategy asks for."""
    want, have, revision = number(facts.spec, "replicas", 1), facts.status, facts.status.get("updateRevision")
    new: list[pods.Pod] = []
    old: list[pods.Pod] = []
    for pod in facts.pods:  # faults of older pods are not those of the new revision
        labels = (pod.get("metadata") or {}).get("labels") or {}
        is_new = revision is None or labels.get("controller-revision-hash", revision) == revision
        (new if is_new else old).append(pod)
    facts = replace(facts, pods=new)
    fit, updated = number(have, "readyReplicas"), number(have, "updatedReplicas")
    if facts.spec.get("podManagementPolicy") != "Parallel" and (stuck := pods.worst(old, facts)):
        name = next(str(pod["metadata"]["name"]) for pod in old if pods.trouble(pod, facts))
        # https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback
        return waiting(
            f"{fit} of {want} pods ready: old pod {name} is stuck ({stuck.reason}); a StatefulSet does not "
            f"replace such a pod by itself: kubectl delete pod {name}"
        )
    if fit < want:
        return _pods_missing(facts, fit, want)
    if number(have, "replicas") > want:
        return _ending(number(have, "replicas") - want, "surplus pod")
    strategy = facts.spec.get("updateStrategy") or {}
    partition = number(strategy.get("rollingUpdate") or {}, "partition")
    is_old = updated < want - partition if partition else have.get("currentRevision") != revision
    if is_old and strategy.get("type") != "OnDelete":
        return pods.because(facts, f"{updated} of {want - partition} pods are updated")
    return _all(want)


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
    want, counts = (
        number(have, "desiredNumberScheduled"),
        ["currentNumberScheduled", "numberAvailable", "numberReady"],
    )
    if (facts.spec.get("updateStrategy") or {}).get("type") != "OnDelete":
        counts.append("updatedNumberScheduled")
    least = min(number(have, name) for name in counts)
    return ready(f"{want} of {want} nodes") if least >= want else _pods_missing(facts, least, want)


@rule("apps/ReplicaSet", "ReplicationController")
def replica_set(facts: Facts) -> Readiness:
    """A ReplicaSet is ready when its pods are."""
    want, have = number(facts.spec, "replicas", 1), facts.status
    if number(have, "readyReplicas") < want or number(have, "availableReplicas") < want:
        return _pods_missing(facts, number(have, "readyReplicas"), want)
    surplus = number(have, "replicas") - want
    return _ending(surplus, "surplus pod") if surplus > 0 else _all(want)


@job_rule("batch/Job")
def job(facts: Facts) -> Readiness:
    """A Job is done when complete, ready while all pods it may run now are running."""
    if facts.has("Complete"):
        return done("complete")
    for name in ("Failed", "FailureTarget"):
        if facts.has(name):
            trouble = pods.worst(facts.pods, facts)
            more = f" ({trouble.reason})" if trouble and trouble.is_final else ""
            return failed(f"{facts.why(name)}{more}")
    if facts.has("Suspended") or facts.spec.get("suspend"):
        queue = (facts.metadata.get("labels") or {}).get("kueue.x-k8s.io/queue-name")
        return Readiness("suspended", f"waits in queue `{queue}`") if queue else SUSPENDED
    parallel = number(facts.spec, "parallelism", 1)
    want = min(parallel, number(facts.spec, "completions", parallel))
    have = number(facts.status, "ready") + number(facts.status, "succeeded")
    return ready("running") if have >= want else _pods_missing(facts, have, want, is_job=True)


@rule("batch/CronJob")
def cron_job(facts: Facts) -> Readiness:
    """A CronJob is ready when it is there: what it runs comes later."""
    return SUSPENDED if facts.spec.get("suspend") else ready()


def _all(want: int) -> Readiness:
    return ready(f"{want} of {want} pods")


def _ending(count: int, what: str) -> Readiness:
    return waiting(f"{count} {what}{'s are' if count > 1 else ' is'} ending")


def _pods_missing(
    facts: Facts, have: int, want: int, *, is_job: bool = False, what: str = "pods"
) -> Readiness:
    """Count the pods and say what the first troubled one waits for."""
    counted, refusal = f"{have} of {want} {what} ready", _refusal(facts)
    if not refusal or len(facts.pods) >= want or pods.worst(facts.pods, facts) is not None:
        return pods.because(facts, counted, is_job=is_job)
    refused = pods.refused(refusal)
    return waiting(f"{counted}: {refused.reason}", queue=refused.queue)


def _refusal(facts: Facts) -> str:
    """Give the API server's reason for taking no more pods."""
    if facts.has("ReplicaFailure"):
        return facts.why("ReplicaFailure")
    warnings = facts.warnings()
    return str(warnings[-1].get("message") or warnings[-1].get("reason")) if warnings else ""
