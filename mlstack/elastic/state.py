"""What the controller keeps of each job between passes, and what the job's pods say about it.

All that is kept can be lost without harm. What is not written anywhere is begun anew: what was told (but that
a job waits: its status says so), which writes were refused. It is learnt again by and by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from mlstack.clock import micro_time, time_ms
from mlstack.dataclass import Record, dataclass
from mlstack.elastic.cache import ClusterCache, JobLimits
from mlstack.elastic.facts import JobFacts, PodFacts
from mlstack.elastic.snapshot import Decision, ScaleCause
from mlstack.elastic.training_job import API_VERSION, KIND
from mlstack.errors import ClusterError
from mlstack.kube.client import ObjectRef

# --- Kubernetes events about jobs: what is told when something changes, a series where it is told again ---
# As client-go's broadcaster has it: what happens again within six minutes is the same event, and its series
# counts it, for `kubectl describe`. A series begins at once and is then written once a minute at the most.
# What lasts, such as waiting for room, is not counted while it lasts; every half an hour its event is written
# again, since the server forgets events after an hour, also by a new leader, who does not know that event.

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
_OFF: Mapping[ScaleCause, str] = {
    "stuck": "StuckWithdrawn",
    "suspended": "PreemptedFor",
    "lost": "MinimumLost",
}
# What a decision is called when it changes the number of trainers: reason if it grows, reason if it shrinks.
_CHANGES: Mapping[ScaleCause, tuple[str, str]] = {
    "fairness": ("Rebalanced", "Rebalanced"),
    "gang": ("ScaledUp", "PreemptedFor"),
    "yield": ("ScaledUp", "PreemptedFor"),
    "stuck": ("ScaledUp", "StuckWithdrawn"),
    "refused": ("ScaledUp", "Refused"),
}


@dataclass(frozen=True)
class JobEvent:
    """One thing that happened to a job."""

    job: str  # its key
    reason: str  # one word in CamelCase, as people select by it
    action: str  # what the controller did
    text: str
    type: Literal["Normal", "Warning"] = "Normal"
    lasts: bool = False  # whether it is a state, told in every pass while it lasts

    @property
    def key(self) -> tuple[str, str]:
        """Give what makes it the same as another; numbers matter only in why a whole gang is refused."""
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
            "note": shortened(self.text, _LONGEST),
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
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
        return [JobEvent(key, "Admitted", "Admit", f"{after} trainers: {text}")]
    if after == 0 and cause == "refused":
        return [JobEvent(key, reason="Refused", action="Admit", text=text, type="Warning", lasts=True)]
    if before > 0 and after == 0:
        return [JobEvent(key, _OFF.get(cause, "Suspended"), "Suspend", text, "Warning")]
    if before == 0:
        return [JobEvent(key, reason="WaitingForCapacity", action="Wait", text=text, lasts=True)]
    if after == before:
        return []
    reason = _CHANGES.get(cause, ("ScaledUp", "ScaledDown"))[after < before]
    return [JobEvent(key, reason, "Scale", f"trainers {before} -> {after}: {text}")]


def status_events(job: JobFacts, after: Mapping[str, Any]) -> list[JobEvent]:
    """Give what there is to tell about conditions that turn bad with a new status."""
    degraded: list[Mapping[str, Any]] = [
        next((row for row in status.get("conditions") or () if row.get("type") == "Degraded"), {})
        for status in (job.status, after)
    ]
    before, now = degraded
    reason, text = str(now.get("reason")), str(now.get("message") or "")
    if reason == before.get("reason") or reason not in ("MinimumLost", "InvalidSpec", "Paused"):
        return []
    return [JobEvent(job.key, reason, "Observe", text, "Warning")]


@dataclass
class EventSeries:
    """How often the same was told."""

    event: str  # name of its event, empty for one of a leader before
    last_ms: int  # when it was told last
    sent_ms: int  # when it was written last
    count: int = 1
    sent: int = 1  # the count when it was written last


@dataclass
class EventRecorder:
    """What was told of one job lately."""

    series: dict[tuple[str, str], EventSeries] = field(default_factory=dict)
    is_new: bool = True  # whether nothing was ever told by this leader

    def take_over(self, key: tuple[str, str], now_ms: int) -> None:
        """Take note of what a leader before has told; a new event tells it when it would be written again."""
        self.is_new = False
        self.series[key] = EventSeries("", last_ms=now_ms, sent_ms=now_ms)

    def record(self, key: tuple[str, str], event: str, now_ms: int, *, lasts: bool = False) -> bool:
        """Count what is told, once a pass, or in `REFRESH_MS` if it lasts; says whether to write an event."""
        self.is_new = False
        recent = [(old, series) for old, series in self.series.items() if now_ms - series.last_ms < SAME_MS]
        self.series = dict(recent)
        series = self.series.get(key)
        if series is not None and (series.event or now_ms - series.sent_ms < REFRESH_MS):
            if now_ms > series.last_ms and (not lasts or now_ms - series.sent_ms >= REFRESH_MS):
                series.count += 1
            series.last_ms = now_ms
            return False
        if len(self.series) >= MOST:
            del self.series[min(self.series, key=lambda old: self.series[old].last_ms)]
        self.series[key] = EventSeries(event, last_ms=now_ms, sent_ms=now_ms)
        return True

    def due(self, now_ms: int) -> Iterator[tuple[tuple[str, str], EventSeries]]:
        """Give the series that are to be written now; they count as written."""
        for key, series in self.series.items():
            is_time = series.sent == 1 or now_ms - series.sent_ms >= PAUSE_MS
            if series.count > series.sent and is_time:
                series.sent, series.sent_ms = series.count, now_ms
                yield key, series

    def forget(self, event: str) -> None:
        """Begin anew with an event that the server has forgotten."""
        self.series = {key: series for key, series in self.series.items() if series.event != event}


# --- how long to wait after something went wrong ---

# After so long without a failure the next one counts as the first.
CALM_MS = 600_000
# After trainers have run for so long their failure is the first: as kubelets forget a crash loop.
_STEADY_MS = 600_000

# Each the first time to wait, and the longest: until failed trainers are replaced, until a gang that found
# no place (or more trainers that were refused) is tried again, until a refused write is, and while a node
# that had a place on paper only is passed over.
RETRY_MS = (10_000, 60_000)
GANG_MS = (60_000, 3_600_000)
WRITE_MS = (2_000, 60_000)
BAR_MS = (60_000, 3_600_000)

MOST_NODES = 50  # so many are kept in a status, those that are passed over longest


def shortened(text: str, most: int = 300) -> str:
    """Give so much of what a server said as is kept: an admission webhook may say much."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
        """Tell whether it is too early; no wait is longer than the longest, where the clock was set back."""
        return now_ms < self.until_ms <= now_ms + self.longest_ms

    def written(self, name: str) -> dict[str, Any]:
        """Write it for the next leader."""
        return {f"{name}Retries": self.streak, f"{name}RetryTime": micro_time(self.until_ms / 1000)}

    def read(self, name: str, written: Mapping[str, Any]) -> None:
        """Count on from what the leader before wrote."""
        self.resume(
            int(written.get(f"{name}Retries") or 0), time_ms(str(written.get(f"{name}RetryTime") or ""))
        )

    def _length_ms(self) -> int:
        return min(self.longest_ms, self.first_ms << min(self.streak - 1, 20))


@dataclass
class RefusalBackoff(Backoff):
    """A time to wait that ends at once where the job is changed."""

    generation: int = 0  # of the job that it was for
    refusal: str = ""  # what the cluster said, empty where it was only that no place was found

    def refuse(self, generation: int, now_ms: int, refusal: str) -> None:
        """Note that the cluster does not take a job as it is."""
        self.fail(now_ms)
        self.generation, self.refusal = generation, shortened(refusal)

    def holds(self, generation: int, now_ms: int) -> bool:
        """Tell whether it is too early for a job as it is."""
        return self.generation == generation and self.is_waiting(now_ms)

    def __str__(self) -> str:
        """Say what the cluster does not take, and until when it is not asked again."""
        moment = datetime.fromtimestamp(self.until_ms // 1000, UTC).strftime("%H:%M:%S UTC")
        return f"{self.refusal}; tried again at {moment}"

    def written(self, name: str) -> dict[str, Any]:
        """Write it for the next leader."""
        refusal = {f"{name}Refusal": self.refusal} if self.refusal else {}
        return {**super().written(name), f"{name}RetryGeneration": self.generation, **refusal}

    def read(self, name: str, written: Mapping[str, Any]) -> None:
        """Count on from what the leader before wrote."""
        super().read(name, written)
        self.generation = int(written.get(f"{name}RetryGeneration") or 0)
        self.refusal = str(written.get(f"{name}Refusal") or "")


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
    gang: RefusalBackoff = field(default_factory=lambda: RefusalBackoff(*GANG_MS))
    # after what may pass by itself
    passing: RefusalBackoff = field(default_factory=lambda: RefusalBackoff(*WRITE_MS))
    short_ms: int | None = None  # since when pods of it are not there at all, None while they are
    refused_since_ms: int | None = None  # since when that is because the cluster does not take them
    asked_ms: int = 0  # when it was last asked why its StatefulSets make no pods
    # More trainers that were refused.
    ceiling: int = 0  # trainers beyond which the cluster took no more, 0 where it takes them
    growth: RefusalBackoff = field(default_factory=lambda: RefusalBackoff(*GANG_MS))
    # Places and what stands around the trainers.
    bars: dict[str, Backoff] = field(default_factory=dict)  # how often a node had a place on paper only
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # planned nodes of the servers
    admitted_ms: int | None = None  # None once all of the gang has a node, or where nobody remembers
    support_generation: int | None = None  # of the job that it was last written for, None for nobody knows
    # what of it the cluster has not taken since, with why where it was refused
    unwritten: dict[ObjectRef, ClusterError | None] = field(default_factory=dict)
    restored_ms: int = 0  # when a Service or budget was last written because somebody had changed it
    # Writes.
    writes: Backoff = field(default_factory=lambda: Backoff(*WRITE_MS))  # when tried again after a refusal
    refusal: str = ""  # why the cluster did not take pods, or what is around them; empty once it takes one
    refused_ms: int = 0
    kept: str = ""  # why pods that had to go were not deleted in the last pass
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
            self.rounds = self.rounds + 1 if ran_ms < _STEADY_MS else 1
            self.fallen = uids

    def leave_gang(self) -> None:
        """Forget what was watched of a gang that is taken off."""
        self.admitted_ms = self.short_ms = self.refused_since_ms = None

    def cap(self, ceiling: int, generation: int, why: str, now_ms: int) -> None:
        """Note that the cluster takes no more trainers of the job; what one pass tells counts once."""
        if not self.growth.holds(generation, now_ms):
            self.growth.refuse(generation, now_ms, why)
        self.ceiling, self.growth.refusal = ceiling, shortened(why)

    def bar(self, node: str, now_ms: int) -> None:
        """Note that a node has no room in truth: it is passed over for a while."""
        self.bars = {name: backoff for name, backoff in self.bars.items() if not backoff.is_over(now_ms)}
        self.bars.setdefault(node, Backoff(*BAR_MS)).fail(now_ms)

    def refused(self, generation: int, now_ms: int) -> str:
        """Say why the cluster does not take the gang of the job, or more trainers; empty while it does."""
        if self.gang.refusal and self.gang.streak and self.gang.holds(generation, now_ms):
            return str(self.gang)
        if self.most(generation, now_ms):
            return str(self.growth)
        return f"{self.passing.refusal}; tried again soon" if self.passing.is_waiting(now_ms) else ""

    def most(self, generation: int, now_ms: int) -> int:
        """Give the most trainers that the job as it is may have now, 0 for no such limit."""
        return self.ceiling if self.growth.holds(generation, now_ms) else 0

    def growth_refused(self, generation: int, now_ms: int) -> str:
        """Say why the job gets no more trainers than the cluster took, empty where it does."""
        most = self.most(generation, now_ms)
        return f"no more than {most} trainers: {self.growth}" if most else ""

    def limits(self, job: JobFacts, failed: int, now_ms: int, *, not_before_ms: int = 0) -> JobLimits:
        """Give what a plan waits for, `failed` trainers that are not replaced yet among it."""
        pauses = [pause for pause in (self.passing, self.gang) if pause.holds(job.generation, now_ms)]
        again_ms = max([not_before_ms, *(pause.until_ms for pause in pauses)])
        return JobLimits(
            barred={node: pause.until_ms for node, pause in self.bars.items() if pause.is_waiting(now_ms)},
            failed=failed,
            not_before_ms=again_ms,
            refused=self.refused(job.generation, now_ms),
            ceiling=self.most(job.generation, now_ms),
        )

    # --- what the next leader has to know stands in the status of the job: times are exact ---

    def setbacks(self, failed: int) -> dict[str, Any]:
        """Write what went wrong several times in a row; `failed` trainers were counted and still stand."""
        rounds = {"failedRounds": self.rounds, "failedTrainer": min(self.fallen, default="")}
        written: dict[str, Any] = {
            **({"failedTrainers": failed, **self.retry.written("trainer")} if failed else {}),
            **(rounds if self.rounds else {}),
            **(self.gang.written("gang") if self.gang.streak else {}),
            **({"trainerCeiling": self.ceiling, **self.growth.written("growth")} if self.ceiling else {}),
        }
        # Nodes that were barred together stand together, those that are passed over longest first.
        groups: dict[tuple[int, int], list[str]] = {}
        bars = sorted(self.bars.items(), key=lambda bar: (-bar[1].until_ms, bar[0]))
        for node, backoff in bars[:MOST_NODES]:
            groups.setdefault((backoff.until_ms, backoff.streak), []).append(node)
        rows = [
            {"nodes": nodes, "times": times, "until": micro_time(until_ms / 1000)}
            for (until_ms, times), nodes in groups.items()
        ]
        return {**written, **({"passedOver": rows} if rows else {})}

    def resume(self, written: Mapping[str, Any]) -> None:
        """Count on from what the leader before wrote."""
        backoffs: dict[str, Backoff] = {"trainer": self.retry, "gang": self.gang, "growth": self.growth}
        for name, backoff in backoffs.items():
            backoff.read(name, written)
        self.rounds, self.fallen = (
            int(written.get("failedRounds") or 0),
            {str(written.get("failedTrainer") or "")} - {""},
        )
        self.ceiling = int(written.get("trainerCeiling") or 0)
        for row in written.get("passedOver") or ():
            for node in row.get("nodes") or ():
                backoff = self.bars[str(node)] = Backoff(*BAR_MS)
                backoff.resume(int(row.get("times") or 1), time_ms(str(row.get("until") or "")))


# --- what a new leader restores: it goes on where the one before it stopped ---


def restore(job: JobFacts, pods: Sequence[PodFacts], cache: ClusterCache) -> JobRecord:
    """Give what the cluster tells of a job: its status, its pods and its StatefulSets."""
    record = JobRecord(job.uid, failed=int((job.status.get("trainer") or {}).get("failed") or 0))
    written, failed = job.status.get("setbacks") or {}, _failed(pods)
    record.resume(written)
    record.counted = {pod.uid for pod in failed[: int(written.get("failedTrainers") or 0)]}
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
        record, failed = restore(job, pods[job.key], cache), len(_failed(pods[job.key]))
        # Once one is counted anew, all wait again.
        is_held = record.retry.is_waiting(now_ms) or failed > len(record.counted)
        limits[job.key] = record.limits(job, failed if is_held else 0, now_ms)
    return limits


def restore_moves(jobs: Iterable[JobFacts], since_ms: int) -> list[int]:
    """Give when trainers were moved for fairness alone, one time for each, as scale records tell it."""
    moves_ms: list[int] = []
    for job in jobs:
        for record in job.status.get("scaleRecords") or ():
            moved_ms = time_ms(str(record.get("time") or ""))
            if moved_ms >= since_ms:
                moves_ms += [moved_ms] * int(record.get("moves") or 0)
    return sorted(moves_ms)


def _failed(pods: Iterable[PodFacts]) -> list[PodFacts]:
    failed = [pod for pod in pods if pod.role == "trainer" and pod.ending == "failed"]
    return sorted(failed, key=lambda pod: (pod.last_change_ms, pod.name))


# --- what became of the pods of a job, and what follows: replace, wait, finish, succeed, fail ---

_MOST_ROUNDS = 6  # so often in a row all trainers may fail: `backoffLimit` of a Kubernetes Job, unless said
JobOutcome = Literal["", "Succeeded", "Failed"]


class Lifecycle(Record):
    """What the pods of a job say about it."""

    outcome: JobOutcome = ""  # how it ended, empty while it goes on
    reason: str = ""  # one word for it
    message: str = ""  # one line for people, also about what goes wrong while it goes on
    removed: tuple[PodFacts, ...] = ()  # ended, in the way of others of their name, or needed no more
    held: int = 0  # how many failed trainers are not replaced yet
    due_ms: int | None = None  # when they may be, None if there are none


class JobContext(Record):
    """One job with all that belongs to it."""

    job: JobFacts
    pods: list[PodFacts]
    record: JobRecord
    life: Lifecycle = field(default_factory=Lifecycle)

    @cached_property
    def trainers(self) -> list[PodFacts]:
        """Give its trainers that neither ended nor are going."""
        return [pod for pod in self.pods if pod.role == "trainer" and pod.is_live]


def judge(job: JobFacts, pods: list[PodFacts], record: JobRecord, now_ms: int) -> Lifecycle:
    """Tell what became of the trainers of a job that is under way.

    Losses (preemption, eviction, a lost node, somebody's deletion) are replaced at once and not counted. A
    trainer that failed by itself is replaced after a pause, unless that fails the job: one that is not fault
    tolerant, that allows no more, or of which all failed several times in a row (one common moment, as when a
    server was away, does not end it). After the first that succeeds there is no work left to replace for.
    """
    assert job.spec is not None
    trainers = [pod for pod in pods if pod.role == "trainer"]
    failed = [pod for pod in trainers if pod.ending == "failed"]
    live = [pod for pod in trainers if pod.is_live]
    uids = {pod.uid for pod in failed}
    if fresh := uids - record.counted:
        record.counted |= fresh
        record.failed += len(fresh)
        # Those that fail while others wait to be replaced wait no longer than these: a job that loses one now
        # and then must not wait for ever.
        if not record.retry.is_waiting(now_ms):
            record.retry.fail(now_ms)
    if failed and not job.spec.is_fault_tolerant:
        return _failure("TrainerFailed", f"`{failed[0].name}` failed, and the job is not fault tolerant")
    if job.stage(pods) == "finishing":
        return _finishing(trainers, live, len(failed))
    if failed and job.spec.failures is not None and record.failed > job.spec.failures:
        text = f"{record.failed} trainers failed, {job.spec.failures} are allowed"
        return _failure("TooManyFailures", text)
    message = ""
    if failed and not live and len(failed) >= max(job.target, 1):
        record.fail_round(uids, max(pod.ran_ms for pod in failed))
        text = "the only trainer failed" if len(failed) == 1 else f"all {len(failed)} trainers failed"
        times = f", {record.rounds} times in a row" if record.rounds > 1 else ""
        if record.rounds >= _MOST_ROUNDS:
            return _failure("AllTrainersFailed", f"{text}{times}")
        message = f"{text}{times}; others come after a pause"
    lost = tuple(pod for pod in trainers if pod.ending == "lost" and pod.gone_ms is None)
    if failed and record.retry.is_waiting(now_ms):
        return Lifecycle(removed=lost, held=len(failed), due_ms=record.retry.until_ms, message=message)
    return Lifecycle(removed=(*lost, *failed), message=message)


def _finishing(trainers: Sequence[PodFacts], live: Sequence[PodFacts], failed: int) -> Lifecycle:
    waiting = tuple(pod for pod in live if not pod.node)
    if len(waiting) < len(live):
        return Lifecycle(removed=waiting)  # what has not begun would find no work
    done = sum(pod.ending == "succeeded" for pod in trainers)
    who = "1 trainer" if done == 1 else f"{done} trainers"
    ended = f", {failed} failed" if failed else ""
    return Lifecycle(outcome="Succeeded", reason="Completed", message=f"{who} found no work left{ended}")


def _failure(reason: str, message: str) -> Lifecycle:
    return Lifecycle(outcome="Failed", reason=reason, message=message)


def lacks(job: JobFacts, pods: list[PodFacts]) -> Literal["", "gang", "trainer"]:
    """Say whether a job lacks its first running `trainer` (EDL: pending), more of its `gang`, or nothing."""
    if job.stage(pods) == "finishing":
        return ""
    running = [pod.role for pod in pods if pod.is_live and pod.node and pod.phase == "Running"]
    trainers = running.count("trainer")
    if not trainers:
        return "trainer"
    is_whole = trainers >= (job.trainer.count if job.trainer else 1)
    return "" if is_whole and all(running.count(role.role) >= role.count for role in job.servers) else "gang"


def missing_pods(job: JobFacts, pods: Sequence[PodFacts]) -> tuple[str, ...]:
    """Give the names of servers that are no pods at all, `trainers` too if too few to go on with."""
    if job.spec is None:
        return ()
    names = {pod.name for pod in pods}
    servers = [f"{role.set_name}-{index}" for role in job.servers for index in range(role.count)]
    fewest = job.spec.trainer.minimum if job.status.get("startTime") else job.spec.minimum
    is_short = sum(pod.role == "trainer" for pod in pods) < fewest
    return (*(name for name in servers if name not in names), *(("trainers",) if is_short else ()))
