"""Whether the API server would take the pods of a gang: asked by dry run before any room is taken."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.elastic import children
from mlstack.elastic.acting.actions import MANAGER, Run
from mlstack.elastic.observed import quotas
from mlstack.elastic.observed.amounts import time_ms
from mlstack.elastic.observed.jobs import JobFacts
from mlstack.elastic.world import World
from mlstack.errors import ClusterError, ConflictError, ForbiddenError, TransientError, UnreachableError

FRESH_MS = 60_000
"""So long what was taken in a trial is not tried again."""

_COUNTED = {
    "Service": ("services", "count/services"),
    "StatefulSet": ("count/statefulsets.apps",),
    "PodDisruptionBudget": ("count/poddisruptionbudgets.policy",),
}


@dataclass(frozen=True)
class Refusal:
    """Why pods are not taken.

    Attributes:
        text: what the API server said.
        is_passing: whether the same may soon be taken.
        is_quota: whether a quota of the namespace is too small for them now.
    """

    text: str
    is_passing: bool = False
    is_quota: bool = False


@dataclass
class Trial:
    """One job before the API server.

    Attributes:
        job: the job as it was tried.
        more: how many trainers beyond those it has, 0 for a whole gang.
        begun_ms: when it was begun.
        is_over: whether there is an answer.
        refusal: the answer, None if all was taken.
    """

    job: JobFacts
    more: int
    begun_ms: int
    is_over: bool = False
    refusal: Refusal | None = None


class Trials:
    """Tries gangs, several at once; one that takes long goes on while others are looked after.

    Args:
        cluster: is asked by dry run.
        world: knows the quotas.
        run: carries out work side by side; may return before all of it is done.
    """

    def __init__(self, cluster: Cluster, world: World, run: Run) -> None:
        """Begin with nothing tried."""
        self._cluster, self._world, self._run = cluster, world, run
        self._known: dict[tuple[str, bool], Trial] = {}

    def of(
        self, jobs: Sequence[JobFacts], now_ms: int, *, more: bool = False, again: Container[str] = ()
    ) -> list[Trial]:
        """Give a trial of each job as it is: the last one while it is fresh or goes on, else a new one.

        Args:
            jobs: the jobs.
            now_ms: the time.
            more: try one further trainer of a job that runs, not its gang.
            again: jobs whose gang was given up before: their StatefulSets are tried as well.
        """
        keys = {job.key for job in self._world.jobs()}
        self._known = {key: trial for key, trial in self._known.items() if key[0] in keys}
        found = [self._fresh(job, now_ms, more=more) for job in jobs]
        new = [trial for trial in found if not trial.is_over and trial.begun_ms == now_ms]
        if new:
            self._run([self._asking(trial, sets=trial.job.key in again) for trial in new])
        return found

    def _fresh(self, job: JobFacts, now_ms: int, *, more: bool) -> Trial:
        known = self._known.get((job.key, more))
        is_same = known is not None and (known.job.uid, known.job.generation) == (job.uid, job.generation)
        if known is not None and is_same:
            is_good = known.is_over and known.refusal is None and now_ms - known.begun_ms < FRESH_MS
            if is_good or not known.is_over:
                return known
        trial = self._known[job.key, more] = Trial(job, int(more), now_ms)
        return trial

    def _asking(self, trial: Trial, *, sets: bool) -> Callable[[], None]:
        # The world is for one thread: what is needed of it is read before.
        left = self._world.quotas(trial.job.namespace)
        others = {} if trial.more else self._others(trial.job)

        def ask() -> None:
            refusal: Refusal | None = Refusal("the trial of its pods broke off", is_passing=True)
            try:
                if sets:
                    self._try_sets(trial.job)
                short = quotas.excess(left, list(self._tried(trial)), others)
                refusal = Refusal(short.text, is_quota=not short.is_for_good) if short else None
            except ClusterError as error:
                refusal = _of_error(error)
            finally:
                trial.refusal, trial.is_over = refusal, True

        return ask

    def _tried(self, trial: Trial) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Give one pod of each role as the API server would have it, and how many there are to be."""
        for pod, count in _pods(trial):
            try:
                yield self._cluster.create(pod, manager=MANAGER, dry_run=True).object, count
            except ConflictError:  # there is a pod of that name, which is seen after admission let it pass
                yield pod, count

    def _try_sets(self, job: JobFacts) -> None:
        """Try the StatefulSets of a job: somebody else may have one of its name.

        Raises:
            ClusterError: one would not be taken.
        """
        for wanted in children.supporting(job.spec, hints={}) if job.spec else ():
            ref = ObjectRef.of(wanted)
            if ref.kind == "StatefulSet":
                live = self._cluster.get(ref)
                owners = ((live or {}).get("metadata") or {}).get("ownerReferences") or ()
                if live is not None and job.uid not in {str(owner.get("uid")) for owner in owners}:
                    raise ConflictError(f"`{ref}` is there and does not belong to the job")
                self._cluster.apply(wanted, manager=MANAGER, force=True, dry_run=True)

    def _others(self, job: JobFacts) -> dict[str, int]:
        """Count what is still to be made around the trainers, as quotas name it."""
        kinds = [ref.kind for ref, state in self._world.lacking(job).items() if state == "missing"]
        sets = [f"{job.namespace}/{kind.set_name}" for kind in job.servers]
        kinds += ["StatefulSet" for key in sets if self._world.stateful_set(key) is None]
        found: dict[str, int] = {}
        for name in [name for kind in kinds for name in _COUNTED.get(kind, ())]:
            found[name] = found.get(name, 0) + 1
        return found


def _pods(trial: Trial) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Give one pod of each role, and how many of it there are to be."""
    job = trial.job
    if job.spec is None:
        return
    for kind in () if trial.more else job.servers:
        yield children.server(job.spec, kind.role), kind.count
    yield children.trainer(job.spec, 0), trial.more or job.spec.minimum


def _of_error(error: ClusterError) -> Refusal:
    is_passing = isinstance(error, TransientError | UnreachableError)
    is_quota = isinstance(error, ForbiddenError) and error.why == "quota"
    return Refusal(str(error), is_passing=is_passing, is_quota=is_quota)


def refused_by_set(cluster: Cluster, namespace: str, name: str, since_ms: int) -> str:
    """Give why a StatefulSet makes no pods, as its controller tells in events; empty where it tells nothing.

    Args:
        cluster: the cluster.
        namespace: of the StatefulSet.
        name: of the StatefulSet.
        since_ms: what was told before this time does not count.
    """
    about = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
    try:
        found = cluster.list("v1", "Event", namespace=namespace, fields=about).items
    except ClusterError:  # whoever may not read events waits as long as for pods that find no node
        return ""
    last = max(found, key=_told_ms, default=None)
    return str(last.get("message") or "") if last is not None and _told_ms(last) >= since_ms else ""


def _told_ms(event: Mapping[str, Any]) -> int:
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    created = (event.get("metadata") or {}).get("creationTimestamp")
    return max(time_ms(str(each or "")) for each in (*times, created))
