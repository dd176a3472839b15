"""How `param explain`, `validate` and `status` look: one function a result type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Style, Table
from mlstack.cli.views import VIEWS, count, one_line_value

if TYPE_CHECKING:
    from mlstack.model.health import ComponentStatus, PodStatus, StatusResult
    from mlstack.model.readiness.base import State
    from mlstack.operations.explain import ExplainedParameter, ExplainResult
    from mlstack.operations.unlock import UnlockResult
    from mlstack.operations.validate import ValidateResult


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
    for name, reaches in groupby(found.reaches, lambda reach: reach.object):
        yield Line(f"  reaches {name}:")
        yield from (Line(f"    {reach.path} = {one_line_value(reach.value)}") for reach in reaches)
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


@VIEWS.register("StatusResult")
def status(result: StatusResult) -> Page:
    """Show each component with its objects, and why something does not work."""
    blocks: list[Block] = []
    for found in result.components:
        blocks += _component_status(found)
    blocks += _left_over(result)
    blocks += [Line(f"note: {note}", hang=2) for note in result.notes]
    return Page(
        (*blocks, verdict(result)),
        tuple(row.object for found in result.components for row in found.objects),
    )


def _left_over(result: StatusResult) -> Iterator[Block]:
    if not result.left_over:
        return
    yield Line("no longer in the files:", "head")
    for row in result.left_over:
        origin = f" (of component {row.component})" if row.component else ""
        reason = f": {row.reason}" if row.reason and (row.is_kept or row.is_terminating) else ""
        if row.is_terminating:
            yield _state("terminating", f"{row.object}{origin}", reason, indent=2)
        else:
            word = "kept" if row.is_kept else "surplus"
            yield Line(f"  {word:<8} {row.object}{origin}{reason}", "dim", hang=11)
    if not all(row.is_kept or row.is_terminating for row in result.left_over):
        yield Line(f"      hint: mlstack apply {result.environment} deletes what is surplus", hang=12)


def _component_status(found: ComponentStatus) -> Iterator[Block]:
    yield Line(f"{found.name}: {'ready' if found.ok else 'not ready'}", "head")
    for row, after in zip_longest(found.objects, found.objects[1:]):
        yield _state(row.state, row.object, f": {row.reason}" if row.reason else "", indent=2)
        for _, alike in groupby(row.pods, lambda pod: (pod.state, pod.reason)):
            yield from _pods(list(alike))
        if row.hint and (after is None or after.hint != row.hint):
            yield Line(f"      hint: {row.hint}", hang=12)


# A job of sixty workers that wait for the same thing says so once.
MOST_PODS = 4


def _pods(alike: Sequence[PodStatus]) -> Iterator[Block]:
    """Show pods of the same state and reason: each with its node, or many of them in one line."""
    first, last, reason = alike[0], alike[-1], f": {alike[0].reason}" if alike[0].reason else ""
    if len(alike) > MOST_PODS:
        yield _state(first.state, f"{len(alike)} pods {first.name} … {last.name}", reason, indent=6)
        return
    for pod in alike:
        node = f" on {pod.node}" if pod.node else ""
        yield _state(pod.state, f"pod {pod.name}", reason or node, indent=6)


def state_text(state: State, name: str, reason: str) -> str:
    """Write how one object does on one line."""
    return f"{state:<8} {name}{f': {reason}' if reason else ''}"


def verdict(result: StatusResult) -> Line:
    """Sum up how an environment does."""
    told = "everything works" if result.ok else "not everything works"
    line = f"`{result.environment}` (context {result.context}, namespace {result.namespace}): {told}"
    return Line(line, "head" if result.ok else "remove", hang=2)


def _state(state: State, name: str, tail: str, *, indent: int) -> Line:
    style: Style = _STATE_STYLES.get(state, "change")
    return Line(f"{'':{indent}}{state:<8} {name}{tail}", style, hang=indent + 9)


_STATE_STYLES: Mapping[State, Style] = {"ready": "add", "done": "add", "suspended": "dim", "failed": "remove"}


@VIEWS.register("UnlockResult")
def unlocked(result: UnlockResult) -> Page:
    """Say who held the lock."""
    place = f"`{result.environment}` (context {result.context}, namespace {result.namespace})"
    said = f"freed from {result.holder}" if result.unlocked else "was not locked"
    return Page((Line(f"{place}: {said}", hang=2),), (result.environment,))
