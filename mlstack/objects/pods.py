"""The pod templates in objects of any kind: what runs, how many times, on how many GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mlstack.objects.kube_object import KubeObject

_UNSAID = frozenset({"spec", "template", "jobTemplate"})  # parts of a path that tell nobody anything
_COUNTS = ("replicas", "parallelism", "size")


class PodTemplate(NamedTuple):
    """One template of pods in an object."""

    role: str  # where it stands, as far as that says anything: `Worker`; empty for the only one
    replicas: int
    spec: Mapping[str, Any]

    @property
    def containers(self) -> tuple[Mapping[str, Any], ...]:
        """Give its containers, those that start before the others first."""
        lists = (self.spec.get(name) or () for name in ("initContainers", "containers"))
        return tuple(container for listed in lists for container in listed if isinstance(container, Mapping))


def templates(obj: KubeObject) -> tuple[PodTemplate, ...]:
    """Give the pod templates of an object, in the order in which they stand."""
    if obj.kind == "Pod":
        return (PodTemplate("", 1, obj.data.get("spec") or {}),)
    found = list(_templates(obj.data, ()))
    return tuple(template if len(found) > 1 else template._replace(role="") for template in found)


def _templates(value: Any, path: tuple[str, ...]) -> Iterator[PodTemplate]:
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        spec = inner.get("spec") if key == "template" and isinstance(inner, Mapping) else None
        if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
            said = [part for part in path if part not in _UNSAID]
            counts = [value[name] for name in _COUNTS if isinstance(value.get(name), int)]
            yield PodTemplate(said[-1] if said else "", counts[0] if counts else 1, spec)
        else:
            yield from _templates(inner, (*path, str(key)))
