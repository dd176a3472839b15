"""Laws of drift: whoever changed a field last is named for it, and nothing else is told."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.deploy import compare
from mlstack.kube.client import ObjectRef
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, config_map

SCHEMAS = load_schemas("1.36")
CAUSES = {"kubectl-edit": "person", "k9s": "person", "autoscaler": "controller", "operator": "controller"}
KEYS = st.sampled_from("abcd")
VALUES = st.sampled_from("123")
EDITS = st.lists(st.tuples(st.sampled_from(sorted(CAUSES)), KEYS, st.none() | VALUES), max_size=6)
DATA = st.dictionaries(KEYS, VALUES, min_size=1)


def settings(data: dict[str, str]) -> dict[str, Any]:
    """Give a ConfigMap with a key that nobody touches, as every object of ours has its labels."""
    manifest = config_map(kept="yes", **data)
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}


@given(DATA, DATA, EDITS)
def test_the_last_writer_of_each_field_is_named(
    applied: dict[str, str], wanted: dict[str, str], edits: list[tuple[str, str, str | None]]
) -> None:
    clock = VirtualClock()
    cluster = MemoryCluster(SCHEMAS, clock=clock)
    ref = ObjectRef.of(settings(applied))
    cluster.apply(settings(applied))
    values, owners = dict(applied), dict.fromkeys(applied, "mlstack")
    for manager, key, value in edits:
        clock.sleep(1)
        cluster.patch(ref, {"data": {key: value}}, manager=manager)
        if value is None:
            values.pop(key, None), owners.pop(key, None)
        elif values.get(key) != value:
            values[key], owners[key] = value, manager
    live = cluster.get(ref)
    assert live is not None
    forced = cluster.apply(settings(wanted), force=True, dry_run=True).object
    changes = {change.path: change for change in compare.differences(live, forced, applied=settings(applied))}

    looked_at = {*wanted, *(key for key, owner in owners.items() if owner == "mlstack")}
    different = {key for key in looked_at if values.get(key) != wanted.get(key)}
    assert changes.keys() == {f"data.{key}" for key in different}
    for key in different:
        change, owner = changes[f"data.{key}"], owners.get(key)
        if owner is None:
            assert change.action == "removed"
            assert key in applied or change.cause == "stale"
        elif owner == "mlstack":
            assert (change.cause, change.manager) == ("stale", "")
        else:
            assert (change.cause, change.manager, change.sure) == (CAUSES[owner], owner, True)
