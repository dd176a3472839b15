"""What a job lacks: its whole gang while it waits, or what it lost and cannot run without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.policy.shapes import dominant, fits, shape, total
from mlstack.elastic.snapshot import Vector


class Need(NamedTuple):
    """Equal pods that a job lacks.

    Attributes:
        name: their role, or the name of a single pod.
        request: what one requests.
        number: how many.
    """

    name: str
    request: Vector
    number: int


def members(crew: Crew, whole: list[int]) -> list[Need]:
    """Give the masters and parameter servers of a job that waits, the largest first."""
    if crew.is_admitted:
        return []
    roles = sorted(crew.job.gang, key=lambda role: (-dominant(shape(role.request), whole), role.name))
    return [Need(role.name, role.request, role.count) for role in roles if role.count]


def needs(crew: Crew, whole: list[int]) -> list[Need]:
    """Give the pods of a job's gang that are not there: members, then trainers up to the minimum."""
    short = crew.job.minimum - crew.count
    return [*members(crew, whole), *([Need("trainer", crew.job.trainer, short)] if short > 0 else [])]


def amount(lacked: Iterable[Need], size: int) -> Vector:
    """Give what pods request in all."""
    return total([tuple(each * need.number for each in need.request) for need in lacked], size)


def useful(ledger: Ledger, crew: Crew) -> frozenset[str]:
    """Give the nodes that could take any pod of a job's gang."""
    kinds = [shape(need.request) for need in needs(crew, ledger.whole)]
    hosts = ledger.hosts_of(crew.job.nodes, crew.bars)
    sizes = {size for size in {host.allocatable for host in hosts} if any(fits(size, kind) for kind in kinds)}
    return frozenset([host.name for host in hosts if host.allocatable in sizes])


def could_ever_run(ledger: Ledger, crew: Crew, nodes: frozenset[str]) -> bool:
    """Tell whether the gang of a job could fit if the nodes it can use were empty, by sums and pod by pod."""
    lacked = needs(crew, ledger.whole)
    sizes = Counter([host.allocatable for host in ledger.hosts_of(nodes)])
    size = len(ledger.snapshot.resources)
    room = total([tuple(each * number for each in all_) for all_, number in sizes.items()], size)
    return fits(room, shape(amount(lacked, size))) and all(
        any(fits(all_, shape(need.request)) for all_ in sizes) for need in lacked
    )
