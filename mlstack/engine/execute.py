"""Carry out Changes, wave by wave; whatever happens, what was done is kept and told."""

from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from threading import Lock
from typing import Any

from mlstack.cluster.api import Applied, Cluster, ObjectRef
from mlstack.engine import parallel, wait
from mlstack.engine.settle import with_uid
from mlstack.errors import ClusterError, MlstackError, ObjectNotFoundError
from mlstack.model import order
from mlstack.model.clock import Clock
from mlstack.model.diff import Change
from mlstack.model.events import Event, EventKind, OnEvent
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.order import Wave

_DONE: Mapping[str, EventKind] = {"create": "created", "update": "updated", "recreate": "recreated"}


class Run:
    """One run over a cluster: does changes and remembers how each ended.

    Args:
        cluster: where to write.
        on_event: told about each object, by one thread at a time.
        clock: for waits.
    """

    def __init__(self, cluster: Cluster, *, on_event: OnEvent, clock: Clock) -> None:
        """Begin with nothing done."""
        self.outcomes: dict[Identity, Event] = {}
        self.written: dict[Identity, Mapping[str, Any]] = {}
        self._begun: dict[Identity, Change] = {}
        self._closed = False
        self._cluster, self._on_event, self._lock = cluster, on_event, Lock()
        self._stopped = Flag()
        self._clock = _StoppedClock(clock, self._stopped)

    @property
    def cluster(self) -> Cluster:
        """Give the cluster that the run writes to."""
        return self._cluster

    def use(self, cluster: Cluster) -> None:
        """Write through another view of the cluster from now on, as one that a lock fences."""
        self._cluster = cluster

    def apply(self, changes: Sequence[Change]) -> None:
        """Write what is wanted, a wave after the other, definitions served before what they define.

        Raises:
            MlstackError: an object failed; the rest of its wave was finished, later waves were not begun.
        """
        for wave in order.waves(changes, _identity):
            self._wave(wave, self._write)

    def delete(self, changes: Sequence[Change], *, grace_period_s: int | None = None) -> None:
        """Delete in reverse order; what a wave deletes is gone before the next begins.

        Raises:
            MlstackError: as `apply`.
        """

        def delete(change: Change) -> None:
            self._delete(change, grace_period_s)

        for wave in order.reversed_waves(changes, _identity):
            self._wave(wave, delete)

    def _wave(self, wave: Wave[Change], work: Callable[[Change], None]) -> None:
        idle = [change for change in wave.items if not change.writes]
        for change in idle:
            self._end("unchanged" if change.action == "unchanged" else "kept", change, change.reason)
        busy = [change for change in wave.items if change.writes]
        try:
            results = parallel.run(work, busy, stopped=self._stopped)
        except KeyboardInterrupt:
            self._close()
            raise
        failures = [result for result in results if isinstance(result, MlstackError)]
        if failures:
            raise parallel.together(failures)
        if any(change.identity.kind == "CustomResourceDefinition" for change in wave.items if change.writes):
            self._cluster.kinds(refresh=True)

    def _write(self, change: Change) -> None:
        desired = change.desired
        if desired is None:
            raise ValueError(f"nothing to write for {change.identity}")
        ref = ref_of(change)
        with _Failure(self, change) as failure:
            if change.action == "recreate":
                self._say("waiting", change.identity, "until the old one is gone")
                self._cluster.delete(ref, propagation="Foreground", uid=change.live_uid)
                failure.so_far = "was deleted and is not made anew yet: "
            if change.action in ("recreate", "create") and change.live_uid:
                wait.until_gone(self._cluster, ref, change.live_uid, clock=self._clock)
            warnings = self._send(change, desired)
            failure.so_far = ""
            if desired.kind == "CustomResourceDefinition":
                wait.until_established(self._cluster, ref, clock=self._clock)
        for text in warnings:
            self._say("warning", change.identity, text)
        self._end(_DONE.get(change.action, "unchanged"), change, "; ".join(change.notes))

    def _send(self, change: Change, desired: KubeObject) -> tuple[str, ...]:
        """Write one object; only an object that was looked at before is changed by force."""
        is_new = change.action in ("create", "recreate")
        payload = desired.data if is_new else with_uid(change.payload or desired.data, change.live_uid)

        def told(error: ClusterError) -> None:
            self._say("waiting", change.identity, error.message)

        def write() -> Applied:
            return self._cluster.apply(payload, force=not is_new)

        applied = wait.retried(write, clock=self._clock, told=told)
        self.written[change.identity] = applied.object
        return applied.warnings

    def _delete(self, change: Change, grace_period_s: int | None) -> None:
        ref = ref_of(change)
        with _Failure(self, change):
            try:
                self._cluster.delete(
                    ref, propagation="Foreground", uid=change.live_uid, grace_period_s=grace_period_s
                )
            except ObjectNotFoundError:
                self._end("gone", change, "was gone already")
                return
            wait.until_gone(self._cluster, ref, change.live_uid, clock=self._clock)
        self._end("deleted", change, "")

    def _close(self) -> None:
        """Tell of what was under way when a person interrupted; what comes later is not heard any more."""
        for change in list(self._begun.values()):
            self.failed(change, "interrupted before the API server answered")
        with self._lock:
            self._closed = True

    def _end(self, kind: EventKind, change: Change, text: str) -> None:
        event = Event(kind, change.identity, text)
        with self._lock:
            if not self._closed:
                self._begun.pop(change.identity, None)
                self.outcomes[change.identity] = event
                self._on_event(event)

    def _say(self, kind: EventKind, identity: Identity, text: str) -> None:
        with self._lock:
            if not self._closed:
                self._on_event(Event(kind, identity, text))

    def begin(self, change: Change) -> None:
        """Remember that a change is under way."""
        self._begun[change.identity] = change

    def failed(self, change: Change, why: str) -> None:
        """Remember that a change could not be made."""
        self._end("failed", change, why)


class _Failure:
    """Records the failure of one change on its way out, and how far it had come."""

    def __init__(self, run: Run, change: Change) -> None:
        self._run, self._change = run, change
        self.so_far = ""

    def __enter__(self) -> "_Failure":
        self._run.begin(self._change)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MlstackError):
            text = error.message.removeprefix(f"`{self._change.identity}`: ")  # its line begins with the name
            self._run.failed(self._change, self.so_far + text)
        elif isinstance(error, KeyboardInterrupt) and self.so_far:
            self._run.failed(self._change, f"{self.so_far}interrupted")


class _StoppedClock:
    """A clock on which nobody can wait any more once the run is stopped."""

    def __init__(self, clock: Clock, stopped: Flag) -> None:
        self._clock, self._stopped = clock, stopped

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        return self._clock.now_s()

    def sleep(self, seconds: float) -> None:
        """Let time pass, unless the run is stopped."""
        if self._stopped.is_set():
            raise MlstackError("stopped while waiting")
        self._clock.sleep(seconds)


def ref_of(change: Change) -> ObjectRef:
    """Give the address of a change's object."""
    identity = change.identity
    return ObjectRef(change.api_version, identity.kind, identity.namespace, identity.name)


def _identity(change: Change) -> Identity:
    return change.identity
