"""What an environment wants, has and had: the whole difference, deletions included."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mlstack.cluster.ahead import AheadCluster, soon
from mlstack.engine import rights
from mlstack.engine.comparing import foresight
from mlstack.engine.comparing.observe import observe
from mlstack.engine.records import history
from mlstack.engine.records import inventory as inventories
from mlstack.engine.removing.prune import Pruning, prune
from mlstack.engine.target import Reached
from mlstack.model import applyset, objects
from mlstack.model.diff import Changes
from mlstack.model.inventory import Inventory
from mlstack.model.objects import DesiredState
from mlstack.model.options import ApplyOptions


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What an environment would change, and what it was compared with.

    Attributes:
        changes: everything a deploy would do.
        inventory: what the environment has in its cluster.
        pruning: what becomes of what the files no longer bring.
        may_all: tells whether we may do everything in the cluster; None if that was not asked.
    """

    changes: Changes
    inventory: Inventory
    pruning: Pruning
    may_all: Callable[[], bool] | None


def compare(reached: Reached, options: ApplyOptions) -> Comparison:
    """Compare what is wanted with what is there and what was deployed before; nothing is written.

    Raises:
        ClusterError: the cluster cannot be asked or refuses an object.
    """
    state = reached.state
    applyset.refuse_members(found.data for found in state.objects)
    cluster = AheadCluster(reached.cluster)
    reached = replace(reached, cluster=cluster)
    inventory = _inventory(cluster, state, reached.place.namespace)
    past = _Past(reached, inventory, is_writing=not options.dry_run)
    members = tuple(found.with_data(inventory.label(found.data)) for found in state.objects)
    reached = replace(reached, state=replace(state, objects=members))
    changes = observe(reached, options=options, inventory=inventory, check_new=options.dry_run)
    if not inventory.exists and options.prune and past.was_deployed(changes):
        inventory = inventories.found_again(cluster, inventory)
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
                *past.elsewhere(),
                *(_former(reached, inventory) if options.adopt else ()),
            ),
        ),
        inventory=inventory,
        pruning=found,
        may_all=past.may_all,
    )


def _inventory(cluster: AheadCluster, state: DesiredState, namespace: str) -> Inventory:
    empty = Inventory(app=state.app, environment=state.environment, namespace=namespace)
    foresight.foresee(cluster, state, empty)
    found = inventories.read(cluster, app=state.app, environment=state.environment, namespace=namespace)
    if not found.exists:
        foresight.foresee_creation(cluster, state)
    return found


class _Past:
    """What is known of an environment without an inventory, asked while its objects are looked at."""

    def __init__(self, reached: Reached, inventory: Inventory, *, is_writing: bool) -> None:
        self._name = reached.place.name
        self.may_all: Callable[[], bool] | None = None
        self._has_history: Callable[[], bool] = lambda: True
        self._elsewhere: Callable[[], tuple[str, ...]] = tuple
        if not inventory.exists:
            cluster = reached.cluster
            self._has_history = soon(partial(history.exists, inventory.app, reached.place, cluster))
            self._elsewhere = soon(partial(inventories.elsewhere, cluster, inventory))
            if is_writing:
                self.may_all = soon(partial(rights.may_everything, cluster))

    def was_deployed(self, changes: Changes) -> bool:
        """Tell whether the environment was there before: an inventory that is missing was lost then."""
        return any(change.live_uid for change in changes.changes) or self._has_history()

    def elsewhere(self) -> tuple[str, ...]:
        """Say it when an environment comes to another namespace: what it has in the old one is left there."""
        return tuple(
            f"environment `{self._name}` has objects in namespace `{one}` too:"
            f" mlstack delete {self._name} -n {one}"
            for one in self._elsewhere()
        )


def _former(reached: Reached, inventory: Inventory) -> tuple[str, ...]:
    """Say what is left of environments that the app does not have, whose objects are taken over."""
    place, known = reached.place, set(map(objects.label_of, reached.target.app.environment_names()))
    return tuple(
        f"environment `{one}`, which the app does not have, keeps its inventory and history in namespace"
        f" `{place.namespace}`; for what it has left: mlstack env add {one} --context {place.context}"
        f" --namespace {place.namespace}, then mlstack delete {one} and mlstack env rm {one}"
        for one in inventories.of_others(reached.cluster, inventory)
        if one not in known
    )


def _large(found: Pruning, options: ApplyOptions) -> tuple[str, ...]:
    if not found.is_too_much or options.allow_large_prune:
        return ()
    return (f"{found.warning}: more than half, which an apply does only with --allow-large-prune",)
