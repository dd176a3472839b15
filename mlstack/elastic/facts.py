"""Nodes and pods, parsed: how much of what, where they are or may go, how they fare, and whose they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from mlstack.dataclass import dataclass
from mlstack.objects.resources import (
    Amounts,
    NodePlace,
    amounts,
    is_device,
    is_eligible,
    requests,
    required_affinity,
)

JOB_LABEL = "mlstack.dev/training-job"
ROLE_LABEL = "mlstack.dev/role"
PLANNED = "mlstack.dev/planned-node"


@lru_cache(maxsize=65536)
def time_ms(text: str) -> int:
    """Read a time as the API server writes it, in milliseconds since 1970; 0 for none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
    except ValueError:
        return 0


def version(metadata: Mapping[str, Any]) -> int:
    """Read a resource version as a number, 0 where it is none; they grow with every write."""
    text = str(metadata.get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0


def key_of(metadata: Mapping[str, Any]) -> str:
    """Give `namespace/name`, or the name alone of what has no namespace."""
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def controller_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the reference to the controller of an object, empty where there is none."""
    owners = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


# --- nodes ---


class Eligible:
    """Answers which nodes a pod may go to, once for each shape of pods."""

    def __init__(self, places: Iterable[NodePlace]) -> None:
        self._places = tuple(places)
        self._known: dict[str, frozenset[str] | None] = {}

    def nodes(self, shape: str) -> frozenset[str] | None:
        """Give the names of the nodes for pods of this shape, None for all."""
        if shape not in self._known:
            spec = json.loads(shape)
            names = frozenset(place.name for place in self._places if is_eligible(spec, place))
            self._known[shape] = None if len(names) == len(self._places) else names
        return self._known[shape]


def shape(spec: Mapping[str, Any]) -> str:
    """Give what of a pod's spec decides where it may go; equal for pods that may go to the same nodes."""
    form = {
        "nodeSelector": spec.get("nodeSelector") or {},
        "required": required_affinity(spec),
        "tolerations": spec.get("tolerations") or [],
    }
    return json.dumps(form, sort_keys=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What is known of a node."""

    place: NodePlace  # name, labels and taints
    allocatable: Amounts  # what pods may request of it
    devices: Amounts  # what device plug-ins brought to it, by its capacity: also while a plug-in is not there
    takes_pods: bool  # whether it is Ready, not cordoned and not being deleted
    version: int
    uid: str  # UID of the object


def parse_node(obj: Mapping[str, Any]) -> NodeFacts:
    """Read a Node."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    spec = obj.get("spec") or {}
    ready = {"type": "Ready", "status": "True"}.items()
    is_ready = any(ready <= condition.items() for condition in status.get("conditions") or ())
    taints = [
        taint for taint in spec.get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")
    ]
    allocatable = amounts(status.get("allocatable") or status.get("capacity"))
    capacity = amounts(status.get("capacity"))
    return NodeFacts(
        place=NodePlace(metadata["name"], metadata.get("labels") or {}, tuple(taints)),
        allocatable=allocatable,
        devices={name: n for name, n in {**allocatable, **capacity}.items() if n and is_device(name)},
        takes_pods=is_ready and not spec.get("unschedulable") and not metadata.get("deletionTimestamp"),
        version=version(metadata),
        uid=str(metadata.get("uid") or ""),
    )


# --- pods ---

Ending = Literal["", "succeeded", "failed", "lost"]

# What a kubelet or the control plane writes as the reason of a pod that it ended or turned away, not the pod
# itself (kubernetes/pkg/kubelet: eviction, preemption, nodeshutdown, lifecycle, cm). What a kubelet refuses
# for the settings of the pod, as `SysctlForbidden`, is not among them: another try at once fares no better.
_ENDED_BY_OTHERS = frozenset(
    {
        "Evicted",
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeLost",
        "NodeName",
        "NodePorts",
        "NodeShutdown",
        "NodeUnschedulable",
        "Preempted",
        "Preempting",
        "SMTAlignmentError",
        "Shutdown",
        "TaintToleration",
        "Terminated",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "UnexpectedPredicateFailureType",
        "UnknownReason",
        "VolumeAttachmentLimitExceeded",
    }
)
# What only more room can mend, in the words of the scheduler; a port of a node is room too.
_WANTS_ROOM = ("Insufficient", "Too many pods", "free ports")

OVERDUE_MS = 30_000
"""So long after the end of its grace a pod should be gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodFacts:
    """What is known of a pod."""

    key: str  # `namespace/name`
    namespace: str
    name: str
    uid: str
    version: int
    job: str  # name of the training job it belongs to, by its label
    role: str  # `trainer`, `master` or `pserver`, by its label
    owner: str  # UID of its controller
    owner_kind: str  # kind of its controller
    node: str  # where it is bound, empty while it waits
    nominated: str  # node on which the scheduler is making room for it
    planned: str  # node that a plan had for it
    requests: Amounts
    priority: int | None  # of the pod; None where no admission has set it
    priority_class: str  # name of its priority class
    shape: str  # what decides which nodes it may go to
    created_ms: int
    gone_ms: int | None  # when it is gone at the latest; None while nobody has deleted it
    grace_ms: int  # how long it gets to end
    phase: str  # as in the object
    ending: Ending  # how it ended, empty while it has not; `lost` when others ended it
    is_ready: bool  # whether it is ready
    wants_room: bool  # whether more room could help: neither gated nor waiting for something else
    is_tried: bool  # whether the scheduler has looked for a node in vain; until it has, nobody knows
    is_held_to_node: bool  # whether required affinity is part of it
    unplaced: str  # why the scheduler found no node for it, in its own words; empty where it has said nothing
    held_up: str  # what keeps its containers from running; empty for nothing, and for pods of no training
    last_change_ms: int  # when its readiness last changed
    ran_ms: int  # how long its containers had run when it ended, 0 where nobody has said

    @property
    def is_live(self) -> bool:
        """Tell whether it neither ended nor is going."""
        return not self.ending and self.gone_ms is None

    @property
    def holds_room(self) -> bool:
        """Tell whether the scheduler counts it on its node: bound and not ended."""
        return bool(self.node) and not self.ending

    def is_overdue(self, now_ms: int) -> bool:
        """Tell whether it should have ended long ago, as on a node that no longer answers."""
        return self.gone_ms is not None and now_ms - self.gone_ms > OVERDUE_MS

    @property
    def of_training(self) -> bool:
        """Tell whether it says to be part of a training job."""
        return bool(self.job and self.role)


def parse_pod(obj: Mapping[str, Any]) -> PodFacts:
    """Read a Pod."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    labels = metadata.get("labels") or {}
    owner = controller_of(metadata)
    deleted = metadata.get("deletionTimestamp")
    conditions = {str(row.get("type")): row for row in status.get("conditions") or ()}
    ready, scheduled = conditions.get("Ready") or {}, conditions.get("PodScheduled") or {}
    grace_s = spec.get("terminationGracePeriodSeconds")
    return PodFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        job=str(labels.get(JOB_LABEL) or ""),
        role=str(labels.get(ROLE_LABEL) or ""),
        owner=str(owner.get("uid") or ""),
        owner_kind=str(owner.get("kind") or ""),
        node=str(spec.get("nodeName") or ""),
        nominated=str(status.get("nominatedNodeName") or ""),
        planned=str((metadata.get("annotations") or {}).get(PLANNED) or ""),
        requests=requests(spec),
        priority=None if spec.get("priority") is None else int(spec["priority"]),
        priority_class=str(spec.get("priorityClassName") or ""),
        shape=shape(spec),
        created_ms=time_ms(str(metadata.get("creationTimestamp") or "")),
        gone_ms=time_ms(str(deleted)) if deleted else None,
        grace_ms=30_000 if grace_s is None else int(grace_s) * 1000,
        phase=str(status.get("phase") or "Pending"),
        ending=_ending(status, conditions, is_deleted=bool(deleted)),
        is_ready=ready.get("status") == "True",
        is_tried=scheduled.get("status") == "False",
        unplaced=str(scheduled.get("message") or "") if scheduled.get("status") == "False" else "",
        held_up=held_up(status) if labels.get(JOB_LABEL) else "",
        wants_room=not spec.get("schedulingGates") and _wants_room(scheduled),
        is_held_to_node=bool(required_affinity(spec)),
        last_change_ms=time_ms(str(ready.get("lastTransitionTime") or "")),
        ran_ms=max(map(_ran_ms, status.get("containerStatuses") or ()), default=0),
    )


def _ending(status: Mapping[str, Any], conditions: Mapping[str, Any], *, is_deleted: bool) -> Ending:
    """Tell how a pod ended; a pod that was deleted ended by that, whatever its containers said."""
    phase = status.get("phase")
    if phase not in ("Succeeded", "Failed"):
        return ""
    disrupted = (conditions.get("DisruptionTarget") or {}).get("status") == "True"
    reason = str(status.get("reason") or "")  # `OutOfnvidia.com/gpu`: the node is short of that
    if is_deleted or disrupted or reason in _ENDED_BY_OTHERS or reason.startswith("OutOf"):
        return "lost"
    return "succeeded" if phase == "Succeeded" else "failed"


def _ran_ms(container: Mapping[str, Any]) -> int:
    """Give how long a container ran that has ended, 0 where nobody says."""
    ended = (container.get("state") or {}).get("terminated") or {}
    begun_ms, ended_ms = (time_ms(str(ended.get(name) or "")) for name in ("startedAt", "finishedAt"))
    return max(0, ended_ms - begun_ms) if begun_ms else 0


def _wants_room(scheduled: Mapping[str, Any]) -> bool:
    """Tell whether the scheduler waits for room, as far as it has said."""
    if scheduled.get("status") == "True" or scheduled.get("reason") != "Unschedulable":
        return True
    message = str(scheduled.get("message") or "")
    return not message or any(words in message for words in _WANTS_ROOM)


# --- what keeps the containers of a pod from running, in words that stay while it lasts ---

# A kubelet tells both by turns, as it tries and waits (kubernetes/pkg/kubelet/images).
_PULLING = ("ErrImagePull", "ImagePullBackOff")
_CRASHING = "CrashLoopBackOff"
# Their messages name the container that was tried, another each time.
_VARYING = ("CreateContainerError", "PostStartHookError", "RunContainerError")


def held_up(status: Mapping[str, Any]) -> str:
    """Say what the first container that cannot begin waits for, empty where none does.

    What changes from one try to the next, such as the time to wait, is left out: the text is written into the
    status of the job, and a steady cluster costs no write.
    """
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            text = _held_up(container)
            if text:
                return sys.intern(text[:300])  # many pods of a job say the same
    return ""


def _held_up(container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    if reason in _PULLING:
        return f"{_PULLING[1]}: image {container.get('image')}"
    # One that was started again and again, and is not ready, counts as crashing while it runs too.
    if reason == _CRASHING or (int(container.get("restartCount") or 0) >= 2 and not container.get("ready")):
        ended = (container.get("lastState") or {}).get("terminated") or {}
        code = f" with exit code {ended['exitCode']}" if "exitCode" in ended else ""
        return f"{_CRASHING}: container `{container.get('name')}` ended{code}"
    if reason in ("", "ContainerCreating", "PodInitializing"):
        return ""
    message = " ".join(str(waiting.get("message") or "").split())
    return f"{reason}: {message}" if message and reason not in _VARYING else reason
