"""The one writer of YAML and JSON: the same value gives the same bytes, and every reader reads it back.

Block style as kubectl prints it: two spaces, lists at the column of their key, several lines of text as a
literal block where that is exact, keys in the order they are given in. What a scalar means, to the reader
(`yaml.read`) and for the quotes that it needs here, stands below, so that the two cannot disagree.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from io import StringIO

TYPE_CHECKING = False  # as in `typing`: output of odd characters asks this module, and hardly another
if TYPE_CHECKING:
    from typing import Any

Scalar = None | bool | int | float | str
_Out = Callable[[str], None]
_Written = Callable[[str], str]


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


def to_flow(value: Any, *, plain: bool = False) -> str:
    """Write a value on one line; mappings and lists in the form that JSON and YAML share, if not `plain`.

    Only keys that are too long for readers of YAML are announced by `? `, which JSON does not know.
    """
    if value.__class__ is str:
        return write_string(value)
    if value.__class__ is not int and isinstance(value, (Mapping, list, tuple)):
        return _compact(value, _flow_label, write_string if plain else write_double_quoted)
    return write_scalar(value)


def to_json(value: Any) -> str:
    """Write JSON: two spaces, keys in their order, no needless escapes, a newline at the end."""
    return _json(value, "\n") + "\n"


def to_compact_json(value: Any) -> str:
    """Write JSON on one line, in a form that YAML reads too if no key is longer than 1,000 characters."""
    return _compact(value, _label, write_double_quoted)


def same(first: Any, second: Any) -> bool:
    """Say whether two values are equal as JSON: 1 is 1.0, and no number is true."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    if type(first) is type(second):
        return bool(first == second)
    return {type(first), type(second)} == {int, float} and float(first) == float(second)


# --- what one scalar means to kubectl ---
# It reads YAML through `sigs.k8s.io/yaml`, that is goyaml v2 into JSON into int64 or float64. The rules here
# are those of its `resolve.go`: words of YAML 1.1 that PyYAML does not know (`y`, `n`), octal numbers in both
# spellings, underscores in numbers, no dates and no numbers to the base of 60.

_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
OLD_BOOLEANS = tuple(word for word in (*_TRUE, *_FALSE) if word.lower() not in ("true", "false"))
"""Booleans of YAML 1.1 that are texts in YAML 1.2."""
_INFINITE = (".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF")
_NOT_A_NUMBER = (".nan", ".NaN", ".NAN")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **{word: float(word.replace(".", "")) for word in _INFINITE + _NOT_A_NUMBER},
}
_FIRST_OF_NO_STRING = frozenset("+-.0123456789yYnNtTfFoO~")
_BASED = r"([-+]?)0(?:[xX](?P<hex>[0-9a-fA-F]+)|[bB](?P<bin>[01]+)|[oO]?(?P<oct>[0-7]+))"
# goyaml cuts `0b` off by itself when Go did not read the number, and Go then takes a sign.
_SIGN_INSIDE = r"0b([-+][01]+)"
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
# A number that starts with its point goes to Go's ParseFloat as it is: underscores between digits only.
_POINT_FIRST = r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?"
_BASES = {"hex": 16, "bin": 2, "oct": 8}
_INT64 = range(-(2**63), 2**63)
_UINT64_END = 2**64


@lru_cache(maxsize=8192)
def resolve_plain(text: str) -> Scalar:
    """Read a plain (unquoted) scalar exactly as kubectl does.

    Integers outside 64 bits become floats and floats without a fraction become integers, since kubectl
    passes every number through JSON.
    """
    if text and text[0] not in _FIRST_OF_NO_STRING:
        return text
    return _as_json(_read(text), text)


def resolve_tagged(tag: str, text: str) -> Scalar:
    """Read a scalar that carries one of YAML's own tags."""
    if tag in ("str", "timestamp"):
        return text
    if tag == "binary":
        from base64 import b64decode  # it hardly ever occurs

        try:
            return b64decode("".join(text.split()), validate=True).decode()
        except ValueError as error:
            raise ValueError("a `!!binary` value is not the base64 form of UTF-8 text") from error
    value = _read(text)
    types = {"int": int, "float": float | int, "bool": bool, "null": type(None)}
    if tag not in types:
        raise ValueError(f"unknown tag `!!{tag}`")
    if not isinstance(value, types[tag]) or (isinstance(value, bool) and tag != "bool"):
        raise ValueError(f"`{text}` is no value of `!!{tag}`")
    return _as_json(value, text)


@lru_cache(maxsize=8192)
def resolve_key(text: str) -> str:
    """Read a plain scalar that is the key of a mapping: kubectl makes every key a string.

    `on` is the key `true`, `0x10` the key `16`, `1.50` the key `1.5`.
    """
    value = _read(text)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_key(value)
    if value is None:
        raise ValueError("a key is null")
    if value not in _INT64:
        raise ValueError(f"the key `{text}` is a number of more than 63 bits")
    return str(value)


def _read(text: str) -> Scalar:
    """Give the value as goyaml has it: before JSON makes one type of all numbers."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return _parsed_float(text.replace("_", ""), text) if re.fullmatch(_POINT_FIRST, text) else text
    if text[0] not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    integer = _integer(digits)
    if integer is not None:
        return integer
    return _parsed_float(digits, text) if re.fullmatch(_FLOAT, digits) else text


def _integer(digits: str) -> int | None:
    """Read what Go's ParseInt or ParseUint read with base 0; None when it is not for them."""
    if _DECIMAL.fullmatch(digits):
        value = int(digits)
    elif match := re.fullmatch(_BASED, digits):
        name = match.lastgroup or "oct"
        value = int(match[name], _BASES[name])
        value = -value if match[1] == "-" else value
    elif match := re.fullmatch(_SIGN_INSIDE, digits):
        value = int(match[1], 2)
    else:
        return None
    unsigned = digits[0] not in "+-" and value < _UINT64_END
    return value if value in _INT64 or unsigned else None


def _parsed_float(digits: str, text: str) -> float | str:
    value = float(digits)
    return text if value in (float("inf"), float("-inf")) else value  # out of range is a string to goyaml


def _as_json(value: Scalar, text: str) -> Scalar:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"`{text}` is no number that Kubernetes can carry")
        if not value.is_integer():
            return value
        # The integer that JSON makes of a float: its shortest digits, filled up with zeros.
        mantissa, _, exponent = float.__repr__(value).partition("e")
        whole, _, fraction = mantissa.partition(".")
        number = int(whole)
        if exponent:
            number = int(whole + fraction) * 10 ** max(int(exponent) - len(fraction), 0)
        return number if number in _INT64 else value
    if isinstance(value, int) and value not in _INT64:
        return float(value)
    return value


def _float_key(value: float) -> str:
    """Write a float as Go's FormatFloat(value, 'g', -1, 32): goyaml's choice, 32 bits included."""
    if value != value:
        return ".nan"
    try:
        narrow = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        narrow = float("inf") if value > 0 else float("-inf")
    if narrow in (float("inf"), float("-inf")):
        return ".inf" if narrow > 0 else "-.inf"
    shortest = next(
        text
        for digits in range(9)
        if struct.unpack("f", struct.pack("f", float(text := f"{narrow:.{digits}e}")))[0] == narrow
    )
    mantissa, exponent = shortest.split("e")
    figures = len(mantissa.lstrip("-").replace(".", ""))
    if -4 <= int(exponent) < 6:
        return f"{float(shortest):.{max(figures - 1 - int(exponent), 0)}f}"
    return f"{mantissa}e{int(exponent):+03d}"


# --- how a scalar is written ---

_SPECIAL_WORDS = frozenset(word.lower() for word in _WORDS)
# Some version of YAML or another reads these as numbers, dates or times: with a figure, a sign or a point
# first and nothing but these characters after it. Quoting one string too many does no harm.
_LIKE_A_NUMBER = re.compile(r"[-+.0-9][-+.0-9_:a-fA-FxXoOtTzZ ]*")
# Plain in block and flow style, for every reader: `,[]{}?` end a plain scalar in flow style, `#` may
# start a comment, `: ` makes a key.
_PLAIN = re.compile(
    r"(?!---|\.\.\.)(?:[A-Za-z0-9_/.+$(]|-(?! ))"
    r"(?:[A-Za-z0-9_/.+$()=@;~^*!<>|&%'\"\\`-]|:(?=[^ ])| (?=[^ ])| (?= ))*(?<! )"
)
# What a terminal obeys or hides: controls; what has no width or turns the direction of writing (Unicode TR36,
# CVE-2021-42574); fillers that look like blanks; halves of surrogate pairs. Joiners between letters of other
# scripts stay. Those beyond 16 bits, below alone, have no escape that JSON and YAML share.
UNSEEN_SET = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
)
# Written as what it is not: to compile a class with a range of a million characters takes 3 ms.
_JOINERS = "(?<![^\0-\u024f])[\u200c\u200d]|[\u200c\u200d](?![^\0-\u024f])"
_UNSEEN = f"[\t\n{UNSEEN_SET}\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|{_JOINERS}"
_ESCAPED = f'["\\\\\t\n{UNSEEN_SET}]|{_JOINERS}'
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_MEMO_LENGTH = 200


def needs_quotes(text: str) -> bool:
    """Tell whether some reader of YAML would take this string, written plain, for something else."""
    return (
        _PLAIN.fullmatch(text) is None
        or text.lower() in _SPECIAL_WORDS
        or _LIKE_A_NUMBER.fullmatch(text) is not None
    )


def write_string(text: str) -> str:
    """Write a string on one line, so that YAML 1.1, YAML 1.2, kubectl and PyYAML read it back the same.

    Plain where that is safe, otherwise quoted; safe in block and in flow style.
    """
    return _remembered(text) if len(text) <= _MEMO_LENGTH else _write_string(text)


def check_carried(text: str) -> None:
    """Refuse what neither YAML nor Kubernetes can carry."""
    if ("\0" in text or not text.isascii()) and (match := re.search("[\x00\ud800-\udfff]", text)):
        raise ValueError(f"a string cannot hold the character U+{ord(match[0]):04X}")


def write_double_quoted(text: str) -> str:
    """Write a string in double quotes, with escapes that JSON and YAML share."""
    check_carried(text)
    return f'"{re.sub(_ESCAPED, lambda match: _SHORT_ESCAPES.get(match[0]) or write_code(match[0]), text)}"'


def write_scalar(value: Scalar) -> str:
    """Write a scalar on one line."""
    if isinstance(value, str):
        return write_string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value not in _INT64:
            # Python writes no integer of more than 4,300 figures.
            shown = value if abs(value) < 10**100 else "of more than 100 figures"
            raise ValueError(f"the integer {shown} does not fit into 64 bits")
        return int.__repr__(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"`{value}` is no number that Kubernetes can carry")
        mantissa, mark, exponent = float.__repr__(value).partition("e")
        # YAML 1.1 takes 1e+16 for a string.
        return f"{mantissa}.0e{exponent}" if mark and "." not in mantissa else f"{mantissa}{mark}{exponent}"
    raise TypeError(f"`{type(value).__name__}` is no scalar of YAML")


def _write_string(text: str) -> str:
    if not needs_quotes(text):
        return text
    if ('"' in text or "\\" in text) and not re.search(_UNSEEN, text):
        return "'" + text.replace("'", "''") + "'"
    return write_double_quoted(text)


_remembered = lru_cache(maxsize=16384)(_write_string)


def respell_unseen(text: str, spelled: Callable[[str], str]) -> str:
    """Give a text in which each character that a terminal obeys or hides is as `spelled` writes it."""
    return re.sub(_UNSEEN, lambda match: spelled(match[0]), text)


def write_code(character: str) -> str:
    """Write a character as JSON and YAML may: by its UTF-16 code, in two halves beyond 16 bits."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


# --- documents in YAML ---

# Readers look 1,024 characters ahead for the colon of a key; a longer one is announced by `? `.
_LONGEST_KEY = 500
# A literal block is exact when nothing in it needs an escape, its first line shows the indentation, and no
# line starts with a tab or consists of blanks.
_LITERAL = f"[^ \t\n{UNSEEN_SET}][^{UNSEEN_SET}]*"
_DOUBTFUL_LINE = re.compile(r"^(?:\t|[ \t]+$)", re.MULTILINE)


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
    if "\n" not in value or not re.fullmatch(_LITERAL, value) or _DOUBTFUL_LINE.search(value):
        return write_string(value)
    if not value.isascii() and re.search(_UNSEEN, value.replace("\n", "").replace("\t", "")):
        return write_string(value)
    body = value.rstrip("\n")
    ends = len(value) - len(body)
    lines = [f"{indent}{line}" if line else "" for line in body.split("\n")]
    mark = "|-" if ends == 0 else "|" if ends == 1 else "|+"
    return "\n".join([mark, *lines, *[""] * (ends - 1)])


@lru_cache(maxsize=4096)
def _label(key: Any, written: _Written = write_string) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key must be a string, not `{key!r}`")
    return f"{written(key)}:"


# --- documents in JSON ---


def _compact(value: Any, label: Callable[[Any, _Written], str], written: _Written) -> str:
    if isinstance(value, str):
        return written(value)
    if isinstance(value, Mapping):
        items = [f"{label(key, written)} {_compact(item, label, written)}" for key, item in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join([_compact(item, label, written) for item in value])}]"
    return write_scalar(value)


def _flow_label(key: Any, written: _Written) -> str:
    label = _label(key, written)
    return f"? {label[:-1]} :" if len(label) > _LONGEST_KEY else label


def _json(value: Any, newline: str) -> str:
    deeper = newline + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{_label(key, write_double_quoted)} {_json(item, deeper)}" for key, item in value.items()]
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

    from mlstack.errors import YamlError

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
