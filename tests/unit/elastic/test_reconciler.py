"""The life of training jobs under the controller, on a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlstack.elastic.controller import reconciler
from mlstack.errors import ConflictError, ForbiddenError, TransientError, UnreachableError
from mlstack.kube.client import ObjectRef
from tests.support.elastic import node, pod, time, training_job
from tests.support.stage import JOBS, Stage

Obj = dict[str, Any]


@pytest.fixture
def stage() -> Stage:
    return Stage("n1", "n2")


def test_a_job_that_fits_is_admitted_as_a_whole(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=4, cpu="2", pservers=2, with_master=True))

    stage.settle()

    names = {found["metadata"]["name"] for found in stage.all("Pod")}
    assert {"train-master-0", "train-pserver-0", "train-pserver-1"} < names
    assert stage.trainers() == [f"train-trainer-{index}" for index in range(4)]
    assert stage.status()["phase"] == "Running"
    assert stage.events()[0] == "Admitted"


def test_a_job_that_does_not_fit_has_no_pods(stage: Stage) -> None:
    stage.put(training_job(minimum=5, maximum=8, cpu="4"))

    stage.settle()

    assert stage.all("Pod") == []
    assert stage.status()["phase"] == "Pending"
    assert stage.events() == ["WaitingForCapacity"]


def test_nothing_is_written_once_nothing_changes(stage: Stage) -> None:
    stage.put(training_job(pservers=1))
    stage.put(training_job("big", minimum=9, maximum=9, cpu="4"))
    stage.settle()
    stage.step()

    assert stage.rest(seconds=50) == 0


def test_trainers_are_owned_named_and_planned(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1))
    stage.settle()

    found = stage.get("Pod", "train-trainer-0")

    assert found is not None
    assert found["metadata"]["ownerReferences"][0]["uid"] == stage.job()["metadata"]["uid"]
    assert found["metadata"]["annotations"]["mlstack.dev/planned-node"] == found["spec"]["nodeName"]


def test_affinity_goes_by_the_host_name_of_a_node() -> None:
    stage = Stage()
    stage.put(node("n1", labels={"kubernetes.io/hostname": "ip-10-0-0-1"}))
    stage.put(training_job(minimum=1, maximum=1, pservers=1))

    stage.step()

    trainer, servers = (
        stage.get("Pod", "train-trainer-0"),
        stage.get("StatefulSet", "train-pserver", "apps/v1"),
    )
    assert trainer is not None
    assert trainer["metadata"]["annotations"]["mlstack.dev/planned-node"] == "n1"
    assert "ip-10-0-0-1" in str(trainer["spec"]["affinity"])
    assert "ip-10-0-0-1" in str(_required(servers))


def test_a_gang_that_finds_no_place_gives_its_room_back(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    for _ in range(8):
        stage.step(seconds=10)
        stage.run_sets()
        stage.refuse_pods()  # nothing is ever bound

    assert "MinimumLost" in stage.events()
    assert stage.status()["trainer"]["desired"] == 0
    assert stage.barred() == {"n1", "n2"}


def test_a_lost_trainer_is_replaced_at_once_and_not_counted(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()

    stage.delete("Pod", "train-trainer-0")
    stage.step()

    assert stage.trainers() == ["train-trainer-0", "train-trainer-1"]
    assert stage.status()["trainer"]["failed"] == 0


@pytest.mark.parametrize(
    ("reason", "is_own"),
    [
        ("Evicted", False),
        ("Preempting", False),
        ("Terminated", False),
        ("Shutdown", False),
        ("NodeShutdown", False),
        ("NodeAffinity", False),
        ("TaintToleration", False),
        ("UnexpectedAdmissionError", False),
        ("TopologyAffinityError", False),
        ("OutOfcpu", False),
        ("OutOfpods", False),
        ("OutOfephemeral-storage", False),
        ("OutOfnvidia.com/gpu", False),
        ("OutOfexample.com/fpga", False),
        ("", True),
        ("DeadlineExceeded", True),
        ("SysctlForbidden", True),
    ],
)
def test_only_what_a_trainer_does_itself_counts_against_the_job(
    stage: Stage, reason: str, *, is_own: bool
) -> None:
    """What a node or the control plane ended or turned away is replaced at once, what failed waits."""
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()

    stage.end("train-trainer-0", phase="Failed", reason=reason)
    stage.step()

    assert len(stage.trainers()) == (1 if is_own else 2)
    assert stage.status()["trainer"]["failed"] == int(is_own)


def test_a_trainer_that_failed_is_replaced_after_a_while(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()

    stage.end("train-trainer-0", phase="Failed")
    found = stage.step()
    assert stage.trainers() == ["train-trainer-1"]
    assert found.next_ms == stage.clock.now_ms + 10_000
    stage.step(seconds=9)
    assert stage.trainers() == ["train-trainer-1"]
    stage.step(seconds=1)

    assert stage.trainers() == ["train-trainer-0", "train-trainer-1"]
    assert stage.status()["trainer"]["failed"] == 1


def test_a_trainer_that_fails_while_another_waits_to_be_replaced_does_not_prolong_that(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=3))
    stage.settle()

    stage.end("train-trainer-0", phase="Failed")
    stage.step()
    stage.step(seconds=5)
    stage.end("train-trainer-1", phase="Failed")
    stage.step()
    stage.step(seconds=10)

    assert len(stage.trainers()) == 3


def test_growth_does_not_wait_for_failed_trainers(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=4, cpu="8"))
    stage.settle()

    stage.end("train-trainer-0", phase="Failed")
    stage.put(node("n3"))
    stage.step()

    assert len(stage.trainers()) == 2


def all_fail(stage: Stage, *, ran_s: int = 1) -> None:
    """Let all trainers fail at one moment, and the time pass until others come."""
    begun, ended = (time(stage.clock.now_ms + each * 1000) for each in (0, ran_s))
    state = {"terminated": {"exitCode": 1, "startedAt": begun, "finishedAt": ended}}
    stage.clock.now_ms += ran_s * 1000
    for name in stage.trainers():
        stage.end(name, phase="Failed", containerStatuses=[{"name": "trainer", "state": state}])
    stage.step()
    if stage.status()["phase"] != "Failed":
        stage.step(seconds=60)
    stage.settle()


def test_a_job_whose_trainers_all_failed_six_times_in_a_row_has_failed(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2, pservers=1))
    stage.settle()

    for _ in range(5):
        all_fail(stage)
        assert stage.status()["phase"] == "Running"
        assert stage.trainers() == ["train-trainer-0", "train-trainer-1"]
    all_fail(stage)

    assert stage.status()["phase"] == "Failed"
    assert stage.status()["reason"] == "all 2 trainers failed, 6 times in a row"
    assert stage.get("Pod", "train-pserver-0") is None
    assert stage.events()[-1] == "Failed"


def test_a_common_failure_after_ten_minutes_of_work_counts_as_the_first(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()

    for ran_s in (1, 1, 1, 1, 1, 600, 1, 1, 1, 599):
        all_fail(stage, ran_s=ran_s)
        assert stage.status()["phase"] == "Running"
    all_fail(stage)

    assert stage.status()["phase"] == "Failed"


def test_a_common_failure_is_told_while_others_wait_to_be_made(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()

    for name in stage.trainers():
        stage.end(name, phase="Failed")
    stage.step()

    assert "all 2 trainers failed; others come after a pause" in stage.status()["reason"]
    assert stage.trainers() == []
    stage.step(seconds=9)
    assert stage.trainers() == []
    stage.step(seconds=1)
    assert len(stage.trainers()) == 2


def test_a_limit_of_failures_ends_a_job_at_once(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2, failureLimit=1))
    stage.settle()

    for name in stage.trainers():
        stage.end(name, phase="Failed")
    stage.step()

    assert stage.status()["phase"] == "Failed"


def test_a_job_that_shrinks_keeps_its_lowest_indexes(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=6))
    stage.settle()
    assert len(stage.trainers()) == 6

    stage.resize(3)

    assert stage.trainers() == [f"train-trainer-{index}" for index in range(3)]


@pytest.mark.parametrize(("with_master", "kept"), [(False, [0, 1, 2]), (True, [1, 2, 3])], ids=str)
def test_a_job_that_shrinks_keeps_its_meeting_point_even_where_it_is_the_youngest(
    stage: Stage, *, with_master: bool, kept: list[int]
) -> None:
    stage.put(training_job(minimum=1, maximum=6, with_master=with_master))
    stage.settle()
    stage.clock.now_ms += 60_000
    stage.delete("Pod", "train-trainer-0")
    stage.settle()

    first = stage.get("Pod", "train-trainer-0")

    stage.resize(3)

    assert with_master or stage.get("Pod", "train-trainer-0") == first
    assert stage.trainers() == [f"train-trainer-{index}" for index in kept]


def test_a_lost_meeting_point_is_made_first(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()

    stage.delete("Pod", "train-trainer-2")
    stage.delete("Pod", "train-trainer-0")
    stage.put(pod("web", cpu="4", priority=1000))
    stage.settle()

    assert stage.trainers() == ["train-trainer-0", "train-trainer-1", "train-trainer-3"]


def test_trainers_that_were_lost_with_the_meeting_point_are_told_as_lost(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    for name in ("train-trainer-0", "train-trainer-1", "train-trainer-2"):
        node = (stage.get("Pod", name) or {})["spec"]["nodeName"]
        stage.delete("Pod", name)
        stage.put(pod(f"web-{name}", node=node, cpu="4", phase="Running", priority=1000))

    stage.step()

    assert stage.status()["scaleRecords"][-1]["reason"].startswith("lost 3 trainers to pods of others")


def test_a_meeting_point_on_a_dead_node_is_told_and_made_anew_when_its_name_is_free(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    ref = _pod_ref("train-trainer-0")
    stage.memory.patch(ref, {"metadata": {"finalizers": ["example.com/kubelet"]}})
    stage.delete("Pod", "train-trainer-0")
    stage.step()
    stage.step(seconds=90)
    assert "train-trainer-0" not in stage.trainers()
    assert len(stage.trainers()) == 3
    assert "`train-trainer-0` should have ended" in stage.status()["reason"]
    stage.put(pod("web", cpu="4", priority=1000))
    stage.step()

    stage.memory.patch(ref, {"metadata": {"finalizers": None}})
    stage.settle()

    assert "train-trainer-0" in stage.trainers()
    assert stage.status()["phase"] == "Running"
    assert stage.status().get("reason", "") == ""


def test_where_trainers_meet_at_the_master_the_first_is_nothing_special(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=3, cpu="4", with_master=True))
    stage.settle()
    stage.delete("Pod", "train-trainer-0")
    stage.put(pod("web", cpu="4", priority=1000))
    stage.settle()
    assert len(stage.trainers()) == 2
    assert stage.status().get("reason", "") == ""


CLAIM = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def test_a_gang_that_can_never_come_off_costs_its_neighbours_little() -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job("good", minimum=1, maximum=16))
    stage.settle()
    assert len(stage.trainers("good")) == 16
    stage.put(training_job("bad", minimum=1, maximum=16, with_master=True))
    tries, whole, begun_ms, was = 0, 0, stage.clock.now_ms, 0
    while stage.clock.now_ms - begun_ms < 30 * 60_000:
        stage.step(seconds=5)
        stage.run_sets()
        if stage.get("Pod", "bad-master-0") is not None:
            stage.refuse("bad-master-0", CLAIM)
        stage.run_pods(but=("bad-master-0",))
        desired = stage.status("bad")["trainer"]["desired"]
        tries, was = tries + (desired > 0 and was == 0), desired
        whole += len(stage.trainers("good")) == 16

    assert 3 <= tries <= 6
    assert whole > 30 * 60 / 5 * 0.6
    assert CLAIM in stage.status("bad")["reason"]
    admitted = next(one for one in stage.status("bad")["conditions"] if one["type"] == "Admitted")
    assert admitted["reason"] == "Unplaceable"
    notes = [
        one["note"] for one in stage.all("Event", "events.k8s.io/v1") if one["reason"] == "StuckWithdrawn"
    ]
    assert notes and all(CLAIM in note for note in notes)


def test_a_job_that_was_changed_after_it_was_given_up_is_tried_at_once(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    for _ in range(11):
        stage.step(seconds=10)
        stage.run_sets()
        stage.run_pods(but=("train-pserver-0",))
    assert stage.status()["trainer"]["desired"] == 0
    stage.put(node("n9"))  # the others are passed over

    stage.memory.patch(_ref(stage), {"spec": {"passes": 2}})
    stage.settle()

    assert stage.status()["phase"] == "Running"


def test_a_job_that_was_pushed_aside_goes_on_saying_so(stage: Stage) -> None:
    stage.put(training_job("low", minimum=2, maximum=2, cpu="8"))
    stage.settle()
    stage.put(training_job("high", minimum=2, maximum=2, cpu="8", priority=10))
    stage.settle()
    stage.rest(seconds=15)

    admitted = next(one for one in stage.status("low")["conditions"] if one["type"] == "Admitted")
    assert admitted["reason"] == "PreemptedFor"
    assert "taken off for default/high" in admitted["message"]
    assert "PreemptedFor" in stage.events()
    assert stage.rest(seconds=5) == 0


def test_a_job_that_lost_its_minimum_was_pushed_aside_by_nobody(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2, cpu="8"))
    stage.settle()
    stage.delete("Pod", "train-trainer-1")
    stage.delete("Node", "n2")
    stage.step()
    stage.step(seconds=5)

    admitted = next(one for one in stage.status()["conditions"] if one["type"] == "Admitted")
    assert admitted["reason"] == "MinimumLost"
    assert "MinimumLost" in stage.events()
    stage.put(node("n3"))
    stage.settle()
    assert stage.status()["phase"] == "Running"


def test_a_rigid_job_fails_with_its_first_trainer(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2, fault_tolerant=False))
    stage.settle()

    stage.end("train-trainer-0", phase="Failed")
    stage.settle()

    assert stage.status()["phase"] == "Failed"
    assert stage.trainers() == []


def test_the_first_success_ends_growth_and_the_last_the_job(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=3, pservers=1))
    stage.settle()

    stage.end("train-trainer-0", phase="Succeeded")
    stage.settle()
    assert stage.status()["phase"] == "Completing"
    assert stage.trainers() == ["train-trainer-1", "train-trainer-2"]
    for index in (1, 2):
        stage.end(f"train-trainer-{index}", phase="Succeeded")
    stage.settle()

    assert stage.status()["phase"] == "Succeeded"
    assert stage.status()["completionTime"]
    assert stage.get("Pod", "train-pserver-0") is None


def test_trainers_that_have_no_node_do_not_hold_up_the_end(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=3, cpu="4"))
    stage.settle()
    stage.delete("Pod", "train-trainer-2")
    stage.step()  # another waits for a node
    assert len(stage.trainers()) == 3

    for index in range(2):
        stage.end(f"train-trainer-{index}", phase="Succeeded")
        stage.step()

    assert stage.status()["phase"] == "Succeeded"
    stage.step()
    assert stage.trainers() == []


def test_a_job_that_ended_gives_its_room_to_the_next(stage: Stage) -> None:
    stage.put(training_job("first", minimum=4, maximum=4, cpu="4"))
    stage.settle()
    stage.put(training_job("second", minimum=4, maximum=4, cpu="4"))
    stage.settle()
    assert stage.trainers("second") == []

    for index in range(4):
        stage.end(f"first-trainer-{index}", phase="Succeeded")
    stage.settle()

    assert len(stage.trainers("second")) == 4


def test_an_ended_job_goes_when_its_time_is_over(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, ttlSecondsAfterFinished=30))
    stage.settle()
    stage.end("train-trainer-0", phase="Succeeded")
    stage.settle()
    stage.step(seconds=20)
    assert stage.get("TrainingJob", "train", JOBS) is not None

    stage.step(seconds=15)

    assert stage.get("TrainingJob", "train", JOBS) is None


def test_what_is_done_to_a_suspended_job_says_why(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.settle()
    stage.memory.patch(_ref(stage), {"spec": {"suspend": True}})

    done = [str(action) for action in stage.step().actions]

    assert "delete Pod default/train-trainer-0: spec.suspend is true" in done
    assert "apply StatefulSet default/train-pserver: spec.suspend is true" in done


def test_a_suspended_job_has_no_pods_and_comes_back(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.settle()

    stage.memory.patch(_ref(stage), {"spec": {"suspend": True}})
    stage.settle()
    assert stage.all("Pod") == []
    assert stage.status()["phase"] == "Suspended"
    assert stage.events().count("Suspended") == 1
    stage.memory.patch(_ref(stage), {"spec": {"suspend": False}})
    stage.settle()

    assert len(stage.trainers()) == 2
    assert stage.events().count("Suspended") == 1


def test_the_most_trainers_may_be_changed(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=6))
    stage.settle()
    assert len(stage.trainers()) == 6

    stage.resize(3)

    assert len(stage.trainers()) == 3
    assert stage.status()["trainer"]["desired"] == 3


def test_pods_of_others_get_room(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    assert len(stage.trainers()) == 4

    stage.put(pod("web", cpu="6", priority=1000))
    stage.settle()

    web = stage.get("Pod", "web")
    assert web is not None and web["spec"].get("nodeName")
    assert 1 <= len(stage.trainers()) < 4


def test_victims_are_exactly_those_of_the_plan(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    before = set(stage.trainers())
    stage.put(pod("web", cpu="3", priority=1000))

    found = stage.step()

    victims = set(found.plan.decisions["default/train"].victims)
    assert victims and set(stage.trainers()) == before - victims


def test_a_second_job_shares_what_the_first_had(stage: Stage) -> None:
    stage.put(training_job("one", minimum=1, maximum=8, cpu="2"))
    stage.settle()
    stage.put(training_job("two", minimum=1, maximum=8, cpu="2"))
    stage.settle()

    assert len(stage.trainers("one")) == len(stage.trainers("two")) == 4


def test_a_new_leader_goes_on_without_a_change(stage: Stage) -> None:
    stage.put(training_job("one", minimum=1, maximum=8, cpu="2", pservers=1))
    stage.put(training_job("two", minimum=1, maximum=8, cpu="2"))
    stage.settle()
    stage.step()
    before = {found["metadata"]["uid"] for found in stage.all("Pod")}
    stage.cluster.writes = 0

    stage.restart()
    stage.step()

    assert {found["metadata"]["uid"] for found in stage.all("Pod")} == before
    assert stage.cluster.writes == 0


def test_a_leader_that_died_between_saying_and_doing_is_completed(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2, pservers=1))
    stage.hear()
    refusals = iter([False, *[True] * 100])

    def refuse() -> None:
        if next(refusals):
            raise SystemExit

    stage.cluster.refuses = refuse
    with pytest.raises(SystemExit):
        stage.reconciler.reconcile(stage.clock.now_ms)
    assert stage.status()["trainer"]["desired"] == 2 and stage.all("Pod") == []
    stage.cluster.refuses = lambda: None

    stage.restart()
    stage.settle()

    assert len(stage.trainers()) == 2
    assert stage.get("Pod", "train-pserver-0") is not None


def test_servers_are_held_to_their_nodes_until_they_are_there(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=2))
    stage.step()
    assert _required(stage.get("StatefulSet", "train-pserver", "apps/v1"))
    stage.settle()

    assert not _required(stage.get("StatefulSet", "train-pserver", "apps/v1"))
    held = stage.get("Pod", "train-pserver-0")
    assert _required(held), "a pod that has its place is left alone"


def test_servers_that_cannot_go_to_their_node_may_go_elsewhere(stage: Stage) -> None:
    _let_a_server_be_stuck(stage)
    stuck = _uid_of_server(stage)

    stage.step(seconds=10)
    assert _uid_of_server(stage) == stuck
    stage.step(seconds=11)
    stage.run_sets()

    assert _uid_of_server(stage) != stuck
    assert not _required(stage.get("Pod", "train-pserver-0"))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (CLAIM, f"`train-pserver-0` found no node: {CLAIM}"),
        ("", "its masters and parameter servers found no node"),
    ],
    ids=["said", "silent"],
)
def test_a_server_that_may_go_elsewhere_does_so_with_the_words_of_the_scheduler(
    stage: Stage, said: str, told: str
) -> None:
    _let_a_server_be_stuck(stage, said)

    found = stage.step(seconds=21)

    reasons = {one.ref.kind: one.why for one in found.taken if one.ref.name.startswith("train-pserver")}
    expected = f"{told}; no longer held to the planned nodes"
    assert reasons == {"StatefulSet": expected, "Pod": expected}


def test_a_server_is_not_made_again_as_it_was_where_its_set_could_not_be_changed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _let_a_server_be_stuck(stage)
    stuck = _uid_of_server(stage)

    with monkeypatch.context() as patched:
        patched.setattr(stage.cluster, "apply", _refused_apply)
        stage.step(seconds=21)
    assert _uid_of_server(stage) == stuck
    stage.step(seconds=3)
    stage.run_sets()

    assert not _required(stage.get("Pod", "train-pserver-0"))


def test_a_stuck_trainer_is_withdrawn_and_its_node_passed_over(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, cpu="8"))
    stage.step()
    for found in stage.all("Pod")[:1]:
        stage.memory.patch(
            _pod_ref(found["metadata"]["name"]),
            {"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}},
        )
    stage.refuse_pods()

    stage.step(seconds=20)

    assert stage.barred()
    assert len(stage.trainers()) == 1


def test_while_no_scheduler_looks_at_them_pods_just_wait(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.step()
    stage.run_sets()
    before = {found["metadata"]["name"]: found["metadata"]["uid"] for found in stage.all("Pod")}

    for _ in range(4):
        stage.step(seconds=10)

    assert {found["metadata"]["name"]: found["metadata"]["uid"] for found in stage.all("Pod")} == before
    assert not stage.barred()
    stage.settle()
    assert stage.status()["phase"] == "Running"


def test_a_foreign_pod_of_a_trainers_name_is_left_alone(stage: Stage) -> None:
    stage.put(pod("train-trainer-0", node="n1", phase="Running"))
    stage.put(training_job(minimum=1, maximum=2))
    before = stage.get("Pod", "train-trainer-0")

    stage.settle()

    assert stage.get("Pod", "train-trainer-0") == before
    assert stage.trainers() == ["train-trainer-1", "train-trainer-2"]


def test_a_name_that_was_taken_unheard_is_passed_over_next_time(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1))
    stage.hear()
    stage.put(pod("train-trainer-0", node="n1", phase="Running"))

    stage.reconciler.reconcile(stage.clock.now_ms)
    stage.reconciler.reconcile(stage.clock.now_ms + 1000)

    assert stage.trainers() == ["train-trainer-1"]


def test_a_dry_run_writes_nothing(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.restart(is_dry=True)

    found = stage.step()

    assert stage.cluster.writes == 0
    assert "create Pod default/train-trainer-0" in "\n".join(map(str, found.actions))


def test_a_job_that_cannot_be_used_says_why(stage: Stage) -> None:
    stage.put(training_job(minimum=3, maximum=1))

    stage.settle()

    assert stage.status()["phase"] == "Pending"
    (degraded,) = [one for one in stage.status()["conditions"] if one["type"] == "Degraded"]
    assert degraded["reason"] == "InvalidSpec"


def test_a_trainer_whose_deletion_was_refused_is_still_known(stage: Stage) -> None:
    """A conflict may mean another pod of that name, but not if the live one is the very same."""
    stage.put(training_job(minimum=1, maximum=4))
    stage.settle()
    job = stage.job()
    stage.memory.patch(ObjectRef.of(job), {"spec": {"trainer": {"max-instance": 2}}})
    stage.cluster.refuses = _raises(ConflictError("changed meanwhile"))
    stage.step()
    assert len([one for one in stage.cache.pods.values() if one.role == "trainer"]) == 4

    stage.cluster.refuses = lambda: None
    stage.settle()

    assert len(stage.trainers()) == 2


def test_a_status_that_was_refused_is_written_again(stage: Stage) -> None:
    stage.put(training_job(minimum=9, maximum=9, cpu="4"))
    stage.hear()
    stage.cluster.refuses = _raises(TransientError("too many requests"))
    assert stage.reconciler.reconcile(stage.clock.now_ms).refused
    stage.cluster.refuses = lambda: None

    stage.step(seconds=3)

    assert stage.status()["phase"] == "Pending"


def test_a_status_that_does_not_stay_is_not_written_over_and_over(stage: Stage) -> None:
    stage.put(training_job(minimum=9, maximum=9, cpu="4"))
    stage.step()
    before = stage.cluster.writes

    for _ in range(5):  # as where the definition knows fewer fields
        stage.memory.patch(_ref(stage), {"status": {"selector": None}}, subresource="status")
        stage.step(seconds=5)

    assert stage.cluster.writes == before + 1


def test_what_the_cluster_refuses_is_tried_again_later(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1))
    stage.hear()
    stage.cluster.refuses = _raises(ForbiddenError("exceeded quota: pods", why="quota"))
    found = stage.reconciler.reconcile(stage.clock.now_ms)
    assert found.refused
    stage.cluster.refuses = lambda: None

    stage.step(seconds=3)

    assert stage.trainers() == ["train-trainer-0"]


def test_why_the_cluster_takes_no_pods_stands_in_the_status(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(obj: dict[str, object], **options: object) -> object:
        if obj["kind"] == "Pod" and not options.get("dry_run"):
            raise ForbiddenError(f"exceeded quota by {obj['metadata']['name']}", why="quota")  # type: ignore[index]
        return create(obj, **options)

    create = stage.cluster.create
    stage.put(training_job(minimum=1, maximum=3))
    with monkeypatch.context() as patched:
        patched.setattr(stage.cluster, "create", refused)
        stage.step()
        for _ in range(3):
            stage.step(seconds=1)
            assert stage.status()["reason"] == "exceeded quota by train-trainer-0"
        conditions = {one["type"]: one for one in stage.status()["conditions"]}
        assert conditions["GangReady"]["message"] == (
            "ready: 0 of 1 trainer; refused: exceeded quota by train-trainer-0"
        )
    stage.clock.now_ms += 4_000
    stage.settle()

    assert "reason" not in stage.status()


def test_many_trainers_are_created_in_several_passes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "MOST_CREATIONS", 3)
    stage.put(training_job(minimum=1, maximum=8, cpu="1"))

    found = stage.step()

    assert len(stage.trainers()) == 3
    assert found.next_ms == stage.clock.now_ms
    stage.settle()
    assert len(stage.trainers()) == 8


def test_trainers_that_others_took_are_told_as_lost(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    victim = stage.get("Pod", "train-trainer-1")
    assert victim is not None
    stage.delete("Pod", "train-trainer-1")
    stage.put(pod("web", node=victim["spec"]["nodeName"], cpu="4", phase="Running", priority=1000))

    stage.step()

    assert len(stage.trainers()) == 3
    assert "lost a trainer" in stage.status()["scaleRecords"][-1]["reason"]


def test_a_server_on_a_node_that_is_gone_is_told_with_what_to_do(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.settle()
    ref = _pod_ref("train-pserver-0")
    stage.memory.patch(ref, {"metadata": {"finalizers": ["example.com/kubelet"]}})
    stage.delete("Pod", "train-pserver-0")
    stage.step()
    assert "should have ended" not in stage.status()["reason"]

    stage.step(seconds=90)

    assert "`train-pserver-0` should have ended" in stage.status()["reason"]
    stage.settle()
    assert stage.rest(seconds=5) == 0


def test_trainers_of_a_job_whose_server_is_on_a_dead_node_are_lent_till_it_is_back(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=8, pservers=1))
    stage.put(training_job("other", minimum=1, maximum=16))
    stage.settle()
    before = len(stage.trainers("other"))
    ref = _pod_ref("train-pserver-0")
    stage.memory.patch(ref, {"metadata": {"finalizers": ["example.com/kubelet"]}})
    stage.delete("Pod", "train-pserver-0")
    stage.settle()
    assert stage.status()["phase"] != "Paused", (
        "a server that is being moved is no reason to let go of trainers"
    )

    stage.step(seconds=90)
    stage.settle()

    assert stage.status()["phase"] == "Paused"
    (degraded,) = (one for one in stage.status()["conditions"] if one["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "Paused")
    assert "`train-pserver-0` should have ended" in stage.status()["reason"]
    assert stage.events().count("Paused") == 1
    assert stage.trainers() == []
    assert len(stage.trainers("other")) > before
    assert stage.get("StatefulSet", "train-pserver", "apps/v1") is not None
    stage.restart()
    assert stage.rest(seconds=10) == 0, "a new leader sees what this one saw"

    stage.memory.patch(ref, {"metadata": {"finalizers": None}})
    for _ in range(4):
        stage.settle()

    assert stage.status()["phase"] == "Running"
    assert len(stage.trainers()) >= 4
    assert stage.job()["status"]["startTime"]


def test_a_job_that_is_suspended_while_paused_lets_go_of_its_servers(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.settle()
    stage.memory.patch(_pod_ref("train-pserver-0"), {"metadata": {"finalizers": ["example.com/kubelet"]}})
    stage.delete("Pod", "train-pserver-0")
    stage.step(seconds=90)
    assert stage.status()["phase"] == "Paused"

    stage.memory.patch(ObjectRef.of(stage.job()), {"spec": {"suspend": True}})
    stage.settle()

    assert stage.status()["phase"] == "Suspended"
    found = stage.get("StatefulSet", "train-pserver", "apps/v1")
    assert found is not None and found["spec"]["replicas"] == 0


def test_what_a_pass_that_broke_off_did_not_tell_is_told_by_the_next(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2))
    written = iter((None, UnreachableError("no answer")))

    def refuse() -> None:
        if (error := next(written, None)) is not None:
            raise error

    stage.cluster.refuses = refuse
    with pytest.raises(UnreachableError):
        stage.step()
    assert stage.status()["trainer"]["desired"] == 2 and stage.events() == []
    stage.settle()

    assert stage.events() == ["Admitted"]


def test_what_happens_again_is_counted_on_its_event(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=3))
    stage.settle()
    stage.resize(2, 3, 2, 3, 2, 3)
    stage.step(seconds=60)

    found = {event["note"][:15]: event.get("series") for event in stage.all("Event", "events.k8s.io/v1")}
    assert stage.events() == ["Admitted", "ScaledDown", "ScaledUp"]
    assert found["trainers 3 -> 2"]["count"] == found["trainers 2 -> 3"]["count"] == 3
    assert found["trainers 2 -> 3"]["lastObservedTime"].endswith("00Z")
    assert stage.rest(seconds=300) == 0


@pytest.mark.parametrize("kind", ["Service", "StatefulSet"])
def test_an_object_of_somebody_else_with_the_same_name_is_left_alone(stage: Stage, kind: str) -> None:
    foreign = _foreign(kind)
    stage.put(foreign)
    before = stage.get(kind, "train-pserver", foreign["apiVersion"])
    stage.put(training_job(minimum=1, maximum=2, pservers=1))

    stage.rest(seconds=20)

    assert stage.get(kind, "train-pserver", foreign["apiVersion"]) == before
    assert "Refused" in stage.events()
    stage.delete(kind, "train-pserver", foreign["apiVersion"])
    stage.clock.now_ms += 60_000
    stage.settle()
    assert stage.status()["phase"] == "Running"
    owners = stage.get(kind, "train-pserver", foreign["apiVersion"])["metadata"]["ownerReferences"]  # type: ignore[index]
    assert [owner["name"] for owner in owners] == ["train"]


def test_nothing_outside_the_jobs_is_touched(stage: Stage) -> None:
    labels = {"mlstack.dev/training-job": "train", "mlstack.dev/role": "trainer", "paddle-job": "train"}
    for name, marks in (("web", None), ("impostor", labels)):
        stage.put(pod(name, node="n1", phase="Running", cpu="1", labels=marks))
    before = [stage.get("Pod", name) for name in ("web", "impostor")]
    stage.put(training_job(minimum=1, maximum=20))
    stage.settle()

    stage.delete("TrainingJob", "train", JOBS)
    stage.settle()

    assert [stage.get("Pod", name) for name in ("web", "impostor")] == before


def _foreign(kind: str) -> Obj:
    metadata = {"name": "train-pserver", "namespace": "default"}
    if kind == "Service":
        spec: Obj = {"ports": [{"port": 80}], "selector": {"app": "web"}}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    labels = {"app": "web"}
    container = {"name": "main", "image": "example.com/x"}
    spec = {
        "replicas": 0,
        "serviceName": "web",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _ref(stage: Stage) -> ObjectRef:
    return ObjectRef.of(stage.job())


def _pod_ref(name: str) -> ObjectRef:
    return ObjectRef("v1", "Pod", "default", name)


def _let_a_server_be_stuck(stage: Stage, said: str = "") -> None:
    """Let the scheduler find no node for a parameter server, and say this about it."""
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    stage.step()
    stage.run_sets()
    stage.refuse("train-pserver-0", said)


def _uid_of_server(stage: Stage) -> str:
    found = stage.get("Pod", "train-pserver-0")
    assert found is not None
    return str(found["metadata"]["uid"])


def _required(obj: Obj | None) -> Any:
    assert obj is not None
    spec = obj["spec"].get("template", obj)["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution")


def _raises(error: Exception) -> Callable[[], None]:
    def refuse() -> None:
        raise error

    return refuse


def _refused_apply(*args: object, **options: object) -> None:
    raise TransientError("the server is busy")


def test_what_was_decided_about_a_job_is_not_written_to_its_namesake() -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job(minimum=1, maximum=1))
    stage.settle()
    stage.end("train-trainer-0", phase="Succeeded")
    stage.hear()

    stage.delete("TrainingJob", "train", JOBS)
    stage.put(training_job(minimum=1, maximum=1))
    stage.reconciler.reconcile(stage.clock.now_ms)  # nothing of that was heard yet

    assert stage.status() == {}
    stage.settle()
    assert stage.status()["phase"] == "Running"
