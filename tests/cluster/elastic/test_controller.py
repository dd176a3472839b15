"""The elastic controller on a real control plane: jobs, faults, who leads, what it leaves alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import TestCluster
from tests.support.elastic import training_job
from tests.support.elastic_controller import ACCOUNT, LEASE, ElasticController, Jobs, Start, Writes, proxy_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]


def test_a_job_lives_from_waiting_to_success(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=2, maximum=6, cpu="2", pservers=2, with_master=True))

    jobs.wait_for_phase("one", "Running")
    assert jobs.names("one") == [f"one-trainer-{index}" for index in range(6)]
    assert jobs.names("one", "pserver") == ["one-pserver-0", "one-pserver-1"]
    assert jobs.names("one", "master") == ["one-master-0"]
    jobs.exit("one-trainer-0", 0)
    jobs.wait_for_phase("one", "Completing")
    for index in range(1, 6):
        jobs.exit(f"one-trainer-{index}", 0)
    jobs.wait_for_phase("one", "Succeeded")
    jobs.wait_for(lambda: not jobs.pods("one"), what="servers gone")

    assert jobs.status("one")["trainer"]["succeeded"] >= 1
    seen = jobs.objects("events").values()
    ours = {event["reason"] for event in seen if event.get("reportingController") == "mlstack.dev/elastic"}
    assert {"Admitted", "Completed"} <= ours


def test_a_gang_comes_whole_or_not_at_all(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("full", minimum=3, maximum=3, cpu="12"))
    jobs.wait_for_phase("full", "Running")
    jobs.create(training_job("gang", minimum=1, maximum=2, cpu="1", pservers=2, pserver_cpu="5"))

    jobs.wait_for(lambda: jobs.status("gang").get("reason"), what="a reason to wait")
    assert jobs.pods("gang") == []
    assert jobs.status("gang")["phase"] == "Pending"
    jobs.cluster.request("DELETE", jobs.path("full"))

    jobs.wait_for_phase("gang", "Running")
    assert len(jobs.pods("gang")) == 4


def test_pods_services_and_budgets_that_were_deleted_are_made_again(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=2, maximum=3, cpu="1", pservers=1, with_master=True))
    jobs.wait_for_phase("one", "Running")
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in jobs.pods("one")}

    for name in ("one-trainer-1", "one-pserver-0", "one-master-0"):
        jobs.lose(name)

    def is_whole() -> bool:
        now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in jobs.pods("one")}
        return now.keys() == before.keys() and len(set(now.values()) - set(before.values())) == 3

    jobs.wait_for(is_whole, what="three new pods", timeout_s=20)
    assert jobs.status("one")["trainer"]["failed"] == 0

    paths = [
        f"/api/v1/namespaces/{jobs.namespace}/services/one-pserver",
        f"/apis/policy/v1/namespaces/{jobs.namespace}/poddisruptionbudgets/one-trainer",
    ]
    for path in paths:
        jobs.cluster.request("DELETE", path)
    jobs.wait_for(lambda: all(map(jobs.cluster.find, paths)), what="both again", timeout_s=20)


def test_a_failed_trainer_is_counted_and_replaced_later(start: Start, jobs: Jobs) -> None:
    start(times={"RETRY_MS": (4_000, 60_000)})
    jobs.create(training_job("one", minimum=2, maximum=2, cpu="1"))
    jobs.wait_for_phase("one", "Running")

    jobs.exit("one-trainer-0", 1)
    jobs.wait_for(lambda: jobs.status("one")["trainer"]["failed"] == 1, what="the failure")
    failed_s = time.monotonic()
    jobs.wait_for(lambda: len(jobs.names("one")) == 2, what="another trainer")

    assert time.monotonic() - failed_s > 2


def test_a_lost_node_costs_its_pods_alone(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=2, maximum=6, cpu="6", pservers=1))
    jobs.wait_for_phase("one", "Running")
    jobs.wait_for(
        lambda: all(pod["status"]["phase"] == "Running" for pod in jobs.pods("one")), what="all its pods"
    )
    (server,) = jobs.pods("one", "pserver")  # where it goes, a trainer may have to make room
    nodes = [pod["spec"]["nodeName"] for pod in jobs.pods("one", "trainer")]
    node = next(name for name in nodes if name != server["spec"]["nodeName"])
    others = {
        pod["metadata"]["uid"] for pod in jobs.pods("one", "trainer") if pod["spec"]["nodeName"] != node
    }
    jobs.cordon(node)
    try:
        for pod in jobs.pods("one"):
            if pod["spec"].get("nodeName") == node:
                jobs.lose(pod["metadata"]["name"])

        def has_moved() -> bool:
            pods = jobs.pods("one")
            return bool(pods) and all(
                pod["status"]["phase"] == "Running" and pod["spec"].get("nodeName") != node for pod in pods
            )

        jobs.wait_for(has_moved, what="pods on the other nodes")
        assert others <= {pod["metadata"]["uid"] for pod in jobs.pods("one", "trainer")}
    finally:
        jobs.cordon(node, False)


def test_kubectl_scale_bounds_the_plan(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=1, maximum=6, cpu="1"))
    jobs.wait_for(lambda: len(jobs.names("one")) == 6, what="six trainers")

    jobs.cluster.kubectl("scale", "tj/one", "--replicas=3", "-n", jobs.namespace)
    jobs.wait_for(lambda: len(jobs.names("one")) == 3, what="three trainers")
    jobs.cluster.kubectl("scale", "tj/one", "--replicas=5", "-n", jobs.namespace)
    jobs.wait_for(lambda: len(jobs.names("one")) == 5, what="five trainers")

    jobs.cluster.kubectl("scale", "tj/one", "--replicas=3", "-n", jobs.namespace)
    jobs.wait_for(lambda: len(jobs.names("one")) == 3, what="three trainers again")
    jobs.cluster.kubectl("scale", "tj/one", "--replicas=5", "-n", jobs.namespace)
    jobs.wait_for(lambda: "ScaledUp 2" in events(jobs), what="a count of what happened again")

    scale = jobs.cluster.request("GET", f"{jobs.path('one')}/scale")
    assert scale["spec"]["replicas"] == 5
    jobs.wait_for_phase("one", "Running")


def test_web_pods_get_room_from_trainers(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=1, maximum=24, cpu="2"))
    jobs.wait_for(lambda: len(jobs.names("one")) >= 20, what="a full cluster")

    jobs.create(web(5, cpu="3"))

    jobs.wait_for(lambda: running(jobs, "web") == 5, what="five web pods", timeout_s=25)
    jobs.wait_for_phase("one", "Running")
    assert all(pod["spec"].get("nodeName") for pod in jobs.pods("one"))


def test_trainers_that_the_scheduler_preempts_are_no_failures(start: Start, jobs: Jobs) -> None:
    controller = start(is_named=False)
    jobs.create(training_job("one", minimum=1, maximum=24, cpu="2"))
    jobs.wait_for(lambda: len(jobs.names("one")) >= 20, what="a full cluster")
    controller.program.kill()
    before = len(jobs.names("one"))

    jobs.create(web(3, cpu="6"))
    jobs.wait_for(lambda: running(jobs, "web") == 3, what="web pods without a controller")
    start("second", is_named=False)

    jobs.wait_for(lambda: jobs.status("one")["trainer"]["desired"] < before, what="fewer trainers")
    jobs.wait_for_phase("one", "Running")
    assert jobs.status("one")["trainer"]["failed"] == 0


def test_it_is_small_and_gives_back_what_was_deleted(start: Start, jobs: Jobs) -> None:
    controller = start()
    jobs.create(training_job("one", minimum=2, maximum=30, cpu="1"))
    jobs.wait_for(lambda: len(jobs.names("one")) == 30, what="thirty trainers")
    jobs.wait_for_phase("one", "Running")

    for name in jobs.names("one")[:4]:
        wait_for_another(jobs, name)

    assert controller.memory_mib < 150


def test_of_two_controllers_one_leads_and_the_other_takes_over(start: Start, jobs: Jobs) -> None:
    first, second = start("first"), start("second")
    wait_until(lambda: first.metric("leader") + second.metric("leader") == 1, what="one leader")
    leader, other = (first, second) if first.metric("leader") else (second, first)
    jobs.create(training_job("one", minimum=1, maximum=2, cpu="1"))
    jobs.wait_for_phase("one", "Running")
    before = {pod["metadata"]["uid"] for pod in jobs.pods("one")}

    leader.program.kill()
    jobs.lose("one-trainer-0")

    wait_until(lambda: other.metric("leader") == 1, what="a new leader", timeout_s=25)

    jobs.wait_for(lambda: len(jobs.names("one")) == 2, what="the lost trainer")
    now = jobs.pods("one")

    assert len(before & {pod["metadata"]["uid"] for pod in now}) == 1
    marks = {pod["metadata"]["annotations"]["mlstack.dev/lease-transitions"] for pod in now}
    assert marks == {"0", "1"}


def test_a_controller_that_was_killed_leads_again_at_once(start: Start, jobs: Jobs) -> None:
    started = [start(is_named=False)]
    wait_until(lambda: started[-1].metric("leader") == 1, what="a leader")
    jobs.create(training_job("one", minimum=1, maximum=3, cpu="1"))
    jobs.wait_for_phase("one", "Running")
    before = {pod["metadata"]["uid"] for pod in jobs.pods("one")}

    for number in range(3):
        started[-1].program.kill()
        started.append(start(f"again-{number}", is_named=False))
        wait_until(lambda: started[-1].metric("leader") == 1, what="a leader again", timeout_s=8)

    assert {pod["metadata"]["uid"] for pod in jobs.pods("one")} == before


def test_a_leader_that_is_told_to_go_frees_the_lease(start: Start, jobs: Jobs) -> None:
    first = start("first")
    wait_until(lambda: first.metric("leader") == 1, what="a leader")
    second = start("second")

    code = first.program.terminate(timeout_s=10)
    wait_until(lambda: second.metric("leader") == 1, what="the next leader", timeout_s=12)

    assert code == 143


def test_a_leader_that_was_stopped_does_not_write_when_it_wakes(start: Start, jobs: Jobs) -> None:
    first = start("first")
    wait_until(lambda: first.metric("leader") == 1, what="a leader")
    second = start("second")
    jobs.create(training_job("one", minimum=1, maximum=2, cpu="1"))
    jobs.wait_for_phase("one", "Running")

    assert first.program.pid
    os.kill(first.program.pid, signal.SIGSTOP)
    wait_until(lambda: second.metric("leader") == 1, what="the second leads", timeout_s=25)
    os.kill(first.program.pid, signal.SIGCONT)
    wait_until(lambda: first.metric("leader") == 0, what="the first sees it", timeout_s=15)

    assert second.metric("leader") == 1


def test_it_goes_on_after_the_api_server_was_restarted(start: Start, jobs: Jobs) -> None:
    controller = start()
    jobs.create(training_job("one", minimum=1, maximum=3, cpu="1"))
    jobs.wait_for_phase("one", "Running")

    jobs.cluster.restart_apiserver()
    jobs.lose("one-trainer-0")
    jobs.create(training_job("two", minimum=1, maximum=2, cpu="1"))

    jobs.wait_for(lambda: len(jobs.names("one")) == 3, what="the lost trainer", timeout_s=60)
    jobs.wait_for_phase("two", "Running", timeout_s=60)
    assert controller.program.pid


def test_a_steady_cluster_sees_at_most_one_write_in_ten_seconds(
    start: Start, jobs: Jobs, gke: TestCluster, tmp_path: Path
) -> None:
    with proxy_of(gke, tmp_path) as proxy:
        writes = proxy.trouble = Writes()
        for name in ("first", "second"):
            start(name, kubeconfig=tmp_path / "proxy.kubeconfig")
        jobs.create(training_job("one", minimum=1, maximum=3, cpu="1", pservers=1))
        jobs.create(training_job("huge", minimum=9, maximum=9, cpu="15"))
        jobs.wait_for_phase("one", "Running")
        jobs.wait_for(lambda: jobs.status("huge").get("reason"), what="a reason to wait")
        jobs.wait_for(lambda: not is_held(jobs, "one-pserver"), what="servers that may go where they like")
        before = objects(jobs)
        writes.calls.clear()
        time.sleep(22)

        assert {path.partition("?")[0] for _, _, path in writes.calls} == {LEASE}, writes.calls
        times = [at_s for at_s, _, _ in writes.calls]
        assert all(later - earlier > 9.5 for earlier, later in pairwise(times)), times
        assert objects(jobs) == before


def test_nothing_else_is_touched_and_everything_goes_with_the_job(start: Start, jobs: Jobs) -> None:
    labels = {"mlstack.dev/training-job": "one", "mlstack.dev/role": "trainer"}
    container = {"name": "main", "image": "registry.example.org/x:1"}
    for name, marks in (("web", {}), ("one-trainer-0", labels)):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": marks}}
        jobs.create({**pod, "spec": {"containers": [container]}})
    jobs.wait_for(lambda: running_names(jobs) == {"web", "one-trainer-0"}, what="pods of others")
    strangers = [jobs.place("pods", name) for name in ("web", "one-trainer-0")]
    before = [jobs.cluster.find(path) for path in strangers]
    start()
    jobs.create(training_job("one", minimum=1, maximum=40, cpu="1", pservers=1, with_master=True))
    jobs.wait_for_phase("one", "Running")

    jobs.cluster.request("DELETE", jobs.path("one"))
    jobs.wait_for(lambda: running_names(jobs) == {"web", "one-trainer-0"}, what="the end of the job's pods")

    after = [jobs.cluster.find(path) for path in strangers]
    assert json.dumps(after) == json.dumps(before)
    assert not jobs.objects("statefulsets,poddisruptionbudgets,services")


def test_plan_and_status_read_a_live_cluster(
    start: Start, jobs: Jobs, gke: TestCluster, tmp_path: Path
) -> None:
    start()
    jobs.create(training_job("one", minimum=1, maximum=2, cpu="1", pservers=1))
    jobs.create(training_job("huge", minimum=9, maximum=9, cpu="15"))
    jobs.wait_for_phase("one", "Running")
    jobs.wait_for(lambda: jobs.status("huge").get("reason"), what="a reason to wait")
    login = gke.write_kubeconfig(tmp_path / "looker.kubeconfig", gke.service_account("default", ACCOUNT))

    def answer(*words: str) -> Any:
        command = [sys.executable, "-m", "mlstack", "elastic", *words, f"--kubeconfig={login}", "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    planned = {row["job"].partition("/")[2]: row for row in answer("plan", "-n", jobs.namespace)["jobs"]}
    stands = {row["job"].partition("/")[2]: row for row in answer("status", "-n", jobs.namespace)["jobs"]}

    assert (planned["one"]["now"], planned["one"]["target"], planned["one"]["cause"]) == (2, 2, "steady")
    assert (planned["huge"]["target"], planned["huge"]["cause"]) == (0, "waiting")
    assert (stands["one"]["phase"], stands["huge"]["phase"]) == ("Running", "Pending")


def test_a_service_of_a_stranger_is_left_alone(start: Start, jobs: Jobs) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one-pserver"}}
    jobs.create({**service, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}})
    path = f"/api/v1/namespaces/{jobs.namespace}/services/one-pserver"
    before = jobs.cluster.find(path)
    start()

    jobs.create(training_job("one", minimum=1, maximum=2, cpu="1", pservers=1))
    jobs.wait_for(lambda: any(row.startswith("Refused ") for row in events(jobs)), what="a word about it")

    assert jobs.cluster.find(path) == before


def test_one_pass_alone(jobs: Jobs, gke: TestCluster, namespace: str, tmp_path: Path) -> None:
    jobs.create(training_job("one", minimum=1, maximum=2, cpu="1"))

    once = ElasticController(gke, tmp_path, "once", namespaces=[namespace], options=["--once"])
    once.program.start()
    once.program.wait_until_finished(timeout_s=30)

    assert len(jobs.names("one")) == 2
    gke.request("DELETE", LEASE)


def wait_for_another(jobs: Jobs, name: str) -> None:
    """Delete a trainer as somebody might, and wait until there is another, of whatever name."""
    before = {pod["metadata"]["uid"] for pod in jobs.pods("one", "trainer")}
    jobs.lose(name)

    def is_back() -> bool:
        return bool({pod["metadata"]["uid"] for pod in jobs.pods("one", "trainer")} - before)

    wait_until(is_back, what="another trainer", timeout_s=20, interval_s=0.02)


def web(replicas: int, *, cpu: str) -> Obj:
    container = {
        "name": "main",
        "image": "registry.example.org/web:1",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


def running(jobs: Jobs, app: str) -> int:
    return sum(
        pod["metadata"]["labels"].get("app") == app and pod["status"]["phase"] == "Running"
        for pod in jobs.pods()
    )


def running_names(jobs: Jobs) -> set[str]:
    pods = jobs.objects("pods").values()
    return {pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"}


def is_held(jobs: Jobs, name: str) -> bool:
    """Tell whether the pods of a StatefulSet must go to certain nodes."""
    stateful_set = jobs.cluster.find(f"/apis/apps/v1/namespaces/{jobs.namespace}/statefulsets/{name}")
    return "requiredDuringScheduling" in json.dumps(stateful_set)


def events(jobs: Jobs) -> list[str]:
    """Give the reasons of the events of jobs, each with how often it was."""
    return [
        f"{event['reason']} {event.get('series', {}).get('count', 1)}"
        for event in jobs.objects("events").values()
        if event["regarding"]["kind"] == "TrainingJob"
    ]


def objects(jobs: Jobs) -> dict[str, str]:
    kinds = "trainingjobs,pods,statefulsets,services,poddisruptionbudgets,events"
    return {name: obj["metadata"]["resourceVersion"] for name, obj in jobs.objects(kinds).items()}
