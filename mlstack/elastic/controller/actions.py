"""The writes of a pass: what they are, and carrying them out one after the other or side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlstack.elastic import pods, training_job
from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.facts import PLANNED, PodFacts
from mlstack.elastic.training_job import API_VERSION, KIND
from mlstack.errors import ClusterError, ConflictError, ObjectNotFoundError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent

# --- The writes of a pass: what they are, and carrying them out one after the other or side by side ---

MANAGER = "mlstack-elastic"

Verb = Literal["create", "apply", "delete", "status", "patch"]


class NameTakenError(ConflictError):
    """Raised where an object of the job's would take the place of somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One write."""

    verb: Verb  # what is done; `patch` is a merge patch, `status` one of the status alone
    ref: ObjectRef  # the object
    job: str  # key of the job that it is done for
    why: str
    body: Mapping[str, Any] = field(default_factory=dict)  # the object, or what changes of it or its status
    # for `delete`: only this very object; for `apply`: of the owner that an object there must have
    uid: str = ""
    version: int = 0  # for `status`: resource version of the object that was decided about
    grace_period_s: int | None = None  # for `delete`: time to end, None for the object's own
    # for `delete`: role of the pod that it stops; empty for one that had ended, and for other kinds
    stops: str = ""

    def __str__(self) -> str:
        """Write it as people read it: `create Pod default/a-trainer-0: growth`."""
        return f"{self.verb} {self.ref}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class _Done:
    """What came of a write that was not refused."""

    news: WatchEvent | None  # what the world has to know, None for nothing
    is_taken: bool = True  # whether the cluster changed by it, and not by somebody else before


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A write that the cluster did not take."""

    action: Action  # the write
    error: ClusterError  # what it said


Run = Callable[[Sequence[Callable[[], None]]], None]
"""Carries out pieces of work that do not depend on each other."""


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    """Carry out one piece of work after the other."""
    for work in works:
        work()


class Executor:
    """Carries out actions and lets the world know at once what came of them."""

    def __init__(self, cluster: Cluster, world: ClusterCache, run: Run = one_by_one) -> None:
        self._cluster, self._world, self._run = cluster, world, run
        # the writes that the cluster took, for whoever counts them and empties this
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


# --- From a decision about a job to the writes that carry it out ---


@dataclass(frozen=True, kw_only=True)
class Actions:
    """The writes for one job, by the stages in which they are done."""

    job: str
    deletions: tuple[Action, ...] = ()  # pods that go; first, since the room they leave takes time
    supports: tuple[Action, ...] = ()  # Services, budgets and StatefulSets, written or deleted
    # servers that their StatefulSet makes again, in the form that it has now
    renewals: tuple[Action, ...] = ()
    creations: tuple[Action, ...] = ()  # trainers
    is_whole: bool = False  # whether all stands around the trainers once `supports` are written


@dataclass(frozen=True, kw_only=True)
class Support:
    """The form in which the objects around the trainers are wanted."""

    is_running: bool  # whether the StatefulSets have pods
    # host names of the nodes for masters and parameter servers
    hints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_held: bool = False  # whether these pods may go nowhere else
    sets_only: bool = False  # whether the rest stands already
    only: frozenset[ObjectRef] = frozenset()  # what is to be written of all that, empty for all


def deletions(
    job: JobFacts, pods: Sequence[PodFacts], why: str, *, grace_s: int | None = None
) -> list[Action]:
    """Delete these very pods."""
    return [
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
    ]


def supports(job: JobFacts, wanted: Support, why: str, transitions: int | None) -> list[Action]:
    """Write what stands around the trainers of a job."""
    if job.spec is None:
        return []
    objects = pods.supporting(
        job.spec,
        hints=wanted.hints,
        required=wanted.is_held,
        is_running=wanted.is_running,
        transitions=transitions,
    )
    return [
        Action(verb="apply", ref=ObjectRef.of(one), job=job.key, why=why, body=one, uid=job.uid)
        for one in objects
        if one["kind"] == "StatefulSet" or not wanted.sets_only
        if not wanted.only or ObjectRef.of(one) in wanted.only
    ]


def clearances(job: JobFacts, needless: Mapping[ObjectRef, str]) -> list[Action]:
    """Delete what a job has no use for any more, these very objects."""
    return [
        Action(verb="delete", ref=ref, job=job.key, why="needed no more", uid=uid)
        for ref, uid in needless.items()
    ]


def creations(
    job: JobFacts,
    places: Sequence[str],
    why: str,
    *,
    is_taken: Callable[[str], bool],
    host_name: Callable[[str], str],
    transitions: int | None,
) -> list[Action]:
    """Create a trainer for each place, under the lowest free indexes."""
    if job.spec is None:
        return []
    free = _free(job, is_taken)
    found = []
    for node in places:
        host = host_name(node) if node else ""
        pod = pods.trainer(job.spec, next(free), node=host, transitions=transitions)
        if node != host:
            pod["metadata"]["annotations"][PLANNED] = node
        found.append(Action(verb="create", ref=ObjectRef.of(pod), job=job.key, why=why, body=pod))
    return found


def status(job: JobFacts, patch: Mapping[str, Any], why: str) -> Action:
    """Change the status of a job as it was seen, by a JSON merge patch."""
    return Action(verb="status", ref=ref_of(job), job=job.key, why=why, body=patch, version=job.version)


def removal(job: JobFacts, why: str) -> Action:
    """Delete a job; what it owns goes with it."""
    return Action(verb="delete", ref=ref_of(job), job=job.key, why=why, uid=job.uid)


def ref_of(job: JobFacts) -> ObjectRef:
    """Give the address of a job."""
    return ObjectRef(API_VERSION, KIND, job.namespace, job.name)


def _free(job: JobFacts, is_taken: Callable[[str], bool]) -> Iterator[int]:
    index = 0
    while True:
        if not is_taken(training_job.trainer_name(job.name, index)):
            yield index
        index += 1
