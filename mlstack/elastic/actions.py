"""The writes of a pass and carrying them out; dry runs that ask whether the API server takes pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from mlstack.clock import time_ms
from mlstack.dataclass import dataclass
from mlstack.elastic import pods
from mlstack.elastic.cache import ClusterCache
from mlstack.elastic.facts import JobFacts, PodFacts
from mlstack.elastic.snapshot import ScalePlan
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
)
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent
from mlstack.objects.resources import excess

MANAGER = "mlstack-elastic"
FRESH_MS = 60_000
"""So long what was taken in a trial is not tried again."""

Stage = Literal["status", "delete", "support", "renew", "create", "event"]
STAGES: tuple[Stage, ...] = ("status", "delete", "support", "renew", "create")
"""In this order: pods that go make room, which takes time; servers go once their sets are written."""

Run = Callable[[Sequence[Callable[[], None]]], None]
"""Carries out pieces of work that do not depend on each other."""


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    """Carry out one piece of work after the other."""
    for work in works:
        work()


class NameTakenError(ConflictError):
    """Raised where an object of the job's would take the place of somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One write."""

    stage: Stage
    verb: Literal["create", "apply", "delete", "status", "patch"]  # `patch` is a merge patch
    ref: ObjectRef
    job: str  # key of the job that it is done for
    why: str  # one line for people
    body: Mapping[str, Any] = field(default_factory=dict)  # the object, or what changes of it or its status
    uid: str = ""  # `delete`: only this very object; `apply`: of the owner that an object there must have
    version: int = 0  # `status`: resource version of the object that was decided about
    grace_period_s: int | None = None  # `delete`: time to end, None for the object's own
    stops: str = ""  # `delete`: role of the pod that it stops; empty if it had ended, and for other kinds

    def __str__(self) -> str:
        """Write it as people read it: `create Pod default/a-trainer-0: growth`."""
        return f"{self.verb} {self.ref}: {self.why}"


def delete_pods(
    job: JobFacts, pods: Sequence[PodFacts], why: str, *, stage: Stage = "delete", grace_s: int | None = None
) -> list[Action]:
    """Delete these very pods."""
    return [
        Action(
            stage=stage,
            verb="delete",
            ref=ObjectRef("v1", "Pod", pod.namespace, pod.name),
            job=job.key,
            why=why,
            uid=pod.uid,
            grace_period_s=grace_s,
            stops="" if pod.ending else pod.role,
        )
        for pod in pods
    ]


# --- carrying out ---


def execute(
    cluster: Cluster, cache: ClusterCache, run: Run, actions: Sequence[Action], taken: list[Action]
) -> dict[int, ClusterError]:
    """Do all actions, in any order; `taken` gets those that the cluster took.

    The cache knows at once what came of them, before any watch tells it. Gives the errors of those that were
    refused, by their index.

    Raises:
        UnreachableError: the server does not answer; the cache knows what was done before.
    """
    events: dict[int, tuple[WatchEvent | None, bool]] = {}
    errors: dict[int, ClusterError] = {}

    def work(index: int) -> None:
        try:
            events[index] = _write(cluster, actions[index])
        except ClusterError as error:
            errors[index] = error

    try:
        run([lambda index=index: work(index) for index in range(len(actions))])  # type: ignore[misc]
    finally:
        # The cache is for one thread: what the writes gave is told here, not where they ran.
        for index, (event, is_taken) in sorted(events.items()):
            if event is not None:
                cache.handle(event)
            if is_taken:
                taken.append(actions[index])
    for error in errors.values():
        if isinstance(error, UnreachableError):
            raise error
    return dict(sorted(errors.items()))


def _write(cluster: Cluster, action: Action) -> tuple[WatchEvent | None, bool]:
    """Do one write; gives what the cache has to know, and whether the cluster changed by this very write."""
    ref, body = action.ref, action.body
    match action.verb:
        case "create":
            try:
                created = cluster.create(body, manager=MANAGER)
            except ConflictError:  # there is one of that name already: look at it, plan anew
                live = cluster.get(ref)
                return (WatchEvent(type="MODIFIED", object=live) if live is not None else None), False
            return WatchEvent(type="ADDED", object=created.object), True
        case "apply":
            _check_owner(cluster.get(ref), ref, action.uid, NameTakenError)
            written = cluster.apply(body, manager=MANAGER, force=True)
        case "status":
            patch = {"metadata": {"resourceVersion": str(action.version)}, "status": body}
            written = cluster.patch(ref, patch, subresource="status", manager=MANAGER)
        case "patch":
            written = cluster.patch(ref, body, manager=MANAGER)
        case "delete":
            return _delete(cluster, action)
    return WatchEvent(type="MODIFIED", object=written.object), True


def _delete(cluster: Cluster, action: Action) -> tuple[WatchEvent, bool]:
    ref = action.ref
    metadata = {"namespace": ref.namespace, "name": ref.name, "uid": action.uid}
    gone = {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}
    event = WatchEvent(type="DELETED", object=gone)
    try:
        left = cluster.delete(
            ref, propagation="Background", uid=action.uid, grace_period_s=action.grace_period_s
        )
    except ObjectNotFoundError:
        return event, False
    except ConflictError:  # mostly another of the same name; if it is the same one after all, try again
        live = cluster.get(ref)
        if live is not None and live["metadata"].get("uid") == action.uid:
            raise
        return event, False
    return (event if left is None else WatchEvent(type="MODIFIED", object=left)), True


def _check_owner(
    live: Mapping[str, Any] | None, ref: ObjectRef, uid: str, error: type[ConflictError] = ConflictError
) -> None:
    """Refuse to write over an object of that name that the owner with this UID does not own."""
    owners = ((live or {}).get("metadata") or {}).get("ownerReferences") or ()
    if live is not None and uid not in {str(owner.get("uid")) for owner in owners}:
        raise error(f"`{ref}` is there and does not belong to the job")


# --- whether the API server would take the pods of a gang: asked by dry run before any room is taken ---

_QUOTA_NAMES = {
    "Service": ("services", "count/services"),
    "StatefulSet": ("count/statefulsets.apps",),
    "PodDisruptionBudget": ("count/poddisruptionbudgets.policy",),
}


@dataclass
class Trial:
    """One job before the API server."""

    job: JobFacts  # as it was tried
    more: int  # how many trainers beyond those it has, 0 for a whole gang
    begun_ms: int
    is_over: bool = False  # whether there is an answer
    refusal: str | None = None  # what the API server said, None if all was taken
    is_passing: bool = False  # whether the same may soon be taken
    is_quota: bool = False  # whether a quota of the namespace is too small for them now

    def passes(self, plan: ScalePlan) -> bool:
        """Tell whether the job may be admitted by a plan.

        What a quota has no room for now it may have once the plan has taken pods in the same namespace, as
        long as that is all it takes.
        """
        if not self.is_over or self.refusal is None:
            return self.is_over
        poorer = {key.partition("/")[0] for key, decision in plan.decisions.items() if decision.victims}
        return self.is_quota and poorer == {self.job.namespace}


class Trials:
    """Tries gangs, several at once; one that takes long goes on while others are looked after.

    `run` carries out work side by side; it may return before all of it is done.
    """

    def __init__(self, cluster: Cluster, cache: ClusterCache, run: Run) -> None:
        self._cluster, self._cache, self._run = cluster, cache, run
        self._known: dict[tuple[str, bool], Trial] = {}

    def of(
        self, jobs: Sequence[JobFacts], now_ms: int, *, more: bool = False, again: Container[str] = ()
    ) -> list[Trial]:
        """Give a trial of each job as it is: the last one while it is fresh or goes on, else a new one.

        `more` tries one further trainer of a job that runs, not its gang. Of jobs whose gang was given up
        before, named in `again`, the StatefulSets are tried as well.
        """
        self._known = {key: trial for key, trial in self._known.items() if key[0] in self._cache.jobs}
        trials, questions = [], []
        for job in jobs:
            trial = self._known.get((job.key, more))
            is_same = trial is not None and (trial.job.uid, trial.job.generation) == (job.uid, job.generation)
            is_stale = trial is not None and now_ms - trial.begun_ms >= FRESH_MS
            if trial is None or not is_same or (trial.is_over and (trial.refusal is not None or is_stale)):
                trial = self._known[job.key, more] = Trial(job, int(more), now_ms)
            trials.append(trial)
            if not trial.is_over and trial.begun_ms == now_ms:
                questions.append(self._question(trial, has_sets=job.key in again))
        if questions:
            self._run(questions)
        return trials

    def _question(self, trial: Trial, *, has_sets: bool) -> Callable[[], None]:
        # The cache is for one thread: what is needed of it is read before.
        quotas = self._cache.quotas(trial.job.namespace)
        others = {} if trial.more else self._others(trial.job)

        def ask() -> None:
            refusal: str | None = "the trial of its pods broke off"
            is_passing, is_quota = True, False
            try:
                if has_sets:
                    self._try_sets(trial.job)
                short = excess(quotas, list(self._try_pods(trial)), others)
                refusal, is_passing = short.text if short else None, False
                is_quota = short is not None and not short.is_for_good
            except ClusterError as error:
                refusal, is_passing = str(error), isinstance(error, TransientError | UnreachableError)
                is_quota = isinstance(error, ForbiddenError) and error.why == "quota"
            finally:
                trial.refusal, trial.is_passing, trial.is_quota = refusal, is_passing, is_quota
                trial.is_over = True

        return ask

    def _try_pods(self, trial: Trial) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Give one pod of each role as the API server would have it, and how many there are to be."""
        spec = trial.job.spec
        if spec is None:
            return
        servers = () if trial.more else trial.job.servers
        manifests = [(pods.server(spec, role.role), role.count) for role in servers]
        for pod, count in (*manifests, (pods.trainer(spec, 0), trial.more or spec.minimum)):
            try:
                yield self._cluster.create(pod, manager=MANAGER, dry_run=True).object, count
            except ConflictError:  # there is a pod of that name, which is seen after admission let it pass
                yield pod, count

    def _try_sets(self, job: JobFacts) -> None:
        """Try the StatefulSets of a job: somebody else may have one of its name."""
        for manifest in pods.supporting(job.spec, hints={}) if job.spec else ():
            ref = ObjectRef.of(manifest)
            if ref.kind == "StatefulSet":
                _check_owner(self._cluster.get(ref), ref, job.uid)
                self._cluster.apply(manifest, manager=MANAGER, force=True, dry_run=True)

    def _others(self, job: JobFacts) -> dict[str, int]:
        """Count what is still to be made around the trainers, as quotas name it."""
        kinds = [ref.kind for ref, state in self._cache.lacking(job).items() if state == "missing"]
        sets = [f"{job.namespace}/{role.set_name}" for role in job.servers]
        kinds += ["StatefulSet" for key in sets if key not in self._cache.sets]
        return dict(Counter(name for kind in kinds for name in _QUOTA_NAMES.get(kind, ())))


def set_refusal(cluster: Cluster, namespace: str, name: str, since_ms: int) -> str:
    """Give why a StatefulSet makes no pods, by its controller's events since then; empty for nothing."""
    about = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
    try:
        events = cluster.list("v1", "Event", namespace=namespace, fields=about).items
    except ClusterError:  # whoever may not read events waits as long as for pods that find no node
        return ""
    last = max(events, key=_last_ms, default=None)
    return str(last.get("message") or "") if last is not None and _last_ms(last) >= since_ms else ""


def _last_ms(event: Mapping[str, Any]) -> int:
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    created = (event.get("metadata") or {}).get("creationTimestamp")
    return max(time_ms(str(time or "")) for time in (*times, created))
