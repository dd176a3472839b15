"""Each field that is not as the files say has its cause, manager and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlstack.deploy import drift
from mlstack.deploy.drift import Difference
from mlstack.kube.client import ObjectRef
from mlstack.objects.masking import MASK
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, config_map, deployment

REF = ObjectRef("apps/v1", "Deployment", "default", "web")
Data = dict[str, Any]


class Web:
    """A Deployment that was applied, and what happens to it afterwards."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = MemoryCluster(load_schemas("1.36"), clock=self.clock)
        self.wanted = placed(deployment(replicas=2, env=[{"name": "A", "value": "1"}]))
        self.cluster.apply(self.wanted)
        self.clock.sleep(60)

    def patch(self, change: Data, manager: str, *, subresource: str = "") -> None:
        self.cluster.patch(REF, change, manager=manager, subresource=subresource)
        self.clock.sleep(60)

    def edit(self, change: Callable[[Data], None], manager: str) -> None:
        live = self.cluster.get(REF)
        assert live is not None
        change(live)
        self.cluster.replace(live, manager=manager)
        self.clock.sleep(60)

    def found(self, applied: Data | None = None) -> tuple[Difference, ...]:
        live = self.cluster.get(REF)
        assert live is not None
        forced = self.cluster.apply(self.wanted, force=True, dry_run=True).object
        return drift.differences(live, forced, applied=applied)


def placed(data: Data) -> Data:
    return {**data, "metadata": {**data["metadata"], "namespace": "default"}}


@pytest.fixture
def web() -> Web:
    return Web()


def main(live: Data) -> Data:
    container: Data = live["spec"]["template"]["spec"]["containers"][0]
    return container


def test_what_nobody_touched_does_not_differ(web: Web) -> None:
    assert web.found() == ()


@pytest.mark.parametrize(
    ("manager", "subresource", "cause"),
    [
        ("kubectl", "scale", "person"),
        ("kubectl-edit", "", "person"),
        ("k9s", "", "person"),
        ("kube-controller-manager", "scale", "controller"),
        ("argocd", "", "controller"),
    ],
)
def test_a_number_is_the_last_writers(web: Web, manager: str, subresource: str, cause: str) -> None:
    web.patch({"spec": {"replicas": 5}}, manager, subresource=subresource)
    (found,) = web.found()
    assert (found.path, found.action, found.live, found.wanted) == ("spec.replicas", "changed", 5, 2)
    assert (found.cause, found.manager, found.subresource) == (cause, manager, subresource)
    assert found.time == "2027-01-15T08:01:00Z"
    assert found.sure


def test_a_value_of_ours_differs_since_the_files_changed(web: Web) -> None:
    web.wanted = placed(deployment(replicas=3, env=[{"name": "A", "value": "1"}]))
    (found,) = web.found()
    assert (found.path, found.cause, found.live, found.wanted) == ("spec.replicas", "stale", 2, 3)
    assert found.manager == ""


def test_a_field_that_the_files_give_up_is_there_still(web: Web) -> None:
    web.wanted = placed(deployment(replicas=2))
    (found,) = web.found()
    assert (found.action, found.cause) == ("added", "stale")
    assert found.path == "spec.template.spec.containers[main].env"


def test_a_removed_field_is_told_without_a_name_if_it_left_no_trace(web: Web) -> None:
    web.edit(lambda live: main(live).pop("env"), "kubectl-edit")
    (found,) = web.found(applied=web.wanted)
    assert (found.action, found.cause, found.manager, found.live) == ("removed", "unknown", "", None)
    assert found.wanted == [{"name": "A", "value": "1"}]


def test_a_removed_field_is_laid_to_the_only_one_who_wrote_since(web: Web) -> None:
    def edited(live: Data) -> None:
        main(live).pop("env")
        main(live)["image"] = "nginx:1.28"

    web.edit(edited, "kubectl-edit")
    by_path = {one.path.rpartition(".")[2]: one for one in web.found(applied=web.wanted)}
    assert (by_path["image"].manager, by_path["image"].sure) == ("kubectl-edit", True)
    assert (by_path["env"].manager, by_path["env"].sure) == ("kubectl-edit", False)


def test_a_removed_field_is_not_laid_to_a_controller_that_wrote_since(web: Web) -> None:
    web.edit(lambda live: main(live).pop("env"), "kubectl-edit")
    web.patch({"metadata": {"annotations": {"operator": "was here"}}}, "operator")
    (found,) = web.found(applied=web.wanted)
    assert (found.action, found.cause, found.manager) == ("removed", "unknown", "")


def test_a_field_that_the_files_have_gained_is_no_ones_doing(web: Web) -> None:
    before = web.wanted
    web.wanted = placed(deployment(replicas=2, env=[{"name": n, "value": "1"} for n in "AB"]))
    assert [one.cause for one in web.found(applied=before)] == ["stale"]
    assert [one.cause for one in web.found()] == ["unknown"]


def test_fields_that_are_not_ours_do_not_count(web: Web) -> None:
    web.patch({"metadata": {"labels": {"team": "red"}}}, "kubectl-label")
    assert web.found() == ()


def test_one_who_writes_the_same_value_changes_nothing(web: Web) -> None:
    web.patch({"spec": {"replicas": 2}}, "kubectl-edit")
    assert web.found() == ()


def test_values_of_a_secret_are_masked() -> None:
    cluster = MemoryCluster(load_schemas("1.36"), clock=VirtualClock())
    wanted = placed(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": {"a": "aHVzaA=="}}
    )
    cluster.apply(wanted)
    cluster.patch(ObjectRef.of(wanted), {"data": {"a": "b3BlbmVk"}}, manager="kubectl-edit")
    live = cluster.get(ObjectRef.of(wanted))
    assert live is not None
    forced = cluster.apply(wanted, force=True, dry_run=True).object
    (found,) = drift.differences(live, forced)
    assert (found.live, found.wanted, found.cause) == (MASK, MASK, "person")


def test_an_object_made_by_hand_differs_by_its_maker() -> None:
    cluster = MemoryCluster(load_schemas("1.36"), clock=VirtualClock())
    cluster.create(placed(config_map(a="2")), manager="kubectl-create")
    wanted = placed(config_map(a="1"))
    live = cluster.get(ObjectRef.of(wanted))
    assert live is not None
    forced = cluster.apply(wanted, force=True, dry_run=True).object
    assert [(one.path, one.cause) for one in drift.differences(live, forced)] == [("data.a", "person")]
