"""Masters and parameter servers of an admitted job: brought into being, held to their nodes, let go again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlstack.cluster.api import ObjectRef
from mlstack.elastic.acting.memory import JobMemory
from mlstack.elastic.acting.orders import Support
from mlstack.elastic.observed.jobs import JobFacts, SetFacts
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.observed.surroundings import State

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
    """What is to be done about the gang of a job.

    Attributes:
        support: the form to write, None where it stands already.
        why: one line for people.
        loosened: pods to be made again, free to go where there is room.
        is_hopeless: whether the job had better wait again.
        due_ms: when to look again, None for no known time.
    """

    support: Support | None = None
    why: str = ""
    loosened: tuple[PodFacts, ...] = ()
    is_hopeless: bool = False
    due_ms: int | None = None


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
    """Tell what the gang of an admitted job needs.

    Args:
        job: the job.
        pods: its pods.
        sets: its StatefulSets by name.
        memory: what is remembered of it.
        lacking: its Services and budgets that are not there, or not in their form.
        hints: host names of the nodes of a plan that has just admitted it.
        now_ms: the time.
    """
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
    return Gang(support=form, why=_why(job, memory, wrong), due_ms=due)


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

    Args:
        job: the job.
        pods: its pods, those that ended or go included.
        memory: what is remembered of it.
        now_ms: the time.
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


def _why(job: JobFacts, memory: JobMemory, wrong: frozenset[ObjectRef]) -> str:
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
