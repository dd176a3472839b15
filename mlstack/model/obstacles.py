"""What keeps an object that is being deleted: finalizers, and what is left below it."""

from collections.abc import Iterator, Mapping
from typing import Any

# The API server says these of a namespace or definition in words that name what is left.
_TELLING = (
    "NamespaceFinalizersRemaining",
    "NamespaceContentRemaining",
    "NamespaceDeletionContentFailure",
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "Terminating",
)
# Those of the garbage collector and of built-in controllers go by themselves once all else has gone.
_OWN = frozenset({"foregroundDeletion", "orphan", "kubernetes", "customresourcecleanup.apiextensions.k8s.io"})


def obstacles(live: Mapping[str, Any]) -> str:
    """Say what an object still waits for, empty if nothing shows."""
    return "; ".join(_obstacles(live))


def own_finalizers(live: Mapping[str, Any]) -> list[str]:
    """Give the finalizers of an object that do not go by themselves."""
    return [str(one) for one in (live.get("metadata") or {}).get("finalizers") or () if one not in _OWN]


def _obstacles(live: Mapping[str, Any]) -> Iterator[str]:
    metadata = live.get("metadata") or {}
    named = own_finalizers(live)
    if named:
        yield f"its finalizers are still there: {', '.join(named)}"
    elif "foregroundDeletion" in (metadata.get("finalizers") or ()):
        yield "what it owns is still there"
    for condition in (live.get("status") or {}).get("conditions") or ():
        if condition.get("type") in _TELLING and condition.get("status") == "True":
            yield " ".join(str(condition.get("message") or condition.get("reason") or "").split())
