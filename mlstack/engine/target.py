"""Where a deploy command goes: what it was asked about, and the cluster it reached."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from mlstack.cluster.ahead import soon
from mlstack.cluster.api import Cluster, Opener
from mlstack.engine import desired, guard
from mlstack.files.appdir import AppDir
from mlstack.model.app import ClusterIdentity, Environment
from mlstack.model.holder import Holder
from mlstack.model.objects import DesiredState
from mlstack.model.overrides import Overrides
from mlstack.model.readyrules import ReadyRules
from mlstack.templating import CodeStore

_QUESTIONS = 6
"""So many are asked side by side as soon as it is known that the cluster is the right one."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a deploy command was asked about.

    Attributes:
        app: the app directory.
        environment: name of the environment.
        components: only these components and modules; none means all that the environment deploys.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        context: another kubectl context, for this run; the cluster must be the same.
        namespace: another namespace, for this run.
        who: who asks, as `user@host`; stands in the records of the cluster.
        holder: who takes the environment's lock.
    """

    app: AppDir
    environment: str
    components: Sequence[str] = ()
    overrides: Overrides = field(default_factory=Overrides)
    store: CodeStore | None = None
    context: str | None = None
    namespace: str | None = None
    who: str = ""
    holder: Holder = field(default_factory=Holder)

    def place(self) -> Environment:
        """Give the environment as this run uses it.

        Raises:
            NotFoundError: there is no such environment.
            ConfigError: it names no context.
        """
        return desired.place(self.app, self.environment, context=self.context, namespace=self.namespace)

    def desired(self) -> DesiredState:
        """Render the objects of the environment.

        Raises:
            ConfigError: a file, parameter or template is wrong.
        """
        return desired.load(
            self.app,
            self.environment,
            components=self.components,
            overrides=self.overrides,
            store=self.store,
            namespace=self.namespace,
        )


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A target, rendered, with the cluster that answers for it.

    Attributes:
        target: what was asked about.
        place: the environment as this run uses it.
        state: what is wanted there.
        cluster: the cluster of its context.
        identity: who answered; it is the environment's cluster.
        whole: what all components bring, where the files are not to be asked.
    """

    target: Target
    place: Environment
    state: DesiredState
    cluster: Cluster
    identity: ClusterIdentity
    whole: DesiredState | None = None

    @property
    def selective(self) -> bool:
        """Tell whether only some components are looked at."""
        return bool(self.target.components)

    @property
    def rules(self) -> ReadyRules:
        """Give the app's own readiness rules, by kind: those of today, also for a set of an earlier day."""
        return {rule.kind: rule for rule in self.target.app.app().readiness}


def reach(
    target: Target, opener: Opener, *, state: DesiredState | None = None, confined: bool = True
) -> Reached:
    """Render a target and make sure that its context leads to its cluster; nothing else is asked there.

    The cluster says who it is while the files are rendered; what is wrong with the files is told first.

    Args:
        target: what was asked about.
        opener: opens a cluster by its context.
        state: what is wanted, where it does not come from the files.
        confined: refuse objects outside the namespaces that the environment may write to.

    Raises:
        ConfigError: a file, parameter or template is wrong, or an object lies outside.
        WrongClusterError: the context leads to another cluster.
    """
    place = target.place()
    answered = soon(partial(_met, opener, place.context))
    wanted = target.desired() if state is None else state
    if confined:
        guard.refuse_outside(place, wanted.objects)
    cluster, identity = answered()
    guard.refuse_other(place, identity)
    return Reached(target=target, place=place, state=wanted, cluster=cluster, identity=identity)


def _met(opener: Opener, context: str) -> tuple[Cluster, ClusterIdentity]:
    cluster = opener(context)
    cluster.expect(_QUESTIONS)
    return cluster, cluster.identity()
