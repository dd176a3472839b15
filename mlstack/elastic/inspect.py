"""What a person sees of elastic training: what would be done and why, and how the jobs stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from mlstack.dataclass import Record, row
from mlstack.elastic.cache import MOVES_KEPT_MS, ClusterCache, build_snapshot
from mlstack.elastic.controller import no_training_jobs, sources
from mlstack.elastic.facts import JobFacts, conditions_of
from mlstack.elastic.policy.plan import BASELINES, POLICIES, plan
from mlstack.elastic.snapshot import NO_LIMIT, Decision, Job, PolicyConfig, PriorityGrants, Snapshot
from mlstack.elastic.state import restore_limits, restore_moves
from mlstack.elastic.training_job import KIND
from mlstack.errors import ODD, ClusterError, ForbiddenError, NotFoundError, ObjectNotFoundError, UsageError
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent
from mlstack.kube.parallel import WatchSource
from mlstack.names import listed, nearest, not_found
from mlstack.objects import resources

UNSEEN = "no controller has looked at it yet"
_ODD_TYPES = "a status has fields of other types than its API gives them"


class Placement(Record):
    """Trainers of a job on one node."""

    node: str  # its name, empty for those without a node
    trainers: int  # how many


class PlannedJob(Record):
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


class Lacking(Record):
    """A pod or job without a place."""

    key: str  # of the pod or job
    missing: str  # what is missing, as people write it: `cpu 2.5, memory 1Gi, host port 7164/TCP`


class ElasticPlan(Record):
    """What the controller would do now."""

    policy: str  # name of the policy
    nodes: int  # how many nodes take pods
    jobs: tuple[PlannedJob, ...]  # what becomes of the jobs
    unplaced: tuple[Lacking, ...]  # what found no place
    moves: int  # trainers moved for fairness alone
    steps: int  # how many steps the policy took


class ExplainedJob(Record):
    """All that would be done about one job, and why."""

    policy: str  # name of the policy
    job: PlannedJob  # what would be done
    missing: str  # what is missing for its gang, empty where it has a place


class JobStanding(Record):
    """How one job stands, as its status says."""

    job: str
    phase: str  # one word
    desired: int  # trainers it was told to have
    ready: int  # trainers that are ready
    minimum: int  # fewest
    maximum: int  # most
    priority: int  # that it counts with among jobs, as the controller saw it
    reason: str  # one line, where something is not as it should be


class ElasticStatus(Record):
    """How all training jobs stand."""

    jobs: tuple[JobStanding, ...]  # by key


def read_snapshot(
    cluster: Cluster, now_ms: int, namespaces: Sequence[str] = (), grants: PriorityGrants = NO_LIMIT
) -> Snapshot:
    """Read all that a plan needs, what the controller waits for included; writes nothing.

    `namespaces` are those whose jobs count, none for all; `grants` the priorities that jobs may have.

    Raises:
        NotFoundError: the cluster has no training jobs, or not such a namespace.
        ClusterError: it does not answer or refuses.
    """
    cache = _read(cluster, sources(namespaces), namespaces, ClusterCache(grants))
    try:
        moves_ms = restore_moves(cache.jobs.values(), now_ms - MOVES_KEPT_MS)
        return build_snapshot(cache, now_ms, restore_limits(cache, now_ms), moves_ms)
    except ODD as error:
        raise ClusterError(f"what the cluster has cannot be judged: {_ODD_TYPES}") from error


def job_statuses(cluster: Cluster, namespaces: Sequence[str] = ()) -> ElasticStatus:
    """Say how the jobs stand, as their status has it; reads nothing else.

    Raises:
        NotFoundError: the cluster has no training jobs, or not such a namespace.
        ClusterError: the cluster does not answer.
    """
    of_jobs = [source for source in sources(namespaces) if source.kind == KIND]
    rows = []
    for job in _read(cluster, of_jobs, namespaces, ClusterCache()).sorted_jobs():
        try:
            rows.append(_standing(job))
        except ODD:
            status = {"reason": f"cannot be judged: {_ODD_TYPES}"}
            rows.append(_standing(replace(job, phase="", status=status)))
    return ElasticStatus(jobs=tuple(rows))


def _read(
    cluster: Cluster, watched: Iterable[WatchSource], namespaces: Sequence[str], cache: ClusterCache
) -> ClusterCache:
    for source in watched:
        try:
            listing = cluster.list(
                source.api_version, source.kind, namespace=source.namespace, labels=source.labels
            )
        except ObjectNotFoundError as error:
            if source.kind != KIND:
                raise
            raise no_training_jobs() from error
        for item in listing.items:
            cache.handle(WatchEvent(type="MODIFIED", object=item))
    with_jobs = {job.namespace for job in cache.jobs.values()}
    check_namespaces(cluster, [name for name in namespaces if name not in with_jobs])
    return cache


def check_namespaces(cluster: Cluster, names: Iterable[str]) -> None:
    """Raise NotFoundError for namespaces that are not there, as far as we may know."""
    if missing := missing_namespaces(cluster, names):
        raise NotFoundError(f"the cluster has no {missing}", hint="kubectl get namespaces")


def missing_namespaces(cluster: Cluster, names: Iterable[str]) -> str:
    """Name the namespaces that are not there, as far as we may know; empty if all are."""
    missing = []
    for name in names:
        with suppress(ForbiddenError):  # whoever may not look is told nothing
            if cluster.get(ObjectRef("v1", "Namespace", "", name)) is None:
                missing.append(f"`{name}`")
    word = "namespace" if len(missing) == 1 else "namespaces"
    return f"{word} {', '.join(missing)}" if missing else ""


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
        names = sorted({*policies(), *also})
        known = ", ".join(f"`{policy}`" for policy in names)
        raise NotFoundError(f"no scaling policy `{name}`; known: {known}", near=nearest(name, names))


def policies() -> list[str]:
    """Give the policies that a controller may follow, by name."""
    return [name for name in POLICIES.names() if name not in BASELINES]


def decide(snapshot: Snapshot, config: PolicyConfig) -> ElasticPlan:
    """Decide, and write it down for people."""
    decided = plan(snapshot, config)
    unplaced = []
    for lacking in decided.unplaced:
        amounts = zip(snapshot.resources, lacking.missing, strict=True)
        texts = {name: resources.written(name, value) for name, value in amounts if value}
        missing = (text if resources.is_host_port(name) else f"{name} {text}" for name, text in texts.items())
        unplaced.append(Lacking(key=lacking.key, missing=", ".join(missing)))
    return row(
        ElasticPlan,
        decided,
        policy=config.mode,
        nodes=len(snapshot.nodes),
        jobs=tuple(_planned(job, decided.decisions[job.key]) for job in snapshot.jobs),
        unplaced=tuple(unplaced),
    )


def _planned(job: Job, decision: Decision) -> PlannedJob:
    places = decision.places
    return row(
        PlannedJob,
        decision,
        job,
        now=len(job.trainers),
        cause=decision.reasons[0].cause,
        reasons=tuple(f"{reason.cause}: {reason.text}" for reason in decision.reasons),
        places=tuple(Placement(node=node, trainers=places.count(node)) for node in sorted(set(places))),
        master=decision.hints.get("master", ()),
        pserver=decision.hints.get("pserver", ()),
    )


def explain_job(decided: ElasticPlan, name: str) -> ExplainedJob:
    """Give what a plan says about one job: `namespace/name`, or the name alone where there is one such job.

    Raises:
        NotFoundError: there is no such job, or there are several.
    """
    jobs = [job for job in decided.jobs if name in (job.job, job.job.partition("/")[2])]
    if len(jobs) > 1:
        names = ", ".join(f"`{job.job}`" for job in jobs)
        raise NotFoundError(f"`{name}` is the name of several jobs", hint=f"one of {names}")
    if not jobs:
        known = [job.job for job in decided.jobs]
        hint = f"there is {listed(known)}" if known else "mlstack elastic status lists all jobs"
        raise not_found(f"no job `{name}` takes part in the plan", name, known, hint=hint)
    missing = next((lacking.missing for lacking in decided.unplaced if lacking.key == jobs[0].job), "")
    return ExplainedJob(policy=decided.policy, job=jobs[0], missing=missing)


def _standing(job: JobFacts) -> JobStanding:
    status = job.status
    reason = "; ".join(job.faults)
    if not reason and not status:
        reason = UNSEEN
    elif not reason:
        # What keeps a job from being as it should be, or what it is doing.
        conditions = conditions_of(status)
        progress, priority = conditions.get("Progressing", {}), conditions.get("PriorityGranted", {})
        doing = str(progress.get("message") or "") if job.phase in ("Scaling", "Completing") else ""
        capped = str(priority.get("message") or "") if priority.get("status") == "False" else ""
        reason = str(status.get("reason") or doing or capped)
    return JobStanding(
        job=job.key,
        phase=job.phase or "Pending",
        desired=job.target,
        ready=int((status.get("trainer") or {}).get("ready") or 0),
        minimum=job.spec.minimum if job.spec else 0,
        maximum=job.spec.maximum if job.spec else 0,
        priority=int(status.get("priority") or 0),
        reason=reason,
    )
