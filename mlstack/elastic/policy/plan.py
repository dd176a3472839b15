"""What becomes of training jobs at one moment: a pure function of a snapshot and a policy."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from mlstack.elastic.policy import edl, fair, throughput
from mlstack.elastic.policy.fair import POLICIES
from mlstack.elastic.snapshot import PolicyConfig, ScalePlan, Snapshot

# `fair` and `throughput` enter themselves; EDL's rules stand here beside what they are good for.
_READ = fair, throughput
POLICIES.register("edl")(edl.edl)
POLICIES.register("edl-v010")(edl.edl_v010)

# Policies with known defects, kept to be measured against: for the simulator alone.
BASELINES = frozenset({"edl-v010"})


def plan(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Decide what every job of a snapshot gets.

    The time is a number in the snapshot; the same snapshot gives the same plan, in whatever order its
    parts are listed.

    Raises:
        NotFoundError: there is no policy of that name; carries the nearest known one.
    """
    policy = POLICIES.find(config.mode)
    with _uninterrupted():
        return policy(snapshot, config)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put garbage collection off: it walks all that is known of a cluster for what little a plan leaves."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()
