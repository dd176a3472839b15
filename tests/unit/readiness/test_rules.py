"""Readiness rules: for each kind ready, waiting and failed, and the reason."""

from collections.abc import Mapping
from typing import Any

import pytest

from mlstack.readiness.evaluate import assess
from mlstack.readiness.rule import Facts, Readiness

NOW_S = 1_800_000_000.0
YOUNG = "2027-01-15T07:59:59Z"  # one second before
OLD = "2027-01-15T07:00:00Z"

SCHEDULER = (
    "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. no new claims to deallocate, "
    "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)


def conditions(**states: str | tuple[str, str, str]) -> list[dict[str, str]]:
    """Build conditions: `Ready="True"` or `Ready=("False", reason, message)`."""
    full = {name: state if isinstance(state, tuple) else (state, "", "") for name, state in states.items()}
    return [
        {"type": name, "status": status, "reason": reason, "message": message}
        for name, (status, reason, message) in full.items()
    ]


def pod(name: str = "p", *, phase: str = "Pending", created: str = OLD, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    labels = status.pop("labels", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "labels": labels},
        "status": {"phase": phase, **status},
    }


def unscheduled(**more: Any) -> dict[str, Any]:
    return pod(conditions=conditions(PodScheduled=("False", "Unschedulable", SCHEDULER)), **more)


def stuck(reason: str, message: str = "", *, created: str = OLD) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(created=created, containerStatuses=[{"name": "main", "state": state}])


def runs(name: str = "p", *, ready: bool = False, spec: Any = None, **container: Any) -> dict[str, Any]:
    """Build a pod whose container `main` runs."""
    status = {"name": "main", "ready": ready, "state": {"running": {}}, **container}
    made = pod(name, phase="Running", conditions=conditions(Ready=str(ready)), containerStatuses=[status])
    return {**made, "spec": {"containers": [{"name": "main", **(spec or {})}]}}


def event(
    uid: str, reason: str, message: str = "", kind: str = "Warning", container: str = ""
) -> dict[str, Any]:
    about = {"uid": uid} | ({"fieldPath": f"spec.containers{{{container}}}"} if container else {})
    return {"type": kind, "reason": reason, "message": message, "involvedObject": about}


def node(**allocatable: str) -> dict[str, Any]:
    return {"status": {"allocatable": {name.replace("_", "/"): count for name, count in allocatable.items()}}}


def judge(
    api_version: str,
    kind: str,
    *,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    created: str = OLD,
    metadata: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Readiness:
    own = {"name": "x", "uid": "uid-x", "creationTimestamp": created, **(metadata or {})}
    data = {"apiVersion": api_version, "kind": kind, "metadata": own}
    data |= {key: value for key, value in (("spec", spec), ("status", status)) if value is not None}
    return assess(Facts(data=data, now_s=NOW_S, **facts))


# --- every kind and pods, claims, Services, workloads, TFJob: kind, what is there, state and reason ---

POD, CLAIM, SERVICE = "v1 Pod", "v1 PersistentVolumeClaim", "v1 Service"
DEPLOYMENT, SET, DAEMONS = "apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 DaemonSet"
JOB, TFJOB, THING = "batch/v1 Job", "kubeflow.org/v1 TFJob", "x.org/v1 Thing"
CRD, API = "apiextensions.k8s.io/v1 CustomResourceDefinition", "apiregistration.k8s.io/v1 APIService"

UNOBSERVED = "its controller has not seen the newest version yet"
NO_GPU = "no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)"
CPU = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a.b/c: }"
QUOTA = "exceeded quota: gpus, requested: pods=1, used: pods=1, limited: pods=1"
STUCK_OLD = (
    "0 of 1 pods ready: old pod p is stuck (container main: InvalidImageName); a StatefulSet does not"
    " replace such a pod by itself: kubectl delete pod p"
)
SECOND = {"metadata": {"generation": 2}}
LATE = [event("uid-x", "WaitForFirstConsumer", "waiting", "Normal")]
PENDING = {"phase": "Pending"}
BALANCER = {"type": "LoadBalancer"}
ADDRESS = {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}
DEADLINE = conditions(Progressing=("False", "ProgressDeadlineExceeded", "timed out"))
PROBE = [event("uid-p", "Unhealthy", "Readiness probe failed: no")]
PARTITION = {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}}
TWO_WORKERS = {"tfReplicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 2}}}
NODES = ("desiredNumberScheduled", "currentNumberScheduled", "numberAvailable", "numberReady")
ZEROS = dict.fromkeys(("currentNumberScheduled", "desiredNumberScheduled", "numberReady"), 0)


def with_conditions(**states: str | tuple[str, str, str]) -> dict[str, Any]:
    return {"status": {"conditions": conditions(**states)}}


def refusal(text: str) -> dict[str, Any]:
    return with_conditions(ReplicaFailure=("True", "FailedCreate", text))


def deployed(count: int, **more: int) -> dict[str, Any]:
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return {"status": {**dict.fromkeys(names, count), **more}}


def rolled(count: int, current: str = "a", update: str = "a", **more: int) -> dict[str, Any]:
    revisions = {"currentRevision": current, "updateRevision": update}
    return {"status": {"replicas": count, "readyReplicas": count, **revisions, **more}}


def labelled(data: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**data, "metadata": {**data["metadata"], "labels": labels}}


def going(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "metadata": {**data["metadata"], "deletionTimestamp": OLD}}


def worker(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "metadata": {**data["metadata"], "labels": {ROLE: "worker"}}}


ROLE = "training.kubeflow.org/replica-type"
REVISION = "controller-revision-hash"


def tfjob(*states: str, **active: int) -> dict[str, Any]:
    counts = {role: {"active": count} for role, count in active.items()}
    status = {"conditions": conditions(**dict.fromkeys(states, "True")), "replicaStatuses": counts}
    return {"spec": TWO_WORKERS, "status": status}


def ended(name: str, code: int, reason: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return pod(phase="Failed", containerStatuses=[{"name": name, "state": state}])


OLD_POD = labelled(stuck("InvalidImageName"), **{REVISION: "a"})
EVICTED = pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory")

# What is there; state; reason, of which `…` stands for anything before or after.
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    # every kind
    (
        "v1 ConfigMap",
        {"metadata": {"deletionTimestamp": OLD, "finalizers": ["foregroundDeletion"]}},
        "terminating",
        "waits for finalizers: foregroundDeletion",
    ),
    (THING, {**SECOND, "status": {"observedGeneration": 1}}, "waiting", UNOBSERVED),
    *((THING, {**SECOND, "status": {"observedGeneration": odd}}, "ready", "") for odd in ("2", 2, "v2")),
    (
        THING,
        {**SECOND, "status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}},
        "waiting",
        UNOBSERVED,
    ),
    (THING, with_conditions(Ready=("False", "R", "why")), "waiting", "why"),
    (THING, with_conditions(Ready="True"), "ready", ""),
    (THING, with_conditions(Stalled=("True", "R", "no")), "failed", "no"),
    (THING, with_conditions(Reconciling=("True", "R", "")), "waiting", "R"),
    (THING, {"created": YOUNG}, "waiting", "…"),
    (THING, {}, "ready", "no controller has written a status"),
    (THING, {"created": YOUNG, "has_status": False}, "ready", "its kind has no status to wait for"),
    (THING, {"created": YOUNG, "has_status": True}, "waiting", "…"),
    ("v1 ConfigMap", {"created": YOUNG}, "ready", ""),
    # claims
    (CLAIM, {"status": {"phase": "Bound"}}, "ready", ""),
    (CLAIM, {"status": {"phase": "Lost"}}, "failed", "…"),
    (CLAIM, {"status": PENDING}, "waiting", "…"),
    (
        CLAIM,
        {"status": PENDING, "events": [event("uid-x", "ProvisioningFailed", 'class "fast" not found')]},
        "waiting",
        'ProvisioningFailed: class "fast" not found',
    ),
    (CLAIM, {"status": PENDING, "events": LATE}, "ready", "…"),
    (CLAIM, {"status": PENDING, "events": LATE, "pods": [pod()]}, "waiting", "…"),
    (CLAIM, {"spec": {"storageClassName": "late"}, "late_classes": {"late"}}, "ready", "…"),
    (CLAIM, {"spec": {"storageClassName": "late"}, "late_classes": set()}, "waiting", "…"),
    (
        CLAIM,
        {"events": LATE, "pods": [unscheduled()], "nodes": []},
        "waiting",
        "its pod waits: no node of this cluster has nvidia.com/gpu…",
    ),
    # Services, definitions, APIs
    (SERVICE, {"spec": BALANCER}, "ready", ""),
    (SERVICE, {"spec": BALANCER, "wait_for_load_balancer": True}, "waiting", "…"),
    (SERVICE, {"spec": BALANCER, "status": ADDRESS, "wait_for_load_balancer": True}, "ready", ""),
    (CRD, with_conditions(Established="True", NamesAccepted="True"), "ready", ""),
    (CRD, {"status": {}}, "waiting", "…"),
    (CRD, with_conditions(Established=("False", "Installing", "")), "waiting", "…"),
    (CRD, with_conditions(NamesAccepted=("False", "KindConflict", "taken")), "failed", "…"),
    (CRD, with_conditions(Established="True", Terminating=("True", "Deletes", "")), "terminating", "…"),
    (API, with_conditions(Available="True"), "ready", ""),
    (API, {}, "waiting", "…"),
    # Deployment
    (DEPLOYMENT, {"spec": {"replicas": 2}, **deployed(2)}, "ready", "2 of 2 pods"),
    (DEPLOYMENT, {"spec": {"paused": True}}, "suspended", "…"),
    (
        DEPLOYMENT,
        {"spec": {"replicas": 2}, **deployed(1, updatedReplicas=2), "pods": [unscheduled()], "nodes": []},
        "waiting",
        "1 of 2 pods ready: no node of this cluster has nvidia.com/gpu…",
    ),
    (
        DEPLOYMENT,
        {"spec": {}, "status": {}, "pods": [stuck("InvalidImageName")]},
        "failed",
        "0 of 1 pods ready: container main: InvalidImageName",
    ),
    (
        DEPLOYMENT,
        {**deployed(1, replicas=2), "pods": [runs("new", ready=True)]},
        "waiting",
        "1 old pod is ending",
    ),
    # old pods stay until new ones work, which is no ending
    (DEPLOYMENT, deployed(1, replicas=2, unavailableReplicas=1), "waiting", "0 of 1 new pods ready"),
    (
        DEPLOYMENT,
        {**deployed(1, replicas=2, unavailableReplicas=1), "pods": [unscheduled()], "nodes": []},
        "waiting",
        "0 of 1 new pods ready: no node of this cluster has nvidia.com/gpu…",
    ),
    (
        DEPLOYMENT,
        {**deployed(1, replicas=2, unavailableReplicas=1), "pods": [runs("new")]},
        "waiting",
        "0 of 1 new pods ready: container main runs, but is not ready yet",
    ),
    # pods of the old template are not counted as new
    (
        DEPLOYMENT,
        {"spec": {"replicas": 3}, **deployed(3, replicas=4, updatedReplicas=1), "pods": [unscheduled()]},
        "waiting",
        "0 of 3 new pods ready: no node has nvidia.com/gpu free…",
    ),
    # a rollout that breaks beside working pods fails
    (
        DEPLOYMENT,
        {**deployed(1, replicas=2), "pods": [stuck("InvalidImageName")]},
        "failed",
        "0 of 1 new pods ready: container main: InvalidImageName",
    ),
    # past its deadline it fails unless it only queues
    (DEPLOYMENT, {"status": {"conditions": DEADLINE}}, "failed", "timed out"),
    (DEPLOYMENT, {"status": {"conditions": DEADLINE}, "pods": [unscheduled()]}, "waiting", "…"),
    (
        DEPLOYMENT,
        {"status": {"conditions": DEADLINE}, "pods": [runs("p")], "events": PROBE},
        "failed",
        "Readiness probe failed: no",
    ),
    (
        DEPLOYMENT,
        {"status": {"conditions": DEADLINE + refusal("exceeded quota: gpus")["status"]["conditions"]}},
        "waiting",
        "…",
    ),
    (
        DEPLOYMENT,
        refusal(f'pods "a" is forbidden: {QUOTA}'),
        "waiting",
        f"0 of 1 pods ready: waiting for quota: {QUOTA}",
    ),
    (
        DEPLOYMENT,
        refusal("violates PodSecurity"),
        "waiting",
        "0 of 1 pods ready: a pod was refused: violates PodSecurity",
    ),
    # pods that are going or were evicted are no failure
    (DEPLOYMENT, {"pods": [going(stuck("InvalidImageName"))]}, "waiting", "0 of 1 pods ready"),
    (DEPLOYMENT, {"pods": [EVICTED]}, "waiting", "0 of 1 pods ready: The node was low on resource: memory"),
    # StatefulSet
    (SET, rolled(1), "ready", "1 of 1 pods"),
    (SET, rolled(1, "a", "b"), "waiting", "…"),
    (SET, {**rolled(1), "spec": {"replicas": 2}}, "waiting", "1 of 2 pods ready"),
    (SET, {"status": {}, "pods": [stuck("ErrImagePull")]}, "failed", "…"),
    (SET, {**rolled(3, "a", "b", updatedReplicas=1), "spec": PARTITION}, "ready", "…"),
    (SET, {**rolled(3, "a", "b"), "spec": PARTITION}, "waiting", "…"),
    (SET, {**rolled(0, "a", "b"), "pods": [OLD_POD]}, "waiting", STUCK_OLD),
    (
        SET,
        {**rolled(0, "a", "b"), "pods": [OLD_POD], "spec": {"podManagementPolicy": "Parallel"}},
        "waiting",
        "0 of 1 pods ready",
    ),
    # DaemonSet, ReplicaSet
    (DAEMONS, {"status": dict.fromkeys((*NODES, "updatedNumberScheduled"), 2)}, "ready", "2 of 2 nodes"),
    (DAEMONS, {"status": dict.fromkeys(NODES, 2) | {"updatedNumberScheduled": 1}}, "waiting", "…"),
    (
        DAEMONS,
        {"status": dict.fromkeys(NODES, 2), "spec": {"updateStrategy": {"type": "OnDelete"}}},
        "ready",
        "…",
    ),
    (DAEMONS, {}, "waiting", "its controller has not counted the nodes yet"),
    (DAEMONS, {"status": {NODES[0]: 1}, "pods": [stuck("ErrImagePull")]}, "failed", "…"),
    # the zeros of a new one are no count of nodes
    (
        DAEMONS,
        {"status": ZEROS, "metadata": {"generation": 1}},
        "waiting",
        "its controller has not counted the nodes yet",
    ),
    (
        DAEMONS,
        {"status": {**ZEROS, "observedGeneration": 1}, "metadata": {"generation": 1}},
        "ready",
        "0 of 0 nodes",
    ),
    ("apps/v1 ReplicaSet", {"status": {"readyReplicas": 1, "availableReplicas": 1}}, "ready", "…"),
    ("apps/v1 ReplicaSet", {}, "waiting", "…"),
    # Job
    (JOB, with_conditions(Complete="True"), "done", "…"),
    (JOB, with_conditions(Failed=("True", "BackoffLimitExceeded", "too many")), "failed", "too many"),
    (JOB, with_conditions(Suspended="True"), "suspended", "…"),
    (
        JOB,
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}, "spec": {"suspend": True}},
        "suspended",
        "waits in queue `gpus`",
    ),
    (JOB, {"status": {"ready": 1}}, "ready", "running"),
    (JOB, {"status": {"ready": 1}, "spec": {"parallelism": 2}}, "waiting", "1 of 2 pods ready"),
    # a failed pod of it is tried again, and the reason is that of the next
    (JOB, {"pods": [pod(phase="Failed")]}, "waiting", "…"),
    (JOB, {"pods": [stuck("InvalidImageName")]}, "failed", "…"),
    (
        JOB,
        {"pods": [pod("a", phase="Failed"), unscheduled(name="b")]},
        "waiting",
        "0 of 1 pods ready: no node has nvidia.com/gpu free…",
    ),
    (
        JOB,
        {"events": [event("uid-x", "FailedCreate", "exceeded quota: gpus")]},
        "waiting",
        "0 of 1 pods ready: waiting for quota: exceeded quota: gpus",
    ),
    # TFJob
    (TFJOB, tfjob("Created", "Running", PS=1, Worker=2), "ready", "workers 2 of 2, PS 1 of 1"),
    (TFJOB, tfjob("Created", "Running", PS=1, Worker=1), "waiting", "1 of 2 workers run (PS 1 of 1)"),
    (
        TFJOB,
        {**tfjob("Created", PS=1), "pods": [worker(unscheduled())], "nodes": [node(cpu="8")]},
        "waiting",
        f"0 of 2 workers run (PS 1 of 1). Workers wait: {NO_GPU}",
    ),
    (
        TFJOB,
        {**tfjob("Created", PS=1), "pods": [worker(stuck("ErrImagePull", "not found"))]},
        "failed",
        "…Workers wait: container main: ErrImagePull: not found",
    ),
    (
        TFJOB,
        {"spec": TWO_WORKERS, "events": [event("uid-x", "FailedCreatePod", "Pod is invalid")]},
        "waiting",
        "…Workers wait: a pod was refused: Pod is invalid",
    ),
    (TFJOB, {"spec": TWO_WORKERS}, "waiting", "no training operator has picked it up after 3600 s"),
    (TFJOB, {"spec": TWO_WORKERS, "created": YOUNG}, "waiting", "0 of 2 workers run (PS 0 of 1)"),
    (TFJOB, tfjob("Restarting", PS=1), "waiting", "…a pod that failed is being started again"),
    (TFJOB, tfjob("Succeeded"), "done", "…"),
    (TFJOB, tfjob("Suspended"), "suspended", "…"),
    (
        TFJOB,
        {
            "spec": TWO_WORKERS,
            **with_conditions(Failed=("True", "TFJobFailed", "TFJob x has failed")),
            "pods": [ended("tensorflow", 1, "Error")],
        },
        "failed",
        "TFJob x has failed (container tensorflow: exit code 1)",
    ),
    (
        "kubeflow.org/v1 PyTorchJob",
        {
            "spec": {"pytorchReplicaSpecs": {"Master": {}}},
            "status": {"replicaStatuses": {"Master": {"active": 1}}},
        },
        "ready",
        "…",
    ),
]


def assert_told(found: Readiness, state: str, reason: str) -> None:
    head, dots, tail = reason.partition("…")
    assert found.state == state
    assert found.reason.startswith(head) and found.reason.endswith(tail) if dots else found.reason == reason


@pytest.mark.parametrize(("kind", "facts", "state", "reason"), CASES)
def test_what_an_object_waits_for(kind: str, facts: dict[str, Any], state: str, reason: str) -> None:
    assert_told(judge(*kind.split(), **facts), state, reason)


# --- pods ---


def judge_pod(data: Mapping[str, Any], **facts: Any) -> Readiness:
    return assess(Facts(data=data, now_s=NOW_S, **facts))


def crashing(*, restarts: int, waits: bool = True, created: str = YOUNG, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": "CrashLoopBackOff"}} if waits else {"running": {}}
    last = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    container = {"name": "main", "restartCount": restarts, "state": state, "lastState": last}
    return pod(phase="Running", created=created, containerStatuses=[container])


LOOPS = "container main: CrashLoopBackOff: exit code 1"
UNREADY = {"type": "ContainersReady", "status": "False", "lastTransitionTime": YOUNG}
PULL = "container main: ImagePullBackOff: no such tag"
KILLED = {"lastState": {"terminated": {"exitCode": 137, "reason": "Error"}}, "restartCount": 2}
LIVENESS = [event("uid-p", "Unhealthy", "Liveness probe failed: refused", container="main")]


@pytest.mark.parametrize(
    ("data", "facts", "state", "reason"),
    [
        (pod(phase="Running", conditions=conditions(Ready="True")), {}, "ready", ""),
        (pod(phase="Succeeded"), {}, "done", ""),
        (unscheduled(), {"nodes": [node(cpu="4")]}, "waiting", NO_GPU),
        (
            unscheduled(),
            {"nodes": [node(**{"nvidia.com_gpu": "1"})]},
            "waiting",
            "all nvidia.com/gpu of this…",
        ),
        (unscheduled(), {}, "waiting", "no node has nvidia.com/gpu free…"),
        (
            pod(conditions=conditions(PodScheduled=("False", "Unschedulable", f"{CPU}. preemption: none"))),
            {},
            "waiting",
            CPU,
        ),
        (stuck("ImagePullBackOff", "no such tag", created=YOUNG), {}, "waiting", PULL),
        (stuck("ImagePullBackOff", "no such tag", created=OLD), {}, "failed", PULL),
        (crashing(restarts=1), {}, "waiting", LOOPS),
        (crashing(restarts=3), {}, "failed", LOOPS),
        (crashing(restarts=1, created=OLD), {}, "failed", LOOPS),
        (
            crashing(restarts=2, waits=False, message="a\nb\nno such model\nbye\n"),
            {},
            "waiting",
            "container main: exit code 1: b | no such model | bye, restarted 2 times",
        ),
        (
            pod(phase="Running"),
            {"events": [event("uid-p", "Unhealthy", "Readiness probe failed: status 503")]},
            "waiting",
            "Readiness probe failed: status 503",
        ),
        (
            runs(**KILLED),
            {"events": LIVENESS},
            "waiting",
            "container main: exit code 137, restarted 2 times; Liveness probe failed: refused",
        ),
        (
            runs(**KILLED, state={"waiting": {"reason": "CrashLoopBackOff"}}),
            {"events": LIVENESS},
            "failed",
            "container main: CrashLoopBackOff: exit code 137; Liveness probe failed: refused",
        ),
        (ended("main", 137, "OOMKilled"), {}, "failed", "container main: exit code 137 (OOMKilled)"),
        (
            pod(conditions=conditions(PodScheduled="True")),
            {"events": [event("uid-p", "FailedMount", 'secret "a" not found. retrying')]},
            "waiting",
            'FailedMount: secret "a" not found',
        ),
        (pod(), {}, "waiting", "is not scheduled yet"),
        (pod(conditions=conditions(PodScheduled="True")), {}, "waiting", "is being started"),
        (
            pod(phase="Running", containerStatuses=[{"name": "a", "ready": False}]),
            {},
            "waiting",
            "not ready: a",
        ),
        (pod(phase="Running"), {}, "waiting", "runs, but is not ready yet"),
    ],
)
def test_why_a_pod_does_not_run(data: dict[str, Any], facts: dict[str, Any], state: str, reason: str) -> None:
    assert_told(judge_pod(data, **facts), state, reason)


def test_a_pod_that_ran_for_long_and_crashes_now_has_its_grace() -> None:
    data = crashing(restarts=1, created=OLD)
    data["status"]["conditions"] = [UNREADY]
    assert judge_pod(data).state == "waiting"


def test_what_pods_only_queue_for_is_told_apart() -> None:
    events = [event("uid-p", "TriggeredScaleUp", "pod triggered scale-up", "Normal")]
    found = judge_pod(unscheduled(), events=events)
    assert (found.queue, found.resource) == ("new-node", "nvidia.com/gpu")
    assert found.reason.endswith("; the autoscaler is adding a node")
    assert judge_pod(unscheduled()).queue == "node"
    assert judge("apps/v1", "Deployment", **refusal(QUOTA)).queue == "quota"
    waits = judge("v1", "PersistentVolumeClaim", events=LATE, pods=[unscheduled()], nodes=[])
    assert waits.queue == "node"
    job = tfjob("Created", PS=1)
    assert judge("kubeflow.org/v1", "TFJob", **job, pods=[worker(unscheduled())]).resource == "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("probe", "started", "reason"),
    [
        ({"readinessProbe": {"tcpSocket": {"port": 80}}}, True, "readiness probe (TCP port 80)"),
        ({"readinessProbe": {"exec": {"command": ["x", "-p", "word"]}}}, True, "readiness probe"),
        (
            {"startupProbe": {"grpc": {"port": 9}}, "readinessProbe": {}},
            False,
            "startup probe (gRPC on port 9)",
        ),
        ({"readinessProbe": {"httpGet": {"port": "web"}}}, True, "readiness probe (GET / on port web)"),
        (
            {"readinessProbe": {"httpGet": {"path": "/a", "port": "web"}}},
            True,
            "readiness probe (GET /a on port web)",
        ),
    ],
)
def test_a_probe_that_has_not_answered_yet_is_named(probe: Any, started: bool, reason: str) -> None:
    found = judge_pod(runs(spec=probe, started=started))
    assert found.reason == f"container main runs, but its {reason} has not succeeded yet"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_a_probe_that_fails_is_the_reason_of_its_workload(kind: str) -> None:
    events = [
        event("uid-p", "Unhealthy", "Startup probe failed: early", container="other"),
        event("uid-p", "Unhealthy", "Readiness probe failed: one\ntwo", container="main"),
    ]
    status = {"readyReplicas": 0, "updatedReplicas": 1, "replicas": 1}
    found = judge("apps/v1", kind, status=status, pods=[runs()], events=events)
    assert found.reason == "0 of 1 pods ready: container main: Readiness probe failed: one | two"


def test_a_readiness_gate_says_what_it_waits_for() -> None:
    gated = runs()
    gated["status"]["containerStatuses"][0]["ready"] = True
    gated["status"]["conditions"] = conditions(
        Ready=("False", "ReadinessGatesNotReady", "gate x is not True")
    )
    assert judge_pod(gated).reason == "gate x is not True"
