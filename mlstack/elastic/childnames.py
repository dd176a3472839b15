"""How the objects of a training job are called, labelled and found by their peers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from mlstack.elastic.observed.pods import JOB_LABEL, ROLE_LABEL
from mlstack.elastic.trainingjob import API_VERSION, KIND, RoleName, TrainingJob

MASTER_PORT = 8080
ETCD_PORT = 2379
RENDEZVOUS_PORT = 29400
EDL_LABELS: Mapping[RoleName, str] = {
    "trainer": "paddle-job",
    "pserver": "paddle-job-pserver",
    "master": "paddle-job-master",
}
"""The labels by which programs of EDL's time find each other."""

MAX_SET_NAME = 52
"""Pods of a StatefulSet are labelled `NAME-HASH`, 63 characters at most (kubernetes/kubernetes#64023)."""


def trainer_name(job: str, index: int) -> str:
    """Name a trainer's pod."""
    return f"{job}-trainer-{index}"


def trainer_index(job: str, pod: str) -> int | None:
    """Read the index out of a trainer's name, None where it is no trainer of the job."""
    index = pod.removeprefix(f"{job}-trainer-")
    is_index = index != pod and index.isascii() and index.isdigit() and str(int(index)) == index
    return int(index) if is_index else None


def role_name(job: str, role: RoleName) -> str:
    """Name a role's Service, PodDisruptionBudget and StatefulSet; a long name is cut and made unique."""
    name = f"{job}-{role}"
    if len(name) <= MAX_SET_NAME:
        return name
    digest = hashlib.sha256(job.encode()).hexdigest()[:6]
    kept = job[: MAX_SET_NAME - len(role) - len(digest) - 2].rstrip("-")
    return f"{kept}-{digest}-{role}"


def labels(job: str, role: RoleName) -> dict[str, str]:
    """Give the labels of a role's objects."""
    return {JOB_LABEL: job, ROLE_LABEL: role, EDL_LABELS[role]: job}


def selector(job: str, role: RoleName) -> dict[str, str]:
    """Give the labels that find the pods of a role."""
    return {JOB_LABEL: job, ROLE_LABEL: role}


def selector_text(job: str) -> str:
    """Write the selector of a job's trainers as the scale subresource gives it."""
    return ",".join(f"{name}={value}" for name, value in selector(job, "trainer").items())


def owner(job: TrainingJob) -> dict[str, Any]:
    """Refer to the job: what it owns goes when it goes."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }


def server_host(job: TrainingJob, role: RoleName, index: int) -> str:
    """Give the name under which every pod of the cluster finds a master or parameter server."""
    name = role_name(job.name, role)
    return f"{name}-{index}.{name}.{job.namespace}.svc"


def master_address(job: TrainingJob) -> str:
    """Give the address of the master, empty where there is none."""
    return f"{server_host(job, 'master', 0)}:{MASTER_PORT}" if job.master.count else ""


def pserver_addresses(job: TrainingJob) -> tuple[str, ...]:
    """Give the addresses of the parameter servers, by index."""
    return tuple(f"{server_host(job, 'pserver', index)}:{job.port}" for index in range(job.pserver.count))


def etcd_endpoint(job: TrainingJob) -> str:
    """Give the address of the job's etcd, empty where there is none."""
    if job.etcd == "External":
        return job.etcd_endpoint
    if job.etcd == "Sidecar" and job.master.count:
        return f"http://{server_host(job, 'master', 0)}:{ETCD_PORT}"
    return ""


def meeting_trainer(job: TrainingJob) -> str:
    """Name the trainer at which the others meet, empty where they meet at the master."""
    return "" if job.master.count else trainer_name(job.name, 0)


def rendezvous_address(job: TrainingJob) -> str:
    """Give where trainers of PyTorch meet: at the master, or at the first trainer where there is none."""
    first = meeting_trainer(job)
    if not first:
        return f"{server_host(job, 'master', 0)}:{RENDEZVOUS_PORT}"
    return f"{first}.{role_name(job.name, 'trainer')}.{job.namespace}.svc:{RENDEZVOUS_PORT}"
