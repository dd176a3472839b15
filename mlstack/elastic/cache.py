"""What the controller knows of the cluster: fed by watches, and by the answers to its own writes."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm
from typing import Any, Literal, TypeVar

from mlstack.dataclass import dataclass
from mlstack.elastic import facts, pods, training_job
from mlstack.elastic.facts import (
    JOB_LABEL,
    ROLE_LABEL,
    Eligible,
    NodeFacts,
    PodFacts,
    controller_of,
    key_of,
    shape,
    time_ms,
    version,
)
from mlstack.elastic.snapshot import NO_LIMIT, Curve, JobStage, Priority, PriorityGrants
from mlstack.elastic.training_job import API_VERSION, KIND, RoleName, Server, TrainingJob
from mlstack.errors import ClusterError
from mlstack.kube.client import ObjectRef, WatchEvent
from mlstack.objects.resources import Amounts, QuotaFacts, parse_quota, requests

SERVICE = ("v1", "Service")
BUDGET = ("policy/v1", "PodDisruptionBudget")
ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What goes wrong with values of other types than an API promises."""

# Watches that lag behind may tell of an object again for a while after it has gone.
_REMEMBERED = 20_000
_FINE = 100  # shares of weights are told apart by hundredths

Form = tuple[str | int | None, str | int | None]
"""Of a Service job and role of the pods that it selects; of a budget how many pods may be away, and how many
have to be there, None where it does not say so."""
T = TypeVar("T")


class ResourceStore(dict[str, T]):
    """Objects of one kind by `namespace/name`, each parsed once a version, with its `uid` and `version`.

    Events may come twice and late: from a watch, and before it from the answers to our own writes. The newest
    version wins, and what has gone stays gone, unless the selector of a watch lost sight of it for a while.
    """

    def __init__(self, parse: Callable[[Mapping[str, Any]], T]) -> None:
        self._parse = parse
        self._gone: OrderedDict[str, int] = OrderedDict()  # by UID: up to which version events are late

    def put(self, obj: Mapping[str, Any]) -> bool:
        """Take in an object as it is now; says whether that changed anything: heartbeats do not."""
        metadata = obj["metadata"]
        key, number = key_of(metadata), version(metadata)
        known: Any = self.get(key)
        is_old = known is not None and 0 < number <= known.version
        if is_old or number <= self._gone.get(str(metadata.get("uid")), -1):
            return False
        try:
            item: Any = self._parse(obj)
        except ODD as error:
            name = f"{obj.get('kind', 'object')} {key}".strip()
            raise ClusterError(
                f"`{name}` cannot be judged: a field has another type than its API gives it"
            ) from error
        self[key] = item
        return known is None or replace(known, version=item.version) != item

    def drop(self, obj: Mapping[str, Any]) -> bool:
        """Take in that an object has gone; says whether that changed anything."""
        metadata = obj["metadata"]
        self._bury(str(metadata.get("uid") or ""), version(metadata) or sys.maxsize)
        known: Any = self.get(key_of(metadata))
        if known is None or (metadata.get("uid") and known.uid != metadata["uid"]):
            return False
        del self[key_of(metadata)]
        return True

    def retain(self, keys: Container[str], listed: int, namespace: str | None) -> bool:
        """Drop what a list in resource version `listed` lacks, unless it is newer; says whether any was."""
        items: dict[str, Any] = {key: item for key, item in self.items() if key not in keys}
        gone = [
            key
            for key, item in items.items()
            if item.version <= listed and (namespace is None or key.startswith(f"{namespace}/"))
        ]
        for key in gone:
            del self[key]
            self._bury(items[key].uid, listed)
        return bool(gone)

    def _bury(self, uid: str, gone: int) -> None:
        if uid:
            self._gone[uid] = max(gone, self._gone.get(uid, 0))
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


# --- training jobs ---


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
    ref: ObjectRef
    namespace: str
    name: str
    uid: str
    version: int
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
    meeting: str  # name of the trainer at which the others meet, empty where they meet at the master

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
    namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
    spec: TrainingJob | None = None
    faults: tuple[str, ...] = ()
    servers: list[RoleFacts] = []
    try:
        spec = training_job.parse(obj)
        servers = [role for role in (_role_facts(spec, "master"), _role_facts(spec, "pserver")) if role.count]
    except training_job.SpecError as error:
        faults = error.faults
    changes = [time_ms(str(record.get("time") or "")) for record in status.get("scaleRecords") or ()]
    phase, is_deleted = str(status.get("phase") or ""), bool(metadata.get("deletionTimestamp"))
    has_ended = phase in ("Succeeded", "Failed")
    return JobFacts(
        key=f"{metadata.get('namespace')}/{name}",
        ref=ObjectRef(API_VERSION, KIND, namespace, name),
        namespace=namespace,
        name=name,
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        generation=int(metadata.get("generation") or 0),
        spec=spec,
        faults=faults,
        is_deleted=is_deleted,
        status=status,
        phase=phase,
        has_ended=has_ended,
        wants_pods=spec is not None and not (spec.is_suspended or is_deleted or has_ended),
        trainer=_role_facts(spec, "trainer") if spec else None,
        servers=tuple(servers),
        changed_ms=max(changes, default=0) or None,
        curve=_curve(status),
        meeting=training_job.meeting_trainer(spec) if spec else "",
    )


def _role_facts(spec: TrainingJob, role: RoleName) -> RoleFacts:
    part = spec.roles[role]
    template = pods.pod_spec(spec, role, 0 if role == "trainer" else None)
    return RoleFacts(
        role=role,
        set_name=training_job.role_name(spec.name, role),
        count=part.count if isinstance(part, Server) else spec.minimum,
        requests=requests(template),
        shape=shape(template),
        priority_class=part.priority_class,
    )


def _curve(status: Mapping[str, Any]) -> Curve | None:
    """Read the speed that a job reported: `status.throughput.curve`, pairs of trainers and items a second.

    One factor makes all speeds of the job whole numbers, so that their ratios stay exact; a point of anything
    but numbers is passed over.
    """
    points = []
    for point in (status.get("throughput") or {}).get("curve") or ():
        count, speed = map(_number, point) if len(point) == 2 else (None, None)
        if count is not None and speed is not None and count.denominator == 1:
            points.append((int(count), speed))
    factor = lcm(*(speed.denominator for _, speed in points))
    return Curve(points=tuple((count, int(speed * factor)) for count, speed in points)) if points else None


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
    version: int
    owner: str  # UID of its controller
    role: str
    replicas: int
    shape: str  # of its pods, with the nodes that they are held to
    is_held: bool  # whether its pods are held to nodes
    hosts: tuple[str, ...]  # host names of the nodes that its pods are held to, or had better go to
    created_ms: int


def _parse_set(obj: Mapping[str, Any]) -> SetFacts:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    affinity = (template.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    terms = list(required.get("nodeSelectorTerms") or ())
    terms += [preference.get("preference") or {} for preference in preferred]
    expressions = [expression for term in terms for expression in term.get("matchExpressions") or ()]
    hosts = [
        expression.get("values") or ()
        for expression in expressions
        if expression.get("key") == pods.HOSTNAME and expression.get("operator") == "In"
    ]
    return SetFacts(
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
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
    version: int
    owner: str  # UID of its controller
    is_going: bool  # whether somebody deleted it
    form: Form


def _parse_companion(obj: Mapping[str, Any]) -> CompanionFacts:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    form: Form = (spec.get("maxUnavailable"), spec.get("minAvailable"))
    if obj.get("kind") == "Service":
        selector = spec.get("selector") or {}
        form = (str(selector.get(JOB_LABEL) or ""), str(selector.get(ROLE_LABEL) or ""))
    return CompanionFacts(
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        owner=str(controller_of(metadata).get("uid") or ""),
        is_going=bool(metadata.get("deletionTimestamp")),
        form=form,
    )


def _companions(job: JobFacts) -> Iterator[tuple[ObjectRef, Form]]:
    """Give the Services and budgets that stand around the pods of a job, as `pods.supporting` writes them."""
    for role in (job.trainer, *job.servers) if job.trainer else ():
        yield ObjectRef(*SERVICE, job.namespace, role.set_name), (job.name, role.role)
        if role.role != "trainer" or role.count:
            form = (None, role.count) if role.role == "trainer" else (0, None)
            yield ObjectRef(*BUDGET, job.namespace, role.set_name), form


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassFacts:
    """A PriorityClass."""

    value: int
    is_default: bool  # whether pods without a class get it
    uid: str
    version: int


def _parse_class(obj: Mapping[str, Any]) -> ClassFacts:
    metadata = obj["metadata"]
    return ClassFacts(
        value=int(obj.get("value") or 0),
        is_default=bool(obj.get("globalDefault")),
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
    )


# --- the cache ---


class ClusterCache:
    """Nodes, pods, priority classes, quotas, training jobs and what is around them, as far as heard of.

    One thread writes and reads; threads that watch hand their events over.
    """

    def __init__(self, grants: PriorityGrants = NO_LIMIT) -> None:
        self._grants = grants
        self._nodes: ResourceStore[NodeFacts] = ResourceStore(facts.parse_node)
        self.pods: ResourceStore[PodFacts] = ResourceStore(facts.parse_pod)
        self.jobs: ResourceStore[JobFacts] = ResourceStore(parse_job)
        self.sets: ResourceStore[SetFacts] = ResourceStore(_parse_set)
        self._classes: ResourceStore[ClassFacts] = ResourceStore(_parse_class)
        self._services: ResourceStore[CompanionFacts] = ResourceStore(_parse_companion)
        self._budgets: ResourceStore[CompanionFacts] = ResourceStore(_parse_companion)
        self._quotas: ResourceStore[QuotaFacts] = ResourceStore(parse_quota)
        self._stores: Mapping[str, ResourceStore[Any]] = {
            "Node": self._nodes,
            "Pod": self.pods,
            "TrainingJob": self.jobs,
            "StatefulSet": self.sets,
            "PriorityClass": self._classes,
            "ResourceQuota": self._quotas,
            "Service": self._services,
            "PodDisruptionBudget": self._budgets,
        }
        self._eligible: Eligible | None = None

    # --- what happens in the cluster ---

    def handle(self, event: WatchEvent) -> bool:
        """Take in one event; says whether it changed anything. Kinds that do not matter are passed over.

        What quotas leave changes with every pod: it is read when it matters, and is no change of its own.
        """
        kind = str(event.object.get("kind"))
        store = self._stores.get(kind)
        if store is None or event.type == "BOOKMARK":
            return False
        has_changed = store.drop(event.object) if event.type == "DELETED" else store.put(event.object)
        if has_changed and kind == "Node":
            self._eligible = None
        return has_changed and kind != "ResourceQuota"

    def replace(self, kind: str, items: Iterable[Mapping[str, Any]], version: str) -> bool:
        """Take in a list of all objects of a kind, in its resource version; what it lacks is gone."""
        objects = {key_of(obj["metadata"]): obj for obj in items}
        has_gone = self.retain(kind, objects, version)
        events = [WatchEvent(type="MODIFIED", object=obj) for obj in objects.values()]
        return any([self.handle(event) for event in events]) or has_gone

    def retain(self, kind: str, keys: Container[str], version: str, *, namespace: str | None = None) -> bool:
        """Drop what a list of a kind (of one namespace, or of all) lacks, unless newer than the list."""
        has_changed = self._stores[kind].retain(keys, int(version) if version.isdigit() else 0, namespace)
        if has_changed and kind == "Node":
            self._eligible = None
        return has_changed

    # --- what is there ---

    def sorted_jobs(self) -> list[JobFacts]:
        """Give the training jobs by key."""
        return sorted(self.jobs.values(), key=lambda job: job.key)

    def assign_pods(self) -> tuple[dict[str, list[PodFacts]], list[PodFacts]]:
        """Give the pods of each job, in the order of their indexes, and those of nobody we know.

        A pod is a job's own when its controller is the job, or a StatefulSet whose controller is the job;
        labels alone say nothing.
        """
        owners = {job.uid: job.key for job in self.jobs.values()}
        owners |= {known.uid: owners[known.owner] for known in self.sets.values() if known.owner in owners}
        own: dict[str, list[PodFacts]] = {job.key: [] for job in self.jobs.values()}
        foreign: list[PodFacts] = []
        for pod in self.pods.values():
            key = owners.get(pod.owner, "") if pod.of_training else ""
            (own[key] if key else foreign).append(pod)
        for of_job in own.values():
            of_job.sort(key=lambda pod: (len(pod.name), pod.name))
        return own, foreign

    def nodes(self) -> list[NodeFacts]:
        """Give the nodes that take pods."""
        return [node for node in self._nodes.values() if node.takes_pods]

    def eligible_nodes(self, shape: str) -> frozenset[str] | None:
        """Give the nodes that pods of a shape may go to, None for all that take pods."""
        if self._eligible is None:
            self._eligible = Eligible(node.place for node in self.nodes())
        return self._eligible.nodes(shape)

    def host_name(self, node: str) -> str:
        """Give the host name of a node as its label has it: what affinity goes by."""
        known = self._nodes.get(node)
        return (known.place.labels if known else {}).get(pods.HOSTNAME, node)

    def sets_of(self, job: JobFacts) -> dict[str, SetFacts]:
        """Give the StatefulSets that are the job's own, by name."""
        sets = {role.set_name: self.sets.get(f"{job.namespace}/{role.set_name}") for role in job.servers}
        return {name: known for name, known in sets.items() if known is not None and known.owner == job.uid}

    def lacking(self, job: JobFacts) -> dict[ObjectRef, Literal["missing", "changed"]]:
        """Tell which Services and budgets of a job are not there, or differ in what matters.

        One that is there but is not the job's own is missing. A budget that somebody gave the other of its
        two numbers is left: with both no server would take it.
        """
        lacking: dict[ObjectRef, Literal["missing", "changed"]] = {}
        for ref, form in _companions(job):
            known = self._stores[ref.kind].get(f"{ref.namespace}/{ref.name}")
            if known is None or known.owner != job.uid:
                lacking[ref] = "missing"
            elif any(None not in pair and pair[0] != pair[1] for pair in zip(known.form, form, strict=True)):
                lacking[ref] = "changed"
        return lacking

    def needless(self, job: JobFacts) -> dict[ObjectRef, str]:
        """Give what stands around a job that it has no use for, with the UIDs of these very objects.

        That is its budget of trainers where none of them has to be there. Nothing else is ever too much: the
        definition lets no master and no parameter server come or go.
        """
        if job.trainer is None or job.trainer.count:
            return {}
        known = self._budgets.get(f"{job.namespace}/{job.trainer.set_name}")
        if known is None or known.owner != job.uid or known.is_going:
            return {}
        return {ObjectRef(*BUDGET, job.namespace, job.trainer.set_name): known.uid}

    def quotas(self, namespace: str) -> list[QuotaFacts]:
        """Give the ResourceQuotas of a namespace."""
        return [quota for quota in self._quotas.values() if quota.namespace == namespace]

    # --- priorities and weights ---

    def priority(self, job: JobFacts) -> Priority:
        """Give the priority of a job: what it asks for, and no more than the highest of its namespace.

        That is what the configuration grants, or the highest PriorityClass that a ResourceQuota of the
        namespace names: so Kubernetes says which namespace may use which class (`limitedResources`).
        """
        if job.spec is None:
            return Priority()
        name = job.spec.priority_class
        known = self._classes.get(name) if name else None
        if name and known is None:
            text = f"there is no PriorityClass `{name}`: the job counts with priority 0"
            return Priority(value=min(0, self._highest(job, 0)), asked=0, reason="NoSuchClass", message=text)
        asked = known.value if known is not None else job.spec.priority
        value = min(asked, self._highest(job, asked))
        text = f"PriorityClass `{name}`, {asked}" if name else f"priority {asked}"
        if value < asked:
            text = f"asks for {text}, and counts with {value}, the highest of namespace `{job.namespace}`"
            return Priority(value=value, asked=asked, reason="AboveNamespace", message=text)
        return Priority(value=value, asked=asked, reason="Granted" if name or asked else "", message=text)

    def _highest(self, job: JobFacts, asked: int) -> int:
        """Give the highest priority of a namespace, `asked` where there is no limit."""
        granted = self._grants.highest(job.namespace)
        if granted is None:
            return asked
        names = frozenset[str]().union(*(quota.classes for quota in self.quotas(job.namespace)))
        classes = [self._classes.get(name) for name in names]
        return max([granted, *(known.value for known in classes if known is not None)])

    def class_values(self) -> dict[str, int]:
        """Give the priorities of classes by name; the empty name is the default."""
        default = min((known.value for known in self._classes.values() if known.is_default), default=0)
        return {"": default, **{name: known.value for name, known in self._classes.items()}}

    def weights(self) -> dict[str, int]:
        """Give the weights of jobs; a namespace has no more of them in all than it has jobs.

        Else one of a million would have the trainers of all other namespaces.
        """
        asked = {job.key: job.spec.weight for job in self.jobs.values() if job.spec and job.wants_pods}
        if self._grants == NO_LIMIT:
            return asked
        namespaces = {key: key.partition("/")[0] for key in asked}
        counts, sums = Counter(namespaces.values()), Counter[str]()
        for key, weight in asked.items():
            sums[namespaces[key]] += weight
        shares = {
            key: max(1, _FINE * weight * counts[namespaces[key]] // sums[namespaces[key]])
            for key, weight in asked.items()
        }
        common = gcd(*shares.values())
        return {key: share // common for key, share in shares.items()}
