"""Wait for what the next write needs: a definition that is served, an object that is gone."""

from collections.abc import Callable, Mapping
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.errors import ClusterError, NotReadyError
from mlstack.model.clock import Clock
from mlstack.model.kinds import kinds_of_crd
from mlstack.model.obstacles import obstacles
from mlstack.model.readiness.assess import assess
from mlstack.model.readiness.base import Facts

# A definition is served a quarter of a second after it is written; the rest is for a busy server.
ESTABLISHED_S = 60.0
# Pods have 30 s to end unless they ask for more.
GONE_S = 120.0

# Objects that hold a definition: more than these are counted, not listed.
_NAMED = 5
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def until_established(cluster: Cluster, ref: ObjectRef, *, clock: Clock) -> None:
    """Return when the API server serves what a definition defines.

    Raises:
        NotReadyError: it refuses the definition's names, or does not serve it in time.
    """

    def settled() -> bool:
        found = assess(Facts(data=cluster.get(ref) or {}, now_s=clock.now_s()))
        if found.state == "failed":
            raise NotReadyError(f"`{ref}` cannot be served: {found.reason}", where=str(ref))
        return found.state == "ready"

    if not _until(settled, ESTABLISHED_S, clock):
        raise NotReadyError(
            f"`{ref}` was not served within {ESTABLISHED_S:.0f} s",
            where=str(ref),
            hint=f"kubectl describe crd {ref.name}",
        )


def until_gone(
    cluster: Cluster, ref: ObjectRef, uid: str, *, clock: Clock, timeout_s: float = GONE_S
) -> None:
    """Return when an object is not there any more, or is another one of the same name.

    Raises:
        NotReadyError: it is still there after `timeout_s`; names what holds it.
    """
    left = ""

    def gone() -> bool:
        nonlocal left
        live = cluster.get(ref)
        left = obstacles(live or {})
        return live is None or (live.get("metadata") or {}).get("uid") != uid

    if not _until(gone, timeout_s, clock):
        held = f"; {left}" if left else ""
        raise NotReadyError(f"`{ref}` was not gone within {timeout_s:.0f} s{held}", where=str(ref))


def instances_held(cluster: Cluster, definition: ObjectRef) -> str:
    """Name the objects that keep a definition from going, with their finalizers; empty if there are none."""
    kinds = kinds_of_crd(cluster.get(definition) or {})
    if not kinds:
        return ""
    try:
        items = cluster.list(kinds[-1].api_version, kinds[-1].kind, metadata_only=True).items
    except ClusterError:  # a remark is no reason to fail
        return ""
    held = [_held(item) for item in items if item["metadata"].get("finalizers")]
    more = f" and {len(held) - _NAMED} more" if len(held) > _NAMED else ""
    return f"held by {', '.join(held[:_NAMED])}{more}" if held else ""


def _held(item: Mapping[str, Any]) -> str:
    return f"{ObjectRef.of(item)} ({', '.join(item['metadata']['finalizers'])})"


def _until(holds: Callable[[], bool], timeout_s: float, clock: Clock) -> bool:
    deadline, pause = clock.now_s() + timeout_s, _FIRST_PAUSE_S
    while not holds():
        if clock.now_s() >= deadline:
            return False
        clock.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
    return True
