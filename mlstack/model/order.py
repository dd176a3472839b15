"""In which order objects are written, and the other way round deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlstack.model import dependencies, ranks
from mlstack.model.bonds import Builder
from mlstack.model.graph import Depends, Graph
from mlstack.model.objects import Identity, KubeObject


def graph(objects: Sequence[KubeObject], depends: Depends | None = None, *, strict: bool = True) -> Graph:
    """Work out what has to come after what.

    Args:
        objects: the objects of a run; annotations are read from them.
        depends: for each component all components it depends on.
        strict: refuse what people say wrongly; else it is left out, as for objects that are deleted.

    Raises:
        ConfigError: an annotation cannot be read, or what people say goes in a circle; names it.
    """
    return Builder(objects, depends or {}, strict=strict).graph()


def ordered(objects: Iterable[KubeObject], depends: Depends | None = None) -> tuple[KubeObject, ...]:
    """Sort objects as they are written; where nothing decides they keep their order.

    Raises:
        ConfigError: as `graph`.
    """
    listed = tuple(objects)
    if not depends and not any(_is_special(found) for found in listed):
        return tuple(sorted(listed, key=lambda found: ranks.rank(found.identity)))
    known: dict[Identity, list[KubeObject]] = {}
    for found in listed:
        known.setdefault(found.identity, []).append(found)
    first = [same[0] for same in known.values()]
    return tuple(found for one in graph(first, depends).objects for found in known[one])


# Kinds that others may need although those are of no higher rank.
_SPECIAL = frozenset(
    {
        "StorageClass",
        "PersistentVolume",
        "HorizontalPodAutoscaler",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
    }
)


def _is_special(found: KubeObject) -> bool:
    """Tell whether an object may have to stand elsewhere than its rank says."""
    return found.kind in _SPECIAL or dependencies.DEPENDS_ON in found.annotations


def last_first(objects: Sequence[KubeObject], depends: Depends | None = None) -> tuple[Identity, ...]:
    """Give the order in which objects are deleted: what depends on an object goes before it."""
    return tuple(reversed(graph(objects, depends, strict=False).objects))
