"""Masters and parameter servers of an admitted job: brought into being, held to their nodes, let go again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mlstack.elastic import facts, pods, status
from mlstack.elastic.controller import actions
from mlstack.elastic.controller.actions import MANAGER, Action, Actions, Run, Support
from mlstack.elastic.controller.cache import ClusterCache, is_paused, state_of
from mlstack.elastic.controller.jobs import JobFacts, SetFacts, State
from mlstack.elastic.controller.memory import MOST_ROUNDS, JobMemory
from mlstack.elastic.facts import PodFacts, time_ms
from mlstack.elastic.snapshot import Decision, Priority, Reason, ScalePlan, Snapshot, Vector
from mlstack.elastic.status import Counts, StatusClaims, worded
from mlstack.errors import ClusterError, ConflictError, ForbiddenError, TransientError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef

# --- Masters and parameter servers of an admitted job: brought into being, held to their nodes, let
# go again

HELD_MS = 15_000
"""How long after the grace of a trainer a pod may wait for the node that it is held to."""

INCOMPLETE_MS = 90_000
"""How long after its admission a gang may lack a place before the job gives its room back."""

ASKED_MS = 3_000
"""So long after pods of StatefulSets are missing their controller is asked why, and as often from then on."""

REFUSED_MS = 10_000
"""How long pods of a gang may be refused before it gives all back: other jobs wait for its room."""

MENDED_MS = 60_000
"""Services and budgets of a job that somebody changes are written no more often: another may not give in."""

_LONGEST = 300  # of what a scheduler said: it tells of every kind of node

_UNDER_WAY = ("Running", "Scaling", "Completing")


@dataclass(frozen=True, kw_only=True)
class Gang:
    """What is to be done about the gang of a job."""

    support: Support | None = None  # the form to write, None where it stands already
    why: str = ""
    loosened: tuple[PodFacts, ...] = ()  # pods to be made again, free to go where there is room
    is_hopeless: bool = False  # whether the job had better wait again
    due_ms: int | None = None  # when to look again, None for no known time


def see_to(
    job: JobFacts,
    pods: Sequence[PodFacts],
    sets: Mapping[str, SetFacts],
    memory: JobMemory,
    *,
    lacking: Mapping[ObjectRef, State],
    hints: Mapping[str, tuple[str, ...]],
    now_ms: int,
) -> Gang:
    """Tell what the gang of an admitted job needs."""
    servers = [pod for pod in pods if pod.role != "trainer" and pod.is_live]
    waiting = [pod for pod in servers if not pod.node]
    wanted = sum(kind.count for kind in job.servers)
    is_placed = len(servers) - len(waiting) >= wanted
    if is_placed:
        memory.admitted_ms = None
        if not absent(job, pods):
            memory.wait.calm()
    if hints:
        memory.hints = hints
        return Gang(support=Support(is_running=True, hints=hints, is_held=True), why="admitted")
    limit_ms = _limit_ms(job)
    # At pods that are not tried the scheduler has not looked yet: held or not, they have to wait for it.
    overdue = [
        pod for pod in waiting if pod.is_tried and now_ms - pod.created_ms >= limit_ms and pod.is_held_to_node
    ]
    is_held = any(one.is_held for one in sets.values())
    if overdue or (is_placed and is_held):
        why = f"{_unplaced(overdue)}; no longer held to the planned nodes" if overdue else "all have a node"
        support = Support(is_running=True, hints=memory.hints, is_held=False, sets_only=True)
        return Gang(support=support, why=why, loosened=tuple(overdue))
    if not is_placed and memory.admitted_ms is not None and now_ms - memory.admitted_ms >= INCOMPLETE_MS:
        return Gang(why=_unplaced(waiting), is_hopeless=True)
    held = [pod for pod in waiting if pod.is_tried and pod.is_held_to_node]
    due = min((pod.created_ms + limit_ms for pod in held), default=None)
    wrong = _wrong(job, sets) | _mendable(lacking, memory, now_ms)
    form = _form(job, sets, memory, wrong)
    return Gang(support=form, why=_gang_reason(job, memory, wrong), due_ms=due)


def absent(job: JobFacts, pods: Sequence[PodFacts]) -> tuple[str, ...]:
    """Give the names of masters and parameter servers of which there is no pod at all, then `trainers`.

    Trainers are missing where there are fewer than the job may go on with; one that failed or is going is
    still there.
    """
    if job.spec is None:
        return ()
    there = {pod.name for pod in pods}
    servers = [f"{kind.set_name}-{index}" for kind in job.servers for index in range(kind.count)]
    fewest = job.spec.trainer.minimum if job.status.get("startTime") else job.spec.minimum
    is_short = sum(pod.role == "trainer" for pod in pods) < fewest
    return (*(name for name in servers if name not in there), *(("trainers",) if is_short else ()))


def refused(
    job: JobFacts, pods: Sequence[PodFacts], memory: JobMemory, now_ms: int
) -> tuple[str, int | None]:
    """Say why a gang had better give its room back, empty for no reason; and when to look again.

    That pods are missing is none: their room may still be taken. That they are refused is.
    """
    if not absent(job, pods):
        memory.short_ms = memory.balked_ms = None
        return "", None
    if memory.short_ms is None:
        memory.short_ms = now_ms
    if not memory.refusal or memory.refused_ms < memory.short_ms:
        memory.balked_ms = None
        return "", memory.short_ms + ASKED_MS if now_ms - memory.short_ms < ASKED_MS else None
    if memory.balked_ms is None:
        memory.balked_ms = memory.refused_ms
    until_ms = memory.balked_ms + REFUSED_MS
    return (memory.refusal, None) if now_ms >= until_ms else ("", until_ms)


def dismiss(sets: Mapping[str, SetFacts]) -> Support | None:
    """Tell what is to be written for a job that is to have no pods, None where it has none."""
    return Support(is_running=False, sets_only=True) if any(one.replicas for one in sets.values()) else None


def _unplaced(waiting: Sequence[PodFacts]) -> str:
    """Say which of these servers found no node, and why in the words of the scheduler."""
    said = next((pod for pod in waiting if pod.unplaced), None)
    if said is None:
        return "its masters and parameter servers found no node"
    return f"`{said.name}` found no node: {said.unplaced[:_LONGEST]}"


def _limit_ms(job: JobFacts) -> int:
    return HELD_MS + (job.spec.trainer.grace_s * 1000 if job.spec else 0)


def _is_known(job: JobFacts, memory: JobMemory) -> bool:
    """Tell whether what surrounds the trainers was written for the job as it is, but for what was refused.

    A new leader does not know what was written; it trusts that all was, once the gang has been complete.
    """
    if memory.supported:
        return memory.supported in ((job.generation,), ("begun", job.generation))
    return job.phase in _UNDER_WAY and job.status.get("observedGeneration") == job.generation


def _form(
    job: JobFacts, sets: Mapping[str, SetFacts], memory: JobMemory, wrong: frozenset[ObjectRef]
) -> Support | None:
    """Give what is to be written around the trainers: what is wrong or was refused, or all of it, or nothing.

    Servers of a gang that was just admitted are held to their nodes even where no set of it came off yet.
    """
    is_known = _is_known(job, memory)
    missing = memory.unwritten | wrong
    if is_known and not missing:
        return None
    was_held = any(one.is_held for one in sets.values())
    is_new = not sets and memory.admitted_ms is not None and bool(memory.hints)
    return Support(
        is_running=True,
        hints=memory.hints,
        is_held=was_held or is_new,
        only=missing if is_known else frozenset(),
    )


def _gang_reason(job: JobFacts, memory: JobMemory, wrong: frozenset[ObjectRef]) -> str:
    """Say why something is written around the trainers."""
    if job.target == 0:
        return "admitted"
    if _is_known(job, memory):
        return "restored" if wrong - memory.unwritten else "tried again"
    if memory.supported or job.status.get("observedGeneration") != job.generation:
        return "the job was changed"
    return "written again, not known to be complete"


def _wrong(job: JobFacts, sets: Mapping[str, SetFacts]) -> frozenset[ObjectRef]:
    """Give the sets that are not there, or with another number of pods."""
    return frozenset(
        ObjectRef("apps/v1", "StatefulSet", job.namespace, kind.set_name)
        for kind in job.servers
        if kind.set_name not in sets or sets[kind.set_name].replicas != kind.count
    )


def _mendable(lacking: Mapping[ObjectRef, State], memory: JobMemory, now_ms: int) -> frozenset[ObjectRef]:
    """Give the Services and budgets to be written now, and remember when such were that somebody changed."""
    changed = {ref for ref, state in lacking.items() if state == "changed"}
    if changed and now_ms - memory.mended_ms < MENDED_MS:
        return frozenset(lacking.keys() - changed)
    if changed:
        memory.mended_ms = now_ms
    return frozenset(lacking)


# --- What became of the trainers of a job, and what follows: replace, wait, finish, succeed, fail ---

Outcome = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, kw_only=True)
class Life:
    """What the pods of a job say about it."""

    outcome: Outcome = ""  # how it ended, empty while it goes on
    reason: str = ""  # one word for it
    message: str = ""  # one line for people, also about what goes wrong while it goes on
    # pods that go: they ended and make place for others of their name, or are needed no more
    removed: tuple[PodFacts, ...] = ()
    held: int = 0  # how many failed trainers are not replaced yet
    due_ms: int | None = None  # when they may be, None if there are none


def judge(job: JobFacts, pods: Sequence[PodFacts], memory: JobMemory, now_ms: int) -> Life:
    """Tell what became of the trainers of a job that is under way.

    Losses (preemption, eviction, a lost node, somebody's deletion) are replaced at once and not counted. A
    trainer that failed by itself fails a job that is not fault tolerant; others are replaced after a time
    that doubles from 10 s to a minute, unless more failed than the job allows, or all of them several times
    in a row: one common moment, as when a server was away, does not end a job. The first that succeeds says
    that there is no work left: nothing is replaced from then on.
    """
    trainers = [pod for pod in pods if pod.role == "trainer"]
    failed = [pod for pod in trainers if pod.ending == "failed"]
    live = [pod for pod in trainers if pod.is_live]
    count(failed, memory, now_ms)
    if state_of(job, trainers) == "finishing":
        return _finishing(job, trainers, failed, live)
    broken = _broken(job, failed, live, memory)
    if broken is not None and broken.outcome:
        return broken
    message = broken.message if broken else ""
    lost = tuple(pod for pod in trainers if pod.ending == "lost" and pod.gone_ms is None)
    if failed and memory.retry.is_waiting(now_ms):
        return Life(removed=lost, held=len(failed), due_ms=memory.retry.until_ms, message=message)
    return Life(removed=(*lost, *failed), message=message)


def count(failed: Sequence[PodFacts], memory: JobMemory, now_ms: int) -> None:
    """Count trainers that failed by themselves, each once.

    Those that fail while others wait to be replaced wait no longer than these: a job that loses one now and
    then must not wait for ever.
    """
    fresh = {pod.uid for pod in failed} - memory.counted
    if fresh:
        memory.counted |= fresh
        memory.failed += len(fresh)
        if not memory.retry.is_waiting(now_ms):
            memory.retry.fail(now_ms)


def _finishing(
    job: JobFacts, trainers: Sequence[PodFacts], failed: Sequence[PodFacts], live: Sequence[PodFacts]
) -> Life:
    assert job.spec is not None
    if failed and not job.spec.is_fault_tolerant:
        return _fault("TrainerFailed", f"`{failed[0].name}` failed, and the job is not fault tolerant")
    waiting = tuple(pod for pod in live if not pod.node)
    if len(waiting) < len(live):
        return Life(removed=waiting)  # what has not begun would find no work
    done = sum(pod.ending == "succeeded" for pod in trainers)
    who = "1 trainer" if done == 1 else f"{done} trainers"
    ended = f", {len(failed)} failed" if failed else ""
    return Life(outcome="Succeeded", reason="Completed", message=f"{who} found no work left{ended}")


def _broken(
    job: JobFacts, failed: Sequence[PodFacts], live: Sequence[PodFacts], memory: JobMemory
) -> Life | None:
    """Tell whether failures end the job, or bring it to a stop for a while."""
    wanted = job.spec
    assert wanted is not None
    if not failed:
        return None
    if not wanted.is_fault_tolerant:
        return _fault("TrainerFailed", f"`{failed[0].name}` failed, and the job is not fault tolerant")
    if wanted.failures is not None and memory.failed > wanted.failures:
        return _fault("TooManyFailures", f"{memory.failed} trainers failed, {wanted.failures} are allowed")
    if not live and len(failed) >= max(job.target, 1):
        return _fallen(failed, memory)
    return None


def _fallen(failed: Sequence[PodFacts], memory: JobMemory) -> Life:
    """Tell what follows where all trainers failed."""
    memory.fall({pod.uid for pod in failed}, max(pod.ran_ms for pod in failed))
    text = "the only trainer failed" if len(failed) == 1 else f"all {len(failed)} trainers failed"
    if memory.rounds >= MOST_ROUNDS:
        return _fault("AllTrainersFailed", f"{text}, {memory.rounds} times in a row")
    which = f", {memory.rounds} times in a row" if memory.rounds > 1 else ""
    return Life(message=f"{text}{which}; others come after a pause")


def _fault(reason: str, message: str) -> Life:
    return Life(outcome="Failed", reason=reason, message=message)


# --- Which places of a plan are free at this moment, and which lean on room that somebody still
# holds
# A plan promises room that pods on their way out will leave. A trainer that is created before they have left
# waits for a node, and a scheduler that tries waiting pods again whenever anything leaves gives it the first
# room that comes free, which another pod was promised, one held to that very node perhaps. So it is created
# when its own place is free; nothing is lost but the time of one pass.


class FreeCapacity:
    """Room that is free now and that nobody else is promised."""

    def __init__(self, snapshot: Snapshot, plan: ScalePlan) -> None:
        self._requests = {job.key: job.trainer for job in snapshot.jobs}
        self._free = {
            node.name: [a - b for a, b in zip(node.allocatable, node.used, strict=True)]
            for node in snapshot.nodes
        }
        for leaving in snapshot.arriving:
            self._take(leaving.node, leaving.request)
        for kept in plan.reservations:
            self._take(kept.node, kept.request)
        for job in snapshot.jobs:
            waiting = plan.decisions[job.key].waiting
            for trainer in job.trainers:
                self._take(trainer.node or waiting.get(trainer.name, ""), job.trainer)

    def among(self, job: str, places: Iterable[str]) -> tuple[str, ...]:
        """Give those places for trainers of a job that are free, and take them; no node is always free."""
        found = []
        for node in places:
            if not node or self._has_room(node, self._requests[job]):
                self._take(node, self._requests[job])
                found.append(node)
        return tuple(found)

    def _has_room(self, node: str, request: Vector) -> bool:
        free = self._free.get(node)
        return free is not None and all(
            left >= amount for left, amount in zip(free, request, strict=True) if amount
        )

    def _take(self, node: str, request: Vector) -> None:
        if node in self._free:
            self._free[node] = [a - b for a, b in zip(self._free[node], request, strict=True)]


# --- What is to be done about one job, after a decision and what became of its pods ---

MOST_CREATIONS = 400
"""Trainers created in one pass: an API server takes some hundred in a second, and news should not wait."""


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """One job with all that belongs to it."""

    job: JobFacts
    pods: Sequence[PodFacts]
    memory: JobMemory  # what is remembered of it
    life: Life = field(default_factory=Life)  # what became of its pods

    @property
    def trainers(self) -> list[PodFacts]:
        """Give its trainers that neither ended nor are going."""
        return [pod for pod in self.pods if pod.role == "trainer" and pod.is_live]


@dataclass(kw_only=True)
class JobReconciler:
    """Gives the orders of one pass."""

    world: ClusterCache  # what is known; bars are noted in it
    openings: FreeCapacity  # room that is free now
    now_ms: int  # the moment
    transitions: int | None  # of the lease of the leader
    due: list[int]  # gets the times at which something falls due
    left: int  # how many more trainers may be created in this pass

    def follow(self, subject: JobContext, decision: Decision) -> tuple[Decision, Actions]:
        """Give the orders that carry out a decision; a hopeless gang overrules it."""
        job, memory = subject.job, subject.memory
        decision = _lost(job, decision, subject.life)
        self._pass_over(subject, decision)
        if decision.target == 0:
            memory.admitted_ms = memory.short_ms = memory.balked_ms = None
            return decision, self.dismiss(subject, why=decision.reasons[0].text)
        if decision.reasons[0].cause != "finishing":
            why, look_ms = refused(job, subject.pods, memory, self.now_ms)
            if why:
                return self._give_up(subject, why, is_refused=True)
            self.due += [] if look_ms is None else [look_ms]
        gang = self._gang(subject, decision)
        if gang.is_hopeless:
            return self._give_up(subject, gang.why)
        deleted = self._deletions(subject, decision)
        if memory.pause.is_waiting(self.now_ms):
            self.due.append(memory.pause.until_ms)
            return decision, Actions(job=job.key, deletions=deleted)
        return decision, Actions(
            job=job.key,
            deletions=deleted,
            supports=(
                *self._supports(subject, gang.support, gang.why),
                *actions.clearances(job, self.world.needless(job)),
            ),
            renewals=tuple(actions.deletions(job, gang.loosened, gang.why, grace_s=0)),
            creations=self._creations(subject, decision),
            is_whole=gang.support is not None and not gang.support.sets_only,
        )

    def pause(self, subject: JobContext) -> Actions:
        """Give the orders for a job whose trainers can only wait: others get their room."""
        why = "paused: a master or parameter server is lost"
        return Actions(
            job=subject.job.key, deletions=tuple(actions.deletions(subject.job, subject.trainers, why))
        )

    def dismiss(self, subject: JobContext, *, why: str = "") -> Actions:
        """Give the orders for a job that is to have no pods; pods that ended stay to be read."""
        job = subject.job
        why = why or ("the job has ended" if job.has_ended else "spec.suspend is true")
        if job.is_deleted or job.spec is None:
            return Actions(job=job.key)
        if job.has_ended and self._has_expired(job):
            text = f"{job.spec.ttl_s} s after its end"
            return Actions(job=job.key, deletions=(actions.removal(job, text),))
        return Actions(
            job=job.key,
            deletions=tuple(actions.deletions(job, subject.trainers, why)),
            supports=self._supports(subject, dismiss(self._sets(job)), why),
        )

    def _deletions(self, subject: JobContext, decision: Decision) -> tuple[Action, ...]:
        """Delete victims, and pods that ended and are in the way."""
        job, life, victims = subject.job, subject.life, set(decision.victims)
        leaving = [pod for pod in subject.trainers if pod.name in victims]
        if life.due_ms is not None:
            self.due.append(life.due_ms)
        return (
            *actions.deletions(job, leaving, _why(decision)),
            *actions.deletions(job, life.removed, "needed no more"),
        )

    def _creations(self, subject: JobContext, decision: Decision) -> tuple[Action, ...]:
        """Create trainers where there is room now, as many as are not held back by failures."""
        job, life = subject.job, subject.life
        held = max(0, life.held - decision.withheld)
        places = decision.places[: max(0, len(decision.places) - held)]
        if job.spec and job.servers and self.world.quotas(job.namespace) and absent(job, subject.pods):
            # What a quota leaves is for the gang first: others make its masters and parameter servers.
            places = places[: max(0, job.spec.minimum - len(subject.trainers))]
        free = self.openings.among(job.key, places)
        if len(free) > self.left:
            self.due.append(self.now_ms)
        now, self.left = free[: self.left], max(0, self.left - len(free))
        return tuple(
            actions.creations(
                job,
                now,
                _why(decision),
                is_taken=self._is_taken(job, life),
                host_name=self.world.host_name,
                transitions=self.transitions,
            )
        )

    def _gang(self, subject: JobContext, decision: Decision) -> Gang:
        job, memory = subject.job, subject.memory
        hints = {role: tuple(map(self.world.host_name, nodes)) for role, nodes in decision.hints.items()}
        if job.target == 0:
            memory.admitted_ms, memory.supported = self.now_ms, ()
        found = see_to(
            job,
            subject.pods,
            self._sets(job),
            memory,
            lacking=self.world.lacking(job),
            hints=hints if job.target == 0 else {},
            now_ms=self.now_ms,
        )
        if found.due_ms is not None:
            self.due.append(found.due_ms)
        return found

    def _give_up(
        self, subject: JobContext, why: str, *, is_refused: bool = False
    ) -> tuple[Decision, Actions]:
        """Take a gang off that found no room for its servers or is refused, and let it wait again."""
        memory, generation = subject.memory, subject.job.generation
        if not is_refused:
            self._bar(subject, sorted({node for hinted in memory.hints.values() for node in hinted}))
        memory.admitted_ms = memory.short_ms = memory.balked_ms = None
        memory.give_up(generation, self.now_ms, refusal=why if is_refused else "")
        self.due.append(memory.wait.until_ms)
        seconds = (memory.wait.until_ms - self.now_ms) // 1000
        text = memory.refused(generation, self.now_ms) or f"{why}; tried again after {seconds} s"
        reason = Reason(cause="refused" if is_refused else "stuck", text=text)
        decision = Decision(job=subject.job.key, target=0, is_admitted=False, hints={}, reasons=(reason,))
        return decision, self.dismiss(subject, why=text)

    def _pass_over(self, subject: JobContext, decision: Decision) -> None:
        """Bar the nodes of trainers that are withdrawn because they found no room there."""
        if any(reason.cause == "stuck" for reason in decision.reasons):
            stuck = [pod for pod in subject.trainers if pod.name in decision.victims and not pod.node]
            self._bar(subject, [pod.planned for pod in stuck if pod.planned])

    def _bar(self, subject: JobContext, nodes: Sequence[str]) -> None:
        """Pass nodes over for a while that had a place on paper only."""
        bars = self.world.bars.setdefault(subject.job.key, {})
        for node in dict.fromkeys(nodes):
            bars[node] = subject.memory.bar(node, self.now_ms)

    def _supports(self, subject: JobContext, support: actions.Support | None, why: str) -> tuple[Action, ...]:
        if support is None:
            return ()
        return tuple(actions.supports(subject.job, support, why, self.transitions))

    def _has_expired(self, job: JobFacts) -> bool:
        """Tell whether the time of a job after its end is over."""
        ended_ms = status.ended_ms(job.status)
        if job.spec is None or job.spec.ttl_s is None or ended_ms is None:
            return False
        due_ms = ended_ms + job.spec.ttl_s * 1000
        if self.now_ms < due_ms:
            self.due.append(due_ms)
        return self.now_ms >= due_ms

    def _sets(self, job: JobFacts) -> dict[str, SetFacts]:
        """Give the StatefulSets that are the job's own."""
        found = {}
        for kind in job.servers:
            known = self.world.stateful_set(f"{job.namespace}/{kind.set_name}")
            if known is not None and known.owner == job.uid:
                found[kind.set_name] = known
        return found

    def _is_taken(self, job: JobFacts, life: Life) -> Callable[[str], bool]:
        """Tell which names of pods are in use; those of pods about to be removed are not."""
        free = {pod.name for pod in life.removed}
        return lambda name: name not in free and self.world.has_pod(f"{job.namespace}/{name}")


def _why(decision: Decision) -> str:
    reason = decision.reasons[0]
    return f"{reason.cause}: {reason.text}"


def _lost(job: JobFacts, decision: Decision, life: Life) -> Decision:
    """Say so where a job has fewer trainers because some were taken from it or failed, not by the plan."""
    live = decision.target + len(decision.victims) - len(decision.places)
    missing = job.target - live if 0 < decision.target < job.target else 0
    if missing <= 0 or decision.reasons[0].cause not in ("steady", "gang"):
        return decision
    what = "a trainer" if missing == 1 else f"{missing} trainers"
    if life.held:
        text = f"lost {what}: those that failed are replaced after a pause, and their room is lent till then"
        return replace(decision, reasons=(Reason(cause="steady", text=text), *decision.reasons))
    text = f"lost {what} to pods of others or with a node; there is no room for more"
    return replace(decision, reasons=(Reason(cause="yield", text=text), *decision.reasons))


# --- The status of a job after a pass, and the smallest write that brings it about ---


def standing(
    job: JobFacts,
    pods: Sequence[PodFacts],
    memory: JobMemory,
    *,
    life: Life,
    decision: Decision | None,
    priority: Priority,
    now_ms: int,
) -> StatusClaims:
    """Say how a job stands."""
    wanted = job.spec
    target = _target(job, life, decision)
    return StatusClaims(
        name=job.name,
        generation=job.generation,
        created_ms=wanted.created_ms if wanted else 0,
        minimum=wanted.minimum if wanted else 0,
        maximum=wanted.maximum if wanted else 0,
        faults=job.faults,
        warnings=wanted.warnings if wanted else (),
        is_suspended=bool(wanted and wanted.is_suspended),
        outcome=life.outcome,
        outcome_reason=life.reason,
        outcome_message=life.message,
        reason=decision.reasons[0] if decision else None,
        moves=decision.moves if decision is not None and target < job.target else 0,
        trainer=_trainers(job, pods, memory, target),
        pserver=_servers(job, pods, "pserver", target),
        master=_servers(job, pods, "master", target),
        held_up=_held_up(pods),
        refusal=memory.refusal,
        taken_names=tuple(sorted(memory.taken_names.values())),
        priority=priority,
        growth_refusal=_growth_refusal(memory, job, now_ms),
        setback="" if life.outcome else life.message,
        setbacks=memory.setbacks(0 if life.outcome else _failed(pods, memory)),
        lingering=tuple(pod.name for pod in pods if _lingers(job, pod, now_ms)),
        is_meeting_lost=_is_meeting_lost(job, pods),
        is_paused=is_paused(job, pods, now_ms),
    )


def _growth_refusal(memory: JobMemory, job: JobFacts, now_ms: int) -> str:
    """Say why the cluster takes no more trainers of a job, empty while it does."""
    known = memory.setbacks(0)
    cap = known.cap(job.generation, now_ms)
    return f"no more than {cap} trainers: {worded(known.growth_refusal, known.growth_ms)}" if cap else ""


def _failed(pods: Sequence[PodFacts], memory: JobMemory) -> int:
    """Count the trainers that failed, were counted and still stand."""
    return sum(pod.ending == "failed" and pod.uid in memory.counted for pod in pods)


def _lingers(job: JobFacts, pod: PodFacts, now_ms: int) -> bool:
    """Tell whether a pod that others need is long overdue."""
    return (pod.role != "trainer" or pod.name == job.meeting) and pod.is_overdue(now_ms)


def _held_up(pods: Sequence[PodFacts]) -> str:
    """Say of the first pod whose containers cannot begin what they wait for."""
    found = next((pod for pod in pods if pod.is_live and pod.held_up), None)
    return f"`{found.name}`: {found.held_up}" if found else ""


def _is_meeting_lost(job: JobFacts, pods: Sequence[PodFacts]) -> bool:
    """Tell whether trainers are there that cannot meet."""
    ready = {pod.name for pod in pods if pod.role == "trainer" and pod.is_live and pod.is_ready}
    return bool(job.meeting and ready) and job.meeting not in ready


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Give the JSON merge patch that turns one value into the other, empty where they are equal."""
    found: dict[str, Any] = {name: None for name in before if name not in after and before[name] is not None}
    for name, value in after.items():
        known = before.get(name)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            inner = difference(known, value)
            if inner:
                found[name] = inner
        elif known != value:
            found[name] = value
    return found


def _target(job: JobFacts, life: Life, decision: Decision | None) -> int:
    """Give how many trainers a job is to have."""
    if life.outcome or job.has_ended:
        return 0
    if decision is not None:
        return decision.target
    return 0 if job.spec is not None and job.spec.is_suspended else job.target


def _trainers(job: JobFacts, pods: Sequence[PodFacts], memory: JobMemory, target: int) -> Counts:
    own = [pod for pod in pods if pod.role == "trainer"]
    succeeded = sum(pod.ending == "succeeded" for pod in own)
    known = int((job.status.get("trainer") or {}).get("succeeded") or 0)
    return _counts(own, target, failed=memory.failed, succeeded=max(succeeded, known))


def _servers(job: JobFacts, pods: Sequence[PodFacts], role: str, target: int) -> Counts:
    count = next((kind.count for kind in job.servers if kind.role == role), 0)
    own = [pod for pod in pods if pod.role == role]
    return _counts(own, count if target else 0, failed=0, succeeded=0)


def _counts(pods: Sequence[PodFacts], desired: int, *, failed: int, succeeded: int) -> Counts:
    live = [pod for pod in pods if pod.is_live]
    return Counts(
        desired=desired,
        live=len(live),
        bound=sum(bool(pod.node) for pod in live),
        ready=sum(pod.is_ready for pod in live),
        failed=failed,
        succeeded=succeeded,
    )


# --- Which jobs wait for pods that run: EDL's definition of pending, and ours ---

Lack = Literal["", "gang", "trainer"]


def lack(job: JobFacts, pods: Sequence[PodFacts]) -> Lack:
    """Say what a job waits for."""
    if state_of(job, [pod for pod in pods if pod.role == "trainer"]) == "finishing":
        return ""
    running = [pod.role for pod in pods if pod.is_live and pod.node and pod.phase == "Running"]
    trainers = running.count("trainer")
    if not trainers:
        return "trainer"
    is_whole = trainers >= (job.trainer.count if job.trainer else 1) and all(
        running.count(kind.role) >= kind.count for kind in job.servers
    )
    return "" if is_whole else "gang"


# --- Whether the API server would take the pods of a gang: asked by dry run before any room is
# taken

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

    job: JobFacts  # the job as it was tried
    more: int  # how many trainers beyond those it has, 0 for a whole gang
    begun_ms: int  # when it was begun
    is_over: bool = False  # whether there is an answer
    refusal: AdmissionRefusal | None = None  # the answer, None if all was taken


class Trials:
    """Tries gangs, several at once; one that takes long goes on while others are looked after."""

    def __init__(self, cluster: Cluster, world: ClusterCache, run: Run) -> None:
        self._cluster, self._world, self._run = cluster, world, run
        self._known: dict[tuple[str, bool], Trial] = {}

    def of(
        self, jobs: Sequence[JobFacts], now_ms: int, *, more: bool = False, again: Container[str] = ()
    ) -> list[Trial]:
        """Give a trial of each job as it is: the last one while it is fresh or goes on, else a new one."""
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
            refusal: AdmissionRefusal | None = AdmissionRefusal(
                "the trial of its pods broke off", is_passing=True
            )
            try:
                if sets:
                    self._try_sets(trial.job)
                short = facts.excess(left, list(self._tried(trial)), others)
                refusal = AdmissionRefusal(short.text, is_quota=not short.is_for_good) if short else None
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
        for wanted in pods.supporting(job.spec, hints={}) if job.spec else ():
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
        yield pods.server(job.spec, kind.role), kind.count
    yield pods.trainer(job.spec, 0), trial.more or job.spec.minimum


def _of_error(error: ClusterError) -> AdmissionRefusal:
    is_passing = isinstance(error, TransientError | UnreachableError)
    is_quota = isinstance(error, ForbiddenError) and error.why == "quota"
    return AdmissionRefusal(str(error), is_passing=is_passing, is_quota=is_quota)


def refused_by_set(cluster: Cluster, namespace: str, name: str, since_ms: int) -> str:
    """Give why a StatefulSet makes no pods, as its controller tells in events; empty for nothing."""
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
