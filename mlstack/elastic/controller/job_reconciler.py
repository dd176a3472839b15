"""What is to be done about one job, after a decision and what became of its pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mlstack.elastic import status
from mlstack.elastic.controller.actions import (
    Action,
    Actions,
    Support,
    apply_support,
    create_trainers,
    delete_pods,
)
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.gang import missing_pods, reconcile_gang, refusal_of
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.controller.lifecycle import JobContext, Lifecycle
from mlstack.elastic.snapshot import Decision, Reason, ScalePlan, Snapshot, Vector

MOST_CREATIONS = 400
"""Trainers created in one pass: an API server takes some hundred in a second, and news should not wait."""


class FreeCapacity:
    """Room that is free now and that nobody else is promised.

    A plan promises room that pods on their way out will leave. A trainer that is created before they have
    left waits for a node, and a scheduler that tries waiting pods again whenever anything leaves gives it the
    first room that comes free, which another pod was promised, one held to that very node perhaps. So it is
    created when its own place is free; nothing is lost but the time of one pass. What the plan takes away
    counts as still there.
    """

    def __init__(self, snapshot: Snapshot, plan: ScalePlan) -> None:
        self._requests = {job.key: job.trainer for job in snapshot.jobs}
        self._free = {
            node.name: [all_ - used for all_, used in zip(node.allocatable, node.used, strict=True)]
            for node in snapshot.nodes
        }
        for leaving in snapshot.arriving:
            self._take(leaving.node, leaving.request)
        for reservation in plan.reservations:
            self._take(reservation.node, reservation.request)
        for job in snapshot.jobs:
            waiting = plan.decisions[job.key].waiting
            for trainer in job.trainers:
                self._take(trainer.node or waiting.get(trainer.name, ""), job.trainer)

    def take_free(self, job: str, nodes: Iterable[str]) -> tuple[str, ...]:
        """Take those places for trainers of a job that are free, and give them; no node is always free."""
        taken = []
        for node in nodes:
            if not node or self._has_room(node, self._requests[job]):
                self._take(node, self._requests[job])
                taken.append(node)
        return tuple(taken)

    def _has_room(self, node: str, request: Vector) -> bool:
        free = self._free.get(node)
        return free is not None and all(
            left >= amount for left, amount in zip(free, request, strict=True) if amount
        )

    def _take(self, node: str, request: Vector) -> None:
        if node in self._free:
            self._free[node] = [left - amount for left, amount in zip(self._free[node], request, strict=True)]


@dataclass(kw_only=True)
class JobReconciler:
    """Gives the actions of one pass."""

    cache: ClusterCache
    capacity: FreeCapacity
    now_ms: int
    transitions: int | None  # of the lease of the leader
    due: list[int]  # gets the times at which something falls due
    creations_left: int  # how many more trainers may be created in this pass

    def reconcile(self, context: JobContext, decision: Decision) -> tuple[Decision, Actions]:
        """Give the actions that carry out a decision; a hopeless gang overrules it."""
        job, record = context.job, context.record
        decision = _explain_losses(job, decision, context.life)
        if any(reason.cause == "stuck" for reason in decision.reasons):
            stuck = [pod for pod in context.trainers if pod.name in decision.victims and not pod.node]
            self._bar(context, [pod.planned for pod in stuck if pod.planned])
        if decision.target == 0:
            record.leave_gang()
            return decision, self.take_off(context, why=decision.reasons[0].text)
        if decision.reasons[0].cause != "finishing":
            refusal, look_ms = refusal_of(job, context.pods, record, self.now_ms)
            if refusal:
                return self._give_up(context, refusal, is_refused=True)
            self.due += [] if look_ms is None else [look_ms]
        hints = {role: tuple(map(self.cache.host_name, nodes)) for role, nodes in decision.hints.items()}
        if job.target == 0:
            record.admitted_ms, record.support_generation = self.now_ms, None
        gang = reconcile_gang(
            job,
            context.pods,
            self.cache.sets_of(job),
            record,
            lacking=self.cache.lacking(job),
            hints=hints if job.target == 0 else {},
            now_ms=self.now_ms,
        )
        self.due += [] if gang.due_ms is None else [gang.due_ms]
        if gang.is_hopeless:
            return self._give_up(context, gang.why)
        deletions = self._deletions(context, decision)
        if record.writes.is_waiting(self.now_ms):
            self.due.append(record.writes.until_ms)
            return decision, Actions(job=job.key, deletions=deletions)
        needless = [
            Action(verb="delete", ref=ref, job=job.key, why="needed no more", uid=uid)
            for ref, uid in self.cache.needless(job).items()
        ]
        return decision, Actions(
            job=job.key,
            deletions=deletions,
            supports=(*self._supports(job, gang.support, gang.why), *needless),
            renewals=delete_pods(job, gang.renewed, gang.why, grace_s=0),
            creations=self._creations(context, decision),
            is_whole=gang.support is not None and not gang.support.sets_only,
        )

    def pause(self, context: JobContext) -> Actions:
        """Give the actions for a job whose trainers can only wait: others get their room."""
        why = "paused: a master or parameter server is lost"
        return Actions(job=context.job.key, deletions=delete_pods(context.job, context.trainers, why))

    def take_off(self, context: JobContext, *, why: str = "") -> Actions:
        """Give the actions for a job that is to have no pods; pods that ended stay to be read.

        It has ended or is suspended unless `why` says something else.
        """
        job = context.job
        why = why or ("the job has ended" if job.has_ended else "spec.suspend is true")
        if job.is_deleted or job.spec is None:
            return Actions(job=job.key)
        if job.has_ended and self._has_expired(job):
            text = f"{job.spec.ttl_s} s after its end"
            removal = Action(verb="delete", ref=job.ref, job=job.key, why=text, uid=job.uid)
            return Actions(job=job.key, deletions=(removal,))
        has_servers = any(known.replicas for known in self.cache.sets_of(job).values())
        support = Support(is_running=False, sets_only=True) if has_servers else None
        return Actions(
            job=job.key,
            deletions=delete_pods(job, context.trainers, why),
            supports=self._supports(job, support, why),
        )

    def _has_expired(self, job: JobFacts) -> bool:
        """Tell whether the time of a job after its end is over."""
        ended_ms = status.ended_ms(job.status)
        if job.spec is None or job.spec.ttl_s is None or ended_ms is None:
            return False
        due_ms = ended_ms + job.spec.ttl_s * 1000
        if self.now_ms < due_ms:
            self.due.append(due_ms)
        return self.now_ms >= due_ms

    def _supports(self, job: JobFacts, support: Support | None, why: str) -> tuple[Action, ...]:
        return apply_support(job, support, why, self.transitions) if support is not None else ()

    def _deletions(self, context: JobContext, decision: Decision) -> tuple[Action, ...]:
        """Delete victims, and pods that ended and are in the way."""
        job, life = context.job, context.life
        victims = [pod for pod in context.trainers if pod.name in decision.victims]
        if life.due_ms is not None:
            self.due.append(life.due_ms)
        return (
            *delete_pods(job, victims, _why(decision)),
            *delete_pods(job, life.removed, "needed no more"),
        )

    def _creations(self, context: JobContext, decision: Decision) -> tuple[Action, ...]:
        """Create trainers where there is room now, as many as are not held back by failures."""
        job, life = context.job, context.life
        held = max(0, life.held - decision.withheld)
        nodes = decision.places[: max(0, len(decision.places) - held)]
        if job.spec and job.servers and self.cache.quotas(job.namespace) and missing_pods(job, context.pods):
            # What a quota leaves is for the gang first: others make its masters and parameter servers.
            nodes = nodes[: max(0, job.spec.minimum - len(context.trainers))]
        free = self.capacity.take_free(job.key, nodes)
        if len(free) > self.creations_left:
            self.due.append(self.now_ms)
        now, self.creations_left = free[: self.creations_left], max(0, self.creations_left - len(free))
        return create_trainers(
            job,
            now,
            _why(decision),
            cache=self.cache,
            removed=life.removed,
            transitions=self.transitions,
        )

    def _give_up(
        self, context: JobContext, why: str, *, is_refused: bool = False
    ) -> tuple[Decision, Actions]:
        """Take a gang off that found no room for its servers or is refused, and let it wait again."""
        record, generation = context.record, context.job.generation
        if not is_refused:
            self._bar(context, sorted({node for nodes in record.hints.values() for node in nodes}))
        record.leave_gang()
        record.give_up(generation, self.now_ms, refusal=why if is_refused else "")
        self.due.append(record.gang.until_ms)
        seconds = (record.gang.until_ms - self.now_ms) // 1000
        text = record.refused(generation, self.now_ms) or f"{why}; tried again after {seconds} s"
        reason = Reason(cause="refused" if is_refused else "stuck", text=text)
        decision = Decision(job=context.job.key, target=0, is_admitted=False, hints={}, reasons=(reason,))
        return decision, self.take_off(context, why=text)

    def _bar(self, context: JobContext, nodes: Sequence[str]) -> None:
        """Pass nodes over for a while that had a place on paper only."""
        for node in dict.fromkeys(nodes):
            context.record.bar(node, self.now_ms)


def _why(decision: Decision) -> str:
    reason = decision.reasons[0]
    return f"{reason.cause}: {reason.text}"


def _explain_losses(job: JobFacts, decision: Decision, life: Lifecycle) -> Decision:
    """Say so where a job has fewer trainers because some were taken from it or failed, not by the plan."""
    live = decision.target + len(decision.victims) - len(decision.places)
    missing = job.target - live if 0 < decision.target < job.target else 0
    if missing <= 0 or decision.reasons[0].cause not in ("steady", "gang"):
        return decision
    what = "a trainer" if missing == 1 else f"{missing} trainers"
    if life.held:
        text = f"lost {what}: those that failed are replaced after a pause, and their room is lent till then"
        reason = Reason(cause="steady", text=text)
    else:
        text = f"lost {what} to pods of others or with a node; there is no room for more"
        reason = Reason(cause="yield", text=text)
    return replace(decision, reasons=(reason, *decision.reasons))
