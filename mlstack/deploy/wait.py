"""Wait until everything that a run has applied works, telling what each object waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Self

from mlstack import clock as durations
from mlstack.app.app import ReadyRules
from mlstack.clock import STILL_S, Clock, backoff
from mlstack.dataclass import Record, dataclass
from mlstack.deploy.changes import ApplyOptions, Change, OnEvent, RunEvent, RunEventKind
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, NotReadyError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef, asked_once
from mlstack.kube.parallel import ResourceWatcher, WatchSource
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Data, Identity, KubeObject
from mlstack.readiness import evaluate, rule
from mlstack.readiness.evaluate import MISSING, SERVICE_LABEL, Logs, ResourceStatus, StatusEvaluator, assess
from mlstack.readiness.rule import Facts, Readiness, ReadinessState, Terms, key_of, time_s

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
    written: Mapping[Identity, Data],
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
        text = "failed, but is optional" if is_failed else "not waited for"
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
        return {key: row.readiness for key, row in self.standings.items() if row.verdict in verdicts}

    def look(self, statuses: Sequence[ResourceStatus], outage: MlstackError | None) -> None:
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
        last_reason, told_s = self.told.setdefault(key, ("", now_s))
        has_stayed = now_s - self.reasons[key][1] >= SAY_AFTER_S
        if reason == last_reason or not (has_stayed or now_s - told_s >= SAY_EVERY_S):
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


# --- objects of a run watched until they work ---
# Nothing is asked object by object: one watch a kind and namespace tells of the objects themselves, and only
# where something does not work are pods, what owns them and events of that namespace watched as well.

# From so many namespaces on, one watch over all of them is cheaper for the server than one each.
MANY_NAMESPACES = 5
# How often what time alone changes is judged again, and ended watches are taken up.
TICK_S = 1.0
# How often an object that no watch tells of is asked for.
ASK_S = 2.0
# How long nothing may be heard before each object is asked for: proxies refuse watches, or hold them back.
DEAF_S = 10.0
_LONGEST_TICK_S = 2.0

UNSEEN = Readiness("waiting", "not looked at yet")
REPLACED = Readiness(
    "failed", "somebody deleted it and made it anew while it was waited for (its UID changed)"
)
GONE = Readiness("missing", "somebody deleted it while it was waited for")
# The run itself has waited for these when it wrote them.
_WAITED_FOR = ("CustomResourceDefinition", "Namespace")
_ENDED = Readiness("done", "ended, and was removed after its time to live")


class ReadinessWatcher:
    """Watches objects from when it is entered until it is closed.

    Args:
        desired: the objects as the files bring them.
        clock: tells the time, and lets it pass while no watch is open.
        labels: what all of them carry, so that other people's objects are not sent.
        uids: the UIDs they are known to have; another one means that somebody made them anew. None where
            that is nobody's business.
        everything: look also at kinds that need nothing but to be there.
        ahead_s: seconds by which the server's clock is ahead of ours.
        rules: the app's own readiness rules.
        logs: reads the logs of what crashed; None reads none.
    """

    def __init__(
        self,
        cluster: Cluster,
        desired: Sequence[KubeObject],
        *,
        clock: Clock,
        labels: str = "",
        wait_for_load_balancer: bool = False,
        uids: Mapping[Identity, str] | None = None,
        everything: bool = False,
        ahead_s: float = 0.0,
        rules: ReadyRules | None = None,
        logs: Logs | None = None,
    ) -> None:
        self._cluster, self._clock, self._rules = cluster, clock, rules or {}
        self._watches = ResourceWatcher(cluster)
        self._balancer = wait_for_load_balancer
        self._evaluator = StatusEvaluator(
            cluster, wait_for_load_balancer=wait_for_load_balancer, rules=rules, logs=logs
        )
        self._relatives = self._evaluator.relatives
        self._desired, self._labels, self._everything = tuple(desired), labels, everything
        self._uids, self._is_jealous, self._ahead_s = dict(uids or {}), uids is not None, ahead_s
        self._live: dict[Identity, Data] = {}
        self._answers: dict[Identity, tuple[float, Data | None]] = {}
        self._judged: dict[Identity, tuple[float, ResourceStatus]] = {}
        self._stirred: set[str] = set()  # namespaces in which anything has happened
        self._narrow: set[tuple[str, str]] = set()  # kinds that may not be watched in all namespaces
        self._sources: dict[Identity, WatchSource] = {}
        self._static = {
            obj.identity
            for obj in desired
            if not everything
            and (self._is_plain(obj) or (obj.kind in _WAITED_FOR and key_of(obj.data) not in self._rules))
        }
        self._resumed_s, self._tick_s = clock.now_s(), TICK_S
        self._deaf_s = clock.now_s() + DEAF_S

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._open_own()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop listening."""
        self._watches.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """Give remarks on what could not be read."""
        for error in self._watches.errors():
            if isinstance(error, ForbiddenError):
                self._evaluator.note(error)
        return tuple(self._evaluator.notes)

    def outage(self) -> MlstackError | None:
        """Give what keeps the server from being heard; waiting can do without what is refused."""
        for error in self._watches.errors():
            is_refusal = isinstance(error, ForbiddenError) and error.why != "credentials"
            if not is_refusal and not isinstance(error, ObjectNotFoundError):
                return error
        return None

    def rounds(self) -> Iterator[tuple[ResourceStatus, ...]]:
        """Give every object as it is now, again and again: as soon as one changes, and every second."""
        while True:
            for event in self._watches.collect(timeout_s=TICK_S):
                identity, is_gone = KubeObject(data=event.object).identity, event.type == "DELETED"
                self._stirred.add(identity.namespace)
                if identity in self._sources:
                    self._judged.pop(identity, None)
                    self._live.pop(identity, None)
                    self._live |= {} if is_gone else {identity: event.object}
                # A workload of ours may stand between another object of ours and its pods.
                (self._relatives.drop if is_gone else self._relatives.put)(event.object)
            statuses = tuple(self._look(obj) for obj in self._desired)
            self._stirred.clear()
            yield statuses
            self._pass_time()

    def _pass_time(self) -> None:
        """Let time pass where nothing can be heard, and take up watches that have ended."""
        now_s = self._clock.now_s()
        if self._watches.is_idle:
            self._clock.sleep(self._tick_s)
            self._tick_s = min(self._tick_s * 1.5, _LONGEST_TICK_S)
        elif now_s - self._resumed_s < TICK_S:
            return
        else:
            self._tick_s = TICK_S
        self._resumed_s = now_s
        for source in set(self._sources.values()):
            if source.namespace is None and isinstance(self._watches.error(source), ForbiddenError):
                self._narrow.add((source.api_version, source.kind))
        if self._narrow:
            self._open_own()
        self._watches.resume()

    def _look(self, desired: KubeObject) -> ResourceStatus:
        identity, now_s = desired.identity, self._clock.now_s()
        if identity in self._static:
            return ResourceStatus(desired=desired, live=desired.data, readiness=Readiness("ready"))
        judged_s, last = self._judged.get(identity, (0.0, None))
        if last is not None and last.live is not None:
            is_settled = last.readiness.is_fine and not self._everything
            if is_settled or (now_s - judged_s < TICK_S and desired.namespace not in self._stirred):
                return last
        status = self._judge(desired, now_s)
        self._judged[identity] = (now_s, status)
        is_troubled = status.live is not None and not status.readiness.is_fine
        if is_troubled and desired.namespace and rule.has_pods(desired.data):
            for api_version, kind in (*rule.kinds_below([desired.data]), ("v1", "Event")):
                self._watches.open(WatchSource(api_version, kind, desired.namespace))
        return status

    def _judge(self, desired: KubeObject, now_s: float) -> ResourceStatus:
        identity = desired.identity
        live = self._live.get(identity) or self._ask(desired, now_s)
        if live is None:
            readiness = MISSING if identity in self._answers else UNSEEN
            if readiness is MISSING and identity in self._uids:
                ends = desired.kind == "Job" and "ttlSecondsAfterFinished" in (desired.data.get("spec") or {})
                readiness = _ENDED if ends else GONE
            return ResourceStatus(desired=desired, live=None, readiness=readiness)
        uid = str(live["metadata"].get("uid"))
        if self._is_jealous and self._uids.setdefault(identity, uid) != uid:
            return ResourceStatus(desired=desired, live=live, readiness=REPLACED)
        return self._evaluator.evaluate(desired, live, now_s=now_s + self._ahead_s)

    def _ask(self, desired: KubeObject, now_s: float) -> Data | None:
        """Ask for an object that no watch tells of: it is gone, or lost its labels, or may not be watched."""
        source = self._sources[desired.identity]
        is_refused = isinstance(self._watches.error(source), ForbiddenError | ObjectNotFoundError)
        if not is_refused and not self._watches.has_listed(source) and now_s < self._deaf_s:
            return None
        asked_s, live = self._answers.get(desired.identity, (-ASK_S, None))
        if now_s - asked_s < ASK_S:
            return live
        try:
            live = asked_once(self._cluster).get(ObjectRef.of(desired.data))
        except ForbiddenError as refusal:
            self._evaluator.note(refusal)
            return None
        except ClusterError:  # the server is away: what it said last must do
            self._deaf_s = self._clock.now_s() + DEAF_S
            return live
        self._answers[desired.identity] = (now_s, live)
        return live

    def _open_own(self) -> None:
        watched = [obj for obj in self._desired if obj.identity not in self._static]
        namespaces: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for obj in watched:
            namespaces[(obj.api_version, obj.kind)].add(obj.namespace)
        for obj in watched:
            key = (obj.api_version, obj.kind)
            is_wide = len(namespaces[key]) >= MANY_NAMESPACES and key not in self._narrow
            namespace = None if is_wide or not obj.namespace else obj.namespace
            source = WatchSource(*key, namespace, self._labels, metadata_only=self._is_plain(obj))
            self._sources[obj.identity] = source
            self._watches.open(source)

    def _is_plain(self, obj: KubeObject) -> bool:
        if key_of(obj.data) in self._rules:
            return False
        payload = {name: part for name, part in obj.data.items() if name != "status"}
        facts = Facts(data=payload, wait_for_load_balancer=self._balancer)
        return not payload.get("webhooks") and assess(facts).state == "ready"


# --- barriers of a run: until what others depend on works, and a webhook's Service answers ---


class Barriers(Record):
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
                return evaluate.has_endpoint(self.cluster, service.namespace, service.name)
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
    cluster: Cluster, ref: ObjectRef, *, clock: Clock, timeout_s: float, on_event: OnEvent
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
    pauses = backoff(0.05, 1.0)
    while not holds():
        waited_s = clock.now_s() - begun_s
        if waited_s >= timeout_s:
            return False
        if waited_s >= due_s:
            on_event(event)
            event, due_s = replace(event, kind="still"), waited_s + STILL_S
        clock.sleep(next(pauses))
    return True


# --- what holds an object that is being deleted ---

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


def is_same(live: Mapping[str, Any], uid: str) -> bool:
    """Tell whether an object is the very one, and not another of the same name."""
    return (live.get("metadata") or {}).get("uid") == uid
