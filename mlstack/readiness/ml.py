"""Readiness of machine learning beside training jobs: serving, notebooks, Ray, Spark, pipelines, Kueue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from mlstack.dataclass import Record
from mlstack.objects.managed_fields import FieldChange
from mlstack.readiness.builtin import because, event_text, refused, worst
from mlstack.readiness.rule import (
    SUSPENDED,
    Facts,
    Readiness,
    State,
    condition_text,
    done,
    failed,
    job_rule,
    key_of,
    new_run_rule,
    number,
    ready,
    rule,
    serving_operator,
    unseen,
    waiting,
)

# --- kinds whose status names a phase, or has a condition, for each state ---


class Phases(Record):
    """How a kind says in its status how it is: a part of `phases.txt`."""

    states: Mapping[str, str]  # by sign
    phase: str = ""  # field of the status
    why: str = ""  # field of the status that has the reason, or a condition
    waits: str = ""  # what is said of one without a reason
    new: str = ""  # the same where there is no phase yet
    is_job: bool = False

    def judge(self, facts: Facts) -> Readiness:
        """Say how an object is."""
        phase, condition = facts.text(self.phase), self.why.removeprefix("+")
        why = facts.text(self.why) if condition == self.why else facts.why(condition)
        for sign, value in self.states.items():
            field, name = sign.removeprefix("spec."), sign.removeprefix("+")
            is_condition, is_field = name != sign, field != sign
            holds = facts.has(name) if is_condition else facts.spec.get(field) if is_field else sign == phase
            if holds or sign == "*":
                state, _, text = value.partition(": ")
                said = facts.why(name) if is_condition else why or field.lower().replace("_", " ")
                known: State = next(known for known in get_args(State) if known == state)
                return Readiness(known, text or ("" if state == "ready" else said))
        words = phase.lower().replace("_", " ")
        text = why or (self.waits.format(words) if phase or not self.new else self.new)
        return unseen(facts) or because(facts, text, is_job=self.is_job)


def _phases() -> Iterator[tuple[str, Phases]]:
    text = Path(__file__).with_name("phases.txt").read_text("utf-8")
    for block in re.sub("(?m)^#.*\n", "", text).strip().split("\n\n"):
        kinds, *lines = block.splitlines()
        fields = dict(line.strip().split(" = ") for line in lines if " = " in line)
        rows = (line.strip().partition(": ") for line in lines if " = " not in line)
        states = {sign: state for signs, _, state in rows for sign in signs.split("|")}
        names = kinds.split()
        for kind in (name for name in names if name != "job"):
            yield kind, Phases(states=states, is_job="job" in names, **fields)


_PHASES = dict(_phases())
_WORKFLOW = _PHASES.pop("argoproj.io/Workflow")
for _key, _kind in _PHASES.items():
    (job_rule if _kind.is_job else rule)(_key)(_kind.judge)


@job_rule("argoproj.io/Workflow")
def workflow(facts: Facts) -> Readiness:
    """A Workflow is ready while it runs, unless its pods cannot, or queue."""
    if facts.text("phase") != "Running" or facts.spec.get("suspend"):
        return _WORKFLOW.judge(facts)
    readiness = because(facts, "running", is_job=True)
    return readiness if readiness.state == "failed" or readiness.queue else ready("running")


# --- model serving and notebooks ---


@rule("serving.kserve.io/InferenceService")
def inference_service(facts: Facts) -> Readiness:
    """An InferenceService is ready when every condition holds and the wanted model is loaded."""
    if facts.has("Stopped"):
        return Readiness("suspended", "stopped")
    transition = facts.text("modelStatus.transitionStatus") or "UpToDate"
    if transition not in ("UpToDate", "InProgress"):
        failure = [facts.text(f"modelStatus.lastFailureInfo.{name}") for name in ("reason", "message")]
        return failed(": ".join(filter(None, failure)) or transition)
    conditions = [
        condition
        for condition in facts.status.get("conditions") or ()
        if condition.get("type") != "Stopped" and condition.get("severity") != "Info"
    ]
    lacking = [condition for condition in conditions if condition.get("status") != "True"]
    if conditions and not lacking and transition == "UpToDate":
        return ready()
    default = "its model is being loaded" if conditions else "is being started"
    return unseen(facts) or because(facts, next(filter(None, map(condition_text, lacking)), default))


@rule("kubeflow.org/Notebook")
def notebook(facts: Facts) -> Readiness:
    """A Notebook is ready when its pod is, held on purpose when it was stopped."""
    if "kubeflow-resource-stopped" in (facts.metadata.get("annotations") or {}):
        return Readiness("suspended", "stopped")
    if number(facts.status, "readyReplicas"):
        return ready()
    words = [facts.text(f"containerState.waiting.{name}") for name in ("reason", "message")]
    if any(words) and worst(facts.pods, facts) is None:
        return waiting(": ".join(filter(None, words)))
    return unseen(facts) or because(facts, "is being started")


# --- Ray ---


@rule("ray.io/RayCluster")
def ray_cluster(facts: Facts) -> Readiness:
    """A RayCluster is ready when its head and all workers it wants now are."""
    state = facts.text("state")
    if facts.has("RayClusterSuspended") or state == "suspended":
        return SUSPENDED
    if state == "failed":
        return failed(facts.text("reason") or "failed")
    if facts.has("ReplicaFailure"):
        return refused(facts.why("ReplicaFailure"))
    want, have = (number(facts.status, f"{what}WorkerReplicas") for what in ("desired", "ready"))
    # Provisioned once is provisioned for ever: it says nothing about workers of today.
    is_provisioned = facts.has("RayClusterProvisioned") or state == "ready"
    if is_provisioned and have >= want:
        return ready(f"{want} of {want} workers")
    silent = None if is_provisioned else unseen(facts)
    return silent or because(facts, f"{have} of {want} workers ready")


@rule("ray.io/RayService")
def ray_service(facts: Facts) -> Readiness:
    """A RayService is ready when it serves; an application that cannot be deployed has failed."""
    applications: dict[str, Mapping[str, Any]] = {}
    for service in ("activeServiceStatus", "pendingServiceStatus"):
        applications |= (facts.status.get(service) or {}).get("applicationStatuses") or {}
    for name, application in sorted(applications.items()):
        if application.get("status") == "DEPLOY_FAILED":
            return failed(f"application {name}: {application.get('message') or 'cannot be deployed'}")
    is_running = not facts.condition("Ready") and facts.status.get("serviceStatus") == "Running"
    if facts.has("Ready") or is_running:
        return ready()
    states = {name: application.get("status") for name, application in sorted(applications.items())}
    busy = [f"application {name} is {state}" for name, state in states.items() if state != "RUNNING"]
    return unseen(facts) or because(facts, ", ".join(busy) or facts.why("Ready") or "is being started")


@job_rule("ray.io/RayJob")
def ray_job(facts: Facts) -> Readiness:
    """A RayJob is ready while its job runs, done when that has succeeded."""
    job, place = facts.text("jobStatus"), facts.text("jobDeploymentStatus")
    why = facts.text("message", "reason")
    if place in ("Failed", "ValidationFailed") or (job == "FAILED" and place != "Retrying"):
        return failed(why or "the job failed")
    if job == "SUCCEEDED" or place == "Complete":
        return done((job or place).lower())
    if place in ("Suspended", "Suspending") or facts.spec.get("suspend"):
        return SUSPENDED
    if job == "RUNNING":
        return ready("running")
    stage = f"is {place.lower()}" if place else "has not begun"
    return unseen(facts) or because(facts, why or stage, is_job=True)


# --- Kueue: queues that admit, workloads that are admitted ---

# What no other object can mend: the queue itself has to be changed.
_PERMANENT = (
    *("BadConfig", "MultiKueueAdmissionCheckAppliedPerFlavor", "MultiKueueWithProvisioningRequest"),
    *("MultipleMultiKueueAdmissionChecks", "NotSupportedWithTopologyAwareScheduling"),
)


@rule("kueue.x-k8s.io/ClusterQueue", "kueue.x-k8s.io/LocalQueue", "kueue.x-k8s.io/AdmissionCheck")
def queue(facts: Facts) -> Readiness:
    """A queue is ready when active; what it refers to may come a moment later."""
    active, why = facts.condition("Active"), facts.why("Active")
    if active.get("status") == "True":
        return ready()
    if active.get("reason") == "Stopped" or facts.spec.get("stopPolicy") in ("Hold", "HoldAndDrain"):
        return Readiness("suspended", why or "stopped")
    if active.get("reason") in _PERMANENT:
        return failed(why)
    return unseen(facts) or waiting(why or "is not active yet")


@rule("kueue.x-k8s.io/Workload")
def workload(facts: Facts) -> Readiness:
    """A Workload is ready when admitted; until then it waits for quota."""
    if facts.has("Finished"):
        is_failure = "Failed" in str(facts.condition("Finished").get("reason"))
        return (failed if is_failure else done)(facts.why("Finished"))
    if facts.spec.get("active") is False:
        if str(facts.condition("Evicted").get("reason")).startswith("Deactivated"):
            return failed(facts.why("Evicted"))
        return Readiness("suspended", "not active")
    if facts.has("Admitted"):
        return ready()
    why = facts.why("QuotaReserved") or facts.why("Admitted")
    if not why:
        return unseen(facts) or waiting("waiting for quota", queue="quota")
    return waiting(f"waiting for quota: {why}", queue="quota")


# --- what runs once ---

# What the controllers of work that runs once follow while it runs, and why not the rest: they read it at its
# start. Where upstream's webhook refuses all else, its words are followed (trainer's and JobSet's fields are
# immutable, pkg/webhook/v1beta1/experiment/validator of Katib, pkg/webhooks/admission/jobs of Volcano).
_ONCE = "runs one once, as it was at its start."
_FOLLOWED: Mapping[str, tuple[str, str]] = {
    "argoproj.io/Workflow": (_ONCE, "suspend parallelism activeDeadlineSeconds ttlStrategy podGC shutdown"),
    "ray.io/RayJob": (
        _ONCE,
        "suspend activeDeadlineSeconds shutdownAfterJobFinishes ttlSecondsAfterFinished",
    ),
    "trainer.kubeflow.org/TrainJob": (_ONCE, "suspend activeDeadlineSeconds"),
    "jobset.x-k8s.io/JobSet": (_ONCE, "suspend ttlSecondsAfterFinished"),
    "kubeflow.org/Experiment": (
        "changes how many trials there are, and nothing else.",
        "parallelTrialCount maxTrialCount maxFailedTrialCount",
    ),
    "batch.volcano.sh/Job": (
        "changes how many pods there are, and nothing else.",
        r"minAvailable tasks\[[^]]*\]\.replicas tasks\[[^]]*\]\.minAvailable priorityClassName",
    ),
}


@new_run_rule(*_FOLLOWED)
def new_run_of_what_runs_once(live: Mapping[str, Any], changed: Sequence[FieldChange]) -> str | None:
    """Ask for a new run when steps, program or cluster differ.

    The workflow controller leaves a finished Workflow alone, and steps that ran do not run again; the Ray
    operator makes a RayJob's cluster once. What is suspended has no pods, and is read when it resumes.
    """
    why, names = _FOLLOWED[key_of(live)]
    followed = re.compile(rf"(metadata|spec\.({'|'.join(names.split())}))(?![A-Za-z])")
    lasting = [change for change in changed if not followed.match(change.path)]
    facts = Facts(data=live)
    if not lasting or facts.text("jobDeploymentStatus") == "Suspended" or facts.has("Suspended"):
        return None
    return new_run(live, lasting, f"the {serving_operator(live)} {why}")


# --- training jobs ---

_JOBS = {
    "TFJob": "tfReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}

# The MPI operator of today has a name of its own for the role.
_ROLE_LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")

# The ones that people look at first in front.
_ROLES = {
    "worker": "workers",
    "chief": "chief",
    "master": "master",
    "launcher": "launcher",
    "ps": "PS",
    "evaluator": "evaluator",
}


@job_rule(*(f"kubeflow.org/{kind}" for kind in _JOBS))
def training_job(facts: Facts) -> Readiness:
    """A training job is ready when every role has all its pods at work.

    The condition Running says less: it is true as soon as one worker runs. The counts of a finished
    job say nothing: pods that still run are counted as succeeded.
    """
    if facts.has("Failed"):
        return failed(_failure(facts))
    if facts.has("Succeeded"):
        return done(facts.why("Succeeded"))
    if facts.has("Suspended"):
        return SUSPENDED
    specs = (facts.spec.get(name) for name in _JOBS.values())
    roles: Mapping[str, Any] = next((spec for spec in specs if isinstance(spec, Mapping)), {})
    order = list(_ROLES)
    ranks = {role: order.index(role.lower()) if role.lower() in _ROLES else len(order) for role in roles}
    counts, lacking = {}, ""
    for role in sorted(roles, key=lambda role: (ranks[role], role)):
        want = number(roles[role], "replicas", 1)
        if role == "Worker" and facts.has("Running"):
            # An elastic job works from its minimum on; the rest of its workers are a bonus.
            want = min(want, number(facts.spec.get("elasticPolicy") or {}, "minReplicas", want))
        active = (facts.status.get("replicaStatuses") or {}).get(role) or {}
        have = number(active, "active") + number(active, "succeeded")
        counts[role] = f"{have} of {want}"
        lacking = lacking or (role if have < want else "")
    texts = {role: f"{_ROLES.get(role.lower(), role)} {count}" for role, count in counts.items()}
    if not lacking:
        return ready(", ".join(texts.values()))
    words = _ROLES.get(lacking.lower(), lacking)
    others = ", ".join(text for role, text in texts.items() if role != lacking)
    return unseen(facts) or _lacking(
        facts, lacking, f"{counts[lacking]} {words} run{f' ({others})' if others else ''}", words
    )


def _lacking(facts: Facts, role: str, text: str, words: str) -> Readiness:
    """Say what the pods of a role wait for that are not at work."""

    def role_of(pod: Mapping[str, Any]) -> str:
        labels = (pod.get("metadata") or {}).get("labels") or {}
        return next((str(labels[name]).lower() for name in _ROLE_LABELS if name in labels), "")

    own = [pod for pod in facts.pods if role_of(pod) == role.lower()]
    trouble, warnings = worst(own, facts), facts.warnings()
    why = ""
    if trouble is not None:
        why = trouble.reason
    elif warnings and warnings[-1].get("reason") == "FailedCreatePod":
        why = refused(str(warnings[-1].get("message"))).reason
    elif warnings:
        why = event_text(warnings[-1])
    elif facts.has("Restarting"):
        why = "a pod that failed is being started again"
    reason = f"{text}. {words[:1].upper()}{words[1:]} wait: {why}" if why else text
    if trouble is not None:
        return failed(reason) if trouble.is_stuck else waiting(reason, trouble.resource, trouble.queue)
    return waiting(reason, queue="quota" if why.startswith("waiting for quota") else "")


def _failure(facts: Facts) -> str:
    """Give the job's own message, and the end of the first failed pod if it is still there."""
    trouble = worst(facts.pods, facts)
    more = f" ({trouble.reason})" if trouble is not None and trouble.is_final else ""
    return f"{facts.why('Failed')}{more}"


@job_rule("trainer.kubeflow.org/TrainJob", "jobset.x-k8s.io/JobSet")
def job_set(facts: Facts) -> Readiness:
    """A TrainJob or JobSet is ready when every job it has started has its pods at work.

    Jobs that others come before have not begun.
    """
    end = facts.text("terminalState")
    if facts.has("Failed") or end == "Failed":
        return failed(_failure(facts) or "failed")
    if facts.has("Complete") or facts.has("Completed") or end == "Completed":
        return done(facts.why("Complete") or facts.why("Completed"))
    if facts.has("Suspended") or facts.spec.get("suspend"):
        return SUSPENDED
    rows = facts.status.get("jobsStatus") or facts.status.get("replicatedJobsStatus") or ()
    begun = [row for row in rows if number(row, "active") or number(row, "succeeded")]
    lacking = [row for row in rows if number(row, "ready") < number(row, "active")]
    if begun and not lacking:
        counts = [f"{row.get('name')} {number(row, 'ready') + number(row, 'succeeded')}" for row in begun]
        return ready(f"running: {', '.join(counts)}")
    rows = [(number(row, "ready"), number(row, "active"), row.get("name")) for row in lacking]
    text = ", ".join(f"{have} of {want} jobs of {name} run" for have, want, name in rows)
    return unseen(facts) or because(facts, text or "no job of it has started yet", is_job=True)


@rule("leaderworkerset.x-k8s.io/LeaderWorkerSet")
def leader_worker_set(facts: Facts) -> Readiness:
    """A LeaderWorkerSet is ready when it is available and no update goes on."""
    want = number(facts.spec, "replicas", 1)
    if facts.has("Available") and not facts.has("UpdateInProgress"):
        return ready(f"{want} of {want} groups")
    have = number(facts.status, "readyReplicas")
    return unseen(facts) or because(facts, f"{have} of {want} groups ready")


@job_rule("batch.volcano.sh/Job")
def volcano_job(facts: Facts) -> Readiness:
    """A Volcano Job is ready when as many pods run as it needs at least."""
    phase, message = facts.text("state.phase"), facts.text("state.message")
    ends = {"Failed": "failed", "Terminated": "was terminated", "Aborted": "was aborted"}
    if phase in ends:
        return failed(message or facts.text("state.reason") or ends[phase])
    if phase in ("Completed", "Completing"):
        return done(phase.lower())
    if phase == "Running":
        return ready(f"{number(facts.status, 'running')} pods run")
    text = message or f"is {phase.lower() or 'not looked at yet'}"
    return unseen(facts) or because(facts, text, is_job=True)


@job_rule("paddlepaddle.org/TrainingJob")
def elastic_job(facts: Facts) -> Readiness:
    """A TrainingJob is ready from its minimum of trainers on; the phases are read in any case."""
    phase = facts.text("phase").lower()
    conditions = [facts.condition(name) for name in ("Admitted", "GangReady", "Progressing")]
    lacking = (condition_text(condition) for condition in conditions if condition.get("status") == "False")
    why = facts.text("reason") or next(lacking, "")
    if phase == "failed" or facts.condition("Degraded").get("reason") == "InvalidSpec":
        return failed(why or "failed")
    if phase == "succeeded":
        return done()
    if phase == "suspended":
        return Readiness("suspended", why or "suspended")
    is_whole = facts.condition("GangReady").get("status") != "False"
    if phase == "completing" or (phase in ("running", "scaling") and is_whole):
        return ready(phase)
    return unseen(facts) or because(facts, why or f"is {phase or 'new'}", is_job=True)


_FIXED_OF_ELASTIC_JOBS = (
    *("image", "port", "ports_num", "ports_num_for_sparse", "portsNum", "portsNumForSparse"),
    *(f"trainer.{name}" for name in ("entrypoint", "workspace", "resources")),
    *(f"pserver.{name}" for name in ("min-instance", "minInstance", "entrypoint", "resources", "storage")),
    *(f"master.{name}" for name in ("enabled", "entrypoint", "resources", "storage", "etcd")),
)

_ROLE_WORDS = {"Worker": "workers", "PS": "parameter servers", "Evaluator": "evaluators"}


@new_run_rule(*(f"kubeflow.org/{kind}" for kind in _JOBS))
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
    return new_run(live, lasting, f"the {serving_operator(live)} does not change a {state} job.")


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
    why = "a training job keeps its image, commands and servers."
    return new_run(live, lasting, why) if lasting else None


def new_run(live: Mapping[str, Any], changed: Sequence[FieldChange], why: str) -> str:
    """Say what of an object wants a new run, and why."""
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
