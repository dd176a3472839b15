"""`apply`: work out what would change, and after the question carry out exactly that."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlstack.cluster.api import Opener
from mlstack.engine import desired, guard
from mlstack.engine.observe import observe
from mlstack.engine.proposal import Proposal
from mlstack.files.appdir import AppDir
from mlstack.model.app import ClusterIdentity
from mlstack.model.clock import Clock
from mlstack.model.events import Event, OnEvent, silent
from mlstack.model.overrides import Overrides
from mlstack.model.report import RunResult
from mlstack.templating import CodeStore

_NONE = Overrides()


@dataclass(frozen=True, kw_only=True)
class ApplyPlan(Proposal):
    """What one apply would do, ready to be confirmed and carried out.

    Attributes:
        app: the app directory.
        pin: identity that the environment is bound to before the first write, None if it is bound already.
    """

    app: AppDir
    pin: ClusterIdentity | None


def compute(
    app: AppDir,
    environment: str,
    *,
    opener: Opener,
    components: Sequence[str] = (),
    overrides: Overrides = _NONE,
    store: CodeStore | None = None,
    context: str | None = None,
    namespace: str | None = None,
    dry_run: bool = False,
    create: bool = True,
) -> ApplyPlan:
    """Work out what an apply would do; nothing is written.

    Args:
        app: the app directory.
        environment: name of the environment.
        opener: opens a cluster by its context.
        components: only these components and modules.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        context: another kubectl context, for this run; the cluster must be the same.
        namespace: another namespace, for this run.
        dry_run: make a plan that writes nothing when carried out; the server checks new objects as well.
        create: whether objects that are missing are made.

    Raises:
        ConfigError: a file, parameter or template is wrong, or nothing would be deployed.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    place = desired.place(app, environment, context=context, namespace=namespace)
    state = desired.load(
        app, environment, components=components, overrides=overrides, store=store, namespace=namespace
    )
    guard.refuse_empty(state)
    cluster = opener(place.context)
    identity = guard.check_cluster(place, cluster)
    changes = observe(state, cluster, environment=place, identity=identity, create=create, check_new=dry_run)
    fresh = place.cluster is None and context is None and guard.is_known(identity)
    return ApplyPlan(
        changes=changes,
        app=app,
        place=place,
        cluster=cluster,
        pin=identity if fresh else None,
        dry_run=dry_run,
    )


def execute(plan: ApplyPlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Carry out a plan.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it is done.

    Raises:
        MlstackError: an object failed; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    if plan.pin is not None and not plan.dry_run:
        plan.app.pin_identity(plan.environment, plan.pin)
        bound = f"environment `{plan.environment}` is now bound to this cluster ({guard.describe(plan.pin)})"
        on_event(Event("note", None, bound))
    return plan.carry_out(lambda run: run.apply(plan.changes.changes), clock=clock, on_event=on_event)
