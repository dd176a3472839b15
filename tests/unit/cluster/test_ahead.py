"""Questions asked before the answers are needed."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from mlstack.errors import ClusterError
from mlstack.kube.client import ObjectRef
from mlstack.kube.parallel import PrefetchingCluster, prefetch
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.counted import Counted
from tests.support.deploying import config_map

REF = ObjectRef("v1", "ConfigMap", "q", "a")


@pytest.fixture
def counted() -> Counted:
    cluster = MemoryCluster(load_schemas("1.36"))
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "q"}})
    cluster.create({**config_map("a"), "metadata": {"name": "a", "namespace": "q"}})
    return Counted(cluster)


def test_work_goes_on_while_nobody_waits() -> None:
    begun, go = Event(), Event()

    def work() -> str:
        begun.set()
        go.wait(10)
        return "done"

    answer = prefetch(work)
    assert begun.wait(10)
    go.set()
    assert answer() == "done"


def test_whoever_waits_gets_the_error() -> None:
    def work() -> None:
        raise ClusterError("no")

    with pytest.raises(ClusterError, match="no"):
        prefetch(work)()


def test_an_answer_is_asked_for_once(counted: Counted) -> None:
    ahead = PrefetchingCluster(counted)  # type: ignore[arg-type]
    ahead.foresee_get(REF)
    ahead.foresee_get(REF)
    found = ahead.get(REF)
    assert found is not None
    assert found["metadata"]["name"] == "a"
    assert counted.asked["get"] == 1


def test_an_answer_is_given_once(counted: Counted) -> None:
    ahead = PrefetchingCluster(counted)  # type: ignore[arg-type]
    ahead.foresee_get(REF)
    ahead.get(REF)
    counted.delete(REF)
    assert ahead.get(REF) is None


@pytest.mark.parametrize(
    "asked",
    [
        {"namespace": "other"},
        {"namespace": "q", "labels": "a=b"},
        {"namespace": "q", "fields": "metadata.name=x"},
        {"namespace": "q", "metadata_only": True},
        {},
    ],
    ids=["namespace", "labels", "fields", "metadata only", "all namespaces"],
)
def test_another_question_gets_its_own_answer(counted: Counted, asked: dict[str, Any]) -> None:
    ahead = PrefetchingCluster(counted)  # type: ignore[arg-type]
    ahead.foresee_list("v1", "ConfigMap", namespace="q")
    assert ahead.list("v1", "ConfigMap", **asked) == counted.list("v1", "ConfigMap", **asked)
    assert len(ahead.list("v1", "ConfigMap", namespace="q").items) == 1
    assert counted.total == 3
