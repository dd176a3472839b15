"""Readiness rules: for each kind ready, waiting and failed, and the reason."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    metadata = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "creationTimestamp": created}
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
    obj = pod(name, phase="Running", conditions=conditions(Ready=str(ready)), containerStatuses=[status])
    return {**obj, "spec": {"containers": [{"name": "main", **(spec or {})}]}}


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


# --- every kind, claims, Services, workloads, TFJob ---


NO_GPU = "no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)"
CPU = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a.b/c: }"
QUOTA = "exceeded quota: gpus, requested: pods=1, used: pods=1, limited: pods=1"
LATE = [event("uid-x", "WaitForFirstConsumer", "waiting", "Normal")]
TWO_WORKERS = {"tfReplicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 2}}}


def worker(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "metadata": {**data["metadata"], "labels": {ROLE: "worker"}}}


ROLE = "training.kubeflow.org/replica-type"


def tfjob(*states: str, **active: int) -> dict[str, Any]:
    counts = {role: {"active": count} for role, count in active.items()}
    status = {"conditions": conditions(**dict.fromkeys(states, "True")), "replicaStatuses": counts}
    return {"spec": TWO_WORKERS, "status": status}


def ended(name: str, code: int, reason: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return pod(phase="Failed", containerStatuses=[{"name": name, "state": state}])


def written(status: Mapping[str, Any]) -> dict[str, Any]:
    """Give a status of `waiting.yaml` as the server writes it."""
    rows = status.get("conditions")
    if not isinstance(rows, dict):
        return dict(status)
    full = {name: tuple(words) if isinstance(words, list) else words for name, words in rows.items()}
    return {**status, "conditions": conditions(**full)}


def written_pod(
    name: str = "p", spec: Any = None, deletionTimestamp: str = "", **status: Any
) -> dict[str, Any]:
    data = pod(name, **written(status)) | ({"spec": spec} if spec else {})
    if deletionTimestamp:
        data["metadata"]["deletionTimestamp"] = deletionTimestamp
    return data


def cases() -> Iterator[tuple[str, dict[str, Any], str, str]]:
    data = Path(__file__).parents[2].joinpath("support", "data", "waiting.yaml").read_text("utf-8")
    for kind, rows in yaml.safe_load(data).items():
        for row in rows:
            facts = {name: part for name, part in row.items() if name not in ("state", "reason")}
            if facts.get("status"):
                facts["status"] = written(facts["status"])
            if "pods" in facts:
                facts["pods"] = [written_pod(**fields) for fields in facts["pods"]]
            yield kind, facts, row["state"], row["reason"]


CASES = [*cases()]


def assert_told(ready: Readiness, state: str, reason: str) -> None:
    head, dots, tail = reason.partition("…")
    assert ready.state == state
    assert ready.reason.startswith(head) and ready.reason.endswith(tail) if dots else ready.reason == reason


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


@pytest.mark.parametrize("reason", ["Evicted", "UnexpectedAdmissionError", "OutOfcpu"])
def test_a_pod_that_its_node_turned_away_fails_no_workload(reason: str) -> None:
    rejected = pod(phase="Failed", reason=reason)
    assert_told(judge("apps/v1", "Deployment", pods=[rejected]), "waiting", f"0 of 1 pods ready: {reason}")


def test_what_pods_only_queue_for_is_told_apart() -> None:
    events = [event("uid-p", "TriggeredScaleUp", "pod triggered scale-up", "Normal")]
    readiness = judge_pod(unscheduled(), events=events)
    assert (readiness.queue, readiness.resource) == ("new-node", "nvidia.com/gpu")
    assert readiness.reason.endswith("; the autoscaler is adding a node")
    assert judge_pod(unscheduled()).queue == "node"
    refused = {"conditions": conditions(ReplicaFailure=("True", "FailedCreate", QUOTA))}
    assert judge("apps/v1", "Deployment", status=refused).queue == "quota"
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
    readiness = judge_pod(runs(spec=probe, started=started))
    assert readiness.reason == f"container main runs, but its {reason} has not succeeded yet"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_a_probe_that_fails_is_the_reason_of_its_workload(kind: str) -> None:
    events = [
        event("uid-p", "Unhealthy", "Startup probe failed: early", container="other"),
        event("uid-p", "Unhealthy", "Readiness probe failed: one\ntwo", container="main"),
    ]
    status = {"readyReplicas": 0, "updatedReplicas": 1, "replicas": 1}
    readiness = judge("apps/v1", kind, status=status, pods=[runs()], events=events)
    assert readiness.reason == "0 of 1 pods ready: container main: Readiness probe failed: one | two"


def test_an_event_that_says_what_the_status_says_is_told_once() -> None:
    status = {"phase": "Pending", "reason": "taken off; since then: no room"}
    same, other = event("uid-x", "MinimumLost", "taken off"), event("uid-x", "Refused", "no right")
    for events, more in (([other, same], ""), ([same, other], ": Refused: no right")):
        readiness = judge("paddlepaddle.org/v1", "TrainingJob", status=status, events=events)
        assert readiness.reason == f"{status['reason']}{more}"


def test_a_readiness_gate_says_what_it_waits_for() -> None:
    gated = runs()
    gated["status"]["containerStatuses"][0]["ready"] = True
    gated["status"]["conditions"] = conditions(
        Ready=("False", "ReadinessGatesNotReady", "gate x is not True")
    )
    assert judge_pod(gated).reason == "gate x is not True"


def test_of_the_old_pods_of_a_stateful_set_the_one_is_named_that_is_stuck_for_good() -> None:
    labels = {"controller-revision-hash": "old"}
    broken = [{"name": "main", "state": {"waiting": {"reason": "InvalidImageName"}}}]
    pods = [unscheduled(name="s-0", labels=labels), pod("s-1", labels=labels, containerStatuses=broken)]
    status = {"updateRevision": "new", "currentRevision": "old", "replicas": 2}
    readiness = judge("apps/v1", "StatefulSet", pods=pods, spec={"replicas": 2}, status=status)
    assert "old pod s-1 is stuck (container main: InvalidImageName)" in readiness.reason
    assert readiness.reason.endswith("kubectl delete pod s-1 -n ml")
