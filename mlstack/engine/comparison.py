"""What an environment wants, has and had: the whole difference, deletions included."""

from dataclasses import dataclass, replace

from mlstack.engine.comparing.observe import observe
from mlstack.engine.records import history
from mlstack.engine.records import inventory as inventories
from mlstack.engine.removing.prune import Pruning, prune
from mlstack.engine.target import Reached
from mlstack.model import applyset
from mlstack.model.diff import Changes
from mlstack.model.inventory import Inventory
from mlstack.model.options import ApplyOptions


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What an environment would change, and what it was compared with.

    Attributes:
        changes: everything a deploy would do.
        inventory: what the environment has in its cluster.
        pruning: what becomes of what the files no longer bring.
    """

    changes: Changes
    inventory: Inventory
    pruning: Pruning


def compare(reached: Reached, options: ApplyOptions) -> Comparison:
    """Compare what is wanted with what is there and what was deployed before; nothing is written.

    Raises:
        ClusterError: the cluster cannot be asked or refuses an object.
    """
    state, place = reached.state, reached.place
    applyset.refuse_members(found.data for found in state.objects)
    inventory = inventories.read(
        reached.cluster, app=state.app, environment=state.environment, namespace=place.namespace
    )
    members = tuple(found.with_data(inventory.label(found.data)) for found in state.objects)
    reached = replace(reached, state=replace(state, objects=members))
    changes = observe(reached, options=options, inventory=inventory, check_new=options.dry_run)
    if not inventory.exists and options.prune and _was_deployed(reached, changes):
        inventory = inventories.found_again(reached.cluster, inventory)
    found = prune(reached, inventory, changes.changes) if options.prune else Pruning()
    return Comparison(
        changes=replace(
            changes,
            changes=(*changes.changes, *found.changes),
            notes=(
                *changes.notes,
                *inventory.notes,
                *found.notes,
                *_large(found, options),
                *_elsewhere(reached, inventory),
            ),
        ),
        inventory=inventory,
        pruning=found,
    )


def _was_deployed(reached: Reached, changes: Changes) -> bool:
    """Tell whether the environment was there before: an inventory that is missing was lost then."""
    if any(change.live_uid for change in changes.changes):
        return True
    return history.exists(reached.state.app, reached.place, reached.cluster)


def _elsewhere(reached: Reached, inventory: Inventory) -> tuple[str, ...]:
    """Say it when an environment comes to another namespace: what it has in the old one is left there."""
    if inventory.exists:
        return ()
    name = reached.place.name
    return tuple(
        f"environment `{name}` has objects in namespace `{one}` too: mlstack delete {name} -n {one}"
        for one in inventories.elsewhere(reached.cluster, inventory)
    )


def _large(found: Pruning, options: ApplyOptions) -> tuple[str, ...]:
    if not found.is_too_much or options.allow_large_prune:
        return ()
    return (f"{found.warning}: more than half, which an apply does only with --allow-large-prune",)
