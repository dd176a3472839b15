"""The right cluster, something to do, and a cluster that is reached while files are rendered."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.deploy import target
from mlstack.deploy.target import Target, grant_commands, resolve
from mlstack.errors import ClusterError, ConfigError, ForbiddenError, WrongClusterError
from mlstack.kube.client import Cluster, Right, Rights
from mlstack.objects.kube_object import DesiredState, KubeObject, Source
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, config_map, crd, deployment

HERE = ClusterIdentity(uid="uid-1", ca="sha256:1111", server="https://one")
ELSEWHERE = ClusterIdentity(uid="uid-2", ca="sha256:2222", server="https://two")


class Answering:
    def __init__(self, identity: ClusterIdentity) -> None:
        self._identity = identity

    def identity(self) -> ClusterIdentity:
        return self._identity


def check(pinned: ClusterIdentity | None, actual: ClusterIdentity) -> ClusterIdentity:
    environment = Environment(
        name="gke", context="gke", cluster=pinned, file="environments/gke/environment.yaml"
    )
    return target.check_cluster(environment, Answering(actual))


@pytest.mark.parametrize(
    "actual",
    [
        ELSEWHERE,
        ClusterIdentity(uid="uid-1", ca="sha256:2222"),
        ClusterIdentity(uid="uid-2", ca="sha256:1111"),
    ],
    ids=["all else", "restored copy", "same authority"],
)
def test_another_cluster_is_refused_and_both_are_named(actual: ClusterIdentity) -> None:
    with pytest.raises(WrongClusterError) as caught:
        check(HERE, actual)
    assert "UID uid-1" in caught.value.message
    assert f"UID {actual.uid}" in caught.value.message
    assert caught.value.where == "environments/gke/environment.yaml"
    assert caught.value.hint is not None


def test_what_one_side_does_not_know_is_not_compared() -> None:
    assert check(HERE, ClusterIdentity(ca="sha256:1111")).uid is None
    assert check(ClusterIdentity(uid="uid-1"), HERE) == HERE


def test_an_identity_that_tells_nothing_is_not_worth_keeping() -> None:
    assert not target.is_known(ClusterIdentity(server="http://one"))
    assert target.is_known(ClusterIdentity(ca="sha256:1"))


@pytest.mark.parametrize(
    ("components", "message"),
    [((), "the app has no components for it"), (("x", "y"), "components `x`, `y` rendered none")],
)
def test_nothing_to_deploy_is_refused(components: tuple[str, ...], message: str) -> None:
    empty = DesiredState(app="a", environment="gke", namespace="n", objects=(), components=components)
    with pytest.raises(ConfigError, match=message):
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
    ("place", "ref"),
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
def test_objects_in_allowed_places_pass(place: Environment, ref: tuple[str, ...]) -> None:
    target.refuse_outside(place, [an_object(*ref)])


def test_every_object_outside_is_named_with_its_component_and_file() -> None:
    objects = [
        an_object("ConfigMap", "a", "kube-system"),
        an_object("ConfigMap", "b", "ml"),
        an_object("Namespace", "other", component="space"),
    ]
    with pytest.raises(ConfigError) as refused:
        target.refuse_outside(CONFINED, objects)
    assert refused.value.exit_code == 3
    assert refused.value.message.splitlines() == [
        "2 objects lie outside what environment `gke` may write to",
        "  `ConfigMap kube-system/a` of component `hub` (components/hub.yaml:3)",
        "  `Namespace other` of component `space` (components/space.yaml:3)",
    ]
    assert refused.value.where == "environments/gke/environment.yaml"


@pytest.mark.parametrize(
    ("place", "ref", "hint"),
    [
        (CONFINED, ("ConfigMap", "a", "kube-system"), f"{ALLOWED} --allow-namespace kube-system"),
        (CONFINED, ("Namespace", "other"), f"{ALLOWED} --allow-namespace other"),
        (STRICT, ("ClusterRole", "a"), "mlstack env set gke --cluster-scoped"),
    ],
    ids=["in a namespace", "a namespace", "in none"],
)
def test_the_hint_allows_what_was_refused_and_keeps_what_was_allowed(
    place: Environment, ref: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(ConfigError, match="an object lies outside") as refused:
        target.refuse_outside(place, [an_object(*ref)])
    assert (refused.value.hint or "").endswith(hint)


# --- reach ---


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    stack = Stack(tmp_path, namespace="q", opener=lambda context: MemoryCluster(load_schemas("1.36")))
    stack.write("settings", config_map("a"))
    return stack


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


# --- rights ---

Denies = Callable[[Right], bool]


class Asked(MemoryCluster):
    """A cluster that remembers which rights it was asked about."""

    def __init__(self, denies: Denies, *rules: dict[str, list[str]]) -> None:
        super().__init__(load_schemas("1.36"), clock=VirtualClock(), denies=denies)
        self.asked: list[Right] = []
        self.rules = rules

    def may(self, right: Right) -> bool:
        self.asked.append(right)
        return super().may(right)

    def rights(self, namespace: str) -> Rights:
        return Rights(rules=self.rules)


def everything(right: Right) -> bool:
    return right.verb == "*"


def stack_on(tmp_path: Path, cluster: MemoryCluster) -> Stack:
    return Stack(tmp_path / "app", namespace="ml", opener=lambda context: cluster, clock=VirtualClock())


def test_all_missing_rights_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    cluster = Asked(lambda right: everything(right) or right.group == "apps" or right.verb == "update")
    stack = stack_on(tmp_path, cluster)
    stack.write("web", deployment(), config_map())
    before = cluster.list("v1", "Namespace").resource_version
    with pytest.raises(ForbiddenError) as refused:
        stack.apply()
    assert refused.value.exit_code == 6
    assert refused.value.message.splitlines() == [
        "3 rights are missing for this run on environment `minikube` (context minikube)",
        "  create, patch deployments.apps in namespace ml",
        "  update leases.coordination.k8s.io in namespace ml",
    ]
    assert cluster.list("v1", "Namespace").resource_version == before


def test_the_hint_can_be_typed(tmp_path: Path) -> None:
    stack = stack_on(tmp_path, Asked(lambda right: everything(right) or right.group == "apps"))
    stack.write("web", deployment())
    with pytest.raises(ForbiddenError) as refused:
        stack.apply()
    assert (refused.value.hint or "").splitlines() == [
        "nothing was written; check one with `kubectl auth can-i create deployments.apps -n ml`; an"
        " administrator can grant them:",
        "      kubectl create role mlstack-minikube-90c2a4 -n ml --verb=create,patch"
        " --resource=deployments.apps",
        "      kubectl create rolebinding mlstack-minikube-90c2a4 -n ml --role=mlstack-minikube-90c2a4"
        " --user=USER",
    ]


def test_whoever_may_do_everything_is_asked_about_once(tmp_path: Path) -> None:
    cluster = Asked(lambda right: False)
    stack = stack_on(tmp_path, cluster)
    stack.deploy("web", deployment(), config_map())
    assert cluster.asked == [Right(group="*", resource="*", verb="*")]


def test_what_the_rules_give_is_not_asked_about(tmp_path: Path) -> None:
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    cluster = Asked(everything, rule)
    stack = stack_on(tmp_path, cluster)
    stack.deploy("web", deployment(), config_map())
    namespaces = [right for right in cluster.asked if right.resource == "namespaces"]
    assert len(cluster.asked) == 1 + len(namespaces)  # a Namespace is in no namespace


def test_each_kind_and_verb_is_asked_about_once(tmp_path: Path) -> None:
    cluster = Asked(everything)
    stack = stack_on(tmp_path, cluster)
    stack.deploy("web", *(config_map(f"c{number}") for number in range(40)))
    assert len(cluster.asked) == len({*cluster.asked})
    assert {right.verb for right in cluster.asked if right.resource == "configmaps"} == {
        "create",
        "patch",
        "get",
    }


def test_rights_to_named_objects_are_enough(tmp_path: Path) -> None:
    def denies(right: Right) -> bool:
        ours = right.resource == "configmaps" and right.verb in ("patch", "get") and right.name
        return everything(right) or (right.resource == "configmaps" and right.verb != "create" and not ours)

    stack = stack_on(tmp_path, Asked(denies))
    stack.deploy("web", config_map())


def test_only_what_a_run_does_is_asked_about(tmp_path: Path) -> None:
    cluster = Asked(everything)
    stack = stack_on(tmp_path, cluster)
    stack.deploy("web", config_map("a"), config_map("b"), deployment())
    cluster.asked.clear()
    stack.deploy("web", config_map("a", x="1"), deployment())
    verbs = {(right.resource, right.verb) for right in cluster.asked} - {("*", "*")}
    assert verbs == {
        ("configmaps", "patch"),
        ("configmaps", "get"),
        ("configmaps", "delete"),  # b goes
        *(("leases", verb) for verb in ("get", "create", "update", "delete")),
    }
    cluster.asked.clear()
    stack.apply()
    assert cluster.asked == []


@pytest.mark.parametrize("look", ["diff", "dry run"])
def test_looking_needs_no_right_to_write(tmp_path: Path, look: str) -> None:
    stack = stack_on(tmp_path, Asked(lambda right: True))
    stack.write("web", config_map())
    if look == "diff":
        assert not stack.diff().ok
    else:
        assert stack.apply(dry_run=True).ok


def test_kinds_that_the_run_defines_are_asked_about(tmp_path: Path) -> None:
    stack = stack_on(tmp_path, Asked(lambda right: everything(right) or right.group == "example.com"))
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    stack.write("web", crd(group="example.com"), widget)
    with pytest.raises(ForbiddenError, match=r"create, patch widgets\.example\.com in namespace ml"):
        stack.apply()


def test_a_delete_needs_the_rights_to_it(tmp_path: Path) -> None:
    cluster = Asked(lambda right: everything(right) or (right.group, right.verb) == ("apps", "delete"))
    stack = stack_on(tmp_path, cluster)
    stack.deploy("web", deployment(), config_map())
    with pytest.raises(ForbiddenError, match=r"delete deployments\.apps in namespace ml"):
        stack.delete()


def rule(**facts: list[str]) -> dict[str, list[str]]:
    return {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], **facts}


@pytest.mark.parametrize(
    ("rule", "name", "allowed"),
    [
        (rule(), "", True),
        (rule(verbs=["*"]), "", True),
        (rule(apiGroups=["*"], resources=["*"]), "", True),
        (rule(verbs=["list"]), "", False),
        (rule(apiGroups=[""]), "", False),
        (rule(resources=["deployments/scale"]), "", False),
        (rule(resourceNames=["web"]), "", False),
        (rule(resourceNames=["web"]), "web", True),
        (rule(resourceNames=["web"]), "db", False),
    ],
)
def test_rules_give_what_they_say(rule: dict[str, list[str]], name: str, allowed: bool) -> None:
    right = Right(group="apps", resource="deployments", namespace="ml", verb="get", name=name)
    assert Rights(rules=(rule,)).allow(right) is allowed


def test_commands_share_a_role_where_the_verbs_are_alike() -> None:
    lacking = {
        ("ml", "deployments.apps"): ["create", "patch"],
        ("ml", "secrets"): ["create", "patch"],
        ("", "clusterroles.rbac.authorization.k8s.io"): ["create"],
    }
    lines = grant_commands(lacking, name="m")
    assert [re.sub(r"m-[0-9a-f]{6}", "m-#", line) for line in lines] == [
        "kubectl create clusterrole m-# --verb=create --resource=clusterroles.rbac.authorization.k8s.io",
        "kubectl create clusterrolebinding m-# --clusterrole=m-# --user=USER",
        "kubectl create role m-# -n ml --verb=create,patch --resource=deployments.apps,secrets",
        "kubectl create rolebinding m-# -n ml --role=m-# --user=USER",
    ]
    assert len({line.split()[3] for line in lines}) == 2


def test_the_same_cluster_passes_whatever_its_address() -> None:
    moved = ClusterIdentity(uid=HERE.uid, ca=HERE.ca, server="https://moved")
    assert check(HERE, moved) == moved
