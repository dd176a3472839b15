"""What is there, and what a server-side apply would make of it: live objects and dry runs → Changes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mlstack.engine import parallel
from mlstack.engine.comparing import answers
from mlstack.engine.comparing.earlier import Earlier
from mlstack.engine.comparing.known import Known
from mlstack.engine.comparing.look import Look
from mlstack.engine.comparing.outlook import Outlook
from mlstack.engine.comparing.outside import refuse_absent_targets
from mlstack.engine.comparing.scalers import Scalers
from mlstack.engine.comparing.surroundings import Surroundings, placed
from mlstack.engine.target import Reached
from mlstack.model import objects, order
from mlstack.model.diff import Change, Changes
from mlstack.model.inventory import Inventory
from mlstack.model.objects import Identity
from mlstack.model.options import ApplyOptions

_USUAL = ApplyOptions()
_NAMED = 8


def observe(
    reached: Reached,
    *,
    options: ApplyOptions = _USUAL,
    inventory: Inventory | None = None,
    check_new: bool = False,
) -> Changes:
    """Compare what is wanted with what is there; nothing is written.

    Args:
        reached: what is wanted, and where to look.
        options: how it is to be done.
        inventory: what was written last; objects that are still like that are not asked about.
        check_new: ask the server about new objects too, where it can tell already.

    An object that the server does not accept is a change that is refused.

    Raises:
        ForbiddenError: rights to look are missing.
        ObjectNotFoundError: a kind or namespace is neither there nor part of this run.
    """
    state, cluster = reached.state, reached.cluster
    world = Surroundings(state, cluster)
    wanted = placed(state.objects, cluster)
    world.refuse_unknown_kinds(wanted)
    extra = world.missing_namespace(wanted, create=options.create)
    refuse_absent_targets((*extra, *wanted), cluster)
    everything = order.ordered((*extra, *wanted), state.depends)
    known = Known(cluster, state, inventory, adopt=options.adopt)
    outlook = outlook_of(reached, world, options, inventory=inventory, check_new=check_new)
    known.look_around([found for found in everything if world.is_reachable(found)], outlook.payload)
    looking = replace(outlook, known=known)
    results = parallel.run(lambda found: Look(looking, found).change(), everything)
    if not check_new:
        results = answers.tried(results, everything, looking, hasty=inventory is None or not inventory.exists)
    changes = tuple(answers.answered(answers.with_redefined(results, everything, looking), everything, world))
    return Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=reached.place.context,
        cluster=reached.identity,
        changes=changes,
        depends=state.depends,
        secrets=state.secrets,
        notes=(
            *state.notes,
            *(f"namespace `{one.name}` is created first" for one in extra),
            *_left(changes),
            *kept_labels((change.identity, change.labels) for change in changes),
            *_unread(outlook.earlier),
        ),
    )


def looking_again(
    reached: Reached, options: ApplyOptions = _USUAL, inventory: Inventory | None = None
) -> Callable[[Change], Change]:
    """Give what looks at one object once more, when it moved after its change was worked out."""
    world = Surroundings(reached.state, reached.cluster)
    outlook = outlook_of(reached, world, options, inventory=inventory)

    def again(change: Change) -> Change:
        if change.desired is None:
            raise ValueError(f"nothing is wanted of {change.identity}")
        return Look(outlook, change.desired).change()

    return again


def outlook_of(
    reached: Reached,
    world: Surroundings,
    options: ApplyOptions = _USUAL,
    *,
    inventory: Inventory | None = None,
    check_new: bool = False,
) -> Outlook:
    """Give what holds for every object of a run."""
    return Outlook(
        world=world,
        scalers=Scalers(reached.state.objects, reached.cluster, going=_going(reached, options)),
        earlier=Earlier(reached),
        options=options,
        rules=reached.target.app.app().conflicts,
        environments=frozenset(map(objects.label_of, reached.target.app.environment_names())),
        check_new=check_new,
        members=inventory.members if inventory else {},
    )


def _going(reached: Reached, options: ApplyOptions) -> Callable[[Mapping[str, str]], bool]:
    """Tell of an object that the run does not bring whether the run deletes it."""
    state = reached.state
    marks = objects.marks(app=state.app, environment=state.environment, component="")
    whose = {key: marks[key] for key in (objects.APP_LABEL, objects.ENVIRONMENT_LABEL)}
    selected = {
        objects.marks(app="", environment="", component=name)[objects.COMPONENT_LABEL]
        for name in state.components
    }

    def going(labels: Mapping[str, str]) -> bool:
        is_ours = whose.items() <= labels.items() and objects.COMPONENT_LABEL in labels
        looked_at = not reached.selective or labels.get(objects.COMPONENT_LABEL) in selected
        return options.prune and is_ours and looked_at

    return going


def _left(changes: Sequence[Change]) -> tuple[str, ...]:
    """Say of objects that nobody would look at whose fields stay with others."""
    silent = (change for change in changes if change.action == "unchanged" and change.left)
    return tuple(
        f"`{change.identity}` {note}" for change in silent for note in change.notes if "leaves" in note
    )


def kept_labels(found: Iterable[tuple[Identity, Sequence[tuple[str, str]]]]) -> tuple[str, ...]:
    """Say in one line which labels and annotations of people stay; nothing if there are none."""
    texts = [f"`{path}` of `{identity}` ({manager})" for identity, rows in found for path, manager in rows]
    if not texts:
        return ()
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return (f"labels and annotations that people added stay: {', '.join(texts[:_NAMED])}{more}",)


def _unread(earlier: Earlier) -> tuple[str, ...]:
    if not earlier.fault:
        return ()
    return (
        "what was applied before cannot be read, so fields that others changed and the files no longer have"
        f" may stay: {earlier.fault}",
    )
