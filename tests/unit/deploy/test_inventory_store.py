"""Reading and writing the inventory in a cluster in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from mlstack.deploy import inventory
from mlstack.deploy.inventory import Inventory, Member
from mlstack.errors import ConflictError
from mlstack.kube.client import ObjectRef
from mlstack.objects.kube_object import Identity
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas

EMPTY = Inventory(app="demo", environment="dev", namespace="default")
PARENT = ObjectRef("v1", "ConfigMap", "default", EMPTY.name)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"))


def members(count: int) -> Iterable[Member]:
    return [
        Member(identity=Identity("", "ConfigMap", "default", f"n{number:04}"), api_version="v1")
        for number in range(count)
    ]


def read(cluster: MemoryCluster) -> Inventory:
    return inventory.load_inventory(cluster, EMPTY)


def names(cluster: MemoryCluster) -> list[str]:
    return [item["metadata"]["name"] for item in cluster.list("v1", "ConfigMap", namespace="default").items]


def test_what_is_written_is_read(cluster: MemoryCluster) -> None:
    assert not read(cluster).exists
    written = inventory.write(cluster, EMPTY, EMPTY.with_members(members(3)))
    assert read(cluster) == written
    inventory.remove(cluster, inventory.write(cluster, written, EMPTY))
    assert not read(cluster).exists


def test_nothing_is_written_twice(cluster: MemoryCluster) -> None:
    written = inventory.write(cluster, EMPTY, EMPTY.with_members(members(3)))
    again = inventory.write(cluster, written, EMPTY.with_members(members(3)))
    assert (again.version, again.uid) == (written.version, written.uid)


def test_an_inventory_that_moved_is_not_overwritten(cluster: MemoryCluster) -> None:
    first = inventory.write(cluster, EMPTY, EMPTY.with_members(members(1)))
    inventory.write(cluster, first, EMPTY.with_members(members(2)))
    with pytest.raises(ConflictError):
        inventory.write(cluster, first, EMPTY.with_members(members(3)))
    assert len(read(cluster).members) == 2


def test_a_touch_that_changes_no_member_is_no_matter(cluster: MemoryCluster) -> None:
    first = inventory.write(cluster, EMPTY, EMPTY.with_members(members(1)))
    cluster.patch(PARENT, {"metadata": {"annotations": {"example.com/note": "seen"}}}, manager="kubectl")
    inventory.write(cluster, first, EMPTY.with_members(members(2)))
    assert len(read(cluster).members) == 2


def test_a_write_whose_answer_was_lost_has_happened(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is sent again, and refused because of itself."""
    first = inventory.write(cluster, EMPTY, EMPTY.with_members(members(1)))
    apply = cluster.apply

    def twice(document: dict[str, Any], **how: Any) -> Any:
        apply(document, **how)
        return apply(document, **how)

    monkeypatch.setattr(cluster, "apply", twice)
    written = inventory.write(cluster, first, EMPTY.with_members(members(2)))
    assert written == read(cluster)
    assert len(written.members) == 2


def test_refusals_that_mean_nothing_are_seen_through(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = inventory.write(cluster, EMPTY, EMPTY.with_members(members(1)))
    apply, refused = cluster.apply, list(range(5))

    def stormy(document: dict[str, Any], **how: Any) -> Any:
        if refused:
            refused.pop()
            raise ConflictError("the object has been modified")
        return apply(document, **how)

    monkeypatch.setattr(cluster, "apply", stormy)
    inventory.write(cluster, first, EMPTY.with_members(members(2)))
    assert len(read(cluster).members) == 2


def test_parts_come_and_go(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory.encode, "__kwdefaults__", {"limit_bytes": 2_000})
    many = inventory.write(cluster, EMPTY, EMPTY.with_members(members(200)))
    assert len(many.parts) > 3
    assert read(cluster) == many
    fewer = inventory.write(cluster, many, EMPTY.with_members(members(100)))
    assert read(cluster) == fewer
    assert sorted(names(cluster)) == sorted([EMPTY.name, *fewer.parts])
    few = inventory.write(cluster, fewer, EMPTY.with_members(members(2)))
    assert (few.parts, names(cluster)) == ((), [EMPTY.name])


def test_parts_of_a_killed_run_go_with_the_next(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory.encode, "__kwdefaults__", {"limit_bytes": 2_000})
    written = inventory.write(cluster, EMPTY, EMPTY.with_members(members(100)))
    apply = cluster.apply

    def cut(document: dict[str, Any], **how: Any) -> Any:
        if document["metadata"]["name"] == EMPTY.name:
            raise ConflictError("cut off")
        return apply(document, **how)

    monkeypatch.setattr(cluster, "apply", cut)
    with pytest.raises(ConflictError):
        inventory.write(cluster, written, EMPTY.with_members(members(150)))
    assert read(cluster) == written
    monkeypatch.setattr(cluster, "apply", apply)
    after = inventory.write(cluster, written, EMPTY.with_members(members(101)))
    assert sorted(names(cluster)) == sorted([EMPTY.name, *after.parts])


def test_a_missing_part_is_damage(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory.encode, "__kwdefaults__", {"limit_bytes": 2_000})
    written = inventory.write(cluster, EMPTY, EMPTY.with_members(members(100)))
    cluster.delete(ObjectRef("v1", "ConfigMap", "default", written.parts[0]))
    (note,) = read(cluster).notes
    assert "is damaged (a part of it is missing)" in note
