"""Results on the screen: formats, what a person reads as values (lines, tables, views), the door to rich."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from mlstack.cli import output
from mlstack.cli.output import escaped, json_escaped, raw, safe, say, write
from mlstack.dataclass import dataclass
from mlstack.objects import masking

if TYPE_CHECKING:
    from rich.text import Text

    from mlstack.objects.kube_object import DesiredState, KubeObject

Style = Literal["", "add", "remove", "change", "head", "dim"]
COLOURS = {"": "", "add": "green", "remove": "red", "change": "yellow", "head": "bold", "dim": "dim"}
WIDTH = 80
WIDEST_PROSE = 100
GAP = "  "


@dataclass(frozen=True)
class TextLine:
    """One line of text, readable without colour, with a meaning that a terminal may colour."""

    text: str
    style: Style = ""
    hang: int | None = None  # blanks before what does not fit on the first line; None breaks no line


@dataclass(frozen=True)
class TextTable:
    """Rows under upper-case headings."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    cut: str | None = None  # the column whose cells may be shortened when the table is too wide
    wrap: str | None = None  # the one that is wrapped at spaces then, beside the last one


Block = TextLine | TextTable


@dataclass(frozen=True)
class Page:
    """What one result looks like to a person."""

    blocks: tuple[Block, ...]
    names: tuple[str, ...] = ()  # what `-o name` prints, one a line
    notes: tuple[str, ...] = ()  # said on stderr, as the next step


def show(page: Page, *, to_stderr: bool = False) -> None:
    """Print a page: in colour on a terminal unless `NO_COLOR` is set, as plain text elsewhere."""
    stream = sys.stderr if to_stderr else sys.stdout
    if output.is_terminal(stream):
        from rich.console import Console

        # The only writer of control sequences: its lines were made safe when they were laid out.
        console = Console(file=raw(stream), highlight=False, emoji=False, markup=False)
        for line in _coloured(page, console.width):
            console.print(line, soft_wrap=True)
    elif to_stderr:
        say(*text(page).split("\n"))
    else:
        write(text(page))


def text(page: Page) -> str:
    """Write a page as plain text."""
    parts = (layout(block) if isinstance(block, TextTable) else fold(block) for block in page.blocks)
    return "\n".join(chain.from_iterable(parts))


# --- layout ---


def text_width(text: str) -> int:
    """Count the terminal columns that a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int) -> str:
    """Cut a text to so many terminal columns, with `…` in the place of what is left out."""
    if text_width(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import chop_cells

    return chop_cells(text, width - 1)[0] + "…"


def one_line(text: str) -> str:
    """Write a text as it may be printed: it tells no secret, breaks no table and moves no cursor."""
    return safe(text, kept="")


def fold(line: TextLine, *, width: int = WIDTH) -> Iterator[str]:
    """Write a line in as many as it needs to fit; a command that can be copied is never broken."""
    if line.hang is None:
        yield one_line(line.text)
        return
    text = one_line(" ".join(output.scrubbed(line.text).splitlines()))
    if text_width(text) <= width:
        yield text
        return
    indent = len(text) - len(text.lstrip(" "))
    words = _UNBROKEN.sub(lambda match: match[0].replace(" ", _BLANK), text[indent:]).split(" ")
    first, *others = _wrap(words, width - line.hang, first=width - indent)
    yield " " * indent + first.replace(_BLANK, " ")
    yield from (" " * line.hang + other.replace(_BLANK, " ") for other in others)


# What stands in backticks, and a command at the end.
_UNBROKEN = re.compile(r"`[^`]*`|(?:^|(?<=: ))mlstack [^`]*$")
_BLANK = "\0"  # no text holds one: control characters are written visibly


def layout(table: TextTable, *, width: int = WIDTH) -> Iterator[str]:
    """Write a table as aligned plain text that fits the width where its cells allow it.

    The column named `cut` is shortened first; the last one is wrapped at spaces, unless it is the one to cut,
    and so is the one named `wrap`. What finds no room in the last one stands below its row.
    """
    rows = [table.columns, *(tuple(one_line(cell) for cell in row) for row in table.rows)]
    widths = _widths(table, rows, width)
    wrapped = {table.columns[-1], table.wrap} - {table.cut}
    for *others, last in rows:
        below = ""
        needed = max(_NARROWEST, *map(text_width, last.split(" ")))
        if others and table.columns[-1] in wrapped and widths[-1] < min(needed, text_width(last)):
            last, below = "", last
        cells = [
            _wrap(cell.split(" "), limit) if name in wrapped else [shorten(cell, limit)]
            for name, cell, limit in zip(table.columns, (*others, last), widths, strict=True)
        ]
        for line in zip_longest(*cells, fillvalue=""):
            padded = (cell + " " * (room - text_width(cell)) for cell, room in zip(line, widths, strict=True))
            yield GAP.join(padded).rstrip()
        yield from fold(TextLine(f"    {below}", hang=4), width=width) if below else ()


_NARROWEST = 12  # of a column that is shortened or wrapped


def _widths(table: TextTable, rows: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [max(map(text_width, cells)) for cells in zip(*rows, strict=True)]
    room = width - len(GAP) * (len(widths) - 1)
    for name in filter(None, (table.cut, table.wrap)):
        index = table.columns.index(name)
        spare = room - sum(widths) + widths[index]
        words = [word for row in rows for word in row[index].split(" ")] if name == table.wrap else []
        widths[index] = min(widths[index], max(spare, len(name), _NARROWEST, *map(text_width, words)))
    widths[-1] = max(min(widths[-1], room - sum(widths[:-1])), 1)
    return widths


def _wrap(words: Sequence[str], width: int, *, first: int | None = None) -> list[str]:
    """Join words to lines; one that is wider than a line stays whole."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        room = width if first is None or len(lines) > 1 else first
        if text_width(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# --- terminals ---


def _coloured(page: Page, width: int) -> Iterator[Text]:
    """Lay a page out as elsewhere: rich would rather break a place in a file than cut a long value."""
    from rich.text import Text

    for block in page.blocks:
        if isinstance(block, TextTable):
            head, *rows = layout(block, width=width)
            yield Text(head, style=COLOURS["head"])
            yield from (Text(row) for row in rows)
        else:
            for line in fold(block, width=min(width, WIDEST_PROSE)):
                yield Text(line, style=COLOURS[block.style])


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show that something goes on, on stderr and on terminals only, until the block is left."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(file=raw(sys.stderr)).status(text):
        yield


@contextmanager
def redrawing() -> Iterator[Callable[[Page], None]]:
    """Give what shows a page on stdout in the place of the one before; the last one is taken away."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=raw(sys.stdout), highlight=False, emoji=False, markup=False)
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        yield lambda page: live.update(Text("\n").join(_coloured(page, console.width)), refresh=True)


# --- the views of results, and what they are made of ---

View = TypeVar("View", bound=Callable[[Any], Page])

# By the name of the result's type, so that showing one result imports no other use case.
VIEWS: dict[str, Callable[[Any], Page]] = {}
TABLE_VIEWS: dict[str, TableView] = {}


def view(function: View) -> View:
    """Enter the view of a result: a function of `result`, whose type it is for."""
    VIEWS[function.__annotations__["result"].rpartition(".")[2]] = function
    return function


# Which modules of views enter those of the results of which modules, before `views_app`, which has the rest.
_ROOMS = {
    "views_deploy": "deploy operations.capacity operations.deploy operations.render operations.status",
    "views_packages": "importers operations.authors operations.components operations.imports"
    " operations.packag operations.registries",
}


def page_of(result: object) -> Page:
    """Give the view of a result; a type without one is shown as YAML."""
    module, name = type(result).__module__.removeprefix("mlstack."), type(result).__name__
    rooms = [views for views, modules in _ROOMS.items() if module.startswith(tuple(modules.split()))]
    for room in (*rooms, "views_app"):
        import_module(f"mlstack.cli.{room}")
        if name in VIEWS:
            return VIEWS[name](result)
        if name in TABLE_VIEWS:
            return TABLE_VIEWS[name].page(result)
    return Page(tuple(TextLine(line) for line in yaml_text(result).splitlines()))


def shown(result: Any, blocks: Iterable[str | Block], names: str | Iterable[str] = (), *then: str) -> Page:
    """Show lines and tables; on stderr the notes of the result, and what is next.

    `names` are what `-o name` prints.
    """
    lines = tuple(TextLine(block) if isinstance(block, str) else block for block in blocks)
    return Page(
        lines, (names,) if isinstance(names, str) else tuple(names), (*notes(result), *filter(None, then))
    )


# Heading -> the field of a row, or a function of it. A field that ends with `!` is a value of a parameter. A
# heading that ends with `?WORD` is left out when its cells say only this; with `?` when they are
# empty, with `?*` when they are all the same.
Columns = Mapping[str, str | Callable[[Any], Any]]


def columns(text: str, **functions: Callable[[Any], Any]) -> Columns:
    """Read `HEADING=field HEADING` (of the field `heading`); `_` in a heading is a blank."""
    fields: dict[str, str | Callable[[Any], Any]] = {}
    for word in text.split():
        heading, _, field = word.partition("=")
        name = heading.partition("?")[0]
        fields[heading.replace("_", " ")] = functions.get(name, field or name.lower())
    return fields


def table(
    rows: Iterable[Any], heads: Columns | str, *, cut: str | None = None, wrap: str | None = None
) -> TextTable:
    """Make a table of rows, which may be their cells already; see `TextTable` for `cut` and `wrap`."""
    heads = columns(heads) if isinstance(heads, str) else heads
    cells = [
        row if isinstance(row, tuple) else [_cell(row, field) for field in heads.values()] for row in rows
    ]
    shown = []
    for index, heading in enumerate(heads):
        name, optional, word = heading.partition("?")
        values = {row[index] for row in cells}
        if not optional or not (len(values) == 1 if word == "*" else values <= {word}):
            shown.append((index, name))
    names = tuple(name for _, name in shown)
    kept = tuple(tuple(row[index] for index, _ in shown) for row in cells)
    return TextTable(names, kept, cut=cut if cut in names else None, wrap=wrap if wrap in names else None)


def section(rows: Sequence[Any], heads: Columns | str, **how: str) -> list[Block]:
    """Make a table below a blank line; nothing without rows."""
    return [TextLine(""), table(rows, heads, **how)] if rows else []


def _cell(row: Any, field: str | Callable[[Any], Any]) -> str:
    """Write a value in a table: a claim as `yes` or nothing, names with commas between."""
    if isinstance(field, str) and field.endswith("!"):
        return one_line_value(getattr(row, field[:-1]))
    value = getattr(row, field) if isinstance(field, str) else field(row)
    if isinstance(value, bool):
        return "yes" if value else ""
    return ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)


class TableView(NamedTuple):
    """A view that is only a table: of the rows in a field of the result."""

    rows: str
    heads: Columns | str
    names: str | Callable[[Any], str] = "name"  # what `-o name` prints of a row
    cut: str | None = None  # the column that is shortened
    wrap: str | None = None  # the one that is wrapped, beside the last one
    empty: str = ""  # what is next when there are no rows

    def page(self, result: Any) -> Page:
        """Show a result."""
        rows = getattr(result, self.rows)
        hint = "" if rows or notes(result) else self.empty
        block = table(rows, self.heads, cut=self.cut, wrap=self.wrap)
        return shown(result, [block], [_cell(row, self.names) for row in rows], hint)


def notes(result: Any) -> tuple[str, ...]:
    """Give the notes of a result, if it has any, as they are said."""
    return tuple(f"note: {note}" for note in getattr(result, "notes", ()))


def facts(*rows: tuple[str, object]) -> list[Block]:
    """Write facts under each other, leaving out what is empty."""
    shown = [(name, str(value)) for name, value in rows if value not in (None, "", (), {})]
    width = max((len(name) for name, _ in shown), default=0) + 1
    return [TextLine(f"{name + ':':<{width}} {value}") for name, value in shown]


def facts_of(row: Any, heads: Columns | str) -> list[Block]:
    """Write the fields of a row as facts; the headings are those of a table, in lower case."""
    heads = columns(heads) if isinstance(heads, str) else heads
    return facts(*((heading.lower(), _cell(row, field)) for heading, field in heads.items()))


def prose(text: str) -> list[Block]:
    """Write text of several lines in lines that fit; blank lines part paragraphs."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n") if part.strip()]
    return [line for part in paragraphs for line in (TextLine(""), TextLine(part, hang=0))]


def count(number: int, word: str) -> str:
    """Write a number of things in English."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# Longer than any text that people write on one line; the rest are files, keys and pictures.
LONGEST_LINE = 2000
_DIGITS = 12


def one_line_value(value: Any) -> str:
    """Write a value on one line, as a person would type it; what nobody could read by its size and digest."""
    from mlstack.yaml import write

    if value is None or value == masking.MASK:
        return value or ""
    text = value if isinstance(value, str) else write.to_flow(value)
    return size_and_digest(text) if len(text) > LONGEST_LINE else write.to_flow(value)


def size_and_digest(text: str) -> str:
    """Tell a long text from others: `(921600 bytes, sha256:0123456789ab…)`."""
    from hashlib import sha256

    content = text.encode("utf-8", "surrogatepass")
    return f"({len(content)} bytes, sha256:{sha256(content).hexdigest()[:_DIGITS]}…)"


# --- results ---


def emit(result: object, output_format: str) -> int:
    """Print a result on stdout; exit code 1 for a truthful no (`result.ok` is false), else 0."""
    if output_format == "table":
        view = page_of(result)
        show(view)
        say(*view.notes)
    elif output_format in FORMATS:
        write(FORMATS[output_format](result), exact=True)
    else:
        from mlstack.cli.commands.render import FINDING_FORMATS

        write(FINDING_FORMATS[output_format](result), exact=True)
    return 0 if getattr(result, "ok", True) else 1


FORMATS: dict[str, Callable[[object], str]] = {}
"""How a result is written, by the word behind `-o`; those of findings alone are in `commands/render.py`."""


def output_format(name: str) -> Callable[[Callable[[object], str]], Callable[[object], str]]:
    """Add an output format: the function below writes a result."""

    def add(write_result: Callable[[object], str]) -> Callable[[object], str]:
        FORMATS[name] = write_result
        return write_result

    return add


@output_format("table")
def table_text(result: object) -> str:
    """Write the human view as plain text."""
    return text(page_of(result))


@output_format("yaml")
def yaml_text(result: object) -> str:
    """Write the whole result as YAML."""
    from mlstack.yaml.write import to_yaml

    return to_yaml(_without_unwritable(masking.scrubbed_value(document(result))))


@output_format("json")
def json_text(result: object) -> str:
    """Write the whole result as JSON, types kept."""
    return json_escaped(json.dumps(masking.scrubbed_value(document(result)), indent=2, ensure_ascii=False))


@output_format("name")
def names_text(result: object) -> str:
    """Write the names in the human view alone, one a line, for other programs."""
    return "\n".join(map(one_line, page_of(result).names))


def document(result: object) -> Any:
    """Turn a result into plain data that says what it is: its `kind` is the name of its schema."""
    from mlstack.app.document import API_VERSION

    content = plain(result)
    if not hasattr(result, "__dataclass_fields__") or "$schema" in content or hasattr(result, "api_version"):
        return content
    return {"apiVersion": API_VERSION, "kind": type(result).__name__, **content}


def plain(value: Any) -> Any:
    """Turn a result into mappings, lists and scalars, with the keys that files use (camelCase)."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, Enum):
        return value.value
    if "__str__" in type(value).__dict__ and not isinstance(value, str):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        content = {camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
        return content if "ok" in content or not hasattr(value, "ok") else {"ok": value.ok, **content}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def camel(name: str) -> str:
    """Write the name of a field as files do."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def _without_unwritable(value: Any) -> Any:
    """Give plain data without the characters that YAML cannot carry, which are written visibly."""
    if isinstance(value, str):
        return escaped(value) if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value) else value
    if isinstance(value, Mapping):
        return {_without_unwritable(key): _without_unwritable(item) for key, item in value.items()}
    return [_without_unwritable(item) for item in value] if isinstance(value, list) else value


# --- whole Kubernetes objects ---


def emit_objects(state: DesiredState, output_format: str, *, show_secrets: bool = False) -> int:
    """Print the objects of a render, on a terminal without secrets; its notes go to stderr."""
    if state.notes:
        say(*output.notes_text(state).split("\n"))
    objects = state.objects
    if state.has_secrets and sys.stdout.isatty() and not show_secrets:
        objects = tuple(manifest.with_data(masked(manifest.data, state)) for manifest in objects)
        say(
            f"note: secrets are hidden on a terminal; `mlstack render {state.environment} --show-secrets` and"
            " `> FILE` write them"
        )
    write(OBJECT_FORMATS[output_format](objects), exact=True)
    return 0


def masked(data: Mapping[str, Any], state: DesiredState) -> dict[str, Any]:
    """Give an object as a person may read it."""
    return dict(masking.scrubbed_value(masking.mask_values(masking.mask_object(data), state.secrets)))


def objects_json(objects: Sequence[KubeObject]) -> str:
    """Write objects as one Kubernetes List."""
    from mlstack.yaml.write import to_json

    items = [dict(manifest.data) for manifest in objects]
    return json_escaped(to_json({"apiVersion": "v1", "kind": "List", "items": items}))


OBJECT_FORMATS: Mapping[str, Callable[[Sequence[KubeObject]], str]] = {
    "yaml": output.objects_yaml,
    "json": objects_json,
    "name": lambda objects: "\n".join(escaped(str(manifest.identity), kept="") for manifest in objects),
}
