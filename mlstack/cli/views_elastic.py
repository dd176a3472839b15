"""How elastic training looks: what would be done and why, and how the jobs stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Page, TextLine, TextTable, count, facts, view

_BREACHES = 10

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlstack.elastic.controller.inspect import ElasticPlan, ElasticStatus, ExplainedJob
    from mlstack.simulator.experiments import GoalTable
    from mlstack.simulator.report import SimulationReport, WaitSummary


@view
def plan(result: ElasticPlan) -> Page:
    """Show a line a job, then what found no place."""
    if not result.jobs:
        return Page((TextLine("no training job is under way"),))
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
    blocks: list[Block] = [TextTable(("JOB", "STATE", "NOW", "PLAN", "RANGE", "WHY"), rows)]
    said = {row.job for row in result.jobs}
    pods = [row for row in result.unplaced if row.key not in said]
    if pods:
        blocks += [TextLine(""), TextLine("pods without a place:", "head")]
        blocks += [TextLine(f"  {row.key}: {row.missing or 'no node takes it'}", hang=4) for row in pods]
    moves = f", {count(result.moves, 'move')} for fairness alone" if result.moves else ""
    blocks += [
        TextLine(""),
        TextLine(f"policy `{result.policy}` on {count(result.nodes, 'node')}{moves}", "dim"),
    ]
    changed = [row.job for row in result.jobs if row.victims or row.places or row.now != row.target]
    notes = (f"next: mlstack elastic plan --explain {changed[0]}",) if changed else ()
    return Page(tuple(blocks), tuple(row.job for row in result.jobs), notes)


def _range(minimum: int, maximum: int) -> str:
    """Write the range of a job; one that cannot be read has none."""
    return f"{minimum}-{maximum}" if maximum else "-"


@view
def explained(result: ExplainedJob) -> Page:
    """Show every reason, and every pod that comes or goes."""
    job = result.job
    blocks: list[Block] = [
        TextLine(f"{job.job}: {job.now} -> {count(job.target, 'trainer')}", "head"),
        *facts(
            ("state", job.state),
            ("range", f"{job.minimum}-{job.maximum}"),
            ("priority", str(job.priority)),
            ("policy", result.policy),
            ("missing", result.missing),
        ),
        *(TextLine(f"  {reason}", hang=4) for reason in job.reasons),
        *(TextLine(f"  - {name}", "remove") for name in job.victims),
    ]
    for place in job.places:
        text = f"  + {count(place.trainers, 'trainer')} on {place.node or 'any node'}"
        blocks.append(TextLine(text, "add"))
    for role, nodes in (("master", job.master), ("pserver", job.pserver)):
        blocks += [TextLine(f"  + {role} {index} on {node}", "add") for index, node in enumerate(nodes)]
    return Page(tuple(blocks), (job.job,))


@view
def status(result: ElasticStatus) -> Page:
    """Show a line a job."""
    from mlstack.elastic.controller.inspect import UNSEEN

    if not result.jobs:
        return Page(
            (TextLine("there is no training job"),), notes=("next: mlstack generate elastic-job NAME",)
        )
    rows = tuple(
        (row.job, row.phase, f"{row.ready}/{row.desired}", _range(row.minimum, row.maximum), row.reason)
        for row in result.jobs
    )
    table = TextTable(("JOB", "PHASE", "READY", "RANGE", "REASON"), rows)
    is_unseen = any(row.reason == UNSEEN for row in result.jobs)
    notes = ("next: kubectl get lease -A names the controller that leads; mlstack elastic run is one",)
    return Page((table,), tuple(row.job for row in result.jobs), notes if is_unseen else ())


@view
def goals(result: GoalTable) -> Page:
    """Show a line a goal, then what must never happen and did."""
    rows = tuple(
        (row.name, f"{row.value:.4g}", row.goal, "yes" if row.is_met else "NO") for row in result.rows
    )
    missed = sum(not row.is_met for row in result.rows)
    verdict = f"{missed} of {count(len(result.rows), 'goal')} missed" if missed else "every goal is met"
    blocks: list[Block] = [
        TextTable(("MEASURE", "VALUE", "GOAL", "MET"), rows),
        *(TextLine(f"  {text}", hang=4) for text in result.violations[:_BREACHES]),
        TextLine(""),
        TextLine(f"{result.case}, policy `{result.policy}`, {count(len(result.seeds), 'seed')}: {verdict}"),
    ]
    return Page(tuple(blocks), tuple(row.name for row in result.rows))


@view
def simulation(result: SimulationReport) -> Page:
    """Show the jobs of one simulation, how full the cluster was, and what else applies."""
    title = f"{result.scenario}, policy `{result.policy}`, seed {result.seed}, {result.seconds:g} s"
    blocks: list[Block] = [TextLine(title, "head")]
    if result.jobs:
        blocks += [_simulated_jobs(result), TextLine("")]
    rows = [*_use(result), *(_fortunes(result) if result.jobs else ()), *_served(result)]
    if result.passes:
        calls = ", ".join(f"{number} {verb}" for verb, number in result.calls.items())
        rows.append(("controller", f"looked {count(result.passes, 'time')}; requests: {calls}"))
    # What does not fit goes on under its own beginning.
    width = max(len(name) for name, _ in rows) + 1
    blocks += [TextLine(f"{name + ':':<{width}} {text}", hang=width + 1) for name, text in rows]
    blocks += [TextLine(f"  {text}", "remove", hang=4) for text in result.violations[:_BREACHES]]
    return Page(tuple(blocks), tuple(job.name for job in result.jobs))


def _simulated_jobs(result: SimulationReport) -> TextTable:
    """Write a line a job; when jobs were done is a column only where one was."""
    has_ends = bool(result.completion.finished)
    rows = tuple(
        (
            job.name,
            f"{'' if job.has_begun else '>'}{job.wait_s:g} s",
            f"{'' if job.was_whole else '>'}{job.gang_s:g} s",
            f"{job.fewest}-{job.most}",
            f"{job.mean:g}",
            *([_seconds(job.jct_s)] if has_ends else []),
            job.phase or "-",
        )
        for job in result.jobs
    )
    done = ("DONE",) if has_ends else ()
    return TextTable(("JOB", "FIRST", "WHOLE", "TRAINERS", "MEAN", *done, "PHASE"), rows)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"


def _use(result: SimulationReport) -> Iterator[tuple[str, str]]:
    for use in result.resources:
        text = f"{use.utilisation:.1f} % (of samples {use.of_samples:.1f} %), "
        text += f"{use.useful:.1f} % by whole jobs and services"
        yield "utilisation" if use.name == "cpu" else use.name, text
    yield "stranded", f"{result.stranded:.1f} % where no trainer fits"


def _fortunes(result: SimulationReport) -> Iterator[tuple[str, str]]:
    """Tell how jobs fared together."""
    yield "first trainer", _waits(result.first_trainer)
    yield "whole gang", _waits(result.whole_gang)
    ends = result.completion
    if ends.finished:
        left = f" ({ends.unfinished} not yet)" if ends.unfinished else ""
        span = "" if ends.makespan_s is None else f"; makespan {ends.makespan_s:.0f} s"
        times = f"mean {_seconds(ends.mean_s)}, p95 {_seconds(ends.p95_s)} after submission"
        yield "done", f"{count(ends.finished, 'job')}{left}, {times}{span}"
    yield "Jain index", f"{result.jain:.3f} at the end, most and fewest trainers {result.spread} apart"
    yield (
        "changes",
        f"grew {count(result.grown, 'time')}, shrank {count(result.shrunk, 'time')}; "
        f"{count(result.creations, 'trainer')} made, {result.deletions} deleted",
    )


def _waits(waits: WaitSummary) -> str:
    never = f", {waits.never} never" if waits.never else ""
    return f"mean {waits.mean:.1f} s, p50 {waits.p50:g} s, p95 {waits.p95:g} s, max {waits.max:g} s{never}"


def _served(result: SimulationReport) -> Iterator[tuple[str, str]]:
    """Tell how services fared beside the jobs."""
    for service in result.services:
        text = f"{service.lacking:.1f} pods short on average"
        if service.raises:
            waits = ", ".join(f"{'' if wait.is_served else '>'}{wait.seconds:g}" for wait in service.raises)
            text += f", {service.shortfall:.1f} while growing; 99 % after {waits} s"
        yield service.name, text
