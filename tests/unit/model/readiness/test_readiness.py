"""Readiness rules: for each kind ready, waiting and failed, and the reason."""

from collections.abc import Mapping
from typing import Any

import pytest

from mlstack.readiness.assess import assess
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


def told(found: Readiness) -> tuple[str, str]:
    return found.state, found.reason


# --- every kind ---------------------------------------------------------------------------------


def test_an_object_being_deleted_is_terminating() -> None:
    deleted = {"deletionTimestamp": OLD, "finalizers": ["foregroundDeletion"]}
    found = judge("v1", "ConfigMap", metadata=deleted)
    assert told(found) == ("terminating", "waits for finalizers: foregroundDeletion")


def test_an_unseen_generation_waits() -> None:
    found = judge("x.org/v1", "Thing", metadata={"generation": 2}, status={"observedGeneration": 1})
    assert told(found) == ("waiting", "its controller has not seen the newest version yet")


@pytest.mark.parametrize("observed", ["2", 2, "v2"])
def test_odd_spellings_of_the_observed_generation_do_not_block(observed: object) -> None:
    status = {"observedGeneration": observed}
    assert judge("x.org/v1", "Thing", metadata={"generation": 2}, status=status).state == "ready"


def test_kinds_without_a_rule_follow_their_ready_condition() -> None:
    no = judge("x.org/v1", "Thing", status={"conditions": conditions(Ready=("False", "R", "why"))})
    yes = judge("x.org/v1", "Thing", status={"conditions": conditions(Ready="True")})
    assert (told(no), told(yes)) == (("waiting", "why"), ("ready", ""))


def test_stalled_and_reconciling_are_understood() -> None:
    stalled = judge("x.org/v1", "Thing", status={"conditions": conditions(Stalled=("True", "R", "no"))})
    busy = judge("x.org/v1", "Thing", status={"conditions": conditions(Reconciling=("True", "R", ""))})
    assert (told(stalled), told(busy)) == (("failed", "no"), ("waiting", "R"))


def test_a_young_custom_resource_without_status_waits() -> None:
    assert judge("x.org/v1", "Thing", created=YOUNG).state == "waiting"
    assert told(judge("x.org/v1", "Thing")) == ("ready", "no controller has written a status")


def test_a_kind_without_a_status_is_ready_at_once() -> None:
    assert told(judge("x.org/v1", "Thing", created=YOUNG, has_status=False)) == (
        "ready",
        "its kind has no status to wait for",
    )
    assert judge("x.org/v1", "Thing", created=YOUNG, has_status=True).state == "waiting"


def test_a_condition_of_an_older_version_does_not_count() -> None:
    stale = [{"type": "Ready", "status": "True", "observedGeneration": 1}]
    found = judge("x.org/v1", "Thing", metadata={"generation": 2}, status={"conditions": stale})
    assert told(found) == ("waiting", "its controller has not seen the newest version yet")


def test_plain_data_is_ready_at_once() -> None:
    assert judge("v1", "ConfigMap", created=YOUNG).state == "ready"


# --- pods ---------------------------------------------------------------------------------------


def judge_pod(data: Mapping[str, Any], **facts: Any) -> Readiness:
    return assess(Facts(data=data, now_s=NOW_S, **facts))


def test_pod_ready_and_done() -> None:
    running = pod(phase="Running", conditions=conditions(Ready="True"))
    assert judge_pod(running).state == "ready"
    assert judge_pod(pod(phase="Succeeded")).state == "done"


def test_pod_without_gpu_says_what_no_node_has() -> None:
    found = judge_pod(unscheduled(), nodes=[node(cpu="4")])
    assert told(found) == (
        "waiting",
        "no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)",
    )
    assert found.resource == "nvidia.com/gpu"


def test_pod_waiting_for_a_gpu_in_use_says_so() -> None:
    found = judge_pod(unscheduled(), nodes=[node(**{"nvidia.com_gpu": "1"})])
    assert found.reason.startswith("all nvidia.com/gpu of this cluster is in use")


def test_pod_without_gpu_where_nodes_may_not_be_read() -> None:
    assert judge_pod(unscheduled()).reason.startswith("no node has nvidia.com/gpu free")


def test_other_scheduler_messages_are_cut_at_the_first_sentence() -> None:
    nodes = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a.b/c: }"
    text = f"{nodes}. preemption: none"
    found = judge_pod(pod(conditions=conditions(PodScheduled=("False", "Unschedulable", text))))
    assert found.reason == nodes


@pytest.mark.parametrize(("created", "state"), [(YOUNG, "waiting"), (OLD, "failed")])
def test_image_pull_is_final_after_a_grace(created: str, state: str) -> None:
    found = judge_pod(stuck("ImagePullBackOff", "no such tag", created=created))
    assert told(found) == (state, "container main: ImagePullBackOff: no such tag")


def test_a_crash_loop_names_the_exit_code() -> None:
    crashing = {
        "name": "main",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 3}},
    }
    found = judge_pod(pod(phase="Running", containerStatuses=[crashing]))
    assert told(found) == ("failed", "container main: CrashLoopBackOff: exit code 3")


def crashing(*, restarts: int, waits: bool = True, created: str = YOUNG, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": "CrashLoopBackOff"}} if waits else {"running": {}}
    last = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    container = {"name": "main", "restartCount": restarts, "state": state, "lastState": last}
    return pod(phase="Running", created=created, containerStatuses=[container])


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (crashing(restarts=1), "waiting"),
        (crashing(restarts=3), "failed"),
        (crashing(restarts=1, created=OLD), "failed"),
    ],
    ids=["first time", "third time", "for long"],
)
def test_a_crash_loop_is_final_by_the_third_time(data: dict[str, Any], state: str) -> None:
    assert told(judge_pod(data)) == (state, "container main: CrashLoopBackOff: exit code 1")


def test_a_pod_that_ran_for_long_and_crashes_now_has_its_grace() -> None:
    data = crashing(restarts=1, created=OLD)
    data["status"]["conditions"] = [
        {"type": "ContainersReady", "status": "False", "lastTransitionTime": YOUNG}
    ]
    assert judge_pod(data).state == "waiting"


def test_between_two_crashes_the_last_one_is_told_with_its_last_lines() -> None:
    found = judge_pod(crashing(restarts=2, waits=False, message="a\nb\nno such model\nbye\n"))
    text = "container main: exit code 1: b | no such model | bye, restarted 2 times"
    assert told(found) == ("waiting", text)


def test_an_autoscaler_that_adds_a_node_is_told() -> None:
    events = [event("uid-p", "TriggeredScaleUp", "pod triggered scale-up", "Normal")]
    found = judge_pod(unscheduled(), events=events)
    assert found.queue == "new-node"
    assert found.reason.endswith("; the autoscaler is adding a node")
    assert judge_pod(unscheduled()).queue == "node"


def test_a_failing_probe_is_told() -> None:
    events = [event("uid-p", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")]
    found = judge_pod(pod(phase="Running"), events=events)
    assert found.reason == "Readiness probe failed: HTTP probe failed with statuscode: 503"


@pytest.mark.parametrize(
    ("probe", "started", "reason"),
    [
        ({"readinessProbe": {"tcpSocket": {"port": 80}}}, True, "its readiness probe (TCP port 80)"),
        ({"readinessProbe": {"exec": {"command": ["x", "-p", "word"]}}}, True, "its readiness probe"),
        (
            {"startupProbe": {"grpc": {"port": 9}}, "readinessProbe": {}},
            False,
            "its startup probe (gRPC on port 9)",
        ),
        (
            {"readinessProbe": {"httpGet": {"path": "/a", "port": "web"}}},
            True,
            "its readiness probe (GET /a on port web)",
        ),
    ],
)
def test_a_probe_that_has_not_answered_yet_is_named(probe: Any, started: bool, reason: str) -> None:
    found = judge_pod(runs(spec=probe, started=started))
    assert found.reason == f"container main runs, but {reason} has not succeeded yet"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_a_probe_that_fails_is_the_reason_of_its_workload(kind: str) -> None:
    said = [
        event("uid-p", "Unhealthy", "Startup probe failed: early", container="other"),
        event("uid-p", "Unhealthy", "Readiness probe failed: one\ntwo", container="main"),
    ]
    status = {"readyReplicas": 0, "updatedReplicas": 1, "replicas": 1}
    found = judge("apps/v1", kind, status=status, pods=[runs()], events=said)
    assert found.reason == "0 of 1 pods ready: container main: Readiness probe failed: one | two"


def test_a_container_that_a_probe_has_killed_says_so() -> None:
    said = [event("uid-p", "Unhealthy", "Liveness probe failed: refused", container="main")]
    last = {"lastState": {"terminated": {"exitCode": 137, "reason": "Error"}}, "restartCount": 2}
    found = judge_pod(runs(**last), events=said)
    assert found.reason == (
        "container main: exit code 137, restarted 2 times; Liveness probe failed: refused"
    )
    looping = runs(**last, state={"waiting": {"reason": "CrashLoopBackOff"}})
    told_of = judge_pod(looping, events=said).reason
    assert told_of == "container main: CrashLoopBackOff: exit code 137; Liveness probe failed: refused"


def test_a_readiness_gate_says_what_it_waits_for() -> None:
    gated = runs()
    gated["status"]["containerStatuses"][0]["ready"] = True
    gated["status"]["conditions"] = conditions(
        Ready=("False", "ReadinessGatesNotReady", "gate x is not True")
    )
    assert judge_pod(gated).reason == "gate x is not True"


def test_a_failed_pod_names_its_container() -> None:
    ended = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    found = judge_pod(pod(phase="Failed", containerStatuses=[ended]))
    assert told(found) == ("failed", "container main: exit code 137 (OOMKilled)")


def test_a_pending_pod_shows_its_last_warning() -> None:
    events = [event("uid-p", "FailedMount", 'secret "a" not found. retrying')]
    found = judge_pod(pod(conditions=conditions(PodScheduled="True")), events=events)
    assert told(found) == ("waiting", 'FailedMount: secret "a" not found')


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pod(), "is not scheduled yet"),
        (pod(conditions=conditions(PodScheduled="True")), "is being started"),
        (pod(phase="Running", containerStatuses=[{"name": "a", "ready": False}]), "not ready: a"),
        (pod(phase="Running"), "runs, but is not ready yet"),
    ],
)
def test_a_pod_on_its_way_says_how_far_it_is(data: dict[str, Any], reason: str) -> None:
    assert told(judge_pod(data)) == ("waiting", reason)


# --- claims, Services, definitions --------------------------------------------------------------


def test_claim_bound_and_lost() -> None:
    assert judge("v1", "PersistentVolumeClaim", status={"phase": "Bound"}).state == "ready"
    assert judge("v1", "PersistentVolumeClaim", status={"phase": "Lost"}).state == "failed"


def test_claim_names_the_reason_from_its_events() -> None:
    events = [event("uid-x", "ProvisioningFailed", 'storageclass "fast" not found')]
    found = judge("v1", "PersistentVolumeClaim", status={"phase": "Pending"}, events=events)
    assert told(found) == ("waiting", 'ProvisioningFailed: storageclass "fast" not found')
    assert judge("v1", "PersistentVolumeClaim", status={"phase": "Pending"}).state == "waiting"


def test_claim_that_binds_late_is_fine_without_a_pod() -> None:
    late = [event("uid-x", "WaitForFirstConsumer", "waiting", "Normal")]
    kind = ("v1", "PersistentVolumeClaim")
    assert judge(*kind, status={"phase": "Pending"}, events=late).state == "ready"
    assert judge(*kind, status={"phase": "Pending"}, events=late, pods=[pod()]).state == "waiting"
    spec = {"storageClassName": "late"}
    assert judge(*kind, spec=spec, late_classes={"late"}).state == "ready"
    assert judge(*kind, spec=spec, late_classes=set()).state == "waiting"


def test_a_claim_whose_pod_waits_for_a_node_says_so() -> None:
    late = [event("uid-x", "WaitForFirstConsumer", "waiting", "Normal")]
    found = judge("v1", "PersistentVolumeClaim", events=late, pods=[unscheduled()], nodes=[])
    assert (found.state, found.queue) == ("waiting", "node")
    assert found.reason.startswith("its pod waits: no node of this cluster has nvidia.com/gpu")


def test_service_waits_for_an_address_only_where_asked() -> None:
    balancer = {"type": "LoadBalancer"}
    assert judge("v1", "Service", spec=balancer).state == "ready"
    assert judge("v1", "Service", spec=balancer, wait_for_load_balancer=True).state == "waiting"
    have = {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}
    assert judge("v1", "Service", spec=balancer, status=have, wait_for_load_balancer=True).state == "ready"


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ({"Established": "True", "NamesAccepted": "True"}, "ready"),
        ({}, "waiting"),
        ({"Established": ("False", "Installing", "")}, "waiting"),
        ({"NamesAccepted": ("False", "KindConflict", "taken")}, "failed"),
        ({"Established": "True", "Terminating": ("True", "InstanceDeletionInProgress", "")}, "terminating"),
    ],
)
def test_definition(states: dict[str, Any], state: str) -> None:
    found = judge(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        status={"conditions": conditions(**states)},
    )
    assert found.state == state


def test_api_service() -> None:
    kind = ("apiregistration.k8s.io/v1", "APIService")
    assert judge(*kind, status={"conditions": conditions(Available="True")}).state == "ready"
    assert judge(*kind).state == "waiting"


# --- workloads ----------------------------------------------------------------------------------


def counts(number: int, *names: str) -> dict[str, int]:
    return dict.fromkeys(names, number)


DEPLOYED = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def test_deployment_ready() -> None:
    found = judge("apps/v1", "Deployment", spec={"replicas": 2}, status=counts(2, *DEPLOYED))
    assert told(found) == ("ready", "2 of 2 pods")


def test_deployment_waits_with_the_reason_of_its_pod() -> None:
    status = counts(1, *DEPLOYED) | {"updatedReplicas": 2}
    found = judge(
        "apps/v1", "Deployment", spec={"replicas": 2}, status=status, pods=[unscheduled()], nodes=[]
    )
    assert found.state == "waiting"
    assert found.reason.startswith("1 of 2 pods ready: no node of this cluster has nvidia.com/gpu")


def test_deployment_fails_with_its_pod() -> None:
    found = judge("apps/v1", "Deployment", spec={}, status={}, pods=[stuck("InvalidImageName")])
    assert told(found) == ("failed", "0 of 1 pods ready: container main: InvalidImageName")


def test_deployment_with_old_pods_waits() -> None:
    status = counts(1, *DEPLOYED) | {"replicas": 2}
    found = judge("apps/v1", "Deployment", status=status, pods=[runs("new", ready=True)])
    assert told(found) == ("waiting", "1 old pod is ending")


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], "0 of 1 new pods ready"),
        ([unscheduled()], "0 of 1 new pods ready: no node of this cluster has nvidia.com/gpu"),
        ([runs("new")], "0 of 1 new pods ready: container main runs, but is not ready yet"),
    ],
    ids=["pods unknown", "no node", "not ready"],
)
def test_old_pods_stay_until_new_ones_work_which_is_no_ending(pods: list[Any], reason: str) -> None:
    surged = counts(1, *DEPLOYED) | {"replicas": 2, "unavailableReplicas": 1}
    found = judge("apps/v1", "Deployment", status=surged, pods=pods, nodes=[])
    assert (found.state, found.reason.partition(" (")[0]) == ("waiting", reason)


def test_pods_of_the_old_template_are_not_counted_as_new() -> None:
    status = counts(3, *DEPLOYED) | {"replicas": 4, "updatedReplicas": 1}
    found = judge("apps/v1", "Deployment", spec={"replicas": 3}, status=status, pods=[unscheduled()])
    assert found.reason.startswith("0 of 3 new pods ready: no node has nvidia.com/gpu free")


def test_a_rollout_that_breaks_beside_working_pods_fails() -> None:
    surged = counts(1, *DEPLOYED) | {"replicas": 2}
    found = judge("apps/v1", "Deployment", status=surged, pods=[stuck("InvalidImageName")])
    assert told(found) == ("failed", "0 of 1 new pods ready: container main: InvalidImageName")


def test_past_its_deadline_a_probe_that_fails_is_the_reason() -> None:
    status = {"conditions": conditions(Progressing=("False", "ProgressDeadlineExceeded", "timed out"))}
    events = [event("uid-p", "Unhealthy", "Readiness probe failed: no")]
    found = judge("apps/v1", "Deployment", status=status, pods=[runs("p")], events=events)
    assert told(found) == ("failed", "Readiness probe failed: no")
    quota = ("True", "FailedCreate", "exceeded quota: gpus")
    status["conditions"] += conditions(ReplicaFailure=quota)
    assert judge("apps/v1", "Deployment", status=status).state == "waiting"


def test_deployment_past_its_deadline_fails_unless_it_only_queues() -> None:
    status = {"conditions": conditions(Progressing=("False", "ProgressDeadlineExceeded", "timed out"))}
    assert told(judge("apps/v1", "Deployment", status=status)) == ("failed", "timed out")
    assert judge("apps/v1", "Deployment", status=status, pods=[unscheduled()]).state == "waiting"


def test_deployment_whose_pods_are_refused_says_by_what() -> None:
    text = 'pods "a" is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=1, limited: pods=1'
    quota = ("True", "FailedCreate", text)
    found = judge("apps/v1", "Deployment", status={"conditions": conditions(ReplicaFailure=quota)})
    said = "waiting for quota: exceeded quota: gpus, requested: pods=1, used: pods=1, limited: pods=1"
    assert told(found) == ("waiting", f"0 of 1 pods ready: {said}")
    assert found.queue == "quota"
    policy = ("True", "FailedCreate", "violates PodSecurity")
    found = judge("apps/v1", "Deployment", status={"conditions": conditions(ReplicaFailure=policy)})
    assert told(found) == ("waiting", "0 of 1 pods ready: a pod was refused: violates PodSecurity")


def test_a_paused_deployment_is_held_on_purpose() -> None:
    assert judge("apps/v1", "Deployment", spec={"paused": True}).state == "suspended"


def test_pods_that_are_going_or_were_evicted_are_no_failure() -> None:
    going = stuck("InvalidImageName")
    going["metadata"]["deletionTimestamp"] = OLD
    evicted = pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory")
    kind = ("apps/v1", "Deployment")
    assert told(judge(*kind, pods=[going])) == ("waiting", "0 of 1 pods ready")
    assert told(judge(*kind, pods=[evicted])) == (
        "waiting",
        "0 of 1 pods ready: The node was low on resource: memory",
    )


def test_the_zeros_of_a_new_daemon_set_are_no_count_of_nodes() -> None:
    names = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
    new = {"status": counts(0, *names), "metadata": {"generation": 1}}
    waits = ("waiting", "its controller has not counted the nodes yet")
    assert told(judge("apps/v1", "DaemonSet", **new)) == waits
    new["status"] |= {"observedGeneration": 1}
    assert told(judge("apps/v1", "DaemonSet", **new)) == ("ready", "0 of 0 nodes")


def test_a_job_says_what_the_pod_waits_for_that_is_tried_next() -> None:
    found = judge("batch/v1", "Job", pods=[pod("a", phase="Failed"), unscheduled(name="b")])
    assert found.reason.startswith("0 of 1 pods ready: no node has nvidia.com/gpu free")


def test_a_failed_pod_of_a_job_is_tried_again() -> None:
    assert judge("batch/v1", "Job", pods=[pod(phase="Failed")]).state == "waiting"
    assert judge("batch/v1", "Job", pods=[stuck("InvalidImageName")]).state == "failed"


def test_a_job_in_a_queue_names_the_queue() -> None:
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    found = judge("batch/v1", "Job", metadata=labels, spec={"suspend": True})
    assert told(found) == ("suspended", "waits in queue `gpus`")


def test_stateful_set() -> None:
    done = {"replicas": 1, "readyReplicas": 1, "currentRevision": "a", "updateRevision": "a"}
    kind = ("apps/v1", "StatefulSet")
    assert judge(*kind, status=done).state == "ready"
    assert judge(*kind, status=done | {"updateRevision": "b"}).state == "waiting"
    assert judge(*kind, status=done, spec={"replicas": 2}).reason == "1 of 2 pods ready"
    assert judge(*kind, status={}, pods=[stuck("ErrImagePull")]).state == "failed"


def test_an_old_pod_that_holds_up_a_stateful_set_is_named_with_the_cure() -> None:
    old = stuck("InvalidImageName")
    old["metadata"]["labels"] = {"controller-revision-hash": "a"}
    status = {"currentRevision": "a", "updateRevision": "b"}
    found = judge("apps/v1", "StatefulSet", status=status, pods=[old])
    assert told(found) == (
        "waiting",
        "0 of 1 pods ready: old pod p is stuck (container main: InvalidImageName); a StatefulSet does not"
        " replace such a pod by itself: kubectl delete pod p",
    )
    spec = {"podManagementPolicy": "Parallel"}
    assert judge("apps/v1", "StatefulSet", spec=spec, status=status, pods=[old]).reason == "0 of 1 pods ready"


def test_stateful_set_updated_in_part() -> None:
    done = {"replicas": 3, "readyReplicas": 3, "currentRevision": "a", "updateRevision": "b"}
    spec = {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}}
    assert judge("apps/v1", "StatefulSet", spec=spec, status=done | {"updatedReplicas": 1}).state == "ready"
    assert judge("apps/v1", "StatefulSet", spec=spec, status=done).state == "waiting"


def test_daemon_set() -> None:
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberAvailable", "numberReady")
    full = counts(2, *names)
    kind = ("apps/v1", "DaemonSet")
    assert judge(*kind, status=full | {"updatedNumberScheduled": 2}).state == "ready"
    assert judge(*kind, status=full | {"updatedNumberScheduled": 1}).state == "waiting"
    assert judge(*kind, status=full, spec={"updateStrategy": {"type": "OnDelete"}}).state == "ready"
    assert judge(*kind).state == "waiting"
    assert judge(*kind, status={names[0]: 1}, pods=[stuck("ErrImagePull")]).state == "failed"


def test_job() -> None:
    kind = ("batch/v1", "Job")
    assert judge(*kind, status={"conditions": conditions(Complete="True")}).state == "done"
    failure = ("True", "BackoffLimitExceeded", "too many retries")
    assert told(judge(*kind, status={"conditions": conditions(Failed=failure)})) == (
        "failed",
        "too many retries",
    )
    assert judge(*kind, status={"conditions": conditions(Suspended="True")}).state == "suspended"
    assert told(judge(*kind, status={"ready": 1})) == ("ready", "running")
    assert judge(*kind, status={"ready": 1}, spec={"parallelism": 2}).reason == "1 of 2 pods ready"


def test_a_job_whose_pods_are_refused_says_why() -> None:
    events = [event("uid-x", "FailedCreate", "exceeded quota: gpus")]
    found = judge("batch/v1", "Job", events=events)
    assert told(found) == (
        "waiting",
        "0 of 1 pods ready: waiting for quota: exceeded quota: gpus",
    )


def test_replica_set() -> None:
    have = {"readyReplicas": 1, "availableReplicas": 1}
    assert judge("apps/v1", "ReplicaSet", status=have).state == "ready"
    assert judge("apps/v1", "ReplicaSet").state == "waiting"


# --- TFJob --------------------------------------------------------------------------------------

TWO_WORKERS = {"tfReplicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 2}}}


def tfjob(*states: str, active: Mapping[str, int] | None = None, **facts: Any) -> Readiness:
    status = {
        "conditions": conditions(**dict.fromkeys(states, "True")),
        "replicaStatuses": {role: {"active": count} for role, count in (active or {}).items()},
    }
    return judge("kubeflow.org/v1", "TFJob", spec=TWO_WORKERS, status=status, **facts)


def worker(data: dict[str, Any]) -> dict[str, Any]:
    data["metadata"]["labels"] = {"training.kubeflow.org/replica-type": "worker"}
    return data


def test_tfjob_is_ready_when_every_role_is_at_work() -> None:
    found = tfjob("Created", "Running", active={"PS": 1, "Worker": 2})
    assert told(found) == ("ready", "workers 2 of 2, PS 1 of 1")


def test_tfjob_running_with_one_worker_of_two_is_not_ready() -> None:
    found = tfjob("Created", "Running", active={"PS": 1, "Worker": 1})
    assert told(found) == ("waiting", "1 of 2 workers run (PS 1 of 1)")


def test_tfjob_without_gpus_says_what_no_node_has() -> None:
    found = tfjob("Created", active={"PS": 1}, pods=[worker(unscheduled())], nodes=[node(cpu="8")])
    assert told(found) == (
        "waiting",
        "0 of 2 workers run (PS 1 of 1). Workers wait: no node of this cluster has nvidia.com/gpu "
        "(0/1 nodes: Insufficient nvidia.com/gpu)",
    )
    assert found.resource == "nvidia.com/gpu"


def test_tfjob_with_a_wrong_image_says_so() -> None:
    found = tfjob("Created", active={"PS": 1}, pods=[worker(stuck("ErrImagePull", "not found"))])
    assert found.reason.endswith("Workers wait: container main: ErrImagePull: not found")


def test_tfjob_whose_pod_is_refused_shows_the_event() -> None:
    found = judge(
        "kubeflow.org/v1",
        "TFJob",
        spec=TWO_WORKERS,
        events=[event("uid-x", "FailedCreatePod", "Pod is invalid: port must be 1 to 65535")],
    )
    assert found.reason.endswith("Workers wait: a pod was refused: Pod is invalid: port must be 1 to 65535")


def test_tfjob_nobody_picks_up_names_the_operator() -> None:
    found = judge("kubeflow.org/v1", "TFJob", spec=TWO_WORKERS)
    assert told(found) == ("waiting", "no training operator has picked it up after 3600 s")
    young = judge("kubeflow.org/v1", "TFJob", spec=TWO_WORKERS, created=YOUNG)
    assert young.reason == "0 of 2 workers run (PS 0 of 1)"


def test_tfjob_restarting_says_so() -> None:
    assert tfjob("Restarting", active={"PS": 1}).reason.endswith("a pod that failed is being started again")


def test_tfjob_done_failed_suspended() -> None:
    assert tfjob("Succeeded").state == "done"
    assert tfjob("Suspended").state == "suspended"
    ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    failure = {"conditions": conditions(Failed=("True", "TFJobFailed", "TFJob x has failed"))}
    found = judge(
        "kubeflow.org/v1",
        "TFJob",
        spec=TWO_WORKERS,
        status=failure,
        pods=[pod(phase="Failed", containerStatuses=[ended])],
    )
    assert told(found) == ("failed", "TFJob x has failed (container tensorflow: exit code 1)")


def test_a_role_without_a_count_means_one() -> None:
    spec = {"pytorchReplicaSpecs": {"Master": {}}}
    status = {"replicaStatuses": {"Master": {"active": 1}}}
    assert judge("kubeflow.org/v1", "PyTorchJob", spec=spec, status=status).state == "ready"
