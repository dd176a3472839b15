"""What changes do to pods that run: which restart, how many at a time, and which do not notice a setting."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from typing import Any

from mlstack.deploy.changes import Change
from mlstack.events import listed
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.references import read_by_pods, read_once
from mlstack.readiness.rule import ODD, number

_CONFIGS = ("ConfigMap", "Secret")
_NAMED = 8
_DATA = ("data", "binaryData", "stringData")


def noted(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Give changes with what they do to pods among the notes of each workload and of each setting.

    Of odd values, which the API server refuses, nothing is said.
    """
    notes = {change.identity: note for change in changes if (note := _restart(change))}
    settings = {change.identity for change in changes if _changes(change, _DATA, _CONFIGS)}
    staying = [
        change.desired
        for change in changes
        if change.desired is not None
        and change.action in ("update", "unchanged")
        and change.identity not in notes
    ]
    notes |= _unnoticed(settings, staying) if settings else {}
    return tuple(
        replace(change, notes=(*change.notes, notes[change.identity])) if change.identity in notes else change
        for change in changes
    )


def _changes(change: Change, paths: tuple[str, ...], kinds: Container[str]) -> bool:
    return (
        change.action == "update"
        and change.identity.kind in kinds
        and any(row.path.startswith(paths) for row in change.fields)
    )


def _restart(change: Change) -> str:
    """Say of a workload whose pods are made anew how that goes, as its controller does it."""
    rule = _ROLLOUTS.get(change.identity.kind) if change.identity.group == "apps" else None
    if rule is None or change.desired is None or not _changes(change, ("spec.template.",), _ROLLOUTS):
        return ""
    try:
        live = (change.live or change.desired).data.get("spec") or {}
        spec = change.desired.data.get("spec") or {}
        if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return "its pods keep what they have until somebody deletes them (updateStrategy OnDelete)"
        # An autoscaler's number stands in the cluster alone.
        return rule(spec, number(spec, "replicas", number(live, "replicas", 1)))
    except ODD:
        return ""


def _deployment(spec: Mapping[str, Any], count: int) -> str:
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return f"stops {_pods(count)}, then starts {'it' if count == 1 else 'them'} again"
    missing, more = budget(strategy, count)
    return f"restarts {_pods(count)}: at most {missing} missing and {more} more at a time"


def budget(strategy: Mapping[str, Any], count: int) -> tuple[int, int]:
    """Give how many pods of a Deployment may be missing, and how many more there may be, while it updates."""
    rolling = strategy.get("rollingUpdate") or {}
    missing = _share(rolling.get("maxUnavailable", "25%"), count, floor)
    more = _share(rolling.get("maxSurge", "25%"), count, ceil)
    # apps/v1: where both would be 0, one pod may be missing
    return missing or int(not more), more


def _stateful_set(spec: Mapping[str, Any], count: int) -> str:
    budget = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    first = number(budget, "partition")
    at_once = max(1, _share(budget.get("maxUnavailable", 1), count, ceil))
    kept = f"; those below {first} stay as they are (partition)" if first else ""
    return f"restarts {_pods(max(count - first, 0))}, {at_once} at a time, the last one first{kept}"


def _daemon_set(spec: Mapping[str, Any], count: int) -> str:
    budget = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    at_once = budget.get("maxUnavailable", 1)
    return f"restarts the pod of every node, {at_once} of them at a time"


_ROLLOUTS = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
}


def _share(value: Any, count: int, rounded: Any) -> int:
    """Read a number of pods, or a percentage of them."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return int(rounded(int(value[:-1]) * count / 100))
    return value if isinstance(value, int) else 0


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _unnoticed(settings: Container[Identity], staying: Sequence[KubeObject]) -> dict[Identity, str]:
    """Say of each setting whose content changes which workloads that read it are not restarted."""
    readers: dict[Identity, tuple[list[str], list[str]]] = {}
    for obj in staying:
        try:
            read, once = set(read_by_pods(obj)), set(read_once(obj))
        except ODD:
            continue
        for setting in read:
            if setting in settings:
                readers.setdefault(setting, ([], []))[setting not in once].append(str(obj.identity))
    return {setting: "; ".join(_sentences(*names)) for setting, names in readers.items()}


def _sentences(once: Sequence[str], files: Sequence[str]) -> Iterator[str]:
    if once:
        yield f"running pods of {listed(once, _NAMED)} do not notice it"
    if files:
        names = listed(files, _NAMED)
        yield f"running pods of {names} get the new files within minutes, and are not restarted"
