"""Ports of nodes as resources: one key for each port and protocol, and how people read it."""

from __future__ import annotations

_PREFIX = "hostport:"


def key(number: int, protocol: str) -> str:
    """Name a port of a node among the resources of a snapshot: `hostport:7164:TCP`."""
    return f"{_PREFIX}{number}:{protocol}"


def is_key(resource: str) -> bool:
    """Tell whether a resource is a port of the node: each node has one of it, unsaid."""
    return resource.startswith(_PREFIX)


def words(resource: str, pieces: int) -> str:
    """Write so many of a port as people read it: `host port 7164/TCP`, `3 host ports 7164/TCP`."""
    number, _, protocol = resource.removeprefix(_PREFIX).partition(":")
    return f"{'host port' if pieces == 1 else f'{pieces} host ports'} {number}/{protocol}"
