"""Readiness of Kueue: queues that admit, workloads that are admitted."""

from mlstack.model.readiness.base import (
    Facts,
    Readiness,
    condition_text,
    done,
    failed,
    ready,
    rule,
    suspended,
    waiting,
)
from mlstack.model.readiness.operators import unseen

# What no other object can mend: the queue itself has to be changed.
_PERMANENT = frozenset(
    {
        "MultipleMultiKueueAdmissionChecks",
        "MultiKueueAdmissionCheckAppliedPerFlavor",
        "MultiKueueWithProvisioningRequest",
        "NotSupportedWithTopologyAwareScheduling",
        "BadConfig",
    }
)


@rule("kueue.x-k8s.io/ClusterQueue", "kueue.x-k8s.io/LocalQueue", "kueue.x-k8s.io/AdmissionCheck")
def queue(facts: Facts) -> Readiness:
    """A queue is ready when active; what it refers to may come a moment later."""
    active = facts.condition("Active")
    if active.get("status") == "True":
        return ready()
    why = condition_text(active)
    if active.get("reason") == "Stopped" or facts.spec.get("stopPolicy") in ("Hold", "HoldAndDrain"):
        return suspended(why or "stopped")
    if active.get("reason") in _PERMANENT:
        return failed(why)
    return unseen(facts) or waiting(why or "is not active yet")


@rule("kueue.x-k8s.io/Workload")
def workload(facts: Facts) -> Readiness:
    """A Workload is ready when admitted; until then it waits for quota."""
    finished = facts.condition("Finished")
    if finished.get("status") == "True":
        text = condition_text(finished)
        return failed(text) if "Failed" in str(finished.get("reason")) else done(text)
    if facts.spec.get("active") is False:
        evicted = facts.condition("Evicted")
        if str(evicted.get("reason")).startswith("Deactivated"):
            return failed(condition_text(evicted))
        return suspended("not active")
    if facts.has("Admitted"):
        return ready()
    why = condition_text(facts.condition("QuotaReserved")) or condition_text(facts.condition("Admitted"))
    if not why:
        return unseen(facts) or waiting("waiting for quota", queue="quota")
    return waiting(f"waiting for quota: {why}", queue="quota")
