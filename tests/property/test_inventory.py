"""Laws of the inventory: whatever stops a run, it covers all live objects of ours; the next one converges."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.deploy import inventory, prune
from mlstack.deploy.changes import Change
from mlstack.deploy.inventory import Inventory, Member
from mlstack.errors import MlstackError
from mlstack.objects.kube_object import Identity, Kinds, records_name
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.cut import CutCluster
from tests.support.deploying import Stack, VirtualClock, config_map, secret

NAMES = [f"n{number}" for number in range(6)]
EMPTY = Inventory(app="demo", environment="minikube", namespace="ml")

Wanted = Mapping[str, tuple[str, str]]
"""Name of an object → its component and its value."""

wanted: st.SearchStrategy[Wanted] = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.sampled_from("ab"), st.sampled_from("12")), min_size=1
)
texts = st.text(max_size=8)


@st.composite
def members(draw: st.DrawFn) -> Member:
    group = draw(st.sampled_from(["", "apps", "kubeflow.org"]))
    kind = draw(st.sampled_from(["ConfigMap", "Deployment", "TFJob"]))
    namespace, name = draw(st.sampled_from(["", "ml", "other"])), draw(st.text(min_size=1, max_size=8))
    return Member(
        identity=Identity(group, kind, namespace, name),
        api_version=f"{group}/v1" if group else "v1",
        component=draw(texts),
        uid=draw(texts),
        payload_hash=draw(texts),
        owned_hash=draw(texts),
    )


def write(stack: Stack, state: Wanted) -> None:
    """Make the app bring these objects and no others."""
    for component in "ab":
        manifests = [
            secret(name, value=value) if name == "n0" else config_map(name, value=value)
            for name, (where, value) in state.items()
            if where == component
        ]
        if manifests:
            stack.write(component, *manifests)
        elif (stack.root / f"components/{component}.yaml").exists():
            stack.remove(component)


def live(cluster: MemoryCluster) -> dict[Identity, Mapping[str, Any]]:
    """Give everything in the cluster that an apply of ours made."""
    items = [
        item
        for kind in ("ConfigMap", "Secret")
        for item in cluster.list("v1", kind, namespace="ml", labels="mlstack.dev/component").items
    ]
    return {Identity("", item["kind"], "ml", item["metadata"]["name"]): item for item in items}


def recorded(cluster: MemoryCluster) -> Mapping[Identity, Member]:
    return inventory.load_inventory(cluster, EMPTY).members


@given(before=wanted, after=wanted, writes=st.integers(0, 14), answered=st.booleans())
def test_a_run_that_was_cut_off_leaves_nothing_behind(
    before: Wanted, after: Wanted, writes: int, answered: bool
) -> None:
    """The inventory covers what is there at any moment; one more apply gives what an undisturbed one does."""
    cluster = MemoryCluster(load_schemas("1.36"), name="minikube", clock=VirtualClock())
    with tempfile.TemporaryDirectory() as folder:
        opened: list[Any] = [cluster]
        stack = Stack(
            Path(folder) / "app", namespace="ml", opener=lambda context: opened[0], clock=VirtualClock()
        )
        write(stack, before)
        stack.apply(allow_large_prune=True)
        write(stack, after)
        opened[0] = CutCluster(cluster, writes=writes, answered=answered)
        try:
            stack.apply(allow_large_prune=True)
        except MlstackError:
            covered = recorded(cluster)
            assert set(live(cluster)) <= set(covered)
        opened[0] = cluster
        result = stack.apply(allow_large_prune=True)
        assert result.ok
        assert {key.name: item["metadata"]["labels"] for key, item in live(cluster).items()}.keys() == (
            after.keys()
        )
        assert set(recorded(cluster)) == set(live(cluster))
        assert all(
            member.uid == live(cluster)[key]["metadata"]["uid"] for key, member in recorded(cluster).items()
        )
        components = {
            key.name: item["metadata"]["labels"]["mlstack.dev/component"]
            for key, item in live(cluster).items()
        }
        assert components == {name: where for name, (where, _) in after.items()}
        assert stack.diff().ok


@given(st.lists(members(), max_size=30), st.integers(200, 3_000))
def test_what_is_stored_is_read_again(members: list[Member], limit_bytes: int) -> None:
    """Writing an inventory and reading it gives the same members, in however many parts."""
    stored = EMPTY.with_members(members)
    parent, parts = inventory.encode(stored, version="1", kinds=Kinds.builtin(), limit_bytes=limit_bytes)
    assert inventory.decode(parent, parts) == stored.members
    assert inventory.part_names(parent) == tuple(part["metadata"]["name"] for part in parts)


@given(st.lists(members(), max_size=10), st.lists(members(), max_size=10))
def test_the_union_holds_both_and_the_order_of_neither(first: list[Member], second: list[Member]) -> None:
    """A union covers both sides; what is stored of it does not depend on the order they came in."""
    union = EMPTY.with_members(first).with_members(second)
    assert {member.identity for member in (*first, *second)} == set(union.members)
    again = EMPTY.with_members(reversed(list(union.members.values())))
    written = [inventory.encode(side, version="1", kinds=Kinds.builtin()) for side in (union, again)]
    assert written[0] == written[1]


@given(st.text(min_size=1, max_size=63), st.text(max_size=63), st.text(min_size=1, max_size=63))
def test_ids_are_label_values_and_tell_sets_apart(name: str, namespace: str, other: str) -> None:
    """An ID has 55 characters of a label value and depends on name and namespace."""
    label = inventory.set_id(name, namespace)
    assert len(label) == 55
    assert label.startswith("applyset-") and label.endswith("-v1")
    assert set(label) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert (label == inventory.set_id(other, namespace)) == (name == other)


@given(
    st.from_regex(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,20}[a-zA-Z0-9])?", fullmatch=True),
    st.lists(
        st.from_regex(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,20}[a-zA-Z0-9])?", fullmatch=True),
        min_size=1,
        max_size=3,
    ),
)
def test_every_app_and_environment_has_a_name_kubernetes_takes(app: str, parts: list[str]) -> None:
    """The name is a DNS subdomain of at most 200 characters."""
    label = records_name(app, "/".join(parts))
    assert len(label) <= 200
    labels = label.split(".")
    assert all(label and label[0] != "-" and label[-1] != "-" for label in labels)
    assert set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


@given(st.integers(0, 20), st.integers(0, 20))
def test_too_much_is_more_than_half_of_enough(going: int, more: int) -> None:
    """Few deletions and at most half of all are never too much; everything of a larger set always is."""
    members = going + more
    changes = tuple(
        Change(identity=Identity("", "Secret", "ml", str(number)), component="a", action="delete")
        for number in range(going)
    )
    warning = prune.PruneSet(changes=changes, of=members).warning
    assert bool(warning) == (going >= 4 and going > members / 2)
