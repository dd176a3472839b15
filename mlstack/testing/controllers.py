"""Controllers, scheduler and kubelets of a memory cluster, for `mlstack demo` and tests of waiting.

Deterministic, one small step at a time: workloads get pods, pods run, claims are bound, training jobs run
once their operator does. Each step does what is due and no more, so that a watch sees the states in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from mlstack.errors import ConflictError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects.kube_object import Data

CONTROLLERS = "kube-controller-manager"
KUBELET = "kubelet"
NODE = "memory"
GPU = "nvidia.com/gpu"
OPERATOR_IMAGE = "training-operator"
"""A training job is worked on once a Deployment with such an image is available."""

_TIMES = frozenset({"lastTransitionTime", "startTime", "startedAt", "finishedAt", "completionTime"})
_TRAINING_JOBS = {
    "TFJob": "tfReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
}


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
        self._cluster, self._gpus, self._load_balancers, self._now = cluster, gpus, load_balancers, now

    def settle(self, *, most: int = 100) -> int:
        """Step until nothing moves any more; gives the number of steps, `most` of them at the most."""
        return next((number for number in range(most) if not self.step()), most)

    def step(self) -> bool:
        """Do what is due; says whether anything moved."""
        moved = [self._claim(claim) for claim in self._all("v1", "PersistentVolumeClaim")]
        moved += [self._services(), self._pods()]
        for api_version, kind, move in (
            ("apps/v1", "Deployment", self._deployment),
            ("apps/v1", "ReplicaSet", self._replica_set),
            ("apps/v1", "StatefulSet", self._stateful_set),
            ("apps/v1", "DaemonSet", self._daemon_set),
            ("batch/v1", "Job", self._job),
            ("v1", "Service", self._endpoints),
            *(("kubeflow.org/v1", kind, self._training_job) for kind in _TRAINING_JOBS),
        ):
            moved += [move(obj) for obj in self._all(api_version, kind)]
        return any(moved)

    # --- reads and writes ---

    def _all(self, api_version: str, kind: str, namespace: str | None = None) -> list[Data]:
        try:
            listing = self._cluster.list(api_version, kind, namespace=namespace)
        except ObjectNotFoundError:
            return []
        return [obj for obj in listing.items if not obj["metadata"].get("deletionTimestamp")]

    def _children(self, owner: Data, api_version: str = "v1", kind: str = "Pod") -> list[Data]:
        uid = owner["metadata"]["uid"]
        siblings = self._all(api_version, kind, owner["metadata"]["namespace"])
        return [obj for obj in siblings if any(ref["uid"] == uid for ref in _owners(obj))]

    def _set_status(self, obj: Data, status: Data, *, manager: str = CONTROLLERS) -> bool:
        """Write a status unless it is there already, whatever its times."""
        live = obj.get("status") or {}
        if _without_times({name: live.get(name) for name in status}) == _without_times(status):
            return False
        self._cluster.patch(ObjectRef.of(obj), {"status": status}, subresource="status", manager=manager)
        return True

    def _create(self, obj: dict[str, Any]) -> bool:
        try:
            self._cluster.create(obj, manager=CONTROLLERS)
        except ConflictError:
            return False
        return True

    def _delete(self, pod: Data) -> bool:
        self._cluster.delete(ObjectRef.of(pod), propagation="Background")
        return True

    def _patch(self, obj: Data, patch: Data) -> bool:
        self._cluster.patch(ObjectRef.of(obj), patch, manager=CONTROLLERS)
        return True

    def _match_pods(self, owner: Data, templates: Mapping[str, Data]) -> tuple[bool, list[Data]]:
        """See that there are the pods of these names, and no others; say whether any moved, and give them."""
        live = {pod["metadata"]["name"]: pod for pod in self._children(owner)}
        surplus = [self._delete(pod) for name, pod in live.items() if name not in templates]
        created = [
            self._create(_pod(owner, name, template))
            for name, template in templates.items()
            if name not in live
        ]
        return any([*surplus, *created]), self._children(owner)

    # --- storage, network and pods ---

    def _claim(self, claim: Data) -> bool:
        spec = claim["spec"]
        capacity = (spec.get("resources") or {}).get("requests") or {}
        status = {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": capacity}
        return self._set_status(claim, status)

    def _services(self) -> bool:
        services = self._all("v1", "Service") if self._load_balancers else []
        balanced = [service for service in services if service["spec"].get("type") == "LoadBalancer"]
        addresses = [[{"ip": f"203.0.113.{number}"}] for number in range(1, len(balanced) + 1)]
        moved = [
            self._set_status(service, {"loadBalancer": {"ingress": ingress}})
            for service, ingress in zip(balanced, addresses, strict=True)
        ]
        return any(moved)

    def _endpoints(self, service: Data) -> bool:
        """List the pods of a Service that selects some."""
        selector = (service["spec"].get("selector") or {}).items()
        if not selector:
            return False
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        siblings = self._all("v1", "Pod", namespace)
        pods = [pod for pod in siblings if selector <= (pod["metadata"].get("labels") or {}).items()]
        endpoints = [
            {
                "addresses": [f"10.0.0.{number}"],
                "conditions": {"ready": _phase(pod) == "Running"},
                "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"]},
            }
            for number, pod in enumerate(pods, start=1)
        ]
        ref = ObjectRef("discovery.k8s.io/v1", "EndpointSlice", namespace, f"{name}-memory")
        live = self._cluster.get(ref)
        if live is not None and live.get("endpoints") == endpoints:
            return False
        if live is not None:
            return self._patch(live, {"endpoints": endpoints})
        labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": NODE}
        metadata = {**_owned_metadata(service, ref.name), "labels": labels}
        types = {"apiVersion": ref.api_version, "kind": ref.kind, "addressType": "IPv4"}
        return self._create({**types, "metadata": metadata, "endpoints": endpoints})

    def _pods(self) -> bool:
        """Schedule pods in the order of their names, start them, and let pods of Jobs end."""
        pods = self._all("v1", "Pod")
        free = self._gpus - sum(_gpus(pod) for pod in pods if _phase(pod) == "Running")
        moved = False
        for pod in pods:
            phase, status = _phase(pod), dict[str, Any]()
            if phase == "Running" and any(ref["kind"] == "Job" for ref in _owners(pod)):
                state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": self._now()}}
                rows = pod["status"]["containerStatuses"]
                ended = [{**row, "ready": False, "state": state} for row in rows]
                status = {"phase": "Succeeded", "containerStatuses": ended}
            elif phase in ("", "Pending") and _gpus(pod) <= free:
                free -= _gpus(pod)
                status = _running(pod, self._now())
            elif phase in ("", "Pending"):
                row = _condition("PodScheduled", self._now(), is_true=False, reason="Unschedulable")
                message = f"0/1 nodes are available: 1 Insufficient {GPU}."
                status = {"phase": "Pending", "conditions": [row | {"message": message}]}
            moved |= bool(status) and self._set_status(pod, status, manager=KUBELET)
        return moved

    # --- workloads ---

    def _deployment(self, deployment: Data) -> bool:
        """See that the newest ReplicaSet has all replicas and the others none."""
        spec, digest = deployment["spec"], _template_hash(deployment)
        name, replicas = f"{deployment['metadata']['name']}-{digest}", spec.get("replicas", 1)
        sets = {obj["metadata"]["name"]: obj for obj in self._children(deployment, "apps/v1", "ReplicaSet")}
        moved = False
        for replica_set in sets.values():
            number = replicas if replica_set["metadata"]["name"] == name else 0
            if replica_set["spec"].get("replicas") != number:
                moved = self._patch(replica_set, {"spec": {"replicas": number}})
        if name not in sets:
            labels = {"pod-template-hash": digest}
            template, selector = _labelled(spec["template"], labels), spec["selector"]
            selector = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **labels}}
            metadata = {**_owned_metadata(deployment, name), "labels": template["metadata"]["labels"]}
            inner = {"replicas": replicas, "selector": selector, "template": template}
            kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
            moved |= self._create({**kind, "metadata": metadata, "spec": inner})
        statuses = {name: obj.get("status") or {} for name, obj in sets.items()}
        newest = statuses.get(name) or {}
        ready = newest.get("readyReplicas", 0)
        is_done = ready >= replicas
        reason = "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated"
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": sum(status.get("replicas", 0) for status in statuses.values()),
            "updatedReplicas": newest.get("replicas", 0),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "conditions": [
                _condition("Available", self._now(), is_true=is_done),
                _condition("Progressing", self._now(), reason=reason),
            ],
        }
        return self._set_status(deployment, status) or moved

    def _replica_set(self, replica_set: Data) -> bool:
        name, replicas = replica_set["metadata"]["name"], replica_set["spec"].get("replicas", 1)
        names = sorted(f"{name}-{_suffix(name, index)}" for index in range(replicas))
        moved, pods = self._match_pods(replica_set, dict.fromkeys(names, replica_set["spec"]["template"]))
        status = {**_counts(replica_set, pods), "fullyLabeledReplicas": len(pods)}
        return self._set_status(replica_set, status) or moved

    def _stateful_set(self, stateful_set: Data) -> bool:
        name, namespace = stateful_set["metadata"]["name"], stateful_set["metadata"]["namespace"]
        revision = f"{name}-{_template_hash(stateful_set)}"
        names = [f"{name}-{index}" for index in range(stateful_set["spec"].get("replicas", 1))]
        moved = False
        for pod_name in names:
            for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
                metadata = {"name": f"{template['metadata']['name']}-{pod_name}", "namespace": namespace}
                kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
                claim = {**kind, "metadata": metadata, "spec": template["spec"]}
                if self._cluster.get(ObjectRef.of(claim)) is None:
                    moved |= self._create(claim)
        for pod in self._children(stateful_set):
            if (pod["metadata"].get("labels") or {}).get("controller-revision-hash", "") != revision:
                moved |= self._delete(pod)
        template = _labelled(stateful_set["spec"]["template"], {"controller-revision-hash": revision})
        has_changed, pods = self._match_pods(stateful_set, dict.fromkeys(names, template))
        counts = {**_counts(stateful_set, pods), "currentReplicas": len(pods), "updatedReplicas": len(pods)}
        revisions = {"currentRevision": revision, "updateRevision": revision}
        return self._set_status(stateful_set, counts | revisions) or has_changed or moved

    def _daemon_set(self, daemon_set: Data) -> bool:
        name, template = daemon_set["metadata"]["name"], daemon_set["spec"]["template"]
        moved, pods = self._match_pods(daemon_set, {f"{name}-{_suffix(name, 0)}": template})
        counts = _counts(daemon_set, pods)
        scheduled = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled")
        status = {
            "observedGeneration": counts["observedGeneration"],
            **dict.fromkeys(scheduled, 1),
            "numberMisscheduled": 0,
            "numberAvailable": counts["readyReplicas"],
            "numberReady": counts["readyReplicas"],
        }
        return self._set_status(daemon_set, status) or moved

    def _job(self, job: Data) -> bool:
        now = self._now()
        if job["spec"].get("suspend"):
            return self._set_status(job, {"conditions": [_condition("Suspended", now)]})
        name, completions = job["metadata"]["name"], job["spec"].get("completions") or 1
        names = [f"{name}-{_suffix(name, index)}" for index in range(completions)]
        moved, pods = self._match_pods(job, dict.fromkeys(names, job["spec"]["template"]))
        succeeded = sum(_phase(pod) == "Succeeded" for pod in pods)
        status = {"startTime": now, "active": len(pods) - succeeded, "succeeded": succeeded}
        if succeeded >= completions:
            complete = _condition("Complete", now, reason="CompletionsReached")
            rows = [_condition("SuccessCriteriaMet", now), complete]
            status |= {"completionTime": now, "conditions": rows}
        return self._set_status(job, status) or moved

    def _training_job(self, job: Data) -> bool:
        for deployment in self._all("apps/v1", "Deployment"):
            containers = deployment["spec"]["template"]["spec"]["containers"]
            is_available = (deployment.get("status") or {}).get("availableReplicas", 0) > 0
            if is_available and any(OPERATOR_IMAGE in part.get("image", "") for part in containers):
                break
        else:
            return False
        name, kind, now = job["metadata"]["name"], job["kind"], self._now()
        roles = dict(sorted((job["spec"].get(_TRAINING_JOBS[kind]) or {}).items()))
        templates: dict[str, Data] = {}
        for role, spec in roles.items():
            for index in range(spec.get("replicas", 1)):
                labels = {
                    "training.kubeflow.org/job-name": name,
                    "training.kubeflow.org/replica-type": role.lower(),
                    "training.kubeflow.org/replica-index": str(index),
                    "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
                }
                templates[f"{name}-{role.lower()}-{index}"] = _labelled(spec["template"], labels)
        moved, pods = self._match_pods(job, templates)
        running = [pod for pod in pods if _phase(pod) == "Running"]
        rows = [_condition("Created", now, reason=f"{kind}Created")]
        if pods and len(running) == len(pods):
            rows.append(_condition("Running", now, reason=f"{kind}Running"))
        types = [pod["metadata"]["labels"].get("training.kubeflow.org/replica-type") for pod in running]
        statuses = {role: {"active": types.count(role.lower())} for role in roles}
        status = {"conditions": rows, "replicaStatuses": statuses, "startTime": now}
        return self._set_status(job, status) or moved


# --- the objects that controllers make, and statuses ---


def _pod(owner: Data, name: str, template: Data) -> dict[str, Any]:
    metadata = {**(template.get("metadata") or {}), **_owned_metadata(owner, name)}
    spec = {**template["spec"], "nodeName": NODE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labelled(template: Data, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def _owned_metadata(owner: Data, name: str) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": owner["metadata"]["namespace"], "ownerReferences": [reference]}


def _running(pod: Data, now: str) -> dict[str, Any]:
    """Give the status of a pod whose containers run and are ready."""
    digest = int(hashlib.sha256(pod["metadata"]["name"].encode()).hexdigest(), 16)
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": "10.0.0.1",
        "podIP": f"10.1.0.{digest % 250 + 2}",
        "conditions": [_condition(kind, now) for kind in kinds],
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


def _counts(owner: Data, pods: list[Data]) -> dict[str, Any]:
    ready = sum(_phase(pod) == "Running" for pod in pods)
    generation = owner["metadata"]["generation"]
    counts = {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
    return {"observedGeneration": generation, **counts}


def _condition(kind: str, now: str, *, is_true: bool = True, reason: str = "") -> dict[str, str]:
    named = {"reason": reason} if reason else {}
    return {"type": kind, "status": str(is_true), "lastTransitionTime": now, **named}


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_times(inner) for name, inner in value.items() if name not in _TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _owners(obj: Data) -> list[Data]:
    return obj["metadata"].get("ownerReferences") or []


def _phase(pod: Data) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _gpus(pod: Data) -> int:
    resources = [container.get("resources") or {} for container in pod["spec"]["containers"]]
    return sum(int((part.get("limits") or {}).get(GPU, 0)) for part in resources)


def _template_hash(workload: Data) -> str:
    text = json.dumps(workload["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _suffix(base: str, index: int) -> str:
    return hashlib.sha256(f"{base} {index}".encode()).hexdigest()[:5]
