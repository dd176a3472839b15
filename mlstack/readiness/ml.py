"""Readiness of machine learning: training jobs, serving, notebooks, Ray, Spark, pipelines, Kueue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.objects.managed_fields import FieldChange
from mlstack.readiness import pods
from mlstack.readiness.operators import serving_operator, unseen
from mlstack.readiness.pods import Trouble
from mlstack.readiness.rule import (
    Facts,
    Queue,
    Readiness,
    condition_text,
    done,
    failed,
    job_rule,
    new_run_rule,
    number,
    ready,
    rule,
    suspended,
    waiting,
)

# --- training jobs: Kubeflow's, old and new, JobSet, LeaderWorkerSet, Volcano, TrainingJob ---

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
    others = [_counted(*count) for count in counts if count[0] != role]
    rest = f" ({', '.join(others)})" if others else ""
    text = f"{have} of {want} {_words(role)} run{rest}"
    why, trouble = _why(facts, role)
    who = _words(role)[:1].upper() + _words(role)[1:]
    reason = f"{text}. {who} wait: {why}" if why else text
    if trouble is not None and trouble.is_stuck:
        return failed(reason)
    resource, queue = (trouble.resource, trouble.queue) if trouble is not None else ("", _queue_of(why))
    return waiting(reason, resource=resource, queue=queue)


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
    trouble = pods.worst(own, facts)
    if trouble is not None:
        return trouble.reason, trouble
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
    trouble = pods.worst(facts.pods, facts)
    return f"{text} ({trouble.reason})" if trouble is not None and trouble.is_final else text


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
    running = ", ".join(
        f"{row.get('name')} {number(row, 'ready') + number(row, 'succeeded')}" for row in rows
    )
    return ready(f"running: {running}")


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
    entries = [facts.condition(name) for name in names]
    return next(
        (condition_text(condition) for condition in entries if condition.get("status") == "False"),
        "",
    )


# --- model serving and notebooks: KServe, Knative, Seldon, Argo Rollouts, Notebook ---

_STOPPED_NOTEBOOK = "kubeflow-resource-stopped"


@rule("serving.kserve.io/InferenceService")
def inference_service(facts: Facts) -> Readiness:
    """An InferenceService is ready when every condition holds and the wanted model is loaded."""
    if facts.has("Stopped"):
        return suspended("stopped")
    model = facts.status.get("modelStatus") or {}
    transition = model.get("transitionStatus") or "UpToDate"
    if transition not in ("UpToDate", "InProgress"):
        return failed(_model_failure(facts) or str(transition))
    conditions = [
        condition
        for condition in facts.status.get("conditions") or ()
        if condition.get("type") != "Stopped" and condition.get("severity") != "Info"
    ]
    lacking = [condition for condition in conditions if condition.get("status") != "True"]
    if conditions and not lacking and transition == "UpToDate":
        return ready()
    texts = [text for condition in lacking if (text := condition_text(condition))]
    text = texts[0] if texts else "its model is being loaded" if conditions else "is being started"
    return unseen(facts) or pods.because(facts, text)


def _model_failure(facts: Facts) -> str:
    failure = (facts.status.get("modelStatus") or {}).get("lastFailureInfo") or {}
    parts = [str(failure[name]) for name in ("reason", "message") if failure.get(name)]
    return ": ".join(parts)


@rule("serving.knative.dev/Service")
def knative_service(facts: Facts) -> Readiness:
    """A Knative Service is ready when it says so."""
    if facts.has("Ready"):
        return ready()
    reason = condition_text(facts.condition("Ready"))
    return unseen(facts) or pods.because(facts, reason or "is being started")


@rule("machinelearning.seldon.io/SeldonDeployment")
def seldon_deployment(facts: Facts) -> Readiness:
    """A SeldonDeployment says in its state how it is."""
    state = str(facts.status.get("state") or "")
    why = str(facts.status.get("description") or "")
    if state == "Available":
        return ready()
    if state == "Failed":
        return failed(why or "failed")
    return unseen(facts) or pods.because(facts, why or f"is {state.lower() or 'new'}")


@rule("argoproj.io/Rollout")
def rollout(facts: Facts) -> Readiness:
    """A Rollout is ready when healthy; one that waits for a person's promotion is held on purpose."""
    phase, why = str(facts.status.get("phase") or ""), str(facts.status.get("message") or "")
    if phase == "Healthy":
        return ready()
    if phase == "Degraded":
        return failed(why or "degraded")
    if phase == "Paused" or facts.spec.get("paused"):
        return suspended(why or "paused")
    return unseen(facts) or pods.because(facts, why or "is being rolled out")


@rule("kubeflow.org/Notebook")
def notebook(facts: Facts) -> Readiness:
    """A Notebook is ready when its pod is, held on purpose when it was stopped."""
    if _STOPPED_NOTEBOOK in (facts.metadata.get("annotations") or {}):
        return suspended("stopped")
    if number(facts.status, "readyReplicas"):
        return ready()
    container = (facts.status.get("containerState") or {}).get("waiting") or {}
    text = ": ".join(str(container[name]) for name in ("reason", "message") if container.get(name))
    if pods.worst(facts.pods, facts) is None and text:
        return waiting(text)
    return unseen(facts) or pods.because(facts, "is being started")


# --- Ray and Spark ---


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
    for name, application in sorted(applications.items()):
        if application.get("status") == "DEPLOY_FAILED":
            return failed(f"application {name}: {application.get('message') or 'cannot be deployed'}")
    if facts.has("Ready") or (
        not facts.condition("Ready") and facts.status.get("serviceStatus") == "Running"
    ):
        return ready()
    reason = condition_text(facts.condition("Ready"))
    busy = [
        f"application {name} is {application.get('status')}"
        for name, application in sorted(applications.items())
    ]
    text = ", ".join(state_text for state_text in busy if not state_text.endswith("is RUNNING")) or reason
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
    application = facts.status.get("applicationState") or {}
    state, why = str(application.get("state") or ""), str(application.get("errorMessage") or "")
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


# --- many steps: Katib experiments, Argo workflows ---


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
    reason = condition_text(facts.condition("Created"))
    return unseen(facts) or pods.because(facts, reason or "has not begun", is_job=True)


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
        readiness = pods.because(facts, "running", is_job=True)
        return readiness if readiness.state == "failed" or readiness.queue else ready("running")
    text = why or (f"is {phase.lower()}" if phase else "has not begun")
    return unseen(facts) or pods.because(facts, text, is_job=True)


@rule("argoproj.io/CronWorkflow")
def cron_workflow(facts: Facts) -> Readiness:
    """A CronWorkflow is ready when it is there, unless its specification is wrong."""
    for name in ("SpecError", "SubmissionError"):
        if facts.has(name):
            return failed(condition_text(facts.condition(name)))
    return suspended() if facts.spec.get("suspend") else ready()


# --- Kueue: queues that admit, workloads that are admitted ---

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


# --- which changes of a training job need a new run ---

_FIXED_OF_ELASTIC_JOBS = (
    *("image", "port", "ports_num", "ports_num_for_sparse", "portsNum", "portsNumForSparse"),
    *(f"trainer.{name}" for name in ("entrypoint", "workspace", "resources")),
    *(f"pserver.{name}" for name in ("min-instance", "minInstance", "entrypoint", "resources", "storage")),
    *(f"master.{name}" for name in ("enabled", "entrypoint", "resources", "storage", "etcd")),
)
_ROLE_WORDS = {"Worker": "workers", "PS": "parameter servers", "Evaluator": "evaluators"}


@new_run_rule(
    "kubeflow.org/TFJob",
    "kubeflow.org/PyTorchJob",
    "kubeflow.org/MPIJob",
    "kubeflow.org/XGBoostJob",
    "kubeflow.org/PaddleJob",
    "kubeflow.org/JAXJob",
)
def new_run_of_training_job(live: Mapping[str, Any], changed: Sequence[FieldChange]) -> str | None:
    """Ask for a new run when more than `runPolicy` and metadata differ.

    The operators (the training operator, the MPI operator for its own MPIJobs) ignore most changes of a
    running job, and count a worker that they remove themselves as failed, so scaling down ends the job; an
    elastic PyTorchJob scales. A suspended job has no pods and reads its specification when it resumes.
    """
    followed = ["metadata", "spec.runPolicy"]
    if (live.get("spec") or {}).get("elasticPolicy"):
        followed.append("spec.pytorchReplicaSpecs.Worker.replicas")
    lasting = [change for change in changed if not change.path.startswith(tuple(followed))]
    facts = Facts(data=live)
    if not lasting or facts.has("Suspended"):
        return None
    state = "finished" if facts.has("Succeeded") or facts.has("Failed") else "running"
    return _new_run(live, lasting, f"the {serving_operator(live)} does not change a {state} job.")


@new_run_rule("paddlepaddle.org/TrainingJob")
def new_run_of_elastic_job(live: Mapping[str, Any], changed: Sequence[FieldChange]) -> str | None:
    """Ask for a new run where the definition says that a field is immutable: one model, one kind of pods."""
    fixed = [f"spec.{name}" for name in _FIXED_OF_ELASTIC_JOBS]
    lasting = [
        change
        for change in changed
        if change.path in ("spec.pserver", "spec.master", *fixed)
        or change.path.startswith(tuple(f"{name}." for name in fixed))
    ]
    return (
        _new_run(live, lasting, "a training job keeps its image, commands and servers.") if lasting else None
    )


def _new_run(live: Mapping[str, Any], changed: Sequence[FieldChange], why: str) -> str:
    what = ", ".join(dict.fromkeys(change_text(change) for change in changed[:3]))
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"{live['metadata']['name']}: {what}{more} needs a new run: {why}"


def change_text(change: FieldChange) -> str:
    """Name a change as people do: `workers 1 -> 3`, `image a -> b`."""
    steps = change.path.split(".")
    role = steps[2] if len(steps) > 2 and steps[1].endswith("ReplicaSpecs") else ""
    name = change.path.rpartition("spec.")[2] or change.path
    if role and (steps[-1] == "replicas" if change.action == "changed" else len(steps) == 3):
        name = _ROLE_WORDS.get(role, role.lower())
    if change.action != "changed":
        return f"{name} {change.action}"
    if not all(isinstance(value, str | int | float) for value in (change.old, change.new)):
        return f"{name} changed"
    old, new = (str(value) or '""' for value in (change.old, change.new))
    return f"{name} {old} -> {new}"
