"""Ask the server what it would make of an object that is new."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.errors import InvalidError, MlstackError
from mlstack.model import adoption, fields, payload
from mlstack.model.objects import MANAGER

_NEW_UID = "(UID of the new object)"


def as_new(cluster: Cluster, data: Mapping[str, Any], live: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give what a creation would make of an object that exists; None if the server refuses it.

    The name of a definition is fixed, so it is always refused.
    """
    answer = attempt(cluster, data, live)
    return None if isinstance(answer, MlstackError) else answer


def attempt(
    cluster: Cluster, data: Mapping[str, Any], live: Mapping[str, Any]
) -> Mapping[str, Any] | MlstackError:
    """Give what a creation would make of an object, or what the server has against it.

    It is asked about under another name. In the answer stand its own name, and the live object's UID and
    addresses where the server puts those of the new one, so that only true differences are left.
    """
    name = str(data["metadata"]["name"])
    other = f"{name[:40]}-mlstack-probe"
    copy = {**data, "metadata": {**data["metadata"], "name": other}}
    try:
        try:
            answer = cluster.apply(copy, dry_run=True).object
        except InvalidError as error:
            if other not in repr((error.message, error.causes)):
                raise
            answer = cluster.apply(_labelled(copy, name, other), dry_run=True).object  # its labels name it
    except MlstackError as error:  # whatever speaks against the copy, the caller knows what to make of it
        return _renamed(error, other, name)
    uids = str(answer["metadata"]["uid"]), str(live["metadata"]["uid"])
    owned = fields.paths(fields.owned(live, MANAGER))
    chosen = [path for path in owned if adoption.is_allocated(fields.path_text(path))]
    unsaid = [path for path in chosen if not payload.says(data, path)]
    return payload.cut(_as_itself(answer, live, (other, name), uids), unsaid)


def _labelled(value: Any, name: str, other: str, *, inside: bool = False) -> Any:
    """Give an object whose labels and selectors say another name where they said its own."""
    if isinstance(value, Mapping):
        return {
            key: _labelled(inner, name, other, inside=inside or key in ("labels", "matchLabels"))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_labelled(inner, name, other, inside=inside) for inner in value]
    return other if inside and value == name else value


def _as_itself(value: Any, live: Any, names: tuple[str, str], uids: tuple[str, str]) -> Any:
    """Put an object's own name and UID where the server put those of a copy."""
    if isinstance(value, Mapping):
        beside = live if isinstance(live, Mapping) else {}
        return {key: _as_itself(inner, beside.get(key), names, uids) for key, inner in value.items()}
    if isinstance(value, list):
        others = live if isinstance(live, list) and len(live) == len(value) else [None] * len(value)
        return [_as_itself(inner, one, names, uids) for inner, one in zip(value, others, strict=True)]
    if not isinstance(value, str):
        return value
    uid = uids[1] if isinstance(live, str) and uids[1] in live else _NEW_UID
    return value.replace(*names).replace(uids[0], uid)


def _renamed(error: MlstackError, other: str, name: str) -> MlstackError:
    """Give an error that speaks of the object, not of its copy."""
    error.message = error.message.replace(other, name)
    if isinstance(error, InvalidError):
        error.causes = tuple(
            replace(cause, message=cause.message.replace(other, name)) for cause in error.causes
        )
    return error
