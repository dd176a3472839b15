"""What nodes have as vectors, in a stated order."""

from __future__ import annotations

from collections.abc import Sequence

from mlstack.elastic.snapshot import Vector
from mlstack.objects.resources import Amounts

BASIC = ("cpu", "memory", "pods")
"""Resources that every vector has, in this order; others follow by name."""


def vector(pod: Amounts, resources: Sequence[str]) -> Vector:
    """Put amounts into the order of a snapshot's resources."""
    return tuple(pod.get(name, 0) for name in resources)
