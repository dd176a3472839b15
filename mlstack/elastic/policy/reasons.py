"""Decisions in words: one line each, with numbers and names."""

from __future__ import annotations

from collections import Counter

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.scaleplan import Cause, Reason

# The weightiest first.
ORDER: tuple[Cause, ...] = (
    "suspended",
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
        found += [] if found else [Reason(cause="waiting", text=_waiting(books, crew))]
    elif crew.job.state == "finishing":
        found.append(Reason(cause="finishing", text=f"keeps {_trainers(crew.count)} until it ends"))
    else:
        found += _gains(crew) + _losses(crew)
        if not found:
            found.append(Reason(cause="steady", text=f"stays at {_trainers(crew.count)} of {_range(crew)}"))
    return tuple(sorted(found, key=lambda reason: ORDER.index(reason.cause)))


def _gains(crew: Crew) -> list[Reason]:
    job, gains = crew.job, Counter(seat.cause for seat in crew.seats if seat.is_planned)
    texts: dict[Cause, str] = {
        "admitted": _gang(crew),
        "minimum": f"gets {gains['minimum']} back to its minimum of {job.minimum}",
        "growth": f"grows by {gains['growth']} to {_trainers(crew.count)} of {_range(crew)} in free room",
        "fairness": f"gets {gains['fairness']} of richer jobs, to {_trainers(crew.count)} of {_range(crew)}",
    }
    is_new = job.state == "waiting"
    return [
        Reason(cause=cause, text=text)
        for cause, text in texts.items()
        if gains[cause] or (cause == "admitted" and is_new)
    ]


def _losses(crew: Crew) -> list[Reason]:
    found = []
    for cause in dict.fromkeys(cause for _, cause, _ in crew.gone if cause != "stuck"):
        whom = Counter(name for _, each, name in crew.gone if each == cause)
        number = sum(whom.values())
        favour = f" for {_names(whom)}" if any(whom) else f" above its maximum of {crew.job.maximum}"
        found.append(Reason(cause=cause, text=f"gives up {number} of its trainers{favour}"))
    if crew.loose:
        text = f"withdraws {len(crew.loose)} that wait for a node: their room went to others"
        found.append(Reason(cause="yield", text=text))
    return found


def _gang(crew: Crew) -> str:
    roles = [f"{role.count} {role.name}" for role in crew.job.gang]
    return f"admitted with {_list([*roles, _trainers(crew.job.minimum)])}"


def _waiting(books: Books, crew: Crew) -> str:
    row = books.unplaced.get(crew.job.key)
    names = books.ledger.snapshot.resources
    missing = [
        f"{_amount(name, amount)}"
        for name, amount in zip(names, row.missing if row else (), strict=False)
        if amount
    ]
    return f"waits: no room for {', '.join(missing) or 'its gang'} of its gang"


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount / 1000:g} cpu"
    if name in ("memory", "ephemeral-storage"):
        return f"{amount / 2**30:.4g} GiB {name}"
    return f"{amount} {name}"


def _trainers(number: int) -> str:
    return f"{number} trainer" + ("" if number == 1 else "s")


def _range(crew: Crew) -> str:
    return f"{crew.job.minimum} to {crew.job.maximum}"


def _names(whom: Counter[str]) -> str:
    ordered = [name if number == 1 else f"{name} ({number})" for name, number in sorted(whom.items())]
    more = len(ordered) - NAMED
    return _list([*ordered[:NAMED], f"{more} more"] if more > 0 else ordered)


def _list(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
