"""Whose fields a forced apply takes, and who is to have them."""

from typing import Any

import pytest

from mlstack.app.app import ConflictRule, Taker
from mlstack.deploy import conflicts
from mlstack.deploy.conflicts import ConflictPolicy, displaced_items, dropped_fields, fields_of_no_file, own
from mlstack.deploy.replacement import is_allocated
from mlstack.errors import Cause
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER
from mlstack.objects.managed_fields import Owner, path_text, read_list

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


def described(text: str, *fields: tuple[Owner, managed_fields.FieldPath]) -> list[str]:
    return list(conflicts.notes(text, fields, managed()))


def test_a_line_names_fields_and_manager() -> None:
    left = described(conflicts.LEFT, (HPA, PATH))
    assert left == ["leaves `spec.replicas` to `kube-controller-manager` (through `scale`)"]
    text = described(conflicts.TAKEN, (PERSON, PATH), (HPA, PATH), (PERSON, ("f:spec", "f:paused")))
    assert text == [
        "takes `spec.replicas`, `spec.paused` back from `kubectl-edit`",
        "takes `spec.replicas` back from `kube-controller-manager` (through `scale`)",
    ]


def test_a_long_list_of_fields_is_cut() -> None:
    (line,) = described(conflicts.LEFT, *((HPA, ("f:data", f"f:{number}")) for number in range(20)))
    assert line.endswith("`data.7` and 12 more to `kube-controller-manager` (through `scale`)")


def owned_by_others(live: dict[str, Any], path: managed_fields.FieldPath) -> bool:
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


# --- fields of others that become ours ---

Obj = dict[str, Any]
PORT = 'k:{"port":81,"protocol":"TCP"}'


def entry(manager: str, operation: str, tree: Obj, subresource: str = "") -> Obj:
    named = {"subresource": subresource} if subresource else {}
    return {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": tree, **named}


def live_of(*entries: Obj, **content: Any) -> Obj:
    metadata = {"name": "web", "resourceVersion": "7", "managedFields": list(entries)}
    return {"metadata": metadata, "data": {"a": "1", "b": "2"}, **content}


A, B = {"f:data": {"f:a": {}}}, {"f:data": {"f:b": {}}}
OURS = entry(MANAGER, "Apply", A)
EDIT = entry("kubectl-edit", "Update", B)
OPERATOR = entry("operator", "Update", B)


# --- taking over ---


@pytest.mark.parametrize(
    ("manager", "operation", "is_adopted"),
    [
        ("kubectl-client-side-apply", "Update", True),
        ("kubectl-create", "Update", True),
        ("kubectl", "Apply", True),
        ("helm", "Apply", True),
        ("helm", "Update", True),
        ("before-first-apply", "Update", True),
        ("kubectl-rollout", "Update", False),
        ("kubectl", "Update", False),
        ("kubectl-edit", "Update", False),
        ("argocd-controller", "Apply", False),
    ],
)
def test_tools_that_applied_are_told_from_those_that_changed(
    manager: str, operation: str, is_adopted: bool
) -> None:
    assert bool(managed_fields.adoptable(live_of(entry(manager, operation, A)))) is is_adopted
    assert not managed_fields.adoptable(live_of(entry(manager, operation, A, "status")))


def test_entries_become_one_of_ours_and_others_stay() -> None:
    helm = entry("helm", "Apply", {"f:data": {"f:b": {}}, "f:spec": {"f:replicas": {}}})
    operator = entry("operator", "Update", {"f:data": {"f:c": {}}})
    live = live_of(OURS, helm, operator)
    test, replace = own(live, api_version="v1", adopt=True, spare=[("f:spec", "f:replicas")])
    assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    mine, other = replace["value"]
    assert (mine["manager"], mine["operation"]) == ("mlstack", "Apply")
    assert mine["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}
    assert other == operator


@pytest.mark.parametrize(
    ("path", "allocated"),
    [("spec.clusterIP", True), ("spec.ports[80,TCP].nodePort", True), ("spec.type", False)],
)
def test_what_the_server_allocates_is_kept(path: str, allocated: bool) -> None:
    assert is_allocated(path) is allocated


# --- fields that the files had once ---

PORTS = {"f:spec": {"f:ports": {PORT: {".": {}, "f:port": {}, "f:name": {}}}}}
ITEM_81 = {"port": 81, "protocol": "TCP", "name": "x"}
EDITED: tuple[list[str], list[str]] = (["kubectl-edit data.b"], [])
NOTHING: tuple[list[str], list[str]] = ([], [])
ONCE = {"data": {"b": "1"}}


@pytest.mark.parametrize(
    ("live", "applied", "facts", "parted"),
    [
        (live_of(OURS, EDIT), [{"data": {"a": "1", "b": "1"}}], {}, EDITED),
        (live_of(OURS, EDIT), [{"data": {"a": "1"}}], {}, NOTHING),
        (live_of(OURS, EDIT), [], {}, NOTHING),
        (live_of(OURS, EDIT), [{"data": {"a": "1"}}, {"data": {"b": "0"}}], {}, EDITED),
        (live_of(OURS, EDIT), [ONCE], {"manifest": {"data": {"a": "1", "b": "1"}}}, NOTHING),
        (live_of(OURS, OPERATOR), [ONCE], {}, ([], ["operator data.b"])),
        (live_of(OURS, EDIT, OPERATOR), [ONCE], {}, ([], ["kubectl-edit data.b", "operator data.b"])),
        (
            live_of(OURS, OPERATOR),
            [ONCE],
            {"policy": ConflictPolicy(force=read_list("data.b"))},
            (["operator data.b"], []),
        ),
        (live_of(OURS, OPERATOR), [ONCE], {"policy": ConflictPolicy(forced=True)}, (["operator data.b"], [])),
        (live_of(OURS, EDIT), [ONCE], {"policy": ConflictPolicy(ignore=read_list("data.b"))}, NOTHING),
        (live_of(OURS, EDIT), [ONCE], {"spare": [("f:data", "f:b")]}, ([], ["kubectl-edit data.b"])),
        (
            live_of(OURS, entry("kubectl-edit", "Update", PORTS), spec={"ports": [ITEM_81]}),
            [{"spec": {"ports": [{"port": 81, "name": "y"}]}}],
            {},
            (["kubectl-edit spec.ports[81,TCP]"], []),
        ),
        (
            live_of(
                OURS, entry("kubectl-create", "Update", {"f:data": {".": {}, "f:c": {}}}), data={"c": "3"}
            ),
            [{"data": {"a": "1"}}],
            {},
            NOTHING,
        ),
    ],
    ids=[
        "a person changed it",
        "a person added it",
        "nothing is known",
        "a set before that brought it",
        "the files still have it",
        "a program owns it",
        "a program owns it too",
        "an annotation forces it",
        "forced",
        "an annotation ignores it",
        "spared",
        "a whole item, of which a key was not written",
        "values count, not the map around them",
    ],
)
def test_what_the_files_had_once_goes_unless_a_program_has_it(
    live: Obj, applied: list[Obj], facts: Obj, parted: tuple[list[str], list[str]]
) -> None:
    manifest = facts.pop("manifest", {"data": {"a": "1"}})
    assert judged(live, live, applied, manifest, **facts) == parted


def judged(
    live: Obj, after: Obj, applied: list[Obj], manifest: Obj, policy: Any = None, **facts: Any
) -> tuple[list[str], list[str]]:
    fields = fields_of_no_file(after, manifest)
    going, staying = dropped_fields(fields, live, applied, policy or ConflictPolicy(), **facts)
    lines = [[f"{owner.manager} {path_text(path)}" for owner, path in part] for part in (going, staying)]
    return lines[0], lines[1]


def test_what_a_tool_applied_beside_us_stays_until_it_is_taken_over() -> None:
    theirs = entry("kubectl", "Apply", B)
    live = live_of(entry(MANAGER, "Apply", {"f:data": {"f:a": {}, "f:b": {}}}), theirs)
    after, manifest = live_of(OURS, theirs), {"data": {"a": "1"}}
    assert judged(live, after, [], manifest) == ([], ["kubectl data.b"])
    adopting = ConflictPolicy(adopted=frozenset({Owner("kubectl", "Apply")}))
    assert judged(live, after, [], manifest, adopting) == (["kubectl data.b"], [])


# --- items in the place of ours ---

ITEM = ("f:spec", "f:ports", PORT)
BELOW = {".": {}, "f:port": {}}
SERVICE = {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}
REQUIRED = Cause(field="spec.ports[1].name", message="Required value")


def service(manager: str, **more: Obj) -> Obj:
    """Give a Service whose port was changed from 80 to 81 by a manager."""
    ours = entry(MANAGER, "Apply", {"f:spec": {"f:selector": {}}})
    theirs = entry(manager, "Update", {"f:spec": {"f:ports": {PORT: BELOW}, **more}})
    return live_of(ours, theirs, spec={"ports": [{"port": 81, "protocol": "TCP"}], "selector": {}})


@pytest.mark.parametrize(
    ("live", "manifest", "causes", "items"),
    [
        (service("kubectl-patch"), SERVICE, [REQUIRED], (ITEM,)),
        (service("some-operator"), SERVICE, [REQUIRED], ()),
        (service("kubectl-patch"), {"spec": {"selector": {}}}, [REQUIRED], ()),
        (service("kubectl-patch"), SERVICE, [REQUIRED, Cause(field="spec.clusterIP", message="fixed")], ()),
        (service("kubectl-patch"), SERVICE, [], ()),
    ],
    ids=["a person's", "a program's", "a list that is not ours", "a fault of something else", "no cause"],
)
def test_an_item_that_a_person_put_in_place_of_ours_is_found(
    live: Obj, manifest: Obj, causes: list[Cause], items: tuple[managed_fields.FieldPath, ...]
) -> None:
    assert displaced_items(live, manifest, causes) == items


def test_taken_items_are_ours_and_the_rest_stays_with_its_owner() -> None:
    live = service("kubectl-patch", **{"f:type": {}})
    _, replaced = own(live, api_version="v1", paths=[ITEM])
    after = {"metadata": {"managedFields": replaced["value"]}}
    assert managed_fields.owned(after, MANAGER) == {"f:spec": {"f:selector": {}, "f:ports": {PORT: BELOW}}}
    (theirs,) = [other for other in managed_fields.entries(after) if other.owner.manager == "kubectl-patch"]
    assert theirs.tree == {"f:spec": {"f:type": {}}}
    _, replaced = own(service("kubectl-edit"), api_version="v1", paths=[ITEM])
    assert [raw["manager"] for raw in replaced["value"]] == [MANAGER]
