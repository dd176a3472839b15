"""Laws of fields that several managers own, on the cluster in memory."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.deploy import conflicts
from mlstack.deploy.changes import fingerprint, with_uid
from mlstack.deploy.conflicts import ConflictPolicy, resolve
from mlstack.errors import ConflictError
from mlstack.kube.client import ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.managed_fields import MISSING, FieldChange
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, deployment

SCHEMAS = load_schemas("1.36")
REF = ObjectRef("apps/v1", "Deployment", "default", "web")
PERSON, PROGRAM = "kubectl-edit", "operator"

VALUES = st.sampled_from(["1", "2", "3"])
ENV = st.dictionaries(st.sampled_from("ABC"), VALUES, max_size=3)
CONTENT = st.fixed_dictionaries(
    {"replicas": st.integers(1, 3)},
    optional={"limits": st.dictionaries(st.sampled_from(["cpu", "memory"]), VALUES, min_size=1), "env": ENV},
)
WRITERS = st.sampled_from([(PERSON, "Update"), (PROGRAM, "Update"), (PROGRAM, "Apply")])


def wanted(content: dict[str, Any]) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in sorted(content.get("env", {}).items())]
    extra = {"env": env} if env else {}
    if content.get("limits"):
        extra["resources"] = {"limits": content["limits"]}  # type: ignore[assignment]
    manifest = deployment(replicas=content["replicas"], **extra)
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}


def cluster_with(
    content: dict[str, Any], writes: list[tuple[tuple[str, str], dict[str, Any]]]
) -> MemoryCluster:
    """Apply ours, then let others write theirs over it."""
    cluster = MemoryCluster(SCHEMAS, clock=VirtualClock())
    cluster.apply(wanted(content))
    for (manager, operation), other in writes:
        if operation == "Apply":
            cluster.apply(wanted(other), manager=manager, force=True)
        else:
            cluster.patch(REF, {"spec": wanted(other)["spec"]}, manager=manager)
    return cluster


def live_of(cluster: MemoryCluster) -> dict[str, Any]:
    live = cluster.get(REF)
    assert live is not None
    return live


WRITES = st.lists(st.tuples(WRITERS, CONTENT), max_size=3)


@given(CONTENT, WRITES, CONTENT)
def test_a_forced_dry_run_shows_the_conflicts_of_an_unforced_one(
    first: dict[str, Any], writes: list[Any], now: dict[str, Any]
) -> None:
    cluster = cluster_with(first, writes)
    live = live_of(cluster)
    data = with_uid(wanted(now), live["metadata"]["uid"])
    forced = cluster.apply(data, force=True, dry_run=True).object
    lost = {(owner.manager, managed_fields.path_text(path)) for owner, path in conflicts.lost(live, forced)}
    try:
        cluster.apply(data, dry_run=True)
        refused = set()
    except ConflictError as error:
        refused = {(conflict.manager, _as_people_write(conflict.path)) for conflict in error.conflicts}
    assert lost == refused


def _as_people_write(path: str) -> str:
    return path.removeprefix(".").replace('[name="', "[").replace('"]', "]")


@given(CONTENT, WRITES, CONTENT)
def test_programs_keep_their_fields_and_everything_else_is_as_wanted(
    first: dict[str, Any], writes: list[Any], now: dict[str, Any]
) -> None:
    cluster = cluster_with(first, writes)
    before = live_of(cluster)
    manifest = KubeObject(data=wanted(now))
    settled = resolve(cluster, manifest, manifest.data, before, ConflictPolicy())
    cluster.apply(with_uid(settled.payload, before["metadata"]["uid"]), force=True)
    after = live_of(cluster)
    left = {path for _, path in settled.left}
    for path in left:
        assert managed_fields.value_at(after, path) == managed_fields.value_at(before, path)
    for path in managed_fields.paths(managed_fields.owned(after, "mlstack")):
        value = managed_fields.value_at(manifest.data, path)
        if value is not MISSING and not isinstance(value, dict):
            assert managed_fields.value_at(after, path) == value
    again = resolve(cluster, manifest, manifest.data, after, ConflictPolicy())
    assert again.forced.object["spec"] == after["spec"]
    assert not again.taken


@given(CONTENT, WRITES, CONTENT)
def test_force_leaves_nothing_to_anybody(
    first: dict[str, Any], writes: list[Any], now: dict[str, Any]
) -> None:
    cluster = cluster_with(first, writes)
    manifest = KubeObject(data=wanted(now))
    settled = resolve(cluster, manifest, manifest.data, live_of(cluster), ConflictPolicy(forced=True))
    assert settled.left == []
    assert settled.payload == manifest.data


@given(CONTENT, WRITES, CONTENT)
def test_ignored_fields_stay_as_they_are(
    first: dict[str, Any], writes: list[Any], now: dict[str, Any]
) -> None:
    cluster = cluster_with(first, writes)
    before = live_of(cluster)
    manifest = KubeObject(data=wanted(now))
    policy = ConflictPolicy(
        ignore=managed_fields.read_list("spec.replicas, spec.template.spec.containers[*].resources")
    )
    settled = resolve(cluster, manifest, manifest.data, before, policy)
    cluster.apply(with_uid(settled.payload, before["metadata"]["uid"]), force=True)
    after = live_of(cluster)
    assert after["spec"]["replicas"] == before["spec"]["replicas"]
    had, has = (obj["spec"]["template"]["spec"]["containers"][0] for obj in (before, after))
    assert has.get("resources") == had.get("resources")


# --- taking fields out ----------------------------------------------------------------------------

KEYS = st.sampled_from("abc")
DATA = st.dictionaries(
    KEYS,
    st.recursive(st.integers(0, 3), lambda inner: st.dictionaries(KEYS, inner, min_size=1), max_leaves=6),
    min_size=1,
)


@given(DATA, st.data())
def test_a_cut_takes_out_what_it_names_and_nothing_else(data: dict[str, Any], draw: st.DataObject) -> None:
    every = list(managed_fields.paths(managed_fields.tree_of(data)))
    named = draw.draw(st.lists(st.sampled_from(every), unique=True))
    left = managed_fields.cut(data, named)
    for path in every:
        value = managed_fields.value_at(left, path)
        assert value == (MISSING if path in named else managed_fields.value_at(data, path))
    assert managed_fields.cut(left, named) == left


@given(DATA, st.data())
def test_what_was_cut_can_be_put_back(data: dict[str, Any], draw: st.DataObject) -> None:
    path = draw.draw(st.sampled_from(list(managed_fields.paths(managed_fields.tree_of(data)))))
    assert (
        managed_fields.put(managed_fields.cut(data, [path]), path, managed_fields.value_at(data, path))
        == data
    )


# --- paths and hashes -----------------------------------------------------------------------------

NAMES = st.text("ab./-", min_size=1, max_size=4)
STEPS = st.one_of(
    NAMES.map(lambda name: f"f:{name}"),
    st.text("ab", min_size=1).map(lambda name: f"k:{json.dumps({'name': name})}"),
    st.text("ab", min_size=1).map(lambda name: f"v:{json.dumps(name)}"),
)


@given(st.lists(STEPS, min_size=1, max_size=4))
def test_any_path_a_diff_writes_can_be_read_back(steps: list[str]) -> None:
    if not steps[0].startswith("f:"):
        steps = ["f:spec", *steps]
    assert managed_fields.read(managed_fields.path_text(steps)).covers(steps)


@given(DATA, DATA)
def test_a_fingerprint_tells_other_values_and_not_how_they_are_grouped(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    whole = [FieldChange(path="x", action="added", new=first)]
    parts = [FieldChange(path=f"x.{key}", action="added", new=value) for key, value in first.items()]
    assert fingerprint(whole) == fingerprint(parts)
    assert (fingerprint(whole) == fingerprint([FieldChange(path="x", action="added", new=second)])) is (
        first == second
    )
