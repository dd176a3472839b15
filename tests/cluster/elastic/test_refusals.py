"""Gangs that a real API server does not take: they cost another namespace nothing, and give all back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mlstack.yaml import write
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster
from tests.support.elastic import training_job
from tests.support.elastic_controller import Jobs, Start

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]

FULL_S = 20
"""So long a gang may be there in part."""


def uids(jobs: Jobs, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in jobs.pods(name)}


def conditions(jobs: Jobs, name: str) -> dict[str, Obj]:
    return {row["type"]: row for row in jobs.status(name).get("conditions", [])}


def limit(kind: str, **spec: Any) -> Obj:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "few"}, "spec": spec}


def with_quota(jobs: Jobs, **hard: str) -> None:
    """Limit a namespace, and wait until the limit holds."""
    names = {name.replace("_", "."): value for name, value in hard.items()}
    jobs.create(limit("ResourceQuota", hard=names))
    path = f"/api/v1/namespaces/{jobs.namespace}/resourcequotas/few"
    jobs.cluster.wait_for(path, lambda quota: set(quota.get("status", {}).get("hard", {})) == set(names))


def small_containers(jobs: Jobs) -> None:
    jobs.create(limit("LimitRange", limits=[{"type": "Container", "max": {"cpu": "500m"}}]))


def restricted(jobs: Jobs) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    jobs.cluster.request("PATCH", f"/api/v1/namespaces/{jobs.namespace}", {"metadata": {"labels": labels}})


def policy(jobs: Jobs) -> None:
    """Let the API server refuse the trainers of the namespace, as a webhook would."""
    name = f"no-trainers-{jobs.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    claim = "object.metadata.?labels['mlstack.dev/role'].orValue('') != 'trainer'"
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    match = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": jobs.namespace}}}
    objects: list[Obj] = [
        {
            **api,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": claim, "message": "no trainers here"}],
            },
        },
        {
            **api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": match},
        },
    ]
    jobs.cluster.kubectl("create", "-f", "-", input=write.to_yaml_documents(objects))

    def is_refused() -> bool:
        labels = {"mlstack.dev/role": "trainer"}
        spec = {"containers": [{"name": "main", "image": "registry.example.org/x:1"}]}
        probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": labels}}
        try:
            jobs.cluster.request("POST", f"{jobs.place('pods')}?dryRun=All", {**probe, "spec": spec})
        except ApiRefusedError as error:
            return "no trainers here" in str(error)
        return False

    jobs.wait_for(is_refused, what="the policy in force")


CASES: dict[str, tuple[Any, Obj, str]] = {
    "quota": (lambda jobs: with_quota(jobs, pods="0"), {}, "exceeded quota: few"),
    "quota of pods": (lambda jobs: with_quota(jobs, pods="3"), {}, "pods: 5 more, 0 of 3 used"),
    "quota of cpu for a part": (
        lambda jobs: with_quota(jobs, requests_cpu="3500m"),
        {},
        "requests.cpu: 5 more, 0 of 3.5 used",
    ),
    "service account": (None, {"serviceAccountName": "nobody"}, "serviceaccount"),
    "LimitRange": (small_containers, {}, "500m"),
    "Pod Security": (restricted, {"securityContext": {"runAsNonRoot": False}}, "violates PodSecurity"),
    "admission policy": (policy, {}, "no trainers here"),
    "priority class": (None, {"trainer": {"priorityClassName": "none"}}, "no PriorityClass"),
}


def test_gangs_that_are_refused_take_nothing_from_another_namespace(
    start: Start, gke: TestCluster, namespace: str, others: Jobs
) -> None:
    """Each for a reason of its own, in a namespace of its own, under the eyes of one controller."""
    places = {case: Jobs(gke, f"{namespace}-{index}") for index, case in enumerate(CASES)}
    for jobs in places.values():
        gke.request("POST", "/api/v1/namespaces", {"metadata": {"name": jobs.namespace}})
    for case, jobs in places.items():
        gke.wait_for_service_account(jobs.namespace)
        if hinder := CASES[case][0]:
            hinder(jobs)
    start(options=[f"--namespace={jobs.namespace}" for jobs in (others, *places.values())])
    others.create(training_job("rich", minimum=1, maximum=48, cpu="1"))
    others.wait_for_phase("rich", "Running")
    before = uids(others, "rich")

    for case, jobs in places.items():
        more = CASES[case][1]
        job = training_job("bad", minimum=3, maximum=9, pservers=2)
        job["spec"] |= {name: value for name, value in more.items() if name != "trainer"}
        job["spec"]["trainer"] |= more.get("trainer", {})
        jobs.create(job)
    for case, jobs in places.items():
        jobs.wait_for(lambda jobs=jobs: conditions(jobs, "bad"), what=f"conditions of {case}")  # type: ignore[misc]
    counts = [[len(jobs.pods("bad")) for jobs in places.values()] for _ in range(8) if not time.sleep(1)]

    assert counts == [[0] * len(CASES)] * 8
    for case, jobs in places.items():
        rows = conditions(jobs, "bad")
        assert (rows["Admitted"]["status"], rows["Admitted"]["reason"]) == ("False", "Refused"), case
        assert (rows["Degraded"]["status"], rows["Degraded"]["reason"]) == ("True", "Refused"), case
        assert CASES[case][2] in rows["Degraded"]["message"]
        assert "tried again at" in jobs.status("bad")["reason"], case
        assert "Refused" in reasons(jobs), case
    assert uids(others, "rich") == before
    for jobs in places.values():
        gke.request("DELETE", f"/api/v1/namespaces/{jobs.namespace}")


def reasons(jobs: Jobs) -> set[str]:
    return {event["reason"] for event in jobs.objects("events").values()}


def test_servers_whose_stateful_set_is_refused_some_leave_the_room_to_another_namespace(
    start: Start, jobs: Jobs, others: Jobs
) -> None:
    start(options=[f"--namespace={others.namespace}"])
    with_quota(jobs, persistentvolumeclaims="1")
    job = training_job("bad", minimum=2, maximum=2, cpu="12", pservers=2)
    job["spec"]["pserver"]["storage"] = {"size": "1Gi", "storageClassName": "nowhere"}

    jobs.create(job)
    jobs.wait_for(lambda: jobs.pods("bad"), what="a part of the gang")
    others.create(training_job("next", minimum=2, maximum=2, cpu="12"))
    jobs.wait_for(lambda: not jobs.pods("bad"), what="the end of its pods", timeout_s=FULL_S)

    assert "exceeded quota: few" in conditions(jobs, "bad")["Degraded"]["message"]
    assert conditions(jobs, "bad")["Admitted"]["reason"] == "Refused"
    others.wait_for_phase("next", "Running")


def test_trainers_that_a_quota_does_not_take_leave_their_room_to_another_namespace(
    start: Start, jobs: Jobs, others: Jobs
) -> None:
    start(options=[f"--namespace={others.namespace}"])
    with_quota(jobs, pods="4")
    jobs.create(training_job("capped", minimum=1, maximum=40, cpu="1", pservers=1))
    others.create(training_job("free", minimum=1, maximum=36, cpu="1"))

    others.wait_for(lambda: len(others.names("free")) == 36, what="the rest of the cluster")
    jobs.wait_for_phase("capped", "Running")

    assert len(jobs.pods("capped")) == 4
    rows = conditions(jobs, "capped")
    assert rows["Admitted"]["status"] == "True"
    assert rows["Degraded"]["message"].startswith("no more than 3 trainers: ")
    assert "exceeded quota: few" in rows["Degraded"]["message"]


def test_a_gang_is_tried_again_and_starts_once_it_is_taken(start: Start, jobs: Jobs) -> None:
    times = {"GANG_MS": (8_000, 3_600_000)}
    first = start(is_named=False, times=times)
    job = training_job("late", minimum=2, maximum=2, serviceAccountName="soon")
    jobs.create(job)
    jobs.wait_for(lambda: conditions(jobs, "late"), what="conditions")
    refused_s = time.monotonic()
    assert conditions(jobs, "late")["Admitted"]["reason"] == "Refused"
    jobs.create({"kind": "ServiceAccount", "metadata": {"name": "soon"}})
    first.program.kill()
    start("second", is_named=False, times=times)  # goes by what the first wrote down

    jobs.wait_for_phase("late", "Running")

    assert time.monotonic() - refused_s > 5
    assert conditions(jobs, "late")["Degraded"]["reason"] == "AsExpected"
