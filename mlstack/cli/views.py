"""What each result looks like to a person: one function a result type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlstack.cli.page import Line, Page, Table
from mlstack.model.table import Table as Registered

if TYPE_CHECKING:
    from mlstack.cli.commands.shell import Versions

# By the name of the type, so that showing one result imports no other use case.
VIEWS: Registered[Callable[[Any], Page]] = Registered("view")


def page(result: object) -> Page:
    """Give the view of a result; a type without one is shown as YAML."""
    found = VIEWS.get(type(result).__name__)
    return found(result) if found is not None else _as_yaml(result)


def _as_yaml(result: object) -> Page:
    from mlstack.cli.output import yaml_text

    return Page(tuple(Line(line) for line in yaml_text(result).splitlines()))


@VIEWS.register("Versions")
def versions(result: Versions) -> Page:
    """Show the versions, ours first."""
    rows = (("mlstack", result.mlstack), ("python", result.python), *result.libraries.items())
    return Page((Table(("PROGRAM", "VERSION"), rows),), (f"mlstack {result.mlstack}",))
