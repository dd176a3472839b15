"""Laws of field sets, normal form, patches, and of applying."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.app.app_dir import AppDir
from mlstack.app.environment import Environment
from mlstack.deploy.changes import Changes, silent
from mlstack.deploy.run import Run
from mlstack.deploy.target import ResolvedTarget, Target
from mlstack.kube.client import ObjectRef
from mlstack.objects import managed_fields, order
from mlstack.objects.kube_object import DesiredState, KubeObject, normalised
from mlstack.render.patches import patched, read_patch
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.builders import MINIMAL_APP, write_tree
from tests.support.deploying import VirtualClock, config_map, deployment, secret
from tests.support.looking import compared

NAMES = st.text("abcxyz", min_size=1, max_size=3)
DATA = st.dictionaries(NAMES, st.text(max_size=3), max_size=4)


def trees() -> st.SearchStrategy[dict[str, Any]]:
    keys = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"name":"x"}'])
    members = st.recursive(st.just({}), lambda inner: st.dictionaries(keys, inner, min_size=1), max_leaves=12)
    return st.dictionaries(keys, members, max_size=4)


def members(tree: dict[str, Any]) -> set[tuple[str, ...]]:
    return set(managed_fields.paths(tree))


# --- field sets -----------------------------------------------------------------------------------


@given(trees(), trees())
def test_union_has_the_members_of_both(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert members(managed_fields.union(first, second)) == members(first) | members(second)


@given(trees(), trees())
def test_minus_has_the_members_that_the_other_lacks(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert members(managed_fields.minus(first, second)) == members(first) - members(second)


@given(DATA, DATA)
def test_compare_finds_every_difference_and_no_other(first: dict[str, str], second: dict[str, str]) -> None:
    tree = managed_fields.union(managed_fields.tree_of(first), managed_fields.tree_of(second))
    changed = {change.path for change in managed_fields.compare(first, second, tree)}
    assert changed == {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}


# --- normal form and patches ----------------------------------------------------------------------

KEYS = st.sampled_from(["a", "env", "limits", "labels", "data", "emptyDir", "status", "stringData"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES), st.sampled_from(["Pod", "Secret", "ConfigMap", "X"]), st.booleans())
def test_normal_form_is_final(content: dict[str, Any], kind: str, built_in: bool) -> None:
    data = {"kind": kind, "metadata": {"name": "a", "uid": "1"}, **content}
    once = normalised(data, built_in=built_in)
    assert normalised(once, built_in=built_in) == once


@given(DATA, st.dictionaries(NAMES, st.none() | st.text(max_size=3), max_size=4))
def test_a_patch_laid_twice_is_laid_once(data: dict[str, str], change: dict[str, str | None]) -> None:
    target = config_map(**data)
    patch = read_patch({**config_map(), "data": change}, where="here")
    once = patched([target], [patch])
    assert patched(once, [patch]) == once
    assert once[0]["data"] == {
        **{key: value for key, value in data.items() if key not in change},
        **{key: value for key, value in change.items() if value is not None},
    }


# --- applying -------------------------------------------------------------------------------------

PLACE = Environment(name="dev", context="dev", namespace="default")
SCHEMAS = load_schemas("1.36")


ENV = st.lists(
    st.builds(lambda name, value: {"name": name, "value": value}, NAMES, NAMES),
    max_size=3,
    unique_by=lambda manifest: manifest["name"],
)


@st.composite
def states(draw: st.DrawFn) -> DesiredState:
    """Draw what an environment wants: some of a few objects, each in one of several forms."""
    manifests = [
        *(config_map(name, **draw(DATA)) for name in draw(st.sets(st.sampled_from(["one", "two"])))),
        *([secret(**draw(DATA))] if draw(st.booleans()) else []),
        *([deployment(replicas=draw(st.integers(0, 3)), env=draw(ENV))] if draw(st.booleans()) else []),
    ]
    placed = [{**data, "metadata": {**data["metadata"], "namespace": "default"}} for data in manifests]
    wanted = tuple(KubeObject(data=normalised(data, built_in=True), component="a") for data in placed)
    return DesiredState(app="demo", environment="dev", namespace="default", objects=order.ordered(wanted))


@cache
def an_app() -> AppDir:
    """Give an app directory without components: an apply asks it for rules about fields."""
    folder = Path(tempfile.mkdtemp(prefix="mlstack-test-app-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return AppDir.find(write_tree(folder, {"app.yaml": MINIMAL_APP}))


def compare(state: DesiredState, cluster: MemoryCluster) -> Changes:
    target = Target(app=an_app(), environment=PLACE.name)
    who = cluster.identity()
    return compared(ResolvedTarget(target=target, place=PLACE, state=state, cluster=cluster, identity=who))


def apply(state: DesiredState, cluster: MemoryCluster) -> Changes:
    changes = compare(state, cluster)
    Run(cluster, on_event=silent, clock=VirtualClock()).apply(changes.changes)
    return changes


@given(st.lists(states(), min_size=1, max_size=3))
def test_after_an_apply_nothing_differs_and_a_second_writes_nothing(wanted: list[DesiredState]) -> None:
    cluster = MemoryCluster(SCHEMAS, clock=VirtualClock())
    for state in wanted:
        apply(state, cluster)
        again = compare(state, cluster)
        assert not again.visible
        assert again.writes == ()


@given(states(), states())
def test_the_way_to_a_state_leaves_no_trace(before: DesiredState, wanted: DesiredState) -> None:
    by_way, straight = (MemoryCluster(SCHEMAS, clock=VirtualClock()) for _ in range(2))
    apply(before, by_way)
    apply(wanted, by_way)
    apply(wanted, straight)
    for obj in wanted.objects:
        assert content(by_way, obj) == content(straight, obj)


def content(cluster: MemoryCluster, obj: KubeObject) -> dict[str, Any]:
    live = cluster.get(ObjectRef.of(obj.data))
    assert live is not None
    return {key: value for key, value in live.items() if key in ("data", "spec")}
