"""The writes of a pass: what they are, from which decisions they follow, and carrying them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from mlstack.elastic import pods, training_job
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.facts import PLANNED, PodFacts
from mlstack.errors import ClusterError, ConflictError, ObjectNotFoundError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent

MANAGER = "mlstack-elastic"

Verb = Literal["create", "apply", "delete", "status", "patch"]
Run = Callable[[Sequence[Callable[[], None]]], None]
"""Carries out pieces of work that do not depend on each other."""


class NameTakenError(ConflictError):
    """Raised where an object of the job's would take the place of somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One write."""

    verb: Verb  # `patch` is a merge patch, `status` one of the status alone
    ref: ObjectRef
    job: str  # key of the job that it is done for
    why: str  # one line for people
    body: Mapping[str, Any] = field(default_factory=dict)  # the object, or what changes of it or its status
    uid: str = ""  # `delete`: only this very object; `apply`: of the owner that an object there must have
    version: int = 0  # `status`: resource version of the object that was decided about
    grace_period_s: int | None = None  # `delete`: time to end, None for the object's own
    stops: str = ""  # `delete`: role of the pod that it stops; empty if it had ended, and for other kinds

    def __str__(self) -> str:
        """Write it as people read it: `create Pod default/a-trainer-0: growth`."""
        return f"{self.verb} {self.ref}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A write that the cluster did not take."""

    action: Action
    error: ClusterError


@dataclass(frozen=True, kw_only=True)
class Actions:
    """The writes for one job, by the stages in which they are done."""

    job: str
    deletions: tuple[Action, ...] = ()  # pods that go; first, since the room they leave takes time
    supports: tuple[Action, ...] = ()  # Services, budgets and StatefulSets, written or deleted
    renewals: tuple[Action, ...] = ()  # servers that their StatefulSet makes again, in the form it has now
    creations: tuple[Action, ...] = ()  # trainers
    is_whole: bool = False  # whether all stands around the trainers once `supports` are written


@dataclass(frozen=True, kw_only=True)
class Support:
    """The form in which the objects around the trainers are wanted."""

    is_running: bool  # whether the StatefulSets have pods
    hints: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by role: host names of the nodes
    is_held: bool = False  # whether these pods may go nowhere else
    sets_only: bool = False  # whether the rest stands already
    only: frozenset[ObjectRef] = frozenset()  # what is to be written of all that, empty for all


def delete_pods(
    job: JobFacts, pods: Sequence[PodFacts], why: str, *, grace_s: int | None = None
) -> tuple[Action, ...]:
    """Delete these very pods."""
    return tuple(
        Action(
            verb="delete",
            ref=ObjectRef("v1", "Pod", pod.namespace, pod.name),
            job=job.key,
            why=why,
            uid=pod.uid,
            grace_period_s=grace_s,
            stops="" if pod.ending else pod.role,
        )
        for pod in pods
    )


def apply_support(job: JobFacts, support: Support, why: str, transitions: int | None) -> tuple[Action, ...]:
    """Write what stands around the trainers of a job; `transitions` of the leader's lease."""
    if job.spec is None:
        return ()
    manifests = pods.supporting(
        job.spec,
        hints=support.hints,
        required=support.is_held,
        is_running=support.is_running,
        transitions=transitions,
    )
    return tuple(
        Action(verb="apply", ref=ObjectRef.of(manifest), job=job.key, why=why, body=manifest, uid=job.uid)
        for manifest in manifests
        if manifest["kind"] == "StatefulSet" or not support.sets_only
        if not support.only or ObjectRef.of(manifest) in support.only
    )


def create_trainers(
    job: JobFacts,
    nodes: Sequence[str],
    why: str,
    *,
    cache: ClusterCache,
    removed: Sequence[PodFacts],
    transitions: int | None,
) -> tuple[Action, ...]:
    """Create a trainer for each planned node (empty for none), under the lowest free indexes.

    Names of pods that are about to be `removed` are free.
    """
    if job.spec is None or not nodes:
        return ()
    free = {pod.name for pod in removed}
    names = ((index, training_job.trainer_name(job.name, index)) for index in count())
    indexes = (index for index, name in names if name in free or not cache.has_pod(f"{job.namespace}/{name}"))
    creations = []
    for node, index in zip(nodes, indexes, strict=False):
        host = cache.host_name(node) if node else ""
        pod = pods.trainer(job.spec, index, node=host, transitions=transitions)
        if node != host:
            pod["metadata"]["annotations"][PLANNED] = node
        creations.append(Action(verb="create", ref=ObjectRef.of(pod), job=job.key, why=why, body=pod))
    return tuple(creations)


# --- carrying out ---


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """What came of a write that was not refused."""

    event: WatchEvent | None  # what the cache has to know, None for nothing
    is_taken: bool = True  # whether the cluster changed by it, and not by somebody else before


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    """Carry out one piece of work after the other."""
    for work in works:
        work()


class Executor:
    """Carries out actions, and lets the cache know at once what came of them, before any watch tells it."""

    def __init__(self, cluster: Cluster, cache: ClusterCache, run: Run = one_by_one) -> None:
        self._cluster, self._cache, self._run = cluster, cache, run
        self.taken: list[Action] = []  # writes that the cluster took, for whoever counts and empties this

    def execute(self, actions: Sequence[Action]) -> list[Refused]:
        """Do all actions, in any order, and give those that were refused.

        Raises:
            UnreachableError: the server does not answer; the cache knows what was done before.
        """
        results: list[_Outcome | ClusterError | None] = [None] * len(actions)

        def work(number: int) -> Callable[[], None]:
            def write() -> None:
                try:
                    results[number] = self._write(actions[number])
                except ClusterError as error:
                    results[number] = error

            return write

        try:
            self._run([work(number) for number in range(len(actions))])
        finally:
            # The cache is for one thread: what the writes gave is told here, not where they ran.
            for action, result in zip(actions, results, strict=True):
                if isinstance(result, _Outcome) and result.event is not None:
                    self._cache.handle(result.event)
                if isinstance(result, _Outcome) and result.is_taken:
                    self.taken.append(action)
        refused = []
        for action, result in zip(actions, results, strict=True):
            if isinstance(result, UnreachableError):
                raise result
            if isinstance(result, ClusterError):
                refused.append(Refused(action=action, error=result))
        return refused

    def _write(self, action: Action) -> _Outcome:
        match action.verb:
            case "create":
                return self._create(action)
            case "apply":
                return self._apply(action)
            case "status":
                patch = {"metadata": {"resourceVersion": str(action.version)}, "status": action.body}
                patched = self._cluster.patch(action.ref, patch, subresource="status", manager=MANAGER)
                return _Outcome(event=WatchEvent(type="MODIFIED", object=patched.object))
            case "patch":
                patched = self._cluster.patch(action.ref, action.body, manager=MANAGER)
                return _Outcome(event=WatchEvent(type="MODIFIED", object=patched.object))
            case "delete":
                return self._delete(action)

    def _create(self, action: Action) -> _Outcome:
        try:
            created = self._cluster.create(action.body, manager=MANAGER)
        except ConflictError:  # there is one of that name already: look at it, plan anew
            live = self._cluster.get(action.ref)
            event = WatchEvent(type="MODIFIED", object=live) if live is not None else None
            return _Outcome(event=event, is_taken=False)
        return _Outcome(event=WatchEvent(type="ADDED", object=created.object))

    def _apply(self, action: Action) -> _Outcome:
        check_owner(self._cluster.get(action.ref), action.ref, action.uid, NameTakenError)
        applied = self._cluster.apply(action.body, manager=MANAGER, force=True)
        return _Outcome(event=WatchEvent(type="MODIFIED", object=applied.object))

    def _delete(self, action: Action) -> _Outcome:
        ref = action.ref
        metadata = {"namespace": ref.namespace, "name": ref.name, "uid": action.uid}
        gone = WatchEvent(
            type="DELETED", object={"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}
        )
        try:
            left = self._cluster.delete(
                ref, propagation="Background", uid=action.uid, grace_period_s=action.grace_period_s
            )
        except ObjectNotFoundError:
            return _Outcome(event=gone, is_taken=False)
        except ConflictError:  # mostly another of the same name; if it is the same one after all, try again
            live = self._cluster.get(ref)
            if live is not None and live["metadata"].get("uid") == action.uid:
                raise
            return _Outcome(event=gone, is_taken=False)
        return _Outcome(event=gone if left is None else WatchEvent(type="MODIFIED", object=left))


def check_owner(
    live: Mapping[str, Any] | None,
    ref: ObjectRef,
    uid: str,
    error: type[ConflictError] = ConflictError,
) -> None:
    """Refuse to write over an object of that name that the owner with this UID does not own.

    Raises:
        ConflictError: there is one; of the type that is given.
    """
    owners = ((live or {}).get("metadata") or {}).get("ownerReferences") or ()
    if live is not None and uid not in {str(owner.get("uid")) for owner in owners}:
        raise error(f"`{ref}` is there and does not belong to the job")
