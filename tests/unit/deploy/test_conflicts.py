"""Whose fields a forced apply takes, and who is to have them."""

from typing import Any

import pytest

from mlstack.app.app import ConflictRule, Taker
from mlstack.deploy import conflicts
from mlstack.deploy.conflicts import ConflictPolicy
from mlstack.objects import managed_fields
from mlstack.objects.managed_fields import Owner

PATH = ("f:spec", "f:replicas")
REPLICAS = {"f:spec": {"f:replicas": {}}}
HPA = Owner(manager="kube-controller-manager", subresource="scale")
PERSON = Owner(manager="kubectl-edit")


def managed(**managers: dict[str, Any]) -> dict[str, Any]:
    entries = [
        {"manager": name, "operation": "Apply" if name == "mlstack" else "Update", "fieldsV1": tree}
        for name, tree in managers.items()
    ]
    return {"metadata": {"managedFields": entries}}


def rule(path: str, take: Taker, manager: str = "*", *kinds: str) -> ConflictRule:
    return ConflictRule(path=managed_fields.read(path), manager=manager, kinds=kinds, take=take)


@pytest.mark.parametrize(
    ("live", "forced", "fields"),
    [
        (
            managed(hpa={**REPLICAS, "f:other": {}}, mlstack={}),
            managed(hpa={"f:other": {}}, mlstack=REPLICAS),
            [(Owner("hpa"), PATH)],
        ),
        (managed(hpa=REPLICAS), managed(mlstack=REPLICAS), [(Owner("hpa"), PATH)]),
        (managed(hpa=REPLICAS), managed(hpa=REPLICAS, mlstack=REPLICAS), []),
        (managed(controller={"f:status": {"f:conditions": {}}}), managed(mlstack=REPLICAS), []),
    ],
    ids=["one field", "everything", "shared", "a controller dropped it itself"],
)
def test_fields_another_manager_loses_are_named(live: Any, forced: Any, fields: Any) -> None:
    assert conflicts.lost(live, forced) == fields


@pytest.mark.parametrize(
    ("owner", "taker"),
    [
        (Owner(manager="kubectl", subresource="scale"), "ours"),
        (Owner(manager="kubectl", operation="Apply"), "ours"),
        (Owner(manager="kubectl-edit"), "ours"),
        (Owner(manager="kubectl-client-side-apply"), "ours"),
        (Owner(manager="k9s"), "ours"),
        (Owner(manager="Mozilla"), "ours"),
        (Owner(manager="node-fetch"), "ours"),
        (Owner(manager="before-first-apply"), "ours"),
        (Owner(manager="mlstack"), "ours"),
        (Owner(manager="mlstack-handover", operation="Apply"), "ours"),
        (Owner(manager="kubectl", subresource="status"), "theirs"),
        (Owner(manager="before-first-apply", operation="Apply"), "theirs"),
        (Owner(manager="helm", operation="Apply"), "theirs"),
        (HPA, "theirs"),
        (Owner(manager="argocd-controller", operation="Apply"), "theirs"),
        (Owner(manager="my-kubectl-like-operator"), "theirs"),
    ],
    ids=str,
)
def test_peoples_tools_are_told_from_programs(owner: Owner, taker: Taker) -> None:
    assert ConflictPolicy().takes(owner, PATH) is (taker == "ours")


@pytest.mark.parametrize(
    ("policy", "owner", "taker"),
    [
        (ConflictPolicy(forced=True), HPA, "ours"),
        (ConflictPolicy(forced=True, ignore=managed_fields.read_list("spec.replicas")), HPA, "theirs"),
        (ConflictPolicy(forced=True, rules=(rule("spec", "theirs"),)), HPA, "theirs"),
        (ConflictPolicy(ignore=managed_fields.read_list("spec")), PERSON, "theirs"),
        (ConflictPolicy(force=managed_fields.read_list("spec.replicas")), HPA, "ours"),
        (ConflictPolicy(force=managed_fields.read_list("spec.paused")), HPA, "theirs"),
        (ConflictPolicy(rules=(rule("spec.replicas", "ours", "kube-*"),)), HPA, "ours"),
        (ConflictPolicy(rules=(rule("spec.replicas", "ours", "keda"),)), HPA, "theirs"),
        (ConflictPolicy(rules=(rule("spec.replicas", "theirs"), rule("spec", "ours"))), HPA, "theirs"),
        (ConflictPolicy(rules=(rule("spec", "theirs", "kubectl-*"),)), PERSON, "theirs"),
        (ConflictPolicy(adopted=frozenset({Owner(manager="helm")})), Owner(manager="helm"), "ours"),
    ],
)
def test_the_first_that_speaks_decides(policy: ConflictPolicy, owner: Owner, taker: Taker) -> None:
    assert policy.takes(owner, PATH) is (taker == "ours")


def described(text: str, *fields: tuple[Owner, managed_fields.Path]) -> list[str]:
    return list(conflicts.notes(text, fields, managed()))


def test_a_line_names_fields_and_manager() -> None:
    left = described(conflicts.LEFT, (HPA, PATH))
    assert left == ["leaves `spec.replicas` to `kube-controller-manager` (through `scale`)"]
    taken = described(conflicts.TAKEN, (PERSON, PATH), (HPA, PATH), (PERSON, ("f:spec", "f:paused")))
    assert taken == [
        "takes `spec.replicas`, `spec.paused` back from `kubectl-edit`",
        "takes `spec.replicas` back from `kube-controller-manager` (through `scale`)",
    ]


def test_a_long_list_of_fields_is_cut() -> None:
    (line,) = described(conflicts.LEFT, *((HPA, ("f:data", f"f:{number}")) for number in range(20)))
    assert line.endswith("`data.7` and 12 more to `kube-controller-manager` (through `scale`)")


def owned_by_others(live: dict[str, Any], path: managed_fields.Path) -> bool:
    entries = managed_fields.entries(live)
    return any(conflicts.is_owned(entry.tree, path) for entry in entries if entry.owner.manager != "mlstack")


def test_others_own_what_they_own_around_it() -> None:
    live = managed(theirs={"f:spec": {"f:args": {}}}, mlstack={"f:spec": {"f:env": {}}})
    assert owned_by_others(live, ("f:spec", "f:args", "i:0"))
    assert not owned_by_others(live, ("f:spec", "f:env"))


def test_who_owns_an_item_does_not_own_all_that_is_in_it() -> None:
    item = ("f:spec", 'k:{"name":"main"}')
    live = managed(theirs={"f:spec": {item[1]: {".": {}, "f:name": {}}}})
    assert owned_by_others(live, (*item, "f:name"))
    assert not owned_by_others(live, (*item, "f:resources"))
