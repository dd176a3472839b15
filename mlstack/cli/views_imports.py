"""How the results of imports look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Columns, Page, TextLine, count, notes, one_line_value, table, view

if TYPE_CHECKING:
    from mlstack.importers import write
    from mlstack.operations import import_tools, upgrade


_NEXT = "next: mlstack render ENV"


@view
def _referred(result: import_tools.Referred) -> Page:
    text = f"component `{result.name}` is built by kustomize from {result.source}: {result.file}"
    blocks: list[Block] = [TextLine(text, "add")]
    if result.folder:
        blocks.append(TextLine(f"its copy is {result.folder} ({result.digest[:19]})"))
    return Page(tuple(blocks), (result.name,), (_NEXT,))


@view
def _imported(result: write.Imported) -> Page:
    into = f" into {result.folder}" if result.folder else ""
    columns: Columns = {"COMPONENT": "name", "OBJECTS": "objects", "KINDS": "kinds", "FILE": "file"}
    proofs: Columns = {"ENVIRONMENT": "environment", "OBJECTS": "objects", "EQUAL": "equal"}
    blocks: list[Block] = [
        TextLine(f"imported {count(len(result.components), 'component')}{into}", "head"),
        TextLine(""),
        table(result.components, columns, cut="KINDS"),
    ]
    if result.environments:
        blocks += [TextLine(""), table(result.environments, proofs), TextLine("")]
    for proof in result.environments:
        for difference in proof.differences:
            place = " ".join(filter(None, (difference.object, difference.path)))
            values = f"{one_line_value(difference.before)} -> {one_line_value(difference.after)}"
            told = difference.note or values
            told = f"{told}: {values}" if difference.note and difference.path else told
            blocks.append(TextLine(f"differs in {proof.environment}: {place}: {told}", "change", hang=2))
    failures: dict[str, list[str]] = {}
    for failure in result.failures:
        where = f" ({failure.where})" if failure.where else ""
        failures.setdefault(f"{failure.component}: {failure.reason}{where}", []).append(failure.environment)
    for told, environments in failures.items():
        text = f"not imported for {', '.join(environments)}: {told}"
        blocks.append(TextLine(text, "remove", hang=2))
    if result.summary:
        blocks.append(TextLine(result.summary, "add" if result.ok else "change"))
    names = tuple(row.name for row in result.components)
    following = f"next: cd {result.folder} && mlstack env list" if result.folder else _NEXT
    return Page(tuple(blocks), names, (*notes(result), following))


@view
def _upgraded(result: upgrade.Upgraded) -> Page:
    if not result.files:
        return Page((TextLine("nothing to do: every file of the app is up to date"),))
    verb = "would upgrade" if result.dry_run else "upgraded"
    lines = [TextLine(f"{verb} {row.file} from {row.before} to {row.after}", "add") for row in result.files]
    return Page(tuple(lines), tuple(row.file for row in result.files))
