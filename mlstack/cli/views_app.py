"""How the results of commands on the app directory and its parameters look, and those of elastic training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mlstack.cli.page import (
    TABLE_VIEWS,
    Block,
    Columns,
    Page,
    Style,
    TableView,
    TextLine,
    columns,
    count,
    facts,
    json_text,
    one_line_value,
    section,
    shown,
    table,
    view,
)

if TYPE_CHECKING:
    from mlstack.cli.commands.program import Versions
    from mlstack.elastic.inspect import ElasticPlan, ElasticStatus, ExplainedJob
    from mlstack.operations import app, doctor, explain, images, params, render
    from mlstack.simulator.experiments import GoalTable
    from mlstack.simulator.report import SimulationReport, WaitSummary


def _of(row: Any) -> str:
    return row.component or "all"


TABLE_VIEWS |= {
    "PolicyList": TableView("policies", "ID SEVERITY SETS WANTED_BECAUSE=reason", names="id"),
    "SchemaList": TableView("schemas", "NAME DESCRIBES SUMMARY"),
    "EnvironmentList": TableView(
        "environments",
        columns(
            "NAME CONTEXT NAMESPACE KUBERNETES=kubernetes_version EXTENDS? PROTECTED? OVERRIDDEN? EXPIRES?",
            NAME=lambda row: f"{row.name} *" if row.current else row.name,
        ),
        cut="CONTEXT",
        empty="next: mlstack env add NAME",
    ),
    "ExpiredEnvironments": TableView(
        "environments",
        "NAME EXPIRED=expires CONTEXT NAMESPACE",
        cut="CONTEXT",
        empty="no environment has expired",
    ),
    "ParamList": TableView(
        "rows",
        columns(
            "COMPONENT?* PARAM=name VALUE=value! FROM",
            COMPONENT=_of,
            FROM=lambda row: "default" if row.level == "default" else row.origin,
        ),
        names=lambda row: f"{row.component}.{row.name}".removeprefix("."),
        cut="VALUE",
    ),
}

# --- the program and the app ---


@view
def _versions(result: Versions) -> Page:
    rows = (("mlstack", result.mlstack), ("python", result.python), *result.libraries.items())
    return shown(result, [table(rows, "PROGRAM VERSION")], f"mlstack {result.mlstack}")


@view
def _schema(result: app.SchemaResult) -> Page:
    return shown(result, json_text(result).splitlines(), result.name)


@view
def _initialised(result: app.Initialised) -> Page:
    registries = f" with the registry `{result.registries[0]}`" if result.registries else ""
    text = f"created app `{result.app}` in {result.folder}{registries}"
    context = f"context {result.context}" if result.context else "no context yet"
    text += f" and environment `{result.environment}` ({context})" if result.environment else ""
    usual = "mlstack pkg install kubeflow/core" if registries else "mlstack registry add NAME ADDRESS"
    return shown(result, [text], result.app, f"next: cd {result.folder} && {usual}")


@view
def _upgraded(result: doctor.Upgraded) -> Page:
    if not result.files:
        return shown(result, ["nothing to do: every file of the app is up to date"])
    verb = "would upgrade" if result.dry_run else "upgraded"
    lines = [TextLine(f"{verb} {row.file} from {row.before} to {row.after}", "add") for row in result.files]
    return shown(result, lines, [row.file for row in result.files])


# --- environments ---


@view
def _environment_added(result: app.EnvironmentAdded) -> Page:
    settings = [f"context {result.context or 'none'}", f"namespace {result.namespace}"]
    settings += [f"preset {result.preset}"] if result.preset else []
    settings += [f"extends {result.extends}"] if result.extends else []
    text = f"added environment `{result.name}`: {', '.join(settings)}"
    return shown(result, [text], result.name, f"next: mlstack render {result.name}")


_MARKS: Mapping[str, tuple[str, Style]] = {
    "ok": ("ok", ""),
    "warning": ("warn", "change"),
    "failed": ("FAIL", "remove"),
}


@view
def _diagnosis(result: doctor.Diagnosis) -> Page:
    lines = []
    for check in result.checks:
        mark, style = _MARKS[check.state]
        message, *further = check.message.splitlines() or [""]
        lines.append(TextLine(f"{mark:<5}{check.name}: {message}", style, hang=7))
        lines += [TextLine(f"       {text.strip()}", style, hang=9) for text in further]
        lines += [TextLine(f"       {text.strip()}", hang=9) for text in (check.hint or "").splitlines()]
    failed = [check.name for check in result.checks if check.state == "failed"]
    return shown(result, [*lines, count(len(failed), "fault") if failed else "nothing is wrong"], failed)


@view
def _matrix(result: render.MatrixResult) -> Page:
    if not result.rows:
        return Page((TextLine("no difference"),))
    longest = max(8, min(20, 44 // len(result.environments)))  # what is compared stays readable beside them
    heads: Columns = {
        "?": lambda row: "" if row.approved or not row.differs else "!",
        "WHAT": "section",
        "SUBJECT": "subject",
        **{name.upper(): _in_environment(name, longest) for name in result.environments},
        "APPROVED?": lambda row: row.reason or ("yes" if row.approved else ""),
    }
    left = sum(row.differs and not row.approved for row in result.rows)
    hint = f"{count(left, 'difference')} not approved: --approve REASON enters them" if left else ""
    wrote = f"wrote {result.written}" if result.written else ""
    page = TableView("rows", heads, names="subject", cut="SUBJECT").page(result)
    return Page(page.blocks, page.names, (*page.notes, *filter(None, (hint, wrote))))


def _in_environment(name: str, longest: int) -> Any:
    def text(row: render.MatrixRow) -> str:
        value = one_line_value(row.values[name]) if row.values[name] is not None else "-"
        # Of images the end tells more than the beginning.
        return value if len(value) <= longest else f"…{value[1 - longest :]}"

    return text


@view
def _environment_targets(result: app.EnvironmentTargets) -> Page:
    return shown(result, result.targets or ["all components"], result.targets)


@view
def _environment_description(result: app.EnvironmentDescription) -> Page:
    from mlstack.app.document import keys_of
    from mlstack.app.environment import Environment

    environment, cluster = result.environment, result.environment.cluster
    reach = ", ".join(environment.allowed_namespaces)
    if environment.cluster_scoped == "refused":
        reach = f"{reach or 'any namespace'}, nothing outside namespaces"
    elif reach:
        reach += ", and outside namespaces"
    # Keys whose line is not just their name and value.
    lines = {
        "kubernetes_version": ("kubernetes", environment.kubernetes_version),
        "targets": ("targets", ", ".join(environment.targets) or "all components"),
        "packages": ("packages", ", ".join(map(str, environment.packages))),
        "allowed_namespaces": ("writes to", reach),
        "cluster_scoped": ("", ""),  # in the line before
        "wait_for_load_balancer": (
            "load balancers",
            "must get an address" if environment.wait_for_load_balancer else "need no address",
        ),
        "cluster": ("cluster", (cluster and cluster.uid) or "not contacted yet"),
    }
    rows = [("name", environment.name), ("file", environment.file)]
    mine = f"{', '.join(result.overrides)} (.mlstack/overrides.yaml, for you alone)"
    rows += [("overridden", mine)] if result.overrides else []
    for key in keys_of(Environment):
        value = getattr(environment, key.field)
        plain = ("no", "yes")[value] if isinstance(value, bool) else value
        plain = one_line_value(value) if isinstance(value, Mapping) and value else plain or ""
        rows.append(lines.get(key.field, (key.field.replace("_", " "), plain)))
    values = [
        (component, name, one_line_value(value))
        for component, values in (("all", result.globals), *result.components.items())
        for name, value in values.items()
    ]
    return shown(result, [*facts(*rows), *section(values, "COMPONENT PARAM VALUE")], environment.name)


@view
def _environment_changed(result: app.EnvironmentChanged) -> Page:
    changes = [f"{key} = {one_line_value(value) or 'unset'}" for key, value in result.changes.items()]
    changes += ["the cluster met next is the one it is bound to"] if result.cluster_forgotten else []
    mine = " (yours alone)" if result.overridden else ""
    text = f"environment `{result.name}`{mine}: {', '.join(changes) or 'nothing to change'}"
    return shown(result, [text], result.name)


@view
def _app_changed(result: app.AppChanged) -> Page:
    changes = [
        f"{key} = {value}" if value is not None else f"{key} unset" for key, value in result.changes.items()
    ]
    return shown(result, [f"app `{result.name}`: {', '.join(changes)}"], result.name)


@view
def _environment_removed(result: app.EnvironmentRemoved) -> Page:
    removed = f"removed environment `{result.name}` from the app; its cluster was not touched"
    restored = f"environment `{result.name}` is what its shared files say again"
    return shown(result, [restored if result.override else removed], result.name)


@view
def _current_environment(result: app.CurrentEnvironment) -> Page:
    hint = "" if result.name else "no environment is chosen: mlstack env current --set ENV"
    return shown(result, [result.name] if result.name else [], result.name or (), hint)


# --- images ---


@view
def _image_list(result: images.ImageList) -> Page:
    blocks: list[Block] = []
    for row in result.images:
        used = row.used_by[0] if row.used_by else "nothing as it is now"
        others = f" and {len(row.used_by) - 1} more" if len(row.used_by) > 1 else ""
        details = [*map(_origin, row.origins), f"used by {used}{others}"]
        blocks += [TextLine(row.image, "head"), *(TextLine(f"  {detail}", hang=4) for detail in details)]
    hint = "" if result.images else "no object names an image"
    return shown(result, blocks, [row.image for row in result.images], hint)


def _origin(origin: images.ImageOrigin) -> str:
    if not origin.parameter:
        return f"{origin.layer} {origin.where}".rstrip()
    default = "default of " if origin.layer == "default" else ""
    return f"{origin.component} {origin.parameter}: {default}{origin.where}"


_COPIED = {
    "copied": "copied to",
    "there": "is there as",
    "missing": "would be copied to",
    "left": "left as it is",
}


@view
def _copy_result(result: images.CopyResult) -> Page:
    blocks: list[Block] = []
    for row in result.images:
        blocks.append(TextLine(row.image, "head"))
        blocks.append(TextLine(f"  {_COPIED[row.state]} {row.target}".rstrip(), hang=4))
        blocks += [TextLine(f"  set in {text}", "change", hang=4) for text in row.sets]
        blocks += [TextLine(f"  still to do in {text}", "remove", hang=4) for text in row.remaining]
    states = [row.state for row in result.images]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "no images"
    verb = "would write" if result.dry_run else "wrote"
    files = f"; {verb} {', '.join(result.files)}" if result.files else ""
    blocks.append(TextLine(f"{result.to}: {counts}{files}", "head" if result.ok else "remove", hang=2))
    return shown(result, blocks, [row.target for row in result.images if row.target])


# --- parameters ---


@view
def _param_changed(result: params.ParamChanged) -> Page:
    state = f"set {result.name} = {one_line_value(result.value) or 'null'}"
    state = state if result.changed else f"{result.name} is {one_line_value(result.value)} already"
    return shown(result, [f"{state} ({result.place}, {result.file})"], result.name)


@view
def _param_unset(result: params.ParamUnset) -> Page:
    return shown(result, [f"unset {result.name} ({result.place}, {result.file})"], result.name)


@view
def _param_diff(result: params.ParamDiff) -> Page:
    if not result.rows:
        return Page((), (), (f"no parameter differs between `{result.first}` and `{result.second}`",))
    first, second = result.first.upper(), result.second.upper()
    heads: Columns = {"COMPONENT": "component", "PARAM": "name", first: "first!", second: "second!"}
    names = [f"{row.component}.{row.name}" for row in result.rows]
    return shown(result, [table(result.rows, heads, cut=first)], names)


@view
def _explained(result: explain.ExplainResult) -> Page:
    """Show the chain of each value and the fields it reaches."""
    place = f" in `{result.environment}`" if result.environment else ""
    blocks: list[Block] = [TextLine(f"{result.component}{place}: {result.prototype}", "head")]
    for parameter in result.parameters:
        blocks += [TextLine(""), *_explained_parameter(parameter)]
    return Page(tuple(blocks), tuple(parameter.name for parameter in result.parameters))


def _explained_parameter(param: explain.ExplainedParameter) -> Iterator[Block]:
    unit = f" {param.unit}" if param.unit else ""
    value = "not set" if param.value is None else one_line_value(param.value) + unit
    yield TextLine(f"{param.name} = {value}", "head")
    if param.description:
        yield TextLine(f"  {param.description}", hang=2)
    if param.chain:
        heads: Columns = {
            "": lambda step: "=>" if step.wins else "",
            "LEVEL": "layer",
            "VALUE": lambda step: one_line_value(step.value) or "(removed)",
            "FROM": "where",
        }
        yield table(reversed(param.chain), heads, cut="VALUE")
    for name, reaches in groupby(param.reaches, lambda reach: reach.object):
        yield TextLine(f"  reaches {name}:")
        for reach in reaches:
            value = one_line_value(reach.value) or "not set"
            yield TextLine(f"    {reach.path} = {value}" if reach.path else "    the whole object")
    if not param.reaches and param.value is not None:
        yield TextLine("  reaches no field of the objects as they are now", "dim")
    yield from (TextLine(f"  note: {note}", hang=4) for note in param.notes)


@view
def _explained_field(result: explain.ExplainedField) -> Page:
    """Show who wrote a field, and the parameters behind it."""
    value = "not set" if result.value is None else one_line_value(result.value)
    blocks: list[Block] = [TextLine(f"{result.object}: {result.path} = {value}", "head")]
    component = f"{result.component} {result.prototype and f'({result.prototype})'}".rstrip()
    blocks += facts(("component", component), (result.origin, result.where or "added to every object"))
    blocks += section(result.parameters, "PARAM=name VALUE=value! LEVEL=layer FROM=where", cut="VALUE")
    return Page(tuple(blocks), (result.where,), result.notes)


@view
def _promotion(result: params.PromotionPlan) -> Page:
    """Show each change, and in which files it is or would be."""
    if not result.changes:
        text = f"nothing to promote: `{result.target}` has what `{result.source}` sets"
        return Page((TextLine(text),), (), result.notes)
    target, source = result.target.upper(), result.source.upper()
    heads: Columns = {"COMPONENT": _of, "WHAT": "name", target: "before!", source: "after!"}
    verb = "changed" if result.done else "would change"
    blocks = (table(result.changes, heads, cut="WHAT"), TextLine(f"{verb} {', '.join(result.files)}"))
    names = tuple(f"{row.component}.{row.name}".removeprefix(".") for row in result.changes)
    following = (f"next: mlstack diff {result.target}",) if result.done else ()
    return Page(blocks, names, (*result.notes, *following))


@view
def _linted_params(result: explain.LintResult) -> Page:
    """Show what could go."""
    if result.ok:
        environments = count(len(result.environments), "environment")
        tried = f"in {environments}" if result.environments else "as all share it"
        return Page((TextLine(f"every value and patch has an effect {tried}"),))
    heads = columns("WHERE COMPONENT WHAT=name FINDING=message", COMPONENT=_of)
    return Page((table(result.findings, heads),), tuple(row.where for row in result.findings))


# --- elastic training ---

_BREACHES = 10


@view
def _elastic_plan(result: ElasticPlan) -> Page:
    """Show a line a job, then what found no place."""
    if not result.jobs:
        return Page((TextLine("no training job is under way"),))
    heads = columns(
        "JOB STATE NOW PLAN=target RANGE WHY", RANGE=_range, WHY=lambda row: row.reasons[0].partition(": ")[2]
    )
    blocks: list[Block] = [table(result.jobs, heads)]
    names = [row.job for row in result.jobs]
    pods = [row for row in result.unplaced if row.key not in names]
    if pods:
        blocks += [TextLine(""), TextLine("pods without a place:", "head")]
        blocks += [TextLine(f"  {row.key}: {row.missing or 'no node takes it'}", hang=4) for row in pods]
    moves = f", {count(result.moves, 'move')} for fairness alone" if result.moves else ""
    on = f"policy `{result.policy}` on {count(result.nodes, 'node')}{moves}"
    changed = [row.job for row in result.jobs if row.victims or row.places or row.now != row.target]
    next_step = f"next: mlstack elastic plan --explain {changed[0]}" if changed else ""
    return shown(result, [*blocks, "", TextLine(on, "dim")], names, next_step)


def _range(row: Any) -> str:
    """Write the range of a job; one that cannot be read has none."""
    return f"{row.minimum}-{row.maximum}" if row.maximum else "-"


@view
def _elastic_explained(result: ExplainedJob) -> Page:
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
    coming = [f"{count(place.trainers, 'trainer')} on {place.node or 'any node'}" for place in job.places]
    for role, nodes in (("master", job.master), ("pserver", job.pserver)):
        coming += [f"{role} {index} on {node}" for index, node in enumerate(nodes)]
    return shown(result, [*blocks, *(TextLine(f"  + {text}", "add") for text in coming)], job.job)


@view
def _elastic_status(result: ElasticStatus) -> Page:
    """Show a line a job."""
    from mlstack.elastic.inspect import UNSEEN

    if not result.jobs:
        return shown(result, ["there is no training job"], (), "next: mlstack generate elastic-job NAME")
    heads = columns(
        "JOB PHASE READY RANGE REASON", READY=lambda row: f"{row.ready}/{row.desired}", RANGE=_range
    )
    is_unseen = any(row.reason == UNSEEN for row in result.jobs)
    note = "next: kubectl get lease -A names the controller that leads; mlstack elastic run is one"
    return shown(
        result, [table(result.jobs, heads)], [row.job for row in result.jobs], note if is_unseen else ""
    )


@view
def _goals(result: GoalTable) -> Page:
    """Show a line a goal, then what must never happen and did."""
    heads = columns(
        "MEASURE=name VALUE GOAL MET",
        VALUE=lambda row: f"{row.value:.4g}",
        MET=lambda row: "yes" if row.is_met else "NO",
    )
    missed = sum(not row.is_met for row in result.rows)
    verdict = f"{missed} of {count(len(result.rows), 'goal')} missed" if missed else "every goal is met"
    blocks: list[str | Block] = [
        table(result.rows, heads),
        *(TextLine(f"  {text}", hang=4) for text in result.violations[:_BREACHES]),
        "",
        f"{result.case}, policy `{result.policy}`, {count(len(result.seeds), 'seed')}: {verdict}",
    ]
    return shown(result, blocks, [row.name for row in result.rows])


@view
def _simulation(result: SimulationReport) -> Page:
    """Show the jobs of one simulation, how full the cluster was, and what else applies."""
    title = f"{result.scenario}, policy `{result.policy}`, seed {result.seed}, {result.seconds:g} s"
    blocks: list[Block] = [TextLine(title, "head")]
    if result.jobs:
        has_ends = bool(result.completion.finished)  # when jobs were done is a column only where one was
        heads = columns(
            f"JOB=name FIRST WHOLE TRAINERS MEAN {'DONE' if has_ends else ''} PHASE",
            FIRST=lambda job: f"{'' if job.has_begun else '>'}{job.wait_s:g} s",
            WHOLE=lambda job: f"{'' if job.was_whole else '>'}{job.gang_s:g} s",
            TRAINERS=lambda job: f"{job.fewest}-{job.most}",
            MEAN=lambda job: f"{job.mean:g}",
            DONE=lambda job: _seconds(job.jct_s),
            PHASE=lambda job: job.phase or "-",
        )
        blocks += [table(result.jobs, heads), TextLine("")]
    rows = [*_use(result), *(_fortunes(result) if result.jobs else ()), *_served(result)]
    if result.passes:
        calls = ", ".join(f"{number} {verb}" for verb, number in result.calls.items())
        rows.append(("controller", f"looked {count(result.passes, 'time')}; requests: {calls}"))
    # What does not fit goes on under its own beginning.
    width = max(len(name) for name, _ in rows) + 1
    blocks += [TextLine(f"{name + ':':<{width}} {text}", hang=width + 1) for name, text in rows]
    blocks += [TextLine(f"  {text}", "remove", hang=4) for text in result.violations[:_BREACHES]]
    return shown(result, blocks, [job.name for job in result.jobs])


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
