"""What an environment has in its cluster and the files no longer bring: found, judged, shown as changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mlstack.engine.records.survey import Live, Survey, survey
from mlstack.engine.target import Reached
from mlstack.errors import MlstackError, UsageError
from mlstack.model import pruning
from mlstack.model.diff import Change
from mlstack.model.inventory import Inventory, Member
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.obstacles import obstacles
from mlstack.model.order import last_first
from mlstack.model.pruning import Spare, Verdict


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """What becomes of members that nothing brings any more.

    Attributes:
        changes: a deletion each, or `kept` with the reason; in the order of execution.
        forgotten: members that are not there any more, or are another's now: they leave the inventory.
        notes: what is to be said.
        of: how many members were looked through.
    """

    changes: tuple[Change, ...] = ()
    forgotten: frozenset[Identity] = frozenset()
    notes: tuple[str, ...] = ()
    of: int = 0

    @property
    def is_too_much(self) -> bool:
        """Tell whether it looks like a mistake."""
        return pruning.is_too_much(self._going, self.of)

    @property
    def _going(self) -> int:
        return sum(change.action == "delete" for change in self.changes)

    @property
    def warning(self) -> str:
        """Say how much would go."""
        return f"{self._going} of {self.of} deployed objects would be deleted"


def prune(reached: Reached, inventory: Inventory, changes: Sequence[Change]) -> Pruning:
    """Find the members of an inventory that the files no longer bring, and say what becomes of each.

    With selected components only theirs are looked at; what another component of the environment brings
    now has moved and stays.

    Args:
        reached: what is wanted, and where to look; nothing is written.
        inventory: what was deployed.
        changes: what becomes of what is wanted.

    Raises:
        ClusterError: the cluster cannot say whether a member is there.
    """
    members = _looked_through(reached, inventory)
    brought = {change.identity for change in changes if change.desired is not None}
    spare = [one for one in members if one.identity not in brought]
    if not spare:
        return Pruning(of=len(members))
    elsewhere, doubt = _brought_elsewhere(reached) if reached.selective else (frozenset[Identity](), "")
    seen = survey(reached.cluster, [one for one in spare if one.identity not in elsewhere])
    uids = {change.live_uid for change in changes if change.desired is not None} - {""}
    verdicts = {one.identity: _verdict(one, seen, inventory, uids, doubt) for one in seen.members}
    named = [_change(one, seen, verdicts[one.identity]) for one in seen.members]
    return Pruning(
        changes=_ordered([change for change in named if change is not None]),
        forgotten=frozenset(key for key, one in verdicts.items() if one.fate in ("gone", "foreign")),
        notes=tuple(f"{key} is left alone: it {one.reason}" for key, one in _foreign(verdicts)),
        of=len(members),
    )


def refuse_too_much(found: Pruning) -> None:
    """Raise if so much would be deleted that the files look wrong.

    Raises:
        UsageError: nothing is done without `--allow-large-prune`.
    """
    if found.is_too_much:
        raise UsageError(
            f"{found.warning}: more than half",
            hint="see `mlstack diff`; if this is meant, --allow-large-prune; to leave them, --no-prune",
        )


def _looked_through(reached: Reached, inventory: Inventory) -> tuple[Member, ...]:
    if not reached.selective:
        return inventory.ordered()
    return inventory.of_components(reached.state.components)


def _brought_elsewhere(reached: Reached) -> tuple[frozenset[Identity], str]:
    """Give what all components of the environment bring, or why that cannot be said."""
    try:
        whole = reached.whole or replace(reached.target, components=()).desired()
    except MlstackError as error:
        return frozenset(), f"may have moved to a component that cannot be rendered: {error.message}"
    return frozenset(one.identity for one in whole.objects), ""


def _verdict(member: Member, seen: Survey, inventory: Inventory, uids: set[str], doubt: str) -> Verdict:
    if member.identity in seen.hidden:
        return Verdict("kept", "its API does not answer at present")
    live = seen.live.get(member.identity)
    found = pruning.judge(live, member, inventory, spare=Spare())
    if live is not None and live["metadata"].get("uid") in uids:
        return Verdict("gone")  # the files bring it under another API group
    return Verdict("kept", doubt) if found.fate == "delete" and doubt else found


def _change(member: Member, seen: Survey, verdict: Verdict) -> Change | None:
    if verdict.fate not in ("kept", "delete"):
        return None
    live = seen.live.get(member.identity)
    return Change(
        identity=member.identity,
        component=member.component,
        api_version=member.api_version,
        action="delete" if verdict.fate == "delete" else "kept",
        reason=verdict.reason or _why(member, live),
        live_uid=str(live["metadata"]["uid"]) if live else "",
        writes=verdict.fate == "delete",
        found=None if live is None else KubeObject(data=live, component=member.component),
    )


def _why(member: Member, live: Live | None) -> str:
    why = f"component `{member.component}` no longer brings it"
    if live is None or not live["metadata"].get("deletionTimestamp"):
        return why
    held = obstacles(live)
    return f"{why}; it is being deleted already{f', and {held}' if held else ''}"


def _ordered(changes: list[Change]) -> tuple[Change, ...]:
    known = {change.identity: change for change in changes}
    return tuple(known[one] for one in last_first([change.subject for change in changes]))


def _foreign(verdicts: dict[Identity, Verdict]) -> Iterator[tuple[Identity, Verdict]]:
    return ((key, one) for key, one in verdicts.items() if one.fate == "foreign")
