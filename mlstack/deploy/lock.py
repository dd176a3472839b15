"""The lock of an environment: a Lease that one run at a time holds, renewed while it lasts, then released."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event as Flag
from threading import RLock, Thread
from typing import Any

from mlstack.app.environment import Environment
from mlstack.clock import STILL_S, Clock
from mlstack.deploy.changes import OnEvent, RunEvent, RunEventKind
from mlstack.deploy.target import Holder, explained
from mlstack.errors import ClusterError, LockedError
from mlstack.kube.client import Cluster, GuardedClient, ObjectRef, asked_once
from mlstack.kube.parallel import HeldError, Lease, LostError, Term
from mlstack.objects.kube_object import environment_marks, records_name

WAIT_S = 30.0
"""How long a run waits for another's lock unless told otherwise: longer than that of a dead one lasts."""

_RENEWALS = 4  # while a Lease lasts; three may fail
_PAUSE_S = 1.0
_RELEASE_S = 4.0


def readable_holder(name: str) -> str:
    """Name a holder as people do: `ada@laptop (pid 4711)`; what has no such form stays as it is."""
    who, slash, rest = name.partition("/")
    pid = rest.partition("/")[0]
    return f"{who} (pid {pid})" if slash and pid.isdigit() else name


@contextmanager
def hold(
    cluster: Cluster,
    place: Environment,
    app: str,
    *,
    holder: Holder,
    clock: Clock,
    on_event: OnEvent,
    timeout_s: float = WAIT_S,
) -> Iterator[Cluster]:
    """Hold the lock of an app's environment; gives the cluster to write to while it is held.

    That cluster refuses to write once the lock is lost. Whatever ends the run releases the lock. The
    namespace of the environment must be there; `timeout_s` is how long to wait for another run, 0 refuses at
    once; `on_event` is told about waiting and about a lock taken over.

    Raises:
        LockedError: another run holds it; later, before a write: it was lost.
        ClusterError: the cluster does not answer or refuses.
    """
    lease = lease_of(cluster, place, app, holder=holder, clock=clock)
    renewer = _Renewer(lease, place, clock)
    try:
        ref = ObjectRef("coordination.k8s.io/v1", "Lease", place.namespace, lease.name)
        so = "nothing was written"
        with explained(cluster, ref, app=app, environment=place.name, so=so, what="lock"):
            term = _taken(lease, place, holder, clock=clock, on_event=on_event, timeout_s=timeout_s)
        renewer.start(term)
        if term.before is not None:
            who = describe(term.before)
            on_event(RunEvent("note", None, f"took over the lock of {who}, who did not release it"))
        yield GuardedClient(cluster, fence=renewer.fence)
    except KeyboardInterrupt:
        renewer.end(is_unsure=True)
        raise
    finally:
        renewer.end()


class LastingLock(ExitStack):
    """A lock for several runs, one after the other: the first takes it, the end of the block releases it.

    Entering the block takes nothing yet: the namespace of the lock may have to be made first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cluster: Cluster | None = None

    def cluster(self, lock: AbstractContextManager[Cluster]) -> Cluster:
        """Give the cluster to write to; takes the lock unless it is held already."""
        if self._cluster is None:
            self._cluster = self.enter_context(lock)
        return self._cluster


def release_stale(cluster: Cluster, place: Environment, app: str, *, holder: Holder, clock: Clock) -> None:
    """Take away the lock of a run that was killed, where there is nothing to lock for now.

    Whoever may not, or cannot tell, leaves it: it expires.
    """
    lease = lease_of(cluster, place, app, holder=holder, clock=clock)
    with suppress(ClusterError):
        term = lease.read()
        if term is not None and (holder.is_gone(term.holder) or lease.left_s() <= 0):
            lease.release(term)


def lease_of(cluster: Cluster, place: Environment, app: str, *, holder: Holder, clock: Clock) -> Lease:
    """Give the Lease that is the lock of an app's environment."""
    return Lease(
        cluster=cluster,
        namespace=place.namespace,
        name=records_name(app, place.name),
        holder=holder.name,
        now_s=clock.now_s,
        labels=environment_marks(app, place.name),
    )


def describe(term: Term) -> str:
    """Say who holds a lock since when: `ada@laptop (pid 4711) since 2026-11-22 02:40:11 UTC`."""
    since = datetime.fromtimestamp(term.acquired_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{readable_holder(term.holder)} since {since}"


def _taken(
    lease: Lease, place: Environment, holder: Holder, *, clock: Clock, on_event: OnEvent, timeout_s: float
) -> Term:
    deadline_s, waits_for, told_s = clock.now_s() + timeout_s, "", 0.0
    while True:
        try:
            return lease.take(is_gone=holder.is_gone)
        except HeldError as held:
            remaining_s = deadline_s - clock.now_s()
            if remaining_s <= 0:
                raise LockedError(
                    f"environment `{place.name}` is locked: held by {describe(held.term)},"
                    f" expires in {held.left_s:.0f} s unless that run goes on",
                    hint="wait for it: --lock-timeout 5m; if you know that run to be dead:"
                    f" mlstack unlock {place.name}",
                ) from None
            if held.term.holder != waits_for or clock.now_s() - told_s >= STILL_S:
                kind: RunEventKind = "still" if held.term.holder == waits_for else "pending"
                waits_for, told_s = held.term.holder, clock.now_s()
                text = f"until environment `{place.name}` is free: held by {describe(held.term)}"
                on_event(RunEvent(kind, None, text))
            clock.sleep(min(_PAUSE_S, remaining_s))


class _Renewer:
    """Keeps a lock that was taken, and knows when it is lost."""

    def __init__(self, lease: Lease, place: Environment, clock: Clock) -> None:
        self._lease, self._place, self._clock = lease, place, clock
        # Who writes meanwhile waits for the server in its own time; nobody waits for a renewal.
        self._at_once = replace(lease, cluster=asked_once(lease.cluster))
        self._term: Term | None = None
        self._renewed_s = clock.now_s()
        self._ended, self._let_go = Flag(), False
        self._lost: LockedError | None = None
        self._mutex = RLock()
        # A second Ctrl-C ends the process at once: nothing waits for this thread then.
        self._thread = Thread(target=self._keep_renewing, name="mlstack-lock", daemon=True)

    def start(self, term: Term) -> None:
        self._term, self._renewed_s = term, self._clock.now_s()
        self._thread.start()

    def end(self, *, is_unsure: bool = False) -> None:
        """Stop renewing and release the lock, once; what cannot be released soon expires.

        It `is_unsure` whether the lock is ours where a person cut off the request for it.
        """
        if self._ended.is_set() or (self._term is None and not is_unsure):
            return
        self._ended.set()
        # Nobody waits for a server that is silent: a person who interrupts wants an end.
        release = Thread(target=self._release, name="mlstack-unlock", daemon=True)
        release.start()
        try:
            release.join(_RELEASE_S)
        except KeyboardInterrupt:  # all is done but this
            release.join(_RELEASE_S)
            raise

    def _release(self) -> None:
        with self._mutex, suppress(ClusterError):
            term = self._term or self._lease.read()
            ours = term is not None and term.holder == self._lease.holder
            if term is not None and ours and self._lost is None and not self._let_go:
                self._lease.release(term)

    def fence(self, verb: str, written: Any) -> None:
        """Raise LockedError if the lock was lost, ClusterError if nobody can tell whose it is.

        Lets go of the lock when this very run deletes its namespace.
        """
        with self._mutex:
            if self._lost is not None:
                raise self._lost
            overdue_s = self._clock.now_s() - self._renewed_s - self._lease.duration_s / 2
            if overdue_s > 0 and not self._let_go:  # the machine slept, or the server was away
                self._renew()
        if verb == "delete" and (written.kind, written.name) == ("Namespace", self._lease.namespace):
            self._let_go = True

    def _keep_renewing(self) -> None:
        usual_s = pause_s = self._lease.duration_s / _RENEWALS
        while not self._ended.wait(pause_s):
            with self._mutex:
                if self._lost is not None or self._let_go or self._ended.is_set():
                    return
                try:
                    self._renew()
                    pause_s = usual_s
                except ClusterError:  # who is away may be back before the lock expires; a loss is remembered
                    pause_s = min(usual_s, _PAUSE_S)

    def _renew(self) -> None:
        began_s = self._clock.now_s()
        if self._term is None:
            return
        try:
            self._term = self._at_once.renew(self._term)
        except LostError as lost:
            self._lost = self._lost_error(lost.term)
            raise self._lost from None
        self._renewed_s = began_s

    def _lost_error(self, now: Term | None) -> LockedError:
        place, is_going = self._place, False
        if now is None:
            with suppress(ClusterError):  # else nobody can tell
                live = self._lease.cluster.get(ObjectRef("v1", "Namespace", "", place.namespace))
                is_going = live is None or bool(live["metadata"].get("deletionTimestamp"))
        if is_going:
            return LockedError(
                f"namespace `{place.namespace}` is being deleted, and the lock of environment `{place.name}`"
                " with it; nothing more was written",
                hint=f"wait until `kubectl get namespace {place.namespace}` finds nothing, then run the"
                " command again",
            )
        by = f": {describe(now)} has it now" if now is not None else ""
        return LockedError(
            f"this run lost the lock of environment `{place.name}`{by}; nothing more was written",
            hint=f"somebody ran `mlstack unlock`, or took the lock over; see what is there with"
            f" `mlstack diff {place.name}`, then run the command again",
        )
