"""The policy `throughput`: as `fair`, but the next trainer goes where it brings most."""

from __future__ import annotations

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.policy.fair import share_out
from mlstack.elastic.policy.gain import Gain
from mlstack.elastic.policy.table import policy
from mlstack.elastic.scaleplan import ScalePlan
from mlstack.elastic.snapshot import Snapshot


@policy("throughput")
def throughput(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by the relative gain of one more trainer per dominant share, from each job's speed curve."""
    width = len(snapshot.resources)
    totals = [sum(node.allocatable[each] for node in snapshot.nodes) for each in range(width)]
    return share_out(snapshot, config, Gain(snapshot.jobs, totals))
