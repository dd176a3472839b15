"""The history of one environment in its cluster: read, gone on with by runs, forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from mlstack.app.environment import Environment
from mlstack.clock import Clock
from mlstack.dataclass import dataclass
from mlstack.deploy import history
from mlstack.deploy import target as guard
from mlstack.deploy.history import REVISION_LABEL, DamagedHistoryError, Items, Revision, Secret
from mlstack.deploy.inventory import name_of
from mlstack.deploy.target import Target
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ObjectNotFoundError,
    TransientError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef, Opener
from mlstack.kube.parallel import prefetch
from mlstack.objects import kube_object, masking
from mlstack.objects.kube_object import DesiredState

_ATTEMPTS = 3  # somebody without the lock may have taken the number
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)  # a server that is busy is asked again


@dataclass(frozen=True, kw_only=True)
class History:
    """The revisions of one environment; its methods raise ClusterError where the cluster cannot be asked."""

    cluster: Cluster
    app: str
    environment: str
    namespace: str
    clock: Clock  # for the waits between attempts
    # Gives the Secrets as they were when this run began, which nobody else writes meanwhile.
    ahead: Callable[[], Items] | None = None

    @classmethod
    def of(cls, app: str, place: Environment, cluster: Cluster, *, clock: Clock) -> History:
        """Give the history of an environment as a run uses it."""
        return cls(cluster=cluster, app=app, environment=place.name, namespace=place.namespace, clock=clock)

    def revisions(self) -> tuple[Revision, ...]:
        """Give all revisions that are complete, oldest first."""
        return history.revisions(self._items())

    def impossible(self) -> tuple[int, ...]:
        """Give the numbers of revisions whose facts nobody could have written."""
        return history.impossible(self._items())

    def find(self, number: int) -> Revision:
        """Give one revision.

        Raises:
            NotFoundError: there is none of that number.
        """
        items = self._items()
        known = history.revisions(items)
        for revision in known:
            if revision.number == number:
                return revision
        if number in history.impossible(items):
            raise DamagedHistoryError(number)
        kept = f"; there are {known[0].number} to {known[-1].number}" if known else "; no history is kept"
        raise NotFoundError(
            f"environment `{self.environment}` has no revision {number}{kept}",
            hint=f"mlstack history {self.environment}",
        )

    def load(self, revision: Revision) -> DesiredState:
        """Give the set of a revision.

        Raises:
            DamagedHistoryError: it is not what was written.
        """

        def part(name: str) -> bytes:
            secret = self.cluster.get(self._ref(name))
            if secret is None:
                raise DamagedHistoryError(revision.number)
            return history.content_of(secret, revision.number)

        names = history.part_names(name_of(self.app, self.environment), revision.number, revision.parts)
        state = history.decode(revision, parallel.whole(parallel.run(part, names)))
        masking.note_object({"items": [obj.data for obj in state.objects]})
        masking.note(*state.secrets)
        return state

    def record(
        self, draft: Revision, state: DesiredState | None, *, selective: bool = False, if_news: bool = False
    ) -> Revision | None:
        """Write a revision, then let go of the oldest and of what is left of broken ones.

        Args:
            draft: what is known of the run; number, digest and the like are filled in.
            state: what was applied; None if the draft's components were to go. One that is not `done` has
                them still, and without a history to go on with nothing is written.
            selective: only the components of the state were applied: the others are taken from the
                revision before.
            if_news: write nothing and give None if the newest revision says the same already.
        """
        items = self._items()
        newest = next(reversed(history.revisions(items)), None)
        base = newest if selective or state is None else None
        if base is not None:
            known = self.load(base)
            gone = draft.components if draft.result == "done" else ()
            state = history.without(known, gone) if state is None else history.merged(known, state)
        if state is None:
            return None
        left = history.unsettled(base, draft.components, draft.result)
        draft = replace(draft, unsettled=tuple(name for name in left if name not in state.formerly))
        draft, parts = history.encode(draft, state)
        if if_news and newest and (newest.digest, newest.unsettled) == (draft.digest, draft.unsettled):
            return None
        place = {"namespace": self.namespace, "app": self.app, "environment": self.environment}
        first = history.next_number(items)
        for number in range(first, first + _ATTEMPTS):
            revision = replace(draft, number=number)
            secrets = history.secrets(revision, parts, **place)
            try:
                for secret in secrets:  # one after the other: the last one is what makes it a revision
                    self._create(secret)
            except ConflictError:
                continue
            self._delete(history.outdated([*items, *secrets]))
            return revision
        raise ClusterError(f"revision {first} and the next are written by somebody else")

    def _create(self, secret: Secret) -> None:
        for pause_s in _PAUSES_S:
            try:
                self.cluster.create(secret)
            except TransientError:
                self.clock.sleep(pause_s)
            else:
                return
        self.cluster.create(secret)

    def forget(self) -> None:
        """Delete all of it, with what is left of broken revisions."""
        self._delete([str(item["metadata"]["name"]) for item in self._items()])

    def _delete(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            with suppress(ObjectNotFoundError):
                self.cluster.delete(self._ref(name), propagation="Background")

        parallel.whole(parallel.run(delete, names))

    def read_ahead(self) -> History:
        """Give the same history, which begins to be read at once, while other things are done."""
        return replace(self, ahead=prefetch(self._items))

    def _items(self) -> Items:
        if self.ahead is not None:
            with suppress(ClusterError):  # it may be back by now
                return self.ahead()
        return _items(self.cluster, self.app, self.environment, self.namespace)

    def _ref(self, name: str) -> ObjectRef:
        return ObjectRef("v1", "Secret", self.namespace, name)


def _items(cluster: Cluster, app: str, environment: str, namespace: str) -> Items:
    labels = f"{kube_object.selector(app=app, environment=environment)},{REVISION_LABEL}"
    items = cluster.list("v1", "Secret", namespace=namespace, labels=labels, metadata_only=True).items
    head = f"{name_of(app, environment)}.r"  # labels alone do not tell `a/b` from `a.b`
    return tuple(item for item in items if item["metadata"]["name"].startswith(head))


def exists(app: str, place: Environment, cluster: Cluster) -> bool:
    """Tell whether an environment has a past; false where its Secrets may not be listed."""
    try:
        return bool(_items(cluster, app, place.name, place.namespace))
    except ForbiddenError:
        return False


def open_history(target: Target, opener: Opener, *, clock: Clock) -> History:
    """Give the history of a target from the cluster of its context; nothing is rendered.

    Raises:
        ConfigError: the environment's file is wrong.
        WrongClusterError: the context leads to another cluster.
    """
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    return History.of(target.app.app.name, place, cluster, clock=clock)


# What ends programs by SIGTERM kills them when they have not gone after 10 s (Docker) or 30 s (Kubernetes).
LEAVING_S = 6.0


def before_leaving(record: Callable[[], None]) -> None:
    """Write down how far a run came that was asked to end, as long as its user may be kept for that."""
    with suppress(TimeoutError):
        prefetch(record)(LEAVING_S)


def run_summary(target: Target, verb: str) -> str:
    """Give a run in a few words: `apply -c cnn,web with --set`; values are not told, some are secret."""
    components = f" -c {','.join(target.components)}" if target.components else ""
    own = " with --set" if target.overrides else ""
    return f"{verb}{components}{own}"
