"""Marks of a set of objects that other tools know: ApplySet, KEP-3659, as kubectl's code has it.

The text of the KEP differs from the code in places; where they do, this follows the code, as kro does too.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from mlstack.errors import ClusterError, ConfigError
from mlstack.model.kinds import Kinds
from mlstack.model.objects import Identity

PREFIX = "applyset.kubernetes.io"
ID_LABEL = f"{PREFIX}/id"
MEMBER_LABEL = f"{PREFIX}/part-of"
TOOLING = f"{PREFIX}/tooling"
GROUP_KINDS = f"{PREFIX}/contains-group-kinds"
NAMESPACES = f"{PREFIX}/additional-namespaces"

TOOL = "mlstack"
MANAGER = "mlstack-applyset"


def set_id(name: str, namespace: str, *, kind: str = "ConfigMap", group: str = "") -> str:
    """Give the ID of the set whose parent is this object: 55 characters, fit for a label.

    Args:
        name: name of the parent.
        namespace: its namespace, empty for cluster-scoped parents.
        kind: its kind.
        group: its API group, empty for the core group.
    """
    digest = hashlib.sha256(f"{name}.{namespace}.{kind}.{group}".encode()).digest()
    return f"applyset-{urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def labelled(data: Mapping[str, Any], set_id: str) -> dict[str, Any]:
    """Give an object with the label that makes it a member of a set.

    Raises:
        ConfigError: it says itself which set it belongs to.
    """
    metadata = data.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if labels.get(MEMBER_LABEL, set_id) != set_id:
        raise ConfigError(
            f"`{data.get('kind')} {metadata.get('name')}` brings the label `{MEMBER_LABEL}` itself",
            hint="remove the label from the manifest: it is set when the object is applied",
        )
    return {**data, "metadata": {**metadata, "labels": {**labels, MEMBER_LABEL: set_id}}}


def refuse_members(objects: Iterable[Mapping[str, Any]]) -> None:
    """Raise if an object says itself which set it belongs to, as kubectl does.

    Raises:
        ConfigError: naming the first of them.
    """
    for data in objects:
        labelled(data, "")


def parent_annotations(
    members: Iterable[Identity], *, namespace: str, version: str, kinds: Kinds
) -> dict[str, str]:
    """Give the annotations of a parent.

    Kinds that the server does not have are left out: one of them makes the whole set unusable for kubectl.

    Args:
        members: what belongs to the set.
        namespace: the parent's own namespace.
        version: version of mlstack.
        kinds: what the server has.
    """
    found = list(members)
    served = {(kind.group, kind.kind) for kind in kinds}
    names = {_group_kind(one) for one in found if (one.group, one.kind) in served}
    others = {one.namespace for one in found} - {"", namespace}
    return {
        TOOLING: f"{TOOL}/v{version}",
        GROUP_KINDS: ",".join(sorted(names)),
        NAMESPACES: ",".join(sorted(others)),
    }


def _group_kind(identity: Identity) -> str:
    return f"{identity.kind}.{identity.group}" if identity.group else identity.kind


def check_parent(parent: Mapping[str, Any], expected_id: str) -> None:
    """Raise if an object is the parent of another tool's set, or of no set or another one.

    Raises:
        ClusterError: saying whose it is.
    """
    metadata = parent["metadata"]
    name = f"ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
    tooling = str((metadata.get("annotations") or {}).get(TOOLING) or "")
    tool = tooling.rpartition("/")[0] or tooling
    found_id = (metadata.get("labels") or {}).get(ID_LABEL)
    if not tool:
        raise ClusterError(
            f"`{name}` is no inventory of mlstack: it has no annotation `{TOOLING}`", hint=_spare(metadata)
        )
    if tool != TOOL:
        raise ClusterError(
            f"the set of `{name}` is managed by `{tooling}` instead of `{TOOL}`", hint=_spare(metadata)
        )
    if found_id != expected_id:
        raise ClusterError(
            f"`{name}` has label `{ID_LABEL}` with `{found_id or ''}` instead of `{expected_id}`",
            hint="it was copied or changed by hand; set the label right, or: " + _spare(metadata),
        )


def _spare(metadata: Mapping[str, Any]) -> str:
    return (
        f"if nobody needs it: kubectl delete configmap -n {metadata.get('namespace')} {metadata.get('name')}"
    )
