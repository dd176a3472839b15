"""Readiness of what runs many steps: Katib experiments, Argo workflows."""

from mlstack.model.readiness import pods
from mlstack.model.readiness.base import (
    Facts,
    Readiness,
    condition_text,
    done,
    failed,
    job_rule,
    ready,
    rule,
    suspended,
)
from mlstack.model.readiness.operators import unseen


@job_rule("kubeflow.org/Experiment", "kubeflow.org/Trial")
def experiment(facts: Facts) -> Readiness:
    """An Experiment is ready while it runs trials, done when it has found its goal or used up its trials."""
    for name in ("Failed", "MetricsUnavailable"):
        if facts.has(name):
            return failed(condition_text(facts.condition(name)))
    for name in ("Succeeded", "EarlyStopped"):
        if facts.has(name):
            return done(condition_text(facts.condition(name)))
    if facts.has("Running"):
        return ready("running")
    said = condition_text(facts.condition("Created"))
    return unseen(facts) or pods.because(facts, said or "has not begun", is_job=True)


@job_rule("argoproj.io/Workflow")
def workflow(facts: Facts) -> Readiness:
    """A Workflow is ready while it runs, done when it has succeeded."""
    phase, why = str(facts.status.get("phase") or ""), str(facts.status.get("message") or "")
    if phase in ("Failed", "Error"):
        return failed(why or phase.lower())
    if phase == "Succeeded":
        return done("succeeded")
    if facts.spec.get("suspend"):
        return suspended()
    if phase == "Running":
        found = pods.because(facts, "running", is_job=True)
        return found if found.state == "failed" or found.queue else ready("running")
    text = why or (f"is {phase.lower()}" if phase else "has not begun")
    return unseen(facts) or pods.because(facts, text, is_job=True)


@rule("argoproj.io/CronWorkflow")
def cron_workflow(facts: Facts) -> Readiness:
    """A CronWorkflow is ready when it is there, unless its specification is wrong."""
    for name in ("SpecError", "SubmissionError"):
        if facts.has(name):
            return failed(condition_text(facts.condition(name)))
    return suspended() if facts.spec.get("suspend") else ready()
