"""The table of readiness rules, what a rule looks at and what it answers.

A rule is a function of values: the live object, its pods, its events and the time as a number. The order
of evaluation and most rules are those of kstatus (kubernetes-sigs/cli-utils), with the holes closed that its
users report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from mlstack.objects.kube_object import group_of
from mlstack.objects.managed_fields import FieldChange
from mlstack.table import Table

State = Literal["ready", "waiting", "failed", "done", "suspended", "terminating", "missing"]

Queue = Literal["", "node", "new-node", "quota"]

UNSEEN = "its controller has not seen the newest version yet"

_FINE: frozenset[State] = frozenset({"ready", "done", "suspended"})


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What a rule says of an object."""

    state: State  # `done` is work that has ended well, `suspended` work that is held on purpose
    reason: str = ""  # what it waits for or why it failed; may be a remark when it is ready
    resource: str = ""  # the extended resource that pods wait for (`nvidia.com/gpu`), if one does
    # What pods only queue for, nothing being wrong with them; `new-node` is one an autoscaler is adding.
    queue: Queue = ""

    @property
    def is_fine(self) -> bool:
        """Tell whether nothing has to happen any more."""
        return self.state in _FINE


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything a rule may look at."""

    data: Mapping[str, Any]  # the live object
    pods: Sequence[Mapping[str, Any]] = ()  # that belong to it; of a claim those that mount it
    events: Sequence[Mapping[str, Any]] = ()  # of the object and of its pods, oldest first
    nodes: Sequence[Mapping[str, Any]] | None = None  # all of them, None if they may not be read
    now_s: float = 0.0  # since 1970
    wait_for_load_balancer: bool = False  # whether a Service of type LoadBalancer needs its address
    late_classes: Set[str] | None = None  # storage classes that bind a claim when its first pod starts
    endpoints: Mapping[tuple[str, str], bool] | None = None  # by a Service's namespace and name: any ready
    has_status: bool | None = None  # whether the kind has one that only its controller writes
    # Last lines of containers that crashed, by the UID of their pod and their name.
    logs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    @property
    def spec(self) -> Mapping[str, Any]:
        """Give the specification."""
        return self.data.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        """Give the status, empty if no controller has written one."""
        return self.data.get("status") or {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Give the metadata."""
        return self.data.get("metadata") or {}

    @property
    def name(self) -> str:
        """Give the object's name."""
        return str(self.metadata.get("name", ""))

    @property
    def age_s(self) -> float:
        """Give the object's age in seconds."""
        return age_s(self.data, self.now_s)

    def condition(self, name: str) -> Mapping[str, Any]:
        """Give the condition of that type, empty if there is none."""
        return condition(self.data, name)

    def has(self, name: str) -> bool:
        """Tell whether a condition is True."""
        return self.condition(name).get("status") == "True"

    def own_events(self) -> list[Mapping[str, Any]]:
        """Give the warning events of the object itself, newest last."""
        return self.events_of(self.data)

    def events_of(self, pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Give the warning events of the object or one of its pods, newest last."""
        uid = (pod.get("metadata") or {}).get("uid")
        about = (event for event in self.events if _about(event).get("uid") == uid)
        return [event for event in about if event.get("type") == "Warning"]

    def was_told(self, about: Mapping[str, Any], reason: str) -> bool:
        """Tell whether an event of that reason was ever sent about an object."""
        uid = (about.get("metadata") or {}).get("uid")
        return any(event.get("reason") == reason and _about(event).get("uid") == uid for event in self.events)


Rule = Callable[[Facts], Readiness]

RULES: Table[Rule] = Table("readiness rule")
rule = RULES.register

RUN_TO_AN_END: set[str] = set()
"""Kinds whose objects run and end, and may queue for hours before: nobody waits for them unasked."""


def job_rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the rule of kinds that run to an end."""
    RUN_TO_AN_END.update(kinds)
    return rule(*kinds)


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What becomes of objects of a kind that cannot change in place."""

    never: str = ""  # what would be lost if one were made anew: it never is
    unasked: str = ""  # why one is made anew without being asked for
    mutable: tuple[str, ...] = ()  # fields that are not meant where the server names `spec` alone
    shared: bool = False  # several apps may bring the same one, as long as they agree on it


REPLACEMENTS: Table[Replacement] = Table("replacement of objects")

# Given a live object and what is to change in it: why that needs a new run, None if it changes in place.
NewRunRule = Callable[[Mapping[str, Any], Sequence[FieldChange]], str | None]

NEW_RUN_RULES: Table[NewRunRule] = Table("rule of what needs a new run")
new_run_rule = NEW_RUN_RULES.register


def key_of(data: Mapping[str, Any]) -> str:
    """Give the name under which the rule of an object's kind is registered: `apps/Deployment`, `Pod`."""
    group, kind = group_of(str(data.get("apiVersion", ""))), str(data.get("kind", ""))
    return f"{group}/{kind}" if group else kind


def runs_to_an_end(data: Mapping[str, Any]) -> bool:
    """Tell whether an object is of a kind that runs to an end."""
    return key_of(data) in RUN_TO_AN_END


def ready(reason: str = "") -> Readiness:
    """Say that it works."""
    return Readiness(state="ready", reason=reason)


def done(reason: str = "") -> Readiness:
    """Say that its work has ended well."""
    return Readiness(state="done", reason=reason)


def suspended(reason: str = "suspended") -> Readiness:
    """Say that it is held on purpose."""
    return Readiness(state="suspended", reason=reason)


def waiting(reason: str, *, resource: str = "", queue: Queue = "") -> Readiness:
    """Say that it is on its way, and what it waits for."""
    return Readiness(state="waiting", reason=reason, resource=resource, queue=queue)


def failed(reason: str) -> Readiness:
    """Say that it will not work without a change."""
    return Readiness(state="failed", reason=reason)


def condition(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give the condition of that type of any object, empty if there is none; TypeError if odd."""
    conditions = (data.get("status") or {}).get("conditions") or ()
    if isinstance(conditions, str | Mapping) or not all(isinstance(entry, Mapping) for entry in conditions):
        raise TypeError("conditions")
    return next((entry for entry in conditions if entry.get("type") == name), {})


def condition_text(entry: Mapping[str, Any]) -> str:
    """Give a condition's message, else its reason."""
    return str(entry.get("message") or entry.get("reason") or "")


def generation_of(observed: object) -> int | None:
    """Read a generation; some controllers write it as text, others write a hash, which says nothing."""
    if isinstance(observed, str) and observed.isdigit():
        return int(observed)
    return observed if isinstance(observed, int) and not isinstance(observed, bool) else None


def age_s(data: Mapping[str, Any], now_s: float) -> float:
    """Give the age of an object in seconds; 0 if it does not say when it was made."""
    created = (data.get("metadata") or {}).get("creationTimestamp")
    return now_s - time_s(created) if created else 0.0


def time_s(text: str) -> float:
    """Give a time that the API server wrote in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def number(values: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Give a count of a status or specification, the default if it is not there."""
    value = values.get(name)
    return value if isinstance(value, int) else default


def _about(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return event.get("involvedObject") or {}
