"""Readiness of Ray and Spark."""

from collections.abc import Mapping
from typing import Any

from mlstack.model.readiness import pods
from mlstack.model.readiness.base import (
    Facts,
    Readiness,
    condition_text,
    done,
    failed,
    job_rule,
    number,
    ready,
    rule,
    suspended,
    waiting,
)
from mlstack.model.readiness.operators import unseen


@rule("ray.io/RayCluster")
def ray_cluster(facts: Facts) -> Readiness:
    """A RayCluster is ready when its head and all workers it wants now are."""
    status, state = facts.status, str(facts.status.get("state") or "")
    if facts.has("RayClusterSuspended") or state == "suspended":
        return suspended()
    if state == "failed":
        return failed(str(status.get("reason") or "failed"))
    if facts.has("ReplicaFailure"):
        return pods.refused(condition_text(facts.condition("ReplicaFailure")))
    want, have = number(status, "desiredWorkerReplicas"), number(status, "readyWorkerReplicas")
    if facts.has("RayClusterProvisioned") or state == "ready":
        # Provisioned once is provisioned for ever: it says nothing about workers of today.
        if have >= want:
            return ready(f"{want} of {want} workers")
        return pods.because(facts, f"{have} of {want} workers ready")
    return unseen(facts) or pods.because(facts, f"{have} of {want} workers ready")


@rule("ray.io/RayService")
def ray_service(facts: Facts) -> Readiness:
    """A RayService is ready when it serves; an application that cannot be deployed has failed."""
    applications = _applications(facts.status.get("activeServiceStatus")) | _applications(
        facts.status.get("pendingServiceStatus")
    )
    for name, found in sorted(applications.items()):
        if found.get("status") == "DEPLOY_FAILED":
            return failed(f"application {name}: {found.get('message') or 'cannot be deployed'}")
    if facts.has("Ready") or (
        not facts.condition("Ready") and facts.status.get("serviceStatus") == "Running"
    ):
        return ready()
    said = condition_text(facts.condition("Ready"))
    busy = [f"application {name} is {found.get('status')}" for name, found in sorted(applications.items())]
    text = ", ".join(one for one in busy if not one.endswith("is RUNNING")) or said
    return unseen(facts) or pods.because(facts, text or "is being started")


def _applications(status: Any) -> dict[str, Mapping[str, Any]]:
    return dict((status or {}).get("applicationStatuses") or {})


@job_rule("ray.io/RayJob")
def ray_job(facts: Facts) -> Readiness:
    """A RayJob is ready while its job runs, done when that has succeeded."""
    job, place = facts.status.get("jobStatus"), facts.status.get("jobDeploymentStatus")
    why = str(facts.status.get("message") or facts.status.get("reason") or "")
    if place in ("Failed", "ValidationFailed") or (job == "FAILED" and place != "Retrying"):
        return failed(why or "the job failed")
    if job == "SUCCEEDED" or place == "Complete":
        return done(str(job or place).lower())
    if place in ("Suspended", "Suspending") or facts.spec.get("suspend"):
        return suspended()
    if job == "RUNNING":
        return ready("running")
    stage = f"is {str(place).lower()}" if place else "has not begun"
    return unseen(facts) or pods.because(facts, why or stage, is_job=True)


@job_rule("sparkoperator.k8s.io/SparkApplication")
def spark_application(facts: Facts) -> Readiness:
    """A SparkApplication is ready while it runs, done when completed."""
    found = facts.status.get("applicationState") or {}
    state, why = str(found.get("state") or ""), str(found.get("errorMessage") or "")
    if state in ("FAILED", "SUBMISSION_FAILED"):
        return failed(why or state.lower().replace("_", " "))
    if state == "COMPLETED":
        return done("completed")
    if state in ("SUSPENDED", "SUSPENDING"):
        return suspended()
    if state in ("RUNNING", "SUCCEEDING"):
        return ready("running")
    if not state:
        return unseen(facts) or waiting("is not submitted yet")
    return pods.because(facts, why or f"is {state.lower().replace('_', ' ')}", is_job=True)
