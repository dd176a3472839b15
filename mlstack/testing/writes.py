"""JSON merge patch (RFC 7396) and JSON patch (RFC 6902) on plain values, which are never changed in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from mlstack.errors import Cause, ClusterError, ConflictError
from mlstack.kube.api_errors import error_of
from mlstack.kube.client import Applied, ObjectRef, Propagation
from mlstack.objects.kinds import Kind, Kinds, Schemas, kinds_of_crd
from mlstack.testing import defaults, server_side_apply, store
from mlstack.testing import store as garbage
from mlstack.testing.server_side_apply import (
    NOTHING,
    OPEN,
    AppliedEntry,
    FieldWriter,
    Path,
    Paths,
    Schema,
    Shape,
    custom_root,
    same,
)
from mlstack.testing.store import Key, Obj, ObjectStore, copied

# --- JSON merge patch (RFC 7396) and JSON patch (RFC 6902) on plain values, which are never changed
# in place


class PatchFault(ValueError):
    """A JSON patch does not fit: a `test` failed, or a path is not there."""


def merge_patch(value: Any, patch: Any) -> Any:
    """Lay a merge patch over a value: maps merge, null removes, the rest replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(value) if isinstance(value, Mapping) else {}
    for name, inner in patch.items():
        if inner is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), inner)
    return merged


def json_patch(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Do the operations of a JSON patch one after the other.

    Raises:
        PatchFault: one of them does not fit.
    """
    patched = deepcopy(value)
    for operation in operations:
        try:
            patched = _OPERATIONS[operation["op"]](patched, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PatchFault(f"{operation.get('op')} {operation.get('path')}") from error
    return patched


def _add(value: Any, operation: Mapping[str, Any]) -> Any:
    return _put(value, _tokens(operation["path"]), deepcopy(operation["value"]))


def _remove(value: Any, operation: Mapping[str, Any]) -> Any:
    parent, last = _parent(value, _tokens(operation["path"]))
    del parent[_index(parent, last)]
    return value


def _replace(value: Any, operation: Mapping[str, Any]) -> Any:
    tokens = _tokens(operation["path"])
    if not tokens:
        return deepcopy(operation["value"])
    parent, last = _parent(value, tokens)
    index = _index(parent, last)
    _get(parent, [last])
    parent[index] = deepcopy(operation["value"])
    return value


def _move(value: Any, operation: Mapping[str, Any]) -> Any:
    moved = _get(value, _tokens(operation["from"]))
    return _put(_remove(value, {"path": operation["from"]}), _tokens(operation["path"]), moved)


def _copy(value: Any, operation: Mapping[str, Any]) -> Any:
    return _put(value, _tokens(operation["path"]), deepcopy(_get(value, _tokens(operation["from"]))))


def _test(value: Any, operation: Mapping[str, Any]) -> Any:
    if not same(_get(value, _tokens(operation["path"])), operation["value"]):
        raise ValueError("test failed")
    return value


_OPERATIONS = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(pointer)
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _get(value: Any, tokens: Sequence[str]) -> Any:
    for token in tokens:
        value = value[_index(value, token)]
    return value


def _parent(value: Any, tokens: Sequence[str]) -> tuple[Any, str]:
    return _get(value, tokens[:-1]), tokens[-1]


def _put(value: Any, tokens: Sequence[str], new: Any) -> Any:
    if not tokens:
        return new
    parent, last = _parent(value, tokens)
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, room=1), new)
    else:
        parent[last] = new
    return value


def _index(parent: Any, token: str, *, room: int = 0) -> Any:
    if not isinstance(parent, list):
        return token
    if not token.isdecimal() or int(token) >= len(parent) + room:
        raise IndexError(token)
    return int(token)


# --- Whether a value fits its schema, and the faults in the API server's words ---

_EXPECTED = {
    "string": "string",
    "boolean": "boolean",
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
}

# Required in the published schemas because the server always writes them; nobody has to give them.
_ALWAYS_WRITTEN = frozenset({"rules", "serviceName"})


def typed_faults(value: Any, shape: Shape, path: Path = ()) -> Iterator[str]:
    """Say what server-side apply cannot read: unknown fields, wrong types, nameless or double items."""
    if value is None or shape.is_open:
        return
    kind = shape.schema.get("type") or ("object" if shape.has_fields else "")
    if shape.is_int_or_string:
        if isinstance(value, bool | Mapping | list):
            yield _fault(path, f"expected string, got {_shown(value)}")
    elif kind == "object":
        yield from _map_faults(value, shape, path)
    elif kind == "array":
        yield from _list_faults(value, shape, path)
    elif not _is_scalar(value, kind):
        yield _fault(path, f"expected {_EXPECTED[kind]}, got {_shown(value)}")


def _map_faults(value: Any, shape: Shape, path: Path) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield _fault(path, f"expected map, got {_shown(value)}")
        return
    for name, inner in value.items():
        below = (*path, server_side_apply.field_of(name))
        found = shape.at(name)
        if found is None:
            yield _fault(below, "field not declared in schema")
        else:
            yield from typed_faults(inner, found, below)


def _list_faults(value: Any, shape: Shape, path: Path) -> Iterator[str]:
    if not isinstance(value, list):
        yield _fault(path, f"expected list, got {_shown(value)}")
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if shape.list_type != "atomic":
            try:
                element = server_side_apply.element_of(item, shape, path)
            except server_side_apply.KeyFault as fault:
                yield _fault((*path, element), f"element {index}: {fault}")
                continue
            if element in seen:
                yield _fault(path, f"duplicate entries for key {server_side_apply.spell((element,))}")
            seen.add(element)
        yield from typed_faults(item, shape.items, (*path, element))


def _is_scalar(value: Any, kind: str) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("integer", "number"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return kind != "string" or isinstance(value, str)


def _fault(path: Path, message: str) -> str:
    return f"{server_side_apply.spell(path)}: {message}"


def _shown(value: Any) -> str:
    return f"&value.valueUnstructured{{Value:{value}}}"


def rule_faults(value: Any, shape: Shape, path: str = "") -> Iterator[Cause]:
    """Say what validation refuses: missing fields, nulls, values out of range; CEL is not evaluated."""
    if isinstance(value, Mapping):
        for name in shape.schema.get("required") or ():
            if value.get(name) is None and name not in _ALWAYS_WRITTEN:
                yield Cause(field=_joined(path, name), reason="FieldValueRequired", message="Required value")
        for name, inner in value.items():
            if name not in _ALWAYS_WRITTEN:
                yield from rule_faults(inner, shape.at(name) or OPEN, _joined(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from rule_faults(item, shape.items, f"{path}[{index}]")
    elif value is None and not (shape.is_open or shape.schema.get("nullable")):
        kind = shape.schema.get("type") or "object"
        yield Cause(field=path, reason="FieldValueTypeInvalid", message=f'must be of type {kind}: "null"')
        return
    for message in _value_faults(value, shape.schema):
        yield Cause(field=path, reason="FieldValueInvalid", message=message)


def _value_faults(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield "Unsupported value: supported values: " + ", ".join(f'"{one}"' for one in schema["enum"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"should be greater than or equal to {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"should be less than or equal to {schema['maximum']}"
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            yield f"should match '{schema['pattern']}'"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield "has a length that is not allowed"
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get(
        "maxItems", len(value)
    ):
        yield "has a number of items that is not allowed"


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# --- What an API server does with each built-in kind beside storing it: generations, limits on
# changes

MergeKey = tuple[str, str]

WITH_GENERATION: frozenset[MergeKey] = frozenset(
    {
        ("", "Pod"),
        ("", "ReplicationController"),
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "CronJob"),
        ("batch", "Job"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("networking.k8s.io", "Ingress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("policy", "PodDisruptionBudget"),
        ("scheduling.k8s.io", "PriorityClass"),
    }
)
"""The built-in kinds that count their changes; custom resources always do."""

SCALABLE: frozenset[MergeKey] = frozenset(
    {("", "ReplicationController"), ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet")}
)
"""The built-in kinds with a `scale` subresource."""

IMMUTABLE = "field is immutable"


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """Fields of a kind that cannot change.

    Attributes:
        fields: their names below `at`; all but `free` where empty.
        at: the field they are in.
        free: the fields below `at` that may change.
        message: what the server says.
        forbidden: whether it calls that forbidden instead of invalid, and names `at` alone.
    """

    fields: tuple[str, ...] = ()
    at: str = "spec"
    free: tuple[str, ...] = ()
    message: str = IMMUTABLE
    forbidden: bool = False


FROZEN: Mapping[MergeKey, Frozen] = {
    ("apps", "Deployment"): Frozen(fields=("selector",)),
    ("apps", "DaemonSet"): Frozen(fields=("selector",)),
    ("apps", "ReplicaSet"): Frozen(fields=("selector",)),
    ("apps", "StatefulSet"): Frozen(
        free=(
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ),
        message="updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
        "'minReadySeconds' are forbidden",
        forbidden=True,
    ),
    ("batch", "Job"): Frozen(fields=("template", "completions", "selector", "completionMode")),
    ("", "PersistentVolumeClaim"): Frozen(
        free=("resources", "volumeName", "volumeAttributesClassName"),
        message="spec is immutable after creation except resources.requests and volumeAttributesClassName "
        "for bound claims",
        forbidden=True,
    ),
    ("", "Secret"): Frozen(fields=("type",), at=""),
    ("", "Service"): Frozen(fields=("clusterIP",), message="may not change once set"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): Frozen(
        fields=("roleRef",), at="", message="cannot change roleRef"
    ),
    ("rbac.authorization.k8s.io", "RoleBinding"): Frozen(
        fields=("roleRef",), at="", message="cannot change roleRef"
    ),
    ("storage.k8s.io", "StorageClass"): Frozen(
        fields=("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"), at=""
    ),
    ("scheduling.k8s.io", "PriorityClass"): Frozen(
        fields=("value",), at="", message="may not be changed in an update.", forbidden=True
    ),
    ("networking.k8s.io", "IngressClass"): Frozen(fields=("controller",)),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Frozen(fields=("group", "scope")),
}

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAMED_AS_LABEL = frozenset({("", "Namespace"), ("", "Service")})


def update_faults(key: MergeKey, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    """Say which changes the API server would refuse because a field is immutable."""
    if key in (("", "ConfigMap"), ("", "Secret")) and old.get("immutable"):
        yield from _immutable_data(old, new)
    rule = FROZEN.get(key)
    if rule is None:
        return
    before, after = (obj.get(rule.at) or {} if rule.at else obj for obj in (old, new))
    names = rule.fields or sorted({*before, *after} - set(rule.free))
    for name in names:
        unset = key == ("", "Service") and not before.get(name)
        if not unset and not same(before.get(name), after.get(name)):
            field = f"{rule.at}.{name}" if rule.at else name
            yield Cause(
                field=rule.at or name if rule.forbidden else field,
                reason="FieldValueForbidden" if rule.forbidden else "FieldValueInvalid",
                message=f"Forbidden: {rule.message}" if rule.forbidden else rule.message,
            )
            if rule.forbidden:
                return


def _immutable_data(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    for name in ("immutable", "data", "binaryData"):
        if not same(old.get(name), new.get(name)):
            message = "Forbidden: field is immutable when `immutable` is set"
            yield Cause(field=name, reason="FieldValueForbidden", message=message)


def name_faults(key: MergeKey, name: str) -> Iterator[Cause]:
    """Say whether a name is none: most kinds want a DNS subdomain, RBAC takes any path segment."""
    if key[0] == "rbac.authorization.k8s.io":
        return
    limit, pattern = (63, _LABEL) if key in _NAMED_AS_LABEL else (253, _SUBDOMAIN)
    if len(name) > limit or not pattern.fullmatch(name):
        message = (
            f'Invalid value: "{name}": must consist of at most {limit} lower case letters, digits and `-`'
        )
        yield Cause(field="metadata.name", reason="FieldValueInvalid", message=message)


# --- Which kinds a memory cluster serves, and what it knows of each: fields, status, generations ---

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@dataclass(frozen=True, kw_only=True)
class Served:
    """One kind in one version.

    Attributes:
        kind: its names.
        shape: of its objects.
        has_status: `status` is a subresource: other writes leave it alone.
        has_scale: it can be scaled.
        counts_changes: it has a generation.
        custom: the schema of a custom resource, None for built-in kinds.
    """

    kind: Kind
    shape: Shape
    has_status: bool
    has_scale: bool
    counts_changes: bool
    custom: Schema | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Give group and kind."""
        return self.kind.group, self.kind.kind

    def shown(self, obj: Mapping[str, Any], *, metadata_only: bool = False) -> Obj:
        """Give an object in this version, apart from the stored one."""
        names = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        if metadata_only:
            return names | {"metadata": copied(dict(obj["metadata"]))}
        shown: Obj = copied({**obj, **names})
        return shown


class Catalog:
    """Finds kinds: the built-in ones of a Kubernetes version, and those of the definitions in a store.

    Args:
        schemas: of the built-in kinds.
    """

    def __init__(self, schemas: Schemas) -> None:
        """Take the kinds that this Kubernetes serves."""
        self._schemas = schemas
        self._builtin = Kinds(kind for kind in Kinds.builtin() if kind.is_served_by(schemas.minor))

    def kinds(self, store: ObjectStore) -> Kinds:
        """Give all kinds."""
        return self._builtin.with_crds(crd for crd in _definitions(store))

    def find(self, store: ObjectStore, api_version: str, kind: str) -> Served | None:
        """Find a kind, None where it is not served."""
        builtin = self._builtin.lookup(api_version, kind)
        return self._built_in(builtin) if builtin else self._custom(store, api_version, kind)

    def _built_in(self, kind: Kind) -> Served:
        schema = self._schemas.root(kind.group, kind.version, kind.kind) or {}
        key = (kind.group, kind.kind)
        return Served(
            kind=kind,
            shape=Shape(schema, self._schemas.resolve),
            has_status="status" in (schema.get("properties") or {}),
            has_scale=key in SCALABLE,
            counts_changes=key in WITH_GENERATION,
        )

    def _custom(self, store: ObjectStore, api_version: str, name: str) -> Served | None:
        for crd in _definitions(store):
            for kind in kinds_of_crd(crd):
                if (kind.api_version, kind.kind) == (api_version, name):
                    return self._defined(crd, kind)
        return None

    def _defined(self, crd: Mapping[str, Any], kind: Kind) -> Served:
        version = next(row for row in crd["spec"]["versions"] if row["name"] == kind.version)
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        subresources = version.get("subresources") or {}
        metadata = Shape(self._schemas.definition(OBJECT_META), self._schemas.resolve)
        return Served(
            kind=kind,
            shape=custom_root(schema, metadata),
            has_status="status" in subresources,
            has_scale="scale" in subresources,
            counts_changes=True,
            custom=schema,
        )


def _definitions(store: ObjectStore) -> Iterator[Obj]:
    """Give the definitions that are established."""
    for _, crd in store.of_kind(*garbage.CRD):
        rows = (crd.get("status") or {}).get("conditions") or ()
        if any(row["type"] == "Established" and row["status"] == "True" for row in rows):
            yield crd


# --- One write to one object of a memory cluster, from the request to the stored object ---

_OF_SYSTEM = ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp")
_LINES = "\n  "
_REPLICAS: Paths = frozenset({("f:spec", "f:replicas")})


@dataclass(frozen=True, kw_only=True)
class Write:
    """A write in progress.

    Attributes:
        store: what is written to.
        key: the object.
        ref: the object as the request names it.
        served: its kind.
        writer: who writes.
        now: the time, as the server writes it.
        new_uid: gives a UID that nothing had before.
    """

    store: ObjectStore
    key: Key
    ref: ObjectRef
    served: Served
    writer: FieldWriter
    now: str
    new_uid: Callable[[], str]

    @property
    def live(self) -> Obj | None:
        """Give the object as it is."""
        return self.store.get(self.key)

    def apply(self, wanted: Obj, *, force: bool) -> Applied:
        """Write by server-side apply."""
        metadata = wanted.get("metadata") or {}
        if metadata.get("managedFields") is not None:
            raise self._refusal(400, "metadata.managedFields must be nil", reason="BadRequest")
        self._check_types(wanted, "failed to create typed patch object")
        live = self.live
        self._check_identity(metadata, live)
        if live is None:
            self._check_namespace()
        if self.served.has_status:
            wanted.pop("status", None)
        metadata = {name: value for name, value in metadata.items() if name not in _OF_SYSTEM}
        before = None if live is None else {**live, "apiVersion": self.ref.api_version}
        try:
            new, entries = server_side_apply.apply(
                before,
                {**wanted, "metadata": metadata},
                self.served.shape,
                writer=self.writer,
                force=force,
                now=self.now,
            )
        except server_side_apply.OwnershipConflict as conflict:
            raise self._conflict(conflict) from conflict
        return self._finish(new, entries)

    def create(self, obj: Obj) -> Applied:
        """Write a new object."""
        if self.live is not None:
            raise self._refusal(409, "already exists", reason="AlreadyExists")
        self._check_strictly(obj)
        self._check_namespace()
        return self._update(obj)

    def replace(self, obj: Obj) -> Applied:
        """Write in place of the object that is there."""
        live = self._required()
        self._check_strictly(obj)
        self._check_version(obj["metadata"], live)
        uid = obj["metadata"].get("uid")
        if uid not in (None, live["metadata"]["uid"]):
            raise self._refusal(409, "Precondition failed: UID in precondition", reason="Conflict")
        return self._update(obj)

    def patch(self, change: Callable[[Obj], Any]) -> Applied:
        """Write a changed copy of the object that is there."""
        live = {**self._required(), "apiVersion": self.ref.api_version}
        if self.writer.subresource == "scale":
            return self._scale(live, change)
        try:
            new = change(live)
        except PatchFault as fault:
            raise self._refusal(
                422, "the server rejected our request due to an error in our request", reason="Invalid"
            ) from fault
        self._check_strictly(new)
        self._check_version(new["metadata"], live)
        return self._update(new)

    def delete(
        self, propagation: Propagation, *, uid: str | None, resource_version: str | None
    ) -> Obj | None:
        """Delete the object; gives it while something holds it."""
        live = self._required()
        given = {"uid": uid, "resourceVersion": resource_version}
        for name, value in given.items():
            if value not in (None, live["metadata"][name]):
                raise self._refusal(409, f"the {name} in the precondition does not match", reason="Conflict")
        wanted = {"Foreground": store.FOREGROUND, "Orphan": store.ORPHAN}.get(propagation, "")
        if self.served.key == ("", "Namespace"):
            going = store.mark_deleted(self.store, self.key, now=self.now)
            going["status"] = {**(live.get("status") or {}), "phase": "Terminating"}
        elif wanted or live["metadata"].get("finalizers"):
            going = store.mark_deleted(self.store, self.key, now=self.now, finalizer=wanted)
        else:
            self.store.remove(self.key)
            return None
        if server_side_apply.same(going, live):
            return self.served.shown(live)
        return self.served.shown(self.store.put(self.key, going))

    def _update(self, new: Obj, *, disowned: Paths = NOTHING) -> Applied:
        """Write a whole object; fields whose values change become the writer's, but for the disowned."""
        live = self.live
        if self.writer.subresource == "status" and live is not None:
            new = {**live, "status": new.get("status")}
        elif self.served.has_status:
            new = {name: value for name, value in new.items() if name != "status"}
            if live is not None and "status" in live:
                new["status"] = live["status"]
        metadata = {name: value for name, value in new["metadata"].items() if name not in _OF_SYSTEM}
        new = {**new, "metadata": metadata, "apiVersion": self.ref.api_version, "kind": self.ref.kind}
        given = new["metadata"].pop("managedFields", None)
        new = self._completed(new)
        if live is not None:
            before = {**_without_system(live), "apiVersion": self.ref.api_version}
        else:
            before = {"metadata": {}} if self.served.custom else defaults.skeleton(self.served.key)
        entries = server_side_apply.update(
            before,
            new,
            self.served.shape,
            writer=self.writer,
            now=self.now,
            listed=_trusted(given, live),
        )
        entries = tuple(
            replace(entry, paths=entry.paths - disowned) if entry.writer == self.writer else entry
            for entry in entries
        )
        return self._finish(new, entries)

    def _scale(self, live: Obj, change: Callable[[Obj], Any]) -> Applied:
        """Change the number of replicas alone.

        A scale to 0 leaves the number without an owner, on real servers too: there 0 is not written.
        """
        if not self.served.has_scale:
            raise error_of(404, "404 page not found", subject=f"`{self.ref}/scale`")
        wanted = change(_scale_of(live))["spec"].get("replicas") or 0
        spec = {**(live.get("spec") or {}), "replicas": wanted}
        applied = self._update({**live, "spec": spec}, disowned=NOTHING if wanted else _REPLICAS)
        return replace(applied, object=_scale_of(applied.object))

    def _finish(self, new: Obj, entries: tuple[AppliedEntry, ...]) -> Applied:
        """Fill in defaults, check, count the change and store it unless nothing changed."""
        live = self.live
        new = defaults.allocate(self._completed(new), self.served.key, taken_addresses=self._addresses)
        self._check_rules(live, new)
        new = {**new, "metadata": {**new["metadata"], **self._system_metadata(live, new)}}
        new = server_side_apply.with_entries(new, entries)
        if live is not None and server_side_apply.same(_timeless(live), _timeless(new)):
            return Applied(object=self.served.shown(live))
        return Applied(object=self.served.shown(self.store.put(self.key, new)), created=live is None)

    def _completed(self, new: Obj) -> Obj:
        custom = self.served.custom
        if custom is not None:
            return {**defaults.custom(new, custom), "metadata": _without_nulls(new["metadata"])}
        new = defaults.tidy(new, self.served.shape)
        if self.served.has_status:
            new.setdefault("status", {})
        return defaults.fill_in(new, self.served.key)

    def _addresses(self) -> set[str]:
        found = self.store.of_kind("", "Service")
        return {str(obj["spec"].get("clusterIP")) for key, obj in found if key != self.key}

    def _system_metadata(self, live: Obj | None, new: Obj) -> Obj:
        if live is None:
            generation = {"generation": 1} if self.served.counts_changes else {}
            return {"uid": self.new_uid(), "creationTimestamp": self.now} | generation
        kept = {name: live["metadata"][name] for name in _OF_SYSTEM if name in live["metadata"]}
        for name in ("deletionGracePeriodSeconds",):
            if name in live["metadata"]:
                kept[name] = live["metadata"][name]
        if "generation" in kept and not server_side_apply.same(self._counted(live), self._counted(new)):
            kept["generation"] += 1
        return kept

    def _counted(self, obj: Obj) -> Obj:
        """Give the part of an object whose changes count."""
        left_out = {"apiVersion", "kind", "metadata"} | ({"status"} if self.served.has_status else set())
        return {name: value for name, value in obj.items() if name not in left_out}

    def _check_types(self, obj: Mapping[str, Any], prefix: str) -> None:
        faults = list(typed_faults(obj, self.served.shape))
        if faults:
            text = faults[0] if len(faults) == 1 else f"errors:{_LINES}" + _LINES.join(faults)
            place = f"{self.ref.namespace}/{self.ref.name}; {self.ref.api_version}, Kind={self.ref.kind}"
            raise self._refusal(500, f"{prefix} ({place}): {text}")

    def _check_strictly(self, obj: Any) -> None:
        """Refuse what a strict reading of a whole object refuses."""
        faults = list(typed_faults(obj, self.served.shape))
        if faults:
            text = "; ".join(faults)
            raise self._refusal(400, f"strict decoding error: {text}", reason="BadRequest")

    def _check_identity(self, metadata: Mapping[str, Any], live: Obj | None) -> None:
        uid = metadata.get("uid")
        if live is None:
            if uid:
                raise self._refusal(409, "uid mismatch: no existing object was found", reason="Conflict")
            return
        if uid not in (None, live["metadata"]["uid"]):
            message = "Invalid value: field is immutable"
            raise self._invalid([Cause(field="metadata.uid", reason="FieldValueInvalid", message=message)])
        self._check_version(metadata, live)

    def _check_version(self, metadata: Mapping[str, Any], live: Obj) -> None:
        if metadata.get("resourceVersion") not in (None, "", live["metadata"]["resourceVersion"]):
            raise self._refusal(409, "the object has been modified", reason="Conflict")

    def _check_namespace(self) -> None:
        if not self.served.kind.namespaced:
            return
        namespace = self.store.get(Key("", "Namespace", "", self.ref.namespace))
        if namespace is None:
            details = {"name": self.ref.namespace, "kind": "namespaces"}
            raise self._refusal(404, "namespace not found", reason="NotFound", details=details)
        if store.is_going(namespace):
            causes = [{"reason": "NamespaceTerminating"}]
            raise self._refusal(403, "forbidden", reason="Forbidden", details={"causes": causes})

    def _check_rules(self, live: Obj | None, new: Obj) -> None:
        # The server writes the status of built-in kinds itself and holds nobody to its schema.
        left_out = set() if self.served.custom else {"status"}
        checked = {name: value for name, value in new.items() if name not in left_out}
        faults = list(rule_faults(checked, self.served.shape))
        if live is None:
            faults += name_faults(self.served.key, self.ref.name)
        else:
            faults += update_faults(self.served.key, live, new)
        if faults:
            raise self._invalid(faults)

    def _required(self) -> Obj:
        live = self.live
        if live is None:
            details = {"name": self.ref.name, "kind": self.served.kind.plural}
            raise self._refusal(404, "not found", reason="NotFound", details=details)
        return live

    def _invalid(self, faults: list[Cause]) -> ClusterError:
        causes = [
            {"field": fault.field, "reason": fault.reason, "message": fault.message} for fault in faults
        ]
        return self._refusal(422, "is invalid", reason="Invalid", details={"causes": causes})

    def _conflict(self, conflict: server_side_apply.OwnershipConflict) -> ClusterError:
        fields = ", ".join(f"`{found.path}` ({found.manager})" for found in conflict.conflicts)
        return ConflictError(
            f"`{self.ref}` has fields that others own: {fields}", conflicts=conflict.conflicts
        )

    def _refusal(
        self, code: int, message: str, *, reason: str = "", details: Mapping[str, Any] | None = None
    ) -> ClusterError:
        body = {"code": code, "message": message, "reason": reason, "details": details or {}}
        return error_of(code, body, subject=f"`{self.ref}`", namespace=self.ref.namespace, kind=self.ref.kind)


def _scale_of(obj: Mapping[str, Any]) -> Obj:
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = (obj.get("spec") or {}).get("replicas")
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {name: obj["metadata"][name] for name in names if name in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": (obj.get("status") or {}).get("replicas", 0)},
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _trusted(given: Any, live: Obj | None) -> tuple[AppliedEntry, ...] | None:
    """Give the entries that a write of a whole object goes on from, None where nothing is to be recorded.

    Entries in the request are taken at their word, none mean the live ones, one empty entry means none.
    Objects without managed fields stay without until the first apply.
    """
    if live is None:
        return server_side_apply.entries_of({"metadata": {"managedFields": given}})
    if given == [{}]:
        return None
    found = server_side_apply.entries_of(
        {"metadata": {"managedFields": given}}
    ) or server_side_apply.entries_of(live)
    return found or None


def _without_system(obj: Obj) -> Obj:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _OF_SYSTEM}
    return {**obj, "metadata": metadata}


def _timeless(obj: Obj) -> Obj:
    """Give an object without what changes with each write: a write that changes no more is none."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    entries = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**obj, "metadata": {**metadata, "managedFields": entries}}
