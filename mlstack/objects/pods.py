"""The pod templates in objects of any kind: what runs, and how many times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from mlstack.objects.kube_object import KubeObject
from mlstack.objects.references import is_pod_spec

_UNSAID = frozenset({"spec", "template", "jobTemplate"})  # parts of a path that tell nobody anything
_COUNTS = ("replicas", "parallelism", "size", "parallelTrialCount")
_NAMES = ("name", "groupName")


class PodTemplate(NamedTuple):
    """One template of pods in an object."""

    role: str  # where it stands, as far as that says anything: `Worker`; empty for the only one
    replicas: int  # at first; of each node where there is one a node
    spec: Mapping[str, Any]
    least: int | None = None  # where a controller scales it by itself: between these
    most: int | None = None
    is_per_node: bool = False
    metadata: Mapping[str, Any] = {}
    keys: tuple[str | int, ...] = ()  # the way to its spec in the object

    @property
    def containers(self) -> tuple[Mapping[str, Any], ...]:
        """Give its containers, those that start before the others first."""
        lists = (self.spec.get(name) or () for name in ("initContainers", "containers"))
        return tuple(container for listed in lists for container in listed if isinstance(container, Mapping))


def templates(obj: KubeObject) -> tuple[PodTemplate, ...]:
    """Give the pod templates of an object, in the order in which they stand.

    Of templates within templates, as the Jobs of a JobSet have, the counts are multiplied.
    """
    rows = list(_templates(obj.data, ()))
    rows = rows if len(rows) > 1 else [row._replace(role="") for row in rows]
    return tuple(row._replace(is_per_node=obj.kind == "DaemonSet") for row in rows)


def _templates(
    value: Any, path: tuple[str, ...], count: int = 1, keys: tuple[str | int, ...] = ()
) -> Iterator[PodTemplate]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            names = [item[name] for name in _NAMES if item.get(name)] if isinstance(item, Mapping) else []
            yield from _templates(item, (*path, *map(str, names[:1])), count, (*keys, index))
    if not isinstance(value, Mapping):
        return
    count *= _count(value)
    for key, inner in value.items():
        if key == "spec" and is_pod_spec(inner):
            said = [part for part in path if part not in _UNSAID]
            metadata = value.get("metadata")
            metadata = metadata if isinstance(metadata, Mapping) else {}
            yield PodTemplate(said[-1] if said else "", count, inner, metadata=metadata, keys=(*keys, key))
        else:
            yield from _templates(inner, (*path, str(key)), count, (*keys, str(key)))


def _count(value: Mapping[str, Any]) -> int:
    """Give how many there are at once of what stands below a part; a host of a Ray worker is a pod."""
    counts = [value[name] for name in _COUNTS if isinstance(value.get(name), int)][:1]
    if counts and isinstance(completions := value.get("completions"), int):
        counts = [min(counts[0], completions)]
    hosts = value.get("numOfHosts")
    return prod((*counts, hosts if isinstance(hosts, int) else 1))
