"""A cluster whose writes are checked first: whoever lost the right to write stops before the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.cluster.view import ClusterView

T = TypeVar("T")


class FencedCluster(ClusterView):
    """Another cluster, with a question before each write; dry runs and reading go straight through.

    Args:
        cluster: what is written to.
        check: called before each write; raises when there must be none.
        deleted: told what is about to be deleted, after the check.
    """

    def __init__(
        self, cluster: Cluster, check: Callable[[], None], deleted: Callable[[ObjectRef], None]
    ) -> None:
        """Hold the parts."""
        super().__init__(cluster)
        self._check, self._deleted = check, deleted

    def _written(self, write: Callable[[], T], *, dry_run: bool, deletes: ObjectRef | None = None) -> T:
        if not dry_run:
            self._check()
            if deletes is not None:
                self._deleted(deletes)
        return super()._written(write, dry_run=dry_run, deletes=deletes)
