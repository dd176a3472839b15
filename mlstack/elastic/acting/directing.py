"""What is to be done about one job, after a decision and what became of its pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mlstack.elastic import status
from mlstack.elastic.acting import orders
from mlstack.elastic.acting.actions import Action
from mlstack.elastic.acting.gang import Gang, absent, dismiss, refused, see_to
from mlstack.elastic.acting.lifecycle import Life
from mlstack.elastic.acting.memory import JobMemory
from mlstack.elastic.acting.openings import Openings
from mlstack.elastic.acting.orders import Orders
from mlstack.elastic.observed.jobs import JobFacts, SetFacts
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.scaleplan import Decision, Reason
from mlstack.elastic.world import World

MOST_CREATIONS = 400
"""Trainers created in one pass: an API server takes some hundred in a second, and news should not wait."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One job with all that belongs to it.

    Attributes:
        job: the job.
        pods: its pods.
        memory: what is remembered of it.
        life: what became of its pods.
    """

    job: JobFacts
    pods: Sequence[PodFacts]
    memory: JobMemory
    life: Life = field(default_factory=Life)

    @property
    def trainers(self) -> list[PodFacts]:
        """Give its trainers that neither ended nor are going."""
        return [pod for pod in self.pods if pod.role == "trainer" and pod.is_live]


@dataclass(kw_only=True)
class Director:
    """Gives the orders of one pass.

    Attributes:
        world: what is known; bars are noted in it.
        openings: room that is free now.
        now_ms: the moment.
        transitions: of the lease of the leader.
        due: gets the times at which something falls due.
        left: how many more trainers may be created in this pass.
    """

    world: World
    openings: Openings
    now_ms: int
    transitions: int | None
    due: list[int]
    left: int

    def follow(self, subject: Subject, decision: Decision) -> tuple[Decision, Orders]:
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
            return decision, Orders(job=job.key, deletions=deleted)
        return decision, Orders(
            job=job.key,
            deletions=deleted,
            supports=(
                *self._supports(subject, gang.support, gang.why),
                *orders.clearances(job, self.world.needless(job)),
            ),
            renewals=tuple(orders.deletions(job, gang.loosened, gang.why, grace_s=0)),
            creations=self._creations(subject, decision),
            is_whole=gang.support is not None and not gang.support.sets_only,
        )

    def pause(self, subject: Subject) -> Orders:
        """Give the orders for a job whose trainers can only wait: others get their room."""
        why = "paused: a master or parameter server is lost"
        return Orders(
            job=subject.job.key, deletions=tuple(orders.deletions(subject.job, subject.trainers, why))
        )

    def dismiss(self, subject: Subject, *, why: str = "") -> Orders:
        """Give the orders for a job that is to have no pods; pods that ended stay to be read.

        Args:
            subject: the job.
            why: why it is to have none; that it has ended or is suspended unless given.
        """
        job = subject.job
        why = why or ("the job has ended" if job.has_ended else "spec.suspend is true")
        if job.is_deleted or job.spec is None:
            return Orders(job=job.key)
        if job.has_ended and self._has_expired(job):
            text = f"{job.spec.ttl_s} s after its end"
            return Orders(job=job.key, deletions=(orders.removal(job, text),))
        return Orders(
            job=job.key,
            deletions=tuple(orders.deletions(job, subject.trainers, why)),
            supports=self._supports(subject, dismiss(self._sets(job)), why),
        )

    def _deletions(self, subject: Subject, decision: Decision) -> tuple[Action, ...]:
        """Delete victims, and pods that ended and are in the way."""
        job, life, victims = subject.job, subject.life, set(decision.victims)
        leaving = [pod for pod in subject.trainers if pod.name in victims]
        if life.due_ms is not None:
            self.due.append(life.due_ms)
        return (
            *orders.deletions(job, leaving, _why(decision)),
            *orders.deletions(job, life.removed, "needed no more"),
        )

    def _creations(self, subject: Subject, decision: Decision) -> tuple[Action, ...]:
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
            orders.creations(
                job,
                now,
                _why(decision),
                is_taken=self._is_taken(job, life),
                host_name=self.world.host_name,
                transitions=self.transitions,
            )
        )

    def _gang(self, subject: Subject, decision: Decision) -> Gang:
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

    def _give_up(self, subject: Subject, why: str, *, is_refused: bool = False) -> tuple[Decision, Orders]:
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

    def _pass_over(self, subject: Subject, decision: Decision) -> None:
        """Bar the nodes of trainers that are withdrawn because they found no room there."""
        if any(reason.cause == "stuck" for reason in decision.reasons):
            stuck = [pod for pod in subject.trainers if pod.name in decision.victims and not pod.node]
            self._bar(subject, [pod.planned for pod in stuck if pod.planned])

    def _bar(self, subject: Subject, nodes: Sequence[str]) -> None:
        """Pass nodes over for a while that had a place on paper only."""
        bars = self.world.bars.setdefault(subject.job.key, {})
        for node in dict.fromkeys(nodes):
            bars[node] = subject.memory.bar(node, self.now_ms)

    def _supports(self, subject: Subject, support: orders.Support | None, why: str) -> tuple[Action, ...]:
        if support is None:
            return ()
        return tuple(orders.supports(subject.job, support, why, self.transitions))

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
