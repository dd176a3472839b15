"""What is kept of an environment in its cluster: its name, its marks, and the Lease of one run at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event as Flag
from threading import RLock, Thread
from typing import Any

from mlstack.app.environment import Environment
from mlstack.clock import STILL_S, Clock
from mlstack.dataclass import dataclass
from mlstack.deploy.changes import OnEvent, RunEvent, RunEventKind
from mlstack.errors import ClusterError, ForbiddenError, InvalidError, LockedError, TransientError
from mlstack.kube.client import Cluster, GuardedClient, ObjectRef, asked_once
from mlstack.kube.lease import HeldError, Lease, LostError, Taken, Term
from mlstack.objects.kube_object import (
    APP_LABEL,
    COMPONENT_LABEL,
    ENVIRONMENT_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    DesiredState,
    label_of,
    marks,
    selector,
)

# --- names and marks of what is kept ---

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_CHARACTERS = 200  # of 253: names of history and further parts are longer by a suffix


def name_of(app: str, environment: str) -> str:
    """Give the name of everything that is kept in the cluster for one environment of an app.

    It is `mlstack-<app>.<environment>`, with `.` for `/`. Names that cannot be one in Kubernetes, and those
    whose parts could not be told apart, end with a hash.
    """
    parts = environment.split("/")
    plain = f"mlstack-{app}.{'.'.join(parts)}"
    if all(map(_NAME.fullmatch, (app, *parts))) and len(plain) <= _NAME_CHARACTERS:
        return plain
    digest = hashlib.sha256(f"{app}\n{environment}".encode()).hexdigest()[:10]
    name = re.sub(r"\.+", ".", re.sub(r"[^a-z0-9.]+", "-", plain.lower()))
    name = ".".join(part.strip("-") for part in name[: _NAME_CHARACTERS - 11].split("."))
    return f"{name.strip('.-')}-{digest}"


def environment_marks(app: str, environment: str) -> dict[str, str]:
    """Give the labels of what mlstack keeps of an environment: those of its objects, of no component."""
    labels = marks(app=app, environment=environment, component="")
    del labels[COMPONENT_LABEL]
    return labels


def belongs_to(live: Mapping[str, Any], *, app: str, environment: str) -> bool:
    """Tell whether an object says that it is of this environment of this app."""
    labels = live["metadata"].get("labels") or {}
    ours = environment_marks(app, environment)
    return all(labels.get(key) == ours[key] for key in (APP_LABEL, ENVIRONMENT_LABEL))


ID_LABEL = "applyset.kubernetes.io/id"


def other_namespaces(cluster: Cluster, state: DesiredState) -> tuple[str, ...]:
    """Give the other namespaces in which the same environment keeps an inventory, as far as one may look."""
    labels = selector(app=state.app, environment=state.environment)
    items = _inventories(cluster, labels, namespace=None)
    return tuple(sorted({str(item["metadata"]["namespace"]) for item in items} - {state.namespace}))


def other_environments(cluster: Cluster, state: DesiredState) -> tuple[str, ...]:
    """Give other environments of the app with an inventory in the same namespace, as labels name them."""
    items = _inventories(cluster, f"{APP_LABEL}={state.app}", namespace=state.namespace)
    names = {str(item["metadata"]["labels"].get(ENVIRONMENT_LABEL, "")) for item in items}
    return tuple(sorted(names - {label_of(state.environment)}))


def _inventories(cluster: Cluster, labels: str, *, namespace: str | None) -> Sequence[Mapping[str, Any]]:
    labels = f"{labels},{ID_LABEL}"
    try:
        return cluster.list("v1", "ConfigMap", namespace=namespace, labels=labels, metadata_only=True).items
    except ForbiddenError:
        return ()


# --- webhooks and policies before what is kept of an environment: waited for, and named when they refuse ---

WEBHOOK_S = 120.0
"""How long a webhook is waited for: it starts as its pod does, with an image to be pulled."""

_WEBHOOK = re.compile(r'admission webhook [`"]([^`"]+)[`"](?: denied the request)?:? ?')
_EXEMPT = f"let it pass what has the label {MANAGED_BY_LABEL}={MANAGER}"


@contextmanager
def explained(
    cluster: Cluster, ref: ObjectRef, *, app: str, environment: str, so: str, what: str = "inventory"
) -> Iterator[None]:
    """Say plainly that what is kept at `ref` was refused: by whom, what to do, what follows (`so`)."""
    try:
        yield
    except (ForbiddenError, InvalidError, TransientError) as error:
        webhook = _WEBHOOK.search(error.message)
        is_policy = isinstance(error, ForbiddenError) and error.why == "policy"
        if webhook is None and not is_policy and "ValidatingAdmissionPolicy" not in error.message:
            raise
        text = error.message.removeprefix(f"`{ref}`: ").removeprefix(f"`{ref}` is refused: ")
        is_silent = isinstance(error, TransientError)
        who, hint = "a policy of the cluster", f"{_EXEMPT}, then run the command again"
        if webhook is not None:
            text, exempt = text.replace(webhook[0], "", 1), f"{_EXEMPT} (objectSelector)"
            configuration, named = _configuration(cluster, webhook[1]), ""
            wait = "wait until its service runs, or " if is_silent else ""
            hint = f"{wait}{exempt}, then run the command again"
            if configuration is not None:
                kind, name = configuration["kind"], configuration["metadata"]["name"]
                named = f" ({kind} `{name}`)"
                if belongs_to(configuration, app=app, environment=environment):
                    hint = (
                        f"it is a webhook of this environment: {exempt}; to get on now, take it away:"
                        f" kubectl delete {kind.lower()} {name}; the next apply sets it up again"
                    )
            elif is_silent:
                hint = (
                    f"see that the service behind the webhook runs, or {exempt}, then run the command again"
                )
            who = f"admission webhook `{webhook[1]}`{named}"
        why = f"cannot be written: {who} {text}" if is_silent else f"is refused by {who}: {text}"
        error.message = f"the {what} of environment `{environment}`, `{ref}`, {why}; {so}"
        error.hint, error.args = hint, (error.message,)
        raise


def _configuration(cluster: Cluster, webhook: str) -> Mapping[str, Any] | None:
    with suppress(ClusterError):
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
            for configuration in cluster.list("admissionregistration.k8s.io/v1", kind).items:
                if any(entry.get("name") == webhook for entry in configuration.get("webhooks") or ()):
                    return configuration
    return None


# --- the lock ---

WAIT_S = 30.0
"""How long a run waits for another's lock unless told otherwise: longer than that of a dead one lasts."""

_RENEWALS = 4  # while a Lease lasts; three may fail
_PAUSE_S = 1.0
_RELEASE_S = 4.0


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Somebody who takes locks."""

    # `ada@laptop/4711/9f3c…`: user, machine, process, and what no other process has.
    name: str = "mlstack"
    # Tells whether another name is that of a process of this machine that runs no more; false wherever
    # that is not certain.
    is_gone: Callable[[str], bool] = lambda name: False


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
            taken = _taken(lease, place, holder, clock=clock, on_event=on_event, timeout_s=timeout_s)
        renewer.start(taken.term)
        if taken.before is not None:
            who = describe(taken.before)
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
        name=name_of(app, place.name),
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
) -> Taken:
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
