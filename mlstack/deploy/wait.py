"""Wait until everything that a run has applied works, telling what each object waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Condition, Thread
from typing import Any

from mlstack import clock
from mlstack.app.app import ReadyRules
from mlstack.clock import Clock
from mlstack.deploy.changes import ApplyOptions, Change
from mlstack.deploy.target import Reached
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, NotReadyError, ObjectNotFoundError
from mlstack.events import STILL_S, OnEvent, RunEvent, listed
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.watch import WatchSource
from mlstack.objects import kube_object
from mlstack.objects.kinds import kinds_of_crd
from mlstack.objects.kube_object import Identity, KubeObject, group_of
from mlstack.readiness.assess import assess
from mlstack.readiness.evaluate import SERVICE_LABEL, Logs, Seen, has_endpoint
from mlstack.readiness.relatives import kinds_below
from mlstack.readiness.rule import Facts, Readiness, time_s
from mlstack.readiness.terms import ReadinessState, Terms, Verdict
from mlstack.readiness.terms import terms_of as agree
from mlstack.readiness.wait import SAY_AFTER_S, WaitReporter
from mlstack.readiness.watcher import UNSEEN, ReadinessWatcher, ResourceWatcher

# --- Wait until everything that a run has applied works, telling what each object waits for ---

# Clocks of people's machines stand wrong by minutes or not at all; a run takes seconds to come here.
CLOCKS_DIFFER_S = 60.0
# Refused credentials are no restart of the server after this time.
REFUSED_S = 15.0

Found = Mapping[Identity, ReadinessState]


def terms_of(
    wanted: Sequence[KubeObject], reached: Reached, options: ApplyOptions
) -> Mapping[Identity, Terms]:
    """Give on what terms each object of a run is waited for.

    Raises:
        ConfigError: an annotation says something else than a policy or a duration.
    """
    return {
        one.identity: agree(
            one,
            timeout_s=options.timeout_s,
            component_s=reached.state.timeouts,
            wait_for_jobs=options.wait_for_jobs,
        )
        for one in wanted
    }


def until_applied(
    reached: Reached,
    changes: Sequence[Change],
    options: ApplyOptions,
    *,
    written: Mapping[Identity, Mapping[str, Any]],
    clock: Clock,
    on_event: OnEvent,
    found: Callable[[Found], object],
) -> None:
    """Return when what a run has applied works, unchanged objects included.

    Args:
        reached: where it was applied.
        changes: what was applied.
        options: how long to wait, and for what.
        written: what the server answered for each object that was written.
        clock: for time limits.
        on_event: told what objects wait for.
        found: called with the last state of every object, however this ends.

    Raises:
        NotReadyError: as `until_ready`.
    """
    wanted = [change.desired for change in changes if change.desired is not None]
    terms = {
        who: one if who in written else one.untouched
        for who, one in terms_of(wanted, reached, options).items()
    }
    uids = {change.identity: change.live_uid for change in changes if change.live_uid}
    uids |= {who: str(data["metadata"]["uid"]) for who, data in written.items()}
    place = reached.place
    lookout = ReadinessWatcher(
        reached.cluster,
        [one for one in wanted if terms[one.identity].policy != "none"],
        clock=clock,
        labels=kube_object.selector(app=reached.state.app, environment=reached.state.environment),
        wait_for_load_balancer=place.wait_for_load_balancer,
        uids=uids,
        ahead_s=_ahead_s(written, clock.now_s()),
        rules=reached.rules,
        logs=Logs.of_state(reached.cluster, reached.state),
    )
    hint = f"mlstack status {place.name}"
    until_ready(lookout, terms, clock=clock, on_event=on_event, found=found, hint=hint)


def _ahead_s(written: Mapping[Identity, Mapping[str, Any]], now_s: float) -> float:
    """Give the seconds by which the server's clock is ahead of ours; 0 unless it is plainly another time."""
    times = [
        time_s(entry["time"])
        for data in written.values()
        for entry in data["metadata"].get("managedFields") or ()
        if entry.get("time")
    ]
    ahead_s = max(times) - now_s if times else 0.0
    return ahead_s if abs(ahead_s) > CLOCKS_DIFFER_S else 0.0


def until_ready(
    lookout: ReadinessWatcher,
    terms: Mapping[Identity, Terms],
    *,
    clock: Clock,
    on_event: OnEvent,
    found: Callable[[Found], object] = lambda found: None,
    hint: str = "",
) -> None:
    """Return when every object works, or goes on by itself as its terms allow.

    Args:
        lookout: what is seen of the objects.
        terms: on what terms each of them is waited for.
        clock: for time limits.
        on_event: told what objects wait for, as that changes.
        found: called with the last state of every object, however this ends.
        hint: what to do when something does not work.

    Raises:
        NotReadyError: a required object failed for good, or is not ready in time; `reasons` names each.
        ForbiddenError: the cluster does not take our credentials any more.
    """
    watch = _Watch(terms, clock, WaitReporter(clock, on_event))
    try:
        with lookout:
            for seen in lookout.rounds():
                watch.look(seen, lookout.outage())
                if watch.is_over:
                    break
    finally:
        found(watch.standings)
    if not watch.is_fine:
        for note in lookout.notes:
            on_event(RunEvent("note", None, note))
    watch.teller.tell_left(watch.left)
    watch.refuse_troubles(hint)


@dataclass
class _State:
    """What was found of one object, since when, and what follows."""

    found: Readiness
    since_s: float
    verdict: Verdict = "wait"


class _Watch:
    def __init__(self, terms: Mapping[Identity, Terms], clock: Clock, teller: WaitReporter) -> None:
        self._terms, self._clock, self.teller = terms, clock, teller
        self._begun_s = clock.now_s()
        self._outage: MlstackError | None = None
        self._outage_s: float | None = None
        self.states: dict[Identity, _State] = {}

    def look(self, seen: Sequence[Seen], outage: MlstackError | None) -> None:
        """Take what is seen now."""
        now_s = self._clock.now_s()
        self._note_outage(outage, now_s)
        for one in seen:
            identity = one.wanted.identity
            state = self.states.get(identity)
            if state is None or _kind(state.found) != _kind(one.readiness):
                state = self.states[identity] = _State(one.readiness, now_s)
            state.found = one.readiness
            state.verdict = self._terms[identity].verdict(
                one.readiness, waited_s=now_s - self._begun_s, held_s=now_s - state.since_s
            )
        waits = {who: one.found for who, one in self.states.items() if one.verdict == "wait"}
        self.teller.tell({who: found for who, found in waits.items() if found is not UNSEEN})

    @property
    def standings(self) -> Found:
        """Give how every object stands."""
        return {
            who: ReadinessState(readiness=one.found, verdict=one.verdict) for who, one in self.states.items()
        }

    @property
    def is_over(self) -> bool:
        """Tell whether there is nothing more to wait for: all is well, or something is not."""
        verdicts = {state.verdict for state in self.states.values()}
        return "wait" not in verdicts or bool(verdicts & {"failed", "late"})

    @property
    def is_fine(self) -> bool:
        """Tell whether everything works, so that nobody misses a reason."""
        return all(state.verdict == "fine" for state in self.states.values())

    @property
    def left(self) -> Mapping[Identity, Readiness]:
        """Give what goes on by itself."""
        return {who: one.found for who, one in self.states.items() if one.verdict == "left"}

    def refuse_troubles(self, hint: str) -> None:
        """Raise if something failed or is late."""
        failed = {who: one for who, one in self.states.items() if one.verdict == "failed"}
        late = {who: one for who, one in self.states.items() if one.verdict == "late"}
        if not failed and not late:
            return
        waiting = {who: one for who, one in self.states.items() if one.verdict == "wait"}
        reasons = [_sentence(who, one.found) for who, one in {**failed, **late, **waiting}.items()]
        raise NotReadyError(
            self._message(failed or late, bool(failed), reasons), reasons=reasons, hint=hint or None
        )

    def _message(self, bad: Mapping[Identity, _State], failed: bool, reasons: Sequence[str]) -> str:
        now_s = self._clock.now_s()
        waited, away = clock.words(now_s - self._begun_s), ""
        if self._outage is not None and self._outage_s is not None:
            away = f"; the API server has not answered for {clock.words(now_s - self._outage_s)}"
        who, state = next(iter(bad.items()))
        if len(reasons) == 1:
            what = "failed" if failed else f"is not ready after {waited}"
            return f"`{who}` {what}: {state.found.reason or state.found.state}{away}"
        verb = "failed" if failed else f"not ready after {waited}"
        others = len(reasons) - len(bad)
        count = f"{len(bad)} object{'s' * (len(bad) != 1)} {verb}"
        more = f", {others} more not ready yet" if others else ""
        return "\n".join([f"{count}{more}{away}", *(f"  {line}" for line in reasons)])

    def _note_outage(self, outage: MlstackError | None, now_s: float) -> None:
        if outage is None:
            if (
                self._outage is not None
                and self._outage_s is not None
                and now_s - self._outage_s >= SAY_AFTER_S
            ):
                self.teller.say("the API server answers again")
            self._outage = self._outage_s = None
            return
        self._outage = outage
        if self._outage_s is None:
            self._outage_s = now_s
            self.teller.say(f"{outage.message}; waiting goes on")
        if isinstance(outage, ForbiddenError) and now_s - self._outage_s >= REFUSED_S:
            raise outage


def _kind(found: Readiness) -> tuple[str, str]:
    return found.state, found.queue


def _sentence(who: Identity, found: Readiness) -> str:
    return f"{who}: {found.reason or found.state}"


# --- Wait at the gates of a run: until what others depend on works, and a webhook's Service answers ---

TermsOf = Callable[[KubeObject], Terms]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_SAY_AFTER_S = 2.0


class Barriers:
    """Waits for one run.

    Args:
        cluster: where to look.
        clock: for pauses, and to give up; ends every wait once the run is stopped.
        on_event: told what is waited for.
        terms: on what terms an object is waited for.
        rules: the app's own readiness rules.
        secrets: texts that must stand in no reason.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        on_event: OnEvent,
        terms: TermsOf,
        rules: ReadyRules | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """Hold the parts."""
        self._rules, self._logs = rules, Logs(cluster, secrets)
        self._cluster, self._clock, self._on_event, self._terms = cluster, clock, on_event, terms

    def ready(self, name: str, wanted: Sequence[KubeObject]) -> None:
        """Return when all these objects work, and Jobs among them have ended well.

        Raises:
            NotReadyError: one failed for good, or its time is over; names what is not ready, with the reason.
        """
        terms = {one.identity: self._terms(one) for one in wanted}
        looked_at = [one for one in wanted if terms[one.identity].policy != "none"]
        try:
            lookout = ReadinessWatcher(
                self._cluster, looked_at, clock=self._clock, rules=self._rules, logs=self._logs
            )
            until_ready(lookout, terms, clock=self._clock, on_event=self._on_event)
            for one in looked_at:
                if (one.group, one.kind) == ("batch", "Job"):
                    self._ended(one, terms[one.identity].timeout_s)
        except NotReadyError as error:
            error.message = f"{name} is not ready, and other objects depend on it: {error.message}"
            error.args = (error.message,)
            raise

    def endpoint(self, service: Identity, webhooks: Sequence[KubeObject]) -> None:
        """Return when a Service leads to a pod that is ready.

        Args:
            service: the Service.
            webhooks: what is set up after that; it says how long to wait.

        Raises:
            NotReadyError: it does not in time.
        """
        timeout_s = max(self._terms(one).timeout_s for one in webhooks)
        told = RunEvent("pending", service, "has no ready endpoint yet; its webhook is set up after that")
        if not self._until(lambda: self._has_endpoint(service), timeout_s, told):
            raise NotReadyError(
                f"`{service}` has no ready endpoint after {timeout_s:.0f} s, so its webhook is not set"
                " up: the API server would refuse all that it asks it about",
                hint=f"kubectl get endpointslices -n {service.namespace} -l {SERVICE_LABEL}={service.name}",
            )

    def _has_endpoint(self, service: Identity) -> bool:
        try:
            return has_endpoint(self._cluster, service.namespace, service.name)
        except (ForbiddenError, ObjectNotFoundError):  # whoever may not look cannot wait either
            return True

    def _ended(self, job: KubeObject, timeout_s: float) -> None:
        def ended() -> bool:
            live = self._cluster.get(ObjectRef.of(job.data))
            found = assess(Facts(data=live or {}, now_s=self._clock.now_s()), self._rules)
            if live is None or found.state == "failed":
                raise NotReadyError(f"`{job.identity}` failed: {found.reason or 'it is gone'}")
            return found.state in ("done", "suspended")

        told = RunEvent("pending", job.identity, "has not ended yet, and other objects depend on it")
        if not self._until(ended, timeout_s, told):
            raise NotReadyError(f"`{job.identity}` did not end within {timeout_s:.0f} s")

    def _until(self, holds: Callable[[], bool], timeout_s: float, told: RunEvent) -> bool:
        begun_s = self._clock.now_s()
        pause, due_s = _FIRST_PAUSE_S, _SAY_AFTER_S
        while not holds():
            waited_s = self._clock.now_s() - begun_s
            if waited_s >= timeout_s:
                return False
            if waited_s >= due_s:
                self._on_event(told if due_s == _SAY_AFTER_S else replace(told, kind="still"))
                due_s = waited_s + STILL_S
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        return True


# --- What keeps an object that is being deleted: finalizers, and what is left below it ---

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
    return "; ".join(_obstacles(live))


def own_finalizers(live: Mapping[str, Any]) -> list[str]:
    """Give the finalizers of an object that do not go by themselves."""
    return [str(one) for one in (live.get("metadata") or {}).get("finalizers") or () if one not in _OWN]


def _obstacles(live: Mapping[str, Any]) -> Iterator[str]:
    metadata = live.get("metadata") or {}
    named = own_finalizers(live)
    if named:
        yield f"its finalizers are still there: {', '.join(named)}"
    elif "foregroundDeletion" in (metadata.get("finalizers") or ()):
        yield "what it owns is still there"
    for condition in (live.get("status") or {}).get("conditions") or ():
        if condition.get("type") in _TELLING and condition.get("status") == "True":
            yield " ".join(str(condition.get("message") or condition.get("reason") or "").split())


# --- Wait for what the next write needs: a definition that is served, objects that are gone ---

# A definition is served a quarter of a second after it is written; the rest is for a busy server.
ESTABLISHED_S = 60.0
# So long may nothing at all go where nobody chose a time: pods have 30 s to end unless they ask for more.
GONE_S = 120.0
# An empty namespace takes 6 s to go, one with pods a minute.
NAMESPACE_GONE_S = 90.0

# Objects that hold another: more than these are counted, not listed.
_NAMED = 5
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0
# How long news are collected before time is looked at.
_TICK_S = 0.25
# How often a watch that ended is taken up again, and an object asked for that no watch tells of.
_AGAIN_S = 1.0


def until_established(
    cluster: Cluster,
    ref: ObjectRef,
    *,
    clock: Clock,
    timeout_s: float = ESTABLISHED_S,
    still: Callable[[], None] = lambda: None,
) -> None:
    """Return when the API server serves what a definition defines; `still` is called every `STILL_S`.

    Raises:
        NotReadyError: it refuses the definition's names, or does not serve it in time.
    """

    def settled() -> bool:
        found = assess(Facts(data=cluster.get(ref) or {}, now_s=clock.now_s()))
        if found.state == "failed":
            raise NotReadyError(f"`{ref}` cannot be served: {found.reason}", where=str(ref))
        return found.state == "ready"

    if not _until(settled, timeout_s, clock, still):
        raise NotReadyError(
            f"`{ref}` was not served within {timeout_s:.0f} s",
            where=str(ref),
            hint=f"kubectl describe crd {ref.name}",
        )


@dataclass(frozen=True)
class Gone:
    """What a change waits for before it goes on: that this very object is not there any more."""

    ref: ObjectRef
    uid: str


Steps = Generator[Gone, None, None]
"""The work of one change; between two steps an object has to be gone."""
Then = Callable[[MlstackError | None], None]


@dataclass
class _Awaited:
    gone: Gone
    then: Then
    source: WatchSource
    since_s: float
    asked_s: float = 0.0

    @property
    def identity(self) -> Identity:
        ref = self.gone.ref
        return Identity(group_of(ref.api_version), ref.kind, ref.namespace, ref.name)


class DeletionWatcher:
    """Waits for any number of objects to be gone: one watch a kind and namespace, one thread for all.

    Args:
        cluster: where they are.
        clock: for time limits.
        on_event: told every `STILL_S` what is still there.
        timeout_s: how long each object is waited for; None goes on as long as any of them goes now and then.
    """

    def __init__(self, cluster: Cluster, *, clock: Clock, on_event: OnEvent, timeout_s: float | None) -> None:
        """Wait for nothing yet."""
        self._cluster, self._clock, self._on_event = cluster, clock, on_event
        self._timeout_s, self._feed = timeout_s, ResourceWatcher(cluster)
        self._changed, self._closed = Condition(), False
        self._waiting: dict[ObjectRef, _Awaited] = {}
        self._uids: dict[ObjectRef, str] = {}
        self._moved_s = self._told_s = self._resumed_s = clock.now_s()
        self._pause_s = _FIRST_WAIT_S
        self._thread: Thread | None = None

    def wait(self, gone: Gone, then: Then) -> None:
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
        for news in self._feed.collect(timeout_s=_TICK_S):
            self._take(ObjectRef.of(news.data), str(news.data["metadata"].get("uid")), news.what == "put")
        now_s = self._clock.now_s()
        left = [awaited for awaited in waiting if self._is_waiting(awaited)]
        self._ask([one for one in left if self._is_doubtful(one, listed_before, now_s)], now_s)
        self._end_late([one for one in left if self._is_waiting(one) and self._is_late(one, now_s)])
        if now_s - self._told_s >= STILL_S:
            self._told_s = now_s
            self._tell([one for one in left if self._is_waiting(one)])

    def _take(self, ref: ObjectRef, uid: str, is_there: bool) -> None:
        if is_there:
            self._uids[ref] = uid
        else:
            self._uids.pop(ref, None)
        awaited = self._waiting.get(ref)
        if awaited is not None and (uid != awaited.gone.uid) == is_there:
            self._end(awaited, None)

    def _is_doubtful(self, awaited: _Awaited, listed_before: set[WatchSource], now_s: float) -> bool:
        """Tell whether no watch speaks of an object: it was gone before, or may not be watched."""
        if now_s - awaited.asked_s < _AGAIN_S:
            return False
        if self._feed.error(awaited.source) is not None:
            return True
        return awaited.source in listed_before and self._uids.get(awaited.gone.ref) != awaited.gone.uid

    def _ask(self, doubtful: list[_Awaited], now_s: float) -> None:
        lives = parallel.run(lambda one: self._cluster.get(one.gone.ref), doubtful)
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

    def _is_late(self, awaited: _Awaited, now_s: float) -> bool:
        since_s = awaited.since_s if self._timeout_s is not None else max(awaited.since_s, self._moved_s)
        return now_s - since_s >= self._limit_s(awaited)

    def _end_late(self, late: list[_Awaited]) -> None:
        if not late:
            return
        for awaited, held in zip(late, holders(self._cluster, [one.gone for one in late]), strict=True):
            if held is None:
                self._end(awaited, None)
                continue
            ref, limit = awaited.gone.ref, f"{self._limit_s(awaited):.0f} s"
            message = f"`{ref}`: was not gone within {limit}{f'; {held}' if held else ''}"
            self._end(awaited, NotReadyError(message, hint=f"kubectl get {_address(ref)} -o yaml"))

    def _tell(self, left: list[_Awaited]) -> None:
        """Say what is waited for: an end that is far away looks like one that never comes."""
        if not left:
            return
        held = holders(self._cluster, [left[0].gone])[0]
        reason = f": {held}" if held else ""
        if len(left) == 1:
            self._on_event(RunEvent("still", left[0].identity, f"until it is gone{reason}"))
            return
        names = listed([str(one.identity) for one in left])
        self._on_event(RunEvent("still", None, f"until {len(left)} objects are gone: {names}{reason}"))

    def _is_waiting(self, awaited: _Awaited) -> bool:
        return self._waiting.get(awaited.gone.ref) is awaited

    def _end(self, awaited: _Awaited, error: MlstackError | None) -> None:
        with self._changed:
            if not self._is_waiting(awaited):
                return
            del self._waiting[awaited.gone.ref]
            self._moved_s, self._pause_s = self._clock.now_s(), _FIRST_WAIT_S
        awaited.then(error)

    def _pass_time(self) -> None:
        """Let time pass where nothing can be heard, and take up watches that have ended."""
        with self._changed:
            if not self._waiting:
                return
        if self._feed.is_idle:
            self._clock.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_WAIT_S)
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

    def held(one: Gone, live: Mapping[str, Any] | MlstackError | None) -> str | None:
        if isinstance(live, MlstackError):  # nobody can tell
            return ""
        if live is None or not is_same(live, one.uid):
            return None
        return "; ".join(part for part in (obstacles(live), _held_below(live, items)) if part)

    lives = parallel.run(lambda one: cluster.get(one.ref), asked)
    return [held(one, live) for one, live in zip(asked, lives, strict=True)]


def is_same(live: Mapping[str, Any], uid: str) -> bool:
    """Tell whether an object is the very one, and not another of the same name."""
    return (live.get("metadata") or {}).get("uid") == uid


_Items = Callable[[str, str, str | None], tuple[Mapping[str, Any], ...]]


def _held_below(live: Mapping[str, Any], items: _Items) -> str:
    """Name the objects that keep a definition or an owner from going, with their finalizers."""
    kinds = kinds_of_crd(live)
    metadata = live["metadata"]
    if kinds:
        below = list(items(kinds[-1].api_version, kinds[-1].kind, None))
    elif "foregroundDeletion" in (metadata.get("finalizers") or ()):
        namespace = str(metadata.get("namespace") or "") or None
        around = [one for kind in kinds_below([live]) for one in items(*kind, namespace)]
        below = _owned(str(metadata.get("uid")), around)
    else:
        return ""
    held = [_held(item) for item in below if own_finalizers(item)]
    return f"held by {listed(held, most=_NAMED)}" if held else ""


def _owned(uid: str, around: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Give what belongs to an owner, and to what belongs to it."""
    owners, below, before = {uid}, list[Mapping[str, Any]](), -1
    while len(below) != before:
        before = len(below)
        below = [
            one
            for one in around
            if any(owner.get("uid") in owners for owner in one["metadata"].get("ownerReferences") or ())
        ]
        owners |= {str(one["metadata"].get("uid")) for one in below}
    return below


def _held(item: Mapping[str, Any]) -> str:
    return f"{ObjectRef.of(item)} ({', '.join(own_finalizers(item))})"


def _address(ref: ObjectRef) -> str:
    place = f" -n {ref.namespace}" if ref.namespace else ""
    return f"{ref.kind.lower()} {ref.name}{place}"


def _until(holds: Callable[[], bool], timeout_s: float, clock: Clock, still: Callable[[], None]) -> bool:
    begun_s, pause, due_s = clock.now_s(), _FIRST_WAIT_S, STILL_S
    while not holds():
        waited_s = clock.now_s() - begun_s
        if waited_s >= timeout_s:
            return False
        if waited_s >= due_s:
            due_s = waited_s + STILL_S
            still()
        clock.sleep(pause)
        pause = min(pause * 2, _LONGEST_WAIT_S)
    return True
