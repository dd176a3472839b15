"""A small cluster in memory on which the elastic controller works: nodes, scheduler, kubelets, sets."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from mlstack.elastic import facts as podfacts
from mlstack.elastic.cache import ClusterCache
from mlstack.elastic.controller import sources
from mlstack.elastic.reconciler import Pass, Reconciler
from mlstack.elastic.snapshot import PolicyConfig, PriorityGrants
from mlstack.errors import ForbiddenError
from mlstack.kube.client import WRITES, ClientWrapper, Cluster, ObjectRef, WatchEvent
from mlstack.objects.kube_object import MANAGER
from mlstack.objects.resources import NodePlace, is_eligible
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.elastic import node

Obj = dict[str, Any]

JOBS = "paddlepaddle.org/v1"


@dataclass
class StageClock:
    """A clock that a test moves."""

    now_ms: int = 1_700_000_000_000

    def __call__(self) -> float:
        return self.now_ms / 1000


class Counting(ClientWrapper):
    """A cluster that notes what is written to it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.writes = 0  # how often something was written
        self.tries: list[str] = []  # names of the pods that were tried by dry run
        # Is asked before each write, dry runs aside, and raises what it fails with.
        self.refuses: Callable[[], None] = lambda: None
        self.denied: set[str] = set()  # rights that it does not have, as `delete Pod`
        # Is given each object that is to be created, by dry run too, and likewise raises, or changes it.
        self.admits: Callable[[Obj], None] = lambda obj: None

    def create(self, obj: Any, *, manager: str = MANAGER, dry_run: bool = False) -> Any:
        if dry_run:
            self.tries.append(obj["metadata"]["name"])
        obj = deepcopy(obj)
        self.admits(obj)
        return super().create(obj, manager=manager, dry_run=dry_run)

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        if verb in WRITES and not named.get("dry_run"):
            self.writes += 1
            self.refuses()
            ref = args[0] if isinstance(args[0], ObjectRef) else ObjectRef.of(args[0])
            if (right := f"{verb} {ref.kind}") in self.denied:
                raise ForbiddenError(f"{ref}: no right to {right}")
        return super()._call(verb, *args, **named)


class Stage:
    """A cluster with nodes that are alike, and the controller on it, one step at a time."""

    def __init__(self, *nodes: str, cpu: str = "8") -> None:
        self.clock = StageClock()
        self.memory = MemoryCluster(load_schemas("1.36"), clock=self.clock)
        self.cluster = Counting(self.memory)
        self.memory.create(definition())
        for name, value in (("mlstack-trainer", -10), ("mlstack-training", 100)):
            metadata = {"name": name}
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            self.memory.create({**kind, "metadata": metadata, "value": value})
        for name in nodes:
            self.put(node(name, cpu=cpu))
        self.restart()

    def put(self, obj: Obj) -> None:
        """Create an object together with its status."""
        created = self.memory.create({name: value for name, value in obj.items() if name != "status"})
        if obj.get("status"):
            ref = ObjectRef.of(created.object)
            self.memory.patch(ref, {"status": obj["status"]}, subresource="status")

    def restart(self, config: PolicyConfig | None = None, **options: Any) -> None:
        """Begin with a controller that remembers nothing."""
        self.cache = ClusterCache()
        self.reconciler = Reconciler(self.cluster, self.cache, config, **options)
        self._versions: dict[str, str] = {}

    def grant(self, grants: PriorityGrants) -> None:
        """Begin anew with a controller that knows which priorities jobs may have."""
        self.restart()
        self.cache = ClusterCache(grants)
        self.reconciler = Reconciler(self.cluster, self.cache)

    def hear(self) -> None:
        """Let the controller hear what happened."""
        for source in sources(()):
            api_version, kind, labels = source.api_version, source.kind, source.labels
            if kind not in self._versions:
                listing = self.memory.list(api_version, kind, labels=labels)
                self.cache.replace(kind, listing.items, listing.resource_version)
                self._versions[kind] = listing.resource_version
                continue
            events = self.memory.watch(
                api_version, kind, labels=labels, resource_version=self._versions[kind], timeout_s=1
            )
            for event in events:
                self._versions[kind] = event.resource_version or self._versions[kind]
                self.cache.handle(WatchEvent(type=event.type, object=event.object))

    def step(self, *, seconds: float = 1.0) -> Pass:
        """Let time pass and the controller do one pass."""
        self.clock.now_ms += round(seconds * 1000)
        self.hear()
        return self.reconciler.reconcile(self.clock.now_ms)

    def settle(self, *, most: int = 20) -> None:
        """Let controller and cluster act until nothing changes."""
        for _ in range(most):
            version = self.memory.list("v1", "Pod").resource_version
            self.step()
            self.run_sets()
            self.run_pods()
            if self.memory.list("v1", "Pod").resource_version == version:
                return
        raise AssertionError("it does not come to rest")

    def rest(self, *, seconds: int = 120) -> int:
        """Let the controller do a pass every five seconds and give how often it wrote something."""
        before = self.cluster.writes
        for _ in range(seconds // 5):
            self.step(seconds=5)
        return self.cluster.writes - before

    def run_sets(self) -> None:
        """Let StatefulSets have their pods."""
        for stateful_set in self.all("StatefulSet", "apps/v1"):
            metadata, spec = stateful_set["metadata"], stateful_set["spec"]
            owned = {
                pod["metadata"]["name"]: pod
                for pod in self.all("Pod")
                if podfacts.parse_pod(pod).owner == metadata["uid"]
            }
            names = [f"{metadata['name']}-{index}" for index in range(spec.get("replicas", 1))]
            for name in [name for name in owned if name not in names]:
                self.delete("Pod", name)
            for name in [name for name in names if name not in owned]:
                owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
                template = spec["template"]
                own = {"name": name, "namespace": metadata["namespace"], "uid": metadata["uid"]}
                self.memory.create(
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": {
                            "name": name,
                            "namespace": metadata["namespace"],
                            "labels": template["metadata"]["labels"],
                            "ownerReferences": [{**owner, "name": metadata["name"], "uid": own["uid"]}],
                        },
                        "spec": template["spec"],
                    }
                )

    def run_pods(self, *, but: tuple[str, ...] = ()) -> None:
        """Bind pods where there is room, on the node that they were planned for if they can, and run them."""
        pods = {pod["metadata"]["name"]: (pod, podfacts.parse_pod(pod)) for pod in self.all("Pod")}
        for name, (obj, facts) in sorted(pods.items()):
            if facts.ending or facts.phase == "Running" or name in but:
                continue
            place = facts.node or self._place(obj, facts)
            ref = ObjectRef.of(obj)
            if not place and not facts.is_tried:
                self._refuse(ref)
            if place:
                self.memory.patch(ref, {"spec": {"nodeName": place}})
                ready = {"type": "Ready", "status": "True"}
                self.memory.patch(
                    ref, {"status": {"phase": "Running", "conditions": [ready]}}, subresource="status"
                )

    def refuse_pods(self) -> None:
        """Let the scheduler find no node for all that wait, whatever room there is."""
        for obj in self.all("Pod"):
            if not obj["spec"].get("nodeName"):
                self._refuse(ObjectRef.of(obj))

    def refuse(self, name: str, why: str) -> None:
        """Let the scheduler find no node for one pod."""
        self._refuse(ObjectRef("v1", "Pod", "default", name), why)

    def _refuse(self, ref: ObjectRef, why: str = "") -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        self.memory.patch(ref, {"status": {"conditions": [condition]}}, subresource="status")

    def _place(self, obj: Obj, facts: podfacts.PodFacts) -> str:
        places = [str(node["metadata"]["name"]) for node in self.all("Node")]
        places.sort(key=lambda name: (name != facts.planned, name))
        required = ((obj["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        for name in places:
            node = self.get("Node", name)
            assert node is not None
            place = NodePlace(name, node["metadata"]["labels"])
            spec = {**obj["spec"], "required": required}
            if is_eligible(spec, place) and facts.requests.get("cpu", 0) <= self._free(name):
                return name
        return ""

    def _free(self, name: str) -> int:
        node = self.get("Node", name)
        assert node is not None
        pods = [podfacts.parse_pod(pod) for pod in self.all("Pod")]
        used = sum(pod.requests.get("cpu", 0) for pod in pods if pod.node == name and not pod.ending)
        return int(node["status"]["allocatable"]["cpu"]) * 1000 - used

    def all(self, kind: str, api_version: str = "v1") -> list[Obj]:
        """Give all objects of a kind."""
        return [dict(item) for item in self.memory.list(api_version, kind).items]

    def get(self, kind: str, name: str, api_version: str = "v1") -> Obj | None:
        """Give one object; nodes have no namespace."""
        namespace = "" if kind == "Node" else "default"
        return self.memory.get(ObjectRef(api_version, kind, namespace, name))

    def delete(self, kind: str, name: str, api_version: str = "v1") -> None:
        """Delete an object as somebody else."""
        namespace = "" if kind == "Node" else "default"
        self.memory.delete(ObjectRef(api_version, kind, namespace, name), propagation="Background")

    def delete_definition(self) -> None:
        """Let the cluster know no training jobs."""
        kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "trainingjobs.paddlepaddle.org")
        self.memory.delete(ObjectRef(*kind), propagation="Background")

    def job(self, name: str = "train") -> Obj:
        """Give the training job."""
        job = self.get("TrainingJob", name, JOBS)
        assert job is not None
        return job

    def status(self, name: str = "train") -> Obj:
        """Give the status of the training job."""
        return dict(self.job(name).get("status") or {})

    def barred(self, name: str = "train") -> set[str]:
        """Give the nodes that are passed over for a job, as its status says."""
        bars = self.status(name).get("setbacks", {}).get("passedOver", [])
        return {node for bar in bars for node in bar["nodes"]}

    def resize(self, *maxima: int, name: str = "train") -> None:
        """Let a job have so many trainers at the most, one number after the other, and settle after each."""
        for maximum in maxima:
            bound = {"spec": {"trainer": {"max-instance": maximum}}}
            self.memory.patch(ObjectRef.of(self.job(name)), bound)
            self.settle()

    def trainers(self, name: str = "train") -> list[str]:
        """Give the names of the job's trainers that neither ended nor are going."""
        facts = map(podfacts.parse_pod, self.all("Pod"))
        return sorted(pod.name for pod in facts if pod.role == "trainer" and pod.job == name and pod.is_live)

    def end(self, name: str, *, phase: str, **status: Any) -> None:
        """Let a pod end by itself."""
        ref = ObjectRef("v1", "Pod", "default", name)
        self.memory.patch(ref, {"status": {"phase": phase, **status}}, subresource="status")

    def events(self) -> list[str]:
        """Give the reasons of the events, in the order in which they were written."""
        events = self.all("Event", "events.k8s.io/v1")
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event["reason"] for event in events]


def definition() -> Obj:
    """Give a definition of TrainingJobs that lets everything through."""
    open_ended = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": open_ended, "status": open_ended}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trainingjobs.paddlepaddle.org"},
        "spec": {
            "group": "paddlepaddle.org",
            "names": {"plural": "trainingjobs", "singular": "trainingjob", "kind": "TrainingJob"},
            "scope": "Namespaced",
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }
