"""The status of a training job: its conditions, its counts, and what went wrong several times in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from datetime import UTC, datetime
from typing import Any, Literal

from mlstack.clock import micro_time
from mlstack.dataclass import dataclass
from mlstack.elastic import training_job
from mlstack.elastic.facts import time_ms
from mlstack.elastic.snapshot import Priority, Reason

LONGEST = 300
"""So much is kept of what a server said: an admission webhook may say much."""
MOST_NODES = 50
"""So many nodes are kept, those that are passed over longest: a status should be small."""
MOST_RECORDS = 10


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A node that had a place on paper only."""

    node: str
    times: int  # how often in a row
    until_ms: int  # until when it is passed over, milliseconds since 1970


def _kept(name: str, default: int | str = 0, *, beside: str = "") -> Any:
    """Declare a counter: its name in the status, and which other one it is written with."""
    return field(default=default, metadata={"name": name, "beside": beside})


@dataclass(frozen=True, kw_only=True)
class FailureCounters:
    """What is counted until something goes well again; times are milliseconds since 1970, 0 for none."""

    # trainers that failed, were counted, and still stand because others come for them later
    failed: int = _kept("failedTrainers")
    # how often in a row some failed; the pause before others come grows with it
    failures: int = _kept("trainerRetries", beside="failed")
    replaced_ms: int = _kept("trainerRetryTime", beside="failed")  # when others come for them
    rounds: int = _kept("failedRounds")  # how often in a row all trainers failed
    # UID of a trainer of the last such round: it tells whether that was counted
    fallen: str = _kept("failedTrainer", "", beside="rounds")
    tries: int = _kept("gangRetries")  # how often in a row the gang was given up because it found no place
    retry_ms: int = _kept("gangRetryTime", beside="tries")  # when it is tried again
    # of the spec that was given up: one that was changed since is tried at once
    retry_generation: int = _kept("gangRetryGeneration", beside="tries")
    # why the API server did not take the gang, empty where it found no place
    refusal: str = _kept("gangRefusal", "", beside="tries")
    # trainers beyond which the API server took no more, 0 where it takes them
    ceiling: int = _kept("trainerCeiling")
    refusals: int = _kept("growthRetries", beside="ceiling")  # how often in a row it took no more
    growth_ms: int = _kept("growthRetryTime", beside="ceiling")  # when more are tried again
    growth_generation: int = _kept("growthRetryGeneration", beside="ceiling")  # of the spec then
    growth_refusal: str = _kept("growthRefusal", "", beside="ceiling")  # why it took no more
    bars: tuple[Bar, ...] = ()  # nodes on which its pods found no room although the plan saw some

    def refused(self, generation: int, now_ms: int) -> str:
        """Say why the gang of the job as it is, or more trainers of it, wait; empty where they do not."""
        if self.refusal and self.retry_generation == generation and now_ms < self.retry_ms:
            return worded(self.refusal, self.retry_ms)
        if self.cap(generation, now_ms):
            return worded(self.growth_refusal, self.growth_ms)
        return ""

    def cap(self, generation: int, now_ms: int) -> int:
        """Give the most trainers that the job as it is may have now, 0 for no such limit."""
        return self.ceiling if self.growth_generation == generation and now_ms < self.growth_ms else 0


def worded(why: str, until_ms: int) -> str:
    """Say what the API server does not take, and until when it is not asked again."""
    moment = datetime.fromtimestamp(until_ms // 1000, UTC).strftime("%H:%M:%S UTC")
    return f"{why[:LONGEST]}; tried again at {moment}"


def write(counters: FailureCounters) -> dict[str, Any]:
    """Give what a status says of it, empty where nothing went wrong; times are exact."""
    written: dict[str, Any] = {}
    for counter in fields(counters):
        if counter.metadata and getattr(counters, counter.metadata["beside"] or counter.name):
            value = getattr(counters, counter.name)
            is_time = counter.name.endswith("_ms")
            written[counter.metadata["name"]] = micro_time(value / 1000) if is_time else value
    if not counters.refusal:
        written.pop("gangRefusal", None)
    # Nodes that were barred together stand together, those that are passed over longest first.
    groups: dict[tuple[int, int], list[str]] = {}
    for bar in sorted(counters.bars, key=lambda bar: (-bar.until_ms, bar.node))[:MOST_NODES]:
        groups.setdefault((bar.until_ms, bar.times), []).append(bar.node)
    rows = [
        {"nodes": nodes, "times": times, "until": micro_time(until_ms / 1000)}
        for (until_ms, times), nodes in groups.items()
    ]
    return {**written, **({"passedOver": rows} if rows else {})}


def read(status: Mapping[str, Any]) -> FailureCounters:
    """Read it from a status."""
    written = status.get("setbacks") or {}
    values: dict[str, Any] = {}
    for counter in fields(FailureCounters):
        value = written.get(counter.metadata.get("name")) or ""
        if counter.name.endswith("_ms"):
            values[counter.name] = time_ms(str(value))
        elif counter.metadata:
            is_text = isinstance(counter.default, str)
            values[counter.name] = str(value) if is_text else int(value or 0)
    bars = tuple(
        Bar(node=str(node), times=int(row.get("times") or 1), until_ms=time_ms(str(row.get("until") or "")))
        for row in written.get("passedOver") or ()
        for node in row.get("nodes") or ()
    )
    return FailureCounters(**values, bars=bars)


# --- how a training job stands: what was seen of its pods, and what was decided for it ---

Outcome = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Pods of one role."""

    desired: int = 0  # how many there are to be
    live: int = 0  # how many neither ended nor are going
    bound: int = 0  # how many of these have a node
    ready: int = 0  # how many of these are ready
    failed: int = 0  # how many failed by themselves since the job was made
    succeeded: int = 0  # how many said that there is no work left


@dataclass(frozen=True, kw_only=True)
class StatusClaims:
    """All that the status of a job is made from."""

    name: str  # of the job
    generation: int  # of its spec
    created_ms: int = 0
    minimum: int = 0  # fewest trainers of a whole gang
    maximum: int = 0  # most trainers
    faults: tuple[str, ...] = ()  # why it cannot be used
    warnings: tuple[str, ...] = ()  # what was read in another way than it is written
    is_suspended: bool = False  # whether it is to have no pods
    outcome: Outcome = ""  # how it ended, empty while it goes on
    outcome_reason: str = ""  # one word for the outcome
    outcome_message: str = ""  # one line for the outcome
    reason: Reason | None = None  # the weightiest reason of the last decision, None before the first
    moves: int = 0  # how many trainers the last decision takes from it for fairness alone
    # its trainers; `desired` is the target of the decision, 0 while it is not admitted
    trainer: Counts = field(default_factory=Counts)
    pserver: Counts = field(default_factory=Counts)  # its parameter servers
    master: Counts = field(default_factory=Counts)  # its master
    # its masters, parameter servers and the trainer at which others meet that should have ended long ago:
    # nobody makes them anew before they have, since two of a name could be at work
    lingering: tuple[str, ...] = ()
    # whether it has trainers, and the one at which the others meet is not ready
    is_meeting_lost: bool = False
    # whether a master or parameter server of them is among these, so that its trainers are lent
    is_paused: bool = False
    held_up: str = ""  # a pod of its whose containers cannot begin, and why, as one example; empty for none
    refusal: str = ""  # why the cluster does not take its pods, empty while it does
    growth_refusal: str = ""  # why it takes no more trainers than there are, empty while it does
    # which names of its Services and the like somebody else's objects have, a sentence each
    taken_names: tuple[str, ...] = ()
    setback: str = ""  # what else goes wrong with its trainers, empty for nothing
    priority: Priority = field(default_factory=Priority)  # how it ranks among jobs
    # what went wrong several times in a row
    setbacks: FailureCounters = field(default_factory=FailureCounters)

    @property
    def is_admitted(self) -> bool:
        """Say whether it has room for its whole gang."""
        return self.trainer.desired > 0

    @property
    def is_finishing(self) -> bool:
        """Say whether a trainer found no work left."""
        return not self.outcome and self.trainer.succeeded > 0

    @property
    def is_there(self) -> bool:
        """Say whether it has just the trainers that it is to have, all of them ready."""
        return self.trainer.ready == self.trainer.live == self.trainer.desired

    @property
    def missing(self) -> tuple[str, ...]:
        """Say what of the gang is not ready: `1 of 2 parameter servers`; empty for a whole gang."""
        needs = (
            ("master", self.master.ready, self.master.desired),
            ("parameter server", self.pserver.ready, self.pserver.desired),
            ("trainer", self.trainer.ready, max(self.minimum, 1)),
        )
        short = [
            f"{ready} of {count} {role}{'' if count == 1 else 's'}"
            for role, ready, count in needs
            if ready < count
        ]
        return (*short, *(["not trainer 0, at which the others meet"] if self.is_meeting_lost else []))


# --- conditions of a training job: what holds, what does not, and why ---

Claim = tuple[bool, str, str]
"""Whether a condition holds, the reason in one word, and in one line."""

# Why a job has no pods, by the cause of the decision.
_OUTSIDE: Mapping[str, str] = {
    "waiting": "WaitingForCapacity",
    "suspended": "PreemptedFor",
    "lost": "MinimumLost",
    "stuck": "Unplaceable",
    "refused": "Refused",
}
# Of these the cause stays to be read while the job waits since then.
_LASTING = frozenset(_OUTSIDE.values()) - {"WaitingForCapacity", "Refused"}
_SINCE = "; since then: "
# Why the number of trainers is what it is.
_SCALES: Mapping[str, str] = {
    "admitted": "Admitted",
    "minimum": "MinimumRestored",
    "bounds": "BoundsChanged",
    "growth": "RoomFree",
    "yield": "PreemptedFor",
    "gang": "PreemptedFor",
    "fairness": "Rebalanced",
    "stuck": "Unplaceable",
    "refused": "Refused",
}


def says_waiting(status: Mapping[str, Any], text: str) -> bool:
    """Tell whether a status says already that the job waits, and for just this."""
    admitted = _by_type(status).get("Admitted", {})
    reason, message = admitted.get("reason"), str(admitted.get("message") or "")
    if reason in ("WaitingForCapacity", "Refused"):
        return message == text
    return reason in _LASTING and message.endswith(f"{_SINCE}{text}")


def _by_type(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(condition.get("type")): condition for condition in status.get("conditions") or ()}


def _conditions(
    standing: StatusClaims, before: Mapping[str, Any], records: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Give the conditions; the time of a transition stays where nothing changed sides."""
    known = _by_type(before)
    claims: dict[str, Claim] = {
        "Admitted": _admitted(standing, known.get("Admitted", {})),
        "GangReady": _gang_ready(standing),
        "Progressing": _progressing(standing),
        "Degraded": _degraded(standing, has_started=bool(before.get("startTime"))),
        "Scaled": _scaled(standing, records),
    }
    if priority := standing.priority.reason:
        claims["PriorityGranted"] = (standing.priority.is_granted, priority, standing.priority.message)
    conditions = []
    for kind, (holds, reason, message) in claims.items():
        status, earlier = "True" if holds else "False", known.get(kind, {})
        since = earlier.get("lastTransitionTime", now) if earlier.get("status") == status else now
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "observedGeneration": standing.generation,
                "lastTransitionTime": since,
            }
        )
    return conditions


def _admitted(standing: StatusClaims, before: Mapping[str, Any]) -> Claim:
    if standing.faults:
        return False, "InvalidSpec", "; ".join(standing.faults)
    if standing.outcome:
        return False, "Finished", standing.outcome_message
    if standing.is_suspended:
        return False, "Suspended", "spec.suspend is true"
    if standing.is_admitted:
        return True, "Admitted", "there is room for the whole gang"
    if standing.reason is None:
        return False, "NotPlanned", "no plan was made yet"
    reason, message = _OUTSIDE.get(standing.reason.cause, "WaitingForCapacity"), standing.reason.text
    if reason != "WaitingForCapacity" or before.get("reason") not in _LASTING:
        return False, reason, message
    why = str(before.get("message") or "").partition(_SINCE)[0]  # it was taken off, and waits since then
    return False, str(before["reason"]), f"{why}{_SINCE}{message}"


def _absent(standing: StatusClaims) -> Claim | None:
    """Say why a job has no pods that could be ready."""
    if standing.outcome:
        return False, "Finished", standing.outcome_message
    return None if standing.is_admitted else (False, "NotAdmitted", "the job has no pods")


def _gang_ready(standing: StatusClaims) -> Claim:
    if absent := _absent(standing):
        return absent
    if standing.missing:
        return False, "PodsNotReady", _unready(standing)
    return True, "AllReady", "the whole gang is ready"


def _unready(standing: StatusClaims) -> str:
    """Say what of the gang is not ready, and why."""
    return f"ready: {', '.join(standing.missing)}{_held_up(standing)}{_hindrance(standing)}"


def _held_up(standing: StatusClaims) -> str:
    """Say what keeps pods that were made from being ready."""
    return f"; {standing.held_up}" if standing.held_up else ""


def _hindrance(standing: StatusClaims) -> str:
    """Say what keeps pods from being made."""
    if standing.refusal:
        return f"; refused: {standing.refusal[:LONGEST]}"
    if standing.setback:
        return f"; {standing.setback}"
    if not standing.lingering:
        return ""
    names = ", ".join(f"`{name}`" for name in standing.lingering)
    return f"; {names} should have ended: if the node is gone, delete it, or the pod by force"


def _progressing(standing: StatusClaims) -> Claim:
    trainer = standing.trainer
    if standing.is_finishing:
        done = "1 trainer" if trainer.succeeded == 1 else f"{trainer.succeeded} trainers"
        return True, "Completing", f"{done} found no work left, {trainer.live} still at work"
    if absent := _absent(standing):
        return absent
    if trainer.live > trainer.bound:
        text = f"{trainer.live - trainer.bound} of {trainer.live} trainers wait for a node"
        return True, "Binding", text
    if trainer.ready != trainer.desired or standing.missing:
        refused = _hindrance(standing) if trainer.live < trainer.desired else ""
        text = f"{trainer.ready} of {trainer.desired} trainers are ready{_held_up(standing)}{refused}"
        return True, "Starting", text
    return False, "Steady", "all trainers that it was given are ready"


def _degraded(standing: StatusClaims, *, has_started: bool) -> Claim:
    if standing.faults:
        return True, "InvalidSpec", "; ".join(standing.faults)
    if standing.outcome == "Failed":
        return True, standing.outcome_reason or "Failed", standing.outcome_message
    if not standing.is_admitted and standing.reason and standing.reason.cause == "refused":
        return True, "Refused", standing.reason.text
    if standing.is_admitted and not standing.outcome and not standing.is_finishing:
        if standing.is_paused:
            text = f"the room of its trainers is lent till all servers are back{_hindrance(standing)}"
            return True, "Paused", text
        if has_started and standing.missing:
            return True, "MinimumLost", f"the gang is not whole any more; {_unready(standing)}"
        if standing.taken_names:
            return True, "NameTaken", "; ".join(standing.taken_names)[:LONGEST]
        if refusal := standing.growth_refusal or (standing.missing and standing.refusal):
            return True, "Refused", refusal[:LONGEST]
    if standing.warnings:
        return False, "Warnings", "; ".join(standing.warnings)
    return False, "AsExpected", ""


def _scaled(standing: StatusClaims, records: Sequence[Mapping[str, Any]]) -> Claim:
    if not records:
        return False, "NeverScaled", "it was given no trainers yet"
    last = records[-1]
    reason = _SCALES.get(str(last.get("cause")), "Scaled")
    text = f"trainers {last.get('from')} -> {last.get('to')}: {last.get('reason')}"
    return standing.is_there or standing.is_finishing or bool(standing.outcome), reason, text


# --- the status of a training job: what a person, `mlstack status` and the next leader read ---
# Nothing in it changes while nothing happens, so that a steady job costs no write.

Phase = Literal[
    "Pending", "Admitted", "Running", "Scaling", "Completing", "Paused", "Succeeded", "Failed", "Suspended"
]


def build_status(standing: StatusClaims, before: Mapping[str, Any], *, now_ms: int) -> dict[str, Any]:
    """Give the whole status of a job."""
    now = timestamp(now_ms)
    records = _records(standing, before, now_ms)
    conditions = _conditions(standing, before, records, now)
    selector = training_job.selector(standing.name, "trainer")
    status: dict[str, Any] = {
        "observedGeneration": standing.generation,
        "phase": _phase(standing, before),
        "reason": _reason(standing, conditions),
        "conditions": conditions,
        "trainer": {
            **_counts(standing.trainer),
            "replicas": standing.trainer.live,  # what the scale subresource reports
            "succeeded": standing.trainer.succeeded,
            "fulfilment": f"{_fulfilment_pct(standing)}%",
        },
        "pserver": _counts(standing.pserver),
        "master": _counts(standing.master),
        "priority": standing.priority.value or None,
        "selector": ",".join(f"{name}={value}" for name, value in selector.items()),
        "scaleRecords": records,
        "setbacks": write(standing.setbacks),
        **_times(standing, before, now_ms),
        "throughput": before.get("throughput"),
    }
    return {name: value for name, value in status.items() if value not in (None, "", [], {})}


def _phase(standing: StatusClaims, before: Mapping[str, Any]) -> Phase:
    """Give one word for where a job is between its creation and its end."""
    if standing.outcome:
        return standing.outcome
    phases: tuple[tuple[bool, Phase], ...] = (
        (bool(standing.faults), "Pending"),
        (standing.is_suspended, "Suspended"),
        (not standing.is_admitted, "Pending"),
        (standing.is_finishing, "Completing"),
        (standing.is_paused, "Paused"),
        (bool(standing.missing) and not before.get("startTime"), "Admitted"),
        (standing.is_there, "Running"),
    )
    return next((phase for holds, phase in phases if holds), "Scaling")


def _reason(standing: StatusClaims, conditions: Sequence[Mapping[str, Any]]) -> str:
    """Give the one line that explains a job that does not run as it should."""
    if standing.outcome:
        return standing.outcome_message
    admitted, gang, _, degraded, *_ = conditions
    doubtful = [degraded] if degraded["status"] == "True" else []
    doubtful += [condition for condition in (admitted, gang) if condition["status"] == "False"]
    return str(doubtful[0]["message"]) if doubtful else ""


def _fulfilment_pct(standing: StatusClaims) -> int:
    """Say how much of its elastic range a job was given, as EDL counted it: 100 for a rigid job."""
    minimum, maximum = standing.minimum, standing.maximum
    if not standing.is_admitted:
        return 0
    if maximum <= minimum:
        return 100
    return 100 * (min(standing.trainer.desired, maximum) - minimum) // (maximum - minimum)


def _counts(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in ("desired", "bound", "ready", "failed")}


def _records(standing: StatusClaims, before: Mapping[str, Any], now_ms: int) -> list[dict[str, Any]]:
    """Give the last changes of the number of trainers, the latest at the end.

    Their times are exact: a new leader reads from them which moves are still to be counted.
    """
    records = [dict(record) for record in before.get("scaleRecords") or ()]
    earlier = int((before.get("trainer") or {}).get("desired") or 0)
    if standing.trainer.desired != earlier:
        cause = (
            "suspended" if standing.is_suspended else standing.reason.cause if standing.reason else "unknown"
        )
        records.append(
            {
                "time": micro_time(now_ms / 1000),
                "from": earlier,
                "to": standing.trainer.desired,
                "cause": "finished" if standing.outcome else cause,
                "reason": standing.reason.text if standing.reason else standing.outcome_message,
                **({"moves": standing.moves} if standing.moves else {}),
            }
        )
    return records[-MOST_RECORDS:]


def _times(standing: StatusClaims, before: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Give when it was admitted, whole and done; one that is queued again begins anew.

    How long it waited for its whole gang is told once, for the first time.
    """
    now, waited = timestamp(now_ms), before.get("waitingSeconds")
    if not standing.is_admitted and not standing.outcome:
        return {"waitingSeconds": waited}
    times = {name: before.get(name) for name in ("admittedTime", "startTime", "completionTime")}
    if standing.outcome:
        times["completionTime"] = times["completionTime"] or now
    else:
        times["admittedTime"] = times["admittedTime"] or now
        if not standing.missing and not times["startTime"]:
            times["startTime"] = now
            waited = max(0, now_ms - standing.created_ms) // 1000 if waited is None else waited
    return {**times, "waitingSeconds": waited}


def timestamp(moment_ms: int) -> str:
    """Write a time as Kubernetes does."""
    return datetime.fromtimestamp(moment_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended_ms(status: Mapping[str, Any]) -> int | None:
    """Give when a job ended, milliseconds since 1970; None while it goes on."""
    return time_ms(str(status.get("completionTime") or "")) or None
