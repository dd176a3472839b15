"""The life of training jobs under the controller, on a cluster in memory."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic import reconciler
from mlstack.elastic.reconciler import Pass
from mlstack.elastic.snapshot import PolicyConfig
from mlstack.errors import ConflictError, ForbiddenError, TransientError, UnreachableError
from mlstack.kube.client import ObjectRef
from tests.support.elastic import node, pod, time, training_job
from tests.support.stage import JOBS, Stage

pytestmark = pytest.mark.slow

Obj = dict[str, Any]
CLAIM = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
EDL = PolicyConfig(mode="edl", max_load_pct=100)
SET = ("StatefulSet", "train-pserver", "apps/v1")


@pytest.fixture
def stage() -> Stage:
    return Stage("n1", "n2")


def job_ref(stage: Stage) -> ObjectRef:
    return ObjectRef.of(stage.job())


def pod_ref(name: str) -> ObjectRef:
    return ObjectRef("v1", "Pod", "default", name)


def suspend(stage: Stage, suspended: bool = True) -> None:
    stage.memory.patch(job_ref(stage), {"spec": {"suspend": suspended}})


def condition(stage: Stage, kind: str, name: str = "train") -> Obj:
    (condition,) = (condition for condition in stage.status(name)["conditions"] if condition["type"] == kind)
    return dict(condition)


def let_hang(stage: Stage, name: str) -> ObjectRef:
    """Delete a pod on a node that does not answer: it does not go before `let_go`."""
    stage.memory.patch(pod_ref(name), {"metadata": {"finalizers": ["example.com/kubelet"]}})
    stage.delete("Pod", name)
    return pod_ref(name)


def let_go(stage: Stage, ref: ObjectRef) -> None:
    stage.memory.patch(ref, {"metadata": {"finalizers": None}})


def refuse(stage: Stage, error: Exception, *numbers: int) -> None:
    """Let the writes of these numbers from now on fail, all where there are none."""
    count = iter(range(1000))

    def fail() -> None:
        if next(count) in numbers or not numbers:
            raise error

    stage.cluster.refuses = fail


def take(stage: Stage) -> None:
    """Let all writes be taken again."""
    stage.cluster.refuses = lambda: None


def required(obj: Obj | None) -> Any:
    assert obj is not None
    spec = obj["spec"].get("template", obj)["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution")


def test_a_job_that_fits_is_admitted_as_a_whole(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=4, cpu="2", pservers=2, with_master=True))

    stage.settle()

    names = {pod["metadata"]["name"] for pod in stage.all("Pod")}
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


def test_a_job_that_cannot_be_used_says_why(stage: Stage) -> None:
    stage.put(training_job(minimum=3, maximum=1))

    stage.settle()

    assert stage.status()["phase"] == "Pending"
    assert condition(stage, "Degraded")["reason"] == "InvalidSpec"


@pytest.mark.parametrize("mode", ["fair", "edl", "throughput"])
def test_nothing_is_written_once_nothing_changes(stage: Stage, mode: str) -> None:
    stage.restart(PolicyConfig(mode=mode))
    stage.put(training_job("a", minimum=2, maximum=9, speed="amdahl:0.9"))
    stage.put(training_job("b", minimum=2, maximum=9, pservers=1))
    stage.put(training_job("big", minimum=9, maximum=9, cpu="4"))
    stage.settle()
    stage.step()

    assert stage.rest(seconds=50) == 0


def test_trainers_are_owned_named_and_planned() -> None:
    stage = Stage()
    stage.put(node("n1", labels={"kubernetes.io/hostname": "ip-10-0-0-1"}))
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    stage.step()

    trainer = stage.get("Pod", "train-trainer-0")

    assert trainer is not None
    assert trainer["metadata"]["ownerReferences"][0]["uid"] == stage.job()["metadata"]["uid"]
    assert trainer["metadata"]["annotations"]["mlstack.dev/planned-node"] == "n1"
    assert "ip-10-0-0-1" in str(trainer["spec"]["affinity"]), "affinity goes by the host name"
    assert "ip-10-0-0-1" in str(required(stage.get(*SET)))


# --- trainers that are lost or fail ---


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
        *((reason, False) for reason in ("Evicted", "Preempting", "Terminated", "Shutdown", "NodeShutdown")),
        *((reason, False) for reason in ("NodeAffinity", "TaintToleration", "UnexpectedAdmissionError")),
        *((reason, False) for reason in ("TopologyAffinityError", "OutOfcpu", "OutOfpods")),
        *((f"OutOf{name}", False) for name in ("ephemeral-storage", "nvidia.com/gpu", "example.com/fpga")),
        *((reason, True) for reason in ("", "DeadlineExceeded", "SysctlForbidden")),
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
    report = stage.step()
    assert stage.trainers() == ["train-trainer-1"]
    assert min(report.due) == stage.clock.now_ms + 10_000
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
    begun, ended = (time(stage.clock.now_ms + second * 1000) for second in (0, ran_s))
    state = {"terminated": {"exitCode": 1, "startedAt": begun, "finishedAt": ended}}
    stage.clock.now_ms += ran_s * 1000
    for name in stage.trainers():
        stage.end(name, phase="Failed", containerStatuses=[{"name": "trainer", "state": state}])
    stage.step()
    if stage.status()["phase"] != "Failed":
        assert "all 2 trainers failed" in stage.status()["reason"]
        assert "others come after a pause" in stage.status()["reason"]
        assert stage.trainers() == []
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


@pytest.mark.parametrize(
    ("options", "failed"), [({"failureLimit": 1}, 2), ({"fault_tolerant": False}, 1)], ids=["limit", "rigid"]
)
def test_a_job_that_may_not_go_on_has_failed_at_once(stage: Stage, options: Any, failed: int) -> None:
    stage.put(training_job(minimum=2, maximum=2, **options))
    stage.settle()

    for name in stage.trainers()[:failed]:
        stage.end(name, phase="Failed")
    stage.step()

    assert stage.status()["phase"] == "Failed"
    stage.settle()
    assert stage.trainers() == []


@pytest.mark.parametrize(("fewest", "target"), [(1, 3), (4, 4)], ids=["beyond the minimum", "of the minimum"])
def test_the_room_of_a_failed_trainer_is_lent_unless_it_is_of_the_minimum(
    stage: Stage, fewest: int, target: int
) -> None:
    stage.put(training_job("failing", minimum=fewest, maximum=8 if fewest == 1 else 4, cpu="2"))
    stage.put(training_job("other", minimum=1, maximum=8, cpu="2"))
    stage.settle()
    assert (len(stage.trainers("failing")), len(stage.trainers("other"))) == (4, 4)

    stage.end("failing-trainer-0", phase="Failed")
    stage.settle()

    assert (len(stage.trainers("failing")), len(stage.trainers("other"))) == (3, 8 - target)
    assert stage.status("failing")["trainer"]["desired"] == target
    record = stage.status("failing")["scaleRecords"][-1]
    assert (record["cause"] == "steady" and "failed are replaced after" in record["reason"]) == (target == 3)
    stage.step(seconds=11)
    stage.settle()
    assert (len(stage.trainers("failing")), len(stage.trainers("other"))) == (4, 4)


# --- the trainer at which the others meet ---


@pytest.mark.parametrize(("with_master", "indexes"), [(False, [0, 1, 2]), (True, [1, 2, 3])], ids=str)
def test_a_job_that_shrinks_keeps_its_rendezvous_even_where_it_is_the_youngest(
    stage: Stage, *, with_master: bool, indexes: list[int]
) -> None:
    stage.put(training_job(minimum=1, maximum=6, with_master=with_master))
    stage.settle()
    assert len(stage.trainers()) == 6
    stage.clock.now_ms += 60_000
    stage.delete("Pod", "train-trainer-0")
    stage.settle()
    first = stage.get("Pod", "train-trainer-0")

    stage.resize(3)

    assert with_master or stage.get("Pod", "train-trainer-0") == first
    assert stage.trainers() == [f"train-trainer-{index}" for index in indexes]
    assert stage.status()["trainer"]["desired"] == 3


def test_a_lost_rendezvous_is_made_first(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()

    stage.delete("Pod", "train-trainer-2")
    stage.delete("Pod", "train-trainer-0")
    stage.put(pod("web", cpu="4", priority=1000))
    stage.settle()

    assert stage.trainers() == ["train-trainer-0", "train-trainer-1", "train-trainer-3"]


@pytest.mark.parametrize(
    ("indexes", "left", "text"),
    [((1,), 3, "lost a trainer to pods of others"), ((0, 1, 2), 0, "lost 3 trainers to pods of others")],
    ids=["one", "three with the rendezvous"],
)
def test_trainers_that_others_took_are_told_as_lost(stage: Stage, indexes: Any, left: int, text: str) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    for name in (f"train-trainer-{index}" for index in indexes):
        place = (stage.get("Pod", name) or {})["spec"]["nodeName"]
        stage.delete("Pod", name)
        stage.put(pod(f"web-{name}", node=place, cpu="4", phase="Running", priority=1000))

    stage.step()

    assert len(stage.trainers()) == left
    assert stage.status()["scaleRecords"][-1]["reason"].startswith(text)


def test_a_rendezvous_on_a_dead_node_is_told_and_made_anew_when_its_name_is_free(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    ref = let_hang(stage, "train-trainer-0")
    stage.step()
    stage.step(seconds=90)
    assert "train-trainer-0" not in stage.trainers()
    assert len(stage.trainers()) == 3
    assert "`train-trainer-0` should have ended" in stage.status()["reason"]
    stage.put(pod("web", cpu="4", priority=1000))
    stage.step()

    let_go(stage, ref)
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


# --- gangs that find no place, or lose it ---


def test_a_gang_that_finds_no_place_gives_its_room_back(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    for _ in range(8):
        stage.step(seconds=10)
        stage.run_sets()
        stage.refuse_pods()  # nothing is ever bound

    assert "MinimumLost" in stage.events()
    assert stage.status()["trainer"]["desired"] == 0
    assert stage.barred() == {"n1", "n2"}


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
    assert condition(stage, "Admitted", "bad")["reason"] == "Unplaceable"
    events = stage.all("Event", "events.k8s.io/v1")
    notes = [event["note"] for event in events if event["reason"] == "StuckWithdrawn"]
    assert notes and all(CLAIM in note for note in notes)


def test_a_job_that_was_changed_after_it_was_given_up_is_tried_at_once(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    for _ in range(11):
        stage.step(seconds=10)
        stage.run_sets()
        stage.run_pods(but=("train-pserver-0",))
    assert stage.status()["trainer"]["desired"] == 0
    stage.put(node("n9"))  # the others are passed over

    stage.memory.patch(job_ref(stage), {"spec": {"passes": 2}})
    stage.settle()

    assert stage.status()["phase"] == "Running"


def test_a_job_that_was_pushed_aside_goes_on_saying_so(stage: Stage) -> None:
    stage.put(training_job("low", minimum=2, maximum=2, cpu="8"))
    stage.settle()
    stage.put(training_job("high", minimum=2, maximum=2, cpu="8", priority=10))
    stage.settle()
    stage.rest(seconds=15)

    admitted = condition(stage, "Admitted", "low")
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

    assert condition(stage, "Admitted")["reason"] == "MinimumLost"
    assert "MinimumLost" in stage.events()
    stage.put(node("n3"))
    stage.settle()
    assert stage.status()["phase"] == "Running"


def test_who_asks_for_more_trainers_has_lost_none(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, scaling="Manual"))
    stage.settle()
    stage.memory.patch(job_ref(stage), {"spec": {"trainer": {"max-instance": 4}}})
    stage.step()
    stage.step()

    assert condition(stage, "GangReady")["message"] == "ready: 2 of 4 trainers"
    assert condition(stage, "Degraded")["status"] == "False"
    assert "MinimumLost" not in stage.events()


# --- the end of jobs, and those that are suspended ---


def test_the_first_success_ends_growth_and_the_last_the_job(stage: Stage) -> None:
    stage.put(training_job(minimum=3, maximum=4, pservers=1))
    stage.settle()
    events = stage.events()

    for index in range(3):
        stage.end(f"train-trainer-{index}", phase="Succeeded")
        stage.settle()
        assert stage.status()["phase"] == "Completing"
        assert stage.status()["trainer"]["desired"] == 4, "it keeps its target however few are left"
        assert stage.trainers() == [f"train-trainer-{left}" for left in range(index + 1, 4)]
    assert stage.events() == events
    stage.end("train-trainer-3", phase="Succeeded")
    stage.settle()

    assert stage.status()["phase"] == "Succeeded"
    assert stage.status()["trainer"]["desired"] == 0
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


def test_a_suspended_job_has_no_pods_and_comes_back(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.settle()

    suspend(stage)
    done = [str(action) for action in stage.step().actions]
    assert "delete Pod default/train-trainer-0: spec.suspend is true" in done
    assert "apply StatefulSet default/train-pserver: spec.suspend is true" in done
    stage.settle()
    assert stage.all("Pod") == []
    assert stage.status()["phase"] == "Suspended"
    assert stage.events().count("Suspended") == 1
    suspend(stage, False)
    stage.settle()

    assert len(stage.trainers()) == 2
    assert stage.events().count("Suspended") == 1


# --- whose room it is ---


@pytest.mark.parametrize(("cpu", "most_left"), [("6", 3), ("3", 3)])
def test_pods_of_others_get_room_from_the_victims_of_the_plan(stage: Stage, cpu: str, most_left: int) -> None:
    stage.put(training_job(minimum=1, maximum=4, cpu="4"))
    stage.settle()
    before = set(stage.trainers())
    stage.put(pod("web", cpu=cpu, priority=1000))

    victims = set(stage.step().plan.decisions["default/train"].victims)

    assert victims and set(stage.trainers()) == before - victims
    stage.settle()
    web = stage.get("Pod", "web")
    assert web is not None and web["spec"].get("nodeName")
    assert 1 <= len(stage.trainers()) <= most_left


def test_a_second_job_shares_what_the_first_had(stage: Stage) -> None:
    stage.put(training_job("one", minimum=1, maximum=8, cpu="2"))
    stage.settle()
    stage.put(training_job("two", minimum=1, maximum=8, cpu="2"))
    stage.settle()

    assert len(stage.trainers("one")) == len(stage.trainers("two")) == 4


@pytest.mark.parametrize(("low", "high"), [("a", "z"), ("z", "a")])
def test_room_that_is_free_goes_to_the_job_of_higher_priority_first(low: str, high: str) -> None:
    stage = Stage("n1", cpu="4")
    stage.put(pod("going", node="n1", cpu="2", phase="Running"))
    let_hang(stage, "going")
    stage.put(training_job(low, minimum=1, maximum=1, cpu="2"))
    stage.put(training_job(high, minimum=1, maximum=1, cpu="2", priority=5))

    stage.step()

    assert stage.status(low)["trainer"]["desired"] == stage.status(high)["trainer"]["desired"] == 1
    assert (stage.trainers(low), stage.trainers(high)) == ([], [f"{high}-trainer-0"])


def test_a_job_of_fixed_size_that_is_to_have_more_than_there_is_room_for_goes_on() -> None:
    stage = Stage("n1", "n2", cpu="5")
    stage.put(training_job("fixed", minimum=2, maximum=4, scaling="Manual"))
    stage.settle()
    stage.resize(20, name="fixed")

    for _ in range(5):
        stage.settle()
        stage.step(seconds=5)

    assert len(stage.trainers("fixed")) == 10
    assert stage.status("fixed")["phase"] == "Running"
    assert "10 of 20 trainers" in condition(stage, "Degraded", "fixed")["message"]


@pytest.mark.parametrize("allocatable", ["8", "0"], ids=["plug-in is there", "plug-in is away"])
def test_nodes_with_devices_are_left_to_who_wants_them_before_anybody_does(allocatable: str) -> None:
    stage = Stage("plain")
    devices = node("a-gpu")
    for kind, count in {"allocatable": allocatable, "capacity": "8"}.items():
        devices["status"][kind] = {**devices["status"][kind], "nvidia.com/gpu": count}
    stage.put(devices)
    stage.put(training_job(minimum=1, maximum=8, pservers=1, with_master=True))

    stage.settle()

    on_devices = [pod for pod in stage.all("Pod") if pod["spec"].get("nodeName") == "a-gpu"]
    assert len(on_devices) == 2, "8 trainers, a server and a master of a core each: 8 cores are elsewhere"
    stage.put(training_job("another", minimum=4, maximum=4))
    stage.settle()
    assert len(stage.trainers("another")) == 4, "room is room where there is no other"


def test_many_trainers_are_created_in_several_passes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "MOST_CREATIONS", 3)
    stage.put(training_job(minimum=1, maximum=8, cpu="1"))

    report = stage.step()

    assert len(stage.trainers()) == 3
    assert min(report.due) == stage.clock.now_ms
    stage.settle()
    assert len(stage.trainers()) == 8


# --- the other policies ---


def test_edl_grows_into_free_room_and_yields_it_to_others(stage: Stage) -> None:
    """16 cores: 15 trainers leave nothing for the web pod of 4; EDL takes 3 trainers away for it."""
    stage.restart(EDL)
    stage.put(training_job(minimum=2, maximum=15))
    stage.settle()
    assert len(stage.trainers()) == 15

    stage.put(pod("web", cpu="4"))
    stage.settle()

    assert len(stage.trainers()) == stage.status()["trainer"]["desired"] == 12


def test_edl_starts_a_job_at_once_and_makes_room_for_it(stage: Stage) -> None:
    stage.restart(EDL)
    stage.put(training_job("old", minimum=2, maximum=16))
    stage.settle()

    stage.put(training_job("new", minimum=2, maximum=4, pservers=2, with_master=True))
    stage.settle()

    assert len(stage.trainers("new")) >= 2
    assert len(stage.trainers("old")) <= 16 - 2 - 2 - 1
    assert stage.status("new")["phase"] == "Running"


@pytest.mark.parametrize("speed", ["amdahl:0.5", [[1, 0.4], [2, 0.7], [3, 0.9], [16, 0.9]]], ids=str)
def test_throughput_goes_by_the_named_model_of_a_job_or_its_curve(stage: Stage, speed: Any) -> None:
    """Of 16 cores the job that hardly gains from a fourth trainer gets three."""
    stage.restart(PolicyConfig(mode="throughput"))
    is_model = isinstance(speed, str)
    slow = training_job("slow", minimum=1, maximum=16, **({"speed": speed} if is_model else {}))
    stage.put(slow if is_model else {**slow, "status": {"throughput": {"curve": speed}}})
    stage.put(training_job("fast", minimum=1, maximum=16, speed="linear"))

    stage.settle()
    for _ in range(6):
        stage.step(seconds=11)
        stage.settle()

    assert (len(stage.trainers("slow")), len(stage.trainers("fast"))) == (3, 13)


# --- leaders that follow each other ---


def test_a_new_leader_goes_on_without_a_change(stage: Stage) -> None:
    stage.put(training_job("one", minimum=1, maximum=8, cpu="2", pservers=1))
    stage.put(training_job("two", minimum=1, maximum=8, cpu="2"))
    stage.settle()
    stage.step()
    before = {pod["metadata"]["uid"] for pod in stage.all("Pod")}
    stage.cluster.writes = 0

    stage.restart()
    stage.step()

    assert {pod["metadata"]["uid"] for pod in stage.all("Pod")} == before
    assert stage.cluster.writes == 0


def test_a_leader_that_died_between_saying_and_doing_is_completed(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2, pservers=1))
    refuse(stage, SystemExit(), *range(1, 100))  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        stage.step()
    assert stage.status()["trainer"]["desired"] == 2 and stage.all("Pod") == []
    take(stage)

    stage.restart()
    stage.settle()

    assert len(stage.trainers()) == 2
    assert stage.get("Pod", "train-pserver-0") is not None


def test_what_a_pass_that_broke_off_did_not_tell_is_told_by_the_next(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2))
    refuse(stage, UnreachableError("no answer"), 1)
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

    series = {event["note"][:15]: event.get("series") for event in stage.all("Event", "events.k8s.io/v1")}
    assert stage.events() == ["Admitted", "ScaledDown", "ScaledUp"]
    assert series["trainers 3 -> 2"]["count"] == series["trainers 2 -> 3"]["count"] == 3
    assert series["trainers 3 -> 2"]["lastObservedTime"] < series["trainers 2 -> 3"]["lastObservedTime"]
    assert stage.rest(seconds=300) == 0


# --- masters and parameter servers ---


def test_servers_are_held_to_their_nodes_until_they_are_there(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=2))
    stage.step()
    assert required(stage.get(*SET))
    stage.settle()

    assert not required(stage.get(*SET))
    assert required(stage.get("Pod", "train-pserver-0")), "a pod that has its place is left alone"


def let_a_server_be_stuck(stage: Stage, message: str = "") -> str:
    """Let the scheduler find no node for a parameter server, and say this about it; gives its UID."""
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    stage.step()
    stage.run_sets()
    stage.refuse("train-pserver-0", message)
    return uid_of_server(stage)


def uid_of_server(stage: Stage) -> str:
    return str((stage.get("Pod", "train-pserver-0") or {})["metadata"]["uid"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CLAIM, f"`train-pserver-0` found no node: {CLAIM}"),
        ("", "its masters and parameter servers found no node"),
    ],
    ids=["said", "silent"],
)
def test_servers_that_cannot_go_to_their_node_may_go_elsewhere(stage: Stage, text: str, reason: str) -> None:
    stuck = let_a_server_be_stuck(stage, text)

    stage.step(seconds=10)
    assert uid_of_server(stage) == stuck
    taken = stage.step(seconds=11).taken
    stage.run_sets()

    assert uid_of_server(stage) != stuck
    assert not required(stage.get("Pod", "train-pserver-0"))
    reasons = {action.ref.kind: action.why for action in taken if action.ref.name.startswith("train-pserver")}
    assert reasons == dict.fromkeys(("StatefulSet", "Pod"), f"{reason}; no longer held to the planned nodes")


def test_a_server_is_not_made_again_as_it_was_where_its_set_could_not_be_changed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **options: object) -> None:
        raise TransientError("the server is busy")

    stuck = let_a_server_be_stuck(stage)
    with monkeypatch.context() as patched:
        patched.setattr(stage.cluster, "apply", refused)
        stage.step(seconds=21)
    assert uid_of_server(stage) == stuck
    stage.step(seconds=3)
    stage.run_sets()

    assert not required(stage.get("Pod", "train-pserver-0"))


def test_a_stuck_trainer_is_withdrawn_and_its_node_passed_over(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, cpu="8"))
    stage.step()
    bound = {"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    stage.memory.patch(pod_ref(stage.trainers()[0]), bound)
    stage.refuse_pods()

    stage.step(seconds=20)

    assert stage.barred()
    assert len(stage.trainers()) == 1


def test_while_no_scheduler_looks_at_them_pods_just_wait(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.step()
    stage.run_sets()
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in stage.all("Pod")}

    for _ in range(4):
        stage.step(seconds=10)

    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in stage.all("Pod")} == before
    assert not stage.barred()
    stage.settle()
    assert stage.status()["phase"] == "Running"


def step_with_refusals(stage: Stage, *numbers: int) -> Pass:
    """Do one pass of whose writes these are refused."""
    refuse(stage, TransientError("busy"), *numbers)
    report = stage.step()
    take(stage)
    return report


def test_of_what_surrounds_the_trainers_only_what_was_refused_is_written_again(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1, with_master=True))
    first = step_with_refusals(stage, 2)
    refused = [action.ref for action, _ in first.refused]
    assert sum(action.verb == "apply" for action in first.actions) > len(refused) == 1

    second = stage.step(seconds=3)

    assert [action.ref for action in second.actions if action.verb == "apply"] == refused
    stage.settle()
    assert stage.status()["phase"] == "Running"


def test_servers_are_held_to_their_nodes_though_no_set_came_off_at_first(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1, with_master=True))
    first = step_with_refusals(stage, *range(1, 99))
    assert not stage.all("StatefulSet", "apps/v1")
    hints = first.plan.decisions["default/train"].hints

    stage.step(seconds=3)

    for role in ("master", "pserver"):
        (term,) = required(stage.get("StatefulSet", f"train-{role}", "apps/v1"))["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == list(hints[role])


def test_trainers_of_a_job_whose_server_is_on_a_dead_node_are_lent_till_it_is_back(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=8, pservers=1))
    stage.put(training_job("other", minimum=1, maximum=16))
    stage.settle()
    before = len(stage.trainers("other"))
    ref = let_hang(stage, "train-pserver-0")
    stage.settle()
    assert stage.status()["phase"] != "Paused", "a server that is being moved is no reason to lose trainers"
    assert "should have ended" not in stage.status()["reason"]

    stage.step(seconds=90)
    stage.settle()

    assert stage.status()["phase"] == "Paused"
    degraded = condition(stage, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "Paused")
    assert "`train-pserver-0` should have ended" in stage.status()["reason"]
    assert stage.events().count("Paused") == 1
    assert stage.trainers() == []
    assert len(stage.trainers("other")) > before
    assert stage.get(*SET) is not None
    assert stage.rest(seconds=5) == 0
    stage.restart()
    assert stage.rest(seconds=10) == 0, "a new leader sees what this one saw"

    let_go(stage, ref)
    for _ in range(4):
        stage.settle()

    assert stage.status()["phase"] == "Running"
    assert len(stage.trainers()) >= 4
    assert stage.job()["status"]["startTime"]


def test_a_job_that_is_suspended_while_paused_lets_go_of_its_servers(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.settle()
    let_hang(stage, "train-pserver-0")
    stage.step(seconds=90)
    assert stage.status()["phase"] == "Paused"

    suspend(stage)
    stage.settle()

    assert stage.status()["phase"] == "Suspended"
    stateful_set = stage.get(*SET)
    assert stateful_set is not None and stateful_set["spec"]["replicas"] == 0


# --- what belongs to others ---


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


@pytest.mark.parametrize("kind", ["Service", "StatefulSet"])
def test_an_object_of_somebody_else_with_the_same_name_is_left_alone(stage: Stage, kind: str) -> None:
    foreign = foreign_object(kind)
    version = foreign["apiVersion"]
    stage.put(foreign)
    before = stage.get(kind, "train-pserver", version)
    stage.put(training_job(minimum=1, maximum=2, pservers=1))

    stage.rest(seconds=20)

    assert stage.get(kind, "train-pserver", version) == before
    assert "Refused" in stage.events()
    stage.delete(kind, "train-pserver", version)
    stage.clock.now_ms += 60_000
    stage.settle()
    assert stage.status()["phase"] == "Running"
    owners = (stage.get(kind, "train-pserver", version) or {})["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["train"]


def foreign_object(kind: str) -> Obj:
    metadata, labels = {"name": "train-pserver", "namespace": "default"}, {"app": "web"}
    if kind == "Service":
        spec: Obj = {"ports": [{"port": 80}], "selector": labels}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    container = {"name": "main", "image": "example.com/x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "serviceName": "web", "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


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


def test_what_was_decided_about_a_job_is_not_written_to_its_namesake(stage: Stage) -> None:
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


# --- writes that are refused, or not made ---


def test_a_dry_run_writes_nothing(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    stage.restart(is_dry=True)

    report = stage.step()

    assert stage.cluster.writes == 0
    assert "create Pod default/train-trainer-0" in "\n".join(map(str, report.actions))


@pytest.mark.parametrize(
    ("denied", "reason"), [({"patch TrainingJob"}, "Refused"), (set(), "Admitted")], ids=str
)
def test_what_the_status_could_not_say_is_not_told(stage: Stage, denied: set[str], reason: str) -> None:
    stage.put(training_job())
    stage.cluster.denied = denied
    refuse(stage, ConflictError("it was modified"), 0)
    for _ in range(3):
        stage.step(seconds=5)
    assert set(stage.events()) == {reason}


def test_a_trainer_whose_deletion_was_refused_is_still_known(stage: Stage) -> None:
    """A conflict may mean another pod of that name, but not if the live one is the very same."""
    stage.put(training_job(minimum=1, maximum=4))
    stage.settle()
    stage.memory.patch(job_ref(stage), {"spec": {"trainer": {"max-instance": 2}}})
    refuse(stage, ConflictError("changed meanwhile"))
    stage.step()
    assert len([pod for pod in stage.cache.pods.values() if pod.role == "trainer"]) == 4

    take(stage)
    stage.settle()

    assert len(stage.trainers()) == 2


@pytest.mark.parametrize(
    "error",
    [TransientError("too many requests"), ForbiddenError("exceeded quota: pods", why="quota")],
    ids=["busy", "quota"],
)
def test_what_the_cluster_refuses_is_tried_again_later(stage: Stage, error: Exception) -> None:
    stage.put(training_job(minimum=1, maximum=1))
    refuse(stage, error)
    assert stage.step().refused
    assert stage.status() == {}
    take(stage)

    stage.step(seconds=3)

    assert stage.status()["phase"] == "Admitted"
    assert stage.trainers() == ["train-trainer-0"]


def test_a_status_that_does_not_stay_is_not_written_over_and_over(stage: Stage) -> None:
    stage.put(training_job(minimum=9, maximum=9, cpu="4"))
    stage.step()
    before = stage.cluster.writes

    for _ in range(5):  # as where the definition knows fewer fields
        stage.memory.patch(job_ref(stage), {"status": {"selector": None}}, subresource="status")
        stage.step(seconds=5)

    assert stage.cluster.writes == before + 1


def test_why_the_cluster_takes_no_pods_stands_in_the_status(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(obj: dict[str, Any], **options: object) -> object:
        if obj["kind"] == "Pod" and not options.get("dry_run"):
            raise ForbiddenError(f"exceeded quota by {obj['metadata']['name']}", why="quota")
        return create(obj, **options)

    create: Any = stage.cluster.create
    stage.put(training_job(minimum=1, maximum=3))
    with monkeypatch.context() as patched:
        patched.setattr(stage.cluster, "create", refused)
        stage.step()
        for _ in range(3):
            stage.step(seconds=1)
            assert stage.status()["reason"] == "exceeded quota by train-trainer-0"
        message = "ready: 0 of 1 trainer; refused: exceeded quota by train-trainer-0"
        assert condition(stage, "GangReady")["message"] == message
    stage.clock.now_ms += 4_000
    stage.settle()

    assert "reason" not in stage.status()
