"""Ask the server what becomes of an object, again until nobody loses a field who is to keep it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.cluster.api import Applied, Cluster
from mlstack.errors import ConflictError, FieldConflict, InvalidError
from mlstack.model import conflicts, fields, payload
from mlstack.model.conflicts import Lost, Policy
from mlstack.model.fields import MISSING
from mlstack.model.objects import MANAGER, KubeObject

_ROUNDS = 4  # a cut may show what lay below it; more than one further round was never needed


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What is to be sent, and what the server would make of it.

    Attributes:
        payload: what is to be sent, without the fields that others keep.
        forced: the answer to the forced dry run of it.
        taken: fields that others lose.
        left: fields that others keep although we want another value; what our own files tell to ignore
            is not told.
    """

    payload: Mapping[str, Any]
    forced: Applied
    taken: tuple[Lost, ...]
    left: tuple[Lost, ...]


def settle(
    cluster: Cluster, wanted: KubeObject, data: Mapping[str, Any], live: Mapping[str, Any], policy: Policy
) -> Settled:
    """Find what can be sent without taking what others are to keep; nothing is written.

    Args:
        cluster: the server to ask.
        wanted: the object, for messages.
        data: what we want to send.
        live: the object as it is.
        policy: who is to have which field.

    Raises:
        ConflictError: what others keep cannot be left out.
        InvalidError: the server refuses the object as it is wanted.
    """
    left: list[Lost] = []
    sent = dict(data)
    for _ in range(_ROUNDS):
        forced = _ask(cluster, wanted, sent, live, left)
        taken, theirs = conflicts.split(conflicts.lost(live, forced.object), policy)
        fitted = _without_ignored(payload.cut(sent, _paths(theirs)), live, forced.object, policy)
        left += [loss for loss in theirs if not all(policy.ignored(path) for path in loss.paths)]
        if fitted == sent and not theirs:
            return Settled(payload=sent, forced=forced, taken=taken, left=tuple(left))
        if fitted == sent:
            break
        sent = fitted
    raise _cannot_leave(wanted, left, "they are part of something else that this app sets")


def with_uid(data: Mapping[str, Any], uid: str, version: str = "") -> dict[str, Any]:
    """Give a payload that can only change this very object, in this version if one is given."""
    precise = {"resourceVersion": version} if version else {}
    return {**data, "metadata": {**data["metadata"], "uid": uid, **precise}}


def _ask(
    cluster: Cluster, wanted: KubeObject, data: Mapping[str, Any], live: Mapping[str, Any], left: list[Lost]
) -> Applied:
    try:
        return cluster.apply(with_uid(data, live["metadata"]["uid"]), force=True, dry_run=True)
    except InvalidError as error:
        if not left:
            raise
        said = "; ".join(f"`{cause.field}` {cause.message}" for cause in error.causes) or error.message
        raise _cannot_leave(wanted, left, f"without them the object is not valid: {said}") from error


def _paths(losses: Iterable[Lost]) -> list[payload.Path]:
    return [path for loss in losses for path in loss.paths]


def _without_ignored(
    data: dict[str, Any], live: Mapping[str, Any], forced: Mapping[str, Any], policy: Policy
) -> dict[str, Any]:
    """Leave fields as they are that nobody is to change.

    Where others own the field too, or we do not, it is left out. Where we alone own it, leaving it out
    would remove it: the live value is sent.
    """
    if not policy.ignore:
        return data
    own = set(fields.paths(fields.owned(live, MANAGER)))
    for path in sorted(own | set(fields.paths(fields.owned(forced, MANAGER)))):
        if not policy.ignored(path):
            continue
        value = payload.value_at(live, path)
        if path not in own or value is MISSING or conflicts.others_own(live, path):
            data = payload.cut(data, [path])
        elif not path[-1].startswith("k:"):
            data = payload.put(data, path, value)
    return data


def _cannot_leave(wanted: KubeObject, left: Iterable[Lost], why: str) -> ConflictError:
    losses = tuple(left)
    found = tuple(
        FieldConflict(manager=loss.owner.manager, path=text, subresource=loss.owner.subresource)
        for loss in losses
        for text in loss.texts
    )
    what = "; ".join(f"{', '.join(f'`{text}`' for text in loss.texts)} to {loss.owner}" for loss in losses)
    return ConflictError(
        f"`{wanted.identity}` cannot leave {what}: {why}",
        conflicts=found,
        where=f"component {wanted.component}",
        hint=f"take the fields with --force-conflicts, or with the annotation `{conflicts.FORCE_FIELDS}`"
        " on the object; or let that program go",
    )
