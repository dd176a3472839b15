"""JSON merge patch (RFC 7396) and JSON patch (RFC 6902) on plain values, which are never changed in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from mlstack.cluster.merge import same


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
