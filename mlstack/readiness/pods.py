"""Why a pod does not run, in a sentence: scheduler, image, crash, refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.dataclass import dataclass
from mlstack.readiness.rule import (
    Facts,
    Queue,
    Readiness,
    age_s,
    condition,
    condition_text,
    failed,
    time_s,
    waiting,
)

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
# Why a kubelet or the control plane ends pods that are not at fault; their owner makes others.
_TAKEN = frozenset(
    {"Evicted", "NodeShutdown", "Terminated", "Preempting", "NodeLost", "NodeAffinity", "Shutdown"}
)
_LOG_LINES = 3
_PROBE_FAILED = "Unhealthy"  # the reason under which kubelets tell of probes
_PROBE_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What keeps a pod from running."""

    reason: str  # a sentence for a person
    is_final: bool = False  # waiting will not help this pod
    is_stuck: bool = False  # another pod in its place would not start either
    resource: str = ""  # the extended resource it waits for, if it does
    queue: Queue = ""  # what it only queues for


@dataclass(frozen=True, kw_only=True)
class Crash:
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
        ended = ((container.get("lastState" if previous else "state") or {}).get("terminated")) or {}
        has_crashed = (
            "exitCode" in ended and not container.get("ready") if previous else ended.get("exitCode")
        )
        if pod is None or (has_crashed and ended.get("message")):
            return None
        if has_crashed:
            metadata = pod["metadata"]
            return Crash(
                namespace=str(metadata.get("namespace") or ""),
                pod=str(metadata.get("name")),
                uid=str(metadata.get("uid")),
                container=str(container.get("name")),
                code=ended["exitCode"],
                previous=previous,
            )
    return None


def trouble(pod: Pod, facts: Facts) -> Trouble | None:
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
    return Trouble(reason=reason, is_final=status.get("reason") not in _TAKEN)


def worst(pods: Sequence[Pod], facts: Facts) -> Trouble | None:
    """Give the trouble of the pods that a person should see first: final ones before others.

    Pods that are being deleted say nothing about the workload any more.
    """
    return _worst(pods, facts)[1]


def _worst(pods: Sequence[Pod], facts: Facts) -> tuple[Pod, Trouble] | tuple[None, None]:
    troubles = [(pod, why) for pod in _unready(pods) if (why := trouble(pod, facts))]
    return next((pair for pair in troubles if pair[1].is_final), troubles[0] if troubles else (None, None))


def _unready(pods: Sequence[Pod]) -> list[Pod]:
    staying = [pod for pod in pods if not (pod.get("metadata") or {}).get("deletionTimestamp")]
    return [pod for pod in staying if not is_ready(pod)]


def because(facts: Facts, text: str, *, is_job: bool = False) -> Readiness:
    """Say that an object waits, with what its pods wait for; it has failed if they can never run.

    Args:
        facts: the object and its pods.
        text: what is known without them.
        is_job: whether a pod that ended badly is tried again, so that only one that cannot start counts.
    """
    ends = ("Failed", "Succeeded") if is_job else ()
    living = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") not in ends]
    why = worst(living or facts.pods, facts)
    if why is None:
        warnings = [] if facts.pods else facts.warnings()
        running = [pod for pod in _unready(facts.pods) if (pod.get("status") or {}).get("phase") == "Running"]
        more = event_text(warnings[-1]) if warnings else unready(running[0]) if running else ""
        return waiting(": ".join(filter(None, dict.fromkeys([text, more]))))
    joined = f"{text}: {why.reason}" if text and text != why.reason else why.reason
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
    declarations = {part.get("name"): part for part in reversed(declared)}
    kind = "startup" if container.get("started") is False else "readiness"
    probe = declarations.get(container.get("name"), {}).get(f"{kind}Probe")
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
        failures = [
            text for event in probes if (text := _probe_failure(event)).startswith(("Liveness", "Startup"))
        ]
        if reason == CRASHES:
            text = "; ".join(filter(None, (crashed, *failures[-1:])))
            late = times >= MOST_RESTARTS or _troubled_s(pod, facts) > GRACE_S
            return Trouble(reason=f"container {name}: {CRASHES}{f': {text}' if text else ''}", is_final=late)
        if (
            times and not container.get("ready") and crashed
        ):  # between two crashes it runs, or waits for its probe
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
