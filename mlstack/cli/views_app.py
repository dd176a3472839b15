"""How the results of commands on the app directory look, and those of elastic training."""

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
    TextTable,
    count,
    facts,
    notes,
    one_line_value,
    sentence,
    table,
    table_page,
    values_of,
    view,
)

if TYPE_CHECKING:
    from mlstack.cli.commands.program import Versions
    from mlstack.operations import app, components, doctor, explain, images, params, render

TABLE_VIEWS |= {
    "PolicyList": TableView(
        "policies",
        {
            "ID": "id",
            "SEVERITY": "severity",
            "SETS": lambda row: ", ".join(row.sets),
            "WANTED BECAUSE": "reason",
        },
        names="id",
    ),
    "SchemaList": TableView("schemas", {"NAME": "name", "DESCRIBES": "describes", "SUMMARY": "summary"}),
    "EnvironmentList": TableView(
        "environments",
        {
            "NAME": lambda row: f"{row.name} *" if row.current else row.name,
            "CONTEXT": "context",
            "NAMESPACE": "namespace",
            "KUBERNETES": "kubernetes_version",
            "EXTENDS": "extends",
            "PROTECTED": "protected",
            "OVERRIDDEN": "overridden",
            "EXPIRES": "expires",
        },
        cut="CONTEXT",
        empty="next: mlstack env add NAME",
        spare={"OVERRIDDEN": lambda cells: cells <= {""}, "EXPIRES": lambda cells: cells <= {""}},
    ),
    "ExpiredEnvironments": TableView(
        "environments",
        {"NAME": "name", "EXPIRED": "expires", "CONTEXT": "context", "NAMESPACE": "namespace"},
        cut="CONTEXT",
        empty="no environment is over",
    ),
    "ComponentList": TableView(  # those of prototypes with their package, manifests with their file
        "components",
        {
            "COMPONENT": "name",
            "TYPE": "type",
            "PROTOTYPE": "prototype",
            "FROM": lambda row: row.package or row.file,
            "DEPENDS ON": "depends_on",
            "KINDS": "kinds",
        },
        empty="next: mlstack generate PROTOTYPE NAME",
        spare={"DEPENDS ON": lambda cells: cells <= {""}, "KINDS": lambda cells: cells <= {""}},
    ),
    "ModuleList": TableView(
        "modules",
        {"MODULE": "name", "COMPONENTS": "components", "PARAMS": "params", "TARGET OF": "environments"},
        empty="next: mlstack module create NAME",
        spare={"TARGET OF": lambda cells: cells <= {""}},
    ),
    "ParamList": TableView(
        "rows",
        {
            "COMPONENT": lambda row: row.component or "all",
            "PARAM": "name",
            "VALUE": values_of("value"),
            "FROM": lambda row: "default" if row.level == "default" else row.origin,
        },
        names=lambda row: f"{row.component}.{row.name}".removeprefix("."),
        cut="VALUE",
        spare={"COMPONENT": lambda cells: len(cells) == 1},
    ),
}

# --- the program and the app ---


@view
def _versions(result: Versions) -> Page:
    rows = (("mlstack", result.mlstack), ("python", result.python), *result.libraries.items())
    return Page((table(rows, "PROGRAM VERSION"),), (f"mlstack {result.mlstack}",))


@view
def _schema(result: app.Schema) -> Page:
    from mlstack.cli.output import json_text

    return Page(tuple(TextLine(line) for line in json_text(result).splitlines()), (result.name,))


@view
def _initialised(result: app.Initialised) -> Page:
    registries = f" with the registry `{result.registries[0]}`" if result.registries else ""
    text = f"created app `{result.app}` in {result.folder}{registries}"
    context = f"context {result.context}" if result.context else "no context yet"
    text += f" and environment `{result.environment}` ({context})" if result.environment else ""
    usual = "mlstack pkg install kubeflow/core" if registries else "mlstack registry add NAME ADDRESS"
    return sentence(text, result.app, f"next: cd {result.folder} && {usual}")


@view
def _stack_begun(result: components.StackBegun) -> Page:
    text = f"created app `{result.app}` in {result.folder} with the stack `{result.stack}`: components "
    text += f"{', '.join(result.components)}; environments {', '.join(result.environments)}"
    first = result.environments[0]
    steps = (
        f"next: cd {result.folder} && mlstack validate {first}",
        f"mlstack env set {first} --context CONTEXT",
    )
    return sentence(text, result.app, *steps)


@view
def _upgraded(result: doctor.Upgraded) -> Page:
    if not result.files:
        return Page((TextLine("nothing to do: every file of the app is up to date"),))
    verb = "would upgrade" if result.dry_run else "upgraded"
    lines = [TextLine(f"{verb} {row.file} from {row.before} to {row.after}", "add") for row in result.files]
    return Page(tuple(lines), tuple(row.file for row in result.files))


# --- environments ---


@view
def _environment_added(result: app.EnvironmentAdded) -> Page:
    settings = [f"context {result.context or 'none'}", f"namespace {result.namespace}"]
    settings += [f"preset {result.preset}"] if result.preset else []
    settings += [f"extends {result.extends}"] if result.extends else []
    text = f"added environment `{result.name}`: {', '.join(settings)}"
    return sentence(text, result.name, *notes(result), f"next: mlstack render {result.name}")


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
        lines.append(TextLine(f"{mark:<5}{check.name}: {check.message}", style, hang=7))
        lines += [TextLine(f"       {check.hint}", hang=9)] if check.hint else []
    failed = sum(check.state == "failed" for check in result.checks)
    lines.append(TextLine(f"{count(failed, 'fault')}" if failed else "nothing is wrong"))
    return Page(tuple(lines), tuple(check.name for check in result.checks if check.state == "failed"))


@view
def _matrix(result: render.MatrixResult) -> Page:
    if not result.rows:
        return Page((TextLine("no difference"),))
    longest = max(8, min(20, 44 // len(result.environments)))  # what is compared stays readable beside them
    columns: Columns = {
        "": lambda row: "" if row.approved or not row.differs else "!",
        "WHAT": "section",
        "SUBJECT": "subject",
        **{name.upper(): _cell(name, longest) for name in result.environments},
        "APPROVED": lambda row: row.reason or ("yes" if row.approved else ""),
    }
    spare = {"APPROVED": lambda cells: cells <= {""}, "": lambda cells: cells <= {""}}
    page = table_page(result, TableView("rows", columns, names="subject", cut="SUBJECT", spare=spare))
    left = sum(row.differs and not row.approved for row in result.rows)
    hints = [f"{count(left, 'difference')} not approved: --approve REASON enters them"] if left else []
    hints += [f"wrote {result.written}"] if result.written else []
    return Page(page.blocks, page.names, (*page.notes, *hints))


def _cell(name: str, longest: int) -> Any:
    def text(row: render.MatrixRow) -> str:
        value = one_line_value(row.values[name]) if row.values[name] is not None else "-"
        # Of images the end tells more than the beginning.
        return value if len(value) <= longest else f"…{value[1 - longest :]}"

    return text


@view
def _snapshot_taken(result: doctor.SnapshotTaken) -> Page:
    counts = (
        (result.kinds, "kind"),
        (result.definitions, "definition"),
        (result.nodes, "node"),
        (result.gpus, "GPU"),
        (result.quotas, "quota"),
    )
    what = f"{result.version}, {', '.join(count(number, noun) for number, noun in counts)}"
    state = "wrote {}" if result.changed else "{} is as the cluster is now"
    state = state if result.ok else "{} is not as the cluster is now"
    return sentence(f"{state.format(result.file)}: {what}", result.file, *notes(result))


@view
def _environment_targets(result: app.EnvironmentTargets) -> Page:
    targets = result.targets or ("all components",)
    return Page(tuple(TextLine(name) for name in targets), result.targets)


@view
def _environment_description(result: app.EnvironmentDescription) -> Page:
    from mlstack.app.declare import keys_of
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
    blocks = facts(*rows)
    blocks += [TextLine(""), table(values, "COMPONENT PARAM VALUE")] if values else []
    return Page(tuple(blocks), (environment.name,))


@view
def _environment_changed(result: app.EnvironmentChanged) -> Page:
    changes = [f"{key} = {one_line_value(value) or 'unset'}" for key, value in result.changes.items()]
    changes += ["the cluster met next is the one it is bound to"] if result.cluster_forgotten else []
    mine = " (yours alone)" if result.overridden else ""
    text = f"environment `{result.name}`{mine}: {', '.join(changes) or 'nothing to change'}"
    return sentence(text, result.name, *notes(result))


@view
def _app_changed(result: app.AppChanged) -> Page:
    changes = [
        f"{key} = {value}" if value is not None else f"{key} unset" for key, value in result.changes.items()
    ]
    return sentence(f"app `{result.name}`: {', '.join(changes)}", result.name)


@view
def _environment_removed(result: app.EnvironmentRemoved) -> Page:
    text = f"removed environment `{result.name}` from the app; its cluster was not touched"
    if result.override:
        text = f"environment `{result.name}` is what its shared files say again"
    return sentence(text, result.name, *notes(result))


@view
def _current_environment(result: app.CurrentEnvironment) -> Page:
    if result.name is None:
        return Page((), (), ("no environment is chosen: mlstack env current --set ENV",))
    return sentence(result.name, result.name)


# --- components ---


@view
def _generated(result: components.Generated) -> Page:
    verb = "replaced" if result.replaced else "generated"
    text = f"{verb} component `{result.name}` from {result.prototype}: {result.file}"
    return sentence(text, result.name, *notes(result), f"next: mlstack param list {result.name}")


@view
def _prototype_begun(result: components.PrototypeBegun) -> Page:
    lines = [TextLine(f"wrote {file}", "add") for file in result.files]
    lines.append(TextLine(f"parameters: {', '.join(result.parameters)}", hang=2))
    lines.append(TextLine(f"its example renders {', '.join(result.objects)}", hang=2))
    steps = [f"next: mlstack pkg test {result.package}"]
    if result.new_package:
        steps.insert(0, f"say under which `license` it is: {result.package}/package.yaml")
    return Page(tuple(lines), (result.name,), (*notes(result), *steps))


@view
def _component_removed(result: components.ComponentRemoved) -> Page:
    lines = tuple(TextLine(f"removed `{result.name}` from {file}") for file in result.files)
    warnings = [
        f"warning: `{row.component}` is still deployed in `{row.environment}`"
        f" ({count(row.objects, 'object')}); gone with: mlstack apply {row.environment}"
        for row in result.deployed
    ]
    usual = "what was applied goes from a cluster with the next `mlstack apply ENV`"
    return Page(lines, (result.name,), (*warnings, *notes(result), *([] if warnings else [usual])))


@view
def _component_renamed(result: components.ComponentRenamed) -> Page:
    text = f"renamed `{result.before}` to `{result.name}`: {result.file}"
    next_step = "the next `mlstack apply ENV` gives its objects the new label; none is deleted"
    return sentence(text, result.name, *notes(result), next_step)


@view
def _module_created(result: components.ModuleCreated) -> Page:
    next_step = f"next: mlstack generate PROTOTYPE {result.name}.NAME"
    return sentence(f"created module `{result.name}`: {result.file}", result.name, next_step)


# --- images ---


@view
def _image_list(result: images.ImageList) -> Page:
    blocks: list[Block] = []
    for row in result.images:
        used = row.used_by[0] if row.used_by else "nothing as it is now"
        others = f" and {len(row.used_by) - 1} more" if len(row.used_by) > 1 else ""
        blocks.append(TextLine(row.image, "head"))
        blocks += [TextLine(f"  {_origin(origin)}", hang=4) for origin in row.origins]
        blocks.append(TextLine(f"  used by {used}{others}", hang=4))
    hints = notes(result) if result.images else (*notes(result), "no object names an image")
    return Page(tuple(blocks), tuple(row.image for row in result.images), hints)


def _origin(origin: images.ImageOrigin) -> str:
    if not origin.parameter:
        return f"{origin.layer} {origin.where}".rstrip()
    if origin.layer == "default":
        return f"{origin.component} {origin.parameter}: default of {origin.where}"
    return f"{origin.component} {origin.parameter}: {origin.where}"


@view
def _copy_result(result: images.CopyResult) -> Page:
    words = {
        "copied": "copied to",
        "there": "is there as",
        "missing": "would be copied to",
        "left": "left as it is",
    }
    blocks: list[Block] = []
    for row in result.images:
        blocks += [
            TextLine(row.image, "head"),
            TextLine(f"  {words[row.state]} {row.target}".rstrip(), hang=4),
        ]
        blocks += [TextLine(f"  set in {text}", "change", hang=4) for text in row.sets]
        blocks += [TextLine(f"  still to do in {text}", "remove", hang=4) for text in row.remaining]
    states = [row.state for row in result.images]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "no images"
    wrote = (
        f"; {'would write' if result.dry_run else 'wrote'} {', '.join(result.files)}" if result.files else ""
    )
    blocks.append(TextLine(f"{result.to}: {counts}{wrote}", "head" if result.ok else "remove", hang=2))
    return Page(tuple(blocks), tuple(row.target for row in result.images if row.target), notes(result))


# --- parameters ---


@view
def _param_changed(result: params.ParamChanged) -> Page:
    state = f"set {result.name} = {one_line_value(result.value) or 'null'}"
    if not result.changed:
        state = f"{result.name} is {one_line_value(result.value)} already"
    return sentence(f"{state} ({result.place}, {result.file})", result.name, *notes(result))


@view
def _param_unset(result: params.ParamUnset) -> Page:
    return sentence(f"unset {result.name} ({result.place}, {result.file})", result.name, *notes(result))


@view
def _param_diff(result: params.ParamDiff) -> Page:
    names = tuple(f"{row.component}.{row.name}" for row in result.rows)
    if not names:
        return Page((), (), (f"no parameter differs between `{result.first}` and `{result.second}`",))
    columns: Columns = {
        "COMPONENT": "component",
        "PARAM": "name",
        result.first.upper(): values_of("first"),
        result.second.upper(): values_of("second"),
    }
    return Page((table(result.rows, columns, cut=result.first.upper()),), names)


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
        columns: Columns = {
            "": lambda step: "=>" if step.wins else "",
            "LEVEL": "layer",
            "VALUE": lambda step: one_line_value(step.value) or "(removed)",
            "FROM": "where",
        }
        yield table(reversed(param.chain), columns, cut="VALUE")
    for name, reaches in groupby(param.reaches, lambda reach: reach.object):
        yield TextLine(f"  reaches {name}:")
        fields = [(reach.path, one_line_value(reach.value) or "not set") for reach in reaches]
        yield from (
            TextLine(f"    {path} = {value}" if path else "    the whole object") for path, value in fields
        )
    if not param.reaches and param.value is not None:
        yield TextLine("  reaches no field of the objects as they are now", "dim")
    yield from (TextLine(f"  note: {note}", hang=4) for note in param.notes)


@view
def _explained_field(result: explain.ExplainedField) -> Page:
    """Show who wrote a field, and the parameters behind it."""
    value = "not set" if result.value is None else one_line_value(result.value)
    blocks: list[Block] = [TextLine(f"{result.object}: {result.path} = {value}", "head")]
    rows = [("component", f"{result.component} {result.prototype and f'({result.prototype})'}".rstrip())]
    blocks += facts(*rows, (result.origin, result.where or "added to every object"))
    columns: Columns = {
        "PARAM": "name",
        "VALUE": lambda param: one_line_value(param.value),
        "LEVEL": "layer",
        "FROM": "where",
    }
    if result.parameters:
        blocks += [TextLine(""), table(result.parameters, columns, cut="VALUE")]
    return Page(tuple(blocks), (result.where,), result.notes)


@view
def _promotion(result: params.PromotionPlan) -> Page:
    """Show each change, and in which files it is or would be."""
    names = tuple(f"{row.component}.{row.name}".removeprefix(".") for row in result.changes)
    if not names:
        text = f"nothing to promote: `{result.target}` has what `{result.source}` sets"
        return Page((TextLine(text),), (), result.notes)
    columns: Columns = {
        "COMPONENT": lambda row: row.component or "all",
        "WHAT": "name",
        result.target.upper(): values_of("before"),
        result.source.upper(): values_of("after"),
    }
    verb = "changed" if result.done else "would change"
    blocks = (table(result.changes, columns, cut="WHAT"), TextLine(f"{verb} {', '.join(result.files)}"))
    following = (f"next: mlstack diff {result.target}",) if result.done else ()
    return Page(blocks, names, (*result.notes, *following))


@view
def _linted_params(result: explain.LintResult) -> Page:
    """Show what could go."""
    if result.ok:
        tried = (
            f"in {count(len(result.environments), 'environment')}"
            if result.environments
            else "as all share it"
        )
        return Page((TextLine(f"every value and patch has an effect {tried}"),), ())
    columns: Columns = {
        "WHERE": "where",
        "COMPONENT": lambda row: row.component or "all",
        "WHAT": "name",
        "FINDING": "message",
    }
    names = tuple(row.where for row in result.findings)
    return Page((table(result.findings, columns, cut="FINDING"),), names)


# --- elastic training ---

_BREACHES = 10

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlstack.elastic.inspect import ElasticPlan, ElasticStatus, ExplainedJob
    from mlstack.simulator.experiments import GoalTable
    from mlstack.simulator.report import SimulationReport, WaitSummary


@view
def _elastic_plan(result: ElasticPlan) -> Page:
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
    for place in job.places:
        text = f"  + {count(place.trainers, 'trainer')} on {place.node or 'any node'}"
        blocks.append(TextLine(text, "add"))
    for role, nodes in (("master", job.master), ("pserver", job.pserver)):
        blocks += [TextLine(f"  + {role} {index} on {node}", "add") for index, node in enumerate(nodes)]
    return Page(tuple(blocks), (job.job,))


@view
def _elastic_status(result: ElasticStatus) -> Page:
    """Show a line a job."""
    from mlstack.elastic.inspect import UNSEEN

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
def _goals(result: GoalTable) -> Page:
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
def _simulation(result: SimulationReport) -> Page:
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
