"""Who is laid what to where neither files nor owners tell; the rest is in `operations/test_drift.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlstack.deploy import compare
from mlstack.deploy.compare import Difference
from mlstack.kube.client import ObjectRef
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, config_map, deployment

REF = ObjectRef("apps/v1", "Deployment", "default", "web")
Data = dict[str, Any]


def placed(data: Data) -> Data:
    return {**data, "metadata": {**data["metadata"], "namespace": "default"}}


class Web:
    """A Deployment that was applied, and what happens to it afterwards."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = MemoryCluster(load_schemas("1.36"), clock=self.clock)
        self.manifest = placed(deployment(replicas=2, env=[{"name": "A", "value": "1"}]))
        self.cluster.apply(self.manifest)
        self.clock.sleep(60)

    def edit(self, change: Callable[[Data], Any], manager: str) -> None:
        live = self.cluster.get(REF)
        assert live is not None
        change(live["spec"]["template"]["spec"]["containers"][0])
        self.cluster.replace(live, manager=manager)
        self.clock.sleep(60)

    def differences(self, applied: Data | None = None) -> tuple[Difference, ...]:
        live = self.cluster.get(REF)
        assert live is not None
        forced = self.cluster.apply(self.manifest, force=True, dry_run=True).object
        return compare.differences(live, forced, applied=applied)


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.mark.parametrize(
    ("manager", "subresource", "cause"),
    [("kubectl", "scale", "person"), ("k9s", "", "person"), ("argocd", "", "controller")],
)
def test_a_number_is_the_last_writers(web: Web, manager: str, subresource: str, cause: str) -> None:
    web.cluster.patch(REF, {"spec": {"replicas": 5}}, manager=manager, subresource=subresource)
    (field,) = web.differences()
    assert (field.path, field.action, field.live, field.wanted) == ("spec.replicas", "changed", 5, 2)
    assert (field.cause, field.manager, field.subresource) == (cause, manager, subresource)
    assert (field.time, field.sure) == ("2027-01-15T08:01:00Z", True)


def test_a_removed_field_is_laid_to_the_only_one_who_wrote_since(web: Web) -> None:
    web.edit(lambda main: (main.pop("env"), main.update(image="nginx:1.28")), "kubectl-edit")
    fields = {field.path.rpartition(".")[2]: field for field in web.differences(web.manifest)}
    assert (fields["image"].manager, fields["image"].sure) == ("kubectl-edit", True)
    assert (fields["env"].manager, fields["env"].sure) == ("kubectl-edit", False)


def test_a_removed_field_is_not_laid_to_a_controller_that_wrote_since(web: Web) -> None:
    web.edit(lambda main: main.pop("env"), "kubectl-edit")
    web.cluster.patch(REF, {"metadata": {"annotations": {"operator": "was here"}}}, manager="operator")
    (field,) = web.differences(web.manifest)
    assert (field.action, field.cause, field.manager, field.live) == ("removed", "unknown", "", None)
    assert field.wanted == [{"name": "A", "value": "1"}]


def test_a_field_that_the_files_have_gained_is_no_ones_doing(web: Web) -> None:
    before, web.manifest = (
        web.manifest,
        placed(deployment(replicas=2, env=[{"name": name, "value": "1"} for name in "AB"])),
    )
    assert [field.cause for field in web.differences(before)] == ["stale"]
    assert [field.cause for field in web.differences()] == ["unknown"]


def test_one_who_writes_the_same_value_changes_nothing(web: Web) -> None:
    web.cluster.patch(REF, {"spec": {"replicas": 2}}, manager="kubectl-edit")
    assert web.differences() == ()


def test_an_object_made_by_hand_differs_by_its_maker() -> None:
    cluster = MemoryCluster(load_schemas("1.36"), clock=VirtualClock())
    live = cluster.create(placed(config_map(a="2")), manager="kubectl-create").object
    forced = cluster.apply(placed(config_map(a="1")), force=True, dry_run=True).object
    fields = compare.differences(live, forced)
    assert [(field.path, field.cause) for field in fields] == [("data.a", "person")]
