"""A Lease in the cluster that one process at a time holds: take, renew, release, take over when it expired.

Every write is a compare-and-swap, so two that try at once never both succeed. Whether a Lease has expired is
told by the API server's own clock, from the times it notes beside field managers: the clocks of two machines
may differ by more than a Lease lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from mlstack.clock import micro_time
from mlstack.dataclass import Record
from mlstack.errors import ClusterError, ConflictError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef

API_VERSION = "coordination.k8s.io/v1"
DURATION_S = 15


class Term(Record):
    """A Lease as somebody holds it; times are seconds since 1970."""

    holder: str
    acquired_s: float  # since when, by the holder's clock
    renewed_s: float  # when the server last saw the holder
    duration_s: int  # how long it lasts after that
    transitions: int  # how often it went to another holder
    uid: str
    version: str
    before: Term | None = field(default=None, compare=False)  # from whom it was taken over unreleased

    def left_s(self, now_s: float) -> float:
        """Give how many seconds it still lasts; the server's times are whole seconds."""
        return min(self.renewed_s + self.duration_s + 1 - now_s, self.duration_s)


class HeldError(Exception):
    """Raised when somebody else holds a Lease, which lasts for `left_s` if it is not renewed."""

    def __init__(self, term: Term, left_s: float) -> None:
        super().__init__(term.holder)
        self.term, self.left_s = term, left_s


class LostError(Exception):
    """Raised when a Lease that was held is held no more; `term` is how it is now, None if it is gone."""

    def __init__(self, term: Term | None) -> None:
        super().__init__(term.holder if term else "gone")
        self.term = term


class Lease(Record):
    """One Lease, and who wants to hold it."""

    cluster: Cluster
    namespace: str
    name: str
    holder: str  # who we are; no other process may have the same name
    now_s: Callable[[], float]  # seconds since 1970
    duration_s: int = DURATION_S  # how long it lasts after each renewal
    labels: Mapping[str, str] | None = None

    @property
    def ref(self) -> ObjectRef:
        """Give the address of the Lease."""
        return ObjectRef(API_VERSION, "Lease", self.namespace, self.name)

    def read(self) -> Term | None:
        """Give the Lease as it is, None if nobody holds it."""
        live = self.cluster.get(self.ref)
        return _term(live) if live is not None and _holder(live) else None

    def take(self, *, is_gone: Callable[[str], bool] = lambda name: False) -> Term:
        """Take the Lease if it is free or has expired.

        Args:
            is_gone: tells whether a holder certainly runs no more, so that its Lease need not expire.

        Raises:
            HeldError: somebody else holds it.
            ClusterError: the cluster does not answer or refuses; without the namespace an
                ObjectNotFoundError.
        """
        while True:
            try:
                return _term(self.cluster.create(self._written(None)).object)
            except ConflictError:  # there is one already
                live = self.cluster.get(self.ref)
            if live is None:
                continue
            held = _holder(live) not in ("", self.holder) and not is_gone(_holder(live))
            left_s = self._left_s(live) if held else 0.0
            if left_s > 0:
                raise HeldError(_term(live), left_s)
            try:
                taken = self.cluster.replace(self._written(live)).object
            except (ConflictError, ObjectNotFoundError):  # somebody else was faster
                continue
            foreign = _holder(live) not in ("", self.holder)
            return replace(_term(taken), before=_term(live) if foreign else None)

    def renew(self, term: Term) -> Term:
        """Say that we are still here; a LostError says that somebody else has it, or that it was deleted."""
        while True:
            live = self.cluster.get(self.ref)
            if live is None or _holder(live) != self.holder or live["metadata"]["uid"] != term.uid:
                raise LostError(_term(live) if live is not None and _holder(live) else None)
            try:
                return _term(self.cluster.replace(self._written(live)).object)
            except (ConflictError, ObjectNotFoundError):
                continue

    def release(self, term: Term) -> None:
        """Delete the Lease if it is still ours."""
        version = term.version
        while True:
            try:
                self.cluster.delete(
                    self.ref, propagation="Background", uid=term.uid, resource_version=version
                )
            except ObjectNotFoundError:
                return
            except ConflictError:  # it was renewed in between, or somebody else has it
                live = self.cluster.get(self.ref)
                if live is None or _holder(live) != term.holder or live["metadata"]["uid"] != term.uid:
                    return
                version = str(live["metadata"]["resourceVersion"])
            else:
                return

    def left_s(self) -> float:
        """Give how many seconds the Lease lasts if it is not renewed; 0 where it is free."""
        live = self.cluster.get(self.ref)
        return 0.0 if live is None or not _holder(live) else max(0.0, self._left_s(live))

    def _left_s(self, live: Mapping[str, Any]) -> float:
        """Tell by the server's clock how long a Lease lasts; asks it by a write that does nothing."""
        try:
            dry = self.cluster.replace(self._written(live), dry_run=True).object
        except (ConflictError, ObjectNotFoundError):  # it was just renewed or released
            return _term(live).duration_s
        except ClusterError:
            return _term(live).left_s(self.now_s())
        return _term(live).left_s(_noted_s(dry) or self.now_s())

    def _written(self, live: Mapping[str, Any] | None) -> dict[str, Any]:
        """Give the Lease as it is when we hold it."""
        now = micro_time(self.now_s())
        spec = dict((live or {}).get("spec") or {})
        ours = spec.get("holderIdentity") == self.holder
        labels = {"labels": dict(self.labels)} if self.labels else {}
        new = {"namespace": self.namespace, "name": self.name, **labels}
        metadata = dict(live["metadata"]) if live is not None else new
        metadata.pop("managedFields", None)
        acquired = {} if ours else {"acquireTime": now}
        transitions = int(spec.get("leaseTransitions") or 0) + (live is not None and not ours)
        return {
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                **spec,
                **acquired,
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.duration_s,
                "leaseTransitions": transitions,
                "renewTime": now,
            },
        }


def _term(live: Mapping[str, Any]) -> Term:
    spec, metadata = live.get("spec") or {}, live["metadata"]
    renewed_s = _seconds(spec.get("renewTime")) or _seconds(metadata.get("creationTimestamp")) or 0.0
    return Term(
        holder=_holder(live),
        acquired_s=_seconds(spec.get("acquireTime")) or renewed_s,
        renewed_s=_noted_s(live) or renewed_s,
        duration_s=int(spec.get("leaseDurationSeconds") or DURATION_S),
        transitions=int(spec.get("leaseTransitions") or 0),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
    )


def _holder(live: Mapping[str, Any]) -> str:
    return str((live.get("spec") or {}).get("holderIdentity") or "")


def _noted_s(live: Mapping[str, Any]) -> float | None:
    """Give the latest time that the server noted beside a field manager."""
    noted = [_seconds(entry.get("time")) for entry in live["metadata"].get("managedFields") or ()]
    return max((time_s for time_s in noted if time_s is not None), default=None)


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
