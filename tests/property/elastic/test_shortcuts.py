"""What a plan does not work out anew, or does not try, would have come out the same."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given

from mlstack.elastic.policy import placement, sharing
from mlstack.elastic.policy.plan import plan
from mlstack.elastic.policy.state import ClusterState, FreeRoom, NodeInfo
from mlstack.elastic.snapshot import PolicyConfig, Snapshot
from tests.property.elastic.moments import MANY, moments

CONFIG = PolicyConfig()
BEST_NODE = placement.best_node


class Afresh(FreeRoom):
    """Adds up for every question."""

    def sums(self) -> list[int]:
        nodes = [self._cluster.nodes[index] for index in self._at]
        return FreeRoom(self._cluster, nodes, self._measure)._sums


def forgetful(cluster: ClusterState, *args: Any, **options: Any) -> NodeInfo | None:
    """Rank all nodes anew whenever something was taken back."""
    if cluster.searches.get("epoch") != cluster.epoch:
        for key in [key for key in cluster.searches if key[0] == "ranking"]:  # type: ignore[index]
            del cluster.searches[key]
    cluster.searches["epoch"] = cluster.epoch
    return BEST_NODE(cluster, *args, **options)


@MANY
@given(moments(jobs=8))
def test_what_sums_rule_out_would_have_failed(snapshot: Snapshot) -> None:
    with patch.object(sharing.Admission, "is_conceivable", lambda *_: True):
        tried = plan(snapshot, CONFIG)
    decided, searched = plan(snapshot, CONFIG).decisions, tried.decisions
    assert {key: (outcome.target, outcome.places, outcome.victims) for key, outcome in decided.items()} == {
        key: (outcome.target, outcome.places, outcome.victims) for key, outcome in searched.items()
    }


@MANY
@given(moments(jobs=8))
def test_nodes_that_are_not_ranked_again_are_ranked_right(snapshot: Snapshot) -> None:
    with patch.object(placement, "best_node", forgetful):
        ranked = plan(snapshot, CONFIG)
    assert plan(snapshot, CONFIG) == ranked


@given(moments(jobs=8))
def test_sums_that_are_kept_up_to_date_are_right(snapshot: Snapshot) -> None:
    with patch.object(sharing, "FreeRoom", Afresh):
        added = plan(snapshot, CONFIG)
    assert plan(snapshot, CONFIG) == added
