"""Environment variables of a job's containers: EDL's names, ours, and those that torchrun reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlstack.elastic import childnames
from mlstack.elastic.trainingjob import RoleName, Server, TrainingJob

# torchrun counts a trainer that left as a restart; the controller counts failures itself.
_MAX_RESTARTS = 1_000_000
_GPU_LIBRARIES = "/usr/local/cuda/lib64:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"
_INDEX_LABEL = "metadata.labels['apps.kubernetes.io/pod-index']"

Variable = Mapping[str, Any]


def environment(job: TrainingJob, role: RoleName, index: int | None) -> list[Variable]:
    """Give the environment of a role's container; what the job sets itself wins.

    Args:
        job: the job.
        role: of the container.
        index: of a trainer; None for pods of a StatefulSet, which read theirs from a label.
    """
    values = {**_edl(job), **_ours(job, role)}
    if role == "trainer":
        values |= _trainer(job)
    if index is not None:
        values["MLSTACK_INDEX"] = str(index)
    own = {str(each.get("name")) for each in job.pods.env}
    found = [*downward(is_numbered=index is None), *_literals(values)]
    return [*(each for each in found if each["name"] not in own), *job.pods.env]


def downward(*, is_numbered: bool) -> list[Variable]:
    """Give what a pod knows of itself alone."""
    fields = {"NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    if is_numbered:
        fields["MLSTACK_INDEX"] = _INDEX_LABEL
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def _literals(values: Mapping[str, str]) -> Iterable[Variable]:
    return ({"name": name, "value": value} for name, value in values.items())


def _edl(job: TrainingJob) -> dict[str, str]:
    gpus = job.trainer.resources.gpus
    cores = round(job.trainer.resources.requests.get("cpu", 0) / 1000)
    found = {
        "PADDLE_JOB_NAME": job.name,
        "TRAINERS": str(job.trainer.minimum),
        "PSERVERS": str(job.pserver.count),
        "ENTRY": job.trainer.entrypoint,
        "TOPOLOGY": job.trainer.entrypoint,
        "TRAINER_PACKAGE": job.trainer.workspace,
        "PADDLE_INIT_PORT": str(job.port),
        "PADDLE_INIT_PORTS_NUM": str(job.ports_num),
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(job.ports_num_for_sparse),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(job.trainer.minimum),
        "PADDLE_INIT_TRAINER_COUNT": str(gpus or max(1, cores)),
        "PADDLE_INIT_NUM_PASSES": str(job.passes),
        "PADDLE_INIT_USE_GPU": "1" if gpus else "0",
    }
    if job.master.count:
        found["MASTER_IP"] = found["ETCD_IP"] = childnames.server_host(job, "master", 0)
    if gpus:
        found["LD_LIBRARY_PATH"] = _GPU_LIBRARIES
    return found


def _ours(job: TrainingJob, role: RoleName) -> dict[str, str]:
    found = {
        "MLSTACK_JOB_NAME": job.name,
        "MLSTACK_ROLE": role,
        "MLSTACK_MIN_INSTANCES": str(job.trainer.minimum),
        "MLSTACK_MASTER_ADDR": childnames.master_address(job),
        "MLSTACK_PSERVER_ADDRS": ",".join(childnames.pserver_addresses(job)),
        "MLSTACK_ETCD_ENDPOINT": childnames.etcd_endpoint(job),
        "MLSTACK_PASSES": str(job.passes),
        "MLSTACK_CHECKPOINT_SECONDS": str(job.checkpoint_s),
    }
    servers: Mapping[RoleName, Server] = {"pserver": job.pserver, "master": job.master}
    storage = servers[role].storage if role in servers else None
    if storage:
        found["MLSTACK_CHECKPOINT_DIR"] = storage.path
    return found


def _trainer(job: TrainingJob) -> dict[str, str]:
    """Give what only trainers need: the maximum may change while a job runs, and servers must not restart."""
    found = {
        "MLSTACK_MAX_INSTANCES": str(job.maximum),
        "PET_NNODES": f"{max(1, job.trainer.minimum)}:{job.maximum}",
        "PET_NPROC_PER_NODE": str(job.trainer.resources.gpus or 1),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": childnames.rendezvous_address(job),
        "PET_RDZV_ID": job.name,
        "PET_MAX_RESTARTS": str(_MAX_RESTARTS),
    }
    if job.trainer.workspace:
        found["PYTHONPATH"] = job.trainer.workspace
    return found
