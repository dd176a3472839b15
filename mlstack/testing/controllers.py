"""The objects and statuses that a cluster's controllers and kubelets write, as values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlstack.errors import ConflictError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef

# --- The objects and statuses that a cluster's controllers and kubelets write, as values ---

NODE = "memory"
GPU = "nvidia.com/gpu"
OPERATOR_IMAGE = "training-operator"
"""A training job is worked on once a Deployment with such an image is available."""

Obj = Mapping[str, Any]

_TIMES = frozenset({"lastTransitionTime", "startTime", "startedAt", "finishedAt", "completionTime"})


def deployment_status(deployment: Obj, sets: list[Obj], now: str) -> Obj:
    """Say how far a Deployment is, from its ReplicaSets."""
    name = f"{deployment['metadata']['name']}-{template_hash(deployment)}"
    newest = next((found for found in sets if found["metadata"]["name"] == name), {})
    counts = newest.get("status") or {}
    ready = counts.get("readyReplicas", 0)
    is_done = ready >= deployment["spec"].get("replicas", 1)
    progressing = condition(
        "Progressing", now, reason="NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated"
    )
    available = condition("Available", now, is_true=is_done)
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": sum((found.get("status") or {}).get("replicas", 0) for found in sets),
        "updatedReplicas": counts.get("replicas", 0),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [available, progressing],
    }


def stateful_set_status(stateful_set: Obj, pods: list[Obj], revision: str) -> Obj:
    """Say how far a StatefulSet is, from its pods."""
    return {
        "observedGeneration": stateful_set["metadata"]["generation"],
        "replicas": len(pods),
        "currentReplicas": len(pods),
        "updatedReplicas": len(pods),
        "readyReplicas": count_ready(pods),
        "availableReplicas": count_ready(pods),
        "currentRevision": revision,
        "updateRevision": revision,
    }


def job_status(job: Obj, pods: list[Obj], now: str) -> Obj:
    """Say how far a Job is, from its pods."""
    succeeded = sum(phase(pod) == "Succeeded" for pod in pods)
    is_done = succeeded >= (job["spec"].get("completions") or 1)
    status = {"startTime": now, "active": len(pods) - succeeded, "succeeded": succeeded}
    if not is_done:
        return status
    rows = [condition("SuccessCriteriaMet", now), condition("Complete", now, reason="CompletionsReached")]
    return status | {"completionTime": now, "conditions": rows}


def training_status(kind: str, roles: Mapping[str, Any], pods: list[Obj], now: str) -> Obj:
    """Say how far a training job is, from its pods."""
    rows = [condition("Created", now, reason=f"{kind}Created")]
    running = [pod for pod in pods if phase(pod) == "Running"]
    if pods and len(running) == len(pods):
        rows.append(condition("Running", now, reason=f"{kind}Running"))
    counts = {
        role: sum(
            pod["metadata"]["labels"].get("training.kubeflow.org/replica-type") == role.lower()
            for pod in running
        )
        for role in sorted(roles)
    }
    statuses = {role: {"active": count} for role, count in counts.items()}
    return {"conditions": rows, "replicaStatuses": statuses, "startTime": now}


def make_replica_set(deployment: Obj, name: str, replicas: int) -> dict[str, Any]:
    """Give the ReplicaSet of a Deployment's present template."""
    labels = {"pod-template-hash": template_hash(deployment)}
    template = _labelled(deployment["spec"]["template"], labels)
    selector = deployment["spec"]["selector"]
    chosen = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **labels}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {**_owned(deployment, name), "labels": template["metadata"]["labels"]},
        "spec": {"replicas": replicas, "selector": chosen, "template": template},
    }


def make_pod(owner: Obj, name: str, template: Obj, labels: Mapping[str, str]) -> dict[str, Any]:
    """Give a pod from a template."""
    metadata = {**(_labelled(template, labels)["metadata"]), **_owned(owner, name)}
    spec = {**template["spec"], "nodeName": NODE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def endpoint_slice(service: Obj, pods: list[Obj]) -> dict[str, Any]:
    """Make the list of pods that a Service leads to, with whether each is ready."""
    name = service["metadata"]["name"]
    metadata = _owned(service, f"{name}-memory")
    labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": NODE}
    endpoints = [
        {
            "addresses": [f"10.0.0.{number}"],
            "conditions": {"ready": count_ready([one]) == 1},
            "targetRef": {"kind": "Pod", "name": one["metadata"]["name"]},
        }
        for number, one in enumerate(pods, start=1)
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": labels},
        "addressType": "IPv4",
        "endpoints": endpoints,
    }


def _labelled(template: Obj, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def _owned(owner: Obj, name: str) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": owner["metadata"]["namespace"], "ownerReferences": [reference]}


def _owners(obj: Obj) -> Iterator[Mapping[str, Any]]:
    yield from obj["metadata"].get("ownerReferences") or ()


def is_child(obj: Obj, owner: Obj) -> bool:
    """Say whether an object belongs to an owner."""
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in _owners(obj))


def is_owned_by(obj: Obj, kind: str) -> bool:
    """Say whether an object belongs to any owner of a kind."""
    return any(reference["kind"] == kind for reference in _owners(obj))


def runs_operator(deployment: Obj) -> bool:
    """Say whether a Deployment is a training operator at work."""
    images = (
        container.get("image", "") for container in deployment["spec"]["template"]["spec"]["containers"]
    )
    available = (deployment.get("status") or {}).get("availableReplicas", 0)
    return available > 0 and any(OPERATOR_IMAGE in image for image in images)


def phase(pod: Obj) -> str:
    """Give the phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "")


def revision_of(pod: Obj) -> str:
    """Give the revision of the template that a pod of a StatefulSet was made from."""
    return str((pod["metadata"].get("labels") or {}).get("controller-revision-hash") or "")


def count_ready(pods: list[Obj]) -> int:
    """Count the pods that run."""
    return sum(phase(pod) == "Running" for pod in pods)


def gpus(pod: Obj) -> int:
    """Count the GPUs that a pod asks for."""
    limits = (
        (container.get("resources") or {}).get("limits") or {} for container in pod["spec"]["containers"]
    )
    return sum(int(limit.get(GPU, 0)) for limit in limits)


def running(pod: Obj, now: str) -> Obj:
    """Give the status of a pod whose containers run and are ready."""
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": "10.0.0.1",
        "podIP": f"10.1.0.{number(pod['metadata']['name'], 250) + 2}",
        "conditions": [condition(kind, now) for kind in kinds],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def ended(pod: Obj, now: str) -> Obj:
    """Give the status of a pod whose containers have ended well."""
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": now}
    rows = [
        {**row, "ready": False, "state": {"terminated": ended}} for row in pod["status"]["containerStatuses"]
    ]
    return {"phase": "Succeeded", "containerStatuses": rows}


def unschedulable(now: str) -> Obj:
    """Give the status of a pod that no node has room for."""
    message = f"0/1 nodes are available: 1 Insufficient {GPU}."
    row = condition("PodScheduled", now, is_true=False, reason="Unschedulable") | {"message": message}
    return {"phase": "Pending", "conditions": [row]}


def condition(kind: str, now: str, *, is_true: bool = True, reason: str = "") -> dict[str, str]:
    """Give one row of conditions."""
    named = {"reason": reason} if reason else {}
    return {"type": kind, "status": str(is_true), "lastTransitionTime": now, **named}


def without_times(value: Any) -> Any:
    """Give a status without its times."""
    if isinstance(value, Mapping):
        return {name: without_times(inner) for name, inner in value.items() if name not in _TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def template_hash(workload: Obj) -> str:
    """Tell templates of pods apart."""
    text = json.dumps(workload["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def suffix(base: str, index: int) -> str:
    """Give the end of a pod's name."""
    return hashlib.sha256(f"{base} {index}".encode()).hexdigest()[:5]


def number(text: str, limit: int) -> int:
    """Give a number below a limit that depends on a text alone."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % limit


# --- Controllers, scheduler and kubelets of a memory cluster: deterministic, one small step at a
# time
# For `mlstack demo` and tests of waiting: workloads get pods, pods run, claims are bound, training jobs run
# once their operator does. Each step does what is due and no more, so that a watch sees the states in
# between.

CONTROLLERS = "kube-controller-manager"
KUBELET = "kubelet"

_TRAINING_JOBS = {
    "TFJob": "tfReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
}
_TRAINING_API = "kubeflow.org/v1"


class Simulation:
    """Plays everything that moves in a cluster.

    Args:
        cluster: what is read and written.
        gpus: how many GPUs the one node has; pods that ask for more stay Pending, with the scheduler's text.
        load_balancers: whether Services of that type get an address.
        now: gives the time as the server writes it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        gpus: int = 0,
        load_balancers: bool = False,
        now: Callable[[], str] = lambda: "2025-01-01T00:00:00Z",
    ) -> None:
        """Hold the parts; nothing moves before the first step."""
        self._cluster = cluster
        self._gpus = gpus
        self._load_balancers = load_balancers
        self._now = now

    def settle(self, *, most: int = 100) -> int:
        """Step until nothing moves any more; gives the number of steps, `most` of them at the most."""
        for number in range(most):
            if not self.step():
                return number
        return most

    def step(self) -> bool:
        """Do what is due; says whether anything moved."""
        moves = (
            self._claims,
            self._services,
            self._pods,
            self._deployments,
            self._replica_sets,
            self._stateful_sets,
            self._daemon_sets,
            self._jobs,
            self._endpoint_slices,
            self._training_jobs,
        )
        return any([move() for move in moves])

    def _all(self, api_version: str, kind: str) -> list[Obj]:
        try:
            found = self._cluster.list(api_version, kind).items
        except ObjectNotFoundError:
            return []
        return [obj for obj in found if not obj["metadata"].get("deletionTimestamp")]

    def _set_status(self, obj: Obj, status: Obj, *, manager: str = CONTROLLERS) -> bool:
        """Write a status unless it is there already, whatever its times."""
        live = obj.get("status") or {}
        known = {name: live.get(name) for name in status}
        if without_times(known) == without_times(status):
            return False
        self._cluster.patch(ObjectRef.of(obj), {"status": status}, subresource="status", manager=manager)
        return True

    def _create(self, obj: dict[str, Any]) -> bool:
        try:
            self._cluster.create(obj, manager=CONTROLLERS)
        except ConflictError:
            return False
        return True

    def _delete(self, obj: Obj) -> bool:
        self._cluster.delete(ObjectRef.of(obj), propagation="Background")
        return True

    def _claims(self) -> bool:
        return any(
            [
                self._set_status(
                    claim,
                    {
                        "phase": "Bound",
                        "accessModes": claim["spec"].get("accessModes") or [],
                        "capacity": (claim["spec"].get("resources") or {}).get("requests") or {},
                    },
                )
                for claim in self._all("v1", "PersistentVolumeClaim")
            ]
        )

    def _services(self) -> bool:
        wanting = [
            service
            for service in self._all("v1", "Service")
            if self._load_balancers and service["spec"].get("type") == "LoadBalancer"
        ]
        return any(
            [
                self._set_status(service, {"loadBalancer": {"ingress": [{"ip": f"203.0.113.{number}"}]}})
                for number, service in enumerate(wanting, start=1)
            ]
        )

    def _endpoint_slices(self) -> bool:
        """List the pods of every Service that selects some."""
        selecting = [one for one in self._all("v1", "Service") if one["spec"].get("selector")]
        return any([self._set_endpoints(service) for service in selecting])

    def _set_endpoints(self, service: Obj) -> bool:
        wanted = service["spec"]["selector"].items()
        pods = [
            pod
            for pod in self._all("v1", "Pod")
            if pod["metadata"]["namespace"] == service["metadata"]["namespace"]
            and wanted <= (pod["metadata"].get("labels") or {}).items()
        ]
        found = endpoint_slice(service, pods)
        live = self._cluster.get(ObjectRef.of(found))
        if live is None:
            return self._create(found)
        if live.get("endpoints") == found["endpoints"]:
            return False
        self._cluster.patch(ObjectRef.of(found), {"endpoints": found["endpoints"]}, manager=CONTROLLERS)
        return True

    def _pods(self) -> bool:
        """Schedule pods in the order of their names, start them, and let pods of Jobs end."""
        pods = self._all("v1", "Pod")
        free = self._gpus - sum(gpus(pod) for pod in pods if phase(pod) == "Running")
        moved = False
        for pod in pods:
            if phase(pod) == "Running" and is_owned_by(pod, "Job"):
                moved |= self._set_status(pod, ended(pod, self._now()), manager=KUBELET)
            elif phase(pod) in ("", "Pending"):
                wanted = gpus(pod)
                fits = wanted <= free
                free -= wanted if fits else 0
                status = running(pod, self._now()) if fits else unschedulable(self._now())
                moved |= self._set_status(pod, status, manager=KUBELET)
        return moved

    def _deployments(self) -> bool:
        moved = False
        for deployment in self._all("apps/v1", "Deployment"):
            moved |= self._roll_out(deployment)
            sets = [found for found in self._all("apps/v1", "ReplicaSet") if is_child(found, deployment)]
            moved |= self._set_status(deployment, deployment_status(deployment, sets, self._now()))
        return moved

    def _roll_out(self, deployment: Obj) -> bool:
        """See that the newest ReplicaSet has all replicas and the others none."""
        name = f"{deployment['metadata']['name']}-{template_hash(deployment)}"
        wanted = deployment["spec"].get("replicas", 1)
        moved, found = False, False
        for replica_set in self._all("apps/v1", "ReplicaSet"):
            if not is_child(replica_set, deployment):
                continue
            is_newest = replica_set["metadata"]["name"] == name
            found |= is_newest
            replicas = wanted if is_newest else 0
            if replica_set["spec"].get("replicas") != replicas:
                patch = {"spec": {"replicas": replicas}}
                self._cluster.patch(ObjectRef.of(replica_set), patch, manager=CONTROLLERS)
                moved = True
        return moved if found else self._create(make_replica_set(deployment, name, wanted))

    def _replica_sets(self) -> bool:
        return any([self._keep_pods(found) for found in self._all("apps/v1", "ReplicaSet")])

    def _keep_pods(self, replica_set: Obj) -> bool:
        base = replica_set["metadata"]["name"]
        wanted = {f"{base}-{suffix(base, index)}" for index in range(replica_set["spec"].get("replicas", 1))}
        moved = self._match_pods(replica_set, {name: {} for name in sorted(wanted)})
        pods = self._children(replica_set)
        status = {
            "observedGeneration": replica_set["metadata"]["generation"],
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": count_ready(pods),
            "availableReplicas": count_ready(pods),
        }
        return self._set_status(replica_set, status) or moved

    def _match_pods(self, owner: Obj, wanted: Mapping[str, Mapping[str, str]]) -> bool:
        """Create the pods that are wanted and missing, delete the others; values are more labels."""
        there = {pod["metadata"]["name"]: pod for pod in self._children(owner)}
        moved = any([self._delete(pod) for name, pod in there.items() if name not in wanted])
        template = owner["spec"]["template"]
        missing = [name for name in wanted if name not in there]
        return any([self._create(make_pod(owner, name, template, wanted[name])) for name in missing]) or moved

    def _children(self, owner: Obj, kind: str = "Pod") -> list[Obj]:
        namespace = owner["metadata"]["namespace"]
        found = self._cluster.list("v1", kind, namespace=namespace).items
        return [obj for obj in found if is_child(obj, owner) and not obj["metadata"].get("deletionTimestamp")]

    def _stateful_sets(self) -> bool:
        moved = False
        for found in self._all("apps/v1", "StatefulSet"):
            name = found["metadata"]["name"]
            revision = f"{name}-{template_hash(found)}"
            count = found["spec"].get("replicas", 1)
            moved |= any([self._claim(found, index) for index in range(count)])
            stale = [pod for pod in self._children(found) if revision_of(pod) != revision]
            moved |= any([self._delete(pod) for pod in stale])
            labels = {"controller-revision-hash": revision}
            moved |= self._match_pods(found, {f"{name}-{index}": labels for index in range(count)})
            pods = self._children(found)
            moved |= self._set_status(found, stateful_set_status(found, pods, revision))
        return moved

    def _claim(self, stateful_set: Obj, index: int) -> bool:
        metadata = stateful_set["metadata"]
        moved = False
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            name = f"{template['metadata']['name']}-{metadata['name']}-{index}"
            ref = ObjectRef("v1", "PersistentVolumeClaim", metadata["namespace"], name)
            if self._cluster.get(ref) is None:
                own = {"name": name, "namespace": metadata["namespace"]}
                moved |= self._create(
                    {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "metadata": own,
                        "spec": template["spec"],
                    }
                )
        return moved

    def _daemon_sets(self) -> bool:
        moved = False
        for found in self._all("apps/v1", "DaemonSet"):
            name = found["metadata"]["name"]
            moved |= self._match_pods(found, {f"{name}-{suffix(name, 0)}": {}})
            ready = count_ready(self._children(found))
            moved |= self._set_status(
                found,
                {
                    "observedGeneration": found["metadata"]["generation"],
                    "desiredNumberScheduled": 1,
                    "currentNumberScheduled": 1,
                    "updatedNumberScheduled": 1,
                    "numberMisscheduled": 0,
                    "numberAvailable": ready,
                    "numberReady": ready,
                },
            )
        return moved

    def _jobs(self) -> bool:
        moved = False
        for job in self._all("batch/v1", "Job"):
            if job["spec"].get("suspend"):
                moved |= self._set_status(job, {"conditions": [condition("Suspended", self._now())]})
                continue
            name, count = job["metadata"]["name"], job["spec"].get("completions") or 1
            moved |= self._match_pods(job, {f"{name}-{suffix(name, index)}": {} for index in range(count)})
            moved |= self._set_status(job, job_status(job, self._children(job), self._now()))
        return moved

    def _training_jobs(self) -> bool:
        if not any(runs_operator(found) for found in self._all("apps/v1", "Deployment")):
            return False
        return any(
            [
                self._train(job, job["spec"].get(roles) or {})
                for kind, roles in _TRAINING_JOBS.items()
                for job in self._all(_TRAINING_API, kind)
            ]
        )

    def _train(self, job: Obj, roles: Mapping[str, Any]) -> bool:
        name, kind = job["metadata"]["name"], job["kind"]
        there = {pod["metadata"]["name"] for pod in self._children(job)}
        moved = False
        for role, spec in sorted(roles.items()):
            for index in range(spec.get("replicas", 1)):
                pod = f"{name}-{role.lower()}-{index}"
                labels = {
                    "training.kubeflow.org/job-name": name,
                    "training.kubeflow.org/replica-type": role.lower(),
                    "training.kubeflow.org/replica-index": str(index),
                    "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
                }
                if pod not in there:
                    moved |= self._create(make_pod(job, pod, spec["template"], labels))
        return self._set_status(job, training_status(kind, roles, self._children(job), self._now())) or moved
