"""Controllers, scheduler and kubelets of a memory cluster: deterministic, one small step at a time.

For `mlstack demo` and tests of waiting: workloads get pods, pods run, claims are bound, training jobs run
once their operator does. Each step does what is due and no more, so that a watch sees the states in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlstack.cluster import children
from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.errors import ConflictError, ObjectNotFoundError

Obj = Mapping[str, Any]

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
        if children.without_times(known) == children.without_times(status):
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
        found = children.endpoint_slice(service, pods)
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
        free = self._gpus - sum(children.gpus(pod) for pod in pods if children.phase(pod) == "Running")
        moved = False
        for pod in pods:
            if children.phase(pod) == "Running" and children.is_owned_by(pod, "Job"):
                moved |= self._set_status(pod, children.ended(pod, self._now()), manager=KUBELET)
            elif children.phase(pod) in ("", "Pending"):
                wanted = children.gpus(pod)
                fits = wanted <= free
                free -= wanted if fits else 0
                status = children.running(pod, self._now()) if fits else children.unschedulable(self._now())
                moved |= self._set_status(pod, status, manager=KUBELET)
        return moved

    def _deployments(self) -> bool:
        moved = False
        for deployment in self._all("apps/v1", "Deployment"):
            moved |= self._roll_out(deployment)
            sets = [
                found for found in self._all("apps/v1", "ReplicaSet") if children.is_child(found, deployment)
            ]
            moved |= self._set_status(deployment, children.deployment_status(deployment, sets, self._now()))
        return moved

    def _roll_out(self, deployment: Obj) -> bool:
        """See that the newest ReplicaSet has all replicas and the others none."""
        name = f"{deployment['metadata']['name']}-{children.template_hash(deployment)}"
        wanted = deployment["spec"].get("replicas", 1)
        moved, found = False, False
        for replica_set in self._all("apps/v1", "ReplicaSet"):
            if not children.is_child(replica_set, deployment):
                continue
            is_newest = replica_set["metadata"]["name"] == name
            found |= is_newest
            replicas = wanted if is_newest else 0
            if replica_set["spec"].get("replicas") != replicas:
                patch = {"spec": {"replicas": replicas}}
                self._cluster.patch(ObjectRef.of(replica_set), patch, manager=CONTROLLERS)
                moved = True
        return moved if found else self._create(children.replica_set(deployment, name, wanted))

    def _replica_sets(self) -> bool:
        return any([self._keep_pods(found) for found in self._all("apps/v1", "ReplicaSet")])

    def _keep_pods(self, replica_set: Obj) -> bool:
        base = replica_set["metadata"]["name"]
        wanted = {
            f"{base}-{children.suffix(base, index)}"
            for index in range(replica_set["spec"].get("replicas", 1))
        }
        moved = self._match_pods(replica_set, {name: {} for name in sorted(wanted)})
        pods = self._children(replica_set)
        status = {
            "observedGeneration": replica_set["metadata"]["generation"],
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": children.ready(pods),
            "availableReplicas": children.ready(pods),
        }
        return self._set_status(replica_set, status) or moved

    def _match_pods(self, owner: Obj, wanted: Mapping[str, Mapping[str, str]]) -> bool:
        """Create the pods that are wanted and missing, delete the others; values are more labels."""
        there = {pod["metadata"]["name"]: pod for pod in self._children(owner)}
        moved = any([self._delete(pod) for name, pod in there.items() if name not in wanted])
        template = owner["spec"]["template"]
        missing = [name for name in wanted if name not in there]
        return (
            any([self._create(children.pod(owner, name, template, wanted[name])) for name in missing])
            or moved
        )

    def _children(self, owner: Obj, kind: str = "Pod") -> list[Obj]:
        namespace = owner["metadata"]["namespace"]
        found = self._cluster.list("v1", kind, namespace=namespace).items
        return [
            obj
            for obj in found
            if children.is_child(obj, owner) and not obj["metadata"].get("deletionTimestamp")
        ]

    def _stateful_sets(self) -> bool:
        moved = False
        for found in self._all("apps/v1", "StatefulSet"):
            name = found["metadata"]["name"]
            revision = f"{name}-{children.template_hash(found)}"
            count = found["spec"].get("replicas", 1)
            moved |= any([self._claim(found, index) for index in range(count)])
            stale = [pod for pod in self._children(found) if children.revision(pod) != revision]
            moved |= any([self._delete(pod) for pod in stale])
            labels = {"controller-revision-hash": revision}
            moved |= self._match_pods(found, {f"{name}-{index}": labels for index in range(count)})
            pods = self._children(found)
            moved |= self._set_status(found, children.stateful_set_status(found, pods, revision))
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
            moved |= self._match_pods(found, {f"{name}-{children.suffix(name, 0)}": {}})
            ready = children.ready(self._children(found))
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
                moved |= self._set_status(job, {"conditions": [children.condition("Suspended", self._now())]})
                continue
            name, count = job["metadata"]["name"], job["spec"].get("completions") or 1
            moved |= self._match_pods(
                job, {f"{name}-{children.suffix(name, index)}": {} for index in range(count)}
            )
            moved |= self._set_status(job, children.job_status(job, self._children(job), self._now()))
        return moved

    def _training_jobs(self) -> bool:
        if not any(children.runs_operator(found) for found in self._all("apps/v1", "Deployment")):
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
                    moved |= self._create(children.pod(job, pod, spec["template"], labels))
        return (
            self._set_status(job, children.training_status(kind, roles, self._children(job), self._now()))
            or moved
        )
