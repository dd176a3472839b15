"""What templates write: values that stay values, and text that goes out as it is."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from mlstack.model import emit


class Raw(str):
    """Text of a template, written as it is; every other string is a value."""

    __slots__ = ()


def check_plain(value: Any, path: str) -> None:
    """Refuse what is no plain value: templates could reach anything through the attributes of an object.

    Raises:
        TypeError: `value`, which stands at `path`, is or holds something else.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None or kind is float:
        return
    if kind is dict or (isinstance(value, Mapping) and not path):
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"the key {key!r} of `{path}` is no string")
            check_plain(item, f"{path}.{key}" if path else key)
    elif kind is list:
        for item in value:
            check_plain(item, path)
    else:
        raise TypeError(f"`{path}` is a {kind.__name__}, templates take plain values only")


def scalar(value: Any) -> str:
    """Write a value on one line, in flow style."""
    return Raw(emit.to_flow(value))


def to_yaml(value: Any, indent: int = 0) -> str:
    """Write a value in block style; every line starts `indent` spaces further right."""
    lines = emit.to_yaml(value)[:-1].split("\n")
    return Raw("\n".join(f"{' ' * indent}{line}" if line else "" for line in lines))


def sha256(text: str) -> str:
    """Give the SHA-256 of a text's UTF-8 bytes in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def b64(text: str) -> str:
    """Give the Base64 form of a text's UTF-8 bytes."""
    return b64encode(text.encode()).decode("ascii")


def keeping(rewrite: Callable[..., str]) -> Callable[..., str]:
    """Let a filter on text of a template give text of a template."""

    def kept(text: str, *args: Any, **options: Any) -> str:
        found = rewrite(text, *args, **options)
        return Raw(found) if isinstance(text, Raw) else found

    return kept
