"""How an inventory changes with a run."""

from typing import Any

from mlstack.deploy.changes import Action, Change
from mlstack.deploy.inventory import Inventory, Member, grown, owned_hash, payload_hash, shrunk
from mlstack.objects.kube_object import Identity, KubeObject

EMPTY = Inventory(app="demo", environment="dev", namespace="ml")


def identity(name: str) -> Identity:
    return Identity("", "ConfigMap", "ml", name)


def change(name: str, action: Action = "create", *, component: str = "web", **facts: Any) -> Change:
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ml"}}
    desired = None if action in ("delete", "kept") else KubeObject(data=data, component=component)
    facts.setdefault("writes", action not in ("unchanged", "kept", "missing"))
    return Change(
        identity=identity(name),
        component=component,
        action=action,
        api_version="v1",
        desired=desired,
        **facts,
    )


def live(uid: str) -> dict[str, Any]:
    own = {"manager": "mlstack", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}}
    return {"metadata": {"uid": uid, "managedFields": [own]}}


KNOWN = Member(
    identity=identity("a"), api_version="v1", component="old", uid="1", payload_hash="p", owned_hash="o"
)


def test_new_objects_are_members_before_they_are_there() -> None:
    assert list(grown(EMPTY, [change("a")]).members) == [identity("a")]


def test_what_is_about_to_be_written_loses_its_hashes() -> None:
    found = grown(EMPTY.with_members([KNOWN]), [change("a", "update", live_uid="1")]).members[identity("a")]
    assert (found.uid, found.payload_hash, found.owned_hash, found.component) == ("1", "", "", "web")


def test_what_stays_keeps_its_hashes() -> None:
    inventory = EMPTY.with_members([KNOWN])
    found = grown(inventory, [change("a", "unchanged", live_uid="1", component="old")])
    assert found.members == inventory.members


def test_what_goes_missing_or_away_is_no_new_member() -> None:
    assert grown(EMPTY, [change("a", "missing"), change("b", "delete"), change("c", "kept")]).members == {}
    assert grown(EMPTY, [change("ml", component="")]).members == {}  # the environment's own namespace


def test_what_was_written_gets_its_hashes() -> None:
    changes = [change("a")]
    found = shrunk(grown(EMPTY, changes), changes, written={identity("a"): live("7")}, gone=())
    desired = changes[0].desired
    assert desired is not None
    assert found.members[identity("a")] == Member(
        identity=identity("a"),
        api_version="v1",
        component="web",
        uid="7",
        payload_hash=payload_hash(desired.data),
        owned_hash=owned_hash(live("7")),
    )


def test_the_hash_is_of_what_was_really_sent() -> None:
    changes = [change("a", payload={"kind": "ConfigMap", "data": {}})]
    found = shrunk(grown(EMPTY, changes), changes, written={identity("a"): live("7")}, gone=())
    assert found.members[identity("a")].payload_hash == payload_hash({"kind": "ConfigMap", "data": {}})


def test_what_was_not_reached_stays_a_member_without_hashes() -> None:
    changes = [change("a", "update", live_uid="1"), change("b")]
    found = shrunk(grown(EMPTY.with_members([KNOWN]), changes), changes, written={}, gone=())
    assert {key.name: one.payload_hash for key, one in found.members.items()} == {"a": "", "b": ""}


def test_what_was_found_unchanged_by_asking_gets_its_hashes() -> None:
    changes = [change("a", "unchanged", live_uid="7", seen=live("7"))]
    found = shrunk(EMPTY, changes, written={}, gone=()).members[identity("a")]
    assert (found.uid, found.owned_hash) == ("7", owned_hash(live("7")))


def test_only_what_is_gone_leaves() -> None:
    inventory = EMPTY.with_members([KNOWN, Member(identity=identity("z"), api_version="v1")])
    changes = [change("a", "delete"), change("z", "delete")]
    found = shrunk(inventory, changes, written={}, gone={identity("z")})
    assert list(found.members) == [identity("a")]
