"""Ask before the answer is needed: the round trips of questions that are known beforehand go side by side."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar, cast

from mlstack.cluster.api import Cluster, Listing, ObjectRef
from mlstack.cluster.view import ClusterView

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Waiting(Protocol[T_co]):
    """Waits for the end of some work, for so many seconds at most, and gives its result or raises."""

    def __call__(self, timeout: float | None = None) -> T_co:
        """Wait.

        Raises:
            TimeoutError: it has not ended.
        """
        ...


def soon(work: Callable[[], T]) -> Waiting[T]:
    """Begin work in a thread of its own; what is given waits for its end and gives its result, or raises.

    The thread does not hold up the end of the process, should nobody wait for it: a server may be silent.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # whoever waits gets it, whatever it is
            result.set_exception(error)

    Thread(target=run, name="mlstack-ahead", daemon=True).start()
    return result.result


class AheadCluster(ClusterView):
    """Another cluster; some of what it will be asked is asked at once.

    Each answer is given once, to the first who asks the same; whoever asks again asks the cluster. Meant for
    the moment of a comparison: answers that nobody took are forgotten with the view.

    Args:
        cluster: what is asked.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Begin with nothing asked."""
        super().__init__(cluster)
        self._lock = Lock()
        self._begun: dict[Hashable, Callable[[], object]] = {}

    def foresee_get(self, ref: ObjectRef) -> None:
        """Begin to read an object."""
        self._begin(ref, lambda: self._cluster.get(ref))

    def foresee_list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        metadata_only: bool = False,
    ) -> None:
        """Begin to list objects."""
        self._begin(
            (api_version, kind, namespace, labels, "", metadata_only),
            lambda: self._cluster.list(
                api_version, kind, namespace=namespace, labels=labels, metadata_only=metadata_only
            ),
        )

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object."""
        return self._taken(ref, lambda: super(AheadCluster, self).get(ref))

    def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> Listing:
        """List the objects of one kind."""
        return self._taken(
            (api_version, kind, namespace, labels, fields, metadata_only),
            lambda: super(AheadCluster, self).list(
                api_version,
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
            ),
        )

    def _begin(self, question: Hashable, ask: Callable[[], object]) -> None:
        with self._lock:
            if question not in self._begun:
                self._begun[question] = soon(ask)

    def _taken(self, question: Hashable, ask: Callable[[], T]) -> T:
        """Give the answer to a question that was asked before, else ask it now."""
        with self._lock:
            answer = self._begun.pop(question, None)
        return ask() if answer is None else cast(T, answer())
