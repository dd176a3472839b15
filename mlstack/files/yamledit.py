"""Change one value of a person's YAML file in place: every other byte stays as it is.

The value is replaced by its position in the text, so comments, order, quotes, line ends, indentation and
brackets of the rest cannot change, whatever style the file is written in (a library that loads and writes
the file again brings its own style with it). Afterwards the result is read: if anything but the edited
value differs, the edit is refused.

How the text is made is in `yamlsplice`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from mlstack.errors import ConfigError, YamlError
from mlstack.files.yamlread import read_documents
from mlstack.files.yamlsplice import BY_HAND, Edit, Path, value_at


def has_value(text: str, path: Path, *, source: str) -> bool:
    """Tell whether a text sets a value at a path, be it null.

    Raises:
        YamlError: the text is broken or holds several documents.
    """
    return _found(_read(text, source), path)


def set_value(text: str, path: Path, value: Any, *, source: str) -> str:
    """Set one value; missing parents are made, lists are replaced whole.

    Args:
        text: the file's text.
        path: keys of mappings and indices of lists from the root; not empty.
        value: plain value.
        source: name of the file, for messages.

    Raises:
        YamlError: the text is broken or holds several documents.
        ConfigError: a parent is no mapping, or the edit would change something else.
        ValueError: the value cannot be written.
    """
    before = _read(text, source)
    if _found(before, path) and _same(value_at(before, path), value):
        return text
    wanted = _with(before, path, value, text, source)
    edit = Edit(text, source)
    versions = chain(_merged(edit, path, value), edit.versions(path, value))
    return _checked(versions, wanted, path, source)


def unset_value(text: str, path: Path, *, source: str) -> str:
    """Remove one value with its key, and the parents that it leaves empty; absent ones change nothing.

    Args:
        text: the file's text.
        path: keys of mappings from the root; not empty.
        source: name of the file, for messages.

    Raises:
        YamlError: the text is broken or holds several documents.
        ConfigError: the edit would change something else.
    """
    before = _read(text, source)
    if not _found(before, path):
        return text
    after, wanted = Edit(text, source).without(path, before)
    return _checked([after], wanted, path, source)


def _merged(edit: Edit, path: Path, value: Any) -> Iterator[str]:
    """Set a mapping key by key, so that the comments in it stay."""
    steps = edit.steps(path)
    old = steps[-1].node if len(steps) == len(path) else None
    if not (old and old.entries and isinstance(value, dict) and value):
        return
    text = edit.text
    try:
        for key, item in value.items():
            text = set_value(text, [*path, key], item, source=edit.source)
        for entry in old.entries:
            if entry.name not in value:
                text = unset_value(text, [*path, entry.name], source=edit.source)
    except ConfigError:
        return
    yield text


def _checked(versions: Iterable[str], wanted: Any, path: Path, source: str) -> str:
    """Give the first version that reads as wanted."""
    for version in versions:
        try:
            if _same(_read(version, source), wanted):
                return version
        except YamlError:
            continue
    name = ".".join(map(str, path))
    raise ConfigError(
        f"`{name}` cannot be changed without changing something else", where=source, hint=BY_HAND
    )


# ------------------------------------------------------------------------------------------------- values


def _read(text: str, source: str) -> Any:
    documents = read_documents(text, source=source)
    if len(documents) > 1:
        raise YamlError(
            f"the file holds {len(documents)} documents, expected one", where=f"{source}:{documents[1].line}"
        )
    return documents[0].value if documents else None


def _found(value: Any, path: Path) -> bool:
    for step in path:
        if isinstance(value, dict):
            if step not in value:
                return False
        elif not (isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)):
            return False
        value = value[step]
    return True


def _same(one: Any, other: Any) -> bool:
    """Compare values as they are read back: `1` is `1.0`, but not `true` or `"1"`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        kinds = {type(one), type(other)}
        return kinds <= {int, float} and float(one) == float(other)
    return type(one) is type(other) and bool(one == other)


def _with(before: Any, path: Path, value: Any, text: str, source: str) -> Any:
    """Give what the file must read after a value was set."""
    if not path:
        raise ValueError("the path of a value is empty")
    top = {"": copy.deepcopy(before)}
    holder: Any = top
    last: str | int = ""
    for number, step in enumerate(path):
        inner = holder[last]
        if inner is None and isinstance(step, str):
            inner = holder[last] = {}
        if not isinstance(inner, dict if isinstance(step, str) else list) or (
            isinstance(step, int) and not 0 <= step < len(inner)
        ):
            name = ".".join(map(str, path[:number])) or "the file"
            places = [
                one.position(path[:number])
                for one in read_documents(text, source=source, with_positions=True)
            ]
            where = f"{source}:{places[0].line}" if places else source
            raise ConfigError(f"`{name}` holds nothing to set `{step}` in", where=where, hint=BY_HAND)
        if isinstance(inner, dict):
            inner.setdefault(step, None)
        holder, last = inner, step
    holder[last] = value
    return top[""]
