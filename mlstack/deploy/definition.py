"""What a change of a CustomResourceDefinition would take away from the objects that are there.

The API server refuses some of it itself (scope, names, a stored version); the rest it accepts and then
silently prunes fields, or refuses the next write of an object that was valid before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.errors import ClusterError
from mlstack.kube.client import Cluster
from mlstack.objects.kube_object import CRD_GROUP, Data, KubeObject, kinds_of_crd

ALLOW_ANNOTATION = "mlstack.dev/allow-destructive"


# Keyword → whether a greater number allows more.
_BOUNDS = {
    "minimum": False,
    "minLength": False,
    "minItems": False,
    "minProperties": False,
    "maximum": True,
    "maxLength": True,
    "maxItems": True,
    "maxProperties": True,
}
_NUMERIC = ("int32", "int64", "float", "double")  # formats that the server does not hold numbers to
_WIDER = (("integer", "number"), ("integer", "int-or-string"), ("string", "int-or-string"))
_NAMED = 5  # fields of one version that are listed


def is_definition(manifest: KubeObject) -> bool:
    """Tell whether an object is a CustomResourceDefinition."""
    return (manifest.group, manifest.kind) == (CRD_GROUP, "CustomResourceDefinition")


def is_allowed(data: Data) -> bool:
    """Tell whether a definition says itself that it may take things away."""
    annotations = (data.get("metadata") or {}).get("annotations") or {}
    return annotations.get(ALLOW_ANNOTATION) == "true"


def losses_of(cluster: Cluster, live: Data, after: Data) -> tuple[str, ...]:
    """Say what a change of a definition would take away from what is there."""
    all_losses, without_objects = losses(live, after), losses(live, after, has_objects=False)
    return all_losses if all_losses == without_objects or _has_objects(cluster, live) else without_objects


def demands_of(cluster: Cluster, live: Data, after: Data) -> tuple[str, ...]:
    """Say what a change of a definition would demand of the objects that are there."""
    texts = demands(live, after)
    if not texts or not _has_objects(cluster, live):
        return ()
    return tuple(
        f"{text}; objects that are there and break it may be refused when they change" for text in texts
    )


def _has_objects(cluster: Cluster, definition: Data) -> bool:
    for kind in kinds_of_crd(definition):
        try:
            return bool(cluster.list(kind.api_version, kind.kind, metadata_only=True).items)
        except ClusterError:  # nobody can tell: there may be some
            continue
    return True


def losses(live: Data, after: Data, *, has_objects: bool = True) -> tuple[str, ...]:
    """Say what would be lost; nothing if the change only adds or allows more."""
    before, desired = live.get("spec") or {}, after.get("spec") or {}
    names, other_names = before.get("names") or {}, desired.get("names") or {}
    pairs = [(key, before.get(key), desired.get(key)) for key in ("group", "scope")]
    pairs += [(f"names.{key}", names.get(key), other_names.get(key)) for key in ("kind", "plural")]
    texts = [
        f"`{what}` would change from {old} to {new}: every object of the kind would be lost"
        for what, old, new in pairs
        if old != new
    ]
    versions, others = _versions(live), _versions(after)
    stored = list((live.get("status") or {}).get("storedVersions") or ())
    texts += [
        f"version `{name}` would be removed, and objects are stored in it"
        for name in stored
        if name not in others
    ]
    for name, version in versions.items():
        if others.get(name, {}).get("served"):
            texts += _listed(name, narrowed(_schema(version), _schema(others[name])))
        elif version.get("served") and has_objects and not (name in stored and name not in others):
            texts.append(f"version `{name}` would not be served any more")
    return tuple(texts)


def demands(live: Data, after: Data) -> tuple[str, ...]:
    """Say what a definition would newly demand of objects, where nobody can tell whether it allows less."""
    others = _versions(after)
    return tuple(
        text
        for name, version in _versions(live).items()
        if version.get("served") and others.get(name, {}).get("served")
        for text in _listed(name, demanded(_schema(version), _schema(others[name])))
    )


def _versions(data: Data) -> dict[str, Data]:
    versions = (data.get("spec") or {}).get("versions") or ()
    return {str(version.get("name", "")): version for version in versions}


def _schema(version: Data) -> Data:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _listed(version: str, texts: Iterable[str]) -> Iterator[str]:
    listed = [f"version `{version}`: {text}" for text in texts]
    yield from listed[:_NAMED]
    if len(listed) > _NAMED:
        yield f"version `{version}`: and {len(listed) - _NAMED} fields more"


def narrowed(old: Data, new: Data, path: str = "") -> Iterator[str]:
    """Say which fields of a schema would go, or allow less than before.

    Expressions (CEL), formats and combinations (`oneOf` …) are not compared: nobody can tell which of two
    allows more. `demanded` tells of them.
    """
    if _takes_anything(new) and "type" not in new:
        return
    field = _named(path)
    was, becomes = _type(old), _type(new)
    if becomes and was != becomes and (was, becomes) not in _WIDER:
        yield f"{field} would be {becomes} instead of {was or 'anything'}"
    if old.get("nullable") and not new.get("nullable"):
        yield f"{field} would not be null any more"
    if _is_open(old) and not _is_open(new):
        yield f"{field} would drop fields that the schema does not name"
    yield from _narrowed_values(old, new, field)
    fields, others = old.get("properties") or {}, new.get("properties") or {}
    extra = new.get("additionalProperties")
    for name, schema in fields.items():
        inner = f"{path}.{name}" if path else str(name)
        other = others.get(name, extra)
        if isinstance(other, Mapping):
            yield from narrowed(schema, other, inner)
        elif not (_takes_anything(new) or extra is True):
            yield f"{_named(inner)} would be removed"
    for name in new.get("required") or ():
        if name not in (old.get("required") or ()) and "default" not in (others.get(name) or {}):
            yield f"{_named(f'{path}.{name}' if path else name)} would be required"
    for before, after, inner in _items(old, new, path):
        yield from narrowed(before, after, inner)


def _narrowed_values(old: Data, new: Data, field: str) -> Iterator[str]:
    allowed, rest = old.get("enum"), new.get("enum")
    if rest is not None:
        gone = [value for value in allowed or () if value not in rest]
        if allowed is None:
            yield f"{field} would be one of {_values(rest)} alone"
        elif gone:
            yield f"{field} would not be {_values(gone)} any more"
    for keyword, more_is_wider in _BOUNDS.items():
        was, becomes = old.get(keyword), new.get(keyword)
        if becomes is not None and (was is None or (becomes < was if more_is_wider else becomes > was)):
            yield f"{field} would have `{keyword}` {becomes}" + (f", not {was}" if was is not None else "")
    if new.get("pattern") is not None and old.get("pattern") is None:
        yield f"{field} would have to match `{new['pattern']}`"


def demanded(old: Data, new: Data, path: str = "") -> Iterator[str]:
    """Say which fields of a schema get a rule (CEL), format, pattern or combination that they had not.

    Rules on a change (`oldSelf`) do not count: an object as it is cannot break them.
    """
    known = {rule.get("rule") for rule in old.get("x-kubernetes-validations") or ()}
    for rule in new.get("x-kubernetes-validations") or ():
        if rule.get("rule") not in known and "oldSelf" not in str(rule.get("rule")):
            yield f"{_named(path)} has a new rule: {rule.get('message') or rule.get('rule')}"
    for keyword in ("format", "pattern", "not", "allOf", "anyOf", "oneOf"):
        was, becomes = old.get(keyword), new.get(keyword)
        is_loss = keyword == "pattern" and was is None
        if becomes not in (None, was, *_NUMERIC) and not is_loss:
            shown = f" `{becomes}`" if isinstance(becomes, str) else ""
            yield f"{_named(path)} has another `{keyword}`{shown}"
    for name, schema in (old.get("properties") or {}).items():
        other = (new.get("properties") or {}).get(name)
        if isinstance(other, Mapping):
            yield from demanded(schema, other, f"{path}.{name}" if path else str(name))
    for before, after, inner in _items(old, new, path):
        yield from demanded(before, after, inner)


def _items(old: Data, new: Data, path: str) -> Iterator[tuple[Data, Data, str]]:
    """Give the schemas of what is in lists and open maps, where both have one."""
    for keyword, step in (("items", "[]"), ("additionalProperties", ".*")):
        before, after = old.get(keyword), new.get(keyword)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield before, after, f"{path}{step}"


def _type(schema: Data) -> str:
    return "int-or-string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type") or "")


def _takes_anything(schema: Data) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _is_open(schema: Data) -> bool:
    extra = schema.get("additionalProperties")
    return _takes_anything(schema) or extra is True or isinstance(extra, Mapping)


def _values(values: Sequence[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _named(path: str) -> str:
    return f"field `{path}`" if path else "the object"
