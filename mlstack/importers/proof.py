"""Whether the objects of two sides are equal, and where not: the proof of an import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.app.params import join_path
from mlstack.dataclass import dataclass
from mlstack.importers.ksonnet import mapping
from mlstack.importers.plan import Data
from mlstack.importers.variants import is_cluster_wide, same, without_nulls
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Identity, Kinds, group_of

_MISSING = object()
_CONFIG_HASH = "mlstack.dev/config-hash"
_OUR_LABELS = frozenset(
    {
        kube_object.APP_LABEL,
        kube_object.ENVIRONMENT_LABEL,
        kube_object.COMPONENT_LABEL,
        kube_object.MANAGED_BY_LABEL,
        kube_object.PART_OF_LABEL,
        "ksonnet.io/component",
    }
)


@dataclass(frozen=True, kw_only=True)
class ProofDifference:
    """One place where the objects before and after an import differ."""

    environment: str
    object: str
    path: str  # empty where one side has no such object
    before: Any = None
    after: Any = None
    note: str = ""  # what kind of difference it is, where that is known


@dataclass(frozen=True, kw_only=True)
class EnvironmentProof:
    """How the objects of one environment compare."""

    environment: str
    objects: int  # before
    equal: int  # how many of them are the same afterwards
    differences: tuple[ProofDifference, ...] = ()  # what is not, field by field


def compare(
    environment: str, namespace: str, before: Iterable[Data], after: Iterable[Data]
) -> EnvironmentProof:
    """Compare the objects of an environment by identity, as objects and not as text.

    Nulls, `status`, labels that mlstack or ks set, and namespaces of cluster-wide kinds do not count.
    """
    old = _by_identity(before, namespace)
    new = _by_identity(after, namespace)
    differences: list[ProofDifference] = []
    equal = 0
    for identity in (*old, *(identity for identity in new if identity not in old)):
        first, second = old.get(identity, [_MISSING]), new.get(identity, [_MISSING])
        pairs = zip(first, [*second, *[_MISSING] * (len(first) - len(second))], strict=False)
        for one_before, one_after in pairs:
            found = [*_differences(environment, str(identity), one_before, one_after)]
            differences += found
            equal += not found
    return EnvironmentProof(
        environment=environment,
        objects=sum(map(len, old.values())),
        equal=equal,
        differences=tuple(differences),
    )


def _by_identity(objects: Iterable[Data], namespace: str) -> dict[Identity, list[Data]]:
    by_identity: dict[Identity, list[Data]] = {}
    for data in objects:
        plain = comparable(data, namespace)
        metadata = plain["metadata"]
        group, kind = group_of(str(plain["apiVersion"])), str(plain["kind"])
        identity = Identity(group, kind, metadata["namespace"], str(metadata.get("name")))
        by_identity.setdefault(identity, []).append(plain)
    return by_identity


def comparable(data: Data, namespace: str) -> dict[str, Any]:
    """Give an object without what does not count."""
    is_built_in = Kinds.builtin().lookup(str(data.get("apiVersion")), str(data.get("kind"))) is not None
    plain = _unmarked(without_nulls(kube_object.normalised(data, built_in=is_built_in)))
    plain.pop("status", None)
    metadata = dict(mapping(plain.get("metadata")))
    labels = {key: value for key, value in mapping(metadata.get("labels")).items() if key not in _OUR_LABELS}
    metadata.pop("labels", None)
    if prefix := metadata.pop("generateName", None):  # it was given a name
        metadata.setdefault("name", str(prefix).rstrip("-."))
    if labels:
        metadata["labels"] = labels
    metadata["namespace"] = "" if is_cluster_wide(data) else str(metadata.get("namespace") or namespace)
    return {**plain, "metadata": metadata}


def _unmarked(value: Any) -> Any:
    """Give a value without the annotation by which mlstack restarts what reads a changed configuration."""
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    result = {key: _unmarked(item) for key, item in value.items() if key != _CONFIG_HASH}
    if not result.get("annotations", True):
        del result["annotations"]
    return result


def _differences(environment: str, name: str, before: Any, after: Any) -> Iterator[ProofDifference]:
    if before is _MISSING or after is _MISSING:
        note = "not there after the import" if after is _MISSING else "not there before the import"
        yield ProofDifference(environment=environment, object=name, path="", note=note)
        return
    for path, old, new in _unequal(before, after, ()):
        is_text = isinstance(old, str) and isinstance(new, str) and "\n" in old
        yield ProofDifference(
            environment=environment,
            object=name,
            path=join_path(path),
            before=None if old is _MISSING else old,
            after=None if new is _MISSING else new,
            note="text of one string differs" if is_text else "",
        )


def _unequal(
    before: Any, after: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in (*before, *(key for key in after if key not in before)):
            yield from _unequal(before.get(key, _MISSING), after.get(key, _MISSING), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _unequal(old, new, (*path, index))
    elif not same(before, after) if _MISSING not in (before, after) else before is not after:
        yield path, before, after


def counted(proofs: Sequence[EnvironmentProof]) -> str:
    """Write how many objects are equal: `207 of 207 objects equal`."""
    return f"{sum(p.equal for p in proofs)} of {sum(p.objects for p in proofs)} objects equal"
