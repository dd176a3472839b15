"""Run a graph of work: each node as soon as what it depends on is done, many at a time."""

import heapq
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event

from mlstack.engine.parallel import GRACE_S, WORKERS
from mlstack.engine.writing.wait import Gone, Steps, Then
from mlstack.errors import ForbiddenError, LockedError, MlstackError, UnreachableError
from mlstack.model.graph import Bond, Gate, Graph, Node

_MOST_WAITERS = 64
# Whoever is done finds the next one waiting, not this thread still looking for it.
_AHEAD = 2 * WORKERS
_STOPPED = "stopped while waiting"


class Schedule:
    """One way through a graph.

    Args:
        graph: what comes after what.
        work: does one node in steps; several at once.
        wait: calls back once an object is gone; what waits for that takes no thread.
        skipped: told which node is not done, and why.
        is_idle: tells nodes whose work takes no time; they are done at once, where they stand.
        because: gives the reason to skip a node: what it depends on, how that ended, the node itself.
        binding: the bonds along which a failure skips what comes after.
        stopped: set when nothing more is to be begun.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        work: Callable[[Node], Steps],
        wait: Callable[[Gone, Then], None],
        skipped: Callable[[Node, str], None],
        is_idle: Callable[[Node], bool],
        because: Callable[[Node, str, Node], str],
        binding: frozenset[Bond],
        stopped: Event,
    ) -> None:
        """Begin with nothing done."""
        self._graph, self._work, self._skipped, self._is_idle = graph, work, skipped, is_idle
        self._wait = wait
        self._because, self._binding, self._stopped = because, binding, stopped
        self._numbers = {node: number for number, node in enumerate(graph.nodes)}
        self._open = {node: len(graph.before[node]) for node in graph.nodes}
        self._behind: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node, needed in graph.before.items():
            for one in needed:
                self._behind[one].append(node)
        self._next = [number for number, node in enumerate(graph.nodes) if not self._open[node]]
        heapq.heapify(self._next)
        self._news: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._parked: dict[Node, Steps] = {}
        self._running: set[Node] = set()
        self._working: set[Node] = set()
        self._writing = 0
        self._ends: dict[Node, str] = {}
        self._handed_on: dict[Node, str] = {}
        self.failures: list[MlstackError] = []

    def run(self) -> None:
        """Do everything that can be done; what failed is in `failures`.

        Raises:
            MlstackError: nothing can go on: no server, no credentials, no lock. What had begun was finished.
            KeyboardInterrupt: likewise; what had begun got `GRACE_S` to end.
        """
        gates = sum(isinstance(node, Gate) and not self._is_idle(node) for node in self._graph.nodes)
        self._writers = ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="mlstack-write")
        self._waiters = ThreadPoolExecutor(
            max_workers=min(gates, _MOST_WAITERS) or 1, thread_name_prefix="mlstack-wait"
        )
        interrupted = False
        try:
            while self._begin():
                self._news.get()()
        except BaseException as error:  # whatever it is, the others must not go on
            self._stopped.set()
            interrupted = isinstance(error, KeyboardInterrupt)
            if interrupted:
                self._shut(wait=False)
                self._await_ends()
            raise
        finally:
            if not interrupted:
                self._shut(wait=True)
            self._abandon()

    def _shut(self, *, wait: bool) -> None:
        for pool in (self._writers, self._waiters):
            pool.shutdown(wait=wait, cancel_futures=True)

    def _await_ends(self) -> None:
        """Give what has begun some time to end, even if a person interrupted while it was handed over."""
        deadline = time.monotonic() + GRACE_S
        while self._working and (left_s := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                self._news.get(timeout=left_s)

    def _abandon(self) -> None:
        """End what still waits for an object to be gone."""
        for steps in list(self._parked.values()):
            with suppress(MlstackError, StopIteration):
                steps.throw(MlstackError(_STOPPED))

    def _begin(self) -> bool:
        """Begin what can be begun; tell whether anything is under way."""
        while self._next and self._writing < _AHEAD:
            node = self._graph.nodes[heapq.heappop(self._next)]
            why = self._reason_to_skip(node)
            if why:
                self._skip(node, why)
                self._release(node)
            elif self._is_idle(node):
                for _ in self._work(node):
                    raise AssertionError(f"{node} waits for a deletion although it is idle")
                self._release(node)
            else:
                self._running.add(node)
                self._hand_over(node)
        return bool(self._running)

    def _hand_over(self, node: Node, error: MlstackError | None = None) -> None:
        """Let a thread do the next step of a node."""
        self._writing += not isinstance(node, Gate)
        pool = self._waiters if isinstance(node, Gate) else self._writers
        pool.submit(self._attempt, node, error)

    def _attempt(self, node: Node, error: MlstackError | None) -> None:
        self._working.add(node)
        try:
            steps = self._parked.pop(node, None)
            if self._stopped.is_set():
                error = MlstackError(_STOPPED if steps is not None else "not begun")
                if steps is None:
                    raise error
            steps = steps or self._work(node)
            gone = next(steps) if error is None else steps.throw(error)
            if self._stopped.is_set():
                steps.throw(MlstackError(_STOPPED))
            self._parked[node] = steps
            news = partial(self._park, node, gone)
        except StopIteration:
            news = partial(self._end, node, None)
        except MlstackError as failed:
            news = partial(self._end, node, failed)
        except BaseException as fault:
            news = partial(self._end, node, _Fault(fault))
        self._working.discard(node)
        self._news.put(news)

    def _park(self, node: Node, gone: Gone) -> None:
        """Let a node wait for an object to be gone, and go on with others."""
        self._writing -= not isinstance(node, Gate)
        self._wait(gone, lambda error: self._news.put(partial(self._hand_over, node, error)))

    def _end(self, node: Node, error: MlstackError | None) -> None:
        self._running.discard(node)
        self._writing -= not isinstance(node, Gate)
        if isinstance(error, _Fault):
            raise error.fault
        if error is not None and _ends_everything(error):
            raise error
        if error is not None:
            self.failures.append(error)
            self._ends[node] = "is not ready" if isinstance(node, Gate) else "failed"
        self._release(node)

    def _release(self, node: Node) -> None:
        for after in self._behind[node]:
            self._open[after] -= 1
            if not self._open[after]:
                heapq.heappush(self._next, self._numbers[after])

    def _reason_to_skip(self, node: Node) -> str:
        """Say which of the things a node depends on is not done, nothing if it can be done."""
        for one, bond in self._graph.before[node].items():
            if bond in self._binding and one in self._ends:
                return self._handed_on.get(one) or self._because(one, self._ends[one], node)
        return ""

    def _skip(self, node: Node, why: str) -> None:
        self._ends[node] = "was skipped"
        if isinstance(node, Gate):  # nobody knows it by name
            self._handed_on[node] = why
        self._skipped(node, why)


class _Fault(MlstackError):
    """A bug of ours, on its way from a worker to the caller."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__(str(fault))
        self.fault = fault


def _ends_everything(error: MlstackError) -> bool:
    """Tell whether no other object can fare better."""
    if isinstance(error, ForbiddenError):
        return error.why == "credentials"
    return isinstance(error, UnreachableError | LockedError)
