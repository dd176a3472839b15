"""`plan`: what an apply would do, kept in a file so that exactly that can be done later."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlstack.cluster.api import Opener
from mlstack.engine.approving import approve
from mlstack.engine.deployment import Deployment, propose
from mlstack.engine.target import Target, reach
from mlstack.engine.waiting import ready as waiting
from mlstack.files import planfile
from mlstack.model.app import API_VERSION, ClusterIdentity
from mlstack.model.clock import Clock
from mlstack.model.options import ApplyOptions
from mlstack.model.readiness.assess import assess
from mlstack.model.readiness.base import Facts
from mlstack.model.readiness.terms import Policy
from mlstack.model.report import ObjectChange

_ASKING = ApplyOptions(dry_run=True)


@dataclass(frozen=True, kw_only=True)
class PlannedWait:
    """What an apply would wait for after it wrote an object.

    Attributes:
        object: the object as people name it.
        policy: `required` objects fail the run when they do not work, `optional` ones are told of.
        timeout_s: for how many seconds at most.
        goes_on: it runs to an end or is optional: only the reason it waits for is waited for.
    """

    object: str
    policy: Policy
    timeout_s: float
    goes_on: bool


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """What an apply would do.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: always true: to have a plan is a success, whatever it holds.
        changed: whether it holds a change.
        app: name of the app.
        environment: name of the environment.
        namespace: its namespace.
        context: the kubectl context.
        cluster: who answered there.
        file: the plan file that was written, null if none was.
        objects: one row an object, in the order of execution.
        counts: number of objects of each action.
        waits: what would be waited for, in the order of execution; none with `--no-wait`.
        notes: remarks on the run as a whole.
    """

    api_version: str = API_VERSION
    kind: Literal["PlanResult"] = "PlanResult"
    ok: bool = True
    changed: bool
    app: str
    environment: str
    namespace: str
    context: str
    cluster: ClusterIdentity | None
    file: str | None
    objects: tuple[ObjectChange, ...]
    counts: Mapping[str, int]
    waits: tuple[PlannedWait, ...] = ()
    notes: tuple[str, ...] = ()


def plan(
    target: Target, *, opener: Opener, clock: Clock, options: ApplyOptions = _ASKING, out: Path | None = None
) -> PlanResult:
    """Work out what an apply would do; nothing is written but the plan file.

    Args:
        target: what to deploy, and where.
        opener: opens a cluster by its context.
        clock: tells the time, which stands in the file.
        options: how it would be done.
        out: where the plan file is written; None writes none.

    Raises:
        ConfigError: a file, parameter or template is wrong, or the plan file cannot be written.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    found = propose(reach(target, opener), options)
    if out is not None:
        planfile.write(out, approve(found, now_s=clock.now_s(), salt=planfile.new_salt()))
    report = found.report
    return PlanResult(
        changed=not report.ok,
        app=report.app,
        environment=report.environment,
        namespace=report.namespace,
        context=report.context,
        cluster=found.changes.cluster,
        file=None if out is None else str(out),
        objects=report.objects,
        counts=report.counts,
        waits=_waits(found),
        notes=report.notes,
    )


def _waits(found: Deployment) -> tuple[PlannedWait, ...]:
    """Give the objects that change and do not work at once, with the terms of the wait."""
    if not found.options.wait:
        return ()
    changed = [change.desired for change in found.changes.visible if change.desired is not None]
    slow = [one for one in changed if not assess(Facts(data=one.data), found.rules).is_fine]
    terms = waiting.terms_of(slow, found.reached, found.options)
    return tuple(
        PlannedWait(object=str(identity), policy=one.policy, timeout_s=one.timeout_s, goes_on=one.brief)
        for identity, one in terms.items()
        if one.policy != "none"
    )
