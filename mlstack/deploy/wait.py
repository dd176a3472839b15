"""Wait until everything that a run has applied works, telling what each object waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack import clock
from mlstack.app.app import ReadyRules
from mlstack.clock import Clock
from mlstack.deploy.changes import ApplyOptions, Change
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ForbiddenError, MlstackError, NotReadyError, ObjectNotFoundError
from mlstack.events import STILL_S, OnEvent, RunEvent, silent
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.retrying import backoff
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Identity, KubeObject, group_of
from mlstack.readiness.assess import assess
from mlstack.readiness.evaluate import SERVICE_LABEL, Logs, ResourceStatus, has_endpoint
from mlstack.readiness.rule import Facts, Readiness, time_s
from mlstack.readiness.terms import ReadinessState, Terms, Verdict
from mlstack.readiness.terms import terms_of as agree
from mlstack.readiness.wait import SAY_AFTER_S, WaitReporter
from mlstack.readiness.watcher import UNSEEN, ReadinessWatcher

# Clocks of people's machines stand wrong by minutes or not at all; a run takes seconds to come here.
CLOCKS_DIFFER_S = 60.0
# Refused credentials are no restart of the server after this time.
REFUSED_S = 15.0

Manifest = Mapping[str, Any]


def terms_of(
    wanted: Sequence[KubeObject], resolved: ResolvedTarget, options: ApplyOptions
) -> Mapping[Identity, Terms]:
    """Give on what terms each object of a run is waited for.

    Raises:
        ConfigError: an annotation says something else than a policy or a duration.
    """
    return {
        one.identity: agree(
            one,
            timeout_s=options.timeout_s,
            component_s=resolved.state.timeouts,
            wait_for_jobs=options.wait_for_jobs,
        )
        for one in wanted
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
    wanted = [change.desired for change in changes if change.desired is not None]
    if not wanted:
        return
    terms = {
        who: one if who in written else one.untouched
        for who, one in terms_of(wanted, resolved, options).items()
    }
    uids = {change.identity: change.live_uid for change in changes if change.live_uid}
    uids |= {who: str(data["metadata"]["uid"]) for who, data in written.items()}
    place = resolved.place
    watcher = ReadinessWatcher(
        resolved.cluster,
        [one for one in wanted if terms[one.identity].policy != "none"],
        clock=clock,
        labels=kube_object.selector(app=resolved.state.app, environment=resolved.state.environment),
        wait_for_load_balancer=place.wait_for_load_balancer,
        uids=uids,
        ahead_s=_ahead_s(written, clock.now_s()),
        rules=resolved.rules,
        logs=Logs.of_state(resolved.cluster, resolved.state),
    )
    hint = f"mlstack status {place.name}"
    until_ready(watcher, terms, clock=clock, on_event=on_event, standings=standings, hint=hint)


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
    watcher: ReadinessWatcher,
    terms: Mapping[Identity, Terms],
    *,
    clock: Clock,
    on_event: OnEvent,
    standings: dict[Identity, ReadinessState] | None = None,
    hint: str = "",
) -> None:
    """Return when every object works, or goes on by itself as its terms allow.

    `standings` is filled with the last state of every object, however this ends; `hint` says what to do when
    something does not work.

    Raises:
        NotReadyError: a required object failed for good, or is not ready in time; `reasons` names each.
        ForbiddenError: the cluster does not take our credentials any more.
    """
    watch = _Watch(terms, clock, WaitReporter(clock, on_event))
    try:
        with watcher:
            for seen in watcher.rounds():
                watch.look(seen, watcher.outage())
                if watch.is_over:
                    break
    finally:
        if standings is not None:
            standings.update(watch.standings)
    if not watch.is_fine:
        for note in watcher.notes:
            on_event(RunEvent("note", None, note))
    watch.reporter.tell_left(watch.left)
    watch.refuse_troubles(hint)


@dataclass
class _State:
    """What was found of one object, since when, and what follows."""

    found: Readiness
    since_s: float
    verdict: Verdict = "wait"


class _Watch:
    def __init__(self, terms: Mapping[Identity, Terms], clock: Clock, reporter: WaitReporter) -> None:
        self._terms, self._clock, self.reporter = terms, clock, reporter
        self._begun_s = clock.now_s()
        self._outage: MlstackError | None = None
        self._outage_s: float | None = None
        self.states: dict[Identity, _State] = {}

    def look(self, seen: Sequence[ResourceStatus], outage: MlstackError | None) -> None:
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
        self.reporter.tell({who: found for who, found in waits.items() if found is not UNSEEN})

    @property
    def standings(self) -> Mapping[Identity, ReadinessState]:
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
                self.reporter.say("the API server answers again")
            self._outage = self._outage_s = None
            return
        self._outage = outage
        if self._outage_s is None:
            self._outage_s = now_s
            self.reporter.say(f"{outage.message}; waiting goes on")
        if isinstance(outage, ForbiddenError) and now_s - self._outage_s >= REFUSED_S:
            raise outage


def _kind(found: Readiness) -> tuple[str, str]:
    return found.state, found.queue


def _sentence(who: Identity, found: Readiness) -> str:
    return f"{who}: {found.reason or found.state}"


# --- Wait at the gates of a run: until what others depend on works, and a webhook's Service answers ---

_SAY_AFTER_S = 2.0


class Barriers:
    """Waits for one run until what others depend on works."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        on_event: OnEvent,
        timeout_s: float | None = None,
        component_s: Mapping[str, float] | None = None,
        rules: ReadyRules | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self._rules, self._logs = rules, Logs(cluster, secrets)
        self._cluster, self._clock, self._on_event = cluster, clock, on_event
        self._timeout_s, self._component_s = timeout_s, component_s

    def _terms(self, wanted: KubeObject) -> Terms:
        """Give the terms of an object: until a job runs, too."""
        return agree(wanted, timeout_s=self._timeout_s, component_s=self._component_s, wait_for_jobs=True)

    def ready(self, name: str, wanted: Sequence[KubeObject]) -> None:
        """Return when all these objects work, and Jobs among them have ended well.

        Raises:
            NotReadyError: one failed for good, or its time is over; names what is not ready, with the reason.
        """
        terms = {one.identity: self._terms(one) for one in wanted}
        looked_at = [one for one in wanted if terms[one.identity].policy != "none"]
        try:
            watcher = ReadinessWatcher(
                self._cluster, looked_at, clock=self._clock, rules=self._rules, logs=self._logs
            )
            until_ready(watcher, terms, clock=self._clock, on_event=self._on_event)
            for one in looked_at:
                if (one.group, one.kind) == ("batch", "Job"):
                    self._ended(one, terms[one.identity].timeout_s)
        except NotReadyError as error:
            error.message = f"{name} is not ready, and other objects depend on it: {error.message}"
            error.args = (error.message,)
            raise

    def endpoint(self, service: Identity, webhooks: Sequence[KubeObject]) -> None:
        """Return when a Service leads to a pod that is ready.

        Raises:
            NotReadyError: it does not in time.
        """
        timeout_s = max(self._terms(one).timeout_s for one in webhooks)
        told = RunEvent("pending", service, "has no ready endpoint yet; its webhook is set up after that")
        if not self._poll(lambda: self._has_endpoint(service), timeout_s, told):
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
        if not self._poll(ended, timeout_s, told):
            raise NotReadyError(f"`{job.identity}` did not end within {timeout_s:.0f} s")

    def _poll(self, holds: Callable[[], bool], timeout_s: float, event: RunEvent) -> bool:
        return _poll(
            holds, timeout_s, self._clock, event=event, on_event=self._on_event, say_after_s=_SAY_AFTER_S
        )


# --- wait until a definition is served ---

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
    """Return when the API server serves what a definition defines; said every `STILL_S`.

    Raises:
        NotReadyError: it refuses the definition's names, or does not serve it in time.
    """

    def is_served() -> bool:
        readiness = assess(Facts(data=cluster.get(ref) or {}, now_s=clock.now_s()))
        if readiness.state == "failed":
            raise NotReadyError(f"`{ref}` cannot be served: {readiness.reason}", where=str(ref))
        return readiness.state == "ready"

    identity = Identity(group_of(ref.api_version), ref.kind, ref.namespace, ref.name)
    event = RunEvent("still", identity, "until the API server serves it")
    if not _poll(is_served, timeout_s, clock, event=event, on_event=on_event, say_after_s=STILL_S):
        raise NotReadyError(
            f"`{ref}` was not served within {timeout_s:.0f} s",
            where=str(ref),
            hint=f"kubectl describe crd {ref.name}",
        )


def _poll(
    holds: Callable[[], bool],
    timeout_s: float,
    clock: Clock,
    *,
    event: RunEvent,
    on_event: OnEvent,
    say_after_s: float,
) -> bool:
    """Ask until something holds; tell `event` after a while and again from time to time; false when late."""
    begun_s, due_s, said = clock.now_s(), say_after_s, event
    for pause_s in backoff(0.05, 1.0):
        if holds():
            return True
        waited_s = clock.now_s() - begun_s
        if waited_s >= timeout_s:
            return False
        if waited_s >= due_s:
            on_event(said)
            said, due_s = replace(event, kind="still"), waited_s + STILL_S
        clock.sleep(pause_s)
    raise AssertionError("pauses have no end")
