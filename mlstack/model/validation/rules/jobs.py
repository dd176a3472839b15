"""Remarks on training jobs: what the API server takes and the operator then does otherwise than expected."""

from __future__ import annotations

from mlstack.model.validation.base import Field, Problems
from mlstack.model.validation.rules.table import Subject, rule

_REPLICAS = {
    "kubeflow.org/JAXJob": "jaxReplicaSpecs",
    "kubeflow.org/PaddleJob": "paddleReplicaSpecs",
    "kubeflow.org/PyTorchJob": "pytorchReplicaSpecs",
    "kubeflow.org/TFJob": "tfReplicaSpecs",
    "kubeflow.org/XGBoostJob": "xgbReplicaSpecs",
}


def job_templates(subject: Subject) -> tuple[Field, ...]:
    """Give the pod templates of a training job, none for other kinds."""
    name = _REPLICAS.get(subject.kind)
    roles = subject.spec.at(name).entries if name else ()
    return tuple(role.at("template") for _, role in roles)


@rule(*_REPLICAS)
def exit_codes_retry_for_ever(subject: Subject) -> Problems:
    """The operator does not count retries under ExitCode (seen with 1.8.1)."""
    for _, role in subject.spec.at(_REPLICAS[subject.kind]).entries:
        policy = role.at("restartPolicy")
        if policy.text == "ExitCode":
            yield policy.says(
                "`ExitCode` retries without end: the operator does not heed `backoffLimit`", "warning"
            )


@rule(*_REPLICAS)
def deadlines_come_late(subject: Subject) -> Problems:
    """The operator looks at a deadline only when something else wakes it (kubeflow/trainer#3358)."""
    deadline = subject.spec.at("runPolicy", "activeDeadlineSeconds")
    if deadline:
        yield deadline.says("may be passed: the operator looks at it only when a pod changes", "warning")


@rule(*_REPLICAS)
def template_policy_is_overridden(subject: Subject) -> Problems:
    """A role's restartPolicy overrides that of its template."""
    for template in job_templates(subject):
        policy = template.at("spec", "restartPolicy")
        if policy:
            yield policy.says("is overridden: give `restartPolicy` beside `template`", "warning")
