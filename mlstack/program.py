"""What tells this program from any other: what it remembers between runs is for itself alone."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import mlstack

_LIBRARIES = ("jinja2", "yaml", "jsonschema")


@cache
def identity() -> str:
    """Give a hash of this program, its libraries and its interpreter; a change of a source is enough."""
    hashed = hashlib.blake2b(sys.version.encode(), digest_size=20)
    for file in (*_sources(str(Path(mlstack.__file__).parent)), *_libraries()):
        status = os.stat(file)  # noqa: PTH116 - there are some two hundred of them
        stamp = f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0"
        hashed.update(stamp.encode("utf-8", "surrogateescape"))
    return hashed.hexdigest()


def _sources(folder: str) -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry.path)
        elif not entry.name.endswith(".pyc"):
            yield entry.path


def _libraries() -> Iterator[str]:
    for name in _LIBRARIES:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            yield spec.origin
