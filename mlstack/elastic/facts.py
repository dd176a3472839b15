"""What pods request and nodes have, as integers: thousandths of a core, bytes, whole pieces."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import ceil
from typing import Any, Literal

from mlstack.elastic import snapshot
from mlstack.elastic.snapshot import Vector
from mlstack.validate.formats import quantity

# --- What pods request and nodes have, as integers: thousandths of a core, bytes, whole pieces ---

Amounts = Mapping[str, int]

BASIC = ("cpu", "memory", "pods")
"""Resources that every vector has, in this order; others follow by name."""


@lru_cache(maxsize=8192)
def amount(resource: str, text: str) -> int:
    """Read a quantity of a resource, rounded up; what is no quantity counts as nothing."""
    found = quantity(text)
    if found is None:
        return 0
    return ceil(found * 1000) if resource == "cpu" else ceil(found)


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Read quantities by resource."""
    return {name: amount(name, str(value)) for name, value in (quantities or {}).items()}


def requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give what the scheduler reserves for a pod, itself (`pods`) included.

    Containers and sidecars (init containers that are always restarted) add up; each other init container runs
    alone beside the sidecars that were started before it, so that the most of these counts; overhead comes on
    top. Requests of the pod as a whole replace the sum. See Kubernetes' pages on init containers, sidecars
    and pod overhead. A port of the node is a thing that each node has one of.
    """
    total = _sum((_of_pod(spec, _container), amounts(spec.get("overhead"))))
    return {**{name: value for name, value in total.items() if value}, **_host_ports(spec), "pods": 1}


def limits(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the most that a pod may take, as far as its containers have limits."""
    overhead = amounts(spec.get("overhead"))
    found = _of_pod(spec, _limits)
    return {name: value + overhead.get(name, 0) for name, value in found.items() if value}


def _of_pod(spec: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Amounts]) -> dict[str, int]:
    """Add up what is read of each container of a pod."""
    running = _sum(map(read, spec.get("containers") or ()))
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = read(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, wanted))
            most = _most(most, sidecars)
        else:
            most = _most(most, _sum((sidecars, wanted)))
    total = _most(_sum((running, sidecars)), most)
    return {**total, **read(spec)}


def is_device(resource: str) -> bool:
    """Tell resources of device plug-ins, as GPUs: whole pieces, of which a pod has as many as it asks for."""
    return "/" in resource and "kubernetes.io/" not in resource


def vector(wanted: Amounts, resources: Sequence[str]) -> Vector:
    """Put amounts into the order of a snapshot's resources."""
    return tuple(wanted.get(name, 0) for name in resources)


@lru_cache(maxsize=65536)
def time_ms(text: str) -> int:
    """Read a time as the API server writes it, in milliseconds since 1970; 0 for none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
    except ValueError:
        return 0


def _container(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the requests of a container; where there are none its limits count, as the API server has it."""
    resources = spec.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _limits(spec: Mapping[str, Any]) -> dict[str, int]:
    return amounts((spec.get("resources") or {}).get("limits"))


def _host_ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the ports that a pod takes of its node: on the node's network all that its containers name.

    Of one address (`hostIP`) or of all is the same here: jobs serve on all of them.
    """
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    found: dict[str, int] = {}
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                found[snapshot.key(number, port.get("protocol") or "TCP")] = 1
    return found


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _most(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


# --- What keeps the containers of a pod from running, in words that stay while it lasts ---

_LONGEST = 300  # of what a kubelet says

_BEGINNING = ("", "ContainerCreating", "PodInitializing")
# A kubelet tells both by turns, as it tries and waits (kubernetes/pkg/kubelet/images).
_PULLING = ("ErrImagePull", "ImagePullBackOff")
_CRASHING = "CrashLoopBackOff"
# Their messages name the container that was tried, another each time.
_VARYING = ("CreateContainerError", "PostStartHookError", "RunContainerError")
_LOOPS = 2
"""A container that was started again so often, and is not ready, counts as crashing while it runs too."""


def held_up(status: Mapping[str, Any]) -> str:
    """Say what the first container that cannot begin waits for, empty where none does.

    What changes from one try to the next, such as the time to wait, is left out: the text is written into the
    status of the job, and a steady cluster costs no write.
    """
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            text = _held_up(container)
            if text:
                return sys.intern(text[:_LONGEST])  # many pods of a job say the same
    return ""


def _held_up(container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    if reason in _PULLING:
        return f"{_PULLING[1]}: image {container.get('image')}"
    if reason == _CRASHING or _is_crashing(container):
        ended = (container.get("lastState") or {}).get("terminated") or {}
        code = f" with exit code {ended['exitCode']}" if "exitCode" in ended else ""
        return f"{_CRASHING}: container `{container.get('name')}` ended{code}"
    if reason in _BEGINNING:
        return ""
    message = " ".join(str(waiting.get("message") or "").split())
    return f"{reason}: {message}" if message and reason not in _VARYING else reason


def _is_crashing(container: Mapping[str, Any]) -> bool:
    """Tell whether it was started again and again and is still not ready."""
    return int(container.get("restartCount") or 0) >= _LOOPS and not container.get("ready")


# --- Which nodes a pod may go to, as the scheduler reads selectors, affinity, taints and
# tolerations

_BLOCKING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class NodePlace:
    """What a node tells pods that look for a place."""

    name: str  # of the node
    labels: Mapping[str, str]  # of the node
    taints: tuple[Mapping[str, Any], ...] = ()  # that keep pods away, as the node has them


class Eligible:
    """Answers which nodes a pod may go to, once for each shape of pods."""

    def __init__(self, places: Iterable[NodePlace]) -> None:
        self._places = tuple(places)
        self._known: dict[str, frozenset[str] | None] = {}

    def nodes(self, shape: str) -> frozenset[str] | None:
        """Give the names of the nodes for pods of this shape, None for all."""
        if shape not in self._known:
            spec = json.loads(shape)
            found = frozenset(place.name for place in self._places if is_eligible(spec, place))
            self._known[shape] = None if len(found) == len(self._places) else found
        return self._known[shape]


def shape(spec: Mapping[str, Any]) -> str:
    """Give what of a pod's spec decides where it may go; equal for pods that may go to the same nodes."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    found = {
        "nodeSelector": spec.get("nodeSelector") or {},
        "required": affinity,
        "tolerations": spec.get("tolerations") or [],
    }
    return json.dumps(found, sort_keys=True)


def is_eligible(spec: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a pod may go to a node, room aside."""
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    return (
        all(place.labels.get(name) == value for name, value in selector.items())
        and _is_wanted(spec.get("required"), place)
        and all(_is_tolerated(taint, spec.get("tolerations") or ()) for taint in place.taints)
    )


def blocking(taints: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...]:
    """Give the taints that keep pods away; others are wishes."""
    return tuple(taint for taint in taints or () if taint.get("effect") in _BLOCKING)


def _is_wanted(required: Mapping[str, Any] | None, place: NodePlace) -> bool:
    if not required:
        return True
    return any(_matches(term, place) for term in required.get("nodeSelectorTerms") or ())


def _matches(term: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a node fits one term; a term without any expression fits none."""
    labels: Sequence[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Sequence[Mapping[str, Any]] = term.get("matchFields") or ()
    name = {"metadata.name": place.name}
    return bool(labels or fields) and (
        all(_holds(one, place.labels) for one in labels) and all(_holds(one, name) for one in fields)
    )


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    wanted: Sequence[str] = expression.get("values") or ()
    found = values.get(key)
    match operator:
        case "In":
            return found in wanted
        case "NotIn":
            return found not in wanted
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return _compares(found, wanted, is_greater=operator == "Gt")
    return False


def _compares(found: str | None, wanted: Sequence[str], *, is_greater: bool) -> bool:
    try:
        one, other = int(found or ""), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return one > other if is_greater else one < other


def _is_tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Tell whether a toleration is for a taint; without a key it is for all of them."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


# --- A Node object, parsed: whether it takes pods, and how much of what ---


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
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    allocatable = amounts(status.get("allocatable") or status.get("capacity"))
    capacity = amounts(status.get("capacity"))
    return NodeFacts(
        place=NodePlace(metadata["name"], metadata.get("labels") or {}, blocking(spec.get("taints"))),
        allocatable=allocatable,
        devices={name: n for name, n in {**allocatable, **capacity}.items() if n and is_device(name)},
        takes_pods=ready and not spec.get("unschedulable") and not metadata.get("deletionTimestamp"),
        version=version(metadata),
        uid=str(metadata.get("uid") or ""),
    )


def version(metadata: Mapping[str, Any]) -> int:
    """Read a resource version as a number, 0 where it is none; they grow with every write."""
    text = str(metadata.get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0


# --- A Pod object, parsed: what it takes, where it is, how it fares, and whose it is ---

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


# --- ResourceQuotas: what they leave a namespace, and which priority classes they grant it ---

Scope = tuple[str, str, frozenset[str]]
"""Name of a scope, operator, values."""

# By these names alone, or with `requests.` before them; extended resources have the prefix always.
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_PREFIXES = ("requests.", "limits.")
_BEST_EFFORT = ("cpu", "memory")


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaFacts:
    """What is known of a ResourceQuota."""

    key: str  # `namespace/name`
    uid: str
    version: int
    hard: Amounts  # what the namespace may have in all, as its controller has taken note of it
    used: Amounts  # what it has
    scopes: tuple[Scope, ...]  # which pods count; all of them have to hold

    @property
    def namespace(self) -> str:
        """Give its namespace."""
        return self.key.partition("/")[0]

    @property
    def classes(self) -> frozenset[str]:
        """Give the priority classes that it names and leaves something for: the namespace may use them."""
        if not any(self.hard.values()):
            return frozenset()
        found = [values for name, how, values in self.scopes if (name, how) == ("PriorityClass", "In")]
        return frozenset[str]().union(*found)


def parse_quota(obj: Mapping[str, Any]) -> QuotaFacts:
    """Read a ResourceQuota."""
    metadata, wanted, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return QuotaFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        hard=_amounts(status.get("hard") or wanted.get("hard")),
        used=_amounts(status.get("used")),
        scopes=tuple(_scopes(wanted)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Excess:
    """A quota that leaves too little."""

    text: str  # which, and how much it lacks
    is_for_good: bool  # whether it would be too small with nothing used of it


def excess(
    quotas: Iterable[QuotaFacts], pods: Iterable[tuple[Mapping[str, Any], int]], others: Amounts
) -> Excess | None:
    """Give the first quota that leaves too little for all these objects together, None where none does.

    One pod alone is weighed by the API server; it does not know that others of the gang follow.
    """
    weighed = [(pod.get("spec") or {}, count) for pod, count in pods]
    for quota in sorted(quotas, key=lambda each: each.key):
        needed = {} if quota.scopes else dict(others)
        for spec, count in weighed:
            for name, value in _usage(spec).items() if _counts(quota, spec) else ():
                needed[name] = needed.get(name, 0) + count * value
        short = [
            name
            for name, hard in sorted(quota.hard.items())
            if needed.get(name) and quota.used.get(name, 0) + needed[name] > hard
        ]
        if short:
            lacks = "; ".join(_lack(quota, name, needed[name]) for name in short)
            text = f"exceeded quota: {quota.key.rpartition('/')[2]}, for the whole gang: {lacks}"
            return Excess(text=text, is_for_good=any(needed[name] > quota.hard[name] for name in short))
    return None


def _lack(quota: QuotaFacts, name: str, value: int) -> str:
    used, hard = quota.used.get(name, 0), quota.hard[name]
    return f"{name}: {_written(name, value)} more, {_written(name, used)} of {_written(name, hard)} used"


def _usage(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give what a pod uses up, by all the names that quotas have for it (pkg/quota/v1/evaluator/core)."""
    wanted = requests(spec)
    found = {f"requests.{name}": value for name, value in wanted.items() if name != "pods"}
    found |= {
        name: value for name, value in wanted.items() if name in _PLAIN or name.startswith("hugepages-")
    }
    found |= {f"limits.{name}": value for name, value in limits(spec).items()}
    return {**found, "pods": 1, "count/pods": 1}


def _counts(quota: QuotaFacts, spec: Mapping[str, Any]) -> bool:
    """Tell whether a pod counts for a quota; one with a scope that nobody here knows counts nothing."""
    return all(_is_in(scope, spec) for scope in quota.scopes)


def _is_in(scope: Scope, spec: Mapping[str, Any]) -> bool:
    name, how, values = scope
    is_best_effort = not any(
        amounts.get(each) for amounts in (requests(spec), limits(spec)) for each in _BEST_EFFORT
    )
    if name == "PriorityClass":
        has_class = str(spec.get("priorityClassName") or "")
        answers = {"In": has_class in values, "NotIn": has_class not in values, "Exists": bool(has_class)}
        return answers.get(how, not has_class)
    return {
        "Terminating": spec.get("activeDeadlineSeconds") is not None,
        "NotTerminating": spec.get("activeDeadlineSeconds") is None,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
    }.get(name, False)


def _scopes(wanted: Mapping[str, Any]) -> Iterator[Scope]:
    for name in wanted.get("scopes") or ():
        yield str(name), "Exists", frozenset()
    for one in (wanted.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = frozenset(map(str, one.get("values") or ()))
        yield str(one.get("scopeName") or ""), str(one.get("operator") or ""), values


def _amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {str(name): amount(_resource(name), str(value)) for name, value in (quantities or {}).items()}


def _resource(name: str) -> str:
    """Give the resource that an entry of a quota is about: `cpu` for `requests.cpu`."""
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def _written(name: str, value: int) -> str:
    if _resource(name) == "cpu":
        return f"{value / 1000:g}"
    is_bytes = _resource(name) in ("memory", "ephemeral-storage") and value >= 2**20
    return f"{value / 2**20:g}Mi" if is_bytes else str(value)
