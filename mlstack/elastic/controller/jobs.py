"""Training jobs and their StatefulSets, parsed: what they ask for, and how far they have come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, Literal

from mlstack.elastic import pods, training_job
from mlstack.elastic.facts import JOB_LABEL, ROLE_LABEL, Amounts, requests, shape, time_ms, version
from mlstack.elastic.snapshot import Curve
from mlstack.elastic.training_job import RoleName, TrainingJob

# --- Training jobs and their StatefulSets, parsed: what they ask for, and how far they have come ---

ENDED = ("Succeeded", "Failed")

_SERVERS: tuple[RoleName, ...] = ("master", "pserver")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedKind:
    """Pods of one role, all alike."""

    role: RoleName  # `trainer`, `master` or `pserver`
    set_name: str  # name of their Service, and of the StatefulSet of servers
    count: int  # how many there have to be; of trainers the fewest
    requests: Amounts  # what one requests
    shape: str  # what decides which nodes one may go to
    priority_class: str  # their priority class


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """What is known of a training job."""

    key: str  # `namespace/name`
    namespace: str
    name: str
    uid: str
    version: int
    generation: int  # of its spec
    spec: TrainingJob | None  # what it asks for, None where it cannot be used
    faults: tuple[str, ...]  # why it cannot be used
    is_deleted: bool  # whether it is being deleted
    status: Mapping[str, Any]  # of the object, as it was last written
    trainer: ObservedKind | None  # its trainers
    servers: tuple[ObservedKind, ...]  # its master and parameter servers
    changed_ms: int | None  # when the number of its trainers was last changed, None if never
    curve: Curve | None  # its reported speed
    meeting: str  # name of the trainer at which the others meet, empty where they meet at the master

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
        return (
            self.spec is not None
            and not self.is_deleted
            and not self.has_ended
            and not self.spec.is_suspended
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SetFacts:
    """What is known of a StatefulSet of a training job."""

    key: str  # `namespace/name`
    uid: str
    version: int
    owner: str  # UID of its controller
    job: str  # name of its job
    role: str  # `master` or `pserver`
    replicas: int  # how many pods it is to have
    shape: str  # of its pods: with the nodes it is held to
    is_held: bool  # whether its pods are held to nodes
    hosts: tuple[str, ...]  # host names of the nodes that its pods are held to, or had better go to
    created_ms: int


def parse_job(obj: Mapping[str, Any]) -> JobFacts:
    """Read a TrainingJob; one that cannot be used is known with its faults."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    wanted, faults = _spec(obj)
    return JobFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        generation=int(metadata.get("generation") or 0),
        spec=wanted,
        faults=faults,
        is_deleted=bool(metadata.get("deletionTimestamp")),
        status=status,
        trainer=_trainer(wanted) if wanted else None,
        servers=tuple(_servers(wanted)) if wanted else (),
        changed_ms=_changed_ms(status),
        curve=_curve(status),
        meeting=training_job.meeting_trainer(wanted) if wanted else "",
    )


def parse_set(obj: Mapping[str, Any]) -> SetFacts:
    """Read a StatefulSet of a job."""
    metadata, wanted = obj["metadata"], obj.get("spec") or {}
    labels = metadata.get("labels") or {}
    template = (wanted.get("template") or {}).get("spec") or {}
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    affinity = (template.get("affinity") or {}).get("nodeAffinity") or {}
    return SetFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        owner=str(owners[0].get("uid") or "") if owners else "",
        job=str(labels.get(JOB_LABEL) or ""),
        role=str(labels.get(ROLE_LABEL) or ""),
        replicas=int(wanted.get("replicas", 1)),
        shape=shape(template),
        is_held=bool(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")),
        hosts=tuple(_hosts(affinity)),
        created_ms=time_ms(str(metadata.get("creationTimestamp") or "")),
    )


def _hosts(affinity: Mapping[str, Any]) -> Iterator[str]:
    """Give the host names in the affinity of servers."""
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    terms = [*(required.get("nodeSelectorTerms") or ()), *(one.get("preference") or {} for one in preferred)]
    for expression in [one for term in terms for one in term.get("matchExpressions") or ()]:
        if expression.get("key") == pods.HOSTNAME and expression.get("operator") == "In":
            yield from expression.get("values") or ()


def _spec(obj: Mapping[str, Any]) -> tuple[TrainingJob | None, tuple[str, ...]]:
    try:
        return training_job.parse(obj), ()
    except training_job.SpecError as error:
        return None, error.faults


def _servers(wanted: TrainingJob) -> Iterator[ObservedKind]:
    for role in _SERVERS:
        server = pods.server_of(wanted, role)
        if server.count:
            template = pods.server_spec(wanted, role)
            yield _kind(wanted, role, template, count=server.count, priority_class=server.priority_class)


def _trainer(wanted: TrainingJob) -> ObservedKind:
    template, trainers = pods.trainer_spec(wanted, 0), wanted.trainer
    return _kind(wanted, "trainer", template, count=wanted.minimum, priority_class=trainers.priority_class)


def _kind(
    wanted: TrainingJob, role: RoleName, template: Mapping[str, Any], *, count: int, priority_class: str
) -> ObservedKind:
    return ObservedKind(
        role=role,
        set_name=training_job.role_name(wanted.name, role),
        count=count,
        requests=requests(template),
        shape=shape(template),
        priority_class=priority_class,
    )


def _changed_ms(status: Mapping[str, Any]) -> int | None:
    records = status.get("scaleRecords") or ()
    times = [time_ms(str(record.get("time") or "")) for record in records]
    return max(times, default=0) or None


def _curve(status: Mapping[str, Any]) -> Curve | None:
    """Read the speed that a job reported: `status.throughput.curve`, pairs of trainers and items a second.

    One factor makes all speeds of the job whole numbers, so that their ratios stay exact; a point of anything
    but numbers is passed over.
    """
    reported = (status.get("throughput") or {}).get("curve") or ()
    points = [(_number(point[0]), _number(point[1])) for point in reported if len(point) == 2]
    found = [
        (int(count), speed)
        for count, speed in points
        if count is not None and speed is not None and count.denominator == 1
    ]
    factor = lcm(*(speed.denominator for _, speed in found))
    return Curve(points=tuple((count, int(speed * factor)) for count, speed in found)) if found else None


def _number(value: Any) -> Fraction | None:
    """Read a number that is finite and not negative, as it was written."""
    try:
        found = Fraction(str(value)) if isinstance(value, int | float) else None
    except ValueError:  # infinite, no number, true or false
        return None
    return found if found is not None and found >= 0 else None


# --- Services and disruption budgets of training jobs: what is known, what is missing, what is too
# much

SERVICE = ("v1", "Service")
BUDGET = ("policy/v1", "PodDisruptionBudget")

State = Literal["missing", "changed"]
Form = tuple[str | int | None, str | int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class AroundFacts:
    """What is known of a Service or PodDisruptionBudget of a training job."""

    key: str  # `namespace/name`
    uid: str
    version: int
    owner: str  # UID of its controller
    is_going: bool  # whether somebody deleted it
    # of a Service job and role of the pods that it selects, of a budget how many pods may be away and how
    # many have to be there, None where it does not say so
    form: Form


Find = Callable[[str, str], AroundFacts | None]
"""Gives what is known under a kind and a key."""


def parse_service(obj: Mapping[str, Any]) -> AroundFacts:
    """Read a Service of a job."""
    selector = (obj.get("spec") or {}).get("selector") or {}
    return _facts(obj, (str(selector.get(JOB_LABEL) or ""), str(selector.get(ROLE_LABEL) or "")))


def parse_budget(obj: Mapping[str, Any]) -> AroundFacts:
    """Read a PodDisruptionBudget of a job."""
    wanted = obj.get("spec") or {}
    return _facts(obj, (wanted.get("maxUnavailable"), wanted.get("minAvailable")))


def lacking(job: JobFacts, find: Find) -> dict[tuple[str, str, str], State]:
    """Tell by API version, kind and name which Services and budgets are not there, or differ in what matters.

    One that is there but is not the job's own is missing. A budget that somebody gave the other of its two
    numbers is left: with both no server would take it.
    """
    found: dict[tuple[str, str, str], State] = {}
    for (api_version, kind), name, form in _wanted(job):
        facts = find(kind, f"{job.namespace}/{name}")
        if facts is None or facts.owner != job.uid:
            found[api_version, kind, name] = "missing"
        elif _differs(facts.form, form):
            found[api_version, kind, name] = "changed"
    return found


def needless(job: JobFacts, find: Find) -> AroundFacts | None:
    """Give the job's own budget of trainers where none of them has to be there, None where there is no such.

    Nothing else is ever too much: the definition lets no master and no parameter server come or go.
    """
    if job.trainer is None or job.trainer.count:
        return None
    facts = find(BUDGET[1], f"{job.namespace}/{job.trainer.set_name}")
    is_own = facts is not None and facts.owner == job.uid and not facts.is_going
    return facts if is_own else None


def _wanted(job: JobFacts) -> Iterator[tuple[tuple[str, str], str, Form]]:
    """Give kind, name and form of what stands around the pods of a job, as `children` writes it."""
    kinds: tuple[ObservedKind, ...] = (job.trainer, *job.servers) if job.trainer is not None else ()
    for kind in kinds:
        yield SERVICE, kind.set_name, (job.name, kind.role)
        if kind.role != "trainer":
            yield BUDGET, kind.set_name, (0, None)
        elif kind.count:
            yield BUDGET, kind.set_name, (None, kind.count)


def _differs(form: Form, wanted: Form) -> bool:
    return any(None not in (has, wants) and has != wants for has, wants in zip(form, wanted, strict=True))


def _facts(obj: Mapping[str, Any], form: Form) -> AroundFacts:
    metadata = obj["metadata"]
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    return AroundFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        owner=str(owners[0].get("uid") or "") if owners else "",
        is_going=bool(metadata.get("deletionTimestamp")),
        form=form,
    )
