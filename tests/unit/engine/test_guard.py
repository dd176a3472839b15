"""The right cluster, and something to do."""

import pytest

from mlstack.engine import guard
from mlstack.errors import ConfigError, WrongClusterError
from mlstack.model.app import ClusterIdentity, Environment
from mlstack.model.objects import DesiredState, KubeObject

HERE = ClusterIdentity(uid="uid-1", ca="sha256:1111", server="https://one")
ELSEWHERE = ClusterIdentity(uid="uid-2", ca="sha256:2222", server="https://two")


class Answering:
    def __init__(self, identity: ClusterIdentity) -> None:
        self._identity = identity

    def identity(self) -> ClusterIdentity:
        return self._identity


def check(pinned: ClusterIdentity | None, found: ClusterIdentity) -> ClusterIdentity:
    environment = Environment(
        name="gke", context="gke", cluster=pinned, file="environments/gke/environment.yaml"
    )
    return guard.check_cluster(environment, Answering(found))


def test_an_unbound_environment_takes_any_cluster() -> None:
    assert check(None, HERE) == HERE


def test_the_same_cluster_passes_whatever_its_address() -> None:
    moved = ClusterIdentity(uid=HERE.uid, ca=HERE.ca, server="https://moved")
    assert check(HERE, moved) == moved


@pytest.mark.parametrize(
    "found",
    [
        ELSEWHERE,
        ClusterIdentity(uid="uid-1", ca="sha256:2222"),
        ClusterIdentity(uid="uid-2", ca="sha256:1111"),
    ],
    ids=["all else", "restored copy", "same authority"],
)
def test_another_cluster_is_refused_and_both_are_named(found: ClusterIdentity) -> None:
    with pytest.raises(WrongClusterError) as caught:
        check(HERE, found)
    assert "UID uid-1" in caught.value.message
    assert f"UID {found.uid}" in caught.value.message
    assert caught.value.where == "environments/gke/environment.yaml"
    assert caught.value.hint is not None


def test_what_one_side_does_not_know_is_not_compared() -> None:
    assert check(HERE, ClusterIdentity(ca="sha256:1111")).uid is None
    assert check(ClusterIdentity(uid="uid-1"), HERE) == HERE


def test_an_identity_that_tells_nothing_is_not_worth_keeping() -> None:
    assert not guard.is_known(ClusterIdentity(server="http://one"))
    assert guard.is_known(ClusterIdentity(ca="sha256:1"))


def test_nothing_to_deploy_is_refused() -> None:
    empty = DesiredState(app="a", environment="gke", namespace="n", objects=())
    with pytest.raises(ConfigError, match="the app has no components for it"):
        guard.refuse_empty(empty)
    rendered = DesiredState(app="a", environment="gke", namespace="n", objects=(), components=("x", "y"))
    with pytest.raises(ConfigError, match="components `x`, `y` rendered none"):
        guard.refuse_empty(rendered)
    some = DesiredState(app="a", environment="gke", namespace="n", objects=(KubeObject(data={}),))
    guard.refuse_empty(some)
