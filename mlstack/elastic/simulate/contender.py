"""A controller in a simulated cluster: world and reconciler of production, and the Lease among several."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mlstack.cluster.api import Cluster, WatchEvent
from mlstack.cluster.fenced import FencedCluster
from mlstack.cluster.lease import Lease
from mlstack.cluster.view import ClusterView
from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.pace import TICK_MS, Pace
from mlstack.elastic.reconcile import Pass, Reconciler
from mlstack.elastic.running.leading import DURATION_S, Leadership, NotLeadingError
from mlstack.elastic.running.settings import LEASE_NAME, LEASE_NAMESPACE
from mlstack.elastic.simulate.kernel import Kernel
from mlstack.elastic.simulate.store import Feed, Store
from mlstack.elastic.world import World
from mlstack.errors import ClusterError, UnreachableError

WATCHED = ("Node", "PriorityClass", "TrainingJob", "StatefulSet", "Pod")
AROUND = ("Service", "PodDisruptionBudget")

T = TypeVar("T")


class Line(ClusterView):
    """A cluster at the end of a line that can be cut.

    Attributes:
        is_cut: whether nothing comes through.
    """

    is_cut = False

    def _asked(self, ask: Callable[[], T]) -> T:
        if self.is_cut:
            raise UnreachableError("the server does not answer")
        return super()._asked(ask)


class Contender:
    """One process: it starts, stands for election, works while it leads, dies.

    Attributes:
        name: its name in the Lease.
        is_running: whether it runs.
        lives: how often it began or ended.

    Args:
        name: its name in the Lease.
        kernel: the time.
        store: what it watches.
        cluster: what it writes to.
        config: of the policy.
        is_alone: whether it leads in any case.
        passed: is told of each pass.
        writes: is told its name before each write.
        tick_ms: longest time between two passes.
    """

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        store: Store,
        cluster: Cluster,
        config: PolicyConfig,
        *,
        is_alone: bool,
        passed: Callable[[Pass], None],
        writes: Callable[[str], None],
        tick_ms: int = TICK_MS,
    ) -> None:
        """Hold the parts; it does not run yet."""
        self.name, self.is_running = name, False
        self._kernel, self._store, self._cluster, self._config = kernel, store, Line(cluster), config
        self._is_alone, self._passed, self._writes = is_alone, passed, writes
        self._tick_ms = tick_ms
        self.lives = 0
        self._pause_ms, self._frozen_until_ms = 0, 0
        self._feeds: tuple[Feed, ...] = ()
        self._due_ms: int | None = None
        self._leadership: Leadership | None = None
        self._reconciler: Reconciler | None = None

    @property
    def is_leading(self) -> bool:
        """Tell whether it runs and may write."""
        return self.is_running and (self._leadership is None or self._leadership.is_leading)

    def start(self) -> None:
        """Begin to run, knowing nothing."""
        self.lives += 1
        self.is_running = True
        self._world = World()
        self._reconciler, self._leadership = None, None if self._is_alone else self._candidacy()
        self._pause_ms, self._frozen_until_ms = 0, 0
        self._cluster.is_cut = False
        self._listen()
        self._stand(self.lives)

    def die(self) -> None:
        """End at once, with all that it knew; the Lease is left to expire."""
        self.lives += 1
        self.is_running = False
        self._stop_listening()

    def stop(self) -> None:
        """End as it is told to: the Lease is free at once."""
        self.die()
        if self._leadership is not None:
            self._leadership.stop()

    def deafen(self, seconds: float) -> None:
        """Hear nothing for so long; what was missed is learnt from a list."""
        self._stop_listening()
        self._later(round(seconds * 1000), self._listen)

    def isolate(self, seconds: float) -> None:
        """Reach the server no more for so long, and hear nothing."""
        self._cluster.is_cut = True
        self._stop_listening()
        self._later(round(seconds * 1000), self._reconnect)

    def freeze(self, seconds: float) -> None:
        """Stand still for so long right before the next write, in the middle of a pass, and not notice."""
        self._pause_ms = round(seconds * 1000)

    def _reconnect(self) -> None:
        self._cluster.is_cut = False
        self._listen()

    def _candidacy(self) -> Leadership:
        lease = Lease(
            cluster=self._cluster,
            namespace=LEASE_NAMESPACE,
            name=LEASE_NAME,
            holder=self.name,
            now_s=self._now_s,
            duration_s=DURATION_S,
        )
        return Leadership(lease, self._now_s, lambda text: None)

    def _now_s(self) -> float:
        return self._kernel.now_ms / 1000

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something in a while, unless it died by then; while it stands still nothing is done."""
        life = self.lives

        def do() -> None:
            if life == self.lives and self._kernel.now_ms <= self._frozen_until_ms:
                self._kernel.at(self._frozen_until_ms + 1, do)
            elif life == self.lives:
                action()

        self._kernel.after(delay_ms, do)

    def _listen(self) -> None:
        """List everything, then hear of what changes; whoever reaches no server does so later."""
        if self._cluster.is_cut:
            return
        for kind in (*WATCHED, *AROUND):
            listing = self._cluster.list("", kind)
            self._world.replace(kind, listing.items, listing.resource_version)
        # Two watches: what is heard on one must not change when something is heard on the other.
        self._feeds = (
            self._store.watch(WATCHED, self._hear, name=self.name),
            self._store.watch(AROUND, self._hear, name=f"{self.name}/around"),
        )
        if self._reconciler is not None:
            self._pace.heard(self._kernel.now_ms)
            self._plan_next()

    def _stop_listening(self) -> None:
        for feed in self._feeds:
            feed.close()

    def _hear(self, event: WatchEvent) -> None:
        if self._kernel.now_ms <= self._frozen_until_ms:
            self._later(0, lambda: self._hear(event))
        elif self._world.hear(event) and self._reconciler is not None:
            self._pace.heard(self._kernel.now_ms)
            self._plan_next()

    def _stand(self, life: int) -> None:
        """Take the Lease or renew it, and work or cease to."""
        if self._leadership is not None:
            pause_s = self._leadership.attempt()
            self._later(round(pause_s * 1000), lambda: self._stand(life))
        if not self.is_leading:
            self._reconciler = None
        elif self._reconciler is None:
            # What another leader did meanwhile is known; what this one remembered is out of date.
            self._reconciler = self._new_reconciler(life)
            self._pace, self._due_ms = Pace(tick_ms=self._tick_ms), None
            self._plan_next()

    def _new_reconciler(self, life: int) -> Reconciler:
        leadership = self._leadership
        return Reconciler(
            FencedCluster(self._cluster, lambda: self._check(life), lambda ref: None),
            self._world,
            self._config,
            transitions=lambda: leadership.transitions if leadership is not None else life,
            instance=f"{self.name}-{life}",
        )

    def _check(self, life: int) -> None:
        """Stand still if it is time to, and return if a write may be made."""
        if self._pause_ms:
            self._frozen_until_ms, self._pause_ms = self._kernel.now_ms + self._pause_ms, 0
            self._kernel.run(self._frozen_until_ms)
        if life != self.lives:
            raise NotLeadingError("it runs no more")
        if self._leadership is not None:
            self._leadership.check()
        self._writes(self.name)

    def _plan_next(self) -> None:
        """Put the next pass on the calendar, unless an earlier one stands there."""
        due_ms = max(self._pace.next_ms(), self._kernel.now_ms)
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._later(due_ms - self._kernel.now_ms, lambda: self._pass(due_ms))

    def _pass(self, due_ms: int) -> None:
        reconciler = self._reconciler
        if due_ms != self._due_ms or reconciler is None:
            return
        if not self.is_leading:
            self._reconciler = None
            return
        now_ms, life = self._kernel.now_ms, self.lives
        try:
            done = reconciler.step(now_ms)
        except NotLeadingError:
            if life == self.lives:
                self._reconciler = None
            return
        except ClusterError:
            self._pace.passed(now_ms)
        else:
            self._passed(done)
            self._pace.passed(now_ms, done.next_ms)
        self._due_ms = None
        self._plan_next()
