"""How prototypes look to a person: lists, matches, and one with all its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Line, Page, Table
from mlstack.cli.views import VIEWS, one_line_value, prose, yes

if TYPE_CHECKING:
    from mlstack.operations import prototype


@VIEWS.register("PrototypeList")
def prototype_list(result: prototype.PrototypeList) -> Page:
    """Show the prototypes, and where there are any which of them are not installed."""
    rows = [(row.name, row.package, yes(row.installed), row.summary) for row in result.prototypes]
    table = Table(("PROTOTYPE", "PACKAGE", "INSTALLED", "SUMMARY"), tuple(rows))
    if all(row.installed for row in result.prototypes):
        table = Table(("PROTOTYPE", "PACKAGE", "SUMMARY"), tuple((*row[:2], row[3]) for row in rows))
    notes = tuple(f"note: {note}" for note in result.notes)
    if not rows and not notes:
        notes = ("no prototypes here yet: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE",)
    return Page((table,), tuple(row.name for row in result.prototypes), notes)


@VIEWS.register("PrototypeMatches")
def prototype_matches(result: prototype.PrototypeMatches) -> Page:
    """Show what is meant with its parameters, one line each, and what else matches in a line."""
    blocks: list[Block] = []
    for found in result.prototypes:
        blocks += [Line("")] if blocks else []
        blocks += [*_head(found), Line(""), _parameter_table(found)]
    if result.others:
        rows = tuple((row.name, row.summary) for row in result.others)
        blocks += [Line(""), Table(("ALSO", "SUMMARY"), rows, cut="SUMMARY")]
    names = (*(found.name for found in result.prototypes), *(row.name for row in result.others))
    return Page(tuple(blocks), names, (f"what each one does: mlstack prototype describe {names[0]}",))


def _parameter_table(found: prototype.PrototypeDescription) -> Table:
    rows = ((row.name, row.type, _default(row)) for row in found.parameters)
    return Table(("PARAM", "TYPE", "DEFAULT"), tuple(rows), cut="DEFAULT")


def _default(row: prototype.ParameterRow) -> str:
    if row.default is None:
        return "(required)" if row.required else "(deprecated)" if row.deprecated else ""
    return one_line_value(row.default)


@VIEWS.register("PrototypeDescription")
def prototype_description(result: prototype.PrototypeDescription) -> Page:
    """Show a prototype and its parameters."""
    blocks = _prototype(result)
    example = f"mlstack generate {result.name} NAME"
    required = "".join(f" --{row.name}=VALUE" for row in result.parameters if row.required)
    return Page((*blocks, Line(""), Line(f"use: {example}{required}")), (result.name,))


def _prototype(found: prototype.PrototypeDescription) -> list[Block]:
    blocks = [*_head(found), *prose(found.description), Line("")]
    blocks.append(Line("parameters:" if found.parameters else "it takes no parameters"))
    return blocks + [line for row in found.parameters for line in _parameter(row)]


def _head(found: prototype.PrototypeDescription) -> list[Block]:
    blocks: list[Block] = [Line(f"{found.name} ({found.package}): {found.summary}", "head", hang=0)]
    if found.aliases:
        blocks.append(Line(f"also known as {', '.join(found.aliases)}", hang=0))
    for alias, params in found.alias_params.items():
        told = ", ".join(f"{param}: {one_line_value(value)}" for param, value in params.items())
        blocks.append(Line(f"  {alias} sets {told}", hang=4))
    return blocks


def _parameter(row: prototype.ParameterRow) -> list[Block]:
    default = "" if row.default is None else f"default {one_line_value(row.default)}"
    facts_ = (
        row.type,
        "required" if row.required else default,
        f"unit {row.unit}" if row.unit else "",
        row.limits,
        "secret" if row.secret else "",
        f"also {', '.join(row.aliases)}" if row.aliases else "",
    )
    head = f"  {row.name}: {', '.join(fact for fact in facts_ if fact)}"
    told = [row.description, f"Deprecated: {row.deprecated}" if row.deprecated else ""]
    lines = [Line(head, hang=6), Line("      " + " ".join(filter(None, told)), hang=6)]
    return [line for line in lines if line.text.strip()]
