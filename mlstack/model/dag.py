"""Directed graphs of anything: a cycle in them, and an order in which nothing comes before what it needs."""

import heapq
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

N = TypeVar("N", bound=Hashable)


def find_cycle(nodes: Sequence[N], before: Mapping[N, Collection[N]]) -> tuple[N, ...]:
    """Give nodes that need each other in a circle, each the next one and the last the first.

    Args:
        nodes: all nodes; the search begins with the first.
        before: what each node needs.

    Returns:
        The nodes of one circle, none if there is no circle.
    """
    done: set[N] = set()
    for start in nodes:
        if start in done:
            continue
        path: dict[N, Iterator[N]] = {start: iter(before.get(start, ()))}
        while path:
            node = next(reversed(path))
            step = next(path[node], None)
            if step is None:
                done.add(node)
                del path[node]
            elif step in path:
                way = list(path)
                return tuple(way[way.index(step) :])
            elif step not in done:
                path[step] = iter(before.get(step, ()))
    return ()


def sort(nodes: Sequence[N], before: Mapping[N, Collection[N]], priority: Callable[[N], Any]) -> list[N]:
    """Give the nodes so that each comes after what it needs; of several that could come, the smallest.

    Args:
        nodes: all nodes; equal priorities keep this order.
        before: what each node needs.
        priority: what decides between nodes that nothing else decides about.

    Raises:
        ValueError: some nodes need each other in a circle.
    """
    numbers = {node: number for number, node in enumerate(nodes)}
    open_needs = {node: len(before.get(node, ())) for node in nodes}
    behind: dict[N, list[N]] = {node: [] for node in nodes}
    for node in nodes:
        for needed in before.get(node, ()):
            behind[needed].append(node)
    heap = [(priority(node), numbers[node], node) for node in nodes if not open_needs[node]]
    heapq.heapify(heap)
    found: list[N] = []
    while heap:
        _, _, node = heapq.heappop(heap)
        found.append(node)
        for after in behind[node]:
            open_needs[after] -= 1
            if not open_needs[after]:
                heapq.heappush(heap, (priority(after), numbers[after], after))
    if len(found) < len(nodes):
        raise ValueError("nodes need each other in a circle")
    return found
