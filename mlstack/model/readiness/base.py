"""The table of readiness rules, what a rule looks at and what it answers.

A rule is a function of values: the live object, its pods, its events and the time as a number. The order
of evaluation and most rules are those of kstatus (kubernetes-sigs/cli-utils), with the holes closed that its
users report.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from mlstack.model.objects import group_of
from mlstack.model.table import Table

State = Literal["ready", "waiting", "failed", "done", "suspended", "terminating", "missing"]

Queue = Literal["", "node", "new-node", "quota"]

UNSEEN = "its controller has not seen the newest version yet"

_FINE: frozenset[State] = frozenset({"ready", "done", "suspended"})


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What a rule says of an object.

    Attributes:
        state: `done` is work that has ended well, `suspended` work that is held on purpose.
        reason: what it waits for or why it failed; may be a remark when it is ready.
        resource: the extended resource that pods wait for (`nvidia.com/gpu`), if one does.
        queue: what pods only queue for, nothing being wrong with them: a `node`, a `new-node` that an
            autoscaler is adding, `quota`; empty if they do not.
    """

    state: State
    reason: str = ""
    resource: str = ""
    queue: Queue = ""

    @property
    def is_fine(self) -> bool:
        """Tell whether nothing has to happen any more."""
        return self.state in _FINE


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything a rule may look at.

    Attributes:
        data: the live object.
        pods: the pods that belong to it (for a claim: the pods that mount it).
        events: the events of the object and of its pods, oldest first.
        nodes: all nodes, None if they may not be read.
        now_s: the time in seconds since 1970.
        wait_for_load_balancer: whether a Service of type LoadBalancer needs its address.
        late_classes: the storage classes that bind a claim when its first pod starts, None if unknown.
        endpoints: whether a Service, by namespace and name, has a ready endpoint; None if unknown.
        has_status: whether the kind has a status that only its controller writes; None if unknown.
        logs: last lines of containers that crashed, by the UID of their pod and their name.
    """

    data: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()
    nodes: Sequence[Mapping[str, Any]] | None = None
    now_s: float = 0.0
    wait_for_load_balancer: bool = False
    late_classes: Set[str] | None = None
    endpoints: Mapping[tuple[str, str], bool] | None = None
    has_status: bool | None = None
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
        uid = self.metadata.get("uid")
        return [event for event in self.events if _is_warning(event) and _about(event).get("uid") == uid]

    def events_of(self, pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Give the warning events of one of its pods, newest last."""
        uid = (pod.get("metadata") or {}).get("uid")
        return [event for event in self.events if _is_warning(event) and _about(event).get("uid") == uid]

    def was_told(self, about: Mapping[str, Any], reason: str) -> bool:
        """Tell whether an event of that reason was ever sent about an object."""
        uid = (about.get("metadata") or {}).get("uid")
        return any(one.get("reason") == reason and _about(one).get("uid") == uid for one in self.events)


Rule = Callable[[Facts], Readiness]

RULES: Table[Rule] = Table("readiness rule")
rule = RULES.register

RUN_TO_AN_END: set[str] = set()
"""Kinds whose objects run and end, and may queue for hours before: nobody waits for them unasked."""


def job_rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the rule of kinds that run to an end."""
    RUN_TO_AN_END.update(kinds)
    return rule(*kinds)


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
    """Give the condition of that type of any object, empty if there is none.

    Raises:
        TypeError: the conditions are no list of maps.
    """
    conditions = (data.get("status") or {}).get("conditions") or ()
    if isinstance(conditions, str | Mapping) or not all(isinstance(one, Mapping) for one in conditions):
        raise TypeError("conditions")
    return next((one for one in conditions if one.get("type") == name), {})


def condition_text(found: Mapping[str, Any]) -> str:
    """Give a condition's message, else its reason."""
    return str(found.get("message") or found.get("reason") or "")


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
    found = values.get(name)
    return found if isinstance(found, int) else default


def _is_warning(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "Warning"


def _about(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return event.get("involvedObject") or {}
