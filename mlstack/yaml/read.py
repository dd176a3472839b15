"""The only door to PyYAML: text into plain values exactly as kubectl reads it, with their positions.

libyaml splits the text into events; what a scalar means is decided by `yaml.write`. Where PyYAML has
been installed without libyaml its own parser gives the same events, slower.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Any, NamedTuple, NoReturn

from mlstack.dataclass import dataclass
from mlstack.disk_cache import ByteStore
from mlstack.errors import YamlError
from mlstack.yaml.write import OLD_BOOLEANS, check_carried, resolve_key, resolve_plain, resolve_tagged

KeyPath = tuple[str | int, ...]

DEEPEST = 200
"""Levels of nesting: more is no manifest, and Kubernetes refuses far less in custom resources."""
LARGEST_EXPANSION = 100_000
"""Values that the aliases of one document may add: an ill-meant file would ask for billions."""
_YAML_TAG = "tag:yaml.org,2002:"
# Stands for a plain `<<`; a quoted one is an ordinary key, hence another object, compared by identity.
_MERGE = "".join(("<", "<"))

_KINDS = {
    "ScalarEvent": "scalar",
    "MappingStartEvent": "mapping",
    "SequenceStartEvent": "sequence",
    "AliasEvent": "alias",
    "MappingEndEvent": "end",
    "SequenceEndEvent": "end",
    "DocumentStartEvent": "document",
}


class Position(NamedTuple):
    """A position in a text, as editors count: lines and characters from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """One YAML document: its value and, in a second structure, where each part of it stands."""

    value: Any  # dict, list, str, int, float, bool or None
    line: int  # first line of the content, from 1
    # position of the key (in a mapping), or of the item (in a list), by path; empty unless asked for
    positions: Mapping[KeyPath, Position] = field(default_factory=dict)
    start: int = 0  # index of a JSON object that follows others

    def position(self, path: Sequence[str | int]) -> Position:
        """Give the position of a path, or of its nearest parent that stands in the text."""
        for length in range(len(path), -1, -1):
            if position := self.positions.get(tuple(path[:length])):
                return position
        return Position(self.line, 1)


class Mark(NamedTuple):
    """One event of a text with its place, for edits by position."""

    kind: str  # `scalar`, `mapping`, `sequence`, `alias`, `end` (of a collection) or `document`
    start: int  # index of its first character in the text
    end: int  # index behind its last character
    style: str  # of a scalar: empty when plain, else `'`, `"`, `|` or `>`; of a collection: `flow` or empty
    value: str  # text of a scalar, with quotes and folding undone
    tagged: bool  # whether a tag stands before it


def read_documents(
    text: str, *, source: str, with_positions: bool = False, is_yaml_1_2: bool = False
) -> list[Document]:
    """Read every document of a text, as kubectl would; those that are empty or null are left out.

    Args:
        text: YAML or JSON.
        source: name of the file, for messages.
        with_positions: note where every key and item stands; this costs about a third more.
        is_yaml_1_2: take `y`, `n`, `yes`, `no`, `on` and `off` for texts; for files that kubectl never reads.

    Raises:
        YamlError: broken YAML, a key set twice, an unknown tag, or a value that kubectl refuses.
    """
    text = text.removeprefix("\ufeff")
    if not text.endswith("\n"):  # as kubectl does, for a literal block that ends the file
        text += "\n"
    documents: Sequence[Document] | None = None
    if text.lstrip().startswith("{"):
        documents = _read_json(text, source, with_positions)
    elif not is_yaml_1_2:
        documents = _read_by_shape(text, with_positions)
    if documents is None:
        documents = [*_Reader(text, source, with_positions, is_yaml_1_2=is_yaml_1_2).documents()]
    return [document for document in documents if document.value is not None]


def read_document(
    text: str, *, source: str, with_positions: bool = True, is_yaml_1_2: bool = False
) -> Document:
    """Read a text that holds exactly one document; arguments as of `read_documents`.

    Raises:
        YamlError: as `read_documents`, or there is no document, or more than one.
    """
    documents = read_documents(text, source=source, with_positions=with_positions, is_yaml_1_2=is_yaml_1_2)
    if not documents:
        raise YamlError("the file holds nothing", where=source, hint="fill it, or remove it")
    if len(documents) > 1:
        place = f"{source}:{documents[1].line}"
        raise YamlError(f"the file holds {len(documents)} documents, expected one", where=place)
    return documents[0]


def read_marks(text: str, *, source: str) -> list[Mark]:
    """Give the places of everything in a text, in order, for edits that keep all other bytes."""
    skipped = 1 if text.startswith("\ufeff") else 0
    objects = _read_json(text[skipped:], source, False) if text[skipped:].lstrip()[:1] == "{" else None
    starts = [skipped + document.start for document in objects or ()] or [skipped]
    marks: list[Mark] = []
    for start, end in pairwise([*starts, len(text)]):
        events = _Events(text[start:end], source)
        with events.translated():
            while (event := events.next()) is not None:
                if kind := _KINDS.get(type(event).__name__):
                    is_flow = getattr(event, "flow_style", False)
                    style = getattr(event, "style", None) or ("flow" if is_flow else "")
                    tagged = any(getattr(event, name, None) is not None for name in ("tag", "anchor"))
                    places = event.start_mark.index + start, event.end_mark.index + start
                    marks.append(Mark(kind, *places, style, getattr(event, "value", ""), tagged))
    return marks


def _read_json(text: str, source: str, with_positions: bool) -> list[Document] | None:
    """Read text that starts like a JSON object as JSON, which kubectl does; None when it is none.

    JSON is not quite a part of YAML: libyaml refuses escapes of surrogate pairs, and objects one after the
    other, as jq writes them.
    """
    numbers: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), resolve_plain)
    decoder = json.JSONDecoder(object_pairs_hook=_unique, **numbers)
    documents: list[Document] = []
    start = end = 0
    line = 1
    try:
        while match := _JSON_START.search(text, end):
            line += text.count("\n", start, match.start())
            value, end = decoder.raw_decode(text, start := match.start())
            positions = _json_positions(text[start:end], line) if with_positions else {}
            documents.append(Document(value, line, positions, start))
    except (ValueError, RecursionError):
        return None  # read as YAML, whose messages have lines
    if escape := re.search(_UNCARRIED_ESCAPE, text):
        where = f"{source}:{_line_of(text, escape)}"
        message = f"a string cannot hold the character U+{escape[1].upper()}"
        raise YamlError(message, where=where, hint="remove it from the value")
    return documents


def _json_positions(text: str, line: int) -> Mapping[KeyPath, Position]:
    try:
        places = next(_Reader(text, "", True).documents()).positions
    except YamlError:
        return {(): Position(line, 1)}
    return {path: Position(at.line + line - 1, at.column) for path, at in places.items()}


_JSON_START = re.compile(r"[^ \t\r\n]")
# NUL, and half a surrogate pair, as JSON writes them; backslashes before them are in pairs.
_UNCARRIED_ESCAPE = (
    r"(?<!\\)(?:\\\\)*\\u(0000|[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u)[dD][c-fC-F]..)"
)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key is set twice")
    return mapping


# --- texts that differ in scalars at the ends of their lines alone, of which libyaml splits one ---
# What one template renders for many components, or a thousand files of one kind, has few shapes. A shape is
# read with placeholders, and its values are those of the text: a plain scalar without blanks ends its line
# and changes no structure, whatever it is.

_LINE_END = re.compile(
    r"""(?<=[:=-][ ])("[ \w./:=@+-]{0,200}"|[\w./](?:[\w./:=@+-]{0,200}[\w./])?)$""", re.MULTILINE | re.ASCII
)
_PLACEHOLDER = re.compile("\ue0a0([0-9]+)\ue0a1")
_LARGEST_SHAPE = 64 * 1024
_MOST_SHAPES = 2000
# A container, its key or index, and the number of a scalar or a text with some.
_Part = tuple[KeyPath, Any, Any]
_Shape = list[tuple[bytes, int, Mapping[KeyPath, Position], list[_Part]]]  # of each document
_SHAPES: dict[str, _Shape | None] = {}
"""What a shape was read as; None for those that were met once, or have to be read as they are."""
_MET = b"met once"


_stores: list[ByteStore] = []


@contextmanager
def keeping_shapes(store: ByteStore) -> Iterator[None]:
    """Take shapes from a store, and put into it those that are new: PyYAML is not even loaded for known ones.

    Shapes hold text of what was read: whoever keeps the store beyond this run sees that no secret is in it.
    """
    _stores.append(store)
    _SHAPES.clear()
    try:
        yield
    finally:
        _stores.pop()


def _read_by_shape(text: str, with_positions: bool) -> list[Document] | None:
    """Read a text whose shape is known; None where it is to be read as any text."""
    if len(text) > _LARGEST_SHAPE or "\ue0a0" in text:
        return None
    pieces = _LINE_END.split(text)
    key = str(int(with_positions)) + "\ue0a0".join(pieces[::2])
    if key not in _SHAPES and not _recalled(key):
        return None
    shape = _SHAPES[key]
    if shape is None:
        if (shape := _shape(pieces[::2], with_positions)) is None:
            return None
        _SHAPES[key] = shape
        if _stores:
            plain = [
                (*document[:2], {p: tuple(at) for p, at in document[2].items()}, document[3])
                for document in shape
            ]
            _stores[-1].put(_name(key), marshal.dumps(plain))
    try:
        return [_filled(document, pieces[1::2]) for document in shape]
    except ValueError:  # a scalar that is refused: to be read for its line
        return None


def _recalled(key: str) -> bool:
    """Look in the store for what was met before this run; else note that it was met now."""
    data = _stores[-1].get(_name(key)) if _stores else None
    if len(_SHAPES) >= _MOST_SHAPES:
        _SHAPES.clear()
    _SHAPES[key] = None
    if data is not None and data != _MET:
        documents = marshal.loads(data)
        _SHAPES[key] = [
            (value, line, {p: Position(*at) for p, at in places.items()}, parts)
            for value, line, places, parts in documents
        ]
    elif data is None and _stores:
        _stores[-1].put(_name(key), _MET)
    return data is not None


def _name(key: str) -> str:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _shape(texts: Sequence[str], with_positions: bool) -> _Shape | None:
    """Read a text with placeholders; None where it is no sound YAML, or one stands for no value."""
    ends = [*(f"\ue0a0{number}\ue0a1" for number in range(len(texts) - 1)), ""]
    text = "".join(chain.from_iterable(zip(texts, ends, strict=True)))
    shape: _Shape = []
    try:
        for document in _Reader(text, "", with_positions).documents():
            parts = [*_placeholders(document.value, ())]
            shape.append((marshal.dumps(document.value), document.line, document.positions, parts))
    except (YamlError, ValueError):
        return None
    return shape


def _placeholders(value: Any, path: KeyPath) -> Iterator[_Part]:
    """Find the strings with placeholders; raises ValueError for a key, or a whole document, with one."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
        if any("\ue0a0" in key for key in value):
            raise ValueError("a placeholder in a key")
    elif isinstance(value, list):
        items = enumerate(value)
    elif isinstance(value, str) and not path and "\ue0a0" in value:
        raise ValueError("a placeholder as the document")
    for key, item in items:
        if item.__class__ is not str:
            yield from _placeholders(item, (*path, key))
        elif "\ue0a0" in item:
            is_whole = _PLACEHOLDER.fullmatch(item)
            yield path, key, int(is_whole[1]) if is_whole else item


def _filled(
    document: tuple[bytes, int, Mapping[KeyPath, Position], list[_Part]], scalars: list[str]
) -> Document:
    """Put the scalars of a text in the places of its shape; raises ValueError for what has no shape."""
    data, line, positions, parts = document
    container = value = marshal.loads(data)
    last: KeyPath = ()
    for path, key, part in parts:
        if path != last:
            container, last = value, path
            for step in path:
                container = container[step]
        if part.__class__ is int:
            scalar = scalars[part]
            container[key] = scalar[1:-1] if scalar[0] == '"' else resolve_plain(scalar)
        else:
            container[key] = _PLACEHOLDER.sub(lambda match: _plain_scalar(scalars[int(match[1])]), part)
    return Document(value, line, positions)


def _plain_scalar(scalar: str) -> str:
    if scalar[0] == '"':
        raise ValueError("what stands in quotes is no part of a longer text, or that is a block")
    return scalar


class _Events:
    """The events of a text, one after the other; errors of PyYAML become ours here."""

    def __init__(self, text: str, source: str) -> None:
        import yaml  # the door: nobody else imports it

        self.text = text
        self._source = source
        self._errors = (yaml.YAMLError, UnicodeError)
        parser: Any = getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader
        with self.translated():
            self.next: Callable[[], Any] = parser(text).get_event

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the errors of PyYAML into ours."""
        try:
            yield
        except self._errors as error:
            raise _translate(error, self.text, self._source) from error


def _translate(error: Exception, text: str, source: str) -> YamlError:
    if conflict := re.search(_CONFLICT, text):
        where = f"{source}:{_line_of(text, conflict)}"
        hint = "choose what shall stand there, remove the marks, then run the command again"
        if source.endswith(".lock"):  # no person can write its digests
            hint = f"git checkout --ours {source}, then mlstack pkg install --force"
        return YamlError("the file holds the marks of a merge conflict", where=where, hint=hint)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark else _line_of(text, re.search(_REFUSED, text))
    where = f"{source}:{line}" if line else source
    if mark and "\t" in text[mark.index : mark.index + 1]:
        return YamlError("broken YAML: a tab cannot indent", where=where, hint="indent with spaces")
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    problem = str(problem).splitlines()[0]
    hints = (hint for part, hint in _HINTS.items() if part in problem)
    return YamlError(f"broken YAML: {problem}", where=where, hint=next(hints, None))


def _line_of(text: str, match: re.Match[str] | None) -> int | None:
    return text.count("\n", 0, match.start()) + 1 if match else None


# What git writes where two people changed the same lines.
_CONFLICT = r"(?m)^(<{7}|>{7})( |$)"
# A pattern of its own kind: compiling it takes 5 ms, and few texts need it.
_REFUSED = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_CONTROL = "remove control characters, or write them as \\x07 in double quotes"
_HINTS = {
    "mapping values are not allowed": "put a value that contains `: ` in quotes, and check the indentation",
    "could not find expected ':'": "a line is neither `key: value` nor further text of the value above",
    "did not find expected ',' or ']'": "a list in [ ] has commas between its items and ends with ]",
    "did not find expected ',' or '}'": "a map in { } has commas between its fields and ends with }",
    "did not find expected node content": "a value is missing here, or a bracket too much",
    "did not find expected key": "check indentation and quotes here and in the lines above",
    "cannot start any token": "put a value that starts with one of @ ` % & * ! | > in quotes",
    "special characters are not allowed": _CONTROL,
    "control characters are not allowed": _CONTROL,
}
_TEMPLATE = "put text that starts with `{{` in quotes; Helm's templates are rendered first: helm template"


class _Reader:
    """Builds the values of one text."""

    def __init__(self, text: str, source: str, with_positions: bool, *, is_yaml_1_2: bool = False) -> None:
        import yaml

        self._events = _Events(text, source)
        self._next = self._events.next
        self._source = source
        self._with_positions = with_positions
        self._positions: dict[KeyPath, Position] | None = None
        # What plain scalars mean, each looked up once.
        self._keys: dict[str, str] = {word: word for word in OLD_BOOLEANS} if is_yaml_1_2 else {}
        self._values: dict[str, Any] = dict(self._keys)
        self._anchors: dict[str, Any] = {}
        self._expanded = 0
        self._scalar, self._alias_event = yaml.ScalarEvent, yaml.AliasEvent
        self._mapping_start, self._mapping_end = yaml.MappingStartEvent, yaml.MappingEndEvent
        self._document_start, self._sequence_end = yaml.DocumentStartEvent, yaml.SequenceEndEvent

    def documents(self) -> Iterator[Document]:
        """Give the documents in order, empty ones included."""
        with self._events.translated():
            while (event := self._next()) is not None:
                if event.__class__ is self._document_start:
                    self._anchors, self._expanded = {}, 0
                    event = self._next()
                    line = event.start_mark.line + 1
                    self._positions = {(): _position(event)} if self._with_positions else None
                    yield Document(self._node(event, (), 0), line, self._positions or {})

    def _node(self, event: Any, path: KeyPath, depth: int) -> Any:
        """Build the value that begins with an event."""
        kind = event.__class__
        if kind is self._alias_event:
            if event.anchor not in self._anchors:
                self._fail(f"alias `*{event.anchor}` has no anchor `&{event.anchor}` before it", event)
            return self._copy(self._anchors[event.anchor], event)
        if kind is not self._scalar:
            if depth >= DEEPEST:
                self._fail(f"nested deeper than {DEEPEST} levels", event)
            if event.tag not in (None, "!", f"{_YAML_TAG}map", f"{_YAML_TAG}seq"):
                self._fail(f"unknown tag `{event.tag.replace(_YAML_TAG, '!!')}`", event)
            build = self._mapping if kind is self._mapping_start else self._sequence
            value = build(path, depth + 1)
        elif not event.implicit[0] or event.tag is not None:
            value = event.value if event.tag in (None, "!") else self._tagged(event)
            if event.style == '"' or event.tag is not None:
                self._check_carried(value, event)
        else:
            value = self._plain(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _sequence(self, path: KeyPath, depth: int) -> list[Any]:
        items: list[Any] = []
        positions = self._positions
        while (event := self._next()).__class__ is not self._sequence_end:
            inner = path
            if positions is not None:
                inner = (*path, len(items))
                positions[inner] = _position(event)
            items.append(self._node(event, inner, depth))
        return items

    def _mapping(self, path: KeyPath, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: set[str] = set()  # keys that came by `<<` and may be set once more
        next_event, scalar, positions, keys = self._next, self._scalar, self._positions, self._keys
        while (event := next_event()).__class__ is not self._mapping_end:
            if event.__class__ is not scalar:
                self._refuse_key(event)
            if event.implicit[0] and event.tag is None:
                key = keys.get(event.value) or self._plain_key(event)
            else:
                key = event.value if event.tag in (None, "!") else self._tagged_key(event)
                if event.style == '"' or event.tag is not None:
                    self._check_carried(key, event)
            if key in mapping and key is not _MERGE and key not in merged:
                self._fail(f"`{key}` is set twice", event, hint="keep one of them")
            inner = path
            if positions is not None:
                inner = (*path, key)
                positions[inner] = _position(event)
            event = next_event()
            value = self._node(event, inner, depth)
            if key is not _MERGE:
                mapping[key] = value
                continue
            # As in goyaml, keys that stand before `<<` are overridden; of several mappings the first wins.
            sources = value if isinstance(value, list) else [value]
            if not all(isinstance(source, dict) for source in sources):
                self._fail("`<<` takes a mapping or a list of mappings", event)
            for source in reversed(sources):
                mapping.update(source)
                merged |= source.keys()
        return mapping

    def _refuse_key(self, event: Any) -> NoReturn:
        if event.__class__ is self._alias_event:
            self._fail("an alias cannot be a key", event)
        start = event.start_mark.index  # what looks like a map inside a map may be `{{ … }}`
        is_template = self._events.text[max(start - 1, 0) : start + 1] == "{{"
        self._fail("a mapping or a list cannot be a key", event, hint=_TEMPLATE if is_template else None)

    def _plain(self, event: Any) -> Any:
        text = event.value
        if text not in self._values:
            try:
                self._values[text] = resolve_plain(text)
            except ValueError as error:
                self._fail(str(error), event)
        return self._values[text]

    def _plain_key(self, event: Any) -> str:
        if event.value == "<<":
            return _MERGE
        try:
            key = resolve_key(event.value)
        except ValueError as error:
            self._fail(f"{error}; kubectl takes only keys that can be strings", event)
        self._keys[event.value] = key
        return key

    def _check_carried(self, value: Any, event: Any) -> None:
        """Refuse what escapes and `!!binary` can bring into a text, and no writer could write again."""
        try:
            if isinstance(value, str):
                check_carried(value)
        except ValueError as error:
            self._fail(str(error), event, hint="remove it from the value")

    def _tagged(self, event: Any) -> Any:
        tag = event.tag
        if not tag.startswith(_YAML_TAG):
            self._fail(f"unknown tag `{tag}`", event)
        try:
            return resolve_tagged(tag.removeprefix(_YAML_TAG), event.value)
        except ValueError as error:
            self._fail(str(error), event)

    def _tagged_key(self, event: Any) -> str:
        value = self._tagged(event)
        return value if isinstance(value, str) else self._plain_key(event)

    def _copy(self, value: Any, event: Any) -> Any:
        """Copy what an alias stands for, so that no two parts of a value are one."""
        self._expanded += 1
        if self._expanded > LARGEST_EXPANSION:
            self._fail(f"aliases expand to more than {LARGEST_EXPANSION} values", event)
        if isinstance(value, dict):
            return {key: self._copy(item, event) for key, item in value.items()}
        return [self._copy(item, event) for item in value] if isinstance(value, list) else value

    def _fail(self, message: str, event: Any, *, hint: str | None = None) -> NoReturn:
        raise YamlError(message, where=f"{self._source}:{event.start_mark.line + 1}", hint=hint)


def _position(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)
