"""The same told about a job again: not a new event each time, but a series on the one that is there.

As client-go's broadcaster has it: what happens again within six minutes is the same event, and its series
counts it, so that `kubectl get events -o wide` and `kubectl describe` show how often it was. A series begins
at once and is then written once a minute at the most. What lasts rather than happens, such as waiting for
room, is not counted while it lasts; every half an hour its event is written again, since the server forgets
events after an hour. A new leader, who does not know that event, writes one of its own after that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.clock import micro_time
from mlstack.elastic import status
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.jobs import JobFacts, SetFacts
from mlstack.elastic.facts import PodFacts, time_ms
from mlstack.elastic.status import LONGEST, Bar, FailureCounters
from mlstack.kube.client import ObjectRef

# --- The same told about a job again: not a new event each time, but a series on the one that is
# there
# As client-go's broadcaster has it: what happens again within six minutes is the same event, and its series
# counts it, so that `kubectl get events -o wide` and `kubectl describe` show how often it was. A series
# begins at once and is then written once a minute at the most. What lasts rather than happens, such as
# waiting for room, is not counted while it lasts; every half an hour its event is written again, since the
# server forgets events after an hour. A new leader, who does not know that event, writes one of its own
# after that time.

SAME_MS = 360_000
"""So long after the last time it is something new again."""

PAUSE_MS = 60_000
"""A series that has begun is not written more often."""

REFRESH_MS = 1_800_000
"""What lasts is written again so often."""

MOST = 50
"""So many different things are remembered of one job."""

Key = tuple[str, str]
"""A reason, and the text where that matters."""


@dataclass
class EventSeries:
    """How often the same was told."""

    event: str  # name of its event, empty for one of a leader before
    last_ms: int  # when it was heard last
    sent_ms: int  # when it was written last
    count: int = 1  # how often it happened
    sent: int = 1  # how often it had happened when it was written last

    @property
    def body(self) -> dict[str, Any]:
        """Give the merge patch of the event."""
        return {"series": {"count": self.count, "lastObservedTime": micro_time(self.last_ms / 1000)}}

    def hear(self, now_ms: int, *, lasts: bool) -> None:
        """Note that it is told again; what one pass says several times counts once."""
        if now_ms > self.last_ms and (not lasts or now_ms - self.sent_ms >= REFRESH_MS):
            self.count += 1
        self.last_ms = now_ms


@dataclass
class RecordedEvent:
    """What was told of one job lately."""

    known: dict[Key, EventSeries] = field(default_factory=dict)  # by what was told
    is_new: bool = True  # whether nothing was ever told by this leader

    def take_over(self, key: Key, now_ms: int) -> None:
        """Take note of what a leader before has told; a new event tells it when it would be written again."""
        self.is_new = False
        self.known[key] = EventSeries("", last_ms=now_ms, sent_ms=now_ms)

    def is_news(self, key: Key, event: str, now_ms: int, *, lasts: bool = False) -> bool:
        """Tell whether something was not told a short while ago, and take note of it."""
        self.is_new = False
        for old in [old for old, series in self.known.items() if now_ms - series.last_ms >= SAME_MS]:
            del self.known[old]
        series = self.known.get(key)
        if series is not None and (series.event or now_ms - series.sent_ms < REFRESH_MS):
            series.hear(now_ms, lasts=lasts)
            return False
        if len(self.known) >= MOST:
            del self.known[min(self.known, key=lambda each: self.known[each].last_ms)]
        self.known[key] = EventSeries(event, last_ms=now_ms, sent_ms=now_ms)
        return True

    def due(self, now_ms: int) -> Iterator[tuple[Key, EventSeries]]:
        """Give the series that are to be written now; they count as written."""
        for key, series in self.known.items():
            is_time = series.sent == 1 or now_ms - series.sent_ms >= PAUSE_MS
            if series.count > series.sent and is_time:
                series.sent, series.sent_ms = series.count, now_ms
                yield key, series

    def forget(self, event: str) -> None:
        """Begin anew with an event that the server has forgotten."""
        self.known = {key: series for key, series in self.known.items() if series.event != event}


# --- What the controller remembers between passes; all of it can be lost without harm ---

FIRST_RETRY_MS = 10_000
LONGEST_RETRY_MS = 60_000
CALM_MS = 600_000
"""After so long without a failure the next one counts as the first."""

MOST_ROUNDS = 6
"""So often in a row all trainers may fail: `backoffLimit` of a Kubernetes Job, unless said."""

STEADY_MS = 600_000
"""After trainers have run for so long their failure is the first: as kubelets forget a crash loop."""

FIRST_BAR_MS = 60_000
LONGEST_BAR_MS = 3_600_000

FIRST_WAIT_MS = 60_000
LONGEST_WAIT_MS = 3_600_000

FIRST_PAUSE_MS = 2_000
LONGEST_PAUSE_MS = 60_000


@dataclass
class Backoff:
    """A time to wait that doubles with every failure."""

    first_ms: int  # after the first
    longest_ms: int  # at the most
    streak: int = 0  # failures without a calm time between them
    last_ms: int = 0  # when the last was
    until_ms: int = 0  # when waiting is over

    def fail(self, now_ms: int, *, is_passing: bool = False) -> None:
        """Note a failure."""
        if is_passing:
            self.until_ms = max(self.until_ms, now_ms + self.first_ms)
            return
        self.streak = 1 if self.is_over(now_ms) else self.streak + 1
        self.last_ms = now_ms
        self.until_ms = now_ms + self._length_ms()

    def resume(self, streak: int, until_ms: int) -> None:
        """Go on where another stopped after so many failures, the last of which makes wait until then."""
        self.streak, self.until_ms = streak, until_ms
        self.last_ms = until_ms - self._length_ms() if streak else 0

    def calm(self) -> None:
        """Let the next failure count as the first."""
        self.streak = 0

    def is_over(self, now_ms: int) -> bool:
        """Tell whether the next failure counts as the first: there was none, or it was long ago."""
        calm_ms = max(CALM_MS, 2 * (self.until_ms - self.last_ms))
        return not self.streak or now_ms - self.last_ms > calm_ms

    def is_waiting(self, now_ms: int) -> bool:
        """Tell whether it is too early."""
        return now_ms < self.until_ms

    def _length_ms(self) -> int:
        return min(self.longest_ms, self.first_ms << min(self.streak - 1, 20))


def _retry() -> Backoff:
    return Backoff(FIRST_RETRY_MS, LONGEST_RETRY_MS)


def _wait() -> Backoff:
    return Backoff(FIRST_WAIT_MS, LONGEST_WAIT_MS)


def _shy() -> Backoff:
    return Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)


def _pause() -> Backoff:
    return Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)


def _bar() -> Backoff:
    return Backoff(FIRST_BAR_MS, LONGEST_BAR_MS)


@dataclass
class JobMemory:
    """What is remembered of one job."""

    uid: str  # of the job: another of the same name starts anew
    counted: set[str] = field(default_factory=set)  # UIDs of pods whose failure was counted
    failed: int = 0  # trainers that failed by themselves, since ever
    retry: Backoff = field(default_factory=_retry)  # when failed trainers are replaced
    rounds: int = 0  # how often in a row all trainers failed
    fallen: set[str] = field(default_factory=set)  # UIDs of the trainers of the last such round
    # when the job may be admitted again after its gang found no place
    wait: Backoff = field(default_factory=_wait)
    given_up: int = 0  # generation of the job when that was last: one that was changed since is tried at once
    gang_refusal: str = ""  # why the cluster did not take its gang then, empty where that found no place
    # when the gang is tried again after a refusal that may pass by itself
    shy: Backoff = field(default_factory=_shy)
    shy_of: str = ""  # what was said then
    short_ms: int | None = None  # since when pods of its gang are not there at all, None while they are
    balked_ms: int | None = None  # since when that is because the cluster does not take them
    asked_ms: int = 0  # when it was last asked why its StatefulSets make no pods
    ceiling: int = 0  # trainers beyond which the cluster took no more, 0 where it takes them
    growth: Backoff = field(default_factory=_wait)  # when more are tried again
    capped: int = 0  # generation of the job that it took no more of
    growth_refusal: str = ""  # why it took no more
    pause: Backoff = field(default_factory=_pause)  # when the next write is tried after one was refused
    bars: dict[str, Backoff] = field(default_factory=dict)  # how often a node had a place on paper only
    # nodes that the plan had for masters and parameter servers
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # generation of the job for which services and sets were last written as a whole; empty where nobody
    # remembers, `begun` and the generation where it did not come off
    supported: tuple[object, ...] = ()
    unwritten: frozenset[ObjectRef] = frozenset()  # what of them was refused then
    # what of them cannot be written since somebody else has an object of that name, and why
    taken_names: dict[ObjectRef, str] = field(default_factory=dict)
    mended_ms: int = 0  # when a Service or budget was last written because somebody had changed it
    # when it was admitted; None once all of the gang has a node, or where nobody remembers
    admitted_ms: int | None = None
    told: RecordedEvent = field(default_factory=RecordedEvent)  # what was told of it lately
    sent: Mapping[str, object] = field(default_factory=dict)  # the last change of its status
    sent_ms: int = 0  # when that was
    # why the cluster did not take a pod, or what stands around pods; empty once it takes one
    refusal: str = ""
    refused_ms: int = 0  # when that was

    def refuse(self, text: str, now_ms: int) -> None:
        """Note why something was not taken; of the reasons of one pass always the same is kept."""
        is_other = self.refusal and now_ms == self.refused_ms
        self.refusal, self.refused_ms = min(text, self.refusal) if is_other else text, now_ms

    def fall(self, uids: set[str], ran_ms: int) -> None:
        """Note, once, that all trainers failed, the longest of which had run so long."""
        if not uids <= self.fallen:
            self.rounds = self.rounds + 1 if ran_ms < STEADY_MS else 1
            self.fallen = uids

    def setbacks(self, failed: int) -> FailureCounters:
        """Give what the next leader has to know of what went wrong in a row."""
        tries = self.wait.streak
        return FailureCounters(
            failed=failed,
            failures=self.retry.streak if failed else 0,
            replaced_ms=self.retry.until_ms if failed else 0,
            rounds=self.rounds,
            fallen=min(self.fallen, default=""),
            tries=tries,
            retry_ms=self.wait.until_ms if tries else 0,
            retry_generation=self.given_up if tries else 0,
            refusal=self.gang_refusal if tries else "",
            ceiling=self.ceiling,
            refusals=self.growth.streak if self.ceiling else 0,
            growth_ms=self.growth.until_ms if self.ceiling else 0,
            growth_generation=self.capped if self.ceiling else 0,
            growth_refusal=self.growth_refusal if self.ceiling else "",
            bars=tuple(
                Bar(node=node, times=each.streak, until_ms=each.until_ms)
                for node, each in sorted(self.bars.items())
            ),
        )

    def resume(self, known: FailureCounters) -> None:
        """Count on from what the leader before knew."""
        self.retry.resume(known.failures, known.replaced_ms)
        self.rounds, self.fallen = known.rounds, {known.fallen} - {""}
        self.wait.resume(known.tries, known.retry_ms)
        self.given_up, self.gang_refusal = known.retry_generation, known.refusal
        self.ceiling, self.capped = known.ceiling, known.growth_generation
        self.growth_refusal = known.growth_refusal
        self.growth.resume(known.refusals, known.growth_ms)
        for bar in known.bars:
            self.bars[bar.node] = _bar()
            self.bars[bar.node].resume(bar.times, bar.until_ms)

    def give_up(self, generation: int, now_ms: int, *, refusal: str = "") -> None:
        """Note that the gang of the job as it is finds no place, or why the cluster does not take it."""
        self.wait.fail(now_ms)
        self.given_up, self.gang_refusal = generation, refusal[:LONGEST]

    def shy_away(self, why: str, now_ms: int) -> None:
        """Note that the cluster does not take the gang now, which may pass by itself."""
        self.shy.fail(now_ms)
        self.shy_of = why[:LONGEST]

    def cap(self, ceiling: int, generation: int, why: str, now_ms: int) -> None:
        """Note that the cluster takes no more trainers of the job; what one pass tells counts once."""
        if not self.growth.is_waiting(now_ms) or self.capped != generation:
            self.growth.fail(now_ms)
        self.ceiling, self.capped, self.growth_refusal = ceiling, generation, why[:LONGEST]

    def not_before_ms(self, generation: int) -> int:
        """Give until when the job as it is waits before it is admitted again, 0 for not at all."""
        return max(self.wait.until_ms if self.given_up == generation else 0, self.shy.until_ms)

    def refused(self, generation: int, now_ms: int) -> str:
        """Say why the cluster does not take the gang of the job, or more trainers; empty while it does."""
        said = self.setbacks(0).refused(generation, now_ms)
        return said or (f"{self.shy_of}; tried again soon" if self.shy.is_waiting(now_ms) else "")

    def bar(self, node: str, now_ms: int) -> int:
        """Note that a node has no room in truth and give until when it is passed over."""
        self.bars = {name: each for name, each in self.bars.items() if not each.is_over(now_ms)}
        backoff = self.bars.setdefault(node, _bar())
        backoff.fail(now_ms)
        return backoff.until_ms


class ControllerState:
    """What is remembered of all jobs."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobMemory] = {}

    def of(self, key: str, uid: str) -> JobMemory | None:
        """Give what is remembered of a job, None if it was never seen."""
        found = self._jobs.get(key)
        return found if found is not None and found.uid == uid else None

    def begin(self, key: str, uid: str) -> JobMemory:
        """Begin to remember a job."""
        self._jobs[key] = JobMemory(uid)
        return self._jobs[key]

    def forget_all_but(self, keys: set[str]) -> None:
        """Forget the jobs that are gone."""
        for key in self._jobs.keys() - keys:
            del self._jobs[key]


# --- What a new leader reads from the cluster of what the one before it knew: it goes on where that
# one stopped
# What is not written anywhere is begun anew: what was told (but that a job waits: its status says so), which
# writes were refused. It is learnt again by and by.


def recall(
    memory: JobMemory, job: JobFacts, pods: Sequence[PodFacts], sets: Iterable[SetFacts | None]
) -> None:
    """Fill a memory that has just begun."""
    memory.failed = int((job.status.get("trainer") or {}).get("failed") or 0)
    known, failed = status.read(job.status), _failed(pods)
    memory.resume(known)
    memory.counted = {pod.uid for pod in failed[: known.failed]}
    if memory.fallen & {pod.uid for pod in failed}:
        memory.fallen |= {pod.uid for pod in failed}
    if job.target > 0 and not job.status.get("startTime"):
        memory.admitted_ms = time_ms(str(job.status.get("admittedTime") or "")) or None
    memory.hints = {one.role: one.hosts for one in sets if one is not None and one.owner == job.uid}


def recall_plan(world: ClusterCache, now_ms: int) -> None:
    """Tell a world what the leader makes a plan wait for.

    These are nodes passed over, gangs given up, moves made, and failed trainers that are replaced later.
    """
    jobs, pods = world.jobs(), world.pods_by_job()
    known = {job.key: status.read(job.status) for job in jobs}
    world.bars = {key: {bar.node: bar.until_ms for bar in one.bars} for key, one in known.items()}
    world.not_before = {
        job.key: known[job.key].retry_ms for job in jobs if known[job.key].retry_generation == job.generation
    }
    world.refused = {job.key: known[job.key].refused(job.generation, now_ms) for job in jobs}
    caps = {job.key: known[job.key].cap(job.generation, now_ms) for job in jobs}
    world.ceilings = {key: cap for key, cap in caps.items() if cap}
    world.failed = {job.key: _held(pods[job.key], known[job.key], now_ms) for job in jobs}
    world.moves_ms = moves(jobs, 0)


def _failed(pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Give the trainers that failed and still stand, in the order in which they did."""
    failed = [pod for pod in pods if pod.role == "trainer" and pod.ending == "failed"]
    return sorted(failed, key=lambda pod: (pod.last_change_ms, pod.name))


def _held(pods: Iterable[PodFacts], known: FailureCounters, now_ms: int) -> int:
    """Count the failed trainers that are not replaced yet; once one is counted anew, all wait again."""
    failed = len(_failed(pods))
    return failed if now_ms < known.replaced_ms or failed > known.failed else 0


def moves(jobs: Iterable[JobFacts], since_ms: int) -> list[int]:
    """Give when trainers were moved for fairness alone, one time for each, as scale records tell it."""
    found: list[int] = []
    for job in jobs:
        for record in job.status.get("scaleRecords") or ():
            moved_ms = time_ms(str(record.get("time") or ""))
            if moved_ms >= since_ms:
                found += [moved_ms] * int(record.get("moves") or 0)
    return sorted(found)
