"""Services and disruption budgets of running jobs: made again, mended, and otherwise left alone."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic.training_job import KIND
from mlstack.errors import ForbiddenError
from mlstack.kube.client import ObjectRef
from tests.support.elastic import training_job
from tests.support.stage import JOBS, Stage

pytestmark = pytest.mark.slow

Obj = dict[str, Any]

SERVICE = ("Service", "v1")
BUDGET = ("PodDisruptionBudget", "policy/v1")
SET = ("StatefulSet", "apps/v1")


@pytest.fixture
def stage() -> Stage:
    """Give a cluster with one job that runs."""
    stage = Stage("n1", "n2")
    stage.put(training_job(minimum=2, maximum=3, pservers=1, with_master=True))
    stage.settle()
    stage.step()
    stage.cluster.writes = 0
    return stage


def ref(kind: tuple[str, str], name: str) -> ObjectRef:
    return ObjectRef(kind[1], kind[0], "default", name)


def change(stage: Stage, kind: tuple[str, str], name: str, patch: Obj) -> None:
    """Change an object as somebody else."""
    stage.memory.patch(ref(kind, name), patch)


@pytest.mark.parametrize("is_new_leader", [False, True], ids=["the same", "a new leader"])
@pytest.mark.parametrize("name", ["train-trainer", "train-pserver", "train-master"])
@pytest.mark.parametrize("kind", [SERVICE, BUDGET], ids=lambda kind: str(kind[0]))
def test_what_was_deleted_is_made_again_alone(
    stage: Stage, kind: tuple[str, str], name: str, is_new_leader: bool
) -> None:
    before = stage.get(kind[0], name, kind[1])
    stage.delete(kind[0], name, kind[1])
    if is_new_leader:
        stage.restart()

    done = stage.step()

    restored = stage.get(kind[0], name, kind[1])
    assert before is not None and restored is not None
    assert restored["spec"] == before["spec"]
    assert [str(action.ref) for action in done.actions] == [str(ref(kind, name))]
    assert stage.rest() == 0
    assert stage.status()["phase"] == "Running"


def test_all_that_was_deleted_at_once_is_made_again(stage: Stage) -> None:
    gone = [
        (kind, str(obj["metadata"]["name"])) for kind in (SERVICE, BUDGET, SET) for obj in stage.all(*kind)
    ]
    for kind, name in gone:
        stage.delete(kind[0], name, kind[1])

    stage.settle()

    assert [lost for lost in gone if stage.get(lost[0][0], lost[1], lost[0][1]) is None] == []
    assert stage.status()["phase"] == "Running"


def test_a_budget_that_keeps_too_little_is_mended(stage: Stage) -> None:
    change(stage, BUDGET, "train-trainer", {"spec": {"minAvailable": 0}})

    stage.step()

    budget = stage.get(BUDGET[0], "train-trainer", BUDGET[1])
    assert budget is not None and budget["spec"]["minAvailable"] == 2
    assert stage.rest() == 0


def test_a_service_that_selects_other_pods_is_mended(stage: Stage) -> None:
    change(stage, SERVICE, "train-pserver", {"spec": {"selector": {"mlstack.dev/role": "trainer"}}})

    stage.step()

    service = stage.get(SERVICE[0], "train-pserver")
    assert service is not None and service["spec"]["selector"]["mlstack.dev/role"] == "pserver"


def test_whoever_changes_it_over_and_over_is_answered_once_a_minute(stage: Stage) -> None:
    for _ in range(60):
        change(stage, BUDGET, "train-trainer", {"spec": {"minAvailable": 0}})
        stage.step(seconds=5)

    assert 4 <= stage.cluster.writes <= 6


def test_a_budget_in_shares_is_left_since_no_server_takes_both_numbers(stage: Stage) -> None:
    change(stage, BUDGET, "train-trainer", {"spec": {"minAvailable": None, "maxUnavailable": "50%"}})

    assert stage.rest() == 0


def test_what_lost_our_label_gets_it_back_once(stage: Stage) -> None:
    change(stage, SERVICE, "train-trainer", {"metadata": {"labels": {"mlstack.dev/training-job": None}}})

    stage.step()

    service = stage.get(SERVICE[0], "train-trainer")
    assert service is not None and service["metadata"]["labels"]["mlstack.dev/training-job"] == "train"
    assert stage.rest() == 0


def test_a_job_without_a_fewest_number_needs_no_budget() -> None:
    stage = Stage("n1")
    stage.put(training_job(minimum=0, maximum=2))
    stage.settle()
    stage.step()

    assert stage.all(*BUDGET) == []
    assert stage.rest() == 0


def let_fewest_be(stage: Stage, number: int) -> None:
    job = ObjectRef(JOBS, "TrainingJob", "default", "train")
    stage.memory.patch(job, {"spec": {"trainer": {"min-instance": number}}})


@pytest.mark.parametrize("is_new_leader", [False, True], ids=["the same", "a new leader"])
def test_the_budget_goes_with_the_fewest_number_and_comes_again(stage: Stage, is_new_leader: bool) -> None:
    before = names(stage)
    let_fewest_be(stage, 0)
    if is_new_leader:
        stage.restart()

    stage.settle()

    assert before - names(stage) == {("PodDisruptionBudget", "train-trainer")}
    assert names(stage) < before
    stage.step()
    assert stage.rest() == 0
    let_fewest_be(stage, 1)
    stage.settle()
    assert names(stage) == before


def names(stage: Stage) -> set[tuple[str, str]]:
    """Give kind and name of what stands around the pods."""
    return {
        (kind[0], str(obj["metadata"]["name"])) for kind in (SERVICE, BUDGET, SET) for obj in stage.all(*kind)
    }


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="nobody"),
        pytest.param(
            [{"apiVersion": JOBS, "kind": "TrainingJob", "name": "train", "uid": "old", "controller": True}],
            id="an-earlier-job",
        ),
    ],
)
def test_a_budget_of_somebody_else_stays_whatever_its_name(stage: Stage, owners: list[Obj]) -> None:
    change(stage, BUDGET, "train-trainer", {"metadata": {"ownerReferences": owners}})
    let_fewest_be(stage, 0)

    stage.settle()

    assert ("PodDisruptionBudget", "train-trainer") in names(stage)
    assert stage.rest() == 0


def test_a_budget_that_somebody_holds_is_deleted_once(stage: Stage) -> None:
    change(stage, BUDGET, "train-trainer", {"metadata": {"finalizers": ["example.com/audit"]}})
    let_fewest_be(stage, 0)
    stage.settle()
    stage.step()

    assert stage.rest() == 0


def test_for_jobs_that_wait_or_ended_nothing_is_made_again(stage: Stage) -> None:
    suspended = {"spec": {"suspend": True}}
    stage.memory.patch(ObjectRef(JOBS, "TrainingJob", "default", "train"), suspended)
    stage.settle()
    stage.delete("Service", "train-trainer")

    stage.rest()

    assert stage.get("Service", "train-trainer") is None
    stage.memory.patch(ObjectRef(JOBS, "TrainingJob", "default", "train"), {"spec": {"suspend": False}})
    stage.settle()
    assert stage.get("Service", "train-trainer") is not None


def reasons(stage: Stage) -> set[str]:
    """Let the controller do a pass, and give why it applied what it did."""
    return {action.why for action in stage.step().actions if action.verb == "apply"}


@pytest.mark.parametrize("pservers", [0, 1], ids=["no servers", "servers"])
def test_only_what_was_lost_is_said_to_be_restored(pservers: int) -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job(minimum=2, maximum=3, pservers=pservers))
    assert reasons(stage) == {"admitted"}

    stage.restart()
    assert reasons(stage) == {"written again, not known to be complete"}

    stage.settle()
    stage.delete("Service", "train-trainer")
    assert reasons(stage) == {"restored"}


@pytest.mark.parametrize("is_new_leader", [False, True], ids=["the same", "a new leader"])
def test_after_a_scale_it_is_said_that_the_job_was_changed(stage: Stage, is_new_leader: bool) -> None:
    change(stage, (KIND, JOBS), "train", {"spec": {"trainer": {"max-instance": 4}}})
    if is_new_leader:
        stage.restart()

    assert reasons(stage) == {"the job was changed"}


def test_what_was_refused_is_tried_again(stage: Stage) -> None:
    refused = iter([False, True])  # the status is written first

    def refuse() -> None:
        if next(refused, False):
            raise ForbiddenError("exceeded quota", why="quota")

    change(stage, (KIND, JOBS), "train", {"spec": {"trainer": {"max-instance": 4}}})
    stage.cluster.refuses = refuse

    assert reasons(stage) == {"the job was changed"}
    stage.clock.now_ms += 60_000
    assert reasons(stage) == {"tried again"}


@pytest.mark.parametrize("is_new_leader", [False, True], ids=["same-leader", "new-leader"])
def test_a_service_of_somebody_else_is_named_and_left_alone_until_it_is_gone(is_new_leader: bool) -> None:
    stage = Stage("n1", "n2")
    spec = {"ports": [{"port": 80}], "selector": {"app": "other"}}
    metadata = {"name": "train-pserver", "namespace": "default"}
    stage.memory.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    stage.put(training_job(minimum=1, maximum=2, pservers=1))
    for _ in range(20):
        stage.step(seconds=5)
        stage.run_sets()
        stage.run_pods()
    if is_new_leader:
        stage.restart()
        stage.step(seconds=5)
        stage.step(seconds=5)

    (degraded,) = (condition for condition in stage.status()["conditions"] if condition["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "NameTaken")
    assert "`Service default/train-pserver` is there" in stage.status()["reason"]
    service = stage.get("Service", "train-pserver")
    assert service is not None and service["spec"]["selector"] == {"app": "other"}

    stage.delete("Service", "train-pserver")
    stage.step(seconds=60)
    stage.step(seconds=5)

    (degraded,) = (condition for condition in stage.status()["conditions"] if condition["type"] == "Degraded")
    assert degraded["status"] == "False"
