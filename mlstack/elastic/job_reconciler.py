"""What is to be done about one job, after a decision and what became of its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import field, replace
from itertools import count

from mlstack.clock import time_ms
from mlstack.dataclass import dataclass
from mlstack.elastic import pods, training_job
from mlstack.elastic.actions import Action, delete_pods
from mlstack.elastic.cache import ClusterCache, free_room, job_ref, minus
from mlstack.elastic.facts import JobFacts, PodFacts, SetFacts
from mlstack.elastic.pods import PLANNED
from mlstack.elastic.snapshot import Decision, Reason, ScalePlan, Snapshot, Vector
from mlstack.elastic.state import JobContext, Lifecycle, missing_pods
from mlstack.kube.client import ObjectRef

MOST_CREATIONS = 400
"""Trainers created in one pass: an API server takes some hundred in a second, and news should not wait."""

HELD_MS = 15_000
"""How long after the grace of a trainer a pod may wait for the node that it is held to."""

INCOMPLETE_MS = 90_000
"""How long after its admission a gang may lack a place before the job gives its room back."""

ASKED_MS = 3_000
"""So long after pods of StatefulSets are missing their controller is asked why, and as often from then on."""

REFUSED_MS = 10_000
"""How long pods of a gang may be refused before it gives all back: other jobs wait for its room."""

RESTORED_MS = 60_000
"""Services and budgets of a job that somebody changes are written no more often: another may not give in."""

_LONGEST = 300  # of what a scheduler said: it tells of every kind of node


def free_capacity(snapshot: Snapshot, plan: ScalePlan) -> dict[str, Vector]:
    """Give the room on each node that is free now and that nobody is promised.

    A plan promises room that pods on their way out will leave. A trainer that is created before they have
    left waits for a node, and a scheduler that tries waiting pods again whenever anything leaves gives it the
    first room that comes free, which another pod was promised, one held to that very node perhaps. So it is
    created when its own place is free; nothing is lost but the time of one pass. What the plan takes away
    counts as still there.
    """
    free = free_room(snapshot)
    promised = [(reservation.node, reservation.request) for reservation in plan.reservations]
    for job in snapshot.jobs:
        waiting = plan.decisions[job.key].waiting
        nodes = [waiting.get(trainer.name, "") for trainer in job.trainers if not trainer.node]
        promised += [(node, job.trainer) for node in nodes]
    for node, request in promised:
        if node in free:
            free[node] = minus(free[node], request)
    return free


@dataclass(kw_only=True)
class JobReconciler:
    """Gives the actions of one pass."""

    cache: ClusterCache
    free: dict[str, Vector]  # room on each node for trainers, less what this pass creates
    requests: Mapping[str, Vector]  # of one trainer of each job of the plan
    now_ms: int
    transitions: int | None  # of the lease of the leader
    due: list[int]  # gets the times at which something falls due
    creations_left: int  # how many more trainers may be created in this pass
    whole: set[str] = field(default_factory=set)  # jobs around whose trainers all stands with these actions

    def reconcile(self, context: JobContext, decision: Decision) -> tuple[Decision, list[Action]]:
        """Give the actions that carry out a decision; a hopeless gang overrules it."""
        job, record, life = context.job, context.record, context.life
        decision = _explain_losses(job, decision, life)
        victims = [pod for pod in context.trainers if pod.name in decision.victims]
        if any(reason.cause == "stuck" for reason in decision.reasons):
            for node in dict.fromkeys(pod.planned for pod in victims if pod.planned and not pod.node):
                record.bar(node, self.now_ms)
        if decision.target == 0:
            record.leave_gang()
            return decision, self.take_off(context, why=decision.reasons[0].text)
        if decision.reasons[0].cause != "finishing" and (refusal := self._refusal(context)):
            return self._give_up(context, refusal, is_refused=True)
        hints: Mapping[str, tuple[str, ...]] = {}
        if job.target == 0:
            record.admitted_ms, record.support_generation = self.now_ms, None
            hints = {role: tuple(map(self.cache.host_name, nodes)) for role, nodes in decision.hints.items()}
        gang, hopeless = self._gang(context, hints)
        if hopeless:
            for node in sorted({node for nodes in record.hints.values() for node in nodes}):
                record.bar(node, self.now_ms)
            return self._give_up(context, hopeless)
        if life.due_ms is not None:
            self.due.append(life.due_ms)
        why = f"{decision.reasons[0].cause}: {decision.reasons[0].text}"
        actions = delete_pods(job, victims, why) + delete_pods(job, life.removed, "needed no more")
        if record.writes.is_waiting(self.now_ms):
            self.due.append(record.writes.until_ms)
            self.whole.discard(job.key)
            return decision, actions
        for ref, uid in self.cache.needless(job).items():
            why_not = "needed no more"
            gang.append(Action(stage="support", verb="delete", ref=ref, job=job.key, why=why_not, uid=uid))
        return decision, [*actions, *gang, *self._creations(context, decision, why)]

    def pause(self, context: JobContext) -> list[Action]:
        """Give the actions for a job whose trainers can only wait: others get their room."""
        return delete_pods(context.job, context.trainers, "paused: a master or parameter server is lost")

    def take_off(self, context: JobContext, *, why: str = "") -> list[Action]:
        """Give the actions for a job that is to have no pods; pods that ended stay to be read.

        It has ended or is suspended unless `why` says something else.
        """
        job = context.job
        why = why or ("the job has ended" if job.has_ended else "spec.suspend is true")
        if job.is_deleted or job.spec is None:
            return []
        ended_ms = time_ms(str(job.status.get("completionTime") or "")) if job.has_ended else 0
        if ended_ms and job.spec.ttl_s is not None:
            due_ms = ended_ms + job.spec.ttl_s * 1000
            if self.now_ms >= due_ms:
                text = f"{job.spec.ttl_s} s after its end"
                return [
                    Action(
                        stage="delete", verb="delete", ref=job_ref(job), job=job.key, why=text, uid=job.uid
                    )
                ]
            self.due.append(due_ms)
        actions = delete_pods(job, context.trainers, why)
        if any(known.replicas for known in self.cache.sets_of(job).values()):
            actions += self._supports(context, why, is_running=False, sets_only=True)
        return actions

    # --- masters and parameter servers: brought into being, held to their nodes, let go again ---

    def _refusal(self, context: JobContext) -> str:
        """Say why a gang had better give its room back, empty for no reason.

        That pods are missing is none: their room may still be taken. That they are refused is.
        """
        record = context.record
        if not missing_pods(context.job, context.pods):
            record.short_ms = record.refused_since_ms = None
            return ""
        if record.short_ms is None:
            record.short_ms = self.now_ms
        if not record.refusal or record.refused_ms < record.short_ms:
            record.refused_since_ms = None
            until_ms = record.short_ms + ASKED_MS
        else:
            if record.refused_since_ms is None:
                record.refused_since_ms = record.refused_ms
            until_ms = record.refused_since_ms + REFUSED_MS
            if self.now_ms >= until_ms:
                return record.refusal
        if self.now_ms < until_ms:
            self.due.append(until_ms)
        return ""

    def _gang(self, context: JobContext, hints: Mapping[str, tuple[str, ...]]) -> tuple[list[Action], str]:
        """Give what the gang of an admitted job needs, and why it had better wait again, empty for nothing.

        `hints` are the host names of the nodes of a plan that has just admitted it.
        """
        job, record = context.job, context.record
        servers = [pod for pod in context.pods if pod.role != "trainer" and pod.is_live]
        waiting = [pod for pod in servers if not pod.node]
        is_placed = len(servers) - len(waiting) >= sum(role.count for role in job.servers)
        if is_placed:
            record.admitted_ms = None
            if not missing_pods(job, context.pods):
                record.gang.streak = 0
        if hints:
            record.hints = hints
            return self._supports(context, "admitted", is_held=True), ""
        # At pods that are not tried the scheduler has not looked yet: held or not, they have to wait for it.
        limit_ms = HELD_MS + (job.spec.trainer.grace_s * 1000 if job.spec else 0)
        held = [pod for pod in waiting if pod.is_tried and pod.is_held_to_node]
        overdue = [pod for pod in held if self.now_ms - pod.created_ms >= limit_ms]
        sets = self.cache.sets_of(job)
        if overdue or (is_placed and any(known.is_held for known in sets.values())):
            why = "all have a node"
            if overdue:
                why = f"{_unplaced(overdue)}; no longer held to the planned nodes"
            renewals = delete_pods(job, overdue, why, stage="renew", grace_s=0)
            return [*self._supports(context, why, sets_only=True), *renewals], ""
        waited_ms = 0 if is_placed or record.admitted_ms is None else self.now_ms - record.admitted_ms
        if waited_ms >= INCOMPLETE_MS:
            return [], _unplaced(waiting)
        self.due += sorted(pod.created_ms + limit_ms for pod in held)[:1]
        return self._restorations(context, sets), ""

    def _restorations(self, context: JobContext, sets: Mapping[str, SetFacts]) -> list[Action]:
        """Write what is missing around the trainers, differs, or is not known to be as the job is now."""
        job, record = context.job, context.record
        lacking = self.cache.lacking(job)
        changed = {ref for ref, state in lacking.items() if state == "changed"}
        wrong = set(lacking)
        if changed and self.now_ms - record.restored_ms < RESTORED_MS:
            wrong -= changed
        elif changed:
            record.restored_ms = self.now_ms
        wrong |= {
            ObjectRef("apps/v1", "StatefulSet", job.namespace, role.set_name)
            for role in job.servers
            if role.set_name not in sets or sets[role.set_name].replicas != role.count
        }
        is_observed = job.status.get("observedGeneration") == job.generation
        is_known = record.support_generation == job.generation
        if record.support_generation is None:
            # A new leader does not know what was written; it trusts that all was, once the gang was complete.
            is_known = is_observed and job.phase in ("Running", "Scaling", "Completing")
        if is_known and not (record.unwritten or wrong):
            return []
        why = "written again, not known to be complete"
        if job.target == 0:
            why = "admitted"
        elif is_known:
            why = "restored" if wrong - record.unwritten else "tried again"
        elif record.support_generation is not None or not is_observed:
            why = "the job was changed"
        # Servers of a gang that was just admitted are held to their nodes even where no set came off yet.
        is_new = not sets and record.admitted_ms is not None and bool(record.hints)
        is_held = is_new or any(known.is_held for known in sets.values())
        only = record.unwritten | wrong if is_known else frozenset[ObjectRef]()
        return self._supports(context, why, is_held=is_held, only=only)

    def _supports(
        self,
        context: JobContext,
        why: str,
        *,
        is_running: bool = True,
        is_held: bool = False,
        sets_only: bool = False,
        only: Set[ObjectRef] = frozenset(),
    ) -> list[Action]:
        """Write what stands around the trainers, or `only` some of it.

        `is_running` is whether the StatefulSets have pods, `is_held` whether these may go nowhere else.
        """
        job, record = context.job, context.record
        if job.spec is None:
            return []
        if not sets_only:
            self.whole.add(job.key)
        manifests = pods.supporting(
            job.spec,
            hints=record.hints if is_running else {},
            required=is_held,
            is_running=is_running,
            transitions=self.transitions,
        )
        chosen = {
            ref: manifest
            for manifest in manifests
            if (ref := ObjectRef.of(manifest)).kind == "StatefulSet" or not sets_only
            if not only or ref in only
        }
        return [
            Action(stage="support", verb="apply", ref=ref, job=job.key, why=why, body=manifest, uid=job.uid)
            for ref, manifest in chosen.items()
        ]

    # --- trainers ---

    def _creations(self, context: JobContext, decision: Decision, why: str) -> list[Action]:
        """Create trainers where there is room now, as many as are not held back by failures.

        They get the lowest indexes that are free; those of pods that are about to be removed are.
        """
        job, life = context.job, context.life
        if job.spec is None:
            return []
        held = max(0, life.held - decision.withheld)
        places = decision.places[: max(0, len(decision.places) - held)]
        if job.servers and self.cache.quotas(job.namespace) and missing_pods(job, context.pods):
            # What a quota leaves is for the gang first: others make its masters and parameter servers.
            places = places[: max(0, job.spec.minimum - len(context.trainers))]
        nodes = [node for node in places if self._takes(node, self.requests[job.key])]
        if len(nodes) > self.creations_left:
            self.due.append(self.now_ms)
        removed = {pod.name for pod in life.removed}
        names = ((index, training_job.trainer_name(job.name, index)) for index in count())
        indexes = (
            index
            for index, name in names
            if name in removed or f"{job.namespace}/{name}" not in self.cache.pods
        )
        creations = []
        for node, index in zip(nodes[: self.creations_left], indexes, strict=False):
            host = self.cache.host_name(node) if node else ""
            pod = pods.trainer(job.spec, index, node=host, transitions=self.transitions)
            if node != host:
                pod["metadata"]["annotations"][PLANNED] = node
            ref = ObjectRef.of(pod)
            creations.append(Action(stage="create", verb="create", ref=ref, job=job.key, why=why, body=pod))
        self.creations_left = max(0, self.creations_left - len(nodes))
        return creations

    def _takes(self, node: str, request: Vector) -> bool:
        """Take room for a trainer where it is free; no node is always free."""
        free = self.free.get(node)
        if not node or free is None:
            return not node
        has_room = all(left >= amount for left, amount in zip(free, request, strict=True) if amount)
        if has_room:
            self.free[node] = minus(free, request)
        return has_room

    def _give_up(
        self, context: JobContext, why: str, *, is_refused: bool = False
    ) -> tuple[Decision, list[Action]]:
        """Take a gang off that found no room for its servers or is refused, and let it wait again."""
        record, generation = context.record, context.job.generation
        record.leave_gang()
        record.give_up(generation, self.now_ms, refusal=why if is_refused else "")
        self.due.append(record.gang.until_ms)
        seconds = (record.gang.until_ms - self.now_ms) // 1000
        text = record.refused(generation, self.now_ms) or f"{why}; tried again after {seconds} s"
        reason = Reason(cause="refused" if is_refused else "stuck", text=text)
        decision = Decision(job=context.job.key, target=0, is_admitted=False, hints={}, reasons=(reason,))
        return decision, self.take_off(context, why=text)


def _unplaced(waiting: Sequence[PodFacts]) -> str:
    """Say which of these servers found no node, and why in the words of the scheduler."""
    server = next((pod for pod in waiting if pod.unplaced), None)
    if server is None:
        return "its masters and parameter servers found no node"
    return f"`{server.name}` found no node: {server.unplaced[:_LONGEST]}"


def _explain_losses(job: JobFacts, decision: Decision, life: Lifecycle) -> Decision:
    """Say so where a job has fewer trainers because some were taken from it or failed, not by the plan."""
    live = decision.target + len(decision.victims) - len(decision.places)
    missing = job.target - live if 0 < decision.target < job.target else 0
    if missing <= 0 or decision.reasons[0].cause not in ("steady", "gang"):
        return decision
    what = "a trainer" if missing == 1 else f"{missing} trainers"
    text = f"lost {what} to pods of others or with a node; there is no room for more"
    reason = Reason(cause="yield", text=text)
    if life.held:
        text = f"lost {what}: those that failed are replaced after a pause, and their room is lent till then"
        reason = Reason(cause="steady", text=text)
    return replace(decision, reasons=(reason, *decision.reasons))
