"""Which priority a job counts with: what it asks for, and no more than its namespace is granted."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic.cache import ClusterCache
from mlstack.elastic.inspect import decide, job_statuses, read_snapshot
from mlstack.elastic.snapshot import PolicyConfig, PriorityGrants
from mlstack.kube.client import ObjectRef, WatchEvent
from tests.support.elastic import training_job
from tests.support.stage import Stage

pytestmark = pytest.mark.slow

Obj = dict[str, Any]

GRANTS = PriorityGrants(everywhere=0, namespaces={"others": 50, "yields": -5})
ABOVE = "asks for priority {}, and counts with {}, the highest of namespace `{}`"


@pytest.fixture
def stage() -> Stage:
    """Two nodes that a job of the namespace `others` fills."""
    stage = Stage("n1", "n2")
    stage.grant(GRANTS)
    for name in ("others", "yields"):
        stage.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    stage.put({**priority_class("gold", 200)})
    stage.put(training_job("rich", namespace="others", minimum=16, maximum=16))
    stage.settle()
    return stage


def priority_class(name: str, value: int) -> Obj:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value}


def quota(*names: str, pods: str = "20", namespace: str = "default", operator: str = "In") -> Obj:
    """Give a quota of pods of some classes: so an administrator lets a namespace use them."""
    match = {"scopeName": "PriorityClass", "operator": operator}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "classes", "namespace": namespace},
        "spec": {
            "hard": {"pods": pods},
            "scopeSelector": {"matchExpressions": [{**match, "values": list(names)} if names else match]},
        },
        "status": {"hard": {"pods": pods}, "used": {"pods": "0"}},
    }


def granted(stage: Stage, name: str, namespace: str = "default") -> tuple[str, str, str] | None:
    job = stage.memory.get(ObjectRef("paddlepaddle.org/v1", "TrainingJob", namespace, name))
    assert job is not None
    for condition in job["status"]["conditions"]:
        if condition["type"] == "PriorityGranted":
            return condition["status"], condition["reason"], condition["message"]
    return None


def test_a_priority_that_nobody_granted_takes_nothing_from_others(stage: Stage) -> None:
    stage.put(training_job("greedy", minimum=4, maximum=4, priority=1000))
    stage.settle()

    assert len(stage.trainers("rich")) == 16
    assert stage.trainers("greedy") == []
    assert granted(stage, "greedy") == ("False", "AboveNamespace", ABOVE.format(1000, 0, "default"))
    assert granted(stage, "rich", "others") is None


def test_a_job_takes_up_to_what_its_namespace_is_granted() -> None:
    stage = Stage("n1", "n2")
    stage.grant(GRANTS)
    stage.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}})
    stage.put(training_job("old", minimum=16, maximum=16, priority=7))
    stage.settle()
    stage.put(training_job("new", namespace="others", minimum=4, maximum=4, priority=80))
    stage.settle()

    assert (stage.trainers("old"), len(stage.trainers("new"))) == ([], 4)
    assert granted(stage, "new", "others") == ("False", "AboveNamespace", ABOVE.format(80, 50, "others"))
    note = next(obj["note"] for obj in stage.all("Event", "events.k8s.io/v1") if "taken off" in obj["note"])
    assert "taken off for others/new of priority 50, above its 0" in note


@pytest.mark.parametrize(
    ("asked", "namespace", "counts_with", "reason"),
    [
        (0, "default", 0, None),
        (-3, "default", -3, "Granted"),
        (1, "default", 0, "AboveNamespace"),
        (50, "others", 50, "Granted"),
        (51, "others", 50, "AboveNamespace"),
        (0, "yields", -5, "AboveNamespace"),
        (-9, "yields", -9, "Granted"),
    ],
)
def test_a_range_is_granted_to_namespaces(
    asked: int, namespace: str, counts_with: int, reason: str | None
) -> None:
    stage = Stage("n1")
    stage.grant(GRANTS)
    if namespace != "default":
        stage.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    stage.put(training_job("one", namespace=namespace, priority=asked))
    stage.settle()

    snapshot = read_snapshot(stage.memory, stage.clock.now_ms, grants=GRANTS)
    condition = granted(stage, "one", namespace)
    assert decide(snapshot, PolicyConfig()).jobs[0].priority == counts_with
    assert job_statuses(stage.memory).jobs[0].priority == counts_with
    assert (condition[1] if condition else None) == reason


@pytest.mark.parametrize(
    ("quota", "counts_with"),
    [
        (quota("gold"), 200),
        (quota("silver", "gold"), 200),
        (quota("gold", pods="0"), 0),
        (quota("silver"), 0),
        (quota(operator="Exists"), 0),
        (quota("gold", operator="NotIn"), 0),
        (None, 0),
    ],
    ids=["named", "one of two", "nothing left", "another", "any", "all but it", "no quota"],
)
def test_a_class_counts_where_a_quota_of_the_namespace_names_it(
    stage: Stage, quota: Obj | None, counts_with: int
) -> None:
    if quota:
        stage.put(quota)
    stage.put(training_job("one", minimum=4, maximum=4, priorityClassName="gold"))
    stage.settle()

    assert stage.status("one").get("priority", 0) == counts_with
    assert len(stage.trainers("one")) == (4 if counts_with else 0)
    condition = granted(stage, "one")
    assert condition is not None and condition[0] == str(bool(counts_with))
    assert "PriorityClass `gold`, 200" in condition[2]


def test_a_class_that_is_granted_lets_a_job_ask_for_as_much_in_numbers(stage: Stage) -> None:
    stage.put(quota("gold"))
    stage.put(training_job("one", minimum=1, maximum=1, priority=999))
    stage.settle()

    assert granted(stage, "one") == ("False", "AboveNamespace", ABOVE.format(999, 200, "default"))


def test_a_class_of_another_namespace_grants_nothing(stage: Stage) -> None:
    stage.put(quota("gold", namespace="yields"))
    stage.put(training_job("one", minimum=4, maximum=4, priorityClassName="gold"))
    stage.settle()

    assert stage.trainers("one") == []


def test_a_class_that_is_not_there_counts_as_none(stage: Stage) -> None:
    stage.put(training_job("one", minimum=4, maximum=4, priorityClassName="lost"))
    stage.settle()

    message = "there is no PriorityClass `lost`: the job counts with priority 0"
    assert granted(stage, "one") == ("False", "NoSuchClass", message)


def test_a_number_and_a_class_together_are_refused(stage: Stage) -> None:
    stage.put(training_job("one", priority=3, priorityClassName="gold"))
    stage.settle()

    assert "`priority` and `priorityClassName` both say" in stage.status("one")["reason"]


def test_status_says_what_a_job_counts_with_where_nothing_else_is_to_be_said() -> None:
    stage = Stage("n1", "n2")
    stage.grant(GRANTS)
    stage.put(training_job("one", minimum=1, maximum=1, priority=9))
    stage.settle()

    assert job_statuses(stage.memory).jobs[0].reason == ABOVE.format(9, 0, "default")


def shares(stage: Stage, *weights: tuple[str, int]) -> list[int]:
    """Let jobs of these namespaces and weights share twenty places, and give how many trainers each has."""
    stage.grant(GRANTS)
    for namespace in sorted({namespace for namespace, _ in weights} - {"default"}):
        stage.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for number, (namespace, weight) in enumerate(weights):
        stage.put(training_job(f"j{number}", namespace=namespace, minimum=1, maximum=41, weight=weight))
    for _ in range(12):
        stage.step(seconds=11)
        stage.run_pods()
    return [len(stage.trainers(f"j{number}")) for number in range(len(weights))]


def test_a_namespace_gains_nothing_by_weights() -> None:
    assert shares(Stage("n1", cpu="20"), ("default", 1), ("others", 1_000_000)) == [10, 10]


def test_weights_share_the_room_of_a_namespace() -> None:
    assert shares(Stage("n1", cpu="20"), ("default", 1), ("default", 3)) == [6, 14]
    trainers = shares(Stage("n1", cpu="20"), ("others", 1), ("others", 2_000_000_000), ("default", 1))
    assert trainers[0] <= 2 and trainers[2] in (6, 7)


def test_a_simulation_grants_everything() -> None:
    cache = ClusterCache()
    job = {**training_job(priority=77), "metadata": {"name": "train", "namespace": "x", "uid": "u"}}
    cache.handle(WatchEvent(type="ADDED", object=job))

    assert cache.priority(cache.sorted_jobs()[0]).value == 77
