"""Why a pod does not run, in a sentence: scheduler, image, crash, refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
_ENDED = ("Failed", "Succeeded")
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

_INSUFFICIENT = re.compile(r"Insufficient ([\w.-]+/[\w.-]+)")
_QUOTA = re.compile(r"exceeded quota: .*", re.DOTALL)
_LOG_LINES = 3
# The reason under which kubelets tell of probes, and where they name the container.
_PROBE_FAILED = "Unhealthy"
_FIELD_PATH = re.compile(r"ontainers\{(.+)\}$")
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
    troubled = _worst((facts.data,) if facts.data.get("kind") == "Pod" else facts.pods, facts)
    if troubled is None:
        return None
    pod, _ = troubled
    status = pod.get("status") or {}
    previous = status.get("phase") != "Failed"
    for container in _containers(status):
        ended = ((container.get("lastState" if previous else "state") or {}).get("terminated")) or {}
        has_crashed = (
            "exitCode" in ended and not container.get("ready") if previous else ended.get("exitCode")
        )
        if has_crashed:
            if ended.get("message"):
                return None
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
    if status.get("phase") == "Failed":
        return Trouble(reason=_ending(pod, facts), is_final=status.get("reason") not in _TAKEN)
    return _unscheduled(pod, facts) or _broken_start(pod, facts) or _first_event(pod, facts)


def worst(pods: Sequence[Pod], facts: Facts) -> Trouble | None:
    """Give the trouble of the pods that a person should see first: final ones before others.

    Pods that are being deleted say nothing about the workload any more.
    """
    troubled = _worst(pods, facts)
    return None if troubled is None else troubled[1]


def _worst(pods: Sequence[Pod], facts: Facts) -> tuple[Pod, Trouble] | None:
    staying = [pod for pod in pods if not (pod.get("metadata") or {}).get("deletionTimestamp")]
    troubles = [(pod, why) for pod in staying if not is_ready(pod) and (why := trouble(pod, facts))]
    return next((pair for pair in troubles if pair[1].is_final), troubles[0] if troubles else None)


def because(facts: Facts, text: str, *, is_job: bool = False) -> Readiness:
    """Say that an object waits, with what its pods wait for; it has failed if they can never run.

    Args:
        facts: the object and its pods.
        text: what is known without them.
        is_job: whether a pod that ended badly is tried again, so that only one that cannot start counts.
    """
    living = [pod for pod in facts.pods if (pod.get("status") or {}).get("phase") not in _ENDED]
    why = worst((living or facts.pods) if is_job else facts.pods, facts)
    if why is None:
        own = facts.own_events()
        more = event_text(own[-1]) if own and not facts.pods else _first_unready(facts.pods)
        return waiting(": ".join(filter(None, dict.fromkeys([text, more]))))
    joined = f"{text}: {why.reason}" if text and text != why.reason else why.reason
    if why.is_final and (why.is_stuck or not is_job):
        return failed(joined)
    return waiting(joined, resource=why.resource, queue=why.queue)


def _first_unready(pods: Sequence[Pod]) -> str:
    """Say what the containers of the first pod wait for that runs without being ready."""
    staying = (pod for pod in pods if not (pod.get("metadata") or {}).get("deletionTimestamp"))
    running = (pod for pod in staying if (pod.get("status") or {}).get("phase") == "Running")
    return next((unready(pod) for pod in running if not is_ready(pod)), "")


def unready(pod: Pod) -> str:
    """Say what a pod waits for of which nobody has said anything bad."""
    status = pod.get("status") or {}
    if status.get("phase") != "Running":
        return "is being started" if condition(pod, "PodScheduled") else "is not scheduled yet"
    for container in _containers(status):
        if "running" in (container.get("state") or {}) and not container.get("ready"):
            return f"container {container.get('name')} runs, but {_awaited(pod, container)}"
    lacking = ", ".join(str(one.get("name")) for one in _containers(status) if not one.get("ready"))
    reason = condition_text(condition(pod, "Ready"))
    return f"not ready: {lacking}" if lacking else reason or "runs, but is not ready yet"


def _awaited(pod: Pod, container: Mapping[str, Any]) -> str:
    """Say what a running container waits for; the words of a command may hold what nobody is to read."""
    kind = "startup" if container.get("started") is False else "readiness"
    probe = _spec_of(pod, container).get(f"{kind}Probe")
    if not isinstance(probe, Mapping):
        return "is not ready yet"
    forms = {
        "httpGet": "GET {path} on port {port}",
        "tcpSocket": "TCP port {port}",
        "grpc": "gRPC on port {port}",
    }
    asks = {name: probe[name] for name in forms if isinstance(probe.get(name), Mapping)}
    texts = [forms[name].format_map({"path": "/", "port": "", **asked}) for name, asked in asks.items()]
    return f"its {kind} probe{f' ({texts[0]})' if texts else ''} has not succeeded yet"


def _spec_of(pod: Pod, container: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = pod.get("spec") or {}
    declared = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return next(
        (declaration for declaration in declared if declaration.get("name") == container.get("name")), {}
    )


def refused(message: str) -> Readiness:
    """Say that pods are not let in: by a quota, which may be given back, or by something else."""
    over = _QUOTA.search(message)
    if over is not None:
        return waiting(f"waiting for quota: {over[0].strip()}", queue="quota")
    return waiting(f"a pod was refused: {message}")


def is_ready(pod: Pod) -> bool:
    """Tell whether a pod runs and is ready, or has ended well."""
    status = pod.get("status") or {}
    if status.get("phase") == "Succeeded":
        return True
    return status.get("phase") == "Running" and condition(pod, "Ready").get("status") == "True"


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
    if facts.was_told(pod, "TriggeredScaleUp") or facts.was_told(pod, "Nominated"):
        queue, coming = "new-node", "; the autoscaler is adding a node"
    insufficient = _INSUFFICIENT.search(text)
    if insufficient is None:
        return Trouble(reason=text + coming, queue=queue)
    short = text.replace(" nodes are available: ", " nodes: ")
    short = re.sub(r"(nodes: )\d+ (Insufficient)", r"\1\2", short)
    reason = f"{_scarcity(insufficient[1], facts)} ({short}){coming}"
    return Trouble(reason=reason, resource=insufficient[1], queue=queue)


def _scarcity(resource: str, facts: Facts) -> str:
    """Tell a cluster without such a resource from one where all of it is in use.

    The scheduler says the same for both.
    """
    if facts.nodes is None:
        return f"no node has {resource} free"
    if any(_allocatable(node, resource) for node in facts.nodes):
        return f"all {resource} of this cluster is in use or too little for one pod"
    return f"no node of this cluster has {resource}"


def _allocatable(node: Mapping[str, Any], resource: str) -> bool:
    amount = ((node.get("status") or {}).get("allocatable") or {}).get(resource)
    return amount is not None and str(amount) != "0"


def _broken_start(pod: Pod, facts: Facts) -> Trouble | None:
    for container in _containers(pod.get("status") or {}):
        state = (container.get("state") or {}).get("waiting") or {}
        name, reason = container.get("name"), state.get("reason")
        if reason in BROKEN_STARTS:
            detail = f": {state['message']}" if state.get("message") else ""
            late = _troubled_s(pod, facts) > (SHORT_GRACE_S if reason in HOPELESS else GRACE_S)
            return Trouble(reason=f"container {name}: {reason}{detail}", is_final=late, is_stuck=late)
        if reason == CRASHES:
            late = container.get("restartCount", 0) >= MOST_RESTARTS or _troubled_s(pod, facts) > GRACE_S
            text = "; ".join(filter(None, (_crash(pod, container, facts), _killed_by(pod, container, facts))))
            return Trouble(reason=f"container {name}: {CRASHES}{f': {text}' if text else ''}", is_final=late)
        crashed = _crash(pod, container, facts)
        if container.get("restartCount") and not container.get("ready") and crashed:
            # Between two crashes it runs, or waits for its probe.
            times, probe = container["restartCount"], _killed_by(pod, container, facts)
            text = f"container {name}: {crashed}, restarted {times} time{'s' * (times != 1)}"
            return Trouble(reason=f"{text}; {probe}" if probe else text)
    return None


def _troubled_s(pod: Pod, facts: Facts) -> float:
    """Give the seconds since a pod was last well: it may have run for days before."""
    since = condition(pod, "ContainersReady") or condition(pod, "Ready")
    changed = since.get("lastTransitionTime") if since.get("status") == "False" else None
    aged = age_s(pod, facts.now_s)
    return min(aged, facts.now_s - time_s(changed)) if changed else aged


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _crash(pod: Pod, container: Mapping[str, Any], facts: Facts) -> str:
    last = (container.get("lastState") or {}).get("terminated") or {}
    return _ended(last, _log(pod, container, facts)) if "exitCode" in last else ""


def _log(pod: Pod, container: Mapping[str, Any], facts: Facts) -> Sequence[str]:
    uid = str((pod.get("metadata") or {}).get("uid"))
    return facts.logs.get((uid, str(container.get("name"))), ())


def _ended(terminated: Mapping[str, Any], log: Sequence[str]) -> str:
    """Say how a container ended: exit code, reason, and the last lines it left behind or has written."""
    why = f" ({terminated['reason']})" if terminated.get("reason") not in (None, "", "Error") else ""
    lines = str(terminated.get("message") or "").strip().splitlines()[-_LOG_LINES:] or log
    return f"exit code {terminated['exitCode']}{why}{': ' if lines else ''}{' | '.join(lines)}"


def _ending(pod: Pod, facts: Facts) -> str:
    """Say how a failed pod ended: exit code and reason of its first failed container, else the pod's own."""
    status = pod["status"]
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"container {container.get('name')}: {_ended(ended, _log(pod, container, facts))}"
    return str(status.get("message") or status.get("reason") or "the pod failed")


def _killed_by(pod: Pod, container: Mapping[str, Any], facts: Facts) -> str:
    """Give the failed probe after which a kubelet starts a container again; its exit code says nothing."""
    probes = [
        event for event in _unhealthy(pod, facts) if _container_of(event) in ("", container.get("name"))
    ]
    texts = [_probe_failure(event) for event in probes]
    return next((text for text in reversed(texts) if text.startswith(("Liveness", "Startup"))), "")


def _first_event(pod: Pod, facts: Facts) -> Trouble | None:
    """Take what a kubelet only says in events, as a volume that cannot be mounted or a probe that fails."""
    phase = (pod.get("status") or {}).get("phase")
    if phase == "Pending" and (events := facts.events_of(pod)):
        return Trouble(reason=_told(events[-1]))
    if phase != "Running":
        return None
    names = {item.get("name") for item in _containers(pod["status"]) if not item.get("ready")}
    events = [item for item in _unhealthy(pod, facts) if not names or _container_of(item) in ("", *names)]
    return Trouble(reason=_told(events[-1])) if events else None


def _unhealthy(pod: Pod, facts: Facts) -> list[Mapping[str, Any]]:
    return [event for event in facts.events_of(pod) if event.get("reason") == _PROBE_FAILED]


def _told(event: Mapping[str, Any]) -> str:
    if event.get("reason") != _PROBE_FAILED:
        return event_text(event)
    name = _container_of(event)
    return f"container {name}: {_probe_failure(event)}" if name else _probe_failure(event)


def _probe_failure(event: Mapping[str, Any]) -> str:
    """Give the kubelet's words, `Readiness probe failed: …`; the output of a command may have many lines."""
    lines = str(event.get("message") or event.get("reason")).strip().splitlines()
    text = " | ".join(lines[:_LOG_LINES])
    return text if len(text) <= _PROBE_CHARACTERS else f"{text[:_PROBE_CHARACTERS]}…"


def _container_of(event: Mapping[str, Any]) -> str:
    """Give the container that an event is about (`spec.containers{main}`), empty if it does not say."""
    match = _FIELD_PATH.search(str((event.get("involvedObject") or {}).get("fieldPath") or ""))
    return match[1] if match else ""


def event_text(event: Mapping[str, Any]) -> str:
    """Write an event as `reason: message`."""
    message = scheduler_text(str(event.get("message") or ""))
    return f"{event.get('reason')}: {message}" if message else str(event.get("reason"))
