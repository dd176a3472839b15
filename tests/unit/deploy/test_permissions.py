"""The rights that a run needs, asked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.deploy.target import grant_commands
from mlstack.errors import ForbiddenError
from mlstack.kube.client import Right, Rights
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, config_map, crd, deployment

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
        named = right.resource == "configmaps" and right.verb in ("patch", "get") and right.name
        return everything(right) or (right.resource == "configmaps" and right.verb != "create" and not named)

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
    ("given", "name", "allowed"),
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
def test_rules_give_what_they_say(given: dict[str, list[str]], name: str, allowed: bool) -> None:
    right = Right(group="apps", resource="deployments", namespace="ml", verb="get", name=name)
    assert Rights(rules=(given,)).allow(right) is allowed


def test_commands_share_a_role_where_the_verbs_are_alike() -> None:
    found = {
        ("ml", "deployments.apps"): ["create", "patch"],
        ("ml", "secrets"): ["create", "patch"],
        ("", "clusterroles.rbac.authorization.k8s.io"): ["create"],
    }
    lines = grant_commands(found, name="m")
    assert [re.sub(r"m-[0-9a-f]{6}", "m-#", line) for line in lines] == [
        "kubectl create clusterrole m-# --verb=create --resource=clusterroles.rbac.authorization.k8s.io",
        "kubectl create clusterrolebinding m-# --clusterrole=m-# --user=USER",
        "kubectl create role m-# -n ml --verb=create,patch --resource=deployments.apps,secrets",
        "kubectl create rolebinding m-# -n ml --role=m-# --user=USER",
    ]
    assert len({line.split()[3] for line in lines}) == 2
