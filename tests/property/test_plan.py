"""The law of plans: whatever happens in between, exactly what was approved is done, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.deploy.changes import ApplyOptions
from mlstack.errors import ConflictError
from mlstack.kube.client import ObjectRef
from mlstack.operations import deploy
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, config_map

SCHEMAS = load_schemas("1.36")
NAMES = ("one", "two")
VALUES = st.sampled_from("12")
DATA = st.fixed_dictionaries({"a": VALUES}, optional={"b": VALUES})
STATES = st.dictionaries(st.sampled_from(NAMES), DATA, min_size=1)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(NAMES), st.sampled_from("abc"), st.none() | VALUES),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("create"), st.sampled_from(NAMES)),
    ),
    max_size=3,
)
HOW = ApplyOptions(dry_run=True, allow_large_prune=True)


def content(cluster: MemoryCluster) -> dict[str, Any]:
    """Give what is in each ConfigMap of the app, and which object it is."""
    facts = {}
    for name in NAMES:
        live = cluster.get(ObjectRef("v1", "ConfigMap", "ml", name))
        if live is not None:
            facts[name] = (live["metadata"]["uid"], live.get("data"), live["metadata"]["resourceVersion"])
    return facts


def disturb(cluster: MemoryCluster, edit: tuple[Any, ...]) -> None:
    """Do what somebody with kubectl does, if it can be done."""
    ref = ObjectRef("v1", "ConfigMap", "ml", edit[1])
    there = cluster.get(ref) is not None
    if edit[0] == "set" and there:
        cluster.patch(ref, {"data": {edit[2]: edit[3]}}, manager="kubectl-edit")
    elif edit[0] == "delete" and there:
        cluster.delete(ref)
    elif edit[0] == "create" and not there:
        data = config_map(edit[1], a="9")
        cluster.create({**data, "metadata": {"name": edit[1], "namespace": "ml"}}, manager="kubectl-create")


@given(STATES, STATES, EDITS)
def test_exactly_what_was_approved_is_done_or_nothing(
    before: dict[str, dict[str, str]], wanted: dict[str, dict[str, str]], edits: list[tuple[Any, ...]]
) -> None:
    clock = VirtualClock()
    cluster = MemoryCluster(SCHEMAS, clock=clock)
    with TemporaryDirectory() as folder:
        stack = Stack(Path(folder) / "app", namespace="ml", opener=lambda context: cluster, clock=clock)
        file = Path(folder) / "plan.json"
        stack.deploy("web", *(config_map(name, **data) for name, data in before.items()))
        stack.write("web", *(config_map(name, **data) for name, data in wanted.items()))
        outcome = deploy.plan(stack.target(), opener=stack.opener, clock=clock, options=HOW, out=file)
        for edit in edits:
            disturb(cluster, edit)
        then = content(cluster)
        try:
            approved = deploy.plan_approved(
                stack.target(), file, opener=stack.opener, options=ApplyOptions(wait=False)
            )
            deploy.apply(approved, clock=clock)
        except ConflictError:
            assert edits
            assert content(cluster) == then
            return
        now = content(cluster)
        planned = {row.name: row.action for row in outcome.objects}
        for name in NAMES:
            assert (name in now) == (name in wanted) or planned.get(name) is None
            if name in wanted:
                assert wanted[name].items() <= now[name][1].items()
            if planned.get(name) in (None, "unchanged") and name in then:
                assert now[name][:2] == then[name][:2]
            if planned.get(name) == "update":
                assert now[name][0] == then[name][0]
