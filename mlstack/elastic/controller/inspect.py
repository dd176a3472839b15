"""What a person sees of elastic training: what would be done and why, and how the jobs stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mlstack.elastic import snapshot
from mlstack.elastic.controller import memory
from mlstack.elastic.controller.cache import ODD, ClusterCache
from mlstack.elastic.controller.controller import no_training_jobs, sources
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.policy.fair import POLICIES
from mlstack.elastic.policy.plan import BASELINES, plan
from mlstack.elastic.snapshot import (
    NO_LIMIT,
    Decision,
    Job,
    PolicyConfig,
    PriorityGrants,
    ScalePlan,
    Snapshot,
)
from mlstack.elastic.training_job import KIND
from mlstack.errors import ClusterError, ForbiddenError, NotFoundError, ObjectNotFoundError, UsageError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.watch import WatchSource
from mlstack.names import nearest

UNSEEN = "no controller has looked at it yet"
_ODD_TYPES = "a status has fields of other types than its API gives them"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Trainers of a job on one node."""

    node: str  # its name, empty for those without a node
    trainers: int  # how many


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """What would be done about one job."""

    job: str
    state: str  # how far it has come
    now: int  # trainers that it has
    target: int  # trainers that it is to have
    minimum: int  # fewest
    maximum: int  # most
    priority: int  # that it counts with among jobs
    cause: str  # the weightiest rule
    reasons: tuple[str, ...]  # why, the weightiest first
    victims: tuple[str, ...]  # trainers that go
    places: tuple[Placement, ...]  # where trainers come
    master: tuple[str, ...] = ()  # nodes for its master, if it is admitted now
    pserver: tuple[str, ...] = ()  # nodes for its parameter servers, likewise


@dataclass(frozen=True, kw_only=True)
class Lacking:
    """A pod or job without a place."""

    key: str  # of the pod or job
    missing: str  # what is missing, as people write it: `cpu 2500m, memory 1Gi, host port 7164/TCP`


@dataclass(frozen=True, kw_only=True)
class ElasticPlan:
    """What the controller would do now."""

    policy: str  # name of the policy
    nodes: int  # how many nodes take pods
    jobs: tuple[PlannedJob, ...]  # what becomes of the jobs
    unplaced: tuple[Lacking, ...]  # what found no place
    moves: int  # trainers moved for fairness alone
    steps: int  # how many steps the policy took


@dataclass(frozen=True, kw_only=True)
class ExplainedJob:
    """All that would be done about one job, and why."""

    policy: str  # name of the policy
    job: PlannedJob  # what would be done
    missing: str  # what is missing for its gang, empty where it has a place


@dataclass(frozen=True, kw_only=True)
class JobStanding:
    """How one job stands, as its status says."""

    job: str
    phase: str  # one word
    desired: int  # trainers it was told to have
    ready: int  # trainers that are ready
    minimum: int  # fewest
    maximum: int  # most
    priority: int  # that it counts with among jobs, as the controller saw it
    reason: str  # one line, where something is not as it should be


@dataclass(frozen=True, kw_only=True)
class ElasticStatus:
    """How all training jobs stand."""

    jobs: tuple[JobStanding, ...]  # by key


def look(
    cluster: Cluster, now_ms: int, namespaces: Sequence[str] = (), grants: PriorityGrants = NO_LIMIT
) -> Snapshot:
    """Read all that a plan needs, what the controller waits for included; writes nothing.

    Raises:
        NotFoundError: the cluster has no training jobs, or not such a namespace.
        ClusterError: it does not answer or refuses.
    """
    world = _read(cluster, sources(namespaces), ClusterCache(grants))
    check_namespaces(cluster, _without_jobs(world, namespaces))
    try:
        memory.recall_plan(world, now_ms)
        return world.snapshot(now_ms)
    except ODD as error:
        raise ClusterError(f"what the cluster has cannot be judged: {_ODD_TYPES}") from error


def look_at_jobs(cluster: Cluster, namespaces: Sequence[str] = ()) -> ClusterCache:
    """Read the training jobs alone.

    Raises:
        NotFoundError: the cluster has no training jobs, or not such a namespace.
        ClusterError: it does not answer or refuses.
    """
    world = _read(cluster, [source for source in sources(namespaces) if source.kind == KIND], ClusterCache())
    check_namespaces(cluster, _without_jobs(world, namespaces))
    return world


def check_namespaces(cluster: Cluster, names: Iterable[str]) -> None:
    """Refuse namespaces that are not there, as far as we may know.

    Raises:
        NotFoundError: at least one is not there.
        ClusterError: the cluster does not answer.
    """
    if missing := missing_namespaces(cluster, names):
        raise NotFoundError(f"the cluster has no {missing}", hint="kubectl get namespaces")


def missing_namespaces(cluster: Cluster, names: Iterable[str]) -> str:
    """Name the namespaces that are not there, as far as we may know; empty if all are.

    Raises:
        ClusterError: the cluster does not answer.
    """
    missing = [f"`{name}`" for name in names if not _may_be_there(cluster, name)]
    word = "namespace" if len(missing) == 1 else "namespaces"
    return f"{word} {', '.join(missing)}" if missing else ""


def _may_be_there(cluster: Cluster, namespace: str) -> bool:
    try:
        return cluster.get(ObjectRef("v1", "Namespace", "", namespace)) is not None
    except ForbiddenError:  # whoever may not look is told nothing
        return True


def _without_jobs(world: ClusterCache, namespaces: Sequence[str]) -> list[str]:
    """Give those of the namespaces that may not be there: a namespace with jobs is."""
    seen = {job.namespace for job in world.jobs()}
    return [name for name in namespaces if name not in seen]


def _read(cluster: Cluster, wanted: Iterable[WatchSource], world: ClusterCache) -> ClusterCache:
    for source in wanted:
        try:
            listing = cluster.list(
                source.api_version, source.kind, namespace=source.namespace, labels=source.labels
            )
        except ObjectNotFoundError as error:
            if source.kind != KIND:
                raise
            raise no_training_jobs() from error
        for item in listing.items:
            world.hear_of(item)
    return world


def check_policy(name: str, *, also: Iterable[str] = ()) -> None:
    """Refuse what is no policy, and policies that are for comparison alone.

    Raises:
        NotFoundError: there is none of that name.
        UsageError: it is there to be compared with.
    """
    if name in BASELINES:
        raise UsageError(
            f"the policy `{name}` has known faults and is there to be compared with",
            hint="mlstack elastic simulate runs it",
        )
    if name not in POLICIES:
        taken = sorted({*POLICIES.names()} - BASELINES | {*also})
        known = ", ".join(f"`{each}`" for each in taken)
        raise NotFoundError(f"no scaling policy `{name}`; known: {known}", near=nearest(name, taken))


def planned(snapshot: Snapshot, config: PolicyConfig) -> ElasticPlan:
    """Decide, and write it down for people."""
    found = plan(snapshot, config)
    return ElasticPlan(
        policy=config.mode,
        nodes=len(snapshot.nodes),
        jobs=tuple(_planned(job, found.decisions[job.key]) for job in snapshot.jobs),
        unplaced=tuple(_lacking(found, snapshot)),
        moves=found.moves,
        steps=found.steps,
    )


def explained(found: ElasticPlan, name: str) -> ExplainedJob:
    """Give what a plan says about one job.

    Raises:
        NotFoundError: there is no such job, or there are several.
    """
    rows = [row for row in found.jobs if name in (row.job, row.job.partition("/")[2])]
    if len(rows) > 1:
        known = ", ".join(f"`{row.job}`" for row in rows)
        raise NotFoundError(f"`{name}` is the name of several jobs", hint=f"one of {known}")
    if not rows:
        near = nearest(name, [row.job for row in found.jobs])
        raise NotFoundError(f"no job `{name}` takes part in the plan", near=near)
    missing = next((lack.missing for lack in found.unplaced if lack.key == rows[0].job), "")
    return ExplainedJob(policy=found.policy, job=rows[0], missing=missing)


def standings(world: ClusterCache) -> ElasticStatus:
    """Say how the jobs stand, as their status has it."""
    return ElasticStatus(jobs=tuple(map(_standing, world.jobs())))


def amount(resource: str, value: int) -> str:
    """Write an amount as people do: `2500m`, `16Gi`, `3`."""
    if resource == "cpu":
        return f"{value}m" if value % 1000 else str(value // 1000)
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if resource in ("memory", "ephemeral-storage") and value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return str(value)


def _planned(job: Job, decision: Decision) -> PlannedJob:
    return PlannedJob(
        job=job.key,
        state=job.state,
        now=len(job.trainers),
        target=decision.target,
        minimum=job.minimum,
        maximum=job.maximum,
        priority=job.priority,
        cause=decision.reasons[0].cause,
        reasons=tuple(f"{reason.cause}: {reason.text}" for reason in decision.reasons),
        victims=decision.victims,
        places=tuple(_placements(decision.places)),
        master=tuple(decision.hints.get("master", ())),
        pserver=tuple(decision.hints.get("pserver", ())),
    )


def _placements(places: Sequence[str]) -> Iterator[Placement]:
    for node in sorted(set(places)):
        yield Placement(node=node, trainers=places.count(node))


def _lacking(found: ScalePlan, snapshot: Snapshot) -> Iterator[Lacking]:
    for one in found.unplaced:
        parts = [
            _part(name, value) for name, value in zip(snapshot.resources, one.missing, strict=True) if value
        ]
        yield Lacking(key=one.key, missing=", ".join(parts))


def _part(resource: str, value: int) -> str:
    if snapshot.is_key(resource):
        return snapshot.words(resource, value)
    return f"{resource} {amount(resource, value)}"


def _standing(job: JobFacts) -> JobStanding:
    try:
        return _stands(job)
    except ODD:
        odd = replace(job, status={"reason": f"cannot be judged: {_ODD_TYPES}"})
        return _stands(odd)


def _stands(job: JobFacts) -> JobStanding:
    trainer = job.status.get("trainer") or {}
    return JobStanding(
        job=job.key,
        phase=job.phase or "Pending",
        desired=job.target,
        ready=int(trainer.get("ready") or 0),
        minimum=job.spec.minimum if job.spec else 0,
        maximum=job.spec.maximum if job.spec else 0,
        priority=int(job.status.get("priority") or 0),
        reason=_reason(job),
    )


def _reason(job: JobFacts) -> str:
    """Give what keeps a job from being as it should be, or what it is doing."""
    if job.faults:
        return "; ".join(job.faults)
    if not job.status:
        return UNSEEN
    conditions = {str(one.get("type")): one for one in job.status.get("conditions") or ()}
    said = {name: str(one.get("message") or "") for name, one in conditions.items()}
    doing = said.get("Progressing", "") if job.phase in ("Scaling", "Completing") else ""
    is_capped = conditions.get("PriorityGranted", {}).get("status") == "False"
    return str(job.status.get("reason") or doing or (said["PriorityGranted"] if is_capped else ""))
