"""The plan file: what somebody approved, written by `plan --out` and read by `apply`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.files import atomic
from mlstack.files.schema import check_file
from mlstack.model.app import API_VERSION, ClusterIdentity
from mlstack.model.approval import Approval, ApprovedObject
from mlstack.model.fields import FieldChange
from mlstack.model.objects import Identity

KIND = "Plan"
_AGAIN = "make a new one: mlstack plan ENV --out FILE"


def new_salt() -> str:
    """Give a salt that nobody can know beforehand."""
    return os.urandom(16).hex()


def write(path: Path, approval: Approval) -> None:
    """Write a plan file that its owner alone can read, as a whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    text = json.dumps(_document(approval), indent=2, ensure_ascii=False)
    atomic.write_files({path: f"{text}\n"}, private=[path])


def read(path: Path) -> Approval:
    """Read a plan file.

    Raises:
        NotFoundError: there is none.
        ConfigError: it is damaged, something else, or of a newer mlstack.
    """
    value = _value(path)
    _check_head(path, value)
    try:
        check_file(KIND, value, source=str(path))
    except SchemaError as error:
        raise ConfigError(f"the plan file is damaged: {error}", where=str(path), hint=_AGAIN) from error
    return _approval(value)


def _value(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(f"no plan file `{path}`", hint=_AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("the plan file is damaged: it is no JSON", where=str(path), hint=_AGAIN) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read the plan file: {reason}", where=str(path)) from error


def _check_head(path: Path, value: Any) -> None:
    head = value if isinstance(value, Mapping) else {}
    api_version, kind = head.get("apiVersion"), head.get("kind")
    if (api_version, kind) == (API_VERSION, KIND):
        return
    if kind == KIND and str(api_version).startswith("mlstack.dev/"):
        raise ConfigError(
            f"the plan file has version `{api_version}`, this mlstack reads `{API_VERSION}`",
            where=str(path),
            hint=f"use the mlstack that made it ({head.get('tool', 'a newer one')}), or {_AGAIN}",
        )
    found = f"a `{kind}` of `{api_version}`" if kind else "something else"
    raise ConfigError(f"this is no plan file, but {found}", where=str(path), hint=_AGAIN)


def _document(approval: Approval) -> dict[str, Any]:
    cluster = approval.cluster
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "tool": approval.tool,
        "created": approval.created,
        "app": approval.app,
        "environment": approval.environment,
        "context": approval.context,
        "namespace": approval.namespace,
        "cluster": _without_empty({"uid": cluster.uid, "ca": cluster.ca, "server": cluster.server}),
        "selection": list(approval.selection),
        "components": list(approval.components),
        "options": {_camel(name): value for name, value in approval.options.items()},
        "overrides": dict(approval.overrides),
        "overridesDigest": approval.overrides_digest,
        "packages": dict(approval.packages),
        "inputs": dict(approval.inputs),
        "salt": approval.salt,
        "costly": approval.costly,
        "counts": dict(approval.counts),
        "notes": list(approval.notes),
        "objects": [_object(one) for one in approval.objects],
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _without_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _object(one: ApprovedObject) -> dict[str, Any]:
    identity = one.identity
    return {
        "object": str(identity),
        "group": identity.group,
        "apiVersion": one.api_version,
        "kind": identity.kind,
        "namespace": identity.namespace,
        "name": identity.name,
        "component": one.component,
        "action": one.action,
        "uid": one.uid,
        "digest": one.digest,
        "reason": one.reason,
        "fields": [
            {"path": field.path, "action": field.action, "old": field.old, "new": field.new}
            for field in one.fields
        ],
        "notes": list(one.notes),
    }


def _approval(value: Mapping[str, Any]) -> Approval:
    return Approval(
        app=value["app"],
        environment=value["environment"],
        context=value["context"],
        namespace=value["namespace"],
        cluster=ClusterIdentity(**value["cluster"]),
        selection=tuple(value["selection"]),
        components=tuple(value["components"]),
        options={_snake(name): chosen for name, chosen in value["options"].items()},
        inputs=value["inputs"],
        packages=value["packages"],
        overrides=value["overrides"],
        overrides_digest=value["overridesDigest"],
        tool=value["tool"],
        created=value["created"],
        salt=value["salt"],
        costly=value["costly"],
        objects=tuple(_approved(one) for one in value["objects"]),
        counts=value["counts"],
        notes=tuple(value["notes"]),
    )


def _approved(value: Mapping[str, Any]) -> ApprovedObject:
    return ApprovedObject(
        identity=Identity(value["group"], value["kind"], value["namespace"], value["name"]),
        api_version=value["apiVersion"],
        component=value["component"],
        action=value["action"],
        uid=value["uid"],
        digest=value["digest"],
        reason=value["reason"],
        fields=tuple(FieldChange(**field) for field in value["fields"]),
        notes=tuple(value["notes"]),
    )
