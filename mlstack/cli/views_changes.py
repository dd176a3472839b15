"""How it looks what a run would do, and what it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlstack.cli.page import WIDTH, Block, Line, Page, Style, text_width
from mlstack.cli.views import LONGEST_LINE, VIEWS, one_line_value, size_and_digest

if TYPE_CHECKING:
    from mlstack.model.fields import FieldChange
    from mlstack.model.report import ChangeReport, ObjectChange, RunResult
    from mlstack.operations.plan import PlannedWait, PlanResult

STYLES: Mapping[str, Style] = {
    "create": "add",
    "created": "add",
    "added": "add",
    "update": "change",
    "updated": "change",
    "changed": "change",
    "recreate": "change",
    "recreated": "change",
    "delete": "remove",
    "deleted": "remove",
    "terminating": "remove",
    "removed": "remove",
    "failed": "remove",
    "skipped": "remove",
    "unchanged": "dim",
    "kept": "dim",
    "gone": "dim",
    "missing": "dim",
}
SIGNS: Mapping[Style, str] = {"add": "+", "change": "~", "remove": "-", "dim": " "}


@VIEWS.register("ChangeReport")
def change_report(result: ChangeReport) -> Page:
    """Show every object that would change: field by field, or whole where it is new."""
    return _changes(result, manifests=True)


@VIEWS.register("PlanResult")
def plan_result(result: PlanResult) -> Page:
    """Show every object that would change, and where the plan was written."""
    page = _changes(result, manifests=True)
    waits = [Line(_wait(each), "dim", hang=2) for each in result.waits]
    page = replace(page, blocks=(*page.blocks[:-1], *waits, *page.blocks[-1:]))
    if result.file is None:
        return page
    return replace(page, notes=(f"plan written to {result.file}", f"next: mlstack apply {result.file}"))


def change_summary(result: ChangeReport) -> Page:
    """Show every object that would change, new ones by their names alone."""
    return _changes(result, manifests=False)


def _wait(each: PlannedWait) -> str:
    if each.goes_on:
        return f"goes on by itself: {each.object}"
    return f"then waits for {each.object}, {each.timeout_s:g} s at most"


def names_alone(page: Page) -> Page:
    """Give of a page about objects their heads and the last line; all else is indented below them."""
    heads = [block for block in page.blocks[:-1] if isinstance(block, Line) and _is_head(block)]
    return replace(page, blocks=(*heads, *page.blocks[-1:]))


def _is_head(line: Line) -> bool:
    return line.text[:2] in ("+ ", "~ ", "- ", "  ") and line.text[2:3] not in (" ", "+", "~", "-")


def _changes(result: ChangeReport | PlanResult, *, manifests: bool) -> Page:
    changed = [row for row in result.objects if row.action not in ("unchanged", "kept", "missing")]
    blocks = changed_objects(changed, result.environment if manifests else None)
    blocks += [Line(f"note: {note}", hang=2) for note in result.notes]
    counts = {_TO_DO.get(action, action): number for action, number in result.counts.items()}
    blocks += [Line(counted(counts, f"`{result.environment}` (context {result.context})"), hang=2)]
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
    component_name = f" ({row.component})" if row.component else ""
    yield Line(f"{SIGNS[style]} {row.action} {row.object}{component_name}", style)
    if row.reason:
        yield Line(f"    because {row.reason}", hang=6)
    for field in row.fields:
        yield from field_lines(field)
    for note in row.notes:
        yield Line(f"    note: {note}", hang=6)
    for reason in row.refused:
        yield Line(f"    refused: {reason}", "remove", hang=6)
    if row.hint:
        yield Line(f"    hint: {row.hint}", hang=6)


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
    lines = [Line(f"  + {line}", "add") for line in _manifest_lines(row.manifest)]
    yield from _beginning(lines, f", as `mlstack render {environment} -c {row.component}` prints them")


def _manifest_lines(manifest: Mapping[str, Any]) -> Iterator[str]:
    from mlstack.model import emit

    return (_bounded(line) for line in emit.to_yaml(manifest).splitlines())


def _beginning(lines: Sequence[Line], where: str = "") -> Iterator[Line]:
    if len(lines) <= MOST_LINES:
        yield from lines
        return
    yield from lines[:FIRST_LINES]
    yield Line(f"    … {len(lines) - FIRST_LINES} more lines{where}", "dim")


def field_lines(field: FieldChange) -> Iterator[Line]:
    """Show a value on the line of its field, or where it is long the lines of it that differ below."""
    style = STYLES[field.action]
    values = {"added": (field.new,), "removed": (field.old,)}.get(field.action, (field.old, field.new))
    flat = " -> ".join(one_line_value(value) or "null" for value in values)
    line = Line(f"  {SIGNS[style]} {field.path}: {flat}", style)
    different = list(_different(field))
    has_lines = any(isinstance(value, str) and "\n" in value for value in values)
    if different and (has_lines or text_width(line.text) > WIDTH):
        yield Line(f"  {SIGNS[style]} {field.path}:", style)
        yield from _beginning(different)
    else:
        yield line


def _different(field: FieldChange) -> Iterator[Line]:
    from difflib import SequenceMatcher

    old = _written(field.old) if field.action != "added" else []
    new = _written(field.new) if field.action != "removed" else []
    # Lines that stand there again and again make the exact answer quadratic.
    matcher = SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > _MANY_LINES)
    for group in matcher.get_grouped_opcodes(2):
        if group[0][1] > 0:
            yield Line("      …", "dim")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (Line(f"        {line}") for line in old[old_start:old_end])
            else:
                yield from (Line(f"      - {line}", "remove") for line in old[old_start:old_end])
                yield from (Line(f"      + {line}", "add") for line in new[new_start:new_end])


def _written(value: Any) -> list[str]:
    """Write a value as a file would hold it, long lines by their beginning, size and digest."""
    from mlstack.model import emit

    if not isinstance(value, str | Mapping | list):
        return [one_line_value(value)]
    text = value if isinstance(value, str) else emit.to_yaml(value)
    if len(text) > MOST_CHARACTERS:
        return [size_and_digest(text)]
    return [_bounded(line) for line in text.splitlines()]


def _bounded(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:_FIRST_CHARACTERS]}… {size_and_digest(line)}"


@VIEWS.register("RunResult")
def run_result(result: RunResult) -> Page:
    """Show a line an object and the summary."""
    lines = [outcome_line(row.outcome, row.object, row.text) for row in result.objects]
    return Page((*lines, summary_line(result)), tuple(row.object for row in result.objects))


def outcome_line(outcome: str, name: str, text: str) -> Line:
    """Write what happened to one object."""
    tail = f": {text}" if text else ""
    return Line(f"{outcome:<9} {name}{tail}", STYLES.get(outcome, ""), hang=10)


def summary_line(result: RunResult) -> Line:
    """Write what happened to all of them."""
    dry = "dry run, nothing was written: " if result.dry_run else ""
    line = counted(
        result.counts, f"`{result.environment}` (context {result.context}, namespace {result.namespace})"
    )
    return Line(dry + line, "head" if result.ok else "remove", hang=2)


def counted(counts: Mapping[str, int], place: str) -> str:
    """Write numbers of objects in one line: `gke: 2 created, 1 failed`."""
    told = ", ".join(f"{count} {what}" for what, count in counts.items()) or "no objects"
    return f"{place}: {told}"
