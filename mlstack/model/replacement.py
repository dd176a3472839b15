"""What may change in objects whose controller does not follow every change.

A rule looks at the fields that differ and gives the reason why the object needs a new run, or None if
the change can be made in place. Kinds without a rule change in place.
"""

from collections.abc import Callable, Sequence

from mlstack.model.fields import FieldChange
from mlstack.model.objects import KubeObject
from mlstack.model.readiness import operators
from mlstack.model.table import Table

Rule = Callable[[KubeObject, Sequence[FieldChange]], str | None]

RULES: Table[Rule] = Table("rule of what may change")
replacement = RULES.register

_FIXED_OF_ELASTIC_JOBS = (
    *(f"spec.{name}" for name in ("image", "port", "ports_num", "ports_num_for_sparse")),
    *(f"spec.{name}" for name in ("portsNum", "portsNumForSparse", "pserver.minInstance")),
    *(f"spec.trainer.{name}" for name in ("entrypoint", "workspace", "resources")),
    *(f"spec.pserver.{name}" for name in ("min-instance", "entrypoint", "resources", "storage")),
    *(f"spec.master.{name}" for name in ("enabled", "entrypoint", "resources", "storage", "etcd")),
)
_ROLE_WORDS = {"Worker": "workers", "PS": "parameter servers", "Evaluator": "evaluators"}


def needs_new_run(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Say why an object has to be made anew to take a change; None if it can change in place."""
    found = RULES.get(f"{live.group}/{live.kind}")
    return found(live, changed) if found else None


@replacement(
    "kubeflow.org/TFJob",
    "kubeflow.org/MPIJob",
    "kubeflow.org/XGBoostJob",
    "kubeflow.org/PaddleJob",
    "kubeflow.org/JAXJob",
)
def training_job(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Recreate when more than `runPolicy` and metadata differ.

    The operators (the training operator, the MPI operator for its own MPIJobs) ignore most changes of a
    running job, and count a worker that they remove themselves as failed, so scaling down ends the job. A
    suspended job has no pods and reads its specification when it resumes.
    """
    lasting = [change for change in changed if not _follows(change.path)]
    if not lasting or _has_condition(live, "Suspended"):
        return None
    what = ", ".join(dict.fromkeys(words(change) for change in lasting[:3]))
    more = f" and {len(lasting) - 3} more" if len(lasting) > 3 else ""
    if _has_condition(live, "Succeeded") or _has_condition(live, "Failed"):
        why = f"the {operators.name_of(live.data)} does not change a finished job."
    else:
        why = f"the {operators.name_of(live.data)} does not change a running job."
    return f"{live.name}: {what}{more} needs a new run: {why}"


@replacement("kubeflow.org/PyTorchJob")
def pytorch_job(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Recreate as other training jobs, but let an elastic job change its number of workers."""
    elastic = bool((live.data.get("spec") or {}).get("elasticPolicy"))
    scaled = "spec.pytorchReplicaSpecs.Worker.replicas"
    return training_job(live, [one for one in changed if not (elastic and one.path == scaled)])


@replacement("paddlepaddle.org/TrainingJob")
def elastic_job(live: KubeObject, changed: Sequence[FieldChange]) -> str | None:
    """Recreate where the definition says that a field is immutable: one model, one kind of pods."""
    lasting = [change for change in changed if _is_fixed(change.path)]
    if not lasting:
        return None
    what = ", ".join(dict.fromkeys(words(change) for change in lasting[:3]))
    more = f" and {len(lasting) - 3} more" if len(lasting) > 3 else ""
    return f"{live.name}: {what}{more} needs a new run: a training job keeps its image, commands and servers."


def _is_fixed(path: str) -> bool:
    below = any(path == fixed or path.startswith(f"{fixed}.") for fixed in _FIXED_OF_ELASTIC_JOBS)
    return below or path in ("spec.pserver", "spec.master")


def _follows(path: str) -> bool:
    return path.startswith(("metadata", "spec.runPolicy"))


def _has_condition(live: KubeObject, name: str) -> bool:
    conditions = (live.data.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == name and one.get("status") == "True" for one in conditions)


def words(change: FieldChange) -> str:
    """Name a change as people do: `workers 1 -> 3`, `image a -> b`."""
    steps = change.path.split(".")
    role = steps[2] if len(steps) > 2 and steps[1].endswith("ReplicaSpecs") else ""
    if change.action != "changed":
        name = _ROLE_WORDS.get(role, role.lower()) if len(steps) == 3 and role else _last(change.path)
        return f"{name} {change.action}"
    if role and steps[-1] == "replicas":
        return f"{_ROLE_WORDS.get(role, role.lower())} {change.old} -> {change.new}"
    if not all(isinstance(value, str | int | float) for value in (change.old, change.new)):
        return f"{_last(change.path)} changed"
    return f"{_last(change.path)} {_short(change.old)} -> {_short(change.new)}"


def _last(path: str) -> str:
    return path.rpartition("spec.")[2] or path


def _short(value: str | float) -> str:
    return str(value) or '""'
