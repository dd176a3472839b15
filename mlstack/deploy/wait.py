"""Wait until everything that a run has applied works, telling what each object waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import field, replace
from threading import Condition, Thread
from typing import Any

from mlstack import clock as durations
from mlstack.app.app import ReadyRules
from mlstack.clock import Clock, backoff
from mlstack.dataclass import dataclass
from mlstack.deploy.changes import ApplyOptions, Change
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, NotReadyError, ObjectNotFoundError
from mlstack.events import STILL_S, OnEvent, RunEvent, RunEventKind, listed, silent
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.watch import ResourceWatcher, WatchSource
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Identity, KubeObject, kinds_of_crd
from mlstack.readiness import rule
from mlstack.readiness.evaluate import SERVICE_LABEL, Logs, ResourceStatus, assess, has_endpoint, kinds_below
from mlstack.readiness.rule import Facts, Readiness, ReadinessState, Terms, time_s
from mlstack.readiness.watcher import UNSEEN, ReadinessWatcher

# Clocks of people's machines stand wrong by minutes or not at all; a run takes seconds to come here.
CLOCKS_DIFFER_S = 60.0
# Refused credentials are no restart of the server after this time.
REFUSED_S = 15.0
# A reason that passes sooner is not worth a line.
SAY_AFTER_S = 2.0
# A reason that changes all the time, as a count does, is told so often all the same.
SAY_EVERY_S = 10.0
# So many objects with the same reason share a line, which names these.
_TOGETHER, _NAMED = 3, 3

Manifest = Mapping[str, Any]


def terms_of(
    objects: Iterable[KubeObject], resolved: ResolvedTarget, options: ApplyOptions
) -> dict[Identity, Terms]:
    """Give on what terms each object of a run is waited for.

    Raises:
        ConfigError: an annotation says something else than a policy or a duration.
    """
    return {
        obj.identity: rule.terms_of(
            obj,
            timeout_s=options.timeout_s,
            component_s=resolved.state.timeouts,
            wait_for_jobs=options.wait_for_jobs,
        )
        for obj in objects
    }


def until_applied(
    resolved: ResolvedTarget,
    changes: Sequence[Change],
    options: ApplyOptions,
    *,
    written: Mapping[Identity, Manifest],
    standings: dict[Identity, ReadinessState],
    clock: Clock,
    on_event: OnEvent,
) -> None:
    """Return when what a run has applied works, unchanged objects included.

    `written` is what the server answered for objects that were written; `standings` is filled with the last
    state of every object, however this ends.

    Raises:
        NotReadyError: as `until_ready`.
    """
    objects = [change.desired for change in changes if change.desired is not None]
    if not objects:
        return
    terms = terms_of(objects, resolved, options)
    terms |= {key: of_object.untouched for key, of_object in terms.items() if key not in written}
    uids = {change.identity: change.live_uid for change in changes if change.live_uid}
    uids |= {key: str(live["metadata"]["uid"]) for key, live in written.items()}
    now_s, entries = clock.now_s(), (live["metadata"].get("managedFields") or () for live in written.values())
    times_s = [time_s(entry["time"]) for rows in entries for entry in rows if entry.get("time")]
    ahead_s = max(times_s, default=now_s) - now_s  # by so much the server's clock is ahead of ours
    watcher = ReadinessWatcher(
        resolved.cluster,
        [obj for obj in objects if terms[obj.identity].policy != "none"],
        clock=clock,
        labels=kube_object.selector(app=resolved.state.app, environment=resolved.state.environment),
        wait_for_load_balancer=resolved.place.wait_for_load_balancer,
        uids=uids,
        ahead_s=ahead_s if abs(ahead_s) > CLOCKS_DIFFER_S else 0.0,
        rules=resolved.rules,
        logs=Logs.of_state(resolved.cluster, resolved.state),
    )
    hint = f"mlstack status {resolved.place.name}"
    until_ready(watcher, terms, clock=clock, on_event=on_event, standings=standings, hint=hint)


def until_ready(
    watcher: ReadinessWatcher,
    terms: Mapping[Identity, Terms],
    *,
    clock: Clock,
    on_event: OnEvent,
    standings: dict[Identity, ReadinessState] | None = None,
    hint: str = "",
) -> None:
    """Return when every object works, or goes on by itself as its terms allow; `hint` is for others."""
    wait = _Wait(terms, clock, on_event, {} if standings is None else standings)
    with watcher:
        for statuses in watcher.rounds():
            wait.look(statuses, watcher.outage())
            verdicts = {state.verdict for state in wait.standings.values()}
            if "wait" not in verdicts or verdicts & {"failed", "late"}:
                break
    if any(state.verdict != "fine" for state in wait.standings.values()):
        for note in watcher.notes:
            on_event(RunEvent("note", None, note))
    for key, readiness in wait.of("left").items():
        is_failed = readiness.state in ("failed", "missing")
        reason = f": {readiness.reason}" if readiness.reason else ""
        text = "failed, but is optional" if is_failed else "goes on by itself"
        on_event(RunEvent("note", key, f"{text}{reason}"))
    wait.refuse_troubles(hint)


@dataclass
class _Wait:
    """How objects stand since when, and what a person was told: soon, once, not of what only passes."""

    terms: Mapping[Identity, Terms]
    clock: Clock
    on_event: OnEvent
    standings: dict[Identity, ReadinessState]
    since_s: dict[Identity, float] = field(default_factory=dict)  # when it came into its state and queue
    outage: tuple[MlstackError, float] | None = None  # since when the API server does not answer
    # reason of each object, and since when; the reason that was told last, and when
    reasons: dict[Identity, tuple[str, float]] = field(default_factory=dict)
    told: dict[Identity, tuple[str, float]] = field(default_factory=dict)
    told_s: float | None = None

    def __post_init__(self) -> None:
        self.begun_s = self.clock.now_s()

    def of(self, *verdicts: str) -> dict[Identity, Readiness]:
        """Give the objects with these verdicts."""
        return {key: row.readiness for key, row in self.standings.items() if row.verdict in verdicts}

    def look(self, statuses: Sequence[ResourceStatus], outage: MlstackError | None) -> None:
        """Take what is seen now, and tell what is new."""
        now_s = self.clock.now_s()
        self._note_outage(outage, now_s)
        for status in statuses:
            key, readiness = status.desired.identity, status.readiness
            before = self.standings.get(key)
            kind = (readiness.state, readiness.queue)
            if before is None or (before.readiness.state, before.readiness.queue) != kind:
                self.since_s[key] = now_s
            verdict = self.terms[key].verdict(
                readiness, waited_s=now_s - self.begun_s, held_s=now_s - self.since_s[key]
            )
            self.standings[key] = ReadinessState(readiness=readiness, verdict=verdict)
        waiting = {key: readiness for key, readiness in self.of("wait").items() if readiness is not UNSEEN}
        due = [key for key, readiness in waiting.items() if self._is_due(key, readiness, now_s)]
        self._tell({key: waiting[key] for key in due}, "pending")
        if self.told_s is None or due:
            self.told_s = now_s
        elif now_s - self.told_s >= STILL_S:
            self.told_s = now_s
            self._tell(waiting, "still")

    def _is_due(self, key: Identity, readiness: Readiness, now_s: float) -> bool:
        reason = readiness.reason or readiness.state
        if self.reasons.get(key, ("", 0.0))[0] != reason:
            self.reasons[key] = (reason, now_s)
        told, told_s = self.told.setdefault(key, ("", now_s))
        has_stayed = now_s - self.reasons[key][1] >= SAY_AFTER_S
        if reason == told or not (has_stayed or now_s - told_s >= SAY_EVERY_S):
            return False
        self.told[key] = (reason, now_s)
        return True

    def _tell(self, waiting: Mapping[Identity, Readiness], kind: RunEventKind) -> None:
        reasons: dict[str, list[Identity]] = {}
        for key, readiness in waiting.items():
            reasons.setdefault(readiness.reason or readiness.state, []).append(key)
        for reason, keys in reasons.items():
            if len(keys) > _TOGETHER:
                names = ", ".join(map(str, keys[:_NAMED]))
                self.on_event(RunEvent(kind, None, f"{len(keys)} objects ({names} …): {reason}"))
                continue
            for key in keys:
                self.on_event(RunEvent(kind, key, reason))

    def _note_outage(self, outage: MlstackError | None, now_s: float) -> None:
        before, since_s = self.outage or (None, now_s)
        self.outage = (outage, since_s) if outage is not None else None
        if outage is None:
            if before is not None and now_s - since_s >= SAY_AFTER_S:
                self.on_event(RunEvent("pending", None, "the API server answers again"))
        elif before is None:
            self.on_event(RunEvent("pending", None, f"{outage.message}; waiting goes on"))
        if isinstance(outage, ForbiddenError) and now_s - since_s >= REFUSED_S:
            raise outage

    def refuse_troubles(self, hint: str) -> None:
        """Raise if something failed or is late."""
        failed = self.of("failed")
        bad = failed or self.of("late")
        if not bad:
            return
        now_s, away = self.clock.now_s(), ""
        if self.outage is not None:
            away = f"; the API server has not answered for {durations.words(now_s - self.outage[1])}"
        rows = {**failed, **self.of("late"), **self.of("wait")}
        reasons = [f"{key}: {readiness.reason or readiness.state}" for key, readiness in rows.items()]
        waited = durations.words(now_s - self.begun_s)
        if len(reasons) == 1:
            key, readiness = next(iter(bad.items()))
            what = "failed" if failed else f"is not ready after {waited}"
            text = f"`{key}` {what}: {readiness.reason or readiness.state}{away}"
        else:
            verb = "failed" if failed else f"not ready after {waited}"
            count = f"{len(bad)} object{'s' * (len(bad) != 1)} {verb}"
            others = len(reasons) - len(bad)
            more = f", {others} more not ready yet" if others else ""
            text = "\n".join([f"{count}{more}{away}", *(f"  {reason}" for reason in reasons)])
        raise NotReadyError(text, reasons=reasons, hint=hint or None)


# --- barriers of a run: until what others depend on works, and a webhook's Service answers ---


@dataclass(frozen=True, kw_only=True)
class Barriers:
    """Waits for one run until what others depend on works."""

    cluster: Cluster
    clock: Clock
    on_event: OnEvent
    timeout_s: float | None = None
    component_s: Mapping[str, float] | None = None
    rules: ReadyRules | None = None
    secrets: Sequence[str] = ()

    def _terms(self, obj: KubeObject) -> Terms:
        return rule.terms_of(obj, timeout_s=self.timeout_s, component_s=self.component_s, wait_for_jobs=True)

    def ready(self, name: str, objects: Sequence[KubeObject]) -> None:
        """Return when all these objects work, and Jobs among them have ended well.

        Raises:
            NotReadyError: one failed for good, or its time is over; names what is not ready, with the reason.
        """
        terms = {obj.identity: self._terms(obj) for obj in objects}
        watched = [obj for obj in objects if terms[obj.identity].policy != "none"]
        logs = Logs(self.cluster, self.secrets)
        try:
            watcher = ReadinessWatcher(self.cluster, watched, clock=self.clock, rules=self.rules, logs=logs)
            until_ready(watcher, terms, clock=self.clock, on_event=self.on_event)
            for obj in watched:
                if (obj.group, obj.kind) == ("batch", "Job"):
                    self._until_ended(obj, terms[obj.identity].timeout_s)
        except NotReadyError as error:
            error.message = f"{name} is not ready, and other objects depend on it: {error.message}"
            error.args = (error.message,)
            raise

    def _until_ended(self, job: KubeObject, timeout_s: float) -> None:
        def has_ended() -> bool:
            live = self.cluster.get(ObjectRef.of(job.data))
            readiness = assess(Facts(data=live or {}, now_s=self.clock.now_s()), self.rules)
            if live is None or readiness.state == "failed":
                raise NotReadyError(f"`{job.identity}` failed: {readiness.reason or 'it is gone'}")
            return readiness.state in ("done", "suspended")

        event = RunEvent("pending", job.identity, "has not ended yet, and other objects depend on it")
        if not _poll(has_ended, timeout_s, event, clock=self.clock, on_event=self.on_event):
            raise NotReadyError(f"`{job.identity}` did not end within {timeout_s:.0f} s")

    def endpoint(self, service: Identity, webhooks: Sequence[KubeObject]) -> None:
        """Return when a Service leads to a pod that is ready.

        Raises:
            NotReadyError: it does not in time.
        """

        def answers() -> bool:
            try:
                return has_endpoint(self.cluster, service.namespace, service.name)
            except (ForbiddenError, ObjectNotFoundError):  # whoever may not look cannot wait either
                return True

        timeout_s = max(self._terms(webhook).timeout_s for webhook in webhooks)
        event = RunEvent("pending", service, "has no ready endpoint yet; its webhook is set up after that")
        if not _poll(answers, timeout_s, event, clock=self.clock, on_event=self.on_event):
            raise NotReadyError(
                f"`{service}` has no ready endpoint after {timeout_s:.0f} s, so its webhook is not set"
                " up: the API server would refuse all that it asks it about",
                hint=f"kubectl get endpointslices -n {service.namespace} -l {SERVICE_LABEL}={service.name}",
            )


# A definition is served a quarter of a second after it is written; the rest is for a busy server.
ESTABLISHED_S = 60.0


def until_established(
    cluster: Cluster,
    ref: ObjectRef,
    *,
    clock: Clock,
    timeout_s: float = ESTABLISHED_S,
    on_event: OnEvent = silent,
) -> None:
    """Return when the API server serves what a definition defines; said every `STILL_S`."""

    def is_served() -> bool:
        readiness = assess(Facts(data=cluster.get(ref) or {}, now_s=clock.now_s()))
        if readiness.state == "failed":
            raise NotReadyError(f"`{ref}` cannot be served: {readiness.reason}", where=str(ref))
        return readiness.state == "ready"

    event = RunEvent("still", ref.identity, "until the API server serves it")
    if not _poll(is_served, timeout_s, event, clock=clock, on_event=on_event):
        raise NotReadyError(
            f"`{ref}` was not served within {timeout_s:.0f} s",
            where=str(ref),
            hint=f"kubectl describe crd {ref.name}",
        )


def _poll(
    holds: Callable[[], bool], timeout_s: float, event: RunEvent, *, clock: Clock, on_event: OnEvent
) -> bool:
    """Ask until something holds; tell `event` after a while and again from time to time; false when late."""
    begun_s, due_s = clock.now_s(), STILL_S if event.kind == "still" else SAY_AFTER_S
    for pause_s in backoff(0.05, 1.0):
        if holds():
            return True
        waited_s = clock.now_s() - begun_s
        if waited_s >= timeout_s:
            return False
        if waited_s >= due_s:
            on_event(event)
            event, due_s = replace(event, kind="still"), waited_s + STILL_S
        clock.sleep(pause_s)
    raise AssertionError("pauses have no end")


# --- until objects are gone, and what holds those that are being deleted ---

# So long may nothing at all go where nobody chose a time: pods have 30 s to end unless they ask for more.
GONE_S = 120.0
# An empty namespace takes 6 s to go, one with pods a minute.
NAMESPACE_GONE_S = 90.0
# Objects that hold another: more than these are counted, not listed.
_HOLDERS_NAMED = 5
_PAUSES_S = (0.05, 1.0)  # where nothing can be heard: the first and the longest
# How long news are collected before time is looked at.
_TICK_S = 0.25
# How often a watch that ended is taken up again, and an object asked for that no watch tells of.
_AGAIN_S = 1.0

# The API server says these of a namespace or definition in words that name what is left.
_TELLING = (
    "NamespaceFinalizersRemaining",
    "NamespaceContentRemaining",
    "NamespaceDeletionContentFailure",
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "Terminating",
)
# Those of the garbage collector and of built-in controllers go by themselves once all else has gone.
_OWN = frozenset({"foregroundDeletion", "orphan", "kubernetes", "customresourcecleanup.apiextensions.k8s.io"})


def obstacles(live: Mapping[str, Any]) -> str:
    """Say what an object still waits for, empty if nothing shows."""
    texts, named = [], own_finalizers(live)
    if named:
        texts.append(f"its finalizers are still there: {', '.join(named)}")
    elif "foregroundDeletion" in ((live.get("metadata") or {}).get("finalizers") or ()):
        texts.append("what it owns is still there")
    for condition in (live.get("status") or {}).get("conditions") or ():
        if condition.get("type") in _TELLING and condition.get("status") == "True":
            texts.append(" ".join(str(condition.get("message") or condition.get("reason") or "").split()))
    return "; ".join(texts)


def own_finalizers(live: Mapping[str, Any]) -> list[str]:
    """Give the finalizers of an object that do not go by themselves."""
    finalizers = (live.get("metadata") or {}).get("finalizers") or ()
    return [str(name) for name in finalizers if name not in _OWN]


@dataclass(frozen=True)
class Gone:
    """What a change waits for before it goes on: that this very object is not there any more."""

    ref: ObjectRef
    uid: str


Steps = Generator[Gone, None, None]
"""The work of one change; between two steps an object has to be gone."""


@dataclass
class _Awaited:
    gone: Gone
    then: Callable[[MlstackError | None], None]
    source: WatchSource
    since_s: float
    asked_s: float = 0.0


class DeletionWatcher:
    """Waits for any number of objects to be gone: one watch a kind and namespace, one thread for all."""

    def __init__(self, cluster: Cluster, *, clock: Clock, on_event: OnEvent, timeout_s: float | None) -> None:
        self._cluster, self._clock, self._on_event = cluster, clock, on_event
        self._timeout_s, self._feed = timeout_s, ResourceWatcher(cluster)
        self._changed, self._closed = Condition(), False
        self._waiting: dict[ObjectRef, _Awaited] = {}
        self._uids: dict[ObjectRef, str] = {}
        self._moved_s = self._told_s = self._resumed_s = clock.now_s()
        self._pauses = backoff(*_PAUSES_S)
        self._thread: Thread | None = None

    def wait(self, gone: Gone, then: Callable[[MlstackError | None], None]) -> None:
        """Call `then` once an object is gone, with the reason if it is not in time; from another thread."""
        ref = gone.ref
        source = WatchSource(ref.api_version, ref.kind, ref.namespace or None, metadata_only=True)
        with self._changed:
            now_s = self._clock.now_s()
            if not self._waiting:
                self._moved_s = self._told_s = now_s
            self._waiting[ref] = _Awaited(gone, then, source, now_s)
            self._feed.open(source)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="mlstack-deletions", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for nothing more; nobody is called any more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._feed.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                waiting = list(self._waiting.values())
            try:
                self._look(waiting)
                self._pass_time()
            except Exception as error:  # a fault of ours must not end in silence: a thread has no caller
                fault = MlstackError(f"watch of deletions: {error!r}")
                for awaited in waiting:
                    self._end(awaited, error if isinstance(error, MlstackError) else fault)

    def _look(self, waiting: list[_Awaited]) -> None:
        """Take what happened, and end what is over."""
        sources = {awaited.source for awaited in waiting}
        listed_before = {source for source in sources if self._feed.has_listed(source)}
        for event in self._feed.collect(timeout_s=_TICK_S):
            ref, uid = ObjectRef.of(event.object), str(event.object["metadata"].get("uid"))
            is_there = event.type != "DELETED"
            if is_there:
                self._uids[ref] = uid
            else:
                self._uids.pop(ref, None)
            awaited = self._waiting.get(ref)
            if awaited is not None and (uid != awaited.gone.uid) == is_there:
                self._end(awaited, None)
        now_s = self._clock.now_s()
        waiting = [awaited for awaited in waiting if self._is_waiting(awaited)]
        self._ask(waiting, listed_before, now_s)
        waiting = [awaited for awaited in waiting if self._is_waiting(awaited)]
        moved_s = self._moved_s if self._timeout_s is None else 0.0
        self._end_late(
            [
                awaited
                for awaited in waiting
                if now_s - max(awaited.since_s, moved_s) >= self._limit_s(awaited)
            ]
        )
        if now_s - self._told_s >= STILL_S:
            self._told_s = now_s
            self._tell([awaited for awaited in waiting if self._is_waiting(awaited)])

    def _ask(self, waiting: list[_Awaited], listed_before: set[WatchSource], now_s: float) -> None:
        """Ask for objects that no watch speaks of: they were gone before, or may not be watched."""
        doubtful = [
            awaited
            for awaited in waiting
            if now_s - awaited.asked_s >= _AGAIN_S
            if self._feed.error(awaited.source) is not None
            or (awaited.source in listed_before and self._uids.get(awaited.gone.ref) != awaited.gone.uid)
        ]
        lives = parallel.run(lambda awaited: self._cluster.get(awaited.gone.ref), doubtful)
        for awaited, live in zip(doubtful, lives, strict=True):
            awaited.asked_s = now_s
            if isinstance(live, MlstackError):
                self._end(awaited, live)
            elif live is None or not is_same(live, awaited.gone.uid):
                self._end(awaited, None)

    def _limit_s(self, awaited: _Awaited) -> float:
        if self._timeout_s is not None:
            return self._timeout_s
        return NAMESPACE_GONE_S if awaited.gone.ref.kind == "Namespace" else GONE_S

    def _end_late(self, late: list[_Awaited]) -> None:
        for awaited, held in zip(late, holders(self._cluster, [item.gone for item in late]), strict=True):
            if held is None:
                self._end(awaited, None)
                continue
            ref = awaited.gone.ref
            text = f"`{ref}`: was not gone within {self._limit_s(awaited):.0f} s{f'; {held}' if held else ''}"
            place = f" -n {ref.namespace}" if ref.namespace else ""
            hint = f"kubectl get {ref.kind.lower()} {ref.name}{place} -o yaml"
            self._end(awaited, NotReadyError(text, hint=hint))

    def _tell(self, left: list[_Awaited]) -> None:
        """Say what is waited for: an end that is far away looks like one that never comes."""
        if not left:
            return
        held = holders(self._cluster, [left[0].gone])[0]
        reason = f": {held}" if held else ""
        keys = [awaited.gone.ref.identity for awaited in left]
        if len(keys) == 1:
            self._on_event(RunEvent("still", keys[0], f"until it is gone{reason}"))
            return
        text = f"until {len(keys)} objects are gone: {listed([*map(str, keys)])}{reason}"
        self._on_event(RunEvent("still", None, text))

    def _is_waiting(self, awaited: _Awaited) -> bool:
        return self._waiting.get(awaited.gone.ref) is awaited

    def _end(self, awaited: _Awaited, error: MlstackError | None) -> None:
        with self._changed:
            if not self._is_waiting(awaited):
                return
            del self._waiting[awaited.gone.ref]
            self._moved_s, self._pauses = self._clock.now_s(), backoff(*_PAUSES_S)
        awaited.then(error)

    def _pass_time(self) -> None:
        """Let time pass where nothing can be heard, and take up watches that have ended."""
        with self._changed:
            if not self._waiting:
                return
        if self._feed.is_idle:
            self._clock.sleep(next(self._pauses))
        elif self._clock.now_s() - self._resumed_s < _AGAIN_S:
            return
        self._resumed_s = self._clock.now_s()
        self._feed.resume()


def holders(cluster: Cluster, going: Iterable[Gone]) -> list[str | None]:
    """Say of objects that are being deleted what holds each: finalizers, its own or below it.

    None stands for one that is gone, an empty text for nothing that shows.
    """
    asked = list(going)
    lists: dict[tuple[str, str, str | None], tuple[Mapping[str, Any], ...]] = {}

    def items(api_version: str, kind: str, namespace: str | None) -> tuple[Mapping[str, Any], ...]:
        key = (api_version, kind, namespace)
        if key not in lists:
            try:
                lists[key] = cluster.list(api_version, kind, namespace=namespace, metadata_only=True).items
            except ClusterError:  # a remark is no reason to fail
                lists[key] = ()
        return lists[key]

    texts: list[str | None] = []
    lives = parallel.run(lambda gone: cluster.get(gone.ref), asked)
    for gone, live in zip(asked, lives, strict=True):
        if isinstance(live, MlstackError):  # nobody can tell
            texts.append("")
        elif live is None or not is_same(live, gone.uid):
            texts.append(None)
        else:
            texts.append("; ".join(filter(None, (obstacles(live), _held_below(live, items)))))
    return texts


def is_same(live: Mapping[str, Any], uid: str) -> bool:
    """Tell whether an object is the very one, and not another of the same name."""
    return (live.get("metadata") or {}).get("uid") == uid


def _held_below(
    live: Manifest, items: Callable[[str, str, str | None], tuple[Mapping[str, Any], ...]]
) -> str:
    """Name the objects that keep a definition or an owner from going, with their finalizers."""
    kinds, metadata, below = kinds_of_crd(live), live["metadata"], list[Mapping[str, Any]]()
    if kinds:
        below = list(items(kinds[-1].api_version, kinds[-1].kind, None))
    elif "foregroundDeletion" in (metadata.get("finalizers") or ()):
        namespace = str(metadata.get("namespace") or "") or None
        around = [item for kind in kinds_below([live]) for item in items(*kind, namespace)]
        owners, before = {str(metadata.get("uid"))}, -1
        while len(below) != before:  # what belongs to it, and to what belongs to it
            before = len(below)
            below = [
                item
                for item in around
                if any(str(o.get("uid")) in owners for o in item["metadata"].get("ownerReferences") or ())
            ]
            owners |= {str(item["metadata"].get("uid")) for item in below}
    named = [(item, ", ".join(own_finalizers(item))) for item in below]
    held = [f"{ObjectRef.of(item)} ({finalizers})" for item, finalizers in named if finalizers]
    return f"held by {listed(held, most=_HOLDERS_NAMED)}" if held else ""
