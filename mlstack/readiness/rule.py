"""The table of readiness rules, what a rule looks at and what it answers.

A rule is a function of values: the live object, its pods, its events and the time as a number. The order
of evaluation and most rules are those of kstatus (kubernetes-sigs/cli-utils), with the holes closed that its
users report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import Any, Literal

from mlstack.dataclass import dataclass
from mlstack.names import Table
from mlstack.objects.kube_object import group_of
from mlstack.objects.managed_fields import FieldChange
from mlstack.objects.references import PodTemplate

State = Literal["ready", "waiting", "failed", "done", "suspended", "terminating", "missing"]

Queue = Literal["", "node", "new-node", "quota"]

UNSEEN = "its controller has not seen the newest version yet"


@dataclass(frozen=True)
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
        return self.state in ("ready", "done", "suspended")


ready = partial(Readiness, "ready")
done = partial(Readiness, "done")
failed = partial(Readiness, "failed")
waiting = partial(Readiness, "waiting")
SUSPENDED = Readiness("suspended", "suspended")


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
    def age_s(self) -> float:
        """Give the object's age in seconds."""
        return age_s(self.data, self.now_s)

    def text(self, *paths: str) -> str:
        """Give the first text that the status has at one of these paths, empty without."""
        for path in paths:
            value: Any = self.status
            for key in path.split("."):
                value = (value or {}).get(key)
            if value:
                return str(value)
        return ""

    def condition(self, name: str) -> Mapping[str, Any]:
        """Give the condition of that type, empty if there is none."""
        return condition(self.data, name)

    def has(self, name: str) -> bool:
        """Tell whether a condition is True."""
        return self.condition(name).get("status") == "True"

    def why(self, name: str) -> str:
        """Give the message of a condition, else its reason."""
        return condition_text(self.condition(name))

    def about(self, obj: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
        """Give the events about the object itself or one of its pods, newest last."""
        uid = ((self.data if obj is None else obj).get("metadata") or {}).get("uid")
        return [event for event in self.events if (event.get("involvedObject") or {}).get("uid") == uid]

    def warnings(self, obj: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
        """Give those of them that warn."""
        return [event for event in self.about(obj) if event.get("type") == "Warning"]


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


PodsRule = Callable[[Mapping[str, Any]], Iterable[PodTemplate]]
"""From an object's specification to its pods, where its controller makes other ones than stand in it."""

PODS: Table[PodsRule] = Table("rule of pods")
pods_rule = PODS.register

UNCOUNTED: set[str] = set()
"""Kinds that make pods which nobody can count beforehand."""


def key_of(data: Mapping[str, Any]) -> str:
    """Give the name under which the rule of an object's kind is registered: `apps/Deployment`, `Pod`."""
    group, kind = group_of(str(data.get("apiVersion", ""))), str(data.get("kind", ""))
    return f"{group}/{kind}" if group else kind


def condition(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give the condition of that type of any object, empty if there is none; TypeError if odd."""
    conditions = (data.get("status") or {}).get("conditions") or ()
    if isinstance(conditions, str | Mapping) or not all(isinstance(entry, Mapping) for entry in conditions):
        raise TypeError("conditions")
    return next((entry for entry in conditions if entry.get("type") == name), {})


def condition_text(entry: Mapping[str, Any]) -> str:
    """Give a condition's message, else its reason."""
    return str(entry.get("message") or entry.get("reason") or "")


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
