"""`unlock`: free an environment whose lock a dead run has left behind."""

from __future__ import annotations

from dataclasses import dataclass

from mlstack.cluster.api import Opener
from mlstack.cluster.lease import Lease, Term
from mlstack.engine import guard
from mlstack.engine.records import lock
from mlstack.engine.target import Target
from mlstack.errors import LockedError
from mlstack.model.app import Environment
from mlstack.model.clock import Clock


@dataclass(frozen=True, kw_only=True)
class UnlockPlan:
    """What would be freed.

    Attributes:
        place: the environment as it is used by this run.
        lease: its lock.
        term: who holds it; None if nobody does.
        left_s: how long it lasts unless its run goes on.
    """

    place: Environment
    lease: Lease
    term: Term | None
    left_s: float

    @property
    def holder(self) -> str:
        """Say who holds it since when, and how long it lasts."""
        if self.term is None:
            return "nobody"
        rest = f"expires in {self.left_s:.0f} s" if self.left_s > 0 else "expired"
        return f"{lock.describe(self.term)}, {rest}"


@dataclass(frozen=True, kw_only=True)
class UnlockResult:
    """An environment that is free.

    Attributes:
        environment: its name.
        context: the kubectl context.
        namespace: its namespace.
        unlocked: whether it was locked before.
        holder: who held it since when.
    """

    environment: str
    context: str
    namespace: str
    unlocked: bool
    holder: str


def compute(target: Target, *, opener: Opener, clock: Clock) -> UnlockPlan:
    """Find who holds the lock of an environment; nothing is written, nothing is rendered.

    Raises:
        NotFoundError: there is no such environment.
        ClusterError: the cluster cannot be asked or is another one.
    """
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    lease = lock.lease_of(cluster, place, target.app.app().name, holder=target.holder, clock=clock)
    term = lease.read()
    return UnlockPlan(place=place, lease=lease, term=term, left_s=lease.left_s() if term else 0.0)


def execute(plan: UnlockPlan) -> UnlockResult:
    """Free the environment; a run that still holds the lock writes nothing more.

    Raises:
        LockedError: another run has taken the lock since.
        ClusterError: the cluster does not answer or refuses.
    """
    if plan.term is not None:
        plan.lease.release(plan.term)
        now = plan.lease.read()
        if now is not None:
            raise LockedError(
                f"another run has locked environment `{plan.place.name}` meanwhile: {lock.describe(now)}",
                hint="it was left alone; if that run is dead too, repeat the command",
            )
    return UnlockResult(
        environment=plan.place.name,
        context=plan.place.context,
        namespace=plan.place.namespace,
        unlocked=plan.term is not None,
        holder=plan.holder,
    )
