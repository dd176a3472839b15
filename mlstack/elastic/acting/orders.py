"""From a decision about a job to the writes that carry it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.cluster.api import ObjectRef
from mlstack.elastic import childnames, children
from mlstack.elastic.acting.actions import Action
from mlstack.elastic.observed.jobs import JobFacts
from mlstack.elastic.observed.pods import PLANNED, PodFacts
from mlstack.elastic.trainingjob import API_VERSION, KIND


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The writes for one job, by the stages in which they are done.

    Attributes:
        job: its key.
        deletions: pods that go; first, since the room they leave takes time.
        supports: Services, budgets and StatefulSets, written or deleted.
        renewals: servers that their StatefulSet makes again, in the form that it has now.
        creations: trainers.
        is_whole: whether all stands around the trainers once `supports` are written.
    """

    job: str
    deletions: tuple[Action, ...] = ()
    supports: tuple[Action, ...] = ()
    renewals: tuple[Action, ...] = ()
    creations: tuple[Action, ...] = ()
    is_whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Support:
    """The form in which the objects around the trainers are wanted.

    Attributes:
        is_running: whether the StatefulSets have pods.
        hints: host names of the nodes for masters and parameter servers.
        is_held: whether these pods may go nowhere else.
        sets_only: whether the rest stands already.
        only: what is to be written of all that, empty for all.
    """

    is_running: bool
    hints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_held: bool = False
    sets_only: bool = False
    only: frozenset[ObjectRef] = frozenset()


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
    objects = children.supporting(
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
    """Create a trainer for each place, under the lowest free indexes.

    Args:
        job: the job.
        places: the node that is planned for each, empty for none.
        why: one line for people.
        is_taken: tells whether there is a pod of that name, however it fares.
        host_name: gives what affinity calls a node.
        transitions: of the lease of the leader.
    """
    if job.spec is None:
        return []
    free = _free(job, is_taken)
    found = []
    for node in places:
        host = host_name(node) if node else ""
        pod = children.trainer(job.spec, next(free), node=host, transitions=transitions)
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
        if not is_taken(childnames.trainer_name(job.name, index)):
            yield index
        index += 1
