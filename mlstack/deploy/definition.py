"""What a change of a CustomResourceDefinition would take away from the objects that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.errors import ClusterError
from mlstack.kube.client import Cluster
from mlstack.objects.kinds import kinds_of_crd

# The API server refuses some of it itself (scope, names, a stored version); the rest it accepts and then
# silently prunes fields, or refuses the next write of an object that was valid before.

ALLOW_ANNOTATION = "mlstack.dev/allow-destructive"

Schema = Mapping[str, Any]

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
_NAMED = 5  # fields of one version that are listed


def losses(
    live: Mapping[str, Any], wanted: Mapping[str, Any], *, has_objects: bool = True
) -> tuple[str, ...]:
    """Say what would be lost; nothing if the change only adds or allows more."""
    before, after = _spec(live), _spec(wanted)
    found = [*_of_names(before, after), *_of_storage(live, after)]
    stored = {str(name) for name in (live.get("status") or {}).get("storedVersions") or ()}
    old, new = _versions(before), _versions(after)
    for name, version in old.items():
        if not _is_served(new.get(name)):
            if _is_served(version) and has_objects and not (name in stored and name not in new):
                found.append(f"version `{name}` would not be served any more")
            continue
        found += _listed(name, tuple(narrowed(_schema(version), _schema(new[name]))))
    return tuple(found)


def demands(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a definition would newly demand of objects, where nobody can tell whether it allows less."""
    old, new = _versions(_spec(live)), _versions(_spec(wanted))
    both = [name for name, version in old.items() if _is_served(version) and _is_served(new.get(name))]
    return tuple(
        text
        for name in both
        for text in _listed(name, tuple(demanded(_schema(old[name]), _schema(new[name]))))
    )


def is_allowed(wanted: Mapping[str, Any]) -> bool:
    """Tell whether a definition says itself that it may take things away."""
    annotations = (wanted.get("metadata") or {}).get("annotations") or {}
    return annotations.get(ALLOW_ANNOTATION) == "true"


def _spec(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return data.get("spec") or {}


def _versions(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(version.get("name", "")): version for version in spec.get("versions") or ()}


def _is_served(version: Mapping[str, Any] | None) -> bool:
    return bool(version and version.get("served"))


def _schema(version: Mapping[str, Any]) -> Schema:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _of_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    pairs = [(key, before.get(key), after.get(key)) for key in ("group", "scope")]
    names, others = before.get("names") or {}, after.get("names") or {}
    pairs += [(f"names.{key}", names.get(key), others.get(key)) for key in ("kind", "plural")]
    for what, old, new in pairs:
        if old != new:
            yield f"`{what}` would change from {old} to {new}: every object of the kind would be lost"


def _of_storage(live: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    known = _versions(after)
    for name in (live.get("status") or {}).get("storedVersions") or ():
        if name not in known:
            yield f"version `{name}` would be removed, and objects are stored in it"


def _listed(version: str, faults: Sequence[str]) -> Iterator[str]:
    for fault in faults[:_NAMED]:
        yield f"version `{version}`: {fault}"
    if len(faults) > _NAMED:
        yield f"version `{version}`: and {len(faults) - _NAMED} fields more"


def narrowed(old: Schema, new: Schema, path: str = "") -> Iterator[str]:
    """Say which fields of a schema would go, or allow less than before.

    Expressions (CEL), formats and combinations (`oneOf` …) are not compared: nobody can tell which of two
    allows more. `demanded` tells of them.
    """
    if _takes_anything(new) and "type" not in new:
        return
    yield from _of_type(old, new, path)
    if _is_open(old) and not _is_open(new):
        yield f"{_named(path)} would drop fields that the schema does not name"
    yield from _of_values(old, new, path)
    yield from _of_fields(old, new, path)
    for keyword, step in (("items", "[]"), ("additionalProperties", ".*")):
        inner, other = old.get(keyword), new.get(keyword)
        if isinstance(inner, Mapping) and isinstance(other, Mapping):
            yield from narrowed(inner, other, f"{path}{step}")


def demanded(old: Schema, new: Schema, path: str = "") -> Iterator[str]:
    """Say which fields of a schema get a rule (CEL), format, pattern or combination that they had not.

    Rules on a change (`oldSelf`) do not count: an object as it is cannot break them.
    """
    known = {rule.get("rule") for rule in old.get("x-kubernetes-validations") or ()}
    for check in new.get("x-kubernetes-validations") or ():
        if check.get("rule") not in known and "oldSelf" not in str(check.get("rule")):
            yield f"{_named(path)} has a new rule: {check.get('message') or check.get('rule')}"
    for keyword in ("format", "pattern", "not", "allOf", "anyOf", "oneOf"):
        was, becomes = old.get(keyword), new.get(keyword)
        is_told = keyword == "pattern" and was is None  # it is a loss
        if becomes not in (None, was, *_NUMERIC) and not is_told:
            shown = f" `{becomes}`" if isinstance(becomes, str) else ""
            yield f"{_named(path)} has another `{keyword}`{shown}"
    for name, schema in (old.get("properties") or {}).items():
        other = (new.get("properties") or {}).get(name)
        if isinstance(other, Mapping):
            yield from demanded(schema, other, f"{path}.{name}" if path else str(name))
    for keyword, step in (("items", "[]"), ("additionalProperties", ".*")):
        inner, other = old.get(keyword), new.get(keyword)
        if isinstance(inner, Mapping) and isinstance(other, Mapping):
            yield from demanded(inner, other, f"{path}{step}")


def _of_type(old: Schema, new: Schema, path: str) -> Iterator[str]:
    was, becomes = _type(old), _type(new)
    wider = (was, becomes) in (
        ("integer", "number"),
        ("integer", "int-or-string"),
        ("string", "int-or-string"),
    )
    if becomes and was != becomes and not wider:
        yield f"{_named(path)} would be {becomes} instead of {was or 'anything'}"
    if old.get("nullable") and not new.get("nullable"):
        yield f"{_named(path)} would not be null any more"


def _of_values(old: Schema, new: Schema, path: str) -> Iterator[str]:
    allowed, rest = old.get("enum"), new.get("enum")
    if rest is not None:
        gone = [value for value in allowed or () if value not in rest]
        if allowed is None:
            yield f"{_named(path)} would be one of {_values(rest)} alone"
        elif gone:
            yield f"{_named(path)} would not be {_values(gone)} any more"
    for keyword, more_is_wider in _BOUNDS.items():
        was, becomes = old.get(keyword), new.get(keyword)
        if becomes is not None and (was is None or (becomes < was if more_is_wider else becomes > was)):
            yield f"{_named(path)} would have `{keyword}` {becomes}" + (
                f", not {was}" if was is not None else ""
            )
    if new.get("pattern") is not None and old.get("pattern") is None:
        yield f"{_named(path)} would have to match `{new['pattern']}`"


def _of_fields(old: Schema, new: Schema, path: str) -> Iterator[str]:
    fields, others = old.get("properties") or {}, new.get("properties") or {}
    extra = new.get("additionalProperties")
    for name, schema in fields.items():
        inner = f"{path}.{name}" if path else str(name)
        if name in others:
            yield from narrowed(schema, others[name], inner)
        elif isinstance(extra, Mapping):
            yield from narrowed(schema, extra, inner)
        elif not (_takes_anything(new) or extra is True):
            yield f"{_named(inner)} would be removed"
    for name in new.get("required") or ():
        missing_default = "default" not in (others.get(name) or {})
        if name not in (old.get("required") or ()) and missing_default:
            yield f"{_named(f'{path}.{name}' if path else name)} would be required"


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    return str(schema.get("type") or "")


def _takes_anything(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _is_open(schema: Schema) -> bool:
    extra = schema.get("additionalProperties")
    return _takes_anything(schema) or extra is True or isinstance(extra, Mapping)


def _values(values: Sequence[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _named(path: str) -> str:
    return f"field `{path}`" if path else "the object"


def refuse_losses(cluster: Cluster, live: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a change of a definition would take away."""
    found = losses(live, after)
    without = losses(live, after, has_objects=False)
    return found if found == without or _has_objects(cluster, live) else without


def refuse_demands(cluster: Cluster, live: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a change of a definition would demand of the objects that are there."""
    found = demands(live, after)
    if not found or not _has_objects(cluster, live):
        return ()
    return tuple(
        f"{text}; objects that are there and break it may be refused when they change" for text in found
    )


def _has_objects(cluster: Cluster, definition: Mapping[str, Any]) -> bool:
    for kind in kinds_of_crd(definition):
        try:
            return bool(cluster.list(kind.api_version, kind.kind, metadata_only=True).items)
        except ClusterError:  # nobody can tell: there may be some
            continue
    return True
