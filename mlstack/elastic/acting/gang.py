"""Masters and parameter servers of an admitted job: brought into being, held to their nodes, let go again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlstack.elastic.acting.memory import JobMemory
from mlstack.elastic.acting.orders import Support
from mlstack.elastic.observed.jobs import JobFacts, SetFacts
from mlstack.elastic.observed.pods import PodFacts

HELD_MS = 15_000
"""How long after the grace of a trainer a pod may wait for the node that it is held to."""

INCOMPLETE_MS = 90_000
"""How long after its admission a gang may lack a place before the job gives its room back."""

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
    hints: Mapping[str, tuple[str, ...]],
    now_ms: int,
) -> Gang:
    """Tell what the gang of an admitted job needs.

    Args:
        job: the job.
        pods: its pods.
        sets: its StatefulSets by name.
        memory: what is remembered of it.
        hints: host names of the nodes of a plan that has just admitted it.
        now_ms: the time.
    """
    servers = [pod for pod in pods if pod.role != "trainer" and pod.is_live]
    waiting = [pod for pod in servers if not pod.node]
    wanted = sum(kind.count for kind in job.servers)
    is_placed = len(servers) - len(waiting) >= wanted
    if is_placed:
        memory.admitted_ms = None
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
        why = "no room on the planned nodes" if overdue else "all have a node"
        support = Support(is_running=True, hints=memory.hints, is_held=False, sets_only=True)
        return Gang(support=support, why=why, loosened=tuple(overdue))
    is_hopeless = (
        not is_placed and memory.admitted_ms is not None and now_ms - memory.admitted_ms >= INCOMPLETE_MS
    )
    held = [pod for pod in waiting if pod.is_tried and pod.is_held_to_node]
    due = min((pod.created_ms + limit_ms for pod in held), default=None)
    form = None if _stands(job, sets, memory) else _form(job, sets, memory)
    return Gang(support=form, why="restored", is_hopeless=is_hopeless, due_ms=due)


def dismiss(sets: Mapping[str, SetFacts]) -> Support | None:
    """Tell what is to be written for a job that is to have no pods, None where it has none."""
    return Support(is_running=False, sets_only=True) if any(one.replicas for one in sets.values()) else None


def _limit_ms(job: JobFacts) -> int:
    return HELD_MS + (job.spec.trainer.grace_s * 1000 if job.spec else 0)


def _stands(job: JobFacts, sets: Mapping[str, SetFacts], memory: JobMemory) -> bool:
    """Tell whether what surrounds the trainers is there in the right form.

    A new leader does not know what was written. Sets are seen; of Services and budgets it trusts that they
    are there once the gang has been complete.
    """
    if _wrong(job, sets):
        return False
    if memory.supported:
        return memory.supported == (job.generation,)
    return job.phase in _UNDER_WAY and job.status.get("observedGeneration") == job.generation


def _form(job: JobFacts, sets: Mapping[str, SetFacts], memory: JobMemory) -> Support:
    """Give what is to be written around the trainers: what was refused if the rest was taken, else all.

    Servers of a gang that was just admitted are held to their nodes even where no set of it came off yet.
    """
    was_held = any(one.is_held for one in sets.values())
    is_new = not sets and memory.admitted_ms is not None and bool(memory.hints)
    refused = {ref.name for ref in memory.unwritten if ref.kind == "StatefulSet"}
    is_rest_there = memory.supported == ("begun", job.generation) and _wrong(job, sets) <= refused
    return Support(
        is_running=True,
        hints=memory.hints,
        is_held=was_held or is_new,
        only=memory.unwritten if is_rest_there else frozenset(),
    )


def _wrong(job: JobFacts, sets: Mapping[str, SetFacts]) -> set[str]:
    """Give the names of the sets that are not there, or with another number of pods."""
    return {
        kind.set_name
        for kind in job.servers
        if kind.set_name not in sets or sets[kind.set_name].replicas != kind.count
    }
