"""How it looks what a run would do, and what it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Style
from mlstack.cli.views import VIEWS, one_line_value

if TYPE_CHECKING:
    from mlstack.model.fields import FieldChange
    from mlstack.model.report import ChangeReport, ObjectChange, RunResult

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


def change_summary(result: ChangeReport) -> Page:
    """Show every object that would change, new ones by their names alone."""
    return _changes(result, manifests=False)


def _changes(result: ChangeReport, *, manifests: bool) -> Page:
    changed = [row for row in result.objects if row.action not in ("unchanged", "kept", "missing")]
    blocks: list[Block] = []
    for row in changed:
        blocks += _change(row)
        blocks += _manifest(row, result.environment) if manifests else ()
    blocks += [Line(f"note: {note}", hang=2) for note in result.notes]
    counts = {_TO_DO.get(action, action): number for action, number in result.counts.items()}
    blocks += [Line(_counted(counts, f"`{result.environment}` (context {result.context})"), hang=2)]
    return Page(tuple(blocks), tuple(row.object for row in changed))


_TO_DO = {action: f"to {action}" for action in ("create", "update", "recreate", "delete")}


def _change(row: ObjectChange) -> Iterator[Block]:
    style = STYLES[row.action]
    component_name = f" ({row.component})" if row.component else ""
    yield Line(f"{SIGNS[style]} {row.action} {row.object}{component_name}", style)
    if row.reason:
        yield Line(f"    because {row.reason}", hang=6)
    for field in row.fields:
        yield _field(field)
    for note in row.notes:
        yield Line(f"    note: {note}", hang=6)


# Nobody reads the 4,000 lines of a definition's schema; the longest that people do write is a
# configuration file of some hundred lines.
MOST_LINES = 400
FIRST_LINES = 40


def _manifest(row: ObjectChange, environment: str) -> Iterator[Block]:
    if row.manifest is None:
        return
    from mlstack.model import emit

    lines = emit.to_yaml(row.manifest).splitlines()
    shown = lines if len(lines) <= MOST_LINES else lines[:FIRST_LINES]
    yield from (Line(f"  + {line}", "add") for line in shown)
    if shown is not lines:
        whole = f"mlstack render {environment} -c {row.component}"
        yield Line(f"    … {len(lines) - len(shown)} more lines, as `{whole}` prints them", "dim")


def _field(field: FieldChange) -> Line:
    style = STYLES[field.action]
    values = {"added": (field.new,), "removed": (field.old,)}.get(field.action, (field.old, field.new))
    written = " -> ".join(one_line_value(value) or "null" for value in values)
    return Line(f"  {SIGNS[style]} {field.path}: {written}", style)


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
    line = _counted(
        result.counts, f"`{result.environment}` (context {result.context}, namespace {result.namespace})"
    )
    return Line(dry + line, "head" if result.ok else "remove", hang=2)


def _counted(counts: Mapping[str, int], place: str) -> str:
    told = ", ".join(f"{count} {what}" for what, count in counts.items()) or "no objects"
    return f"{place}: {told}"
