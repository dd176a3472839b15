"""How elastic training looks: what would be done and why, and how the jobs stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Table
from mlstack.cli.views import VIEWS, count, facts

_BREACHES = 10

if TYPE_CHECKING:
    from mlstack.elastic.looking import ElasticPlan, ElasticStatus, ExplainedJob, PlannedJob
    from mlstack.elastic.simulate.goals import GoalTable
    from mlstack.elastic.simulate.report import SimulationReport


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
            _range(row.minimum, row.maximum),
            row.reasons[0].partition(": ")[2],
        )
        for row in result.jobs
    )
    blocks: list[Block] = [Table(("JOB", "STATE", "NOW", "PLAN", "RANGE", "WHY"), rows)]
    said = {row.job for row in result.jobs}
    pods = [one for one in result.unplaced if one.key not in said]
    if pods:
        blocks += [Line(""), Line("pods without a place:", "head")]
        blocks += [Line(f"  {one.key}: {one.missing or 'no node takes it'}", hang=4) for one in pods]
    moves = f", {count(result.moves, 'move')} for fairness alone" if result.moves else ""
    blocks += [Line(""), Line(f"policy `{result.policy}` on {count(result.nodes, 'node')}{moves}", "dim")]
    changed = [row.job for row in result.jobs if row.victims or row.places or row.now != row.target]
    notes = (f"next: mlstack elastic plan --explain {changed[0]}",) if changed else ()
    return Page(tuple(blocks), tuple(row.job for row in result.jobs), notes)


def _range(minimum: int, maximum: int) -> str:
    """Write the range of a job; one that cannot be read has none."""
    return f"{minimum}-{maximum}" if maximum else "-"


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
            _range(row.minimum, row.maximum),
            row.reason,
        )
        for row in result.jobs
    )
    table = Table(("JOB", "PHASE", "READY", "RANGE", "REASON"), rows)
    return Page((table,), tuple(row.job for row in result.jobs))


@VIEWS.register("GoalTable")
def goals(result: GoalTable) -> Page:
    """Show a line a goal, then what must never happen and did."""
    rows = tuple(
        (row.name, f"{row.value:.4g}", row.goal, "yes" if row.is_met else "NO") for row in result.rows
    )
    missed = sum(not row.is_met for row in result.rows)
    verdict = f"{missed} of {count(len(result.rows), 'goal')} missed" if missed else "every goal is met"
    blocks: list[Block] = [
        Table(("MEASURE", "VALUE", "GOAL", "MET"), rows),
        *(Line(f"  {text}", hang=4) for text in result.violations[:_BREACHES]),
        Line(""),
        Line(f"{result.case}, policy `{result.policy}`, {count(len(result.seeds), 'seed')}: {verdict}"),
    ]
    return Page(tuple(blocks), tuple(row.name for row in result.rows))


@VIEWS.register("SimulationReport")
def simulation(result: SimulationReport) -> Page:
    """Show the jobs of one simulation and how full the cluster was."""
    rows = tuple(
        (
            job.name,
            f"{job.wait_s:g} s",
            f"{job.gang_s:g} s",
            f"{job.fewest}-{job.most}",
            f"{job.mean:g}",
            job.phase or "-",
        )
        for job in result.jobs
    )
    title = f"{result.scenario}, policy `{result.policy}`, seed {result.seed}, {result.seconds:g} s"
    blocks: list[Block] = [Line(title, "head")]
    if rows:
        blocks += [Table(("JOB", "FIRST", "WHOLE", "TRAINERS", "MEAN", "PHASE"), rows), Line("")]
    blocks += facts(
        ("utilisation", f"{result.utilisation:.1f} %, {result.useful:.1f} % by whole jobs and services"),
        ("stranded", f"{result.stranded:.1f} % where no trainer fits"),
        ("Jain index", f"{result.jain:.3f} at the end"),
        ("deleted", count(result.deletions, "trainer")),
    )
    blocks += [Line(f"  {text}", "remove", hang=4) for text in result.violations[:_BREACHES]]
    return Page(tuple(blocks), tuple(job.name for job in result.jobs))
