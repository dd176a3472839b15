"""What was applied before, from the history: it tells which fields of others were once ours."""

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any

from mlstack.engine.comparing.surroundings import placed
from mlstack.engine.records.history import History
from mlstack.engine.target import Reached
from mlstack.errors import ClusterError, UnreachableError
from mlstack.model.history import UNNAMED, Revision
from mlstack.model.objects import Identity, KubeObject

_Set = Mapping[Identity, Mapping[str, Any]]


class Earlier:
    """The sets that were applied to an environment; read when somebody asks first, and each once.

    Args:
        reached: the environment, and the cluster that keeps them.
    """

    def __init__(self, reached: Reached) -> None:
        """Begin with nothing read."""
        self._reached, self._lock = reached, Lock()
        self._history = History.of(reached.state.app, reached.place, reached.cluster, clock=_Still())
        self._known: tuple[Revision, ...] | None = None
        self._sets: dict[int, _Set] = {}
        self._fault = ""

    @property
    def fault(self) -> str:
        """Say why the history cannot be read; empty if it can be, or nobody asked."""
        return self._fault

    def of(self, wanted: KubeObject) -> tuple[Mapping[str, Any], ...]:
        """Give an object as it was applied before, newest first; nothing if that is not known.

        What was wanted by a run that did not end well may not have been written, so the sets before it count
        too, back to one that ended well.
        """
        with self._lock:
            if self._fault:
                return ()
            try:
                return tuple(self._of(wanted))
            except UnreachableError:
                raise
            except ClusterError as error:
                self._fault = error.message
                return ()

    def _of(self, wanted: KubeObject) -> Iterator[Mapping[str, Any]]:
        for revision in reversed(self._revisions()):
            found = self._set(revision).get(wanted.identity)
            if found is not None:
                yield found
            if not {wanted.component, UNNAMED} & {*revision.unsettled}:
                return

    def _revisions(self) -> tuple[Revision, ...]:
        if self._known is None:
            self._known = self._history.revisions()
        return self._known

    def _set(self, revision: Revision) -> _Set:
        if revision.number not in self._sets:
            objects = placed(self._history.load(revision).objects, self._reached.cluster)
            self._sets[revision.number] = {one.identity: one.data for one in objects}
        return self._sets[revision.number]


class _Still:
    """A clock for who only reads."""

    def now_s(self) -> float:
        """Give no time in particular."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Wait for nothing."""
