"""What the controller keeps between passes, and what of it a new leader restores from the cluster.

All of it can be lost without harm. What is not written anywhere is begun anew: what was told (but that a job
waits: its status says so), which writes were refused. It is learnt again by and by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from mlstack.clock import micro_time
from mlstack.dataclass import dataclass
from mlstack.elastic import status
from mlstack.elastic.cache import ClusterCache, JobFacts
from mlstack.elastic.facts import PodFacts, time_ms
from mlstack.elastic.snapshot import Cause, Decision
from mlstack.elastic.snapshot_builder import JobLimits
from mlstack.elastic.status import LONGEST, Bar, FailureCounters
from mlstack.kube.client import ObjectRef

# --- events ---

EVENT_API_VERSION = "events.k8s.io/v1"
CONTROLLER = "mlstack.dev/elastic"

SAME_MS = 360_000  # so long after the last time it is something new again
PAUSE_MS = 60_000  # a series that has begun is not written more often
REFRESH_MS = 1_800_000  # what lasts is written again so often
MOST = 50  # so many different events are remembered of one job
_LONGEST = 1024  # of a note, by the API

# Reasons whose texts differ while they mean the same.
_NUMBERED = frozenset({"WaitingForCapacity", "Refused"})
# What a decision is called that takes a job off.
_OFF: Mapping[Cause, str] = {
    "stuck": "StuckWithdrawn",
    "suspended": "PreemptedFor",
    "lost": "MinimumLost",
}
# What a decision is called when it changes the number of trainers: reason if it grows, reason if it shrinks.
_CHANGES: Mapping[Cause, tuple[str, str]] = {
    "fairness": ("Rebalanced", "Rebalanced"),
    "gang": ("ScaledUp", "PreemptedFor"),
    "yield": ("ScaledUp", "PreemptedFor"),
    "stuck": ("ScaledUp", "StuckWithdrawn"),
    "refused": ("ScaledUp", "Refused"),
}


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """One thing that happened to a job."""

    job: str  # its key
    reason: str  # one word in CamelCase, as people select by it
    action: str  # what the controller did
    text: str  # one line for people
    type: Literal["Normal", "Warning"] = "Normal"  # whether somebody should look
    lasts: bool = False  # whether it is a state, told in every pass while it lasts

    @property
    def key(self) -> tuple[str, str]:
        """Give what makes it the same as another: of some reasons the numbers in the text do not matter.

        Why a whole gang is refused does: it is asked again after minutes or hours.
        """
        is_numbered = self.is_numbered and not (self.reason == "Refused" and self.lasts)
        return (self.reason, "" if is_numbered else self.text)

    @property
    def is_numbered(self) -> bool:
        """Tell whether only the numbers in it change: it is worth a line the first time alone."""
        return self.reason in _NUMBERED

    def manifest(self, job: JobFacts, now_ms: int, instance: str) -> dict[str, Any]:
        """Write it as an Event; its name tells the moment, so that no two meet."""
        mark = hashlib.sha256(f"{job.uid} {self.reason} {self.text} {now_ms} {instance}".encode()).hexdigest()
        return {
            "apiVersion": EVENT_API_VERSION,
            "kind": "Event",
            "metadata": {"namespace": job.namespace, "name": f"{job.name}.{mark[:16]}"},
            "eventTime": micro_time(now_ms / 1000),
            "reportingController": CONTROLLER,
            "reportingInstance": instance[:128],
            "action": self.action,
            "reason": self.reason,
            "type": self.type,
            "note": self.text[:_LONGEST],
            "regarding": {
                "apiVersion": job.ref.api_version,
                "kind": job.ref.kind,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
            },
        }


def decision_events(job: JobFacts, decision: Decision) -> list[JobEvent]:
    """Give what there is to tell about a decision, nothing where nothing changes."""
    before, after, cause = job.target, decision.target, decision.reasons[0].cause
    text, key = decision.reasons[0].text, job.key
    if before == 0 and after > 0:
        return [JobEvent(job=key, reason="Admitted", action="Admit", text=f"{after} trainers: {text}")]
    if after == 0 and cause == "refused":
        return [JobEvent(job=key, reason="Refused", action="Admit", text=text, type="Warning", lasts=True)]
    if before > 0 and after == 0:
        reason = _OFF.get(cause, "Suspended")
        return [JobEvent(job=key, reason=reason, action="Suspend", text=text, type="Warning")]
    if before == 0:
        return [JobEvent(job=key, reason="WaitingForCapacity", action="Wait", text=text, lasts=True)]
    if after == before:
        return []
    reason = _CHANGES.get(cause, ("ScaledUp", "ScaledDown"))[after < before]
    return [JobEvent(job=key, reason=reason, action="Scale", text=f"trainers {before} -> {after}: {text}")]


def status_events(job: JobFacts, after: Mapping[str, Any]) -> list[JobEvent]:
    """Give what there is to tell about conditions that turn bad with a new status."""
    before, now = (
        {
            str(condition.get("reason")): str(condition.get("message") or "")
            for condition in reversed(status.get("conditions") or ())
            if condition.get("type") == "Degraded"
        }
        for status in (job.status, after)
    )
    return [
        JobEvent(job=job.key, reason=reason, action="Observe", text=now[reason], type="Warning")
        for reason in ("MinimumLost", "InvalidSpec", "Paused")
        if reason in now and reason not in before
    ]


@dataclass
class EventSeries:
    """How often the same was told."""

    event: str  # name of its event, empty for one of a leader before
    last_ms: int  # when it was told last
    sent_ms: int  # when it was written last
    count: int = 1  # how often it happened
    sent: int = 1  # how often it had happened when it was written last


@dataclass
class EventRecorder:
    """What was told of one job lately."""

    known: dict[tuple[str, str], EventSeries] = field(default_factory=dict)
    is_new: bool = True  # whether nothing was ever told by this leader

    def take_over(self, key: tuple[str, str], now_ms: int) -> None:
        """Take note of what a leader before has told; a new event tells it when it would be written again."""
        self.is_new = False
        self.known[key] = EventSeries("", last_ms=now_ms, sent_ms=now_ms)

    def record(self, key: tuple[str, str], event: str, now_ms: int, *, lasts: bool = False) -> bool:
        """Count what is told; gives whether it is new, so that an event of this name is to be written.

        What one pass says several times counts once, and so does what lasts, once in `REFRESH_MS`.
        """
        self.is_new = False
        self.known = {old: series for old, series in self.known.items() if now_ms - series.last_ms < SAME_MS}
        series = self.known.get(key)
        if series is not None and (series.event or now_ms - series.sent_ms < REFRESH_MS):
            if now_ms > series.last_ms and (not lasts or now_ms - series.sent_ms >= REFRESH_MS):
                series.count += 1
            series.last_ms = now_ms
            return False
        if len(self.known) >= MOST:
            del self.known[min(self.known, key=lambda old: self.known[old].last_ms)]
        self.known[key] = EventSeries(event, last_ms=now_ms, sent_ms=now_ms)
        return True

    def due(self, now_ms: int) -> Iterator[tuple[tuple[str, str], EventSeries]]:
        """Give the series that are to be written now; they count as written."""
        for key, series in self.known.items():
            is_time = series.sent == 1 or now_ms - series.sent_ms >= PAUSE_MS
            if series.count > series.sent and is_time:
                series.sent, series.sent_ms = series.count, now_ms
                yield key, series

    def forget(self, event: str) -> None:
        """Begin anew with an event that the server has forgotten."""
        self.known = {key: series for key, series in self.known.items() if series.event != event}


CALM_MS = 600_000
"""After so long without a failure the next one counts as the first."""

STEADY_MS = 600_000
"""After trainers have run for so long their failure is the first: as kubelets forget a crash loop."""

# Each the first time to wait, and the longest: until failed trainers are replaced, until a gang that found
# no place (or more trainers that were refused) is tried again, until a refused write is, and while a node
# that had a place on paper only is passed over.
RETRY_MS = (10_000, 60_000)
GANG_MS = (60_000, 3_600_000)
WRITE_MS = (2_000, 60_000)
BAR_MS = (60_000, 3_600_000)


@dataclass
class Backoff:
    """A time to wait that doubles with every failure."""

    first_ms: int
    longest_ms: int
    streak: int = 0  # failures without a calm time between them
    last_ms: int = 0  # when the last was
    until_ms: int = 0  # when waiting is over

    def fail(self, now_ms: int, *, is_passing: bool = False) -> None:
        """Note a failure; one that `is_passing` will soon be over by itself, and the wait does not grow."""
        if is_passing:
            self.until_ms = max(self.until_ms, now_ms + self.first_ms)
            return
        self.streak = 1 if self.is_over(now_ms) else self.streak + 1
        self.last_ms, self.until_ms = now_ms, now_ms + self._length_ms()

    def resume(self, streak: int, until_ms: int) -> None:
        """Go on where another stopped after so many failures, the last of which makes wait until then."""
        self.streak, self.until_ms = streak, until_ms
        self.last_ms = until_ms - self._length_ms() if streak else 0

    def is_over(self, now_ms: int) -> bool:
        """Tell whether the next failure counts as the first: there was none, or it was long ago."""
        calm_ms = max(CALM_MS, 2 * (self.until_ms - self.last_ms))
        return not self.streak or now_ms - self.last_ms > calm_ms

    def is_waiting(self, now_ms: int) -> bool:
        """Tell whether it is too early."""
        return now_ms < self.until_ms

    def _length_ms(self) -> int:
        return min(self.longest_ms, self.first_ms << min(self.streak - 1, 20))


@dataclass
class JobRecord:
    """What is kept of one job."""

    uid: str  # of the job: another of the same name starts anew

    # Trainers that failed by themselves.
    counted: set[str] = field(default_factory=set)  # UIDs of pods whose failure was counted
    failed: int = 0  # how many, since ever
    retry: Backoff = field(default_factory=lambda: Backoff(*RETRY_MS))  # when they are replaced
    rounds: int = 0  # how often in a row all of them failed
    fallen: set[str] = field(default_factory=set)  # UIDs of those of the last such round

    # A gang that found no place, or was refused.
    gang: Backoff = field(default_factory=lambda: Backoff(*GANG_MS))  # when the job may be admitted again
    given_up: int = 0  # generation of the job when it was last: one that was changed since is tried at once
    gang_refusal: str = ""  # why the cluster did not take it then, empty where it found no place
    # When it is tried again after what may pass by itself, and what was said then.
    passing: Backoff = field(default_factory=lambda: Backoff(*WRITE_MS))
    passing_refusal: str = ""
    short_ms: int | None = None  # since when pods of it are not there at all, None while they are
    refused_since_ms: int | None = None  # since when that is because the cluster does not take them
    asked_ms: int = 0  # when it was last asked why its StatefulSets make no pods

    # More trainers that were refused.
    ceiling: int = 0  # trainers beyond which the cluster took no more, 0 where it takes them
    growth: Backoff = field(default_factory=lambda: Backoff(*GANG_MS))  # when more are tried again
    capped: int = 0  # generation of the job that it took no more of
    growth_refusal: str = ""

    # Places and what stands around the trainers.
    bars: dict[str, Backoff] = field(default_factory=dict)  # how often a node had a place on paper only
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # planned nodes of the servers
    admitted_ms: int | None = None  # None once all of the gang has a node, or where nobody remembers
    support_generation: int | None = None  # of the job that it was last written for, None for nobody knows
    unwritten: frozenset[ObjectRef] = frozenset()  # what of it was refused then
    taken_names: dict[ObjectRef, str] = field(default_factory=dict)  # whose name somebody else has, and why
    restored_ms: int = 0  # when a Service or budget was last written because somebody had changed it

    # Writes.
    writes: Backoff = field(default_factory=lambda: Backoff(*WRITE_MS))  # when tried again after a refusal
    refusal: str = ""  # why the cluster did not take pods, or what is around them; empty once it takes one
    refused_ms: int = 0
    events: EventRecorder = field(default_factory=EventRecorder)
    sent: Mapping[str, object] = field(default_factory=dict)  # the last change of its status
    sent_ms: int = 0

    def refuse(self, text: str, now_ms: int) -> None:
        """Note why something was not taken; of the reasons of one pass always the same is kept."""
        is_other = self.refusal and now_ms == self.refused_ms
        self.refusal, self.refused_ms = min(text, self.refusal) if is_other else text, now_ms

    def fail_round(self, uids: set[str], ran_ms: int) -> None:
        """Note, once, that all trainers failed, the longest of which had run so long."""
        if not uids <= self.fallen:
            self.rounds = self.rounds + 1 if ran_ms < STEADY_MS else 1
            self.fallen = uids

    def give_up(self, generation: int, now_ms: int, *, refusal: str = "") -> None:
        """Note that the gang of the job as it is finds no place, or why the cluster does not take it."""
        self.gang.fail(now_ms)
        self.given_up, self.gang_refusal = generation, refusal[:LONGEST]

    def leave_gang(self) -> None:
        """Forget what was watched of a gang that is taken off."""
        self.admitted_ms = self.short_ms = self.refused_since_ms = None

    def cap(self, ceiling: int, generation: int, why: str, now_ms: int) -> None:
        """Note that the cluster takes no more trainers of the job; what one pass tells counts once."""
        if not self.growth.is_waiting(now_ms) or self.capped != generation:
            self.growth.fail(now_ms)
        self.ceiling, self.capped, self.growth_refusal = ceiling, generation, why[:LONGEST]

    def bar(self, node: str, now_ms: int) -> None:
        """Note that a node has no room in truth: it is passed over for a while."""
        self.bars = {name: backoff for name, backoff in self.bars.items() if not backoff.is_over(now_ms)}
        self.bars.setdefault(node, Backoff(*BAR_MS)).fail(now_ms)

    def refused(self, generation: int, now_ms: int) -> str:
        """Say why the cluster does not take the gang of the job, or more trainers; empty while it does."""
        passing = f"{self.passing_refusal}; tried again soon" if self.passing.is_waiting(now_ms) else ""
        return self.counters(0).refused(generation, now_ms) or passing

    def counters(self, failed: int) -> FailureCounters:
        """Give what the next leader has to know; `failed` trainers were counted and still stand."""
        tries = self.gang.streak
        return FailureCounters(
            failed=failed,
            failures=self.retry.streak if failed else 0,
            replaced_ms=self.retry.until_ms if failed else 0,
            rounds=self.rounds,
            fallen=min(self.fallen, default=""),
            tries=tries,
            retry_ms=self.gang.until_ms if tries else 0,
            retry_generation=self.given_up if tries else 0,
            refusal=self.gang_refusal if tries else "",
            ceiling=self.ceiling,
            refusals=self.growth.streak if self.ceiling else 0,
            growth_ms=self.growth.until_ms if self.ceiling else 0,
            growth_generation=self.capped if self.ceiling else 0,
            growth_refusal=self.growth_refusal if self.ceiling else "",
            bars=tuple(
                Bar(node=node, times=backoff.streak, until_ms=backoff.until_ms)
                for node, backoff in sorted(self.bars.items())
            ),
        )

    def resume(self, known: FailureCounters) -> None:
        """Count on from what the leader before knew."""
        self.retry.resume(known.failures, known.replaced_ms)
        self.rounds, self.fallen = known.rounds, {known.fallen} - {""}
        self.gang.resume(known.tries, known.retry_ms)
        self.given_up, self.gang_refusal = known.retry_generation, known.refusal
        self.ceiling, self.capped = known.ceiling, known.growth_generation
        self.growth_refusal = known.growth_refusal
        self.growth.resume(known.refusals, known.growth_ms)
        for bar in known.bars:
            self.bars[bar.node] = Backoff(*BAR_MS)
            self.bars[bar.node].resume(bar.times, bar.until_ms)


def job_limits(job: JobFacts, counters: FailureCounters, failed: int, now_ms: int) -> JobLimits:
    """Give what a plan waits for, `failed` trainers that are not replaced yet among it."""
    return JobLimits(
        barred={bar.node: bar.until_ms for bar in counters.bars},
        failed=failed,
        not_before_ms=counters.retry_ms if counters.retry_generation == job.generation else 0,
        refused=counters.refused(job.generation, now_ms),
        ceiling=counters.cap(job.generation, now_ms),
    )


# --- what a new leader restores: it goes on where the one before it stopped ---


def restore(job: JobFacts, pods: Sequence[PodFacts], cache: ClusterCache) -> JobRecord:
    """Give what the cluster tells of a job: its status, its pods and its StatefulSets."""
    record = JobRecord(job.uid, failed=int((job.status.get("trainer") or {}).get("failed") or 0))
    known, failed = status.read(job.status), _failed(pods)
    record.resume(known)
    record.counted = {pod.uid for pod in failed[: known.failed]}
    uids = {pod.uid for pod in failed}
    if record.fallen & uids:
        record.fallen |= uids
    if job.target > 0 and not job.status.get("startTime"):
        record.admitted_ms = time_ms(str(job.status.get("admittedTime") or "")) or None
    record.hints = {stateful_set.role: stateful_set.hosts for stateful_set in cache.sets_of(job).values()}
    return record


def restore_limits(cache: ClusterCache, now_ms: int) -> dict[str, JobLimits]:
    """Give what the leader makes a plan wait for, by job: for whoever looks without being it."""
    pods, limits = cache.assign_pods()[0], {}
    for job in cache.sorted_jobs():
        known, failed = status.read(job.status), len(_failed(pods[job.key]))
        # Once one is counted anew, all wait again.
        is_held = now_ms < known.replaced_ms or failed > known.failed
        limits[job.key] = job_limits(job, known, failed if is_held else 0, now_ms)
    return limits


def restore_moves(jobs: Iterable[JobFacts], since_ms: int = 0) -> list[int]:
    """Give when trainers were moved for fairness alone, one time for each, as scale records tell it."""
    moves_ms: list[int] = []
    for job in jobs:
        for record in job.status.get("scaleRecords") or ():
            moved_ms = time_ms(str(record.get("time") or ""))
            if moved_ms >= since_ms:
                moves_ms += [moved_ms] * int(record.get("moves") or 0)
    return sorted(moves_ms)


def _failed(pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Give the trainers that failed and still stand, in the order in which they did."""
    failed = [pod for pod in pods if pod.role == "trainer" and pod.ending == "failed"]
    return sorted(failed, key=lambda pod: (pod.last_change_ms, pod.name))
