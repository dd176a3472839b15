"""Write one object as it was approved: compare and swap, and look again where it moved meanwhile."""

from collections.abc import Callable, Mapping
from typing import Any

from mlstack.cluster.api import Applied, Cluster, ObjectRef
from mlstack.engine.comparing.settle import with_uid
from mlstack.errors import ConflictError, InvalidError, MlstackError, OutdatedError
from mlstack.model.diff import Change
from mlstack.model.digest import what_moved
from mlstack.model.fieldmanagers import HANDOVER

Again = Callable[[Change], Change]
"""Looks at an object once more and gives the change that would be made of it now."""

# Controllers write the status of a busy object several times a second, each from another version.
_TIMES = 20


class Sender:
    """Writes changes to a cluster.

    Args:
        cluster: where to write.
        again: looks at an object that moved since its change was worked out; without it such a write fails.
    """

    def __init__(self, cluster: Cluster, *, again: Again | None = None) -> None:
        """Hold the parts."""
        self._cluster, self._again = cluster, again

    def send(self, change: Change) -> Applied:
        """Write what a change says; nothing is taken that was not looked at before.

        Raises:
            OutdatedError: the object changed since it was shown.
        ConflictError: others made it meanwhile.
            ClusterError: the server refuses it.
        """
        if change.action in ("create", "recreate"):
            return self._create(change)
        for _ in range(_TIMES):
            try:
                return self._update(change)
            except _MovedError as moved:
                change = self._approved(change, moved.error)
            if not change.writes:
                return Applied(object=change.seen or {})
        raise ConflictError(f"`{change.identity}` changes faster than it can be written")

    def _create(self, change: Change) -> Applied:
        data = _desired(change)
        applied = self._cluster.apply(data)
        if not change.handover:
            return applied
        try:
            self._cluster.apply(change.handover, manager=HANDOVER)
            return self._cluster.apply(with_uid(_payload(change), applied.object["metadata"]["uid"]))
        except ConflictError:  # the autoscaler was quicker and has its field already
            return applied

    def _update(self, change: Change) -> Applied:
        version = change.live_version
        try:
            if change.prepare:
                version = _version(self._prepare(change))
            if change.handover:
                wanted = with_uid(change.handover, change.live_uid, version)
                version = _version(self._cluster.apply(wanted, manager=HANDOVER).object)
            payload = with_uid(_payload(change), change.live_uid, version)
            return self._cluster.apply(payload, force=True)
        except ConflictError as error:
            raise _MovedError(error) from error
        except InvalidError as error:
            if any(cause.field == "metadata.uid" for cause in error.causes):
                raise _MovedError(error) from error
            raise

    def _prepare(self, change: Change) -> Mapping[str, Any]:
        identity = change.identity
        ref = ObjectRef(change.api_version, identity.kind, identity.namespace, identity.name)
        try:
            return self._cluster.patch(ref, change.prepare, kind="json").object
        except InvalidError as error:
            if error.causes:
                raise
            raise _MovedError(error) from error  # its test of the version failed

    def _approved(self, change: Change, moved: MlstackError) -> Change:
        """Look again; only what was approved goes on."""
        if self._again is None:
            raise moved
        now = self._again(change)
        if now.digest == change.digest or _is_done(change, now):
            return now
        raise OutdatedError(
            f"`{change.identity}` changed since it was shown: {what_moved(change, now)}",
            where=f"component {change.component}" if change.component else None,
            hint="nothing of it was written; look at the difference and apply again",
        ) from moved


def _is_done(change: Change, now: Change) -> bool:
    """Tell whether somebody brought about meanwhile what was approved."""
    same = now.action == "unchanged" and now.live_uid == change.live_uid
    return same and set(now.left) <= set(change.left)


class _MovedError(Exception):
    """The object is not in the version that the change was computed from."""

    def __init__(self, error: MlstackError) -> None:
        super().__init__(error.message)
        self.error = error


def _desired(change: Change) -> Mapping[str, Any]:
    if change.desired is None:
        raise ValueError(f"nothing to write for {change.identity}")
    return change.desired.data


def _payload(change: Change) -> Mapping[str, Any]:
    return _desired(change) if change.payload is None else change.payload


def _version(live: Mapping[str, Any]) -> str:
    return str(live["metadata"]["resourceVersion"])
