"""How elastic training looks: what would be done and why, and how the jobs stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Table
from mlstack.cli.views import VIEWS, count, facts

if TYPE_CHECKING:
    from mlstack.elastic.looking import ElasticPlan, ElasticStatus, ExplainedJob, PlannedJob


@VIEWS.register("ElasticPlan")
def plan(result: ElasticPlan) -> Page:
    """Show a line a job, then what found no place."""
    if not result.jobs:
        return Page((Line("no training job is under way"),))
    rows = tuple(
        (
            row.job,
            row.state,
            str(row.now),
            str(row.target),
            f"{row.minimum}-{row.maximum}",
            row.reasons[0],
        )
        for row in result.jobs
    )
    blocks: list[Block] = [Table(("JOB", "STATE", "NOW", "PLAN", "RANGE", "WHY"), rows)]
    if result.unplaced:
        blocks += [Line(""), Line("without a place:", "head")]
        blocks += [
            Line(f"  {one.key}: {one.missing or 'no node takes it'}", hang=4) for one in result.unplaced
        ]
    moves = f", {count(result.moves, 'move')} for fairness alone" if result.moves else ""
    blocks += [Line(""), Line(f"policy `{result.policy}` on {count(result.nodes, 'node')}{moves}", "dim")]
    changed = [row.job for row in result.jobs if row.victims or row.places or row.now != row.target]
    notes = (f"next: mlstack elastic plan --explain {changed[0]}",) if changed else ()
    return Page(tuple(blocks), tuple(row.job for row in result.jobs), notes)


@VIEWS.register("ExplainedJob")
def explained(result: ExplainedJob) -> Page:
    """Show every reason, and every pod that comes or goes."""
    job = result.job
    blocks: list[Block] = [
        Line(f"{job.job}: {job.now} -> {count(job.target, 'trainer')}", "head"),
        *facts(
            ("state", job.state),
            ("range", f"{job.minimum}-{job.maximum}"),
            ("policy", result.policy),
            ("missing", result.missing),
        ),
        *(Line(f"  {reason}", hang=4) for reason in job.reasons),
        *_changes(job),
    ]
    return Page(tuple(blocks), (job.job,))


def _changes(job: PlannedJob) -> list[Block]:
    blocks: list[Block] = [Line(f"  - {name}", "remove") for name in job.victims]
    blocks += [
        Line(f"  + {count(one.trainers, 'trainer')} on {one.node or 'any node'}", "add") for one in job.places
    ]
    for role, nodes in (("master", job.master), ("pserver", job.pserver)):
        blocks += [Line(f"  + {role} {index} on {node}", "add") for index, node in enumerate(nodes)]
    return blocks


@VIEWS.register("ElasticStatus")
def status(result: ElasticStatus) -> Page:
    """Show a line a job."""
    if not result.jobs:
        return Page((Line("there is no training job"),))
    rows = tuple(
        (
            row.job,
            row.phase,
            f"{row.ready}/{row.desired}",
            f"{row.minimum}-{row.maximum}",
            row.reason,
        )
        for row in result.jobs
    )
    table = Table(("JOB", "PHASE", "READY", "RANGE", "REASON"), rows)
    return Page((table,), tuple(row.job for row in result.jobs))
