"""The writes of a pass: what they are, and carrying them out one after the other or side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlstack.cluster.api import Cluster, ObjectRef, WatchEvent
from mlstack.elastic.world import World
from mlstack.errors import ClusterError, ConflictError, ObjectNotFoundError, UnreachableError

MANAGER = "mlstack-elastic"

Verb = Literal["create", "apply", "delete", "status", "patch"]


class NameTakenError(ConflictError):
    """Raised where an object of the job's would take the place of somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One write.

    Attributes:
        verb: what is done; `patch` is a merge patch, `status` one of the status alone.
        ref: the object.
        job: key of the job that it is done for.
        why: one line for people.
        body: the object, or what changes of it or its status.
        uid: for `delete`: only this very object; for `apply`: of the owner that an object there must have.
        version: for `status`: resource version of the object that was decided about.
        grace_period_s: for `delete`: time to end, None for the object's own.
        stops: for `delete`: role of the pod that it stops; empty for one that had ended, and for other kinds.
    """

    verb: Verb
    ref: ObjectRef
    job: str
    why: str
    body: Mapping[str, Any] = field(default_factory=dict)
    uid: str = ""
    version: int = 0
    grace_period_s: int | None = None
    stops: str = ""

    def __str__(self) -> str:
        """Write it as people read it: `create Pod default/a-trainer-0: growth`."""
        return f"{self.verb} {self.ref}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class _Done:
    """What came of a write that was not refused.

    Attributes:
        news: what the world has to know, None for nothing.
        is_taken: whether the cluster changed by it, and not by somebody else before.
    """

    news: WatchEvent | None
    is_taken: bool = True


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A write that the cluster did not take.

    Attributes:
        action: the write.
        error: what it said.
    """

    action: Action
    error: ClusterError


Run = Callable[[Sequence[Callable[[], None]]], None]
"""Carries out pieces of work that do not depend on each other."""


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    """Carry out one piece of work after the other."""
    for work in works:
        work()


class Hands:
    """Carries out actions and lets the world know at once what came of them.

    Args:
        cluster: what is written to.
        world: is told what the writes gave, before any watch tells it.
        run: carries out what does not depend on each other.

    Attributes:
        taken: the writes that the cluster took, for whoever counts them and empties this.
    """

    def __init__(self, cluster: Cluster, world: World, run: Run = one_by_one) -> None:
        """Hold the parts."""
        self._cluster, self._world, self._run = cluster, world, run
        self.taken: list[Action] = []

    def carry_out(self, actions: Sequence[Action]) -> list[Refused]:
        """Do all actions, in any order, and give those that were refused.

        Raises:
            UnreachableError: the server does not answer; the world knows what was done before.
        """
        results: list[_Done | ClusterError | None] = [None] * len(actions)

        def work(number: int) -> Callable[[], None]:
            def do() -> None:
                try:
                    results[number] = self._do(actions[number])
                except ClusterError as error:
                    results[number] = error

            return do

        try:
            self._run([work(number) for number in range(len(actions))])
        finally:
            # Worlds are for one thread: what the writes gave is told here, not where they ran.
            for action, result in zip(actions, results, strict=True):
                if isinstance(result, _Done):
                    self._note(action, result)
        return _refused(actions, results)

    def _note(self, action: Action, done: _Done) -> None:
        if done.news is not None:
            self._world.hear(done.news)
        if done.is_taken:
            self.taken.append(action)

    def _do(self, action: Action) -> _Done:
        match action.verb:
            case "create":
                return self._create(action)
            case "apply":
                return self._apply(action)
            case "status":
                patch = {"metadata": {"resourceVersion": str(action.version)}, "status": action.body}
                changed = self._cluster.patch(action.ref, patch, subresource="status", manager=MANAGER)
                return _Done(news=WatchEvent(type="MODIFIED", object=changed.object))
            case "patch":
                patched = self._cluster.patch(action.ref, action.body, manager=MANAGER)
                return _Done(news=WatchEvent(type="MODIFIED", object=patched.object))
            case "delete":
                return self._delete(action)

    def _apply(self, action: Action) -> _Done:
        """Write an object, unless there is one of that name that is somebody else's."""
        live = self._cluster.get(action.ref)
        if live is not None and action.uid not in _owners(live):
            raise NameTakenError(f"`{action.ref}` is there and does not belong to the job")
        applied = self._cluster.apply(action.body, manager=MANAGER, force=True)
        return _Done(news=WatchEvent(type="MODIFIED", object=applied.object))

    def _create(self, action: Action) -> _Done:
        try:
            created = self._cluster.create(action.body, manager=MANAGER)
        except ConflictError:  # there is one of that name already: look at it, plan anew
            live = self._cluster.get(action.ref)
            news = WatchEvent(type="MODIFIED", object=live) if live is not None else None
            return _Done(news=news, is_taken=False)
        return _Done(news=WatchEvent(type="ADDED", object=created.object))

    def _delete(self, action: Action) -> _Done:
        metadata = {"namespace": action.ref.namespace, "name": action.ref.name, "uid": action.uid}
        obj = {"apiVersion": action.ref.api_version, "kind": action.ref.kind, "metadata": metadata}
        gone = WatchEvent(type="DELETED", object=obj)
        try:
            left = self._cluster.delete(
                action.ref,
                propagation="Background",
                uid=action.uid,
                grace_period_s=action.grace_period_s,
            )
        except ObjectNotFoundError:
            return _Done(news=gone, is_taken=False)
        except ConflictError:  # mostly another of the same name; if it is the same one after all, try again
            live = self._cluster.get(action.ref)
            if live is not None and live["metadata"].get("uid") == action.uid:
                raise
            return _Done(news=gone, is_taken=False)
        return _Done(news=gone if left is None else WatchEvent(type="MODIFIED", object=left))


def _owners(obj: Mapping[str, Any]) -> set[str]:
    return {str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or ()}


def _refused(actions: Sequence[Action], results: Sequence[object]) -> list[Refused]:
    refused = []
    for action, result in zip(actions, results, strict=True):
        if isinstance(result, UnreachableError):
            raise result
        if isinstance(result, ClusterError):
            refused.append(Refused(action=action, error=result))
    return refused
