"""Readiness of training jobs: Kubeflow's, old and new, JobSet, LeaderWorkerSet, Volcano, TrainingJob."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.model.readiness import pods
from mlstack.model.readiness.base import (
    Facts,
    Queue,
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
from mlstack.model.readiness.pods import Trouble

_ROLE_FIELDS = (
    "tfReplicaSpecs",
    "pytorchReplicaSpecs",
    "mpiReplicaSpecs",
    "xgbReplicaSpecs",
    "paddleReplicaSpecs",
    "jaxReplicaSpecs",
)
# The MPI operator of today has a name of its own for the role.
_ROLE_LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
_PLURALS = {
    "worker": "workers",
    "chief": "chief",
    "master": "master",
    "launcher": "launcher",
    "ps": "PS",
    "evaluator": "evaluator",
}


@job_rule(
    "kubeflow.org/TFJob",
    "kubeflow.org/PyTorchJob",
    "kubeflow.org/MPIJob",
    "kubeflow.org/XGBoostJob",
    "kubeflow.org/PaddleJob",
    "kubeflow.org/JAXJob",
)
def training_job(facts: Facts) -> Readiness:
    """A training job is ready when every role has all its pods at work.

    The condition Running says less: it is true as soon as one worker runs. The counts of a finished
    job say nothing: pods that still run are counted as succeeded.
    """
    if facts.has("Failed"):
        return failed(_failure(facts))
    if facts.has("Succeeded"):
        return done(condition_text(facts.condition("Succeeded")))
    if facts.has("Suspended"):
        return suspended()
    counts = [(role, *_count(facts, role, spec)) for role, spec in _roles(facts).items()]
    lacking = [(role, have, want) for role, have, want in counts if have < want]
    if not lacking:
        return ready(", ".join(_counted(role, have, want) for role, have, want in counts))
    return unseen(facts) or _at_work_in_part(facts, counts, lacking[0])


def _at_work_in_part(
    facts: Facts, counts: Sequence[tuple[str, int, int]], lacking: tuple[str, int, int]
) -> Readiness:
    role, have, want = lacking
    others = [_counted(*one) for one in counts if one[0] != role]
    rest = f" ({', '.join(others)})" if others else ""
    text = f"{have} of {want} {_words(role)} run{rest}"
    why, found = _why(facts, role)
    who = _words(role)[:1].upper() + _words(role)[1:]
    told = f"{text}. {who} wait: {why}" if why else text
    if found is not None and found.is_stuck:
        return failed(told)
    resource, queue = (found.resource, found.queue) if found is not None else ("", _queue_of(why))
    return waiting(told, resource=resource, queue=queue)


def _queue_of(why: str) -> Queue:
    return "quota" if why.startswith("waiting for quota") else ""


def _roles(facts: Facts) -> dict[str, Mapping[str, Any]]:
    """Give the roles of the job, the ones people look at first in front."""
    named = [facts.spec[name] for name in _ROLE_FIELDS if isinstance(facts.spec.get(name), Mapping)]
    roles = named[0] if named else {}
    return {role: roles[role] for role in sorted(roles, key=_importance)}


def _importance(role: str) -> tuple[int, str]:
    known = list(_PLURALS)
    return known.index(role.lower()) if role.lower() in known else len(known), role


def _count(facts: Facts, role: str, spec: Mapping[str, Any]) -> tuple[int, int]:
    status = (facts.status.get("replicaStatuses") or {}).get(role) or {}
    want = number(spec, "replicas", 1)
    elastic = facts.spec.get("elasticPolicy") or {}
    if role == "Worker" and facts.has("Running"):
        # An elastic job works from its minimum on; the rest of its workers are a bonus.
        want = min(want, number(elastic, "minReplicas", want))
    return number(status, "active") + number(status, "succeeded"), want


def _counted(role: str, have: int, want: int) -> str:
    return f"{_words(role)} {have} of {want}"


def _words(role: str) -> str:
    return _PLURALS.get(role.lower(), role)


def _why(facts: Facts, role: str) -> tuple[str, Trouble | None]:
    """Give what a role waits for, and the trouble of its pods if that is it."""
    own = [pod for pod in facts.pods if _role_of(pod) == role.lower()]
    found = pods.worst(own, facts)
    if found is not None:
        return found.reason, found
    events = facts.own_events()
    if events:
        return _refusal(events[-1]), None
    if facts.has("Restarting"):
        return "a pod that failed is being started again", None
    return "", None


def _role_of(pod: Mapping[str, Any]) -> str:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return next((str(labels[name]).lower() for name in _ROLE_LABELS if name in labels), "")


def _refusal(event: Mapping[str, Any]) -> str:
    if event.get("reason") == "FailedCreatePod":
        return pods.refused(str(event.get("message"))).reason
    return pods.event_text(event)


def _failure(facts: Facts) -> str:
    """Give the job's own message, and the end of the first failed pod if it is still there."""
    text = condition_text(facts.condition("Failed"))
    found = pods.worst(facts.pods, facts)
    return f"{text} ({found.reason})" if found is not None and found.is_final else text


@job_rule("trainer.kubeflow.org/TrainJob")
def train_job(facts: Facts) -> Readiness:
    """A TrainJob is ready when every job that its runtime has started has its pods at work."""
    if facts.has("Failed"):
        return failed(_failure(facts))
    if facts.has("Complete"):
        return done(condition_text(facts.condition("Complete")))
    if facts.has("Suspended") or facts.spec.get("suspend"):
        return suspended()
    return _jobs_at_work(facts, facts.status.get("jobsStatus")) or (
        unseen(facts) or pods.because(facts, _started(facts), is_job=True)
    )


@job_rule("jobset.x-k8s.io/JobSet")
def job_set(facts: Facts) -> Readiness:
    """A JobSet is ready when every job it has started has its pods at work."""
    if facts.has("Failed") or facts.status.get("terminalState") == "Failed":
        return failed(_failure(facts) or "failed")
    if facts.has("Completed") or facts.status.get("terminalState") == "Completed":
        return done(condition_text(facts.condition("Completed")))
    if facts.has("Suspended") or facts.spec.get("suspend"):
        return suspended()
    return _jobs_at_work(facts, facts.status.get("replicatedJobsStatus")) or (
        unseen(facts) or pods.because(facts, _started(facts), is_job=True)
    )


def _jobs_at_work(facts: Facts, counts: Any) -> Readiness | None:
    """Say that all jobs there are run, by their counts; jobs that others come before have not begun."""
    rows = [row for row in counts or () if number(row, "active") or number(row, "succeeded")]
    if not rows or any(number(row, "ready") < number(row, "active") for row in rows):
        return None
    told = ", ".join(f"{row.get('name')} {number(row, 'ready') + number(row, 'succeeded')}" for row in rows)
    return ready(f"running: {told}")


def _started(facts: Facts) -> str:
    rows = facts.status.get("jobsStatus") or facts.status.get("replicatedJobsStatus") or ()
    lacking = [row for row in rows if number(row, "ready") < number(row, "active")]
    if not lacking:
        return "no job of it has started yet"
    return ", ".join(
        f"{number(row, 'ready')} of {number(row, 'active')} jobs of {row.get('name')} run" for row in lacking
    )


@rule("leaderworkerset.x-k8s.io/LeaderWorkerSet")
def leader_worker_set(facts: Facts) -> Readiness:
    """A LeaderWorkerSet is ready when it is available and no update goes on."""
    want = number(facts.spec, "replicas", 1)
    if facts.has("Available") and not facts.has("UpdateInProgress"):
        return ready(f"{want} of {want} groups")
    have = number(facts.status, "readyReplicas")
    return unseen(facts) or pods.because(facts, f"{have} of {want} groups ready")


_VOLCANO_ENDS = {"Failed": "failed", "Terminated": "was terminated", "Aborted": "was aborted"}


@job_rule("batch.volcano.sh/Job")
def volcano_job(facts: Facts) -> Readiness:
    """A Volcano Job is ready when as many pods run as it needs at least."""
    state = facts.status.get("state") or {}
    phase = str(state.get("phase") or "")
    if phase in _VOLCANO_ENDS:
        return failed(str(state.get("message") or state.get("reason") or _VOLCANO_ENDS[phase]))
    if phase in ("Completed", "Completing"):
        return done(phase.lower())
    if phase == "Running":
        return ready(f"{number(facts.status, 'running')} pods run")
    return unseen(facts) or pods.because(
        facts, str(state.get("message") or "") or f"is {phase.lower() or 'not looked at yet'}", is_job=True
    )


@job_rule("paddlepaddle.org/TrainingJob")
def elastic_job(facts: Facts) -> Readiness:
    """A TrainingJob is ready from its minimum of trainers on; the phases are read in any case."""
    phase = str(facts.status.get("phase") or "").lower()
    why = str(facts.status.get("reason") or "") or _elastic_reason(facts)
    if phase == "failed" or facts.condition("Degraded").get("reason") == "InvalidSpec":
        return failed(why or "failed")
    if phase == "succeeded":
        return done()
    if phase == "suspended":
        return suspended(why or "suspended")
    is_whole = facts.condition("GangReady").get("status") != "False"
    if phase == "completing" or (phase in ("running", "scaling") and is_whole):
        return ready(phase)
    return unseen(facts) or pods.because(facts, why or f"is {phase or 'new'}", is_job=True)


def _elastic_reason(facts: Facts) -> str:
    names = ("Admitted", "GangReady", "Progressing")
    said = [facts.condition(name) for name in names]
    return next((condition_text(one) for one in said if one.get("status") == "False"), "")
