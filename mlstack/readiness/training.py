"""Training jobs (Kubeflow's, JobSet, LeaderWorkerSet, Volcano, TrainingJob): ready, pods, new runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.objects.managed_fields import FieldChange
from mlstack.objects.references import PodTemplate
from mlstack.readiness import pods
from mlstack.readiness.operators import serving_operator, unseen
from mlstack.readiness.rule import (
    SUSPENDED,
    Facts,
    Readiness,
    condition_text,
    done,
    failed,
    job_rule,
    new_run_rule,
    number,
    pods_rule,
    ready,
    rule,
    waiting,
)

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
    own = []
    for pod in facts.pods:
        labels = (pod.get("metadata") or {}).get("labels") or {}
        if next((str(labels[name]).lower() for name in _ROLE_LABELS if name in labels), "") == role.lower():
            own.append(pod)
    trouble, warnings = pods.worst(own, facts), facts.warnings()
    why = ""
    if trouble is not None:
        why = trouble.reason
    elif warnings and warnings[-1].get("reason") == "FailedCreatePod":
        why = pods.refused(str(warnings[-1].get("message"))).reason
    elif warnings:
        why = pods.event_text(warnings[-1])
    elif facts.has("Restarting"):
        why = "a pod that failed is being started again"
    reason = f"{text}. {words[:1].upper()}{words[1:]} wait: {why}" if why else text
    if trouble is not None:
        return failed(reason) if trouble.is_stuck else waiting(reason, trouble.resource, trouble.queue)
    return waiting(reason, queue="quota" if why.startswith("waiting for quota") else "")


def _failure(facts: Facts) -> str:
    """Give the job's own message, and the end of the first failed pod if it is still there."""
    trouble = pods.worst(facts.pods, facts)
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
    texts = [
        f"{number(row, 'ready')} of {number(row, 'active')} jobs of {row.get('name')} run" for row in lacking
    ]
    text = ", ".join(texts) or "no job of it has started yet"
    return unseen(facts) or pods.because(facts, text, is_job=True)


@pods_rule("leaderworkerset.x-k8s.io/LeaderWorkerSet")
def pods_of_leader_worker_set(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """Each group has one leader, by default a worker too, and as many workers as make up its size."""
    group = spec.get("leaderWorkerTemplate") or {}
    groups, worker = number(spec, "replicas", 1), group.get("workerTemplate") or {}
    leader = group.get("leaderTemplate") or worker
    yield PodTemplate("leader", groups, leader.get("spec") or {})
    yield PodTemplate("worker", groups * (number(group, "size", 1) - 1), worker.get("spec") or {})


@pods_rule("trainer.kubeflow.org/TrainJob")
def pods_of_train_job(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """As many nodes as it asks for; what it leaves to its runtime counts as one pod that asks for nothing."""
    trainer = spec.get("trainer") or {}
    container = {"name": "node", "resources": trainer.get("resourcesPerNode") or {}}
    yield PodTemplate("node", number(trainer, "numNodes", 1), {"containers": [container]})


@pods_rule("kubeflow.org/PyTorchJob")
def pods_of_pytorch_job(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """Workers of an elastic job come and go between its bounds."""
    elastic = spec.get("elasticPolicy") or {}
    for role, part in (spec.get("pytorchReplicaSpecs") or {}).items():
        count = number(part, "replicas", 1)
        row = PodTemplate(role, count, (part.get("template") or {}).get("spec") or {})
        if elastic and role == "Worker":
            least, most = (number(elastic, f"{end}Replicas", count) for end in ("min", "max"))
            row = row._replace(least=least, most=most)
        yield row


@pods_rule("paddlepaddle.org/TrainingJob")
def pods_of_elastic_job(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """Trainers between their bounds, servers as many as are asked for at least, and a master."""
    for role in ("trainer", "pserver", "master"):
        part = spec.get(role) or {}
        least = number(part, "min-instance", int(role == "master" and bool(part)))
        most = number(part, "max-instance", least) if role == "trainer" else least
        containers = [{"name": role, "resources": part.get("resources") or {}}]
        yield PodTemplate(role, least, {**spec, "containers": containers}, least, most)


@rule("leaderworkerset.x-k8s.io/LeaderWorkerSet")
def leader_worker_set(facts: Facts) -> Readiness:
    """A LeaderWorkerSet is ready when it is available and no update goes on."""
    want = number(facts.spec, "replicas", 1)
    if facts.has("Available") and not facts.has("UpdateInProgress"):
        return ready(f"{want} of {want} groups")
    have = number(facts.status, "readyReplicas")
    return unseen(facts) or pods.because(facts, f"{have} of {want} groups ready")


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
    return unseen(facts) or pods.because(facts, text, is_job=True)


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
    return unseen(facts) or pods.because(facts, why or f"is {phase or 'new'}", is_job=True)


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
    return (
        new_run(live, lasting, "a training job keeps its image, commands and servers.") if lasting else None
    )


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
