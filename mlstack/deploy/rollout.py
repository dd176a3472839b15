"""What changes do to pods that run: which restart, how many at a time, and which do not notice a setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from typing import Any

from mlstack.deploy.changes import Change
from mlstack.events import listed
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.references import read_by_pods, read_once
from mlstack.readiness.rule import number

_CONFIGS = ("ConfigMap", "Secret")
_NAMED = 8
_DATA = ("data", "binaryData", "stringData")


def noted(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Give changes with what they do to pods among the notes of each workload and of each setting."""
    notes = {change.identity: note for change in changes if (note := _restart(change))}
    staying = [
        change.desired
        for change in changes
        if change.desired is not None
        and change.action in ("update", "unchanged")
        and change.identity not in notes
    ]
    notes |= {change.identity: note for change in changes if (note := _unnoticed(change, staying))}
    return tuple(
        replace(change, notes=(*change.notes, notes[change.identity])) if change.identity in notes else change
        for change in changes
    )


def _restart(change: Change) -> str:
    """Say of a workload whose pods are made anew how that goes, as its controller does it."""
    is_update = change.action == "update" and change.desired is not None
    if not is_update or not any(row.path.startswith("spec.template.") for row in change.fields):
        return ""
    assert change.desired is not None
    rule = _ROLLOUTS.get((change.desired.group, change.desired.kind))
    live = (change.live or change.desired).data.get("spec") or {}
    spec = change.desired.data.get("spec") or {}
    # An autoscaler's number stands in the cluster alone.
    return rule(spec, number(spec, "replicas", number(live, "replicas", 1))) if rule else ""


def _deployment(spec: Mapping[str, Any], count: int) -> str:
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return f"stops {_pods(count)}, then starts {'it' if count == 1 else 'them'} again"
    budget = strategy.get("rollingUpdate") or {}
    missing = _share(budget.get("maxUnavailable", "25%"), count, floor)
    more = _share(budget.get("maxSurge", "25%"), count, ceil)
    # apps/v1: where both would be 0, one pod may be missing
    missing = missing or int(not more)
    return f"restarts {_pods(count)}: at most {missing} missing and {more} more at a time"


def _stateful_set(spec: Mapping[str, Any], count: int) -> str:
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return "its pods keep what they have until somebody deletes them (updateStrategy OnDelete)"
    budget = strategy.get("rollingUpdate") or {}
    first = number(budget, "partition")
    at_once = max(1, _share(budget.get("maxUnavailable", 1), count, ceil))
    kept = f"; those below {first} stay as they are (partition)" if first else ""
    return f"restarts {_pods(max(count - first, 0))}, {at_once} at a time, the last one first{kept}"


def _daemon_set(spec: Mapping[str, Any], count: int) -> str:
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return "its pods keep what they have until somebody deletes them (updateStrategy OnDelete)"
    budget = strategy.get("rollingUpdate") or {}
    at_once = budget.get("maxUnavailable", 1)
    return f"restarts the pod of every node, {at_once} of them at a time"


_ROLLOUTS = {
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
}


def _share(value: Any, count: int, rounded: Any) -> int:
    """Read a number of pods, or a percentage of them."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return int(rounded(int(value[:-1]) * count / 100))
    return value if isinstance(value, int) else 0


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _unnoticed(change: Change, staying: Sequence[KubeObject]) -> str:
    """Say of a setting whose content changes which workloads that read it are not restarted."""
    is_update = change.action == "update" and change.identity.kind in _CONFIGS
    if not is_update or not any(row.path.startswith(_DATA) for row in change.fields):
        return ""
    readers = [obj for obj in staying if change.identity in set(read_by_pods(obj))]
    once = [obj for obj in readers if change.identity in set(read_once(obj))]
    files = [obj for obj in readers if obj not in once]
    return "; ".join(_sentences(once, files))


def _sentences(once: Sequence[KubeObject], files: Sequence[KubeObject]) -> Iterator[str]:
    if once:
        yield f"running pods of {listed([str(obj.identity) for obj in once], _NAMED)} do not notice it"
    if files:
        names = listed([str(obj.identity) for obj in files], _NAMED)
        yield f"running pods of {names} get the new files within minutes, and are not restarted"
