"""What the API server does to pods: priority and phase when they are new, an end when they are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlstack.elastic.simulate.kernel import timestamp
from mlstack.elastic.simulate.store import Obj, Store, changed

ENDED = ("Succeeded", "Failed")
DEFAULT_GRACE_S = 30


def admit(store: Store, pod: Mapping[str, Any]) -> Obj:
    """Give a pod as it is stored: with its priority and as Pending."""
    spec = pod["spec"]
    found = store.get("PriorityClass", str(spec.get("priorityClassName") or ""))
    admitted = changed(
        pod,
        spec={
            "priority": (found or {}).get("value", spec.get("priority", 0)),
            "preemptionPolicy": (found or spec).get("preemptionPolicy", "PreemptLowerPriority"),
            "terminationGracePeriodSeconds": spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S),
        },
        status={"phase": "Pending"},
    )
    return admitted


def end(store: Store, pod: Mapping[str, Any], *, now_ms: int, grace_s: int | None = None) -> Obj | None:
    """Delete a pod: at once if it has no node or has ended, else the kubelet ends it after its grace.

    Returns:
        The pod while it goes, None once it is gone.
    """
    live = store.current(pod)
    if live is None:
        return None
    if "nodeName" not in live["spec"] or live["status"].get("phase") in ENDED or grace_s == 0:
        store.remove(live)
        return None
    if "deletionTimestamp" in live["metadata"]:
        return live
    grace = live["spec"]["terminationGracePeriodSeconds"] if grace_s is None else grace_s
    going = {"deletionTimestamp": timestamp(now_ms + grace * 1000), "deletionGracePeriodSeconds": grace}
    return store.write(changed(live, metadata=going))


def is_live(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod neither ended nor is going."""
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ENDED


def with_condition(pod: Mapping[str, Any], condition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the conditions of an object with one of them set."""
    others = [one for one in pod["status"].get("conditions") or () if one["type"] != condition["type"]]
    return [*others, condition]


def is_owned(obj: Mapping[str, Any], uid: str) -> bool:
    """Tell whether an object has an owner of that UID."""
    return any(owner.get("uid") == uid for owner in obj["metadata"].get("ownerReferences") or ())
