"""Whether one live object works: what holds for every kind, then the rule of its kind."""

from mlstack.model.objects import group_of
from mlstack.model.readiness import core, ml, platform, workloads
from mlstack.model.readiness.base import RULES, Facts, Readiness, condition_text, failed, ready, waiting

# The files of rules: importing one enters its rules into the table.
RULE_FILES = (core, workloads, platform, ml)

# A controller that is there writes a first status within this time.
STATUS_GRACE_S = 10.0


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
    generation, observed = facts.metadata.get("generation"), facts.status.get("observedGeneration")
    if isinstance(observed, str) and observed.isdigit():
        observed = int(observed)
    if not isinstance(generation, int) or not isinstance(observed, int) or generation == observed:
        return None
    return waiting("its controller has not seen the newest version yet")


def _standard(facts: Facts) -> Readiness | None:
    if facts.has("Reconciling"):
        return waiting(condition_text(facts.condition("Reconciling")))
    if facts.has("Stalled"):
        return failed(condition_text(facts.condition("Stalled")))
    return None


def _by_kind(facts: Facts) -> Readiness:
    group, kind = group_of(str(facts.data.get("apiVersion", ""))), str(facts.data.get("kind", ""))
    found = RULES.get(f"{group}/{kind}" if group else kind)
    if found is not None:
        return found(facts)
    said = facts.condition("Ready")
    if said:
        return ready() if said.get("status") == "True" else waiting(condition_text(said))
    if facts.data.get("status") is None and _is_custom(group):
        # Just created and ready at once would be a lie: its controller has had no time to say anything.
        silent = "no controller has written a status"
        return waiting(f"{silent} yet") if facts.age_s < STATUS_GRACE_S else ready(silent)
    return ready()


def _is_custom(group: str) -> bool:
    return "." in group and not group.endswith(".k8s.io")
