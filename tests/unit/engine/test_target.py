"""Reaching the cluster of an environment while its files are rendered."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from mlstack.deploy.target import Target, reach
from mlstack.errors import ClusterError, ConfigError
from mlstack.kube.client import Cluster
from mlstack.objects.kube_object import DesiredState
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, config_map


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    made = Stack(tmp_path, namespace="q", opener=lambda context: MemoryCluster(load_schemas("1.36")))
    made.write("settings", config_map("a"))
    return made


def test_the_cluster_is_asked_while_the_files_are_rendered(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, desired = Event(), Target.desired

    def opener(context: str) -> Cluster:
        opened.set()
        return MemoryCluster(load_schemas("1.36"))

    def rendering(target: Target) -> DesiredState:
        assert opened.wait(10)
        return desired(target)

    monkeypatch.setattr(Target, "desired", rendering)
    assert len(reach(stack.target(), opener).state.objects) == 1


def test_what_is_wrong_with_the_files_is_told_before_what_is_wrong_with_the_cluster(stack: Stack) -> None:
    def opener(context: str) -> Cluster:
        raise ClusterError("no cluster")

    with pytest.raises(ClusterError, match="no cluster"):
        reach(stack.target(), opener)
    stack.write_text("components/broken.yaml", "a: [")
    with pytest.raises(ConfigError):
        reach(stack.target(), opener)


def test_a_cluster_that_is_silent_holds_up_nobody_whose_files_are_wrong(stack: Stack) -> None:
    answer = Event()

    def opener(context: str) -> Cluster:
        answer.wait(30)
        return MemoryCluster(load_schemas("1.36"))

    stack.write_text("components/broken.yaml", "a: [")
    with pytest.raises(ConfigError):
        reach(stack.target(), opener)
    answer.set()
