"""The history of one environment, kept in Secrets of its cluster: read, go on, forget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mlstack.cluster.ahead import soon
from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ObjectNotFoundError,
    TransientError,
)
from mlstack.model import history, masking, objects, packing
from mlstack.model.app import Environment
from mlstack.model.clock import Clock
from mlstack.model.history import Revision
from mlstack.model.inventory import name_of
from mlstack.model.objects import DesiredState
from mlstack.model.packing import Packed

Items = tuple[Mapping[str, Any], ...]
"""Metadata of Secrets."""

_ATTEMPTS = 3  # somebody without the lock may have taken the number
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)  # a server that is busy is asked again


@dataclass(frozen=True, kw_only=True)
class History:
    """The revisions of one environment.

    Attributes:
        cluster: where they are kept.
        app: name of the app.
        environment: name of the environment.
        namespace: the environment's.
        clock: for the waits between attempts.
        ahead: gives the Secrets as they were when this run began, which nobody else writes meanwhile.
    """

    cluster: Cluster
    app: str
    environment: str
    namespace: str
    clock: Clock
    ahead: Callable[[], Items] | None = None

    @classmethod
    def of(cls, app: str, place: Environment, cluster: Cluster, *, clock: Clock) -> History:
        """Give the history of an environment as a run uses it."""
        return cls(cluster=cluster, app=app, environment=place.name, namespace=place.namespace, clock=clock)

    @property
    def name(self) -> str:
        """Give what the names of its Secrets begin with."""
        return name_of(self.app, self.environment)

    def revisions(self) -> tuple[Revision, ...]:
        """Give all revisions that are complete, oldest first.

        Raises:
            ClusterError: the cluster cannot be asked.
        """
        return packing.revisions(self._items())

    def impossible(self) -> tuple[int, ...]:
        """Give the numbers of revisions whose facts nobody could have written.

        Raises:
            ClusterError: the cluster cannot be asked.
        """
        return packing.impossible(self._items())

    def find(self, number: int) -> Revision:
        """Give one revision.

        Raises:
            NotFoundError: there is none of that number.
            ClusterError: the cluster cannot be asked.
        """
        items = self._items()
        known = packing.revisions(items)
        found = next((one for one in known if one.number == number), None)
        if found is not None:
            return found
        if number in packing.impossible(items):
            raise packing.damaged(number)
        kept = f"; there are {known[0].number} to {known[-1].number}" if known else "; no history is kept"
        raise NotFoundError(
            f"environment `{self.environment}` has no revision {number}{kept}",
            hint=f"mlstack history {self.environment}",
        )

    def load(self, revision: Revision) -> DesiredState:
        """Give the set of a revision.

        Raises:
            ClusterError: it cannot be read, or is not what was written.
        """

        def part(name: str) -> bytes:
            secret = self.cluster.get(self._ref(name))
            if secret is None:
                raise packing.damaged(revision.number)
            return packing.content_of(secret, revision.number)

        names = packing.names(self.name, revision.number, revision.parts)
        state = packing.unpack(revision, parallel.whole(parallel.run(part, names)))
        masking.note_objects({"items": [one.data for one in state.objects]})
        masking.note(*state.secrets)
        return state

    def record(
        self, draft: Revision, state: DesiredState, *, selective: bool = False, if_news: bool = False
    ) -> Revision | None:
        """Write a revision, then let go of the oldest and of what is left of broken ones.

        Args:
            draft: what is known of the run; number, digest and the like are filled in.
            state: what was applied.
            selective: only the components of the state were applied: the others are taken from the
                revision before.
            if_news: write nothing and give None if the newest revision says the same already.

        Raises:
            ClusterError: it cannot be written.
        """
        items = self._items()
        known = packing.revisions(items)
        newest = known[-1] if known else None
        base = newest if selective else None
        whole = state if base is None else history.merged(self.load(base), state)
        made = replace(draft, unsettled=history.unsettled(base, draft.components, draft.result))
        packed = packing.pack(whole)
        if if_news and newest and newest.digest == packed.digest and newest.unsettled == made.unsettled:
            return None
        return self._write(made, whole, packed, items)

    def record_removal(self, draft: Revision) -> Revision | None:
        """Write a revision after components were to go; None if there is no history to go on with.

        Args:
            draft: what is known of the run; a set that is not `done` has its components still.

        Raises:
            ClusterError: it cannot be written.
        """
        items = self._items()
        known = packing.revisions(items)
        if not known:
            return None
        gone = draft.components if draft.result == "done" else ()
        whole = history.without(self.load(known[-1]), gone)
        settled = history.unsettled(known[-1], draft.components, draft.result)
        return self._write(replace(draft, unsettled=settled), whole, packing.pack(whole), items)

    def _write(
        self, made: Revision, whole: DesiredState, packed: Packed, items: Sequence[Mapping[str, Any]]
    ) -> Revision:
        described = replace(
            made,
            objects=len(whole.objects),
            digest=packed.digest,
            size_bytes=packed.size_bytes,
            parts=len(packed.parts),
        )
        number = packing.next_number(items)
        for revision in (replace(described, number=number + taken) for taken in range(_ATTEMPTS)):
            try:
                secrets = self._create(revision, packed)
            except ConflictError:
                continue
            self._delete(packing.outdated([*items, *secrets]))
            return revision
        raise ClusterError(f"revision {number} and the next are written by somebody else")

    def _create(self, revision: Revision, packed: Packed) -> Sequence[packing.Secret]:
        made = packing.secrets(
            revision,
            packed,
            name=self.name,
            namespace=self.namespace,
            app=self.app,
            environment=self.environment,
        )
        for secret in made:  # one after the other: the last one is what makes it a revision
            self._patiently(secret)
        return made

    def _patiently(self, secret: packing.Secret) -> None:
        for pause in _PAUSES_S:
            try:
                self.cluster.create(secret)
            except TransientError:
                self.clock.sleep(pause)
            else:
                return
        self.cluster.create(secret)

    def forget(self) -> None:
        """Delete all of it, with what is left of broken revisions.

        Raises:
            ClusterError: something cannot be deleted.
        """
        self._delete([str(item["metadata"]["name"]) for item in self._items()])

    def _delete(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            with suppress(ObjectNotFoundError):
                self.cluster.delete(self._ref(name), propagation="Background")

        parallel.whole(parallel.run(delete, names))

    def read_ahead(self) -> History:
        """Give the same history, which begins to be read at once, while other things are done."""
        return replace(self, ahead=soon(self._items))

    def _items(self) -> Items:
        if self.ahead is not None:
            with suppress(ClusterError):  # it may be back by now
                return self.ahead()
        return _items(self.cluster, app=self.app, environment=self.environment, namespace=self.namespace)

    def _ref(self, name: str) -> ObjectRef:
        return ObjectRef("v1", "Secret", self.namespace, name)


def exists(app: str, place: Environment, cluster: Cluster) -> bool:
    """Tell whether an environment has a past; false where its Secrets may not be listed."""
    try:
        found = _items(cluster, app=app, environment=place.name, namespace=place.namespace)
    except ForbiddenError:
        return False
    return bool(found)


def _items(cluster: Cluster, *, app: str, environment: str, namespace: str) -> Items:
    labels = f"{objects.selector(app=app, environment=environment)},{packing.REVISION_LABEL}"
    found = cluster.list("v1", "Secret", namespace=namespace, labels=labels, metadata_only=True).items
    name = name_of(app, environment)
    return tuple(item for item in found if packing.belongs(item, name))
