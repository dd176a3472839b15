"""Looks on while an experiment runs: watches, and one sample a second."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from mlstack.elastic.training_job import API_VERSION, KIND
from mlstack.kube.client import Cluster
from mlstack.kube.parallel import ResourceWatcher, WatchSource
from mlstack.simulator.measures import ClusterObserver, Sample

SOURCES = (
    WatchSource("v1", "Node"),
    WatchSource("apps/v1", "Deployment", namespace="default"),
    WatchSource(API_VERSION, KIND),
    WatchSource("v1", "Pod"),
)


@dataclass
class Spectator:
    """Samples of a cluster, taken by two threads of its own.

    Attributes:
        samples: one a second, by time since the beginning.
        late_ms: how late each sample was taken.
    """

    cluster: Cluster
    samples: list[Sample] = field(default_factory=list)
    late_ms: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin to watch; samples begin with `start`."""
        self._observer, self._lock, self._over = ClusterObserver(), Lock(), Event()
        self._feed = ResourceWatcher(self.cluster)
        for source in SOURCES:
            self._feed.open(source)
        Thread(target=self._listen, daemon=True).start()

    def start(self, begin: float) -> None:
        """Take samples from now on.

        Args:
            begin: the time from which samples count, on the monotonic clock, in seconds.
        """
        self._begin = begin
        Thread(target=self._sample, daemon=True).start()

    def allocatable(self, resource: str) -> int:
        """Give what the nodes that were seen so far have of a resource."""
        with self._lock:
            return self._observer.sample(0).allocatable.get(resource, 0)

    def stop(self) -> None:
        """Take no more samples, and end the watches."""
        self._over.set()
        self._feed.close()

    def _listen(self) -> None:
        while not self._over.is_set():
            news = self._feed.collect(timeout_s=1.0)
            self._feed.resume()  # one watch that ended must not wait for the others to end
            with self._lock:
                for item in news:
                    self._observer.hear(item)

    def _sample(self) -> None:
        second = 0
        while not self._over.wait(max(0.0, self._begin + second - time.monotonic())):
            late = time.monotonic() - self._begin - second
            with self._lock:
                self.samples.append(self._observer.sample(second * 1000))
            self.late_ms.append(round(late * 1000))
            second += 1
