"""Whether the API server would take the pods of a gang: asked by dry run before any room is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.elastic import pods
from mlstack.elastic.controller.actions import MANAGER, Run, check_owner
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.facts import time_ms
from mlstack.elastic.resources import excess
from mlstack.elastic.snapshot import ScalePlan
from mlstack.errors import ClusterError, ConflictError, ForbiddenError, TransientError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef

FRESH_MS = 60_000
"""So long what was taken in a trial is not tried again."""

_COUNTED = {
    "Service": ("services", "count/services"),
    "StatefulSet": ("count/statefulsets.apps",),
    "PodDisruptionBudget": ("count/poddisruptionbudgets.policy",),
}


@dataclass(frozen=True)
class AdmissionRefusal:
    """Why pods are not taken."""

    text: str  # what the API server said
    is_passing: bool = False  # whether the same may soon be taken
    is_quota: bool = False  # whether a quota of the namespace is too small for them now


@dataclass
class Trial:
    """One job before the API server."""

    job: JobFacts  # as it was tried
    more: int  # how many trainers beyond those it has, 0 for a whole gang
    begun_ms: int
    is_over: bool = False  # whether there is an answer
    refusal: AdmissionRefusal | None = None  # the answer, None if all was taken

    def passes(self, plan: ScalePlan) -> bool:
        """Tell whether the job may be admitted by a plan.

        What a quota has no room for now it may have once the plan has taken pods in the same namespace, as
        long as that is all it takes.
        """
        if not self.is_over or self.refusal is None:
            return self.is_over
        if not self.refusal.is_quota:
            return False
        poorer = {key.partition("/")[0] for key, decision in plan.decisions.items() if decision.victims}
        return poorer == {self.job.namespace}


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
        keys = {job.key for job in self._cache.jobs()}
        self._known = {key: trial for key, trial in self._known.items() if key[0] in keys}
        trials = [self._fresh(job, now_ms, more=more) for job in jobs]
        new = [trial for trial in trials if not trial.is_over and trial.begun_ms == now_ms]
        if new:
            self._run([self._question(trial, has_sets=trial.job.key in again) for trial in new])
        return trials

    def _fresh(self, job: JobFacts, now_ms: int, *, more: bool) -> Trial:
        known = self._known.get((job.key, more))
        if known is not None and (known.job.uid, known.job.generation) == (job.uid, job.generation):
            is_taken = known.is_over and known.refusal is None and now_ms - known.begun_ms < FRESH_MS
            if is_taken or not known.is_over:
                return known
        trial = self._known[job.key, more] = Trial(job, int(more), now_ms)
        return trial

    def _question(self, trial: Trial, *, has_sets: bool) -> Callable[[], None]:
        # The cache is for one thread: what is needed of it is read before.
        quotas = self._cache.quotas(trial.job.namespace)
        others = {} if trial.more else self._others(trial.job)

        def ask() -> None:
            refusal: AdmissionRefusal | None = AdmissionRefusal(
                "the trial of its pods broke off", is_passing=True
            )
            try:
                if has_sets:
                    self._try_sets(trial.job)
                short = excess(quotas, list(self._try_pods(trial)), others)
                refusal = AdmissionRefusal(short.text, is_quota=not short.is_for_good) if short else None
            except ClusterError as error:
                is_passing = isinstance(error, TransientError | UnreachableError)
                is_quota = isinstance(error, ForbiddenError) and error.why == "quota"
                refusal = AdmissionRefusal(str(error), is_passing=is_passing, is_quota=is_quota)
            finally:
                trial.refusal, trial.is_over = refusal, True

        return ask

    def _try_pods(self, trial: Trial) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Give one pod of each role as the API server would have it, and how many there are to be."""
        spec = trial.job.spec
        if spec is None:
            return
        servers = () if trial.more else trial.job.servers
        wanted = [(pods.server(spec, role.role), role.count) for role in servers]
        for pod, count in (*wanted, (pods.trainer(spec, 0), trial.more or spec.minimum)):
            try:
                yield self._cluster.create(pod, manager=MANAGER, dry_run=True).object, count
            except ConflictError:  # there is a pod of that name, which is seen after admission let it pass
                yield pod, count

    def _try_sets(self, job: JobFacts) -> None:
        """Try the StatefulSets of a job: somebody else may have one of its name.

        Raises:
            ClusterError: one would not be taken.
        """
        for manifest in pods.supporting(job.spec, hints={}) if job.spec else ():
            ref = ObjectRef.of(manifest)
            if ref.kind == "StatefulSet":
                check_owner(self._cluster.get(ref), ref, job.uid)
                self._cluster.apply(manifest, manager=MANAGER, force=True, dry_run=True)

    def _others(self, job: JobFacts) -> dict[str, int]:
        """Count what is still to be made around the trainers, as quotas name it."""
        kinds = [ref.kind for ref, state in self._cache.lacking(job).items() if state == "missing"]
        sets = [f"{job.namespace}/{role.set_name}" for role in job.servers]
        kinds += ["StatefulSet" for key in sets if self._cache.stateful_set(key) is None]
        return dict(Counter(name for kind in kinds for name in _COUNTED.get(kind, ())))


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
