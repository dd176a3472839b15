"""The scheduler's queue: pods to be tried by priority and age, and those that wait for a change or a time."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.simulate.kernel import Action, Kernel


@dataclass(kw_only=True)
class Waiting:
    """A pod in the queue.

    Attributes:
        pod: the pod.
        queued_ms: when it came.
        attempts: how often no place was found.
        tried_ms: when the last attempt was.
        is_parked: whether it waits for something to change.
    """

    pod: PodFacts
    queued_ms: int
    attempts: int = 0
    tried_ms: int = 0
    is_parked: bool = False


class Queue:
    """Pods without a node, as kube-scheduler keeps them.

    Args:
        kernel: the time.
        wake: is called when a pod becomes ready to be tried.
        backoff_ms: wait after the first failure; doubles with each.
        longest_ms: longest wait.
        by_time: pods are tried again when their wait is over, at the end of the queue, whatever happens in
            between: the scheduler of Kubernetes 1.6. Otherwise they wait for something to change.
    """

    def __init__(
        self, kernel: Kernel, wake: Action, *, backoff_ms: int, longest_ms: int, by_time: bool = False
    ) -> None:
        """Start empty."""
        self._by_time = by_time
        self._kernel = kernel
        self._wake = wake
        self._backoff_ms = backoff_ms
        self._longest_ms = longest_ms
        self._known: dict[str, Waiting] = {}
        self._ready: list[tuple[int, int, int, str]] = []
        self._backing: list[tuple[int, int, int, str]] = []
        self._count = 0

    def __len__(self) -> int:
        """Count the pods without a node."""
        return len(self._known)

    def put(self, pod: PodFacts) -> None:
        """Queue a pod, or take note of how it is now."""
        if pod.uid in self._known:
            self._known[pod.uid].pod = pod
            return
        self._known[pod.uid] = Waiting(pod=pod, queued_ms=self._kernel.now_ms)
        self._push(pod.uid)

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        self._known.pop(uid, None)

    def pop(self) -> Waiting | None:
        """Give the pod to be tried next, None if there is none."""
        while self._ready:
            uid = heappop(self._ready)[3]
            if uid in self._known and not self._known[uid].is_parked:
                return self._known[uid]
        return self._pop_early()

    def _pop_early(self) -> Waiting | None:
        """Give the pod whose back-off ends next: a scheduler without other work does not wait for it.

        So since Kubernetes 1.33 (SchedulerPopFromBackoffQ); ends within a second are equal.
        """
        while self._backing:
            uid = heappop(self._backing)[3]
            if uid in self._known and not self._known[uid].is_parked:
                return self._known[uid]
        return None

    def failed(self, waiting: Waiting) -> None:
        """Put a pod aside until something changes."""
        waiting.attempts += 1
        waiting.tried_ms = self._kernel.now_ms
        waiting.is_parked = True
        if self._by_time:
            self._kernel.after(self._wait_ms(waiting), lambda: self._requeue(waiting))

    def _wait_ms(self, waiting: Waiting) -> int:
        return min(self._backoff_ms << min(waiting.attempts - 1, 10), self._longest_ms)

    def _requeue(self, waiting: Waiting) -> None:
        waiting.is_parked = False
        waiting.queued_ms = self._kernel.now_ms
        self._push(waiting.pod.uid)

    def stir(self) -> None:
        """Try all pods that were put aside again, each after its back-off."""
        for waiting in [] if self._by_time else [each for each in self._known.values() if each.is_parked]:
            waiting.is_parked = False
            self._release(waiting, waiting.tried_ms + self._wait_ms(waiting))

    def _release(self, waiting: Waiting, at_ms: int) -> None:
        uid, pod = waiting.pod.uid, waiting.pod
        if at_ms <= self._kernel.now_ms:
            self._push(uid)
        else:
            heappush(self._backing, (at_ms // 1000, -(pod.priority or 0), waiting.queued_ms, uid))
            self._wake()

    def _push(self, uid: str) -> None:
        waiting = self._known.get(uid)
        if waiting is None or waiting.is_parked:
            return
        self._count += 1
        heappush(self._ready, (-(waiting.pod.priority or 0), waiting.queued_ms, self._count, uid))
        self._wake()
