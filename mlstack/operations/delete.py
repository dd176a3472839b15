"""`delete`: find what an environment has in its cluster, and after the question take it away."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlstack.cluster.api import Opener
from mlstack.engine import desired, guard
from mlstack.engine.proposal import Proposal
from mlstack.engine.remains import Spare, find
from mlstack.files.appdir import AppDir
from mlstack.model.clock import Clock
from mlstack.model.events import OnEvent, silent
from mlstack.model.overrides import Overrides
from mlstack.model.report import RunResult
from mlstack.templating import CodeStore

_NONE = Overrides()


@dataclass(frozen=True, kw_only=True)
class DeletePlan(Proposal):
    """What one delete would do, each change a `delete`, or `kept` with the reason.

    Attributes:
        grace_period_s: time that pods get to end, None for their own.
    """

    grace_period_s: int | None


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
    include_crds: bool = False,
    include_namespaces: bool = False,
    include_claims: bool = False,
    grace_period_s: int | None = None,
    dry_run: bool = False,
) -> DeletePlan:
    """Find what would be deleted; nothing is.

    Args:
        app: the app directory.
        environment: name of the environment.
        opener: opens a cluster by its context.
        components: only these components and modules.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        context: another kubectl context, for this run; the cluster must be the same.
        namespace: another namespace, for this run.
        include_crds: delete definitions too, and with them every object of their kinds in every namespace.
        include_namespaces: delete namespaces too, and with them everything they hold.
        include_claims: delete volume claims too, and with them their data.
        grace_period_s: time that pods get to end, in seconds; None for their own.
        dry_run: make a plan that deletes nothing when carried out.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    place = desired.place(app, environment, context=context, namespace=namespace)
    state = desired.load(
        app, environment, components=components, overrides=overrides, store=store, namespace=namespace
    )
    cluster = opener(place.context)
    identity = guard.check_cluster(place, cluster)
    spare = Spare(definitions=not include_crds, namespaces=not include_namespaces, claims=not include_claims)
    changes = find(
        state, cluster, place=place, identity=identity, spare=spare, only_components=bool(components)
    )
    return DeletePlan(
        changes=changes, place=place, cluster=cluster, grace_period_s=grace_period_s, dry_run=dry_run
    )


def execute(plan: DeletePlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Delete what the plan says, last wave first.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it goes.

    Raises:
        MlstackError: an object could not be deleted; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    return plan.carry_out(
        lambda run: run.delete(plan.changes.changes, grace_period_s=plan.grace_period_s),
        clock=clock,
        on_event=on_event,
    )
