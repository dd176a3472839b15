"""What is there, and what a server-side apply would make of it: live objects and dry runs → Changes."""

from mlstack.engine import parallel
from mlstack.engine.look import Look
from mlstack.engine.surroundings import Surroundings, placed
from mlstack.engine.target import Reached
from mlstack.errors import MlstackError
from mlstack.model import order
from mlstack.model.diff import Change, Changes
from mlstack.model.objects import KubeObject


def observe(reached: Reached, *, create: bool = True, check_new: bool = False) -> Changes:
    """Compare what is wanted with what is there; nothing is written.

    Args:
        reached: what is wanted, and where to look.
        create: whether objects that are not there are to be made.
        check_new: ask the server about new objects too, where it can tell already.

    Raises:
        ConflictError: a program owns fields that would be changed.
        InvalidError: the server would refuse an object, or a field that cannot change in place.
        ObjectNotFoundError: a kind or namespace is neither there nor part of this run.
    """
    state, cluster = reached.state, reached.cluster
    world = Surroundings(state, cluster)
    wanted = placed(state.objects, cluster)
    world.refuse_unknown_kinds(wanted)
    extra = world.missing_namespace(wanted, create=create)
    everything = order.ordered((*extra, *wanted))
    world.look_around(everything)

    def change_of(found: KubeObject) -> Change:
        return Look(world, found, create=create, check_new=check_new).change()

    results = parallel.run(change_of, everything)
    failures = [result for result in results if isinstance(result, MlstackError)]
    if failures:
        raise parallel.together(failures)
    return Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=reached.place.context,
        cluster=reached.identity,
        changes=tuple(result for result in results if isinstance(result, Change)),
        notes=(*state.notes, *(f"namespace `{one.name}` is created first" for one in extra)),
    )
