"""Following one kind: list, watch, go on where a watch broke off, list anew once that is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlstack.errors import WatchExpiredError
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent


@dataclass(frozen=True)
class WatchSource:
    """What one watch is about: a kind, in one `namespace` or in all (None), narrowed by a label selector."""

    api_version: str
    kind: str
    namespace: str | None = None
    labels: str = ""
    metadata_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Word that everything there is has been told: nothing but `refs` is left of what was told before."""

    source: WatchSource
    refs: frozenset[ObjectRef]
    version: str


class Reflector:
    """Follows a kind over many watches, none of which lasts for ever.

    `version` is the place from which the next watch goes on; empty where it begins with a list.
    """

    def __init__(self, cluster: Cluster, source: WatchSource) -> None:
        self._cluster, self._source = cluster, source
        self.version = ""

    def watch(self, timeout_s: float) -> Iterator[WatchEvent | Listed]:
        """Watch once, from where the last watch ended; lists first where that is nowhere or forgotten.

        Gives every event, and `Listed` in place of the bookmark that ends a list. The iterator ends when the
        time is up, the connection breaks or the server forgot the place: call it again, after a pause.

        Raises:
            ClusterError: the cluster does not answer or refuses.
        """
        refs: set[ObjectRef] | None = None if self.version else set()
        source = self._source
        events = self._cluster.watch(
            source.api_version,
            source.kind,
            namespace=source.namespace,
            labels=source.labels,
            metadata_only=source.metadata_only,
            resource_version=self.version,
            timeout_s=timeout_s,
        )
        try:
            for event in events:
                if refs is not None and event.is_initial_end:
                    self.version = event.resource_version
                    yield Listed(source=source, refs=frozenset(refs), version=self.version)
                    refs = None
                    continue
                # Before its end a list has no version from which a watch could go on.
                if refs is None:
                    self.version = event.resource_version or self.version
                elif event.type != "BOOKMARK":
                    refs.add(ObjectRef.of(event.object))
                yield event
        except WatchExpiredError:
            self.version = ""
