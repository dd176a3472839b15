"""The one writer of YAML and JSON: the same value gives the same bytes, and every reader reads it back.

Block style as kubectl prints it: two spaces, lists at the column of their key, several lines of text as a
literal block where that is exact, keys in the order they are given in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from io import StringIO
from typing import Any

from mlstack.errors import YamlError
from mlstack.yaml.scalars import UNSEEN, UNSEEN_SET, write_double_quoted, write_scalar, write_string

# Readers look 1,024 characters ahead for the colon of a key; a longer one is announced by `? `.
_LONGEST_KEY = 500
# A literal block is exact when nothing in it needs an escape, its first line shows the indentation, and no
# line starts with a tab or consists of blanks.
_LITERAL = re.compile(f"[^ \t\n{UNSEEN_SET}][^{UNSEEN_SET}]*")
_DOUBTFUL_LINE = re.compile(r"^(?:\t|[ \t]+$)", re.MULTILINE)

_Out = Callable[[str], None]


def to_yaml(value: Any) -> str:
    """Write one document of YAML, with a newline at its end and no `---`.

    Args:
        value: mappings with string keys, lists, tuples and scalars.

    Raises:
        ValueError: a string or number that YAML or Kubernetes cannot carry.
        TypeError: any other type, or a key that is no string.
    """
    lines: list[str] = []
    _node(value, "", "", lines.append)
    lines.append("")
    return "\n".join(lines)


def to_yaml_documents(values: Iterable[Any]) -> str:
    """Write several documents, with `---` between them."""
    return "---\n".join(to_yaml(value) for value in values)


def to_flow(value: Any) -> str:
    """Write a value on one line; mappings and lists in the form that JSON and YAML share.

    Only keys that are too long for readers of YAML are announced by `? `, which JSON does not know.
    """
    if value.__class__ is str:
        return write_string(value)
    if value.__class__ is not int and isinstance(value, (Mapping, list, tuple)):
        return _compact(value, _flow_label)
    return write_scalar(value)


def to_json(value: Any) -> str:
    """Write JSON: two spaces, keys in their order, no needless escapes, a newline at the end."""
    return _json(value, "\n") + "\n"


def to_compact_json(value: Any) -> str:
    """Write JSON on one line, in a form that YAML reads too if no key is longer than 1,000 characters."""
    return _compact(value, _json_label)


# ------------------------------------------------------------------------------------------------- YAML


def _node(value: Any, head: str, indent: str, out: _Out) -> None:
    """Write a value behind `head`, further lines at `indent`."""
    if value and (value.__class__ is dict or isinstance(value, Mapping)):
        _mapping(value, head, indent, out)
    elif value and isinstance(value, (list, tuple)):
        _sequence(value, head, indent, out)
    else:
        out(head + (_text(value, indent + "  ") if isinstance(value, str) else to_flow(value)))


def _mapping(value: Mapping[Any, Any], head: str, indent: str, out: _Out) -> None:
    deeper = indent + "  "
    for key, item in value.items():
        label = _label(key)
        if len(label) > _LONGEST_KEY:
            out(f"{head}? {label[:-1]}")
            label, head = ":", indent
        kind = item.__class__
        if kind is str and "\n" not in item:
            out(f"{head}{label} {write_string(item)}")
        elif kind is int:
            out(f"{head}{label} {write_scalar(item)}")
        elif item and (kind is dict or isinstance(item, Mapping)):
            out(head + label)
            _mapping(item, deeper, deeper, out)
        elif item and (kind is list or isinstance(item, (list, tuple))):
            out(head + label)
            _sequence(item, indent, indent, out)
        else:
            out(f"{head}{label} {_text(item, deeper) if isinstance(item, str) else to_flow(item)}")
        head = indent


def _sequence(value: Iterable[Any], head: str, indent: str, out: _Out) -> None:
    deeper = indent + "  "
    for item in value:
        if item.__class__ is dict and item:
            _mapping(item, f"{head}- ", deeper, out)
        elif item.__class__ is str:  # its lines stand below it, as those of a map's value do
            out(f"{head}- {_text(item, deeper)}")
        else:
            _node(item, f"{head}- ", deeper, out)
        head = indent


def _text(value: str, indent: str) -> str:
    if "\n" not in value or not _LITERAL.fullmatch(value) or _DOUBTFUL_LINE.search(value):
        return write_string(value)
    if not value.isascii() and UNSEEN.search(value.replace("\n", "").replace("\t", "")):
        return write_string(value)
    body = value.rstrip("\n")
    ends = len(value) - len(body)
    lines = [f"{indent}{line}" if line else "" for line in body.split("\n")]
    mark = "|-" if ends == 0 else "|" if ends == 1 else "|+"
    return "\n".join([mark, *lines, *[""] * (ends - 1)])


@lru_cache(maxsize=4096)
def _label(key: Any, written: Callable[[str], str] = write_string) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key must be a string, not `{key!r}`")
    return f"{written(key)}:"


# ------------------------------------------------------------------------------------------------- JSON

_json_label = partial(_label, written=write_double_quoted)


def _compact(value: Any, label: Callable[[Any], str]) -> str:
    if isinstance(value, str):
        return write_double_quoted(value)
    if isinstance(value, Mapping):
        items = [f"{label(key)} {_compact(item, label)}" for key, item in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join([_compact(item, label) for item in value])}]"
    return write_scalar(value)


def _flow_label(key: Any) -> str:
    label = _json_label(key)
    return f"? {label[:-1]} :" if len(label) > _LONGEST_KEY else label


def _json(value: Any, newline: str) -> str:
    deeper = newline + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{_json_label(key)} {_json(item, deeper)}" for key, item in value.items()]
        return f"{{{deeper}{f',{deeper}'.join(items)}{newline}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{deeper}{f',{deeper}'.join([_json(item, deeper) for item in value])}{newline}]"
    return to_compact_json(value)


# --- documents that are taken apart or put together anew with their comments: the door to ruamel.yaml ---


def load_commented(text: str, *, source: str) -> list[Any]:
    """Read every document as values that carry their comments; change them in place, then `dump_commented`.

    Raises:
        YamlError: the text is no YAML.
    """
    from ruamel.yaml.error import YAMLError

    try:
        return [document for document in _ruamel().load_all(text) if document is not None]
    except YAMLError as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise YamlError(f"broken YAML: {problem}", where=source) from error


def dump_commented(value: Any) -> str:
    """Write one document with the comments it carries."""
    out = StringIO()
    _ruamel().dump(value, out)
    return out.getvalue()


def _ruamel() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000  # no line is broken that was not
    yaml.indent(mapping=2, sequence=2, offset=0)
    return yaml
