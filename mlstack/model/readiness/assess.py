"""Whether one live object works: what holds for every kind, then the rule of its kind."""

from mlstack.model.objects import group_of
from mlstack.model.readiness import (
    computing,
    core,
    pipelines,
    platform,
    pods,
    queues,
    serving,
    training,
    workloads,
)
from mlstack.model.readiness.base import (
    RULES,
    Facts,
    Readiness,
    condition_text,
    failed,
    key_of,
    ready,
    waiting,
)

# The files of rules: importing one enters its rules into the table.
RULE_FILES = (core, workloads, platform, training, computing, serving, queues, pipelines)

# A controller that is there writes a first status within this time.
STATUS_GRACE_S = 10.0

# Conditions that tell for which generation they were found, in APIs without an `observedGeneration`.
_DATED = ("Ready", "Programmed", "Accepted", "Available")
_UNSEEN = "its controller has not seen the newest version yet"


def assess(facts: Facts) -> Readiness:
    """Say whether an object works, and if not why.

    First match wins: it is being deleted; its newest version was not looked at yet; a condition
    Reconciling or Stalled; the rule of its kind; a condition Ready; else it is ready.
    """
    if facts.metadata.get("deletionTimestamp"):
        left = ", ".join(facts.metadata.get("finalizers") or ())
        return Readiness(state="terminating", reason=f"waits for finalizers: {left}" if left else "")
    return _unobserved(facts) or _standard(facts) or _by_kind(facts)


def _unobserved(facts: Facts) -> Readiness | None:
    generation = facts.metadata.get("generation")
    if not isinstance(generation, int):
        return None
    observed = _as_number(facts.status.get("observedGeneration"))
    if observed is not None and observed != generation:
        return waiting(_UNSEEN)
    dated = (_as_number(facts.condition(name).get("observedGeneration")) for name in _DATED)
    return waiting(_UNSEEN) if any(one is not None and 0 < one < generation for one in dated) else None


def _as_number(observed: object) -> int | None:
    """Read a generation; some controllers write it as text, others write a hash, which says nothing."""
    if isinstance(observed, str) and observed.isdigit():
        return int(observed)
    return observed if isinstance(observed, int) and not isinstance(observed, bool) else None


def _standard(facts: Facts) -> Readiness | None:
    if facts.has("Reconciling"):
        return waiting(condition_text(facts.condition("Reconciling")))
    if facts.has("Stalled"):
        return failed(condition_text(facts.condition("Stalled")))
    return None


def _by_kind(facts: Facts) -> Readiness:
    found = RULES.get(key_of(facts.data))
    if found is not None:
        return found(facts)
    said = facts.condition("Ready")
    if said:
        return ready() if said.get("status") == "True" else pods.because(facts, condition_text(said))
    if not facts.status and _has_controller(facts):
        # Just created and ready at once would be a lie: its controller has had no time to say anything.
        silent = "no controller has written a status"
        return waiting(f"{silent} yet") if facts.age_s < STATUS_GRACE_S else ready(silent)
    return ready()


def _has_controller(facts: Facts) -> bool:
    """Tell whether somebody is to write a status: the definition says so, or nothing speaks against it."""
    if facts.has_status is not None:
        return facts.has_status
    group = group_of(str(facts.data.get("apiVersion", "")))
    return "." in group and not group.endswith(".k8s.io")
