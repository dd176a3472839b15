"""Nodes, pods, training jobs and what is around them, parsed: as far as the controller looks at them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from fractions import Fraction
from functools import cache, lru_cache
from math import lcm
from typing import Any, Literal, get_args

from mlstack.clock import time_ms
from mlstack.dataclass import dataclass
from mlstack.elastic import pods, training_job
from mlstack.elastic.snapshot import Curve, JobStage, NodeNames
from mlstack.elastic.training_job import JOB_LABEL, ROLE_LABEL, RoleName, Server, TrainingJob
from mlstack.objects import references, resources
from mlstack.objects.resources import Amounts, NodePlace


def key_of(metadata: Mapping[str, Any]) -> str:
    """Give `namespace/name`, or the name alone."""
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def controller_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the reference to the controller of an object, empty where there is none."""
    owners = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def conditions_of(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the conditions of a status by their types."""
    return {str(condition.get("type")): condition for condition in status.get("conditions") or ()}


# --- nodes ---


def eligible(places: Iterable[NodePlace]) -> Callable[[str], NodeNames]:
    """Give what tells by the shape of pods the names of the nodes that they may go to, None for all."""
    places = tuple(places)

    @cache
    def names(shape: str) -> NodeNames:
        spec = json.loads(shape)
        chosen = frozenset(place.name for place in places if resources.is_eligible(spec, place))
        return None if len(chosen) == len(places) else chosen

    return names


def shape(spec: Mapping[str, Any]) -> str:
    """Give what of a pod's spec decides where it may go; equal for pods that may go to the same nodes."""
    form = {
        "nodeSelector": spec.get("nodeSelector") or {},
        "required": resources.required_affinity(spec),
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


def parse_node(obj: Mapping[str, Any]) -> NodeFacts:
    """Read a Node."""
    status = obj.get("status") or {}
    allocatable = resources.amounts(status.get("allocatable") or status.get("capacity"))
    most = {**allocatable, **resources.amounts(status.get("capacity"))}
    return NodeFacts(
        place=resources.node_place(obj),
        allocatable=allocatable,
        devices={name: n for name, n in most.items() if n and resources.is_device(name)},
        takes_pods=resources.is_node_ready(obj) and not (obj.get("spec") or {}).get("unschedulable"),
    )


# --- pods ---

Ending = Literal["", "succeeded", "failed", "lost"]

# What only more room can mend, in the words of the scheduler; a port of a node is room too.
_WANTS_ROOM = ("Insufficient", "Too many pods", "free ports", "No preemption victims")

_OVERDUE_MS = 30_000  # so long after the end of its grace a pod should be gone


@dataclass(frozen=True, kw_only=True, slots=True)
class PodFacts:
    """What is known of a pod."""

    key: str  # `namespace/name`
    namespace: str
    name: str
    uid: str
    job: str  # name of the training job it belongs to, by its label
    role: str  # `trainer`, `master` or `pserver`, by its label
    owner: str  # UID of its controller
    node: str  # where it is bound, empty while it waits
    nominated: str  # node on which the scheduler is making room for it
    planned: str  # node that a plan had for it
    requests: Amounts
    priority: int | None  # of the pod; None where no admission has set it
    priority_class: str  # name of its priority class
    shape: str  # what decides which nodes it may go to
    created_ms: int
    gone_ms: int | None  # when it is gone at the latest; None while nobody has deleted it
    phase: str
    ending: Ending  # how it ended, empty while it has not; `lost` when others ended it
    is_ready: bool
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
        return self.gone_ms is not None and now_ms - self.gone_ms > _OVERDUE_MS

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
    conditions = conditions_of(status)
    ready, scheduled = conditions.get("Ready") or {}, conditions.get("PodScheduled") or {}
    return PodFacts(
        key=key_of(metadata),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        job=str(labels.get(JOB_LABEL) or ""),
        role=str(labels.get(ROLE_LABEL) or ""),
        owner=str(owner.get("uid") or ""),
        node=str(spec.get("nodeName") or ""),
        nominated=str(status.get("nominatedNodeName") or ""),
        planned=str((metadata.get("annotations") or {}).get(pods.PLANNED) or ""),
        requests=resources.requests(spec),
        priority=None if spec.get("priority") is None else int(spec["priority"]),
        priority_class=str(spec.get("priorityClassName") or ""),
        shape=shape(spec),
        created_ms=time_ms(str(metadata.get("creationTimestamp") or "")),
        gone_ms=time_ms(str(deleted)) if deleted else None,
        phase=str(status.get("phase") or "Pending"),
        ending=_ending(status, conditions, is_deleted=bool(deleted)),
        is_ready=ready.get("status") == "True",
        is_tried=scheduled.get("status") == "False",
        unplaced=str(scheduled.get("message") or "") if scheduled.get("status") == "False" else "",
        held_up=held_up(status) if labels.get(JOB_LABEL) else "",
        wants_room=not spec.get("schedulingGates") and _wants_room(scheduled),
        is_held_to_node=bool(resources.required_affinity(spec)),
        last_change_ms=time_ms(str(ready.get("lastTransitionTime") or "")),
        ran_ms=max(map(_ran_ms, status.get("containerStatuses") or ()), default=0),
    )


def _ending(status: Mapping[str, Any], conditions: Mapping[str, Any], *, is_deleted: bool) -> Ending:
    """Tell how a pod ended; a pod that was deleted ended by that, whatever its containers said."""
    phase = status.get("phase")
    if phase not in ("Succeeded", "Failed"):
        return ""
    disrupted = (conditions.get("DisruptionTarget") or {}).get("status") == "True"
    if is_deleted or disrupted or references.is_ended_by_others(str(status.get("reason") or "")):
        return "lost"
    return "succeeded" if phase == "Succeeded" else "failed"


def _ran_ms(container: Mapping[str, Any]) -> int:
    ended = (container.get("state") or {}).get("terminated") or {}
    begun_ms, ended_ms = (time_ms(str(ended.get(name) or "")) for name in ("startedAt", "finishedAt"))
    return max(0, ended_ms - begun_ms) if begun_ms else 0


def _wants_room(scheduled: Mapping[str, Any]) -> bool:
    if scheduled.get("status") == "True" or scheduled.get("reason") != "Unschedulable":
        return True
    message = str(scheduled.get("message") or "")
    # Where it has tried to make room, it says what would still be missing, as the distance from another pod.
    lacking = message.partition("preemption: 0/")[2] or message
    return not message or any(words in lacking for words in _WANTS_ROOM)


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


# --- training jobs ---

Form = tuple[str | int | None, str | int | None]
"""Of a Service job and role of the pods that it selects; of a budget how many pods may be away, and how many
have to be there, None where it does not say so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleFacts:
    """Pods of one role of a job, all alike."""

    role: RoleName
    set_name: str  # of their Service, and of the StatefulSet of servers
    count: int  # how many there have to be; of trainers the fewest
    requests: Amounts
    shape: str  # what decides which nodes one may go to
    priority_class: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """A training job."""

    key: str  # `namespace/name`
    namespace: str
    name: str
    uid: str
    version: int = field(compare=False)  # that it has another one alone is no change
    generation: int
    spec: TrainingJob | None  # None where it cannot be used
    faults: tuple[str, ...]  # why it cannot be used
    is_deleted: bool
    status: Mapping[str, Any]
    phase: str  # as it was last written
    has_ended: bool  # whether it has succeeded or failed, for good
    wants_pods: bool  # whether it takes part in the plan
    trainer: RoleFacts | None
    servers: tuple[RoleFacts, ...]  # master and parameter servers
    changed_ms: int | None  # when the number of its trainers was last changed, None if never
    curve: Curve | None  # its reported speed
    rendezvous: str  # name of the trainer at which the others meet, empty where they meet at the master

    @property
    def target(self) -> int:
        """Give how many trainers it was told to have, 0 where it is not admitted."""
        return int((self.status.get("trainer") or {}).get("desired") or 0)

    def stage(self, pods: list[PodFacts]) -> JobStage:
        """Tell how far it has come: finishing from the first success of a trainer on."""
        has_success = any(pod.role == "trainer" and pod.ending == "succeeded" for pod in pods)
        if self.phase == "Completing" or has_success:
            return "finishing"
        return "admitted" if self.target > 0 else "waiting"

    def is_paused(self, pods: list[PodFacts], now_ms: int) -> bool:
        """Tell whether a master or parameter server is lost for now, so that trainers can only wait.

        A StatefulSet makes a pod anew when the old one is gone for sure. On a node that no longer answers
        nobody knows: a person has to say so.
        """
        is_admitted = self.wants_pods and self.target > 0
        return is_admitted and any(pod.role != "trainer" and pod.is_overdue(now_ms) for pod in pods)


def parse_job(obj: Mapping[str, Any]) -> JobFacts:
    """Read a TrainingJob; one that cannot be used is known with its faults."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    known = {name: metadata.get(name) for name in ("namespace", "name", "uid", "creationTimestamp")}
    spec, faults, roles = _parse_spec(json.dumps({**obj, "metadata": known, "status": None}))
    changes = [time_ms(str(record.get("time") or "")) for record in status.get("scaleRecords") or ()]
    phase, is_deleted = str(status.get("phase") or ""), bool(metadata.get("deletionTimestamp"))
    has_ended = phase in ("Succeeded", "Failed")
    return JobFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        version=int(version) if (version := str(metadata.get("resourceVersion") or "")).isdigit() else 0,
        generation=int(metadata.get("generation") or 0),
        spec=spec,
        faults=faults,
        is_deleted=is_deleted,
        status=status,
        phase=phase,
        has_ended=has_ended,
        wants_pods=spec is not None and not (spec.is_suspended or is_deleted or has_ended),
        trainer=roles[0] if roles else None,
        servers=tuple(role for role in reversed(roles[1:]) if role.count),
        changed_ms=max(changes, default=0) or None,
        curve=_curve(status),
        rendezvous=training_job.rendezvous_trainer(spec) if spec else "",
    )


@lru_cache(maxsize=1024)  # the status of a job changes often, the rest seldom
def _parse_spec(text: str) -> tuple[TrainingJob | None, tuple[str, ...], tuple[RoleFacts, ...]]:
    try:
        spec = training_job.parse(json.loads(text))
    except training_job.SpecError as error:
        return None, error.faults, ()
    return spec, (), tuple(_role_facts(spec, role) for role in get_args(RoleName))


def _role_facts(spec: TrainingJob, role: RoleName) -> RoleFacts:
    part = spec.roles[role]
    template = pods.pod_spec(spec, role, 0 if role == "trainer" else None)
    return RoleFacts(
        role=role,
        set_name=training_job.role_name(spec.name, role),
        count=part.count if isinstance(part, Server) else spec.minimum,
        requests=resources.requests(template),
        shape=shape(template),
        priority_class=part.priority_class,
    )


def _curve(status: Mapping[str, Any]) -> Curve | None:
    """Read `status.throughput.curve`: trainers, items a second; one factor makes all speeds whole."""
    points = []
    for point in (status.get("throughput") or {}).get("curve") or ():
        count, speed = map(_number, point) if len(point) == 2 else (None, None)
        if count is not None and speed is not None and count.denominator == 1:
            points.append((int(count), speed))
    factor = lcm(*(speed.denominator for _, speed in points))
    return tuple((count, int(speed * factor)) for count, speed in points) or None


def _number(value: Any) -> Fraction | None:
    """Read a number that is finite and not negative, as it was written."""
    try:
        number = Fraction(str(value)) if isinstance(value, int | float) else None
    except ValueError:  # infinite, no number, true or false
        return None
    return number if number is not None and number >= 0 else None


# --- what stands around the trainers of a job ---


@dataclass(frozen=True, kw_only=True, slots=True)
class SetFacts:
    """A StatefulSet of a training job."""

    uid: str
    owner: str  # UID of its controller
    role: str
    replicas: int
    shape: str  # of its pods, with the nodes that they are held to
    is_held: bool  # whether its pods are held to nodes
    hosts: tuple[str, ...]  # host names of the nodes that its pods are held to, or had better go to
    created_ms: int


def parse_set(obj: Mapping[str, Any]) -> SetFacts:
    """Read a StatefulSet."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    affinity = (template.get("affinity") or {}).get("nodeAffinity") or {}
    required = resources.required_affinity(template) or {}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    terms = [*(required.get("nodeSelectorTerms") or ()), *(row.get("preference") or {} for row in preferred)]
    expressions = [expression for term in terms for expression in term.get("matchExpressions") or ()]
    hosts = [
        expression.get("values") or ()
        for expression in expressions
        if expression.get("key") == pods.HOSTNAME and expression.get("operator") == "In"
    ]
    return SetFacts(
        uid=str(metadata.get("uid") or ""),
        owner=str(controller_of(metadata).get("uid") or ""),
        role=str((metadata.get("labels") or {}).get(ROLE_LABEL) or ""),
        replicas=int(spec.get("replicas", 1)),
        shape=shape(template),
        is_held=bool(required),
        hosts=tuple(host for values in hosts for host in values),
        created_ms=time_ms(str(metadata.get("creationTimestamp") or "")),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CompanionFacts:
    """A Service or PodDisruptionBudget of a training job."""

    uid: str
    owner: str  # UID of its controller
    is_going: bool  # whether somebody deleted it
    form: Form


def parse_companion(obj: Mapping[str, Any]) -> CompanionFacts:
    """Read a Service or PodDisruptionBudget."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    form: Form = (spec.get("maxUnavailable"), spec.get("minAvailable"))
    if obj.get("kind") == "Service":
        selector = spec.get("selector") or {}
        form = (str(selector.get(JOB_LABEL) or ""), str(selector.get(ROLE_LABEL) or ""))
    return CompanionFacts(
        uid=str(metadata.get("uid") or ""),
        owner=str(controller_of(metadata).get("uid") or ""),
        is_going=bool(metadata.get("deletionTimestamp")),
        form=form,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassFacts:
    """A PriorityClass."""

    value: int
    is_default: bool  # whether pods without a class get it


def parse_class(obj: Mapping[str, Any]) -> ClassFacts:
    """Read a PriorityClass."""
    return ClassFacts(value=int(obj.get("value") or 0), is_default=bool(obj.get("globalDefault")))
