"""How it looks what became of an environment since it was applied, and two environments side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Style
from mlstack.cli.views import VIEWS
from mlstack.cli.views_changes import changed_objects, counted, field_lines
from mlstack.model.fields import FieldChange

if TYPE_CHECKING:
    from mlstack.model.drift import Difference
    from mlstack.operations.compare import CompareResult
    from mlstack.operations.drift import DriftResult, DriftRow

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


@VIEWS.register("DriftResult")
def drift(result: DriftResult) -> Page:
    """Show every object that is not as the files say, each field with who changed it and when."""
    rows = [row for row in result.objects if row.state != "same"]
    blocks = [block for row in rows for block in _row(row)]
    if any(row.differences for row in rows):
        blocks.append(Line("fields: what the files say -> what the cluster has", "dim"))
    blocks += [Line(f"note: {note}", hang=2) for note in result.notes]
    counts = {_COUNTED.get(cause, cause): number for cause, number in result.counts.items()}
    same = len(result.objects) - len(rows)
    counts |= {"as the files say": same} if same else {}
    blocks.append(Line(counted(counts, f"`{result.environment}` (context {result.context})"), hang=2))
    notes = () if result.ok else (f"next: mlstack diff {result.environment}",)
    return Page(tuple(blocks), tuple(row.object for row in rows), notes)


def _row(row: DriftRow) -> Iterator[Block]:
    sign, style = _HEADS[row.state]
    component = f" ({row.component})" if row.component else ""
    yield Line(f"{sign} {row.state} {row.object}{component}", style)
    if row.reason:
        who = f", `{row.manager}` {_when(row.time)}" if row.manager else ""
        yield Line(f"    {row.reason}{who}", hang=6)
    for one in row.differences:
        yield from field_lines(
            FieldChange(path=one.path, action=one.action, old=one.wanted, new=one.live)
            if one.action != "removed"
            else FieldChange(path=one.path, action="removed", old=one.wanted)
        )
        yield Line(f"      {_cause(one)}", "dim", hang=8)


def _cause(one: Difference) -> str:
    if one.cause == "stale":
        return "the files have changed since the last apply"
    if one.cause == "unknown":
        return "nobody is recorded for it"
    through = f" (through `{one.subresource}`)" if one.subresource else ""
    kind = "a person's tool" if one.cause == "person" else "a controller"
    return f"{'' if one.sure else 'probably '}by `{one.manager}`{through}, {kind}, {_when(one.time)}".rstrip(
        ", "
    )


def _when(time: str) -> str:
    return f"at {time.replace('T', ' ').removesuffix('Z')} UTC" if time else ""


@VIEWS.register("CompareResult")
def comparison(result: CompareResult) -> Page:
    """Show every object that differs between two sides."""
    changed = [row for row in result.objects if row.action not in ("unchanged", "kept", "missing")]
    blocks = changed_objects(changed)
    blocks += [Line(f"note: {note}", hang=2) for note in result.notes]
    names = {"create": f"only in {result.right}", "delete": f"only in {result.left}"}
    words = {names.get(action, _DIFFERS.get(action, action)): n for action, n in result.counts.items()}
    place = f"`{result.left}` -> `{result.right}`"
    blocks.append(Line(counted(words, place) if words else f"{place}: no difference", hang=2))
    return Page(tuple(blocks), tuple(row.object for row in changed))


_DIFFERS = {"update": "differ", "recreate": "differ", "unchanged": "equal"}
