"""How the results of commands between app and cluster look: one function a result type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Style, Table
from mlstack.cli.views import VIEWS, count, one_line_value

if TYPE_CHECKING:
    from mlstack.model.fields import FieldChange
    from mlstack.model.readiness.base import State
    from mlstack.model.report import ChangeReport, ObjectChange, RunResult
    from mlstack.operations.explain import ExplainedParameter, ExplainResult
    from mlstack.operations.status import ComponentStatus, StatusResult
    from mlstack.operations.validate import ValidateResult

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


@VIEWS.register("ExplainResult")
def explained(result: ExplainResult) -> Page:
    """Show the chain of each value and the fields it reaches."""
    place = f" in `{result.environment}`" if result.environment else ""
    blocks: list[Block] = [Line(f"{result.component}{place}: {result.prototype}", "head")]
    for parameter in result.parameters:
        blocks += [Line(""), *_explained(parameter)]
    return Page(tuple(blocks), tuple(parameter.name for parameter in result.parameters))


def _explained(found: ExplainedParameter) -> Iterator[Block]:
    unit = f" {found.unit}" if found.unit else ""
    value = "not set" if found.value is None else one_line_value(found.value) + unit
    yield Line(f"{found.name} = {value}", "head")
    if found.description:
        yield Line(f"  {found.description}", hang=2)
    rows = tuple(
        ("=>" if step.wins else "", step.layer, one_line_value(step.value) or "(removed)", str(step.where))
        for step in reversed(found.chain)
    )
    if rows:
        yield Table(("", "LEVEL", "VALUE", "FROM"), rows, cut="VALUE")
    for reach in found.reaches:
        yield Line(f"  reaches {reach.object}: {reach.path} = {one_line_value(reach.value)}", hang=4)
    if not found.reaches and found.value is not None:
        yield Line("  reaches no field of the objects as they are now", "dim")
    yield from (Line(f"  note: {note}", hang=4) for note in found.notes)


@VIEWS.register("ValidateResult")
def validated(result: ValidateResult) -> Page:
    """Show every fault with its place."""
    blocks = [
        Line(
            f"{fault.object} ({fault.component}): {fault.path}: {fault.message}"
            + (f" ({fault.where})" if fault.where else ""),
            hang=4,
        )
        for fault in result.faults
    ]
    checked = f"{count(result.count, 'object')} of `{result.environment}`"
    verdict = count(len(result.faults), "fault") if result.faults else "no faults"
    blocks.append(Line(f"{checked} against Kubernetes {result.kubernetes_version}: {verdict}"))
    notes = tuple(f"note: {note}" for note in result.notes)
    return Page(tuple(blocks), tuple(fault.object for fault in result.faults), notes)


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


@VIEWS.register("StatusResult")
def status(result: StatusResult) -> Page:
    """Show each component with its objects, and why something does not work."""
    blocks: list[Block] = []
    for found in result.components:
        blocks += _component_status(found)
    blocks += [Line(f"note: {note}", hang=2) for note in result.notes]
    verdict = "everything works" if result.ok else "not everything works"
    line = f"`{result.environment}` (context {result.context}, namespace {result.namespace}): {verdict}"
    return Page(
        (*blocks, Line(line, "head" if result.ok else "remove", hang=2)),
        tuple(row.object for found in result.components for row in found.objects),
    )


def _component_status(found: ComponentStatus) -> Iterator[Block]:
    yield Line(f"{found.name}: {'ready' if found.ok else 'not ready'}", "head")
    for row, after in zip_longest(found.objects, found.objects[1:]):
        yield _state(row.state, row.object, f": {row.reason}" if row.reason else "", indent=2)
        for pod in row.pods:
            tail = f": {pod.reason}" if pod.reason else f" on {pod.node}" if pod.node else ""
            yield _state(pod.state, f"pod {pod.name}", tail, indent=6)
        if row.hint and (after is None or after.hint != row.hint):
            yield Line(f"      hint: {row.hint}", hang=12)


def _state(state: State, name: str, tail: str, *, indent: int) -> Line:
    style: Style = _STATE_STYLES.get(state, "change")
    return Line(f"{'':{indent}}{state:<8} {name}{tail}", style, hang=indent + 9)


_STATE_STYLES: Mapping[State, Style] = {"ready": "add", "done": "add", "suspended": "dim", "failed": "remove"}
