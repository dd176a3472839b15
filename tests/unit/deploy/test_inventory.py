"""The inventory as a value: name, marks, hashes, how it changes with a run, how ConfigMaps hold it."""

import re
from typing import Any

import pytest

from mlstack.deploy import inventory
from mlstack.deploy.changes import Change, ChangeAction
from mlstack.deploy.inventory import ID_LABEL, Inventory, Member, owned_hash, payload_hash
from mlstack.errors import ClusterError, ConflictError
from mlstack.kube.client import ObjectRef
from mlstack.objects.kube_object import Identity, Kinds, KubeObject, belongs_to, records_name
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
EMPTY = Inventory(app="demo", environment="us/dev", namespace="ml")
SECRET = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"password": "aHVzaA=="}}


def identity(name: str) -> Identity:
    return Identity("", "ConfigMap", "ml", name)


def member(name: str, component: str = "web", **facts: str) -> Member:
    return Member(identity=identity(name), api_version="v1", component=component, **facts)


# --- name and union ---


@pytest.mark.parametrize(
    ("app", "environment"),
    [("My_App", "dev"), ("a.b", "c"), ("a", "b.c"), ("a", "b_-/c"), ("a" * 63, "/".join(["e" * 60] * 4))],
)
def test_other_names_are_made_to_fit_and_stay_apart(app: str, environment: str) -> None:
    name = records_name(app, environment)
    assert SUBDOMAIN.fullmatch(name)
    assert len(name) <= 200
    assert name != records_name(app.lower().replace("_", "-"), environment + "x")


# --- marks of KEP-3659 ---


def test_ids_are_those_of_other_tools() -> None:
    expected = "applyset-gMdVBSKqJ3RtneUhWacnU-3hBIyJjBKT7cjoJ86d9Kk-v1"  # of ConfigMap ml/mlstack-dev
    assert inventory.set_id("mlstack-dev", "ml") == expected


def test_annotations_are_sorted_and_name_served_kinds_only() -> None:
    members = [
        Identity("example.com", "Gadget", "ml", "g"),
        Identity("", "Secret", "b", "s"),
        Identity("apps", "Deployment", "ml", "d"),
        Identity("", "ConfigMap", "a", "c"),
        Identity("rbac.authorization.k8s.io", "ClusterRole", "", "r"),
    ]
    parent, _ = encode(EMPTY.with_members(Member(identity=key, api_version="v1") for key in members))
    assert parent["metadata"]["annotations"] == {
        "applyset.kubernetes.io/tooling": "mlstack/v1.0.0",
        "applyset.kubernetes.io/contains-group-kinds": (
            "ClusterRole.rbac.authorization.k8s.io,ConfigMap,Deployment.apps,Secret"
        ),
        "applyset.kubernetes.io/additional-namespaces": "a,b",
    }


def parent(tooling: str | None = "mlstack/v0.1.0", set_id: str | None = "applyset-x-v1") -> dict[str, Any]:
    labels = {} if set_id is None else {ID_LABEL: set_id}
    annotations = {} if tooling is None else {inventory.TOOLING: tooling}
    metadata = {"name": "p", "namespace": "ml", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (parent("kubectl/v1.32"), "managed by `kubectl/v1.32` instead of `mlstack`"),
        (parent("mlstack/fork/v1"), "managed by `mlstack/fork/v1`"),
        (parent(None), "no inventory of mlstack"),
        (parent(set_id="applyset-y-v1"), "`applyset-y-v1` instead of `applyset-x-v1`"),
        (parent(set_id=None), "with `` instead of"),
    ],
    ids=["kubectl", "fork", "no set", "copied", "unlabelled"],
)
def test_other_sets_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ClusterError) as error:
        inventory.check_parent(data, "applyset-x-v1")
    assert message in error.value.message
    assert "kubectl delete configmap -n ml p" in (error.value.hint or "")


# --- hashes ---


def test_the_hash_of_a_payload_is_of_what_it_says() -> None:
    data = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}
    same = {"data": {"y": "2", "x": "1"}, "apiVersion": "v1", "kind": "ConfigMap"}
    versioned = {**same, "metadata": {"name": "a", "uid": "7", "resourceVersion": "8"}}
    assert payload_hash(data) == payload_hash(versioned) != payload_hash({**data, "data": {"x": "1"}})
    assert re.fullmatch("[0-9a-f]{16}", payload_hash(data))
    assert payload_hash(SECRET) == ""
    assert payload_hash({**SECRET, "apiVersion": "example.com/v1"}) != ""


def test_the_hash_of_our_fields_ignores_others_and_time() -> None:
    def at(time: str, *others: dict[str, object]) -> dict[str, object]:
        own = {"manager": "mlstack", "operation": "Apply", "time": time, "fieldsV1": {"f:data": {"f:a": {}}}}
        return {"metadata": {"managedFields": [*others, own]}}

    other = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}}
    assert owned_hash(at("1")) == owned_hash(at("2", other)) != ""
    assert owned_hash({"metadata": {"managedFields": [other]}}) == ""


# --- with a run ---

KNOWN = member("a", "old", uid="1", payload_hash="p", owned_hash="o")


def change(name: str, action: ChangeAction = "create", *, component: str = "web", **facts: Any) -> Change:
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ml"}}
    desired = None if action in ("delete", "kept") else KubeObject(data=data, component=component)
    facts = {"writes": action not in ("unchanged", "kept", "missing"), "desired": desired, **facts}
    return Change(identity=identity(name), component=component, action=action, api_version="v1", **facts)


def live(uid: str) -> dict[str, Any]:
    own = {"manager": "mlstack", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}}
    return {"metadata": {"uid": uid, "managedFields": [own]}}


def after(*changes: Change, before: Inventory = EMPTY, **written: str) -> dict[str, Member]:
    """Give the members after a run that wrote these objects, by name."""
    arrived = {identity(name): live(uid) for name, uid in written.items()}
    left = inventory.shrunk(inventory.grown(before, changes), changes, written=arrived, gone=())
    return {key.name: member for key, member in left.members.items()}


def test_what_is_about_to_be_written_loses_its_hashes_and_what_stays_keeps_them() -> None:
    before = EMPTY.with_members([KNOWN])
    (member,) = inventory.grown(before, [change("a", "update", live_uid="1")]).members.values()
    assert (member.uid, member.payload_hash, member.owned_hash, member.component) == ("1", "", "", "web")
    unchanged = change("a", "unchanged", live_uid="1", component="old")
    assert inventory.grown(before, [unchanged]).members == before.members


def test_what_was_written_gets_its_hashes() -> None:
    write = change("a")
    assert write.desired is not None
    hashes = {"payload_hash": payload_hash(write.desired.data), "owned_hash": owned_hash(live("7"))}
    assert after(write, a="7") == {"a": member("a", uid="7", **hashes)}
    payload = {"kind": "ConfigMap", "data": {}}
    assert after(change("a", payload=payload), a="7")["a"].payload_hash == payload_hash(payload)


def test_what_was_not_reached_stays_a_member_without_hashes() -> None:
    left = after(change("a", "update", live_uid="1"), change("b"), known=EMPTY.with_members([KNOWN]))
    assert {name: member.payload_hash for name, member in left.items()} == {"a": "", "b": ""}


# --- codec ---


def many(count: int) -> Inventory:
    return EMPTY.with_members(
        Member(
            identity=Identity("apps", "Deployment", f"team-{number % 20}", f"training-service-{number:05}"),
            api_version="apps/v1",
            component=f"module.component-{number % 40}",
            uid=f"0f1e2d3c-4b5a-4978-8695-a4b3c2d1{number:04x}",
            payload_hash=f"{number:016x}",
            owned_hash=f"{number:016x}",
        )
        for number in range(count)
    )


def encode(whole: Inventory, **options: Any) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    return inventory.encode(whole, version="1.0.0", kinds=Kinds.builtin(), **options)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_one_config_map_says_whose_it_is_and_holds_members_in_few_bytes(count: int) -> None:
    parent, parts = encode(many(count))
    assert parts == ()
    assert inventory.decode(parent, ()) == many(count).members
    assert len(parent["data"]["members"]) <= 190 * count
    assert parent["metadata"]["labels"][ID_LABEL] == EMPTY.id
    assert "mlstack.dev/component" not in parent["metadata"]["labels"]
    assert belongs_to(parent, app="demo", environment="us/dev")
    assert not belongs_to(parent, app="demo", environment="us/prod")


def test_six_thousand_objects_are_split_and_read_again() -> None:
    parent, parts = encode(many(6_000))
    assert len(parts) == 2
    assert all(sum(map(len, document["data"].values())) < 1_000_000 for document in (parent, *parts))
    assert inventory.decode(parent, parts) == many(6_000).members


def test_parts_are_named_by_what_they_hold() -> None:
    last = Member(identity=Identity("zzz.example.com", "Last", "", "z"), api_version="zzz.example.com/v1")
    both = (encode(content, limit_bytes=2_000)[1] for content in (many(40), many(40).with_members([last])))
    names, others = ([part["metadata"]["name"] for part in parts] for parts in both)
    assert names[:-1] == others[: len(names) - 1]
    assert names[-1] != others[len(names) - 1]
    assert all(name.startswith("mlstack-demo.us.dev.i") for name in names)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": "1"},
        {"format": "x", "members": ""},
        {"format": "1", "members": "not json\n"},
        {"format": "1", "members": '["apps/v1","Deployment","ml"]\n'},
        {"format": "1", "members": '{"a":1}\n'},
        {"format": "1", "members": '["","","","","","","",""]\n'},
        {"format": "1", "members": '["v1","Pod","ml",7,"","","",""]\n'},
        {"format": "1", "members": "[" * 200_000},
        {"format": "9" * 5000, "members": ""},
        {"format": "1", "parts": "foreign\n"},
        {"format": "1", "parts": "".join(f".i{number}\n" for number in range(100_000))},
        {"format": "1", "parts": ".i1\n" * 2},
    ],
    ids=lambda data: str(data)[:60],
)
def test_damage_is_seen(data: dict[str, str]) -> None:
    with pytest.raises(inventory.DamagedInventoryError):
        inventory.decode({"data": data}, ())


def test_a_later_format_is_no_damage() -> None:
    with pytest.raises(ClusterError, match="written by a newer mlstack"):
        inventory.decode({"data": {"format": "2", "something": "else"}}, ())


def test_a_changed_part_is_seen() -> None:
    parent, parts = encode(many(40), limit_bytes=2_000)
    parts[1]["data"]["members"] = parts[1]["data"]["members"].partition("\n")[2]
    with pytest.raises(inventory.DamagedInventoryError, match="was changed"):
        inventory.decode(parent, parts)


# --- in a cluster ---

KEPT = Inventory(app="demo", environment="dev", namespace="default")
PARENT = ObjectRef("v1", "ConfigMap", "default", KEPT.name)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"))


def listing(count: int) -> Inventory:
    keys = [Identity("", "ConfigMap", "default", f"n{number:04}") for number in range(count)]
    return KEPT.with_members(Member(identity=key, api_version="v1") for key in keys)


def read(cluster: MemoryCluster) -> Inventory:
    return inventory.load_inventory(cluster, KEPT)


def names(cluster: MemoryCluster) -> list[str]:
    return [item["metadata"]["name"] for item in cluster.list("v1", "ConfigMap", namespace="default").items]


def test_an_inventory_that_moved_is_not_overwritten(cluster: MemoryCluster) -> None:
    first = inventory.write(cluster, KEPT, listing(1))
    inventory.write(cluster, first, listing(2))
    with pytest.raises(ConflictError):
        inventory.write(cluster, first, listing(3))
    assert len(read(cluster).members) == 2


def test_a_touch_that_changes_no_member_is_no_matter(cluster: MemoryCluster) -> None:
    first = inventory.write(cluster, KEPT, listing(1))
    cluster.patch(PARENT, {"metadata": {"annotations": {"example.com/note": "seen"}}}, manager="kubectl")
    inventory.write(cluster, first, listing(2))
    assert len(read(cluster).members) == 2


def test_a_write_whose_answer_was_lost_has_happened(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is sent again, and refused because of itself."""
    first = inventory.write(cluster, KEPT, listing(1))
    apply = cluster.apply

    def twice(document: dict[str, Any], **how: Any) -> Any:
        apply(document, **how)
        return apply(document, **how)

    monkeypatch.setattr(cluster, "apply", twice)
    written = inventory.write(cluster, first, listing(2))
    assert written == read(cluster)
    assert len(written.members) == 2


def test_refusals_that_mean_nothing_are_seen_through(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = inventory.write(cluster, KEPT, listing(1))
    apply, refused = cluster.apply, list(range(5))

    def stormy(document: dict[str, Any], **how: Any) -> Any:
        if refused:
            refused.pop()
            raise ConflictError("the object has been modified")
        return apply(document, **how)

    monkeypatch.setattr(cluster, "apply", stormy)
    inventory.write(cluster, first, listing(2))
    assert len(read(cluster).members) == 2


def test_parts_come_and_go(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory.encode, "__kwdefaults__", {"limit_bytes": 2_000})
    many = inventory.write(cluster, KEPT, listing(200))
    assert len(many.parts) > 3
    assert read(cluster) == many
    fewer = inventory.write(cluster, many, listing(100))
    assert read(cluster) == fewer
    assert sorted(names(cluster)) == sorted([KEPT.name, *fewer.parts])
    few = inventory.write(cluster, fewer, listing(2))
    assert (few.parts, names(cluster)) == ((), [KEPT.name])


def test_parts_of_a_killed_run_go_with_the_next(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory.encode, "__kwdefaults__", {"limit_bytes": 2_000})
    written = inventory.write(cluster, KEPT, listing(100))
    apply = cluster.apply

    def cut(document: dict[str, Any], **how: Any) -> Any:
        if document["metadata"]["name"] == KEPT.name:
            raise ConflictError("cut off")
        return apply(document, **how)

    monkeypatch.setattr(cluster, "apply", cut)
    with pytest.raises(ConflictError):
        inventory.write(cluster, written, listing(150))
    assert read(cluster) == written
    monkeypatch.setattr(cluster, "apply", apply)
    after = inventory.write(cluster, written, listing(101))
    assert sorted(names(cluster)) == sorted([KEPT.name, *after.parts])


def test_a_missing_part_is_damage(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory.encode, "__kwdefaults__", {"limit_bytes": 2_000})
    written = inventory.write(cluster, KEPT, listing(100))
    cluster.delete(ObjectRef("v1", "ConfigMap", "default", written.parts[0]))
    (note,) = read(cluster).notes
    assert "is damaged (a part of it is missing)" in note


def test_what_goes_missing_or_away_is_no_new_member() -> None:
    others = [change("a", "missing"), change("b", "delete"), change("c", "kept")]
    assert inventory.grown(EMPTY, others).members == {}
    assert inventory.grown(EMPTY, [change("ml", component="")]).members == {}  # the environment's namespace
