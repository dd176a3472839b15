"""Why a pod does not run, in a sentence: scheduler, image, crash, refusal."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.model.readiness.base import Facts, age_s, condition, condition_text

# What a kubelet says while it cannot start a container; none of these passes by itself.
BROKEN_STARTS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
    | {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"}
)
# A registry may be away for a moment and a Secret may arrive a moment later.
GRACE_S = 30.0

_INSUFFICIENT = re.compile(r"Insufficient ([\w.-]+/[\w.-]+)")


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What keeps a pod from running.

    Attributes:
        reason: a sentence for a person.
        is_final: whether waiting will not help.
        resource: the extended resource it waits for, if it does.
    """

    reason: str
    is_final: bool = False
    resource: str = ""


def trouble(pod: Mapping[str, Any], facts: Facts) -> Trouble | None:
    """Say what keeps a pod from running; None if nothing does."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        return Trouble(reason=_ending(status), is_final=True)
    return _unscheduled(pod, facts) or _broken_start(pod, facts) or _first_event(pod, facts)


def worst(pods: Sequence[Mapping[str, Any]], facts: Facts) -> Trouble | None:
    """Give the trouble of the pods that a person should see first: final ones before others."""
    troubles = [found for pod in pods if not is_ready(pod) and (found := trouble(pod, facts))]
    return next((one for one in troubles if one.is_final), troubles[0] if troubles else None)


def is_ready(pod: Mapping[str, Any]) -> bool:
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


def _unscheduled(pod: Mapping[str, Any], facts: Facts) -> Trouble | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    text = scheduler_text(condition_text(scheduled))
    found = _INSUFFICIENT.search(text)
    if found is None:
        return Trouble(reason=text)
    short = text.replace(" nodes are available: ", " nodes: ")
    short = re.sub(r"(nodes: )\d+ (Insufficient)", r"\1\2", short)
    return Trouble(reason=f"{_scarcity(found[1], facts)} ({short})", resource=found[1])


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


def _broken_start(pod: Mapping[str, Any], facts: Facts) -> Trouble | None:
    for container in _containers(pod.get("status") or {}):
        state = (container.get("state") or {}).get("waiting") or {}
        reason = state.get("reason")
        if reason in BROKEN_STARTS:
            is_final = reason == "CrashLoopBackOff" or age_s(pod, facts.now_s) > GRACE_S
            text = _crash(container) if reason == "CrashLoopBackOff" else str(state.get("message") or "")
            detail = f": {text}" if text else ""
            return Trouble(reason=f"container {container.get('name')}: {reason}{detail}", is_final=is_final)
    return None


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _crash(container: Mapping[str, Any]) -> str:
    last = (container.get("lastState") or {}).get("terminated") or {}
    return f"exit code {last['exitCode']}" if "exitCode" in last else ""


def _ending(status: Mapping[str, Any]) -> str:
    """Say how a failed pod ended: exit code and reason of its first failed container, else the pod's own."""
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            why = f" ({ended['reason']})" if ended.get("reason") not in (None, "", "Error") else ""
            return f"container {container.get('name')}: exit code {ended['exitCode']}{why}"
    return str(status.get("message") or status.get("reason") or "the pod failed")


def _first_event(pod: Mapping[str, Any], facts: Facts) -> Trouble | None:
    """Take what a kubelet only says in events, as a volume that cannot be mounted."""
    if (pod.get("status") or {}).get("phase") != "Pending":
        return None
    events = facts.events_of(pod)
    return Trouble(reason=event_text(events[-1])) if events else None


def event_text(event: Mapping[str, Any]) -> str:
    """Write an event as `reason: message`."""
    message = scheduler_text(str(event.get("message") or ""))
    return f"{event.get('reason')}: {message}" if message else str(event.get("reason"))
