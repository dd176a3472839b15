"""Gangs whose pods the API server does not take: they cost others nothing, give all back, and say so."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from mlstack.clock import time_ms
from mlstack.elastic.inspect import decide, job_statuses, read_snapshot
from mlstack.elastic.snapshot import PolicyConfig
from mlstack.errors import ForbiddenError, TransientError
from mlstack.kube.client import ObjectRef
from tests.support.elastic import pod, training_job
from tests.support.stage import Stage

pytestmark = pytest.mark.slow

Obj = dict[str, Any]

WORDS = 'pods "bad-trainer-0" is forbidden: error looking up service account default/nobody'
SLOW_S = 5
STEP_S = 60


@pytest.fixture
def stage() -> Stage:
    return Stage("n1", "n2")


def refusing(*names: str, error: Callable[[str], Exception] = ForbiddenError) -> Callable[[Obj], None]:
    """Give an admission that takes no pods whose name begins so, by dry run or not."""

    def admit(obj: Obj) -> None:
        if obj["kind"] == "Pod" and obj["metadata"]["name"].startswith(names):
            raise error(WORDS)

    return admit


def conditions(stage: Stage, name: str) -> dict[str, tuple[str, str, str]]:
    rows = stage.status(name)["conditions"]
    return {row["type"]: (row["status"], row["reason"], row["message"]) for row in rows}


def uids(stage: Stage, name: str) -> set[str]:
    names = stage.trainers(name)
    return {pod["metadata"]["uid"] for pod in stage.all("Pod") if pod["metadata"]["name"] in names}


def quota(*, used: Obj | None = None, **limits: str) -> Obj:
    hard = {key.replace("_", "."): value for key, value in limits.items()}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": used or dict.fromkeys(hard, "0")},
    }


def rich(stage: Stage) -> set[str]:
    """Let a job of others have the whole cluster, and give the UIDs of its trainers."""
    stage.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}})
    stage.put(training_job("rich", namespace="others", minimum=1, maximum=16))
    stage.settle()
    return uids(stage, "rich")


@pytest.mark.parametrize("policy", ["fair", "throughput", "edl"])
def test_a_gang_that_is_refused_takes_nothing_from_others(policy: str) -> None:
    stage = Stage("n1", "n2")
    stage.restart(PolicyConfig(mode=policy))
    before = rich(stage)
    stage.cluster.admits = refusing("bad-")

    stage.put(training_job("bad", minimum=2, maximum=16, pservers=1, with_master=True, priority=9))
    for index in range(6):  # more than are tried in one pass
        stage.put(training_job(f"bad-{index}", minimum=12, maximum=12, priority=9))
    for _ in range(15):
        stage.step(seconds=20)
        stage.run_sets()
        stage.run_pods()

    assert uids(stage, "rich") == before
    assert not [pod for pod in stage.all("Pod") if pod["metadata"]["name"].startswith("bad")]
    assert [stage.get("Service", f"bad-{role}") for role in ("trainer", "pserver", "master")] == [None] * 3
    status, reason, message = conditions(stage, "bad")["Admitted"]
    assert (status, reason) == ("False", "Refused") and WORDS in message and "tried again at" in message
    assert conditions(stage, "bad")["Degraded"] == ("True", "Refused", message)
    assert stage.status("bad")["phase"] == "Pending"
    assert stage.status("bad")["reason"] == message


def test_what_admission_adds_to_pods_is_planned_with(stage: Stage) -> None:
    sidecar = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": "500m"}}}
    stage.cluster.admits = lambda obj: obj.get("spec", {}).get("containers", []).append(sidecar)
    stage.put(training_job("large", minimum=11, maximum=11))
    stage.put(training_job("train", maximum=16))
    for _ in range(6):
        stage.settle()
        stage.clock.now_ms += 20_000

    assert (stage.trainers("large"), len(stage.trainers())) == ([], 10)
    assert "no room for 16.5 cpu" in stage.status("large")["reason"]
    assert stage.events().count("Admitted") == 1 and stage.rest(seconds=50) == 0


def tries(stage: Stage, *, restarts: bool, seconds: int) -> list[int]:
    """Give after how many seconds the gang was tried."""
    tries_s, begun_ms = [], stage.clock.now_ms
    for _ in range(seconds // STEP_S):
        count = len(stage.cluster.tries)
        if restarts:
            stage.restart()
        stage.step(seconds=STEP_S)
        if len(stage.cluster.tries) > count:
            tries_s.append((stage.clock.now_ms - begun_ms) // 1000)
    return tries_s


@pytest.mark.parametrize("restarts", [False, True], ids=["one leader", "a new leader each time"])
def test_a_refused_gang_is_tried_after_pauses_that_grow_to_an_hour(stage: Stage, *, restarts: bool) -> None:
    stage.cluster.admits = refusing("bad-")
    stage.put(training_job("bad"))

    at_s = tries(stage, restarts=restarts, seconds=5 * 3600)

    pauses = [later - earlier for earlier, later in pairwise(at_s)]
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600][: len(pauses)]
    assert len(pauses) > 7
    events = [event for event in stage.all("Event", "events.k8s.io/v1") if event["reason"] == "Refused"]
    assert len(events) >= len(at_s) and all(WORDS in event["note"] for event in events)


def test_nothing_is_written_while_a_refused_gang_waits(stage: Stage) -> None:
    stage.cluster.admits = refusing("bad-")
    stage.put(training_job("bad"))
    stage.step()
    stage.step()

    assert stage.rest(seconds=50) == 0


def test_a_gang_is_admitted_once_it_is_taken_and_a_changed_one_is_tried_at_once(stage: Stage) -> None:
    stage.cluster.admits = refusing("bad-")
    stage.put(training_job("bad"))
    stage.step()
    stage.cluster.admits = lambda obj: None
    stage.step(seconds=30)
    assert stage.trainers("bad") == []

    stage.memory.patch(ObjectRef.of(stage.job("bad")), {"spec": {"passes": 2}})
    stage.settle()

    assert conditions(stage, "bad")["Admitted"][:2] == ("True", "Admitted")
    assert conditions(stage, "bad")["Degraded"][:2] == ("False", "AsExpected")
    assert "setbacks" not in stage.status("bad")


def test_what_may_pass_by_itself_is_tried_again_soon(stage: Stage) -> None:
    stage.cluster.admits = refusing("train-", error=TransientError)
    stage.put(training_job())
    stage.step()
    assert conditions(stage, "train")["Admitted"][1] == "Refused"
    stage.cluster.admits = lambda obj: None

    stage.step(seconds=2)

    assert stage.trainers()


def test_a_gang_is_tried_once_for_each_role_when_there_is_room_for_it(stage: Stage) -> None:
    stage.put(training_job("big", minimum=9, maximum=9, cpu="4", pservers=2))
    stage.settle()
    assert stage.cluster.tries == []

    stage.put(training_job(minimum=2, maximum=3, pservers=2, with_master=True))
    stage.settle()

    assert sorted(stage.cluster.tries) == ["train-master-0", "train-pserver-0", "train-trainer-0"]


def test_a_quota_that_is_too_small_for_the_gang_refuses_it_as_a_whole(stage: Stage) -> None:
    before = rich(stage)
    stage.put(quota(pods="7", used={"pods": "3"}))

    stage.put(training_job("bad", minimum=3, maximum=9, pservers=2, priority=3))
    stage.put(training_job("small", minimum=1, maximum=1, pservers=0))
    for _ in range(10):
        stage.step(seconds=SLOW_S)
        stage.run_sets()
        stage.run_pods()

    message = conditions(stage, "bad")["Admitted"][2]
    assert "exceeded quota: few, for the whole gang: pods: 5 more, 3 of 7 used" in message
    assert stage.trainers("small")
    assert len(uids(stage, "rich") & before) == 15  # one went for `small`
    assert stage.get("Service", "bad-trainer") is None


@pytest.mark.parametrize(
    ("hard", "word"),
    [
        ({"requests_cpu": "4"}, "requests.cpu: 5 more, 0 of 4 used"),
        ({"cpu": "4900m"}, "cpu: 5 more, 0 of 4.9 used"),
        ({"memory": "100Mi"}, "memory: 320Mi more, 0 of 100Mi used"),
        ({"services": "1"}, "services: 2 more, 0 of 1 used"),
        ({"count/statefulsets.apps": "0"}, "count/statefulsets.apps: 1 more, 0 of 0 used"),
        ({"pods": "5", "requests_cpu": "5", "services": "2"}, ""),
        ({"requests_nvidia.com/gpu": "0"}, ""),
    ],
)
def test_quotas_are_weighed_by_all_that_they_count(stage: Stage, hard: dict[str, str], word: str) -> None:
    stage.put(quota(**hard))  # type: ignore[arg-type]  # names alone

    stage.put(training_job("gang", minimum=3, maximum=3, pservers=2))
    stage.settle()

    status, _, message = conditions(stage, "gang")["Admitted"]
    assert (status, word in message) == ("False" if word else "True", True)


def partial_s(stage: Stage, name: str, size: int, *, seconds: int) -> int:
    """Give the longest time for which there were some of a gang's pods and not all, in seconds."""
    longest = now = 0
    for _ in range(seconds):
        stage.step(seconds=1)
        stage.run_sets()
        stage.run_pods()
        count = sum(pod["metadata"]["name"].startswith(f"{name}-") for pod in stage.all("Pod"))
        now = now + 1 if 0 < count < size else 0
        longest = max(longest, now)
    return longest


def test_a_gang_of_which_some_pods_are_refused_gives_all_back_soon(stage: Stage) -> None:
    stage.cluster.admits = refusing("bad-trainer-2", "bad-trainer-3")
    stage.put(training_job("bad", minimum=4, maximum=4, pservers=1))
    stage.put(training_job("next", minimum=11, maximum=11))

    assert 0 < partial_s(stage, "bad", 5, seconds=40) <= 20
    assert stage.trainers("bad") == []
    assert len(stage.trainers("next")) == 11
    stage.settle()
    assert stage.status("next")["phase"] == "Running"
    assert conditions(stage, "bad")["Admitted"][:2] == ("False", "Refused")
    again = [record for record in stage.status("bad")["scaleRecords"] if record["to"]]
    for _ in range(20):
        stage.step(seconds=30)
    assert stage.status("bad")["setbacks"]["gangRetries"] == len(again) or stage.trainers("bad") == []


def test_what_a_stateful_set_is_refused_is_read_from_its_events(stage: Stage) -> None:
    stage.put(training_job("bad", minimum=1, maximum=1, pservers=2))
    message = "create Pod bad-pserver-1 in StatefulSet bad-pserver failed error: exceeded quota: few"
    longest = now = 0
    for second in range(30):
        stage.step(seconds=1)
        stage.run_sets()
        if stage.get("Pod", "bad-pserver-1"):
            stage.delete("Pod", "bad-pserver-1")
        stage.run_pods()
        if second == 0:
            stage.put(failed_create(stage, "bad-pserver", message))
        now = now + 1 if 0 < len(stage.all("Pod")) < 3 else 0
        longest = max(longest, now)

    assert 0 < longest <= 20
    assert stage.all("Pod") == []
    assert message in conditions(stage, "bad")["Degraded"][2]


def failed_create(stage: Stage, name: str, message: str) -> Obj:
    about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1", "namespace": "default"},
        "involvedObject": about,
        "reason": "FailedCreate",
        "message": message,
    }


def test_trainers_beyond_the_gang_that_are_refused_leave_their_room_to_others(stage: Stage) -> None:
    def admit(obj: Obj) -> None:
        taken = len(stage.trainers("capped"))
        if obj["kind"] == "Pod" and obj["metadata"]["name"].startswith("capped-") and taken >= 3:
            raise ForbiddenError(WORDS)

    stage.cluster.admits = admit
    stage.put(training_job("capped", minimum=2, maximum=40))
    stage.put(training_job("other", minimum=2, maximum=13))
    for _ in range(30):
        stage.step(seconds=2)
        stage.run_pods()

    assert len(stage.trainers("capped")) == 3
    assert len(stage.trainers("other")) == 13
    assert conditions(stage, "capped")["Admitted"][0] == "True"
    assert stage.status("capped")["trainer"]["desired"] == 3
    status, reason, message = conditions(stage, "capped")["Degraded"]
    assert (status, reason) == ("True", "Refused")
    assert message.startswith(f"no more than 3 trainers: {WORDS}; tried again at ")
    before = uids(stage, "other")
    tried = tries(stage, restarts=True, seconds=4000)
    assert 3 <= len(tried) <= 6 and uids(stage, "other") == before

    stage.cluster.admits = lambda obj: None
    stage.memory.patch(ObjectRef.of(stage.job("capped")), {"spec": {"passes": 2}})
    for _ in range(10):
        stage.step(seconds=10)
        stage.run_pods()
    assert len(stage.trainers("capped")) > 3
    assert conditions(stage, "capped")["Degraded"][1] == "AsExpected"


@pytest.mark.parametrize(("size", "is_admitted"), [(2, True), (17, False)])
def test_a_quota_that_the_plan_makes_room_in_holds_nobody_up(
    stage: Stage, size: int, *, is_admitted: bool
) -> None:
    """Its own namespace alone gives up trainers for the gang, and not for one that could never be taken."""
    stage.put(training_job("first", minimum=1, maximum=16))
    stage.settle()
    stage.put(quota(pods="16", used={"pods": "16"}))

    stage.put(training_job("second", minimum=size, maximum=size, cpu="100m"))
    stage.settle()

    assert len(stage.trainers("second")) == (size if is_admitted else 0)
    assert (len(stage.trainers("first")) < 16) == is_admitted


def test_a_quota_that_pods_on_their_way_out_still_fill_is_asked_again_soon(stage: Stage) -> None:
    stage.put(quota(pods="2", used={"pods": "2"}))
    stage.put(training_job("again"))
    old = pod("old", node="n1")
    old["metadata"]["finalizers"] = ["example.com/slow"]
    stage.put(old)
    stage.delete("Pod", "old")
    stage.step()
    assert conditions(stage, "again")["Admitted"][1] == "Refused"

    stage.memory.patch(
        ObjectRef("v1", "ResourceQuota", "default", "few"),
        {"status": {"used": {"pods": "0"}}},
        subresource="status",
    )
    stage.step(seconds=3)

    assert stage.trainers("again")


def test_a_webhook_that_does_not_answer_in_the_midst_of_a_gang_is_a_refusal(stage: Stage) -> None:
    def admit(obj: Obj) -> None:
        if obj["kind"] == "Pod" and obj["metadata"]["name"] == "train-trainer-1" and stage.cluster.writes:
            raise TransientError("admission webhook `guard` does not answer", webhook="guard")

    stage.put(training_job(minimum=2, maximum=2))
    stage.cluster.admits = admit

    assert 0 < partial_s(stage, "train", 2, seconds=30) <= 20
    assert stage.trainers() == []
    assert "webhook `guard` does not answer" in conditions(stage, "train")["Degraded"][2]


def test_a_stateful_set_of_somebody_else_costs_others_nothing_a_second_time(stage: Stage) -> None:
    stranger = {"app": "other"}
    template = {"metadata": {"labels": stranger}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    spec = {"selector": {"matchLabels": stranger}, "template": template, "replicas": 0, "serviceName": "x"}
    metadata = {"name": "bad-pserver", "namespace": "default"}
    stage.put({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec})
    rich(stage)
    stage.put(training_job("bad", minimum=2, maximum=2, pservers=1, priority=5, with_master=True))
    for _ in range(30):
        done = stage.step(seconds=1)
        assert done.decisions["default/bad"].target or not done.refused  # it is not asked to have no pods
        stage.run_pods()
    assert conditions(stage, "bad")["Admitted"][1] == "Refused"
    before = uids(stage, "rich")

    for _ in range(60):
        stage.step(seconds=10)
        stage.run_pods()

    assert uids(stage, "rich") >= before
    assert "`StatefulSet default/bad-pserver` is there" in conditions(stage, "bad")["Degraded"][2]


def test_a_slow_answer_keeps_nobody_else_waiting(stage: Stage) -> None:
    waiting: list[Callable[[], None]] = []

    def ask(works: Any) -> None:
        for work in works:
            is_slow = any(cell.cell_contents.job.name == "slow" for cell in _trials_in(work))
            waiting.append(work) if is_slow else work()

    stage.restart(ask=ask)
    stage.put(training_job("slow", minimum=1, maximum=1))
    stage.put(training_job("quick", minimum=1, maximum=1))
    stage.step()
    assert (len(stage.trainers("quick")), stage.trainers("slow"), len(waiting)) == (1, [], 1)
    stage.step()
    assert len(waiting) == 1

    waiting.pop()()
    stage.step()

    assert len(stage.trainers("slow")) == 1


def _trials_in(work: Any) -> list[Any]:
    return [cell for cell in work.__closure__ or () if hasattr(cell.cell_contents, "job")]


def test_plan_and_status_tell_the_same_and_that_it_is_not_all(stage: Stage) -> None:
    stage.cluster.admits = refusing("bad-", error=lambda words: ForbiddenError(5 * words))
    stage.put(training_job("bad"))
    stage.step()

    message = conditions(stage, "bad")["Admitted"][2]
    assert "…; tried again at" in message and len(message) < 350
    row = decide(read_snapshot(stage.memory, stage.clock.now_ms), PolicyConfig()).jobs[0]
    assert (row.target, row.cause, row.reasons) == (0, "refused", (f"refused: {message}",))
    assert job_statuses(stage.memory).jobs[0].reason == message


def test_a_dry_run_says_what_is_refused_and_writes_nothing(stage: Stage) -> None:
    stage.cluster.admits = refusing("bad-")
    stage.restart(is_dry=True)
    stage.put(training_job("bad"))

    report = stage.step()

    assert stage.cluster.writes == 0
    assert any(WORDS in event.text for event in report.events)


def test_a_running_gang_that_cannot_be_made_whole_gives_its_room_back(stage: Stage) -> None:
    stage.put(training_job("old", minimum=3, maximum=3))
    stage.settle()
    stage.cluster.admits = refusing("old-")

    stage.delete("Pod", "old-trainer-1")

    assert 0 < partial_s(stage, "old", 3, seconds=30) <= 20
    assert stage.trainers("old") == []
    assert conditions(stage, "old")["Degraded"][:2] == ("True", "Refused")
    assert time_ms(stage.status("old")["setbacks"]["gangRetryTime"]) > stage.clock.now_ms


# --- rights that the controller lacks ---


@pytest.mark.parametrize("right", ["apply Service", "delete Pod"])
def test_a_right_that_lacks_stands_in_the_status_while_it_does(stage: Stage, right: str) -> None:
    stage.put(training_job(minimum=1, maximum=4))
    stage.cluster.denied = {right}
    stage.settle()
    stage.memory.patch(ObjectRef.of(stage.job()), {"spec": {"trainer": {"max-instance": 2}}})
    for _ in range(6):
        stage.step(seconds=5)

    assert right in stage.status()["reason"]
    assert conditions(stage, "train")["Degraded"][:2] == ("True", "Refused")
    stage.cluster.denied.clear()
    stage.clock.now_ms += 60_000
    stage.settle()
    stage.step()
    assert stage.status()["phase"] == "Running"
    assert "reason" not in stage.status()
