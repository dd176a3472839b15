"""Kinds that prototypes need in the cluster: noted offline, refused before the API server refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlstack.app import files
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.target import Target
from mlstack.errors import ObjectNotFoundError
from mlstack.operations import authors, deploy, packages
from mlstack.operations.render import validate_environment
from mlstack.testing.cluster import MemoryCluster
from tests.support import examples
from tests.support.deploying import crd

JOB = "kubeflow/tf-job/tf-job-simple"
NEED = "needs the kind `TFJob` (kubeflow.org/v1): the prototype `kubeflow-core` brings it"
TFJOBS = crd("tfjobs", "TFJob", group="kubeflow.org")


def target(root: Path, *others: tuple[str, str, dict[str, Any]]) -> Target:
    components = {"mnist": (JOB, {}), **{name: (prototype, params) for name, prototype, params in others}}
    return Target(app=examples.write_app(root, components), environment=examples.PLAIN)


def test_validate_notes_what_the_cluster_must_have(tmp_path: Path) -> None:
    result = validate_environment(target(tmp_path / "app").app, examples.PLAIN)
    assert result.ok
    (note,) = result.notes
    assert note.startswith(
        f"component `mnist` {NEED}, its parameter `jobKinds` naming tfjob: mlstack generate"
    )
    assert f"mlstack apply {examples.PLAIN} -c kubeflow-core" in note


@pytest.mark.slow
def test_nothing_is_noted_of_a_kind_that_the_environment_or_the_cluster_brings(tmp_path: Path) -> None:
    core = ("core", "kubeflow/core/kubeflow-core", {"installHub": False})
    assert not validate_environment(target(tmp_path / "app", core).app, examples.PLAIN).notes
    app = target(tmp_path / "other").app
    assert not validate_environment(app, examples.PLAIN, definitions=[TFJOBS]).notes


def test_apply_refuses_with_what_brings_the_kind(tmp_path: Path, cluster: MemoryCluster) -> None:
    plan = target(tmp_path / "app")
    with pytest.raises(ObjectNotFoundError) as caught:
        deploy.plan_apply(plan, opener=lambda context: cluster, options=ApplyOptions())
    assert NEED in str(caught.value.hint)
    assert str(caught.value.hint).startswith("component `mnist` ")
    cluster.apply(TFJOBS)
    changes = deploy.plan_apply(plan, opener=lambda context: cluster, options=ApplyOptions()).changes.changes
    assert [change.action for change in changes if change.identity.kind == "TFJob"] == ["create"]


def test_prototype_and_package_say_what_they_need(tmp_path: Path) -> None:
    app = target(tmp_path / "app").app
    description = packages.describe_prototype(app, "tf-job-simple")
    assert description.needs[0].startswith(NEED)
    assert "training operator" in description.checked_with
    package = packages.describe_package(app, "kubeflow/tf-job")
    assert package.needs == ("kubeflow.org/v1/TFJob",)
    assert package.checked_with == description.checked_with


def test_every_prototype_that_brings_a_kind_is_there() -> None:
    needs = [need for prototype in examples.prototypes() for need in prototype.needs]
    assert needs
    for need in needs:
        assert need.brings or need.install, need.kind
        if need.brings:
            assert set(need.params) <= set(examples.prototype(need.brings).params)


def test_a_trial_leaves_kinds_without_a_definition_to_the_cluster() -> None:
    folder = files.folder("prototypes") / "scheduling"
    result = authors.test_package(folder, only=authors.Selection(prototype="local-queue", example="team"))
    assert [fault.message for fault in result.faults if fault.severity == "error"] == []
