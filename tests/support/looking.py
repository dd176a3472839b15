"""Compare an environment with its cluster without the inventory's help: every object by a dry run."""

from __future__ import annotations

from dataclasses import replace

from mlstack.cluster.api import Opener
from mlstack.engine.comparing.observe import observe
from mlstack.engine.records import inventory as inventories
from mlstack.engine.target import Target, reach
from mlstack.model.diff import Changes


def looked_at(target: Target, opener: Opener) -> Changes:
    """Give what an apply would do if it knew nothing of what it wrote before."""
    reached = reach(target, opener)
    state = reached.state
    inventory = inventories.read(
        reached.cluster, app=state.app, environment=state.environment, namespace=reached.place.namespace
    )
    members = tuple(found.with_data(inventory.label(found.data)) for found in state.objects)
    return observe(replace(reached, state=replace(state, objects=members)))
