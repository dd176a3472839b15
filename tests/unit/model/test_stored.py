"""The inventory as ConfigMaps."""

from typing import Any

import pytest

from mlstack.deploy import inventory as stored
from mlstack.deploy.inventory import ID_LABEL, Inventory, Member
from mlstack.objects.kinds import Kinds
from mlstack.objects.kube_object import Identity


def inventory(count: int) -> Inventory:
    members = [
        Member(
            identity=Identity("apps", "Deployment", f"team-{number % 20}", f"training-service-{number:05}"),
            api_version="apps/v1",
            component=f"module.component-{number % 40}",
            uid=f"0f1e2d3c-4b5a-4978-8695-a4b3c2d1{number:04x}",
            payload_hash=f"{number:016x}",
            owned_hash=f"{number:016x}",
        )
        for number in range(count)
    ]
    return Inventory(app="demo", environment="us/dev", namespace="ml").with_members(members)


def written(wanted: Inventory, **options: Any) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    return stored.encode(wanted, version="1.0.0", kinds=Kinds.builtin(), **options)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_what_is_written_is_read(count: int) -> None:
    wanted = inventory(count)
    parent, parts = written(wanted)
    assert parts == ()
    assert stored.decode(parent, ()) == wanted.members
    assert parent["metadata"]["labels"][ID_LABEL] == wanted.id
    assert "mlstack.dev/component" not in parent["metadata"]["labels"]
    assert stored.belongs_to(parent, app="demo", environment="us/dev")
    assert not stored.belongs_to(parent, app="demo", environment="us/prod")


def test_a_member_takes_few_bytes() -> None:
    parent, _ = written(inventory(300))
    assert len(parent["data"]["members"]) / 300 < 190


def test_six_thousand_objects_are_split_and_read_again() -> None:
    wanted = inventory(6_000)
    parent, parts = written(wanted)
    assert len(parts) == 2
    for document in (parent, *parts):
        assert sum(map(len, document["data"].values())) < 1_000_000
    assert stored.part_names(parent) == tuple(part["metadata"]["name"] for part in parts)
    assert stored.decode(parent, parts) == wanted.members


def test_parts_are_named_by_what_they_hold() -> None:
    wanted = inventory(40)
    last = Member(identity=Identity("zzz.example.com", "Last", "", "z"), api_version="zzz.example.com/v1")
    both = (written(one, limit_bytes=2_000)[1] for one in (wanted, wanted.with_members([last])))
    names = [[part["metadata"]["name"] for part in parts] for parts in both]
    assert names[0][:-1] == names[1][: len(names[0]) - 1]
    assert names[0][-1] != names[1][len(names[0]) - 1]
    assert all(name.startswith("mlstack-demo.us.dev.i") for name in names[0])


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
    with pytest.raises(stored.DamagedInventoryError):
        stored.decode({"data": data}, ())


def test_a_later_format_is_no_damage() -> None:
    with pytest.raises(stored.NewerError):
        stored.decode({"data": {"format": "2", "something": "else"}}, ())


def test_a_changed_part_is_seen() -> None:
    parent, parts = written(inventory(40), limit_bytes=2_000)
    parts[1]["data"]["members"] = parts[1]["data"]["members"].partition("\n")[2]
    with pytest.raises(stored.DamagedInventoryError, match="was changed"):
        stored.decode(parent, parts)
