"""Short hashes of what a person approves, and what to say when it is no longer that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mlstack.model.fields import step_text

if TYPE_CHECKING:
    from mlstack.model.diff import Change
    from mlstack.model.fields import FieldChange


def digest_of(value: Any) -> str:
    """Give the hash of any plain value; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def fingerprint(changed: Iterable[FieldChange]) -> str:
    """Give the hash of differences with their true values; these cannot be read from it.

    A map that comes or goes as a whole counts as its fields: whether others have something in it too does
    not matter.
    """
    return digest_of(sorted((path, *row) for path, row in _rows(changed).items()))


def _rows(changed: Iterable[FieldChange]) -> dict[str, tuple[str, str]]:
    """Give the hashes of what is there and what is wanted, by field; a side that says nothing is empty."""
    rows: dict[str, tuple[str, str]] = {}
    for one in changed:
        for path, value in _leaves(one.path, one.old):
            rows[path] = (digest_of(value), rows.get(path, ("", ""))[1])
        for path, value in _leaves(one.path, one.new):
            rows[path] = (rows.get(path, ("", ""))[0], digest_of(value))
    return rows


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if value is None:
        return
    if not isinstance(value, Mapping) or not value:
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{path}{step_text(f'f:{key}')}", inner)


_LISTED = 5  # enough to see what it is about
_DOES = {
    "create": "it would be created",
    "update": "it would be updated",
    "recreate": "it would be made anew",
    "delete": "it would be deleted",
    "unchanged": "it is as wanted already",
    "missing": "it is not there any more",
    "kept": "it would be kept",
}


def what_moved(approved: Change, now: Change) -> str:
    """Say in one line in what a change differs from the one that was approved."""
    found = list(dict.fromkeys(_moved(approved, now)))
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return (", ".join(found[:_LISTED]) or "its values") + more


def _moved(approved: Change, now: Change) -> Iterator[str]:
    if approved.live_uid and now.live_uid != approved.live_uid:
        yield "it was made anew by somebody else" if now.live_uid else "it is gone"
        return
    if now.action != approved.action:
        yield _DOES[now.action]
    old, new = _rows(approved.fields), _rows(now.fields)
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            yield f"`{path}` is as wanted already"
        elif path not in old:
            yield f"`{path}` differs as well"
        elif old[path] != new[path]:
            yield f"`{path}` has another value"
    for path, manager in sorted(set(now.left) - set(approved.left)):
        yield f"`{path}` belongs to `{manager}` now"
    for path, _ in sorted(set(approved.left) - set(now.left)):
        yield f"`{path}` belongs to nobody else any more"
