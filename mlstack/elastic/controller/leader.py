"""One controller leads, the others stand by: a Lease, and no write once it may be lost."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread

from mlstack.errors import ClusterError, ConflictError, ForbiddenError, UsageError
from mlstack.kube.client import Cluster
from mlstack.kube.lease import API_VERSION, HeldError, Lease, LostError, Term

DURATION_S = 15
RENEW_S = 10.0
"""A steady controller writes this alone, and so once in ten seconds."""

RETRY_S = 2.0
SURE_S = 13.0
"""So long after a renewal was asked for nobody else can hold it; two seconds are for slow requests."""


class NotLeadingError(Exception):
    """Raised instead of a write by a controller that does not lead, or may not lead any more."""


class LeaderElector:
    """Wants to lead, leads, and stands back.

    `error` is what kept the lease from being asked for the last time; None where it was held or is ours.
    """

    def __init__(
        self,
        lease: Lease,
        monotonic_s: Callable[[], float],
        log: Callable[[str], None],
        is_gone: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._lease, self._monotonic_s, self._log, self._is_gone = lease, monotonic_s, log, is_gone
        self._lock, self._closed = Lock(), Event()
        self._thread: Thread | None = None
        self._term: Term | None = None
        self._sure_until_s = 0.0
        self._other: tuple[str, float] = ("", 0.0)  # version of another's lease, and since when it is that
        self._reported, self._leader = "", ""
        self.error: ClusterError | None = None

    def start(self) -> None:
        """Begin to stand for election, in a thread."""
        self._thread = Thread(target=self._elect, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stand back: nothing is written any more, and the lease is free at once."""
        self._closed.set()
        with self._lock:
            term, self._term = self._term, None
        if self._thread is not None:
            self._thread.join(RETRY_S)
        if term is not None:
            self._free(term)

    @property
    def is_leading(self) -> bool:
        """Tell whether the lease is ours for certain."""
        with self._lock:
            return self._term is not None and self._monotonic_s() < self._sure_until_s

    @property
    def transitions(self) -> int | None:
        """Give how often the lease has changed hands, None while it is not ours."""
        with self._lock:
            return self._term.transitions if self._term is not None else None

    def check(self) -> None:
        """Return if the lease is ours for certain.

        Raises:
            NotLeadingError: it is not, or it may have expired.
        """
        if not self.is_leading:
            raise NotLeadingError("this controller does not lead")

    def attempt(self) -> float:
        """Take or renew the lease once; gives the seconds until the next attempt."""
        asked_s = self._monotonic_s()
        try:
            if self._term is None:
                return self._try_to_take(asked_s)
            self._hold(self._lease.renew(self._term), asked_s)
        except HeldError as error:
            return self._stand_by(error.term.holder)
        except LostError as error:
            return self._lose(
                f"the lease went to {error.term.holder}" if error.term else "the lease was deleted"
            )
        except ClusterError as error:
            if self._term is None:
                self.error = error
            elif self._monotonic_s() >= self._sure_until_s:
                return self._lose("the lease could not be renewed in time")
            return RETRY_S
        return RENEW_S

    def report(self) -> None:
        """Say what keeps the lease from being asked for, once while it lasts: for those that go on trying."""
        before, self._reported = self._reported, str(self.error or "")
        if self._reported not in ("", before):
            self._log(f"the lease cannot be had: {self._reported}")

    def _elect(self) -> None:
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            try:
                pause_s = self.attempt()
                self.report()
            except Exception as error:  # a thread has no caller: say it, and try again
                self._log(f"lease: {error!r}")
                pause_s = RETRY_S

    def _try_to_take(self, asked_s: float) -> float:
        """Look at the lease, and take it when it is free or nobody has renewed it for as long as it lasts."""
        held, holder = self._lease.read(), self._lease.holder
        if held is not None and held.holder != holder and not self._is_gone(held.holder):
            if self._other[0] != held.version:
                self._other = (held.version, asked_s)
            if asked_s - self._other[1] < held.duration_s:
                return self._stand_by(held.holder)
        taken = self._lease.take(is_gone=self._is_gone)
        if self._closed.is_set():
            self._free(taken.term)
            return RETRY_S
        self._hold(taken.term, asked_s)
        before = f" after {taken.before.holder}" if taken.before else ""
        self._log(f"{holder} leads{before} (transition {taken.term.transitions})")
        return RENEW_S

    def _hold(self, term: Term, asked_s: float) -> None:
        with self._lock:
            if not self._closed.is_set():
                self._term, self._sure_until_s = term, asked_s + SURE_S
        self._leader, self.error = "", None

    def _lose(self, why: str) -> float:
        with self._lock:
            self._term = None
        self._other = ("", 0.0)
        self._log(f"{self._lease.holder} does not lead any more: {why}")
        return RETRY_S

    def _stand_by(self, holder: str) -> float:
        """Say who has the lease and where it is, once for each holder."""
        self.error = None
        if holder != self._leader:
            self._leader, ref = holder, self._lease.ref
            self._log(f"{self._lease.holder} stands by: {holder} has the Lease `{ref.namespace}/{ref.name}`")
        return RETRY_S

    def _free(self, term: Term) -> None:
        """Let the next one lead at once; the Lease stays, or its transitions would be counted anew."""
        cluster, ref = self._lease.cluster, self._lease.ref
        try:
            live = cluster.get(ref)
            if live is None or live["metadata"]["uid"] != term.uid:
                return
            spec = dict(live.get("spec") or {})
            if spec.pop("holderIdentity", None) == term.holder:
                cluster.replace({**live, "spec": spec})
        except (ClusterError, ConflictError) as error:
            self._log(f"the lease was not released: {error}")


def lease_namespace(cluster: Cluster, name: str, *, default: str, log: Callable[[str], None]) -> str:
    """Give the namespace of the Lease of this name that is there, else the default.

    Two controllers whose Leases are in different namespaces would both lead.

    Raises:
        UsageError: there are several.
        ClusterError: the cluster does not answer.
    """
    try:
        listing = cluster.list(API_VERSION, "Lease", fields=f"metadata.name={name}", metadata_only=True)
    except ForbiddenError:
        log(
            f"the Lease is `{default}/{name}`: no right to list Leases of all namespaces. "
            "With one elsewhere, another controller leads beside this one: see `--lease-namespace`"
        )
        return default
    namespaces = sorted(str(lease["metadata"]["namespace"]) for lease in listing.items)
    if len(namespaces) > 1:
        refs = ", ".join(f"`{namespace}/{name}`" for namespace in namespaces)
        raise UsageError(
            f"there are several Leases of controllers: {refs}",
            hint=f"say which is meant: --lease-namespace {namespaces[0]}; "
            "delete those that no controller uses",
        )
    return namespaces[0] if namespaces else default
