"""Masters and parameter servers of an admitted job: brought into being, held to their nodes, let go again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlstack.elastic.controller.actions import Support
from mlstack.elastic.controller.jobs import CompanionState, JobFacts, SetFacts
from mlstack.elastic.controller.state import JobRecord
from mlstack.elastic.facts import PodFacts
from mlstack.kube.client import ObjectRef

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
_UNDER_WAY = ("Running", "Scaling", "Completing")


@dataclass(frozen=True, kw_only=True)
class GangActions:
    """What is to be done about the gang of a job."""

    support: Support | None = None  # the form to write, None where it stands already
    why: str = ""  # one line for people
    renewed: tuple[PodFacts, ...] = ()  # pods to be made again, free to go where there is room
    is_hopeless: bool = False  # whether the job had better wait again
    due_ms: int | None = None  # when to look again, None for no known time


def reconcile_gang(
    job: JobFacts,
    pods: Sequence[PodFacts],
    sets: Mapping[str, SetFacts],
    record: JobRecord,
    *,
    lacking: Mapping[ObjectRef, CompanionState],
    hints: Mapping[str, tuple[str, ...]],
    now_ms: int,
) -> GangActions:
    """Tell what the gang of an admitted job needs.

    `sets` are its StatefulSets by name, `lacking` its Services and budgets that are not there, or not in
    their form, `hints` the host names of the nodes of a plan that has just admitted it.
    """
    servers = [pod for pod in pods if pod.role != "trainer" and pod.is_live]
    waiting = [pod for pod in servers if not pod.node]
    is_placed = len(servers) - len(waiting) >= sum(role.count for role in job.servers)
    if is_placed:
        record.admitted_ms = None
        if not missing_pods(job, pods):
            record.gang.streak = 0
    if hints:
        record.hints = hints
        return GangActions(support=Support(is_running=True, hints=hints, is_held=True), why="admitted")
    # At pods that are not tried the scheduler has not looked yet: held or not, they have to wait for it.
    limit_ms = HELD_MS + (job.spec.trainer.grace_s * 1000 if job.spec else 0)
    held = [pod for pod in waiting if pod.is_tried and pod.is_held_to_node]
    overdue = [pod for pod in held if now_ms - pod.created_ms >= limit_ms]
    is_held = any(known.is_held for known in sets.values())
    if overdue or (is_placed and is_held):
        why = f"{_unplaced(overdue)}; no longer held to the planned nodes" if overdue else "all have a node"
        support = Support(is_running=True, hints=record.hints, is_held=False, sets_only=True)
        return GangActions(support=support, why=why, renewed=tuple(overdue))
    if not is_placed and record.admitted_ms is not None and now_ms - record.admitted_ms >= INCOMPLETE_MS:
        return GangActions(why=_unplaced(waiting), is_hopeless=True)
    wrong = frozenset(
        ObjectRef("apps/v1", "StatefulSet", job.namespace, role.set_name)
        for role in job.servers
        if role.set_name not in sets or sets[role.set_name].replicas != role.count
    )
    wrong |= _restorable(lacking, record, now_ms)
    due_ms = min((pod.created_ms + limit_ms for pod in held), default=None)
    is_known = _is_known(job, record)
    missing = record.unwritten | wrong
    restored: Support | None = None
    if missing or not is_known:
        # Servers of a gang that was just admitted are held to their nodes even where no set came off yet.
        is_new = not sets and record.admitted_ms is not None and bool(record.hints)
        only = missing if is_known else frozenset()
        restored = Support(is_running=True, hints=record.hints, is_held=is_held or is_new, only=only)
    return GangActions(support=restored, why=_why_support(job, record, wrong), due_ms=due_ms)


def _is_known(job: JobFacts, record: JobRecord) -> bool:
    """Tell whether what surrounds the trainers was written for the job as it is, but for what was refused.

    A new leader does not know what was written; it trusts that all was, once the gang has been complete.
    """
    if record.support_generation is not None:
        return record.support_generation == job.generation
    return job.phase in _UNDER_WAY and job.status.get("observedGeneration") == job.generation


def _why_support(job: JobFacts, record: JobRecord, wrong: frozenset[ObjectRef]) -> str:
    if job.target == 0:
        return "admitted"
    if _is_known(job, record):
        return "restored" if wrong - record.unwritten else "tried again"
    if record.support_generation is not None or job.status.get("observedGeneration") != job.generation:
        return "the job was changed"
    return "written again, not known to be complete"


def _restorable(
    lacking: Mapping[ObjectRef, CompanionState], record: JobRecord, now_ms: int
) -> frozenset[ObjectRef]:
    """Give the Services and budgets to be written now, and remember when such were that somebody changed."""
    changed = {ref for ref, state in lacking.items() if state == "changed"}
    if changed and now_ms - record.restored_ms < RESTORED_MS:
        return frozenset(lacking.keys() - changed)
    if changed:
        record.restored_ms = now_ms
    return frozenset(lacking)


def _unplaced(waiting: Sequence[PodFacts]) -> str:
    """Say which of these servers found no node, and why in the words of the scheduler."""
    server = next((pod for pod in waiting if pod.unplaced), None)
    if server is None:
        return "its masters and parameter servers found no node"
    return f"`{server.name}` found no node: {server.unplaced[:_LONGEST]}"


def missing_pods(job: JobFacts, pods: Sequence[PodFacts]) -> tuple[str, ...]:
    """Give the names of masters and parameter servers of which there is no pod at all, then `trainers`.

    Trainers are missing where there are fewer than the job may go on with; one that failed or is going is
    still there.
    """
    if job.spec is None:
        return ()
    names = {pod.name for pod in pods}
    servers = [f"{role.set_name}-{index}" for role in job.servers for index in range(role.count)]
    fewest = job.spec.trainer.minimum if job.status.get("startTime") else job.spec.minimum
    is_short = sum(pod.role == "trainer" for pod in pods) < fewest
    return (*(name for name in servers if name not in names), *(("trainers",) if is_short else ()))


def refusal_of(
    job: JobFacts, pods: Sequence[PodFacts], record: JobRecord, now_ms: int
) -> tuple[str, int | None]:
    """Say why a gang had better give its room back, empty for no reason; and when to look again.

    That pods are missing is none: their room may still be taken. That they are refused is.
    """
    if not missing_pods(job, pods):
        record.short_ms = record.refused_since_ms = None
        return "", None
    if record.short_ms is None:
        record.short_ms = now_ms
    if not record.refusal or record.refused_ms < record.short_ms:
        record.refused_since_ms = None
        return "", record.short_ms + ASKED_MS if now_ms - record.short_ms < ASKED_MS else None
    if record.refused_since_ms is None:
        record.refused_since_ms = record.refused_ms
    until_ms = record.refused_since_ms + REFUSED_MS
    return (record.refusal, None) if now_ms >= until_ms else ("", until_ms)
