"""Wait until everything that a run has applied works, telling what each object waits for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.engine.target import Reached
from mlstack.engine.waiting.judge import Seen
from mlstack.engine.waiting.logs import Logs
from mlstack.engine.waiting.lookout import UNSEEN, Lookout
from mlstack.engine.waiting.teller import SAY_AFTER_S, Teller
from mlstack.errors import ForbiddenError, MlstackError, NotReadyError
from mlstack.model import durations, objects
from mlstack.model.clock import Clock
from mlstack.model.diff import Change
from mlstack.model.events import Event, OnEvent
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.options import ApplyOptions
from mlstack.model.readiness.base import Readiness, time_s
from mlstack.model.readiness.terms import Standing, Terms, Verdict
from mlstack.model.readiness.terms import terms_of as agree

# Clocks of people's machines stand wrong by minutes or not at all; a run takes seconds to come here.
CLOCKS_DIFFER_S = 60.0
# Refused credentials are no restart of the server after this time.
REFUSED_S = 15.0

Found = Mapping[Identity, Standing]


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
    lookout = Lookout(
        reached.cluster,
        [one for one in wanted if terms[one.identity].policy != "none"],
        clock=clock,
        labels=objects.selector(app=reached.state.app, environment=reached.state.environment),
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
    lookout: Lookout,
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
    watch = _Watch(terms, clock, Teller(clock, on_event))
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
            on_event(Event("note", None, note))
    watch.teller.tell_left(watch.left)
    watch.refuse_troubles(hint)


@dataclass
class _State:
    """What was found of one object, since when, and what follows."""

    found: Readiness
    since_s: float
    verdict: Verdict = "wait"


class _Watch:
    def __init__(self, terms: Mapping[Identity, Terms], clock: Clock, teller: Teller) -> None:
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
        return {who: Standing(readiness=one.found, verdict=one.verdict) for who, one in self.states.items()}

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
        waited, away = durations.words(now_s - self._begun_s), ""
        if self._outage is not None and self._outage_s is not None:
            away = f"; the API server has not answered for {durations.words(now_s - self._outage_s)}"
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
