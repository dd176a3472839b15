"""Readiness of Kubernetes' own kinds, and of what a platform brings: first why a pod does not run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mlstack.dataclass import Record
from mlstack.objects.references import is_ended_by_others
from mlstack.readiness.rule import (
    REPLACEMENTS,
    SUSPENDED,
    Facts,
    Queue,
    Readiness,
    Replacement,
    age_s,
    condition,
    condition_text,
    done,
    failed,
    job_rule,
    number,
    ready,
    rule,
    time_s,
    unseen,
    waiting,
)

# --- why a pod does not run, in a sentence: scheduler, image, crash, refusal ---

Pod = Mapping[str, Any]

# What a kubelet says while it cannot start a container; none of these passes by itself.
BROKEN_STARTS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
    | {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "RegistryUnavailable"}
)
CRASHES = "CrashLoopBackOff"
# A registry may be away for a moment, a Secret or a database may arrive a moment later.
GRACE_S = 30.0
# No registry and no Secret makes a name another one; only the kubelet's first word is not taken for its last.
HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
SHORT_GRACE_S = 5.0
# By the third time, twenty and more seconds apart, it is no race at the start any more.
MOST_RESTARTS = 3
_LOG_LINES = 3
_PROBE_FAILED = "Unhealthy"  # the reason under which kubelets tell of probes
_PROBE_CHARACTERS = 300


class Trouble(Record):
    """What keeps a pod from running."""

    reason: str  # a sentence for a person
    is_final: bool = False  # waiting will not help this pod
    is_stuck: bool = False  # another pod in its place would not start either
    resource: str = ""  # the extended resource it waits for, if it does
    queue: Queue = ""  # what it only queues for


class Crash(NamedTuple):
    """A container that ended badly, and said nothing of it but in its log."""

    namespace: str
    pod: str
    uid: str  # of its pod
    container: str
    code: int  # its exit code
    previous: bool  # whether it was started again meanwhile


def crash(facts: Facts) -> Crash | None:
    """Give the crash that the reason of an object tells of; None without one, or if it left a message."""
    pod, _ = _worst((facts.data,) if facts.data.get("kind") == "Pod" else facts.pods, facts)
    status = (pod or {}).get("status") or {}
    previous = status.get("phase") != "Failed"
    for container in _containers(status):
        ended = (container.get("lastState" if previous else "state") or {}).get("terminated") or {}
        is_up = previous and container.get("ready")
        if pod is None or is_up or not (ended.get("exitCode") or (previous and "exitCode" in ended)):
            continue
        if ended.get("message"):
            return None
        namespace, name, uid = (str(pod["metadata"].get(key) or "") for key in ("namespace", "name", "uid"))
        return Crash(namespace, name, uid, str(container.get("name")), ended["exitCode"], previous)
    return None


def trouble_of(pod: Pod, facts: Facts) -> Trouble | None:
    """Say what keeps a pod from running; None if nothing does."""
    status = pod.get("status") or {}
    if status.get("phase") != "Failed":
        return _unscheduled(pod, facts) or _broken_start(pod, facts) or _first_event(pod, facts)
    reason = str(status.get("message") or status.get("reason") or "the pod failed")
    for container in _containers(status):  # the first that failed says more
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason = f"container {container.get('name')}: {_ended(ended, pod, container, facts)}"
            break
    return Trouble(reason=reason, is_final=not is_ended_by_others(str(status.get("reason") or "")))


def worst(pods: Sequence[Pod], facts: Facts) -> Trouble | None:
    """Give the trouble of the pods that a person should see first: final ones before others.

    Pods that are being deleted say nothing about the workload any more.
    """
    return _worst(pods, facts)[1]


def _worst(pods: Sequence[Pod], facts: Facts) -> tuple[Pod, Trouble] | tuple[None, None]:
    troubles = [(pod, why) for pod in _unready(pods) if (why := trouble_of(pod, facts))]
    return next((pair for pair in troubles if pair[1].is_final), troubles[0] if troubles else (None, None))


def _unready(pods: Sequence[Pod]) -> list[Pod]:
    staying = [pod for pod in pods if not (pod.get("metadata") or {}).get("deletionTimestamp")]
    return [pod for pod in staying if not is_ready(pod)]


def because(facts: Facts, text: str, *, is_job: bool = False) -> Readiness:
    """Say that an object waits, as `text` says and its pods do; it has failed if they can never run.

    Of a job a pod that ended badly is tried again, so that only one that cannot start counts.
    """
    ends = ("Failed", "Succeeded") if is_job else ()
    living = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") not in ends]
    why = worst(living or facts.pods, facts)
    if why is None:
        warnings = [] if facts.pods else facts.warnings()[-1:]
        running = [pod for pod in _unready(facts.pods) if (pod.get("status") or {}).get("phase") == "Running"]
        more = [event_text(event) for event in warnings if str(event.get("message") or "?") not in text]
        more += [unready(pod) for pod in running[:1]]
        return waiting(": ".join(filter(None, dict.fromkeys([text, *more]))))
    joined = ": ".join(filter(None, dict.fromkeys([text, why.reason])))
    if why.is_final and (why.is_stuck or not is_job):
        return failed(joined)
    return waiting(joined, why.resource, why.queue)


def unready(pod: Pod) -> str:
    """Say what a pod waits for of which nobody has said anything bad."""
    status = pod.get("status") or {}
    if status.get("phase") != "Running":
        return "is being started" if condition(pod, "PodScheduled") else "is not scheduled yet"
    for container in _containers(status):
        if "running" in (container.get("state") or {}) and not container.get("ready"):
            return f"container {container.get('name')} runs, but {_probe_text(pod, container)}"
    lacking = [str(item.get("name")) for item in _containers(status) if not item.get("ready")]
    reason = condition_text(condition(pod, "Ready"))
    return f"not ready: {', '.join(lacking)}" if lacking else reason or "runs, but is not ready yet"


def _probe_text(pod: Pod, container: Mapping[str, Any]) -> str:
    """Say what a running container waits for; the words of a command may hold what nobody is to read."""
    spec = pod.get("spec") or {}
    declared = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    kind, name = "startup" if container.get("started") is False else "readiness", container.get("name")
    probe = next((part.get(f"{kind}Probe") for part in declared if part.get("name") == name), None)
    if not isinstance(probe, Mapping):
        return "is not ready yet"
    forms = {
        "httpGet": "GET {path} on port {port}",
        "tcpSocket": "TCP port {port}",
        "grpc": "gRPC on port {port}",
    }
    texts = [
        form.format_map({"path": "/", "port": "", **probe[name]})
        for name, form in forms.items()
        if isinstance(probe.get(name), Mapping)
    ]
    return f"its {kind} probe{f' ({texts[0]})' if texts else ''} has not succeeded yet"


def refused(message: str) -> Readiness:
    """Say that pods are not let in: by a quota, which may be given back, or by something else."""
    over = re.search(r"exceeded quota: .*", message, re.DOTALL)
    if over is not None:
        return waiting(f"waiting for quota: {over[0].strip()}", queue="quota")
    return waiting(f"a pod was refused: {message}")


def is_ready(pod: Pod) -> bool:
    """Tell whether a pod runs and is ready, or has ended well."""
    phase = (pod.get("status") or {}).get("phase")
    is_running = phase == "Running" and condition(pod, "Ready").get("status") == "True"
    return is_running or phase == "Succeeded"


def scheduler_text(message: str) -> str:
    """Cut the scheduler's message after what matters.

    `0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: …`
    ends at the first full stop that a space follows: resource names hold full stops too.
    """
    return re.split(r"\.(?:\s|$)", message.strip(), maxsplit=1)[0]


def _unscheduled(pod: Pod, facts: Facts) -> Trouble | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    text = scheduler_text(condition_text(scheduled))
    if scheduled.get("reason") == "SchedulingGated":
        return Trouble(reason=text or "is held back until its scheduling gates are taken away", queue="quota")
    queue: Queue = "node"
    coming = ""
    if any(event.get("reason") in ("TriggeredScaleUp", "Nominated") for event in facts.about(pod)):
        queue, coming = "new-node", "; the autoscaler is adding a node"
    insufficient = re.search(r"Insufficient ([\w.-]+/[\w.-]+)", text)
    if insufficient is None:
        return Trouble(reason=text + coming, queue=queue)
    resource = insufficient[1]
    # The scheduler says the same of a cluster without such a resource and of one where all is in use.
    scarcity = f"no node has {resource} free"
    if facts.nodes is not None:
        has = [((node.get("status") or {}).get("allocatable") or {}).get(resource) for node in facts.nodes]
        in_use = any(amount is not None and str(amount) != "0" for amount in has)
        all_used = f"all {resource} of this cluster is in use or too little for one pod"
        scarcity = all_used if in_use else f"no node of this cluster has {resource}"
    short = text.replace(" nodes are available: ", " nodes: ")
    short = re.sub(r"(nodes: )\d+ (Insufficient)", r"\1\2", short)
    return Trouble(reason=f"{scarcity} ({short}){coming}", resource=resource, queue=queue)


def _broken_start(pod: Pod, facts: Facts) -> Trouble | None:
    for container in _containers(pod.get("status") or {}):
        state = (container.get("state") or {}).get("waiting") or {}
        name, reason, times = container.get("name"), state.get("reason"), container.get("restartCount", 0)
        if reason in BROKEN_STARTS:
            detail = f": {state['message']}" if state.get("message") else ""
            late = _troubled_s(pod, facts) > (SHORT_GRACE_S if reason in HOPELESS else GRACE_S)
            return Trouble(reason=f"container {name}: {reason}{detail}", is_final=late, is_stuck=late)
        last = (container.get("lastState") or {}).get("terminated") or {}
        crashed = _ended(last, pod, container, facts) if "exitCode" in last else ""
        # The probe after whose failure a kubelet starts it again; its exit code says nothing.
        probes = [event for event in _unhealthy(pod, facts) if _container_of(event) in ("", name)]
        texts = map(_probe_failure, probes)
        failures = [text for text in texts if text.startswith(("Liveness", "Startup"))]
        if reason == CRASHES:
            text = "; ".join(filter(None, (crashed, *failures[-1:])))
            late = times >= MOST_RESTARTS or _troubled_s(pod, facts) > GRACE_S
            return Trouble(reason=f"container {name}: {CRASHES}{f': {text}' if text else ''}", is_final=late)
        if times and not container.get("ready") and crashed:  # between two it runs, or waits for its probe
            text = f"container {name}: {crashed}, restarted {times} time{'s' * (times != 1)}"
            return Trouble(reason="; ".join((text, *failures[-1:])))
    return None


def _troubled_s(pod: Pod, facts: Facts) -> float:
    """Give the seconds since a pod was last well: it may have run for days before."""
    since = condition(pod, "ContainersReady") or condition(pod, "Ready")
    changed = since.get("lastTransitionTime") if since.get("status") == "False" else None
    age = age_s(pod, facts.now_s)
    return min(age, facts.now_s - time_s(changed)) if changed else age


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _ended(terminated: Mapping[str, Any], pod: Pod, container: Mapping[str, Any], facts: Facts) -> str:
    """Say how a container ended: exit code, reason, and the last lines it left behind or has written."""
    uid = str((pod.get("metadata") or {}).get("uid"))
    why = f" ({terminated['reason']})" if terminated.get("reason") not in (None, "", "Error") else ""
    lines: Sequence[str] = str(terminated.get("message") or "").strip().splitlines()[-_LOG_LINES:]
    lines = lines or facts.logs.get((uid, str(container.get("name"))), ())
    return f"exit code {terminated['exitCode']}{why}{': ' if lines else ''}{' | '.join(lines)}"


def _first_event(pod: Pod, facts: Facts) -> Trouble | None:
    """Take what a kubelet only says in events, as a volume that cannot be mounted or a probe that fails."""
    phase = (pod.get("status") or {}).get("phase")
    events = facts.warnings(pod) if phase == "Pending" else []
    if phase == "Running":
        names = {item.get("name") for item in _containers(pod["status"]) if not item.get("ready")}
        events = [
            event for event in _unhealthy(pod, facts) if not names or _container_of(event) in ("", *names)
        ]
    if not events:
        return None
    last, name = events[-1], _container_of(events[-1])
    if last.get("reason") != _PROBE_FAILED:
        return Trouble(reason=event_text(last))
    return Trouble(reason=f"container {name}: {_probe_failure(last)}" if name else _probe_failure(last))


def _unhealthy(pod: Pod, facts: Facts) -> list[Mapping[str, Any]]:
    return [event for event in facts.warnings(pod) if event.get("reason") == _PROBE_FAILED]


def _probe_failure(event: Mapping[str, Any]) -> str:
    """Give the kubelet's words, `Readiness probe failed: …`; the output of a command may have many lines."""
    lines = str(event.get("message") or event.get("reason")).strip().splitlines()
    text = " | ".join(lines[:_LOG_LINES])
    return text if len(text) <= _PROBE_CHARACTERS else f"{text[:_PROBE_CHARACTERS]}…"


def _container_of(event: Mapping[str, Any]) -> str:
    """Give the container that an event is about (`spec.containers{main}`), empty if it does not say."""
    match = re.search(r"ontainers\{(.+)\}$", str((event.get("involvedObject") or {}).get("fieldPath") or ""))
    return match[1] if match else ""


def event_text(event: Mapping[str, Any]) -> str:
    """Write an event as `reason: message`."""
    message = scheduler_text(str(event.get("message") or ""))
    return f"{event.get('reason')}: {message}" if message else str(event.get("reason"))


# --- the core group, and what a platform brings: claims, Services, webhooks, gateways ---

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
    if is_ready(facts.data):
        return ready()
    trouble = trouble_of(facts.data, facts)
    if trouble is None:
        return waiting(unready(facts.data))
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
    trouble = worst(facts.pods, facts)
    if trouble is not None and trouble.queue and all(late):
        return waiting(f"its pod waits: {trouble.reason}", trouble.resource, trouble.queue)
    return waiting(event_text(events[-1]) if events else "no volume is bound to it yet")


@rule("Service")
def service(facts: Facts) -> Readiness:
    """A Service is ready at once; one of type LoadBalancer with its address, where that is waited for."""
    is_waited_for = facts.spec.get("type") == "LoadBalancer" and facts.wait_for_load_balancer
    has_address = (facts.status.get("loadBalancer") or {}).get("ingress") or facts.spec.get("externalIPs")
    if has_address or not is_waited_for:
        return ready()
    warnings = facts.warnings()
    return waiting(event_text(warnings[-1]) if warnings else "the load balancer has no address yet")


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
        trouble = worst(facts.pods, facts)
        if not (trouble or refused(_refusal(facts))).queue:
            return failed(trouble.reason if trouble else _refusal(facts) or facts.why("Progressing"))
    # The status counts the ready pods of all templates together.
    if total <= updated:
        new = min(updated, fit)
    elif facts.pods:
        new = min(updated, sum(is_ready(pod) for pod in facts.pods))
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

    def has_old_template(pod: Pod) -> bool:
        labels = (pod.get("metadata") or {}).get("labels") or {}
        return revision is not None and labels.get("controller-revision-hash", revision) != revision

    stuck, why = _worst(list(filter(has_old_template, facts.pods)), facts)
    # Faults of older pods are not those of the new revision.
    facts = replace(facts, pods=[pod for pod in facts.pods if not has_old_template(pod)])
    fit, updated = number(have, "readyReplicas"), number(have, "updatedReplicas")
    if facts.spec.get("podManagementPolicy") != "Parallel" and stuck is not None and why is not None:
        name = stuck["metadata"]["name"]
        # https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback
        return waiting(
            f"{fit} of {want} pods ready: old pod {name} is stuck ({why.reason}); a StatefulSet does not "
            f"replace such a pod by itself: kubectl delete pod {name} -n {stuck['metadata'].get('namespace')}"
        )
    if fit < want:
        return _pods_missing(facts, fit, want)
    if number(have, "replicas") > want:
        return _ending(number(have, "replicas") - want, "surplus pod")
    strategy = facts.spec.get("updateStrategy") or {}
    partition = number(strategy.get("rollingUpdate") or {}, "partition")
    is_old = updated < want - partition if partition else have.get("currentRevision") != revision
    if is_old and strategy.get("type") != "OnDelete":
        return because(facts, f"{updated} of {want - partition} pods are updated")
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
    counts = ["currentNumberScheduled", "numberAvailable", "numberReady"]
    if (facts.spec.get("updateStrategy") or {}).get("type") != "OnDelete":
        counts.append("updatedNumberScheduled")
    want, least = number(have, "desiredNumberScheduled"), min(number(have, name) for name in counts)
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
            trouble = worst(facts.pods, facts)
            more = f" ({trouble.reason})" if trouble and trouble.is_final else ""
            return failed(f"{facts.why(name)}{more}")
    if facts.has("Suspended") or facts.spec.get("suspend"):
        queue = (facts.metadata.get("labels") or {}).get("kueue.x-k8s.io/queue-name")
        return Readiness("suspended", f"waits in queue `{queue}`") if queue else SUSPENDED
    parallel = number(facts.spec, "parallelism", 1)
    want = min(parallel, number(facts.spec, "completions", parallel))
    have = number(facts.status, "ready") + number(facts.status, "succeeded")
    return ready("running") if have >= want else _pods_missing(facts, have, want, is_job=True)


def _all(want: int) -> Readiness:
    return ready(f"{want} of {want} pods")


def _ending(count: int, what: str) -> Readiness:
    return waiting(f"{count} {what}{'s are' if count > 1 else ' is'} ending")


def _pods_missing(
    facts: Facts, have: int, want: int, *, is_job: bool = False, what: str = "pods"
) -> Readiness:
    """Count the pods and say what the first troubled one waits for."""
    counted, refusal = f"{have} of {want} {what} ready", _refusal(facts)
    if not refusal or len(facts.pods) >= want or worst(facts.pods, facts) is not None:
        return because(facts, counted, is_job=is_job)
    kept_out = refused(refusal)
    return waiting(f"{counted}: {kept_out.reason}", queue=kept_out.queue)


def _refusal(facts: Facts) -> str:
    if facts.has("ReplicaFailure"):
        return facts.why("ReplicaFailure")
    warnings = facts.warnings()
    return str(warnings[-1].get("message") or warnings[-1].get("reason")) if warnings else ""
