"""Services and disruption budgets of training jobs: what is known, what is missing, what is too much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlstack.elastic.observed.jobs import JobFacts, Kind
from mlstack.elastic.observed.nodes import version
from mlstack.elastic.observed.pods import JOB_LABEL, ROLE_LABEL

SERVICE = ("v1", "Service")
BUDGET = ("policy/v1", "PodDisruptionBudget")

State = Literal["missing", "changed"]
Form = tuple[str | int | None, str | int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class AroundFacts:
    """What is known of a Service or PodDisruptionBudget of a training job.

    Attributes:
        key: `namespace/name`.
        uid: its UID.
        version: resource version of the object.
        owner: UID of its controller.
        is_going: whether somebody deleted it.
        form: of a Service job and role of the pods that it selects, of a budget how many pods may be away
            and how many have to be there, None where it does not say so.
    """

    key: str
    uid: str
    version: int
    owner: str
    is_going: bool
    form: Form


Find = Callable[[str, str], AroundFacts | None]
"""Gives what is known under a kind and a key."""


def parse_service(obj: Mapping[str, Any]) -> AroundFacts:
    """Read a Service of a job."""
    selector = (obj.get("spec") or {}).get("selector") or {}
    return _facts(obj, (str(selector.get(JOB_LABEL) or ""), str(selector.get(ROLE_LABEL) or "")))


def parse_budget(obj: Mapping[str, Any]) -> AroundFacts:
    """Read a PodDisruptionBudget of a job."""
    wanted = obj.get("spec") or {}
    return _facts(obj, (wanted.get("maxUnavailable"), wanted.get("minAvailable")))


def lacking(job: JobFacts, find: Find) -> dict[tuple[str, str, str], State]:
    """Tell by API version, kind and name which Services and budgets are not there, or differ in what matters.

    One that is there but is not the job's own is missing. A budget that somebody gave the other of its two
    numbers is left: with both no server would take it.
    """
    found: dict[tuple[str, str, str], State] = {}
    for (api_version, kind), name, form in _wanted(job):
        facts = find(kind, f"{job.namespace}/{name}")
        if facts is None or facts.owner != job.uid:
            found[api_version, kind, name] = "missing"
        elif _differs(facts.form, form):
            found[api_version, kind, name] = "changed"
    return found


def needless(job: JobFacts, find: Find) -> AroundFacts | None:
    """Give the job's own budget of trainers where none of them has to be there, None where there is no such.

    Nothing else is ever too much: the definition lets no master and no parameter server come or go.
    """
    if job.trainer is None or job.trainer.count:
        return None
    facts = find(BUDGET[1], f"{job.namespace}/{job.trainer.set_name}")
    is_own = facts is not None and facts.owner == job.uid and not facts.is_going
    return facts if is_own else None


def _wanted(job: JobFacts) -> Iterator[tuple[tuple[str, str], str, Form]]:
    """Give kind, name and form of what stands around the pods of a job, as `children` writes it."""
    kinds: tuple[Kind, ...] = (job.trainer, *job.servers) if job.trainer is not None else ()
    for kind in kinds:
        yield SERVICE, kind.set_name, (job.name, kind.role)
        if kind.role != "trainer":
            yield BUDGET, kind.set_name, (0, None)
        elif kind.count:
            yield BUDGET, kind.set_name, (None, kind.count)


def _differs(form: Form, wanted: Form) -> bool:
    return any(None not in (has, wants) and has != wants for has, wants in zip(form, wanted, strict=True))


def _facts(obj: Mapping[str, Any], form: Form) -> AroundFacts:
    metadata = obj["metadata"]
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    return AroundFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        owner=str(owners[0].get("uid") or "") if owners else "",
        is_going=bool(metadata.get("deletionTimestamp")),
        form=form,
    )
