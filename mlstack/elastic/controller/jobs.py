"""Training jobs with their StatefulSets, Services and disruption budgets, parsed from Kubernetes objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, Literal

from mlstack.elastic import pods, training_job
from mlstack.elastic.facts import (
    JOB_LABEL,
    ROLE_LABEL,
    PodFacts,
    controller_of,
    key_of,
    shape,
    time_ms,
    version,
)
from mlstack.elastic.resources import Amounts, requests
from mlstack.elastic.snapshot import Curve, JobStage
from mlstack.elastic.training_job import API_VERSION, KIND, RoleName, Server, TrainingJob
from mlstack.kube.client import ObjectRef

ENDED = ("Succeeded", "Failed")
SERVICE = ("v1", "Service")
BUDGET = ("policy/v1", "PodDisruptionBudget")

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

CompanionState = Literal["missing", "changed"]
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
    version: int
    generation: int
    spec: TrainingJob | None  # None where it cannot be used
    faults: tuple[str, ...]  # why it cannot be used
    is_deleted: bool
    status: Mapping[str, Any]
    trainer: RoleFacts | None
    servers: tuple[RoleFacts, ...]  # master and parameter servers
    changed_ms: int | None  # when the number of its trainers was last changed, None if never
    curve: Curve | None  # its reported speed
    meeting: str  # name of the trainer at which the others meet, empty where they meet at the master

    @property
    def ref(self) -> ObjectRef:
        """Give its address."""
        return ObjectRef(API_VERSION, KIND, self.namespace, self.name)

    @property
    def phase(self) -> str:
        """Give the phase that was last written."""
        return str(self.status.get("phase") or "")

    @property
    def has_ended(self) -> bool:
        """Tell whether it has succeeded or failed, for good."""
        return self.phase in ENDED

    @property
    def target(self) -> int:
        """Give how many trainers it was told to have, 0 where it is not admitted."""
        return int((self.status.get("trainer") or {}).get("desired") or 0)

    @property
    def wants_pods(self) -> bool:
        """Tell whether it takes part in the plan."""
        is_on = self.spec is not None and not self.spec.is_suspended
        return is_on and not self.is_deleted and not self.has_ended

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


@dataclass(frozen=True, kw_only=True, slots=True)
class SetFacts:
    """A StatefulSet of a training job."""

    key: str
    uid: str
    version: int
    owner: str  # UID of its controller
    role: str
    replicas: int
    shape: str  # of its pods, with the nodes that they are held to
    is_held: bool  # whether its pods are held to nodes
    hosts: tuple[str, ...]  # host names of the nodes that its pods are held to, or had better go to
    created_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CompanionFacts:
    """A Service or PodDisruptionBudget of a training job."""

    key: str
    uid: str
    version: int
    owner: str  # UID of its controller
    is_going: bool  # whether somebody deleted it
    form: Form


def parse_job(obj: Mapping[str, Any]) -> JobFacts:
    """Read a TrainingJob; one that cannot be used is known with its faults."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    spec: TrainingJob | None = None
    faults: tuple[str, ...] = ()
    try:
        spec = training_job.parse(obj)
    except training_job.SpecError as error:
        faults = error.faults
    changes = [time_ms(str(record.get("time") or "")) for record in status.get("scaleRecords") or ()]
    return JobFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        generation=int(metadata.get("generation") or 0),
        spec=spec,
        faults=faults,
        is_deleted=bool(metadata.get("deletionTimestamp")),
        status=status,
        trainer=_role_facts(spec, "trainer") if spec else None,
        servers=tuple(role for role in _servers(spec) if role.count) if spec else (),
        changed_ms=max(changes, default=0) or None,
        curve=_curve(status),
        meeting=training_job.meeting_trainer(spec) if spec else "",
    )


def _servers(spec: TrainingJob) -> tuple[RoleFacts, RoleFacts]:
    return _role_facts(spec, "master"), _role_facts(spec, "pserver")


def _role_facts(spec: TrainingJob, role: RoleName) -> RoleFacts:
    part = spec.roles[role]
    count = part.count if isinstance(part, Server) else spec.minimum
    template = pods.pod_spec(spec, role, 0 if role == "trainer" else None)
    return RoleFacts(
        role=role,
        set_name=training_job.role_name(spec.name, role),
        count=count,
        requests=requests(template),
        shape=shape(template),
        priority_class=part.priority_class,
    )


def parse_set(obj: Mapping[str, Any]) -> SetFacts:
    """Read a StatefulSet of a job."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    affinity = (template.get("affinity") or {}).get("nodeAffinity") or {}
    return SetFacts(
        key=key_of(metadata),
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        owner=str(controller_of(metadata).get("uid") or ""),
        role=str((metadata.get("labels") or {}).get(ROLE_LABEL) or ""),
        replicas=int(spec.get("replicas", 1)),
        shape=shape(template),
        is_held=bool(affinity.get(_REQUIRED)),
        hosts=tuple(_hosts(affinity)),
        created_ms=time_ms(str(metadata.get("creationTimestamp") or "")),
    )


def _hosts(affinity: Mapping[str, Any]) -> Iterator[str]:
    """Give the host names in the affinity of servers."""
    terms = list((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())
    terms += [preference.get("preference") or {} for preference in affinity.get(_PREFERRED) or ()]
    for term in terms:
        for expression in term.get("matchExpressions") or ():
            if expression.get("key") == pods.HOSTNAME and expression.get("operator") == "In":
                yield from expression.get("values") or ()


def _curve(status: Mapping[str, Any]) -> Curve | None:
    """Read the speed that a job reported: `status.throughput.curve`, pairs of trainers and items a second.

    One factor makes all speeds of the job whole numbers, so that their ratios stay exact; a point of anything
    but numbers is passed over.
    """
    reported = (status.get("throughput") or {}).get("curve") or ()
    pairs = [(_number(point[0]), _number(point[1])) for point in reported if len(point) == 2]
    points = [
        (int(count), speed)
        for count, speed in pairs
        if count is not None and speed is not None and count.denominator == 1
    ]
    factor = lcm(*(speed.denominator for _, speed in points))
    return Curve(points=tuple((count, int(speed * factor)) for count, speed in points)) if points else None


def _number(value: Any) -> Fraction | None:
    """Read a number that is finite and not negative, as it was written."""
    try:
        number = Fraction(str(value)) if isinstance(value, int | float) else None
    except ValueError:  # infinite, no number, true or false
        return None
    return number if number is not None and number >= 0 else None


# --- Services and disruption budgets ---


def parse_service(obj: Mapping[str, Any]) -> CompanionFacts:
    """Read a Service of a job."""
    selector = (obj.get("spec") or {}).get("selector") or {}
    return _companion(obj, (str(selector.get(JOB_LABEL) or ""), str(selector.get(ROLE_LABEL) or "")))


def parse_budget(obj: Mapping[str, Any]) -> CompanionFacts:
    """Read a PodDisruptionBudget of a job."""
    spec = obj.get("spec") or {}
    return _companion(obj, (spec.get("maxUnavailable"), spec.get("minAvailable")))


def _companion(obj: Mapping[str, Any], form: Form) -> CompanionFacts:
    metadata = obj["metadata"]
    return CompanionFacts(
        key=key_of(metadata),
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        owner=str(controller_of(metadata).get("uid") or ""),
        is_going=bool(metadata.get("deletionTimestamp")),
        form=form,
    )


def companions(job: JobFacts) -> Iterator[tuple[ObjectRef, Form]]:
    """Give the Services and budgets that stand around the pods of a job, as `pods.supporting` writes them."""
    for role in (job.trainer, *job.servers) if job.trainer else ():
        yield ObjectRef(*SERVICE, job.namespace, role.set_name), (job.name, role.role)
        if role.role != "trainer":
            yield ObjectRef(*BUDGET, job.namespace, role.set_name), (0, None)
        elif role.count:
            yield ObjectRef(*BUDGET, job.namespace, role.set_name), (None, role.count)


def differs(form: Form, wanted: Form) -> bool:
    """Tell whether a companion is not as it should be.

    A budget that somebody gave the other of its two numbers is left: with both no server would take it.
    """
    return any(None not in (has, wants) and has != wants for has, wants in zip(form, wanted, strict=True))
