"""Decisions in words: one line each, with numbers and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mlstack.elastic import hostports
from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.needs import needs
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.scaleplan import Cause, Reason
from mlstack.elastic.snapshot import Vector

# The weightiest first.
ORDER: tuple[Cause, ...] = (
    "suspended",
    "lost",
    "refused",
    "waiting",
    "admitted",
    "minimum",
    "stuck",
    "bounds",
    "yield",
    "gang",
    "fairness",
    "growth",
    "finishing",
    "steady",
)
NAMED = 3


def reasons(books: Books, crew: Crew) -> tuple[Reason, ...]:
    """Say why a job gets what it gets, the weightiest reason first."""
    found = [Reason(cause=cause, text=text) for cause, text in crew.notes]
    if not crew.is_admitted:
        found += [] if found else [_outside(books, crew)]
    elif crew.job.state == "finishing":
        found.append(Reason(cause="finishing", text=f"keeps {_trainers(crew.count)} until it ends"))
    else:
        found += _gains(crew) + _losses(crew)
        if not found:
            found.append(_steady(books, crew))
    return tuple(sorted(found, key=lambda reason: ORDER.index(reason.cause)))


def _outside(books: Books, crew: Crew) -> Reason:
    """Say why a job has no pods."""
    if crew.is_held_off and crew.job.refused:
        return Reason(cause="refused", text=crew.job.refused)
    return Reason(cause="waiting", text=_waiting(books, crew))


def _steady(books: Books, crew: Crew) -> Reason:
    """Say why a job gets no more."""
    job, stays = crew.job, f"stays at {_trainers(crew.count)}"
    if crew.count >= job.maximum and job.refused:
        return Reason(cause="refused", text=f"{stays}: {job.refused}")
    return Reason(cause="steady", text=f"{stays}{_why_no_more(books, crew)}")


def _why_no_more(books: Books, crew: Crew) -> str:
    job = crew.job
    if crew.count >= job.maximum:
        return ", its maximum"
    since_ms = books.ledger.snapshot.now_ms - (job.changed_ms or 0)
    is_cooling = job.changed_ms is not None and since_ms < job.cooldown_ms
    why = f"changed within the last {job.cooldown_ms // 1000} s" if is_cooling else "no room for more"
    if crew.withheld:
        why = "trainers failed, and are replaced after a pause"
    return f" of {_range(crew)}: {why}"


def _gains(crew: Crew) -> list[Reason]:
    job, gains = crew.job, Counter(seat.cause for seat in crew.seats if seat.is_planned)
    now = f"{_trainers(crew.count)} of {_range(crew)}"
    texts: dict[Cause, str] = {
        "admitted": _gang(crew),
        "minimum": f"gets {gains['minimum']} back to its minimum of {job.minimum}",
        "growth": f"{_grows(crew, gains['growth'])} to {now} in free room",
        "fairness": f"gets {gains['fairness']} of richer jobs, to {now}",
    }
    is_new = job.state == "waiting"
    return [
        Reason(cause=cause, text=text)
        for cause, text in texts.items()
        if gains[cause] or (cause == "admitted" and is_new)
    ]


def _grows(crew: Crew, number: int) -> str:
    """Say how a job comes by more trainers: what it is told to have already, it only gets back."""
    return f"gets {number} back" if crew.count <= crew.job.target else f"grows by {number}"


def _losses(crew: Crew) -> list[Reason]:
    found = []
    for cause in dict.fromkeys(cause for _, cause, _ in crew.gone if cause != "stuck"):
        whom = Counter(name for _, each, name in crew.gone if each == cause)
        number = sum(whom.values())
        whom = Counter({"its own gang" if name == crew.job.key else name: whom[name] for name in whom})
        favour = f" for {_names(whom)}" if any(whom) else f" above its maximum of {crew.job.maximum}"
        found.append(Reason(cause=cause, text=f"gives up {number} of its trainers{favour}"))
    if crew.loose:
        text = f"withdraws {len(crew.loose)} that wait for a node: their room went to others"
        found.append(Reason(cause="yield", text=text))
    return found


def _gang(crew: Crew) -> str:
    roles = [_count(role.count, role.name) for role in crew.job.gang]
    return f"room for its gang of {_list([*roles, _trainers(crew.job.minimum)])}"


def _waiting(books: Books, crew: Crew) -> str:
    """Say what a gang waits for: its next try, what nothing will bring, else what is short."""
    if crew.is_held_off:
        return "it waits until its next try"
    hosts = books.ledger.hosts_of(crew.job.nodes)
    if not hosts:
        return "no node takes its trainers: node selector, affinity or taints"
    names = books.ledger.snapshot.resources
    for need in needs(crew, books.ledger.whole):
        if not any(_is_enough(host.allocatable, need.request) for host in hosts):
            most = [max(host.allocatable[each] for host in hosts) for each in range(len(names))]
            text = _amounts(names, need.request, most)
            return f"no node is large enough for one {need.name} of {text}"
    row = books.unplaced.get(crew.job.key)
    what = _amounts(names, row.missing, books.free_in_all(crew.job.nodes)) if row else "any pod"
    return f"no room for {what} of its gang"


def _is_enough(room: Sequence[int], wanted: Vector) -> bool:
    return all(left >= amount for left, amount in zip(room, wanted, strict=True) if amount)


def _amounts(names: Sequence[str], wanted: Vector, room: Sequence[int]) -> str:
    """Write the amounts that are too much for the room; where each would do alone, all of them."""
    asked = [each for each in range(len(names)) if wanted[each]]
    short = [each for each in asked if wanted[each] > room[each]]
    together = [each for each in asked if names[each] != "pods"]
    return ", ".join(_amount(names[each], wanted[each]) for each in short or together or asked)


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount / 1000:g} cpu"
    if name in ("memory", "ephemeral-storage"):
        return f"{amount / 2**30:.4g} GiB {name}" if amount >= 2**30 else f"{amount / 2**20:.4g} MiB {name}"
    if hostports.is_key(name):
        return hostports.words(name, amount)
    return f"{amount} {name}"


def _trainers(number: int) -> str:
    return _count(number, "trainer")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _range(crew: Crew) -> str:
    return f"{crew.job.minimum} to {crew.job.maximum}"


def _names(whom: Counter[str]) -> str:
    if len(whom) == 1:
        return next(iter(whom))
    ordered = [name if number == 1 else f"{name} ({number})" for name, number in sorted(whom.items())]
    more = len(ordered) - NAMED
    return _list([*ordered[:NAMED], f"{more} more"] if more > 0 else ordered)


def _list(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
