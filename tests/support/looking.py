"""Compare an environment with its cluster without the inventory's help: every object by a dry run."""

from __future__ import annotations

from dataclasses import replace

from mlstack.deploy import inventory_store
from mlstack.deploy.changes import Changes
from mlstack.deploy.diff import observe
from mlstack.deploy.target import Target, reach
from mlstack.kube.client import Opener


def looked_at(target: Target, opener: Opener) -> Changes:
    """Give what an apply would do if it knew nothing of what it wrote before."""
    reached = reach(target, opener)
    state = reached.state
    inventory = inventory_store.load(
        reached.cluster, app=state.app, environment=state.environment, namespace=reached.place.namespace
    )
    members = tuple(found.with_data(inventory.label(found.data)) for found in state.objects)
    return observe(replace(reached, state=replace(state, objects=members)))
