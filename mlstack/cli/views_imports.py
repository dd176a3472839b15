"""How the results of imports look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Columns, Page, notes, table, view

if TYPE_CHECKING:
    from mlstack.operations import imports


@view
def _imported(result: imports.Imported) -> Page:
    columns: Columns = {"COMPONENT": "name", "OBJECTS": "objects", "KINDS": "kinds", "FILE": "file"}
    names = tuple(row.name for row in result.components)
    return Page((table(result.components, columns, cut="KINDS"),), names, (*notes(result), _NEXT))


_NEXT = "next: mlstack render ENV"
