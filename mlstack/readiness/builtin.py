"""Readiness of the core group and of what a platform brings: pods, claims, Services, webhooks, gateways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mlstack.readiness import pods
from mlstack.readiness.rule import (
    REPLACEMENTS,
    SUSPENDED,
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
    unseen,
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


# --- workloads ---


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
    if facts.has("ReplicaFailure"):
        return facts.why("ReplicaFailure")
    warnings = facts.warnings()
    return str(warnings[-1].get("message") or warnings[-1].get("reason")) if warnings else ""
