"""Training jobs and their StatefulSets, parsed: what they ask for, and how far they have come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

from mlstack.elastic import childnames, children, podspec, spec
from mlstack.elastic.observed.amounts import Amounts, requests, time_ms
from mlstack.elastic.observed.nodes import version
from mlstack.elastic.observed.placement import shape
from mlstack.elastic.observed.pods import JOB_LABEL, ROLE_LABEL
from mlstack.elastic.snapshot import Curve
from mlstack.elastic.trainingjob import RoleName, TrainingJob

ENDED = ("Succeeded", "Failed")

_SERVERS: tuple[RoleName, ...] = ("master", "pserver")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Pods of one role, all alike.

    Attributes:
        role: `trainer`, `master` or `pserver`.
        set_name: name of their Service, and of the StatefulSet of servers.
        count: how many there have to be; of trainers the fewest.
        requests: what one requests.
        shape: what decides which nodes one may go to.
        priority_class: their priority class.
    """

    role: RoleName
    set_name: str
    count: int
    requests: Amounts
    shape: str
    priority_class: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """What is known of a training job.

    Attributes:
        key: `namespace/name`.
        namespace: its namespace.
        name: its name.
        uid: its UID.
        version: resource version of the object.
        generation: of its spec.
        spec: what it asks for, None where it cannot be used.
        faults: why it cannot be used.
        is_deleted: whether it is being deleted.
        status: of the object, as it was last written.
        trainer: its trainers.
        servers: its master and parameter servers.
        changed_ms: when the number of its trainers was last changed, None if never.
        curve: its reported speed.
        meeting: name of the trainer at which the others meet, empty where they meet at the master.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    spec: TrainingJob | None
    faults: tuple[str, ...]
    is_deleted: bool
    status: Mapping[str, Any]
    trainer: Kind | None
    servers: tuple[Kind, ...]
    changed_ms: int | None
    curve: Curve | None
    meeting: str

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
    """What is known of a StatefulSet of a training job.

    Attributes:
        key: `namespace/name`.
        uid: its UID.
        version: resource version of the object.
        owner: UID of its controller.
        job: name of its job.
        role: `master` or `pserver`.
        replicas: how many pods it is to have.
        shape: of its pods: with the nodes it is held to.
        is_held: whether its pods are held to nodes.
        hosts: host names of the nodes that its pods are held to, or had better go to.
        created_ms: when it was created.
    """

    key: str
    uid: str
    version: int
    owner: str
    job: str
    role: str
    replicas: int
    shape: str
    is_held: bool
    hosts: tuple[str, ...]
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
        meeting=childnames.meeting_trainer(wanted) if wanted else "",
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
        if expression.get("key") == podspec.HOSTNAME and expression.get("operator") == "In":
            yield from expression.get("values") or ()


def _spec(obj: Mapping[str, Any]) -> tuple[TrainingJob | None, tuple[str, ...]]:
    try:
        return spec.parse(obj), ()
    except spec.SpecError as error:
        return None, error.faults


def _servers(wanted: TrainingJob) -> Iterator[Kind]:
    for role in _SERVERS:
        server = children.server_of(wanted, role)
        if server.count:
            template = podspec.server_spec(wanted, role)
            yield _kind(wanted, role, template, count=server.count, priority_class=server.priority_class)


def _trainer(wanted: TrainingJob) -> Kind:
    template, trainers = podspec.trainer_spec(wanted, 0), wanted.trainer
    return _kind(wanted, "trainer", template, count=wanted.minimum, priority_class=trainers.priority_class)


def _kind(
    wanted: TrainingJob, role: RoleName, template: Mapping[str, Any], *, count: int, priority_class: str
) -> Kind:
    return Kind(
        role=role,
        set_name=childnames.role_name(wanted.name, role),
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
