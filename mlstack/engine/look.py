"""One object: what is there, and what a server-side apply would make of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.engine import probe, takeover
from mlstack.engine.outlook import Number, Outlook, holding
from mlstack.engine.settle import Settled, settle
from mlstack.errors import InvalidError, VersionGoneError
from mlstack.model import adoption, conflicts, fields, objects, payload, report
from mlstack.model.diff import Change
from mlstack.model.digest import digest_of, fingerprint
from mlstack.model.fields import FieldChange
from mlstack.model.objects import MANAGER, KubeObject
from mlstack.model.replacement import needs_new_run


class Look:
    """One object: what is there, what would become of it.

    Args:
        outlook: what holds for the run as a whole.
        wanted: the object.
    """

    def __init__(self, outlook: Outlook, wanted: KubeObject) -> None:
        """Hold the parts; nothing is asked."""
        self.outlook, self.wanted = outlook, wanted
        self.world, self.cluster = outlook.world, outlook.world.cluster
        self._data = outlook.payload(wanted)

    def change(self) -> Change:
        """Give what would happen to the object."""
        known = self.outlook.known
        seen = known.unchanged(self.wanted) if known else None
        if seen is not None:
            return self._as_left(seen)
        reachable = self.world.is_reachable(self.wanted)
        is_absent = known is not None and known.is_absent(self.wanted)
        live = self.world.live(self.wanted) if reachable and not is_absent else None
        if live is None:
            return self._new(reachable)
        if live["metadata"].get("deletionTimestamp"):
            return self._ending(live)
        if known and known.is_as_left(self.wanted, live):
            return self._as_left(live)
        return self._existing(live)

    def _change(self, **facts: Any) -> Change:
        sent = facts.pop("payload", self._data)
        return Change(
            identity=self.wanted.identity,
            component=self.wanted.component,
            api_version=self.wanted.api_version,
            desired=self.wanted,
            payload=None if sent == self.wanted.data else sent,
            **facts,
        )

    def _as_left(self, live: Mapping[str, Any]) -> Change:
        return self._change(action="unchanged", writes=False, live_uid=live["metadata"]["uid"])

    def _new(self, reachable: bool) -> Change:
        if not self.outlook.options.create:
            return self._change(action="missing", writes=False, reason="is not there, and creation is off")
        warnings: tuple[str, ...] = ()
        if reachable and self.outlook.check_new:
            warnings = self.cluster.apply(self.wanted.data, dry_run=True).warnings
        return self._creation(notes=warnings)

    def _creation(self, **facts: Any) -> Change:
        """Give a creation; the number that an autoscaler sets is sent once and handed over at once."""
        handover = None
        if self._data != self.wanted.data:
            path = self.outlook.scalers.path(self.wanted)
            handover = holding(self.wanted.data, path, payload.value_at(self.wanted.data, path))
        made = digest_of(self.wanted.data)
        return self._change(action="create", fingerprint=made, handover=handover, **facts)

    def _ending(self, live: Mapping[str, Any]) -> Change:
        if not self.outlook.options.create:
            return self._change(
                action="missing", writes=False, reason="is being deleted, and creation is off"
            )
        reason = "once the old one, which is being deleted, is gone"
        return self._creation(live_uid=live["metadata"]["uid"], reason=reason)

    def _existing(self, live: Mapping[str, Any]) -> Change:
        number = self.outlook.number(self.wanted, live)
        policy = self.outlook.policy(self.wanted)
        try:
            settled = settle(self.cluster, self.wanted, number.asked, live, policy)
        except VersionGoneError:
            return self._outdated(live)
        except InvalidError as error:
            return self._refused(live, error)
        gone = takeover.goes(self.cluster, live, settled) if adoption.adoptable(live) else ()
        notes = (
            *self._previous_owner(live),
            *settled.forced.warnings,
            *(conflicts.describe_taken(one) for one in settled.taken if one.said),
            *(conflicts.describe_left(one) for one in settled.left),
            *([number.note] if number.note else []),
            *takeover.describe(live, gone, adopt=self.outlook.options.adopt),
        )
        return self._compared(live, settled, number, gone, tuple(dict.fromkeys(notes)))

    def _compared(
        self,
        live: Mapping[str, Any],
        settled: Settled,
        number: Number,
        gone: tuple[FieldChange, ...],
        notes: tuple[str, ...],
    ) -> Change:
        """Tell what differs in what we own, and whether the object is written."""
        own, new = fields.owned(live, MANAGER), fields.owned(settled.forced.object, MANAGER)
        changed = {
            one.path: one for one in fields.compare(live, settled.forced.object, fields.union(own, new))
        }
        prepare: adoption.Patch = ()
        if self.outlook.options.adopt and adoption.adoptable(live):
            changed |= {one.path: one for one in gone}
            prepare = adoption.take_over(live, api_version=self.wanted.api_version, spare=number.spared)
        facts = {
            "notes": notes,
            "left": tuple((text, loss.owner.manager) for loss in settled.left for text in loss.texts),
            "payload": number.sent(settled.payload),
            "prepare": prepare,
            "handover": number.handover,
            "seen": _seen(live),
            **_precisely(live),
        }
        if changed:
            return self._differing(live, tuple(changed.values()), facts)
        writes = own != new or bool(prepare) or number.changes_hands
        return self._change(action="unchanged", writes=writes, **facts)

    def _differing(
        self, live: Mapping[str, Any], changed: tuple[FieldChange, ...], facts: Mapping[str, Any]
    ) -> Change:
        why = needs_new_run(self.wanted.with_data(live), changed)
        shown = {
            "fields": report.masked(self.wanted.identity, changed),
            "reason": why or "",
            "fingerprint": fingerprint(changed),
        }
        if why:  # made anew, it is sent whole
            return self._change(action="recreate", notes=facts["notes"], **_precisely(live), **shown)
        return self._change(action="update", **facts, **shown)

    def _outdated(self, live: Mapping[str, Any]) -> Change:
        """Give the change of an object whose field owners stand in a version that is not served any more."""
        tree = fields.union(fields.tree_of(self._data), {})
        changed = tuple(
            one for one in fields.compare(live, self._data, tree) if not one.path.startswith("apiVersion")
        )
        return self._change(
            action="update" if changed else "unchanged",
            fields=report.masked(self.wanted.identity, changed),
            fingerprint=fingerprint(changed),
            notes=(
                "its field owners are rewritten first: they stand in a version that is not served any more",
            ),
            prepare=adoption.reversioned(live, api_version=self.wanted.api_version),
            **_precisely(live),
        )

    def _previous_owner(self, live: Mapping[str, Any]) -> Iterator[str]:
        """Say it when the object so far belongs to another environment or app."""
        had, gets = self.wanted.with_data(live).labels, self.wanted.labels
        keys = (objects.APP_LABEL, objects.ENVIRONMENT_LABEL)
        if had.get(keys[0]) and any(had.get(key) != gets.get(key) for key in keys):
            yield f"takes it from environment `{had.get(keys[1])}` of app `{had.get(keys[0])}`"

    def _refused(self, live: Mapping[str, Any], error: InvalidError) -> Change:
        """Tell a change that cannot be made in place from an object that is wrong: ask under another name."""
        if probe.as_new(self.cluster, self.wanted.data) is None:
            raise error
        tree = fields.tree_of(self.wanted.data)
        changed = tuple(fields.compare(live, self.wanted.data, tree))
        why = needs_new_run(self.wanted.with_data(live), changed)
        if why is None:
            raise _cannot_change(self.wanted, error, self.world.state.environment) from error
        shown = report.masked(self.wanted.identity, changed)
        return self._change(
            action="recreate", fields=shown, reason=why, fingerprint=fingerprint(changed), **_precisely(live)
        )


def _precisely(live: Mapping[str, Any]) -> dict[str, str]:
    """Give which object, and which version of it, a change was computed from."""
    metadata = live["metadata"]
    return {"live_uid": str(metadata["uid"]), "live_version": str(metadata["resourceVersion"])}


def _seen(live: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: live[key] for key in ("apiVersion", "kind", "metadata") if key in live}


def _cannot_change(wanted: KubeObject, error: InvalidError, environment: str) -> InvalidError:
    named = sorted({cause.field for cause in error.causes if cause.field})
    what = ", ".join(f"`{name}`" for name in named) or "a field"
    return InvalidError(
        f"`{wanted.identity}`: {what} cannot change while the object exists",
        causes=error.causes,
        where=f"component {wanted.component}",
        hint=f"delete it first: `mlstack delete {environment} -c {wanted.component}`, then apply again",
    )
