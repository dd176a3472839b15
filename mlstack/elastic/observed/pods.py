"""A Pod object, parsed: what it takes, where it is, how it fares, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlstack.elastic.observed.amounts import Amounts, requests, time_ms
from mlstack.elastic.observed.containers import held_up
from mlstack.elastic.observed.nodes import version
from mlstack.elastic.observed.placement import shape

JOB_LABEL = "mlstack.dev/training-job"
ROLE_LABEL = "mlstack.dev/role"
PLANNED = "mlstack.dev/planned-node"
TRAINING_JOB = "TrainingJob"

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
_OUT_OF = "OutOf"
"""Begins the reason where a node is short of a resource, whose name follows: `OutOfnvidia.com/gpu`."""

# What only more room can mend, in the words of the scheduler; a port of a node is room too.
_WANTS_ROOM = ("Insufficient", "Too many pods", "free ports")


OVERDUE_MS = 30_000
"""So long after the end of its grace a pod should be gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodFacts:
    """What is known of a pod.

    Attributes:
        key: `namespace/name`.
        namespace: its namespace.
        name: its name.
        uid: its UID.
        version: resource version of the object.
        job: name of the training job it belongs to, by its label.
        role: `trainer`, `master` or `pserver`, by its label.
        owner: UID of its controller.
        owner_kind: kind of its controller.
        node: where it is bound, empty while it waits.
        nominated: node on which the scheduler is making room for it.
        planned: node that a plan had for it.
        requests: what it requests.
        priority: of the pod; None where no admission has set it.
        priority_class: name of its priority class.
        shape: what decides which nodes it may go to.
        created_ms: when it was created.
        gone_ms: when it is gone at the latest; None while nobody has deleted it.
        grace_ms: how long it gets to end.
        phase: as in the object.
        ending: how it ended, empty while it has not; `lost` when others ended it.
        is_ready: whether it is ready.
        wants_room: whether more room could help: neither gated nor waiting for something else.
        is_tried: whether the scheduler has looked for a node in vain; until it has, nobody knows.
        is_held_to_node: whether required affinity is part of it.
        unplaced: why the scheduler found no node for it, in its own words; empty where it has said nothing.
        held_up: what keeps its containers from running; empty for nothing, and for pods of no training.
        last_change_ms: when its readiness last changed.
        ran_ms: how long its containers had run when it ended, 0 where nobody has said.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    job: str
    role: str
    owner: str
    owner_kind: str
    node: str
    nominated: str
    planned: str
    requests: Amounts
    priority: int | None
    priority_class: str
    shape: str
    created_ms: int
    gone_ms: int | None
    grace_ms: int
    phase: str
    ending: Ending
    is_ready: bool
    wants_room: bool
    is_tried: bool
    is_held_to_node: bool
    unplaced: str
    held_up: str
    last_change_ms: int
    ran_ms: int

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


def parse(obj: Mapping[str, Any]) -> PodFacts:
    """Read a Pod."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    labels = metadata.get("labels") or {}
    owner = _controller(metadata)
    deleted = metadata.get("deletionTimestamp")
    conditions = {str(one.get("type")): one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
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
        grace_ms=_grace_ms(spec),
        phase=str(status.get("phase") or "Pending"),
        ending=_ending(status, conditions, is_deleted=bool(deleted)),
        is_ready=ready.get("status") == "True",
        is_tried=_is_refused(conditions),
        unplaced=str(conditions["PodScheduled"].get("message") or "") if _is_refused(conditions) else "",
        held_up=held_up(status) if labels.get(JOB_LABEL) else "",
        wants_room=not spec.get("schedulingGates") and _wants_room(conditions.get("PodScheduled")),
        is_held_to_node=_is_held(spec),
        last_change_ms=time_ms(str(ready.get("lastTransitionTime") or "")),
        ran_ms=max(map(_ran_ms, status.get("containerStatuses") or ()), default=0),
    )


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            found: Mapping[str, Any] = owner
            return found
    return {}


def _grace_ms(spec: Mapping[str, Any]) -> int:
    seconds = spec.get("terminationGracePeriodSeconds")
    return 30_000 if seconds is None else int(seconds) * 1000


def _ending(status: Mapping[str, Any], conditions: Mapping[str, Any], *, is_deleted: bool) -> Ending:
    """Tell how a pod ended; a pod that was deleted ended by that, whatever its containers said."""
    phase = status.get("phase")
    if phase not in ("Succeeded", "Failed"):
        return ""
    disrupted = (conditions.get("DisruptionTarget") or {}).get("status") == "True"
    reason = str(status.get("reason") or "")
    if is_deleted or disrupted or reason in _ENDED_BY_OTHERS or reason.startswith(_OUT_OF):
        return "lost"
    return "succeeded" if phase == "Succeeded" else "failed"


def _is_refused(conditions: Mapping[str, Any]) -> bool:
    return (conditions.get("PodScheduled") or {}).get("status") == "False"


def _ran_ms(container: Mapping[str, Any]) -> int:
    """Give how long a container ran that has ended, 0 where nobody says."""
    ended = (container.get("state") or {}).get("terminated") or {}
    begun_ms, ended_ms = (time_ms(str(ended.get(name) or "")) for name in ("startedAt", "finishedAt"))
    return max(0, ended_ms - begun_ms) if begun_ms else 0


def _wants_room(scheduled: Mapping[str, Any] | None) -> bool:
    """Tell whether the scheduler waits for room, as far as it has said."""
    if not scheduled or scheduled.get("status") == "True" or scheduled.get("reason") != "Unschedulable":
        return True
    message = str(scheduled.get("message") or "")
    return not message or any(words in message for words in _WANTS_ROOM)


def _is_held(spec: Mapping[str, Any]) -> bool:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return bool(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
