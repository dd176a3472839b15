"""How changes, runs, status, drift and history look: one function a result type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from mlstack.cli.page import (
    LONGEST_LINE,
    WIDTH,
    Block,
    Columns,
    Page,
    Style,
    TableView,
    TextLine,
    columns,
    count,
    facts_of,
    one_line_value,
    shorten,
    shown,
    size_and_digest,
    table,
    text_width,
    view,
)

if TYPE_CHECKING:
    from mlstack.deploy.changes import ChangeReport, ObjectChange, RunResult
    from mlstack.deploy.compare import Difference, DriftRow
    from mlstack.deploy.history import Revision
    from mlstack.objects.managed_fields import FieldChange
    from mlstack.objects.resources import Amounts
    from mlstack.operations.capacity import ComponentFootprint, FitsResult, FootprintResult, SnapshotTaken
    from mlstack.operations.deploy import PlanResult
    from mlstack.operations.render import ValidateResult
    from mlstack.operations.status import (
        CompareResult,
        DriftResult,
        HistoryResult,
        PodStatus,
        RevisionDiff,
        RevisionResult,
        StatusResult,
        UnlockResult,
    )
    from mlstack.readiness.capacity import Fit
    from mlstack.readiness.rule import State


# --- what a run would do, and what it did ---

_WORDS: Mapping[Style, str] = {
    "add": "create created added",
    "change": "update updated changed recreate recreated",
    "remove": "delete deleted terminating removed failed skipped",
    "dim": "unchanged kept gone missing",
}
STYLES: Mapping[str, Style] = {word: style for style, words in _WORDS.items() for word in words.split()}
_STILL = ("unchanged", "kept", "missing")
SIGNS: Mapping[Style, str] = {"add": "+", "change": "~", "remove": "-", "dim": " "}


@view
def _change_report(result: ChangeReport) -> Page:
    return _changes(result, manifests=True)


@view
def _plan_result(result: PlanResult) -> Page:
    page = _changes(result, manifests=True)
    *blocks, last = page.blocks
    for wait in result.waits:
        waited = f"then waits for {wait.object}, {wait.timeout_s:g} s at most"
        blocks.append(TextLine(f"not waited for: {wait.object}" if wait.goes_on else waited, "dim", hang=2))
    for fault in result.images:
        text = f"image {fault.image} of {fault.object}: {fault.message}"
        blocks.append(TextLine(text, "change" if fault.problem == "unchecked" else "remove", hang=2))
    hints = (f"plan written to {result.file}", f"next: mlstack apply {result.file}") if result.file else ()
    return Page((*blocks, last), page.names, hints)


def change_summary(result: ChangeReport) -> Page:
    """Show every object that would change, new ones by their names alone."""
    return _changes(result, manifests=False)


def names_alone(page: Page) -> Page:
    """Give of a page about objects their heads and the last line; all else is indented below them."""
    lines = [block for block in page.blocks[:-1] if isinstance(block, TextLine)]
    heads = [line for line in lines if line.text[:2] in ("+ ", "~ ", "- ", "  ")]
    heads = [line for line in heads if line.text[2:3] not in (" ", "+", "~", "-")]
    return replace(page, blocks=(*heads, *page.blocks[-1:]))


def _changes(result: ChangeReport | PlanResult, *, manifests: bool) -> Page:
    changed = [row for row in result.objects if row.action not in _STILL]
    blocks = changed_objects(changed, result.environment if manifests else None)
    blocks += [TextLine(f"note: {note}", hang=2) for note in result.notes]
    blocks += _capacity(getattr(result, "capacity", ()))
    if result.takes or result.takes_more:
        more = amounts_text(result.takes_more, signed=True)
        takes = f"takes {amounts_text(result.takes) or 'nothing'}" + (f" ({more})" if more else "")
        blocks.append(TextLine(takes, hang=2))
    counts = {_TO_DO.get(action, action): number for action, number in result.counts.items()}
    blocks += [TextLine(counted(counts, f"`{result.environment}` (context {result.context})"), hang=2)]
    return Page(tuple(blocks), tuple(row.object for row in changed))


def changed_objects(rows: Sequence[ObjectChange], environment: str | None = None) -> list[Block]:
    """Show objects field by field; new ones whole where the environment that brings them is given."""
    blocks: list[Block] = []
    for row in rows:
        blocks += _change(row)
        blocks += _manifest(row, environment) if environment else ()
    return blocks


_TO_DO = {action: f"to {action}" for action in ("create", "update", "recreate", "delete")}


def _change(row: ObjectChange) -> Iterator[Block]:
    style = STYLES[row.action]
    yield TextLine(f"{SIGNS[style]} {row.action} {row.object}{_of(row.component)}", style)
    if row.reason:
        yield TextLine(f"    because {row.reason}", hang=6)
    for field in row.fields:
        yield from field_lines(field)
    for note in row.notes:
        yield TextLine(f"    note: {note}", hang=6)
    for reason in row.refused:
        yield TextLine(f"    refused: {reason}", "remove", hang=6)
    if row.hint:
        yield TextLine(f"    hint: {row.hint}", hang=6)


# Nobody reads the 4,000 lines of a definition's schema; the longest that people do write is a
# configuration file of some hundred lines.
MOST_LINES = 400
FIRST_LINES = 40
# Of two larger values nobody wants to know line by line how they differ, and finding out takes minutes.
MOST_CHARACTERS = 256_000
_FIRST_CHARACTERS = 60
_MANY_LINES = 2000


def _manifest(row: ObjectChange, environment: str) -> Iterator[Block]:
    if row.manifest is None:
        return
    from mlstack.yaml import write

    lines = [TextLine(f"  + {_bounded(line)}", "add") for line in write.to_yaml(row.manifest).splitlines()]
    yield from _beginning(lines, f", as `mlstack render {environment} -c {row.component}` prints them")


def _beginning(lines: Sequence[TextLine], where: str = "") -> Iterator[TextLine]:
    if len(lines) <= MOST_LINES:
        yield from lines
        return
    yield from lines[:FIRST_LINES]
    yield TextLine(f"    … {len(lines) - FIRST_LINES} more lines{where}", "dim")


def field_lines(field: FieldChange) -> Iterator[TextLine]:
    """Show a value on the line of its field, or where it is long the lines of it that differ below."""
    style = STYLES[field.action]
    values = {"added": (field.new,), "removed": (field.old,)}.get(field.action, (field.old, field.new))
    flat = " -> ".join(one_line_value(value) or "null" for value in values)
    line = TextLine(f"  {SIGNS[style]} {field.path}: {flat}", style)
    different = list(_different(field))
    has_lines = any(isinstance(value, str) and "\n" in value for value in values)
    if different and (has_lines or text_width(line.text) > WIDTH):
        yield TextLine(f"  {SIGNS[style]} {field.path}:", style)
        yield from _beginning(different)
    else:
        yield line


def _different(field: FieldChange) -> Iterator[TextLine]:
    from difflib import SequenceMatcher

    old = _written(field.old) if field.action != "added" else []
    new = _written(field.new) if field.action != "removed" else []
    # Lines that stand there again and again make the exact answer quadratic.
    matcher = SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > _MANY_LINES)
    for group in matcher.get_grouped_opcodes(2):
        if group[0][1] > 0:
            yield TextLine("      …", "dim")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (TextLine(f"        {line}") for line in old[old_start:old_end])
            else:
                yield from (TextLine(f"      - {line}", "remove") for line in old[old_start:old_end])
                yield from (TextLine(f"      + {line}", "add") for line in new[new_start:new_end])


def _written(value: Any) -> list[str]:
    """Write a value as a file would hold it, long lines by their beginning, size and digest."""
    from mlstack.yaml import write

    if not isinstance(value, str | Mapping | list):
        return [one_line_value(value)]
    text = value if isinstance(value, str) else write.to_yaml(value)
    if len(text) > MOST_CHARACTERS:
        return [size_and_digest(text)]
    return [_bounded(line) for line in text.splitlines()]


def _bounded(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:_FIRST_CHARACTERS]}… {size_and_digest(line)}"


@view
def _run_result(result: RunResult) -> Page:
    lines = [outcome_line(row.outcome, row.object, row.text) for row in result.objects]
    return Page((*lines, summary_line(result)), tuple(row.object for row in result.objects))


def outcome_line(outcome: str, name: str, text: str) -> TextLine:
    """Write what happened to one object."""
    tail = f": {text}" if text else ""
    return TextLine(f"{outcome:<9} {name}{tail}", STYLES.get(outcome, ""), hang=10)


def summary_line(result: RunResult) -> TextLine:
    """Write what happened to all of them."""
    dry = "dry run, nothing was written: " if result.dry_run else ""
    line = counted(result.counts, _place(result))
    return TextLine(dry + line, "head" if result.ok else "remove", hang=2)


def _place(result: RunResult | StatusResult | UnlockResult | HistoryResult) -> str:
    return f"`{result.environment}` (context {result.context}, namespace {result.namespace})"


def _of(name: str | None) -> str:
    return f" ({name})" if name else ""


def counted(counts: Mapping[str, int], place: str) -> str:
    """Write numbers of objects in one line: `gke: 2 created, 1 failed`."""
    numbers = ", ".join(f"{count} {what}" for what, count in counts.items()) or "no objects"
    return f"{place}: {numbers}"


# --- what an environment takes, and whether it is right and works ---


@view
def _footprint(result: FootprintResult) -> Page:
    def cell(*kinds: str) -> Callable[[ComponentFootprint], str]:
        return lambda row: amounts_text(
            {name: value for name, value in row.takes.items() if name.startswith(kinds)}, bare=True
        )

    heads: Columns = {
        "COMPONENT": lambda row: row.component or "all together",
        "PODS?": cell("pods"),
        "CPU?": cell("requests.cpu"),
        "MEMORY?": cell("requests.memory"),
        "GPUS?": cell("gpus."),
        "STORAGE?": cell("storage."),
        "LBS?": cell("loadbalancers"),
        f"{result.currency}/MONTH?": lambda row: f"{row.monthly_cost:,.2f}" if row.monthly_cost else "",
    }
    blocks: list[Block] = [table((*result.components, result.total), heads)]
    if limits := amounts_text(result.total.takes, limits=True):
        blocks.append(TextLine(f"limits: {limits}", hang=2))
    if not result.least.takes == result.total.takes == result.most.takes:
        least, most = (amounts_text(row.takes) for row in (result.least, result.most))
        blocks.append(TextLine(f"scaled between {least} and {most}", hang=2))
    if result.per_node:
        blocks.append(TextLine(f"on each node besides: {amounts_text(result.per_node)}", hang=2))
    blocks += [TextLine(f"not counted: {name} (it decides by itself)", hang=2) for name in result.uncounted]
    return shown(result, blocks, [row.component for row in result.components])


@view
def _snapshot_taken(result: SnapshotTaken) -> Page:
    counts = [
        count(getattr(result, f"{noun}s".lower()), noun)
        for noun in ("kind", "definition", "node", "GPU", "quota")
    ]
    state = f"wrote {result.file}" if result.changed else f"{result.file} is as the cluster is now"
    state = state if result.ok else f"{result.file} is not as the cluster is now"
    return shown(result, [f"{state}: {result.version}, {', '.join(counts)}"], result.file)


@view
def _fits(result: FitsResult) -> Page:
    place = f"`{result.environment}` on {count(result.nodes, 'node')} as of {result.taken}"
    numbers = Counter[str](row.verdict for row in result.workloads)
    verdicts = TextLine(counted(numbers, place).replace("no objects", "no pods"), hang=2)
    return shown(result, [*_capacity(result.workloads), verdicts], [row.object for row in result.workloads])


def _capacity(rows: Sequence[Fit]) -> list[Block]:
    """Show whether there is room for each workload, and what limits it on the line below."""
    blocks: list[Block] = []
    styles: dict[str, Style] = {"fits now": "add"}
    styles |= dict.fromkeys(("never", "does not fit now", "blocked by quota"), "remove")
    for row in rows:
        text = f"{row.verdict}: {row.object}{_of(row.component)}, {count(row.pods, 'pod')}"
        blocks.append(TextLine(text, styles.get(row.verdict, "change"), hang=4))
        if row.reason:
            blocks.append(TextLine(f"    {row.reason}", hang=6))
    return blocks


def amounts_text(takes: Amounts, *, signed: bool = False, bare: bool = False, limits: bool = False) -> str:
    """Write amounts in one line (`2 pods, 4 cpu, 8Gi memory, 1 nvidia-l4`), without limits unless asked for.

    GPUs are told of by product, so that their requests are left out.
    """
    from mlstack.objects.resources import is_gpu, written

    words = []
    for name, value in takes.items():
        kind, _, rest = name.partition(".")
        if (kind == "limits") is not limits or (kind != "gpus" and is_gpu(rest)):
            continue
        number = written("storage" if kind == "storage" else rest, abs(value))
        sign = "-" if value < 0 else "+" if signed else ""
        what = rest if kind in ("gpus", "storage") or not bare else ""
        what = what or ("" if bare else {"loadbalancers": "load balancers"}.get(name, kind))
        what = what.removesuffix("s") if number == "1" and what in ("pods", "load balancers") else what
        words.append(f"{sign}{number} {what}".strip())
    return ", ".join(words)


@view
def _validated(result: ValidateResult) -> Page:
    blocks: list[Block] = []
    for fault in result.faults:
        parts = (f"{fault.object} ({fault.component})".removesuffix(" ()"), fault.path, fault.message)
        policy = f" [{fault.policy}]" if fault.policy else ""
        blocks.append(TextLine(": ".join(filter(None, parts)) + policy + _of(fault.where), hang=4))
    for rule in result.policies:
        if rule.findings:
            blocks.append(TextLine(f"{rule.id} ({rule.severity}): {rule.reason}", "dim", hang=4))
            blocks.append(TextLine(f"    fix: {rule.fix}", "dim", hang=9))
    checked = f"{count(result.count, 'object')} of `{result.environment}`"
    verdict = count(len(result.faults), "fault") if result.faults else "no faults"
    asked = f" and {len(result.policies)} policies" if result.policies else ""
    text = f"{checked} against Kubernetes {result.kubernetes_version}{asked}: {verdict}"
    return shown(result, [*blocks, text], [fault.object for fault in result.faults])


@view
def _status(result: StatusResult) -> Page:
    blocks: list[Block] = []
    for component in result.components:
        blocks.append(TextLine(f"{component.name}: {'ready' if component.ok else 'not ready'}", "head"))
        for row, after in zip_longest(component.objects, component.objects[1:]):
            blocks.append(_state(row.state, row.object, f": {row.reason}" if row.reason else "", indent=2))
            for _, pods in groupby(row.pods, lambda pod: (pod.state, pod.reason)):
                blocks += _pods(list(pods))
            if row.hint and (after is None or after.hint != row.hint):
                blocks.append(TextLine(f"      hint: {row.hint}", hang=12))
    blocks += _left_over(result)
    blocks += [TextLine(f"note: {note}", hang=2) for note in result.notes]
    return Page(
        (*blocks, verdict(result)),
        tuple(row.object for component in result.components for row in component.objects),
    )


def _left_over(result: StatusResult) -> Iterator[Block]:
    if not result.left_over:
        return
    yield TextLine("no longer in the files:", "head")
    for row in result.left_over:
        origin = f" (of component {row.component})" if row.component else ""
        reason = f": {row.reason}" if row.reason and (row.is_kept or row.is_terminating) else ""
        if row.is_terminating:
            yield _state("terminating", f"{row.object}{origin}", reason, indent=2)
        else:
            word = "kept" if row.is_kept else "surplus"
            yield TextLine(f"  {word:<8} {row.object}{origin}{reason}", "dim", hang=11)
    if not all(row.is_kept or row.is_terminating for row in result.left_over):
        yield TextLine(f"      hint: mlstack apply {result.environment} deletes what is surplus", hang=12)


# A job of sixty workers that wait for the same thing says so once.
MOST_PODS = 4


def _pods(pods: Sequence[PodStatus]) -> Iterator[Block]:
    """Show pods of the same state and reason: each with its node, or many of them in one line."""
    first, last, reason = pods[0], pods[-1], f": {pods[0].reason}" if pods[0].reason else ""
    if len(pods) > MOST_PODS:
        yield _state(first.state, f"{len(pods)} pods {first.name} … {last.name}", reason, indent=6)
        return
    for pod in pods:
        node = f" on {pod.node}" if pod.node else ""
        yield _state(pod.state, f"pod {pod.name}", reason or node, indent=6)


def verdict(result: StatusResult) -> TextLine:
    """Sum up how an environment does."""
    claim = "everything works" if result.ok else "not everything works"
    line = f"{_place(result)}: {claim}"
    return TextLine(line, "head" if result.ok else "remove", hang=2)


def _state(state: State, name: str, tail: str, *, indent: int) -> TextLine:
    styles: Mapping[State, Style] = {"ready": "add", "done": "add", "suspended": "dim", "failed": "remove"}
    return TextLine(f"{'':{indent}}{state:<8} {name}{tail}", styles.get(state, "change"), hang=indent + 9)


@view
def _unlocked(result: UnlockResult) -> Page:
    what = f"freed from {result.holder}" if result.unlocked else "was not locked"
    return Page((TextLine(f"{_place(result)}: {what}", hang=2),), (result.environment,))


# --- drift, and two environments side by side ---

_HEADS: dict[str, tuple[str, Style]] = {
    "changed": ("~", "change"),
    "missing": ("-", "remove"),
    "new": (" ", "dim"),
    "extra": ("+", "add"),
}
_COUNTED = {
    "person": "by people's tools",
    "controller": "by controllers",
    "stale": "not applied yet",
    "unknown": "by nobody known",
}


@view
def _drift(result: DriftResult) -> Page:
    rows = [row for row in result.objects if row.state != "same"]
    blocks = [block for row in rows for block in _row(row)]
    if any(row.differences for row in rows):
        blocks.append(TextLine("fields: what the files say -> what the cluster has", "dim"))
    blocks += [TextLine(f"note: {note}", hang=2) for note in result.notes]
    counts = {_COUNTED.get(cause, cause): number for cause, number in result.counts.items()}
    same = len(result.objects) - len(rows)
    counts |= {"as the files say": same} if same else {}
    blocks.append(TextLine(counted(counts, f"`{result.environment}` (context {result.context})"), hang=2))
    notes = () if result.ok else (f"next: mlstack diff {result.environment}",)
    return Page(tuple(blocks), tuple(row.object for row in rows), notes)


def _row(row: DriftRow) -> Iterator[Block]:
    sign, style = _HEADS[row.state]
    yield TextLine(f"{sign} {row.state} {row.object}{_of(row.component)}", style)
    if row.reason:
        who = f", `{row.manager}` {_when(row.time)}" if row.manager else ""
        yield TextLine(f"    {row.reason}{who}", hang=6)
    for difference in row.differences:
        yield from field_lines(difference.change)
        yield TextLine(f"      {_cause(difference)}", "dim", hang=8)


def _cause(difference: Difference) -> str:
    if difference.cause == "stale":
        return "the files have changed since the last apply"
    if difference.cause == "unknown":
        return "nobody is recorded for it"
    kind = "a person's tool" if difference.cause == "person" else "a controller"
    who = f"by `{difference.manager}`" if difference.sure else f"probably by `{difference.manager}`"
    through = f" (through `{difference.subresource}`)" if difference.subresource else ""
    return ", ".join(filter(None, (who + through, kind, _when(difference.time))))


def _when(time: str) -> str:
    return f"at {time.replace('T', ' ').removesuffix('Z')} UTC" if time else ""


@view
def _comparison(result: CompareResult) -> Page:
    changed = [row for row in result.objects if row.action not in _STILL]
    words = {"create": f"only in {result.right}", "delete": f"only in {result.left}", "unchanged": "equal"}
    words |= {"update": "differ", "recreate": "differ"}
    counts = {words.get(action, action): number for action, number in result.counts.items()}
    return _compared(result, changed, counts, f"`{result.left}` -> `{result.right}`")


# --- history ---

_LONGEST_WHAT = 64


@view
def _history(result: HistoryResult) -> Page:
    if not result.revisions:
        line = TextLine(f"{_place(result)}: no history yet", hang=2)
        return shown(result, [line], (), f"next: mlstack apply {result.environment}")
    heads = columns(
        "REV=number WHEN WHO WHAT RESULT COMMIT? OBJECTS",
        WHEN=lambda revision: f"{revision.time[:16].replace('T', ' ')} UTC",
        WHAT=lambda revision: shorten(revision.what, _LONGEST_WHAT),
        RESULT=_end,
        COMMIT=lambda revision: revision.commit[:8] + "*" * revision.dirty,
        OBJECTS=_counts,
    )
    return TableView("revisions", heads, names="number", wrap="WHAT").page(result)


@view
def _revision(result: RevisionResult) -> Page:
    revision = result.revision
    title = f"revision {revision.number} of `{result.environment}` (context {result.context})"
    heads = columns(
        "WHEN=time WHO WHAT RESULT COMPONENTS NOT_SETTLED=unsettled RUN VERSION COMMIT DIGEST",
        RESULT=_end,
        RUN=_counts,
        COMMIT=lambda row: row.commit + " (with changes that are in none)" * row.dirty,
    )
    rows = facts_of(revision, heads)
    objects = [f"  {row.object}{_of(row.component)}" for row in result.objects]
    return shown(
        result,
        [TextLine(title, "head"), *rows, "", f"{count(revision.objects, 'object')}:", *objects],
        [row.object for row in result.objects],
        f"next: mlstack rollback {result.environment} {revision.number} --dry-run",
    )


@view
def _revision_diff(result: RevisionDiff) -> Page:
    place = f"`{result.environment}`, revision {result.older} -> {result.newer}"
    words = {"create": "created", "update": "updated", "delete": "deleted"}
    return _compared(
        result, result.objects, {words.get(action, action): n for action, n in result.counts.items()}, place
    )


def _compared(
    result: CompareResult | RevisionDiff, rows: Sequence[ObjectChange], counts: Mapping[str, int], place: str
) -> Page:
    """Show what differs field by field, and how many objects do."""
    notes = [TextLine(f"note: {note}", hang=2) for note in getattr(result, "notes", ())]
    total = counted(counts, place) if counts else f"{place}: no difference"
    return Page((*changed_objects(rows), *notes, TextLine(total, hang=2)), tuple(row.object for row in rows))


def _end(revision: Revision) -> str:
    if revision.result == "interrupted":
        return f"interrupted: {revision.changed} of {revision.planned} changes"
    return "done, but others are not" if revision.result == "done" and revision.unsettled else revision.result


def _counts(revision: Revision) -> str:
    counts = {outcome: number for outcome, number in revision.counts.items() if outcome != "unchanged"}
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
