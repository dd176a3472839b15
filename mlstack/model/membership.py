"""How an inventory changes with a run: widened before the first write, settled by what was done."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mlstack.model.diff import Change
from mlstack.model.inventory import Inventory, Member, owned_hash, payload_hash, people_hash, shared_hash
from mlstack.model.objects import Identity


def widened(inventory: Inventory, changes: Iterable[Change]) -> Inventory:
    """Give the union of an inventory and what a run is going to write.

    What is about to be written loses its hashes: until the write is known to have arrived they say nothing,
    and our own half-done writes would not show in them.
    """
    return inventory.with_members(
        _before(change, inventory.members.get(change.identity)) for change in changes if is_member(change)
    )


def settled(
    inventory: Inventory,
    changes: Iterable[Change],
    *,
    written: Mapping[Identity, Mapping[str, Any]],
    gone: Collection[Identity],
) -> Inventory:
    """Give an inventory after a run, however far that came.

    Args:
        inventory: as it was widened.
        changes: what was to be done.
        written: the objects that were written, as the server answered.
        gone: members that are not in the cluster any more, or are not ours.
    """
    seen = [
        _after(change, inventory.members.get(change.identity), written.get(change.identity))
        for change in changes
        if is_member(change)
    ]
    return inventory.without(gone).with_members(seen)


def is_member(change: Change) -> bool:
    """Tell whether a change brings an object that belongs to the environment."""
    return change.desired is not None and change.action != "missing" and bool(change.component)


def _member(change: Change, known: Member | None) -> Member:
    return Member(
        identity=change.identity,
        api_version=change.api_version,
        component=change.component,
        uid=change.live_uid,
        payload_hash=known.payload_hash if known else "",
        owned_hash=known.owned_hash if known else "",
        people_hash=known.people_hash if known else "",
        made_elsewhere=change.made_elsewhere,
    )


def _before(change: Change, known: Member | None) -> Member:
    if change.writes:
        return replace(_member(change, None), uid=known.uid if known else change.live_uid)
    return _member(change, known)


def _after(change: Change, known: Member | None, live: Mapping[str, Any] | None) -> Member:
    if live is None and not change.writes:
        live = change.seen
    if live is not None:
        return replace(
            _member(change, None),
            uid=str(live["metadata"].get("uid") or change.live_uid),
            payload_hash=payload_hash(_sent(change)),
            owned_hash=_live_hash(change, live),
            people_hash=people_hash(live),
        )
    if change.writes:
        return known or _before(change, None)
    return _member(change, known)


def _live_hash(change: Change, live: Mapping[str, Any]) -> str:
    ours = change.subject.labels.items() <= (live["metadata"].get("labels") or {}).items()
    return owned_hash(live) if ours else shared_hash(live)


def _sent(change: Change) -> Mapping[str, Any]:
    if change.payload is not None:
        return change.payload
    return change.desired.data if change.desired is not None else {}
