"""One object: what is there, and what a server-side apply would make of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlstack.cluster.api import Applied
from mlstack.engine.surroundings import Surroundings
from mlstack.errors import ConflictError, FieldConflict, InvalidError, MlstackError
from mlstack.model import conflicts, fields, objects, report
from mlstack.model.conflicts import Taken
from mlstack.model.diff import Change
from mlstack.model.objects import MANAGER, KubeObject
from mlstack.model.replacement import needs_new_run


class Look:
    """One object: what is there, what would become of it.

    Args:
        world: what holds for the run as a whole.
        wanted: the object.
        create: whether it is to be made if it is not there.
        check_new: ask the server about it also where it is new.
    """

    def __init__(self, world: Surroundings, wanted: KubeObject, *, create: bool, check_new: bool) -> None:
        """Hold the parts; nothing is asked."""
        self.world, self.cluster, self.wanted = world, world.cluster, wanted
        self.create, self.check_new = create, check_new

    def change(self) -> Change:
        """Give what would happen to the object."""
        reachable = self.world.is_reachable(self.wanted)
        live = self.world.live(self.wanted) if reachable else None
        if live is None:
            return self._new(reachable)
        if live["metadata"].get("deletionTimestamp"):
            return self._ending(live)
        return self._existing(live)

    def _change(self, **facts: Any) -> Change:
        return Change(
            identity=self.wanted.identity,
            component=self.wanted.component,
            api_version=self.wanted.api_version,
            desired=self.wanted,
            **facts,
        )

    def _new(self, reachable: bool) -> Change:
        if not self.create:
            return self._change(action="missing", writes=False, reason="is not there, and creation is off")
        if not (reachable and self.check_new):
            return self._change(action="create")
        return self._change(
            action="create", notes=self.cluster.apply(self.wanted.data, dry_run=True).warnings
        )

    def _ending(self, live: Mapping[str, Any]) -> Change:
        uid = live["metadata"]["uid"]
        if not self.create:
            return self._change(
                action="missing", writes=False, reason="is being deleted, and creation is off"
            )
        return self._change(
            action="create", live_uid=uid, reason="once the old one, which is being deleted, is gone"
        )

    def _existing(self, live: Mapping[str, Any]) -> Change:
        uid = live["metadata"]["uid"]
        try:
            forced = self.cluster.apply(with_uid(self.wanted.data, uid), force=True, dry_run=True)
        except InvalidError as error:
            return self._refused(live, error)
        taken = conflicts.taken(live, forced.object)
        self._refuse_conflicts(taken)
        said = [conflicts.describe(one) for one in taken if one.manager != MANAGER]
        return self._compared(live, forced, (*self._previous_owner(live), *forced.warnings, *said))

    def _compared(self, live: Mapping[str, Any], forced: Applied, notes: tuple[str, ...]) -> Change:
        own, new = fields.owned(live, MANAGER), fields.owned(forced.object, MANAGER)
        changed = tuple(fields.compare(live, forced.object, fields.union(own, new)))
        uid = live["metadata"]["uid"]
        if not changed:
            return self._change(action="unchanged", writes=own != new, live_uid=uid)
        why = needs_new_run(self.wanted.with_data(live), changed)
        shown = report.masked(self.wanted.identity, changed)
        action = "recreate" if why else "update"
        return self._change(action=action, fields=shown, reason=why or "", notes=notes, live_uid=uid)

    def _previous_owner(self, live: Mapping[str, Any]) -> Iterator[str]:
        """Say it when the object so far belongs to another environment or app."""
        had, gets = self.wanted.with_data(live).labels, self.wanted.labels
        keys = (objects.APP_LABEL, objects.ENVIRONMENT_LABEL)
        if had.get(keys[0]) and any(had.get(key) != gets.get(key) for key in keys):
            yield f"takes it from environment `{had.get(keys[1])}` of app `{had.get(keys[0])}`"

    def _refused(self, live: Mapping[str, Any], error: InvalidError) -> Change:
        """Tell a change that cannot be made in place from an object that is wrong: ask under another name."""
        if not self._is_valid_elsewhere():
            raise error
        tree = fields.tree_of(self.wanted.data)
        changed = tuple(fields.compare(live, self.wanted.data, tree))
        why = needs_new_run(self.wanted.with_data(live), changed)
        if why is None:
            raise _cannot_change(self.wanted, error, self.world.state.environment) from error
        shown = report.masked(self.wanted.identity, changed)
        return self._change(action="recreate", fields=shown, reason=why, live_uid=live["metadata"]["uid"])

    def _is_valid_elsewhere(self) -> bool:
        metadata = {**self.wanted.metadata, "name": f"{self.wanted.name[:40]}-mlstack-probe"}
        try:
            self.cluster.apply({**self.wanted.data, "metadata": metadata}, dry_run=True)
        except MlstackError:  # whatever speaks against the copy, the first error is the one to show
            return False
        return True

    def _refuse_conflicts(self, taken: Iterable[Taken]) -> None:
        programs = [one for one in taken if not one.by_person]
        if not programs:
            return
        found = tuple(
            FieldConflict(manager=one.manager, path=path, subresource=one.subresource)
            for one in programs
            for path in one.paths
        )
        what = "; ".join(
            f"{', '.join(f'`{path}`' for path in one.paths)} to `{one.manager}`" for one in programs
        )
        component = self.wanted.component
        patch = f"environments/{self.world.state.environment}/patches/{component}.yaml"
        raise ConflictError(
            f"`{self.wanted.identity}` has fields that belong to a program: {what}",
            conflicts=found,
            where=f"component {component}",
            hint=f"leave the field to it (set it to null in {patch}), or stop that program and run"
            f" `kubectl apply --server-side --force-conflicts` once for this object",
        )


def with_uid(data: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Give a payload that can only change this very object, never make one anew."""
    return {**data, "metadata": {**data["metadata"], "uid": uid}}


def _cannot_change(wanted: KubeObject, error: InvalidError, environment: str) -> InvalidError:
    named = sorted({cause.field for cause in error.causes if cause.field})
    what = ", ".join(f"`{name}`" for name in named) or "a field"
    return InvalidError(
        f"`{wanted.identity}`: {what} cannot change while the object exists",
        causes=error.causes,
        where=f"component {wanted.component}",
        hint=f"delete it first: `mlstack delete {environment} -c {wanted.component}`, then apply again",
    )
