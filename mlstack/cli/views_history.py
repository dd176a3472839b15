"""How the history of an environment looks: its revisions, one of them, and two compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Table, shorten
from mlstack.cli.views import VIEWS, count, facts
from mlstack.cli.views_changes import changed_objects, counted

if TYPE_CHECKING:
    from mlstack.model.history import Revision
    from mlstack.operations.history import HistoryResult, RevisionDiff, RevisionResult

_LONGEST_WHAT = 32


@VIEWS.register("HistoryResult")
def history(result: HistoryResult) -> Page:
    """Show a line a revision, newest first."""
    notes = tuple(f"note: {note}" for note in result.notes)
    if not result.revisions:
        place = f"`{result.environment}` (context {result.context}, namespace {result.namespace})"
        return Page(
            (Line(f"{place}: no history yet", hang=2),),
            notes=(*notes, f"next: mlstack apply {result.environment}"),
        )
    rows = tuple(
        (str(one.number), _when(one), one.who, shorten(one.what, _LONGEST_WHAT), _end(one), _counts(one))
        for one in result.revisions
    )
    return Page(
        (Table(("REV", "WHEN", "WHO", "WHAT", "RESULT", "OBJECTS"), rows, cut="OBJECTS"),),
        tuple(str(one.number) for one in result.revisions),
        notes,
    )


@VIEWS.register("RevisionResult")
def revision(result: RevisionResult) -> Page:
    """Show what is known of a revision, and its objects."""
    one = result.revision
    blocks: list[Block] = [
        Line(f"revision {one.number} of `{result.environment}` (context {result.context})", "head"),
        *facts(
            ("when", one.time),
            ("who", one.who),
            ("what", one.what),
            ("result", _end(one)),
            ("components", ", ".join(one.components)),
            ("not settled", ", ".join(one.unsettled)),
            ("run", _counts(one)),
            ("version", one.version),
            ("digest", one.digest),
        ),
        Line(""),
        Line(f"{count(one.objects, 'object')}:"),
        *(
            Line(f"  {row.object}" + (f" ({row.component})" if row.component else ""))
            for row in result.objects
        ),
    ]
    note = f"next: mlstack rollback {result.environment} {one.number} --dry-run"
    return Page(tuple(blocks), tuple(row.object for row in result.objects), (note,))


@VIEWS.register("RevisionDiff")
def revision_diff(result: RevisionDiff) -> Page:
    """Show every object that came, changed or went."""
    blocks = changed_objects(result.objects)
    place = f"`{result.environment}`, revision {result.older} -> {result.newer}"
    words = {_WENT.get(action, action): number for action, number in result.counts.items()}
    blocks.append(Line(counted(words, place) if words else f"{place}: no difference", hang=2))
    return Page(tuple(blocks), tuple(row.object for row in result.objects))


_WENT = {"create": "created", "update": "updated", "delete": "deleted"}


def _when(found: Revision) -> str:
    return f"{found.time[:16].replace('T', ' ')} UTC"


def _end(found: Revision) -> str:
    if found.result == "interrupted":
        return f"interrupted: {found.changed} of {found.planned} changes"
    return "done, but others are not" if found.result == "done" and found.unsettled else found.result


def _counts(found: Revision) -> str:
    told = {outcome: number for outcome, number in found.counts.items() if outcome != "unchanged"}
    return ", ".join(f"{number} {outcome}" for outcome, number in told.items())
