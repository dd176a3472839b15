"""The right cluster, something to do, and a cluster that is reached while files are rendered."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.deploy import target
from mlstack.deploy.target import Target, resolve
from mlstack.errors import ClusterError, ConfigError, WrongClusterError
from mlstack.kube.client import Cluster
from mlstack.objects.kube_object import DesiredState, KubeObject, Source
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, config_map

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
    return target.check_cluster(environment, Answering(found))


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
    assert not target.is_known(ClusterIdentity(server="http://one"))
    assert target.is_known(ClusterIdentity(ca="sha256:1"))


@pytest.mark.parametrize(
    ("components", "said"),
    [((), "the app has no components for it"), (("x", "y"), "components `x`, `y` rendered none")],
)
def test_nothing_to_deploy_is_refused(components: tuple[str, ...], said: str) -> None:
    empty = DesiredState(app="a", environment="gke", namespace="n", objects=(), components=components)
    with pytest.raises(ConfigError, match=said):
        target.refuse_empty(empty)


def an_object(kind: str, name: str, namespace: str = "", component: str = "hub") -> KubeObject:
    group = {"ClusterRole": "rbac.authorization.k8s.io/v1"}.get(kind, "v1")
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    source = Source(component=component, file=f"components/{component}.yaml", line=3)
    return KubeObject(
        data={"apiVersion": group, "kind": kind, "metadata": metadata}, component=component, source=source
    )


CONFINED = Environment(
    name="gke",
    namespace="ml",
    allowed_namespaces=("ml", "monitoring"),
    file="environments/gke/environment.yaml",
)
ALLOWED = "mlstack env set gke --allow-namespace ml --allow-namespace monitoring"
STRICT = Environment(name="gke", namespace="ml", cluster_scoped="refused")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (CONFINED, ("ConfigMap", "a", "ml")),
        (CONFINED, ("ConfigMap", "a", "monitoring")),
        (CONFINED, ("ClusterRole", "a")),
        (CONFINED, ("Namespace", "ml")),
        (STRICT, ("ConfigMap", "a", "anywhere")),
        (Environment(name="gke"), ("ClusterRole", "a")),
        (Environment(name="gke"), ("Pod", "a", "x")),
    ],
)
def test_objects_in_allowed_places_pass(place: Environment, found: tuple[str, ...]) -> None:
    target.refuse_outside(place, [an_object(*found)])


def test_every_object_outside_is_named_with_its_component_and_file() -> None:
    found = [
        an_object("ConfigMap", "a", "kube-system"),
        an_object("ConfigMap", "b", "ml"),
        an_object("Namespace", "other", component="space"),
    ]
    with pytest.raises(ConfigError) as refused:
        target.refuse_outside(CONFINED, found)
    assert refused.value.exit_code == 3
    assert refused.value.message.splitlines() == [
        "2 objects lie outside what environment `gke` may write to",
        "  `ConfigMap kube-system/a` of component `hub` (components/hub.yaml:3)",
        "  `Namespace other` of component `space` (components/space.yaml:3)",
    ]
    assert refused.value.where == "environments/gke/environment.yaml"


@pytest.mark.parametrize(
    ("place", "found", "hint"),
    [
        (CONFINED, ("ConfigMap", "a", "kube-system"), f"{ALLOWED} --allow-namespace kube-system"),
        (CONFINED, ("Namespace", "other"), f"{ALLOWED} --allow-namespace other"),
        (STRICT, ("ClusterRole", "a"), "mlstack env set gke --cluster-scoped"),
    ],
    ids=["in a namespace", "a namespace", "in none"],
)
def test_the_hint_allows_what_was_refused_and_keeps_what_was_allowed(
    place: Environment, found: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(ConfigError, match="an object lies outside") as refused:
        target.refuse_outside(place, [an_object(*found)])
    assert (refused.value.hint or "").endswith(hint)


# --- reach ---


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
    assert len(resolve(stack.target(), opener).state.objects) == 1


def test_what_is_wrong_with_the_files_is_told_before_what_is_wrong_with_the_cluster(stack: Stack) -> None:
    def opener(context: str) -> Cluster:
        raise ClusterError("no cluster")

    with pytest.raises(ClusterError, match="no cluster"):
        resolve(stack.target(), opener)
    stack.write_text("components/broken.yaml", "a: [")
    with pytest.raises(ConfigError):
        resolve(stack.target(), opener)


def test_a_cluster_that_is_silent_holds_up_nobody_whose_files_are_wrong(stack: Stack) -> None:
    answer = Event()

    def opener(context: str) -> Cluster:
        answer.wait(30)
        return MemoryCluster(load_schemas("1.36"))

    stack.write_text("components/broken.yaml", "a: [")
    with pytest.raises(ConfigError):
        resolve(stack.target(), opener)
    answer.set()
