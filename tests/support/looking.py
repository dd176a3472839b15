"""Compare an environment with its cluster without the inventory's help: every object by a dry run."""

from __future__ import annotations

from dataclasses import replace

from mlstack.deploy.changes import ApplyOptions, Changes
from mlstack.deploy.inventory import Inventory, as_members
from mlstack.deploy.live import fetch
from mlstack.deploy.plan import diff
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.kube.client import Opener

_USUAL = ApplyOptions()


def looked_at(target: Target, opener: Opener) -> Changes:
    """Give what an apply would do if it knew nothing of what it wrote before."""
    resolved = resolve(target, opener)
    return compared(replace(resolved, state=as_members(resolved.state, resolved.place.namespace)))


def compared(
    resolved: ResolvedTarget, options: ApplyOptions = _USUAL, inventory: Inventory | None = None
) -> Changes:
    """Give the changes of what is wanted; without an inventory nothing is known of the last write."""
    state = resolved.state
    recorded = inventory or Inventory(
        app=state.app, environment=state.environment, namespace=state.namespace, version="1"
    )
    return diff(fetch(resolved, options, inventory=recorded))
