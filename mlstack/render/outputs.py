"""What a render printed, remembered under the hash of everything it was made from.

A render reads the files of the app directory and nothing else, so these, the words of the command and the
program itself say what it prints. What does not look like an app's ordinary files is not remembered.
"""

from __future__ import annotations

import os
import stat
import time
from _blake2 import blake2b  # not from `hashlib`: see `disk_cache`
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from mlstack import disk_cache
from mlstack.app import layout
from mlstack.disk_cache import Cache

LARGEST_BYTES = 32 * 1024 * 1024
"""Longer outputs are not remembered: a few of them would drive out all the rest."""
SETTLED_S = 2.0
"""From this age on a file's inode, size and times stand for its content: no later change can leave them as
they are. While a file is younger all are read, as a clock may tick only every few milliseconds or seconds."""


class Outputs:
    """The outputs of one app directory, kept in `cache`."""

    def __init__(self, root: str | os.PathLike[str], cache: Cache) -> None:
        self._root, self._cache = os.fspath(root), cache
        self._settled_ns = time.time_ns() - int(SETTLED_S * 1e9)

    def key(self, words: Sequence[str]) -> str | None:
        """Give the name of what a command, in one spelling, prints for the app as it is now, if any."""
        try:
            parts = [
                "\0".join(words).encode("utf-8", "surrogatepass"),
                disk_cache.program_identity().encode(),
            ]
            return f"output:{_digest([*parts, self._content()])}"
        except OSError:
            return None

    def get(self, key: str | None) -> tuple[str, str] | None:
        """Give what went to stderr and to stdout, if it is remembered."""
        data = self._cache.get(key) if key else None
        try:
            notes, mark, text = (data or b"").decode("utf-8", "surrogatepass").partition("\0")
        except UnicodeDecodeError:  # nothing that was stored here
            return None
        return (notes, text) if mark else None

    def put(self, key: str | None, notes: str, text: str) -> None:
        """Remember what goes to stderr (which has no NUL) and to stdout.

        Ask for the key again after the work: files that changed meanwhile give another one.
        """
        data = f"{notes}\0{text}".encode("utf-8", "surrogatepass")
        if key and len(data) <= LARGEST_BYTES:
            self._cache.put(key, data)

    def _content(self) -> bytes:
        """Give a hash of the names and bytes of all files; of settled ones it is known by their stamps."""
        names, stamps, is_settled = [], [self._root.encode("utf-8", "surrogateescape")], True
        for path, facts in self._entries():
            names.append(path if facts is not None else f"{path}/")
            stamps.append(names[-1].encode("utf-8", "surrogateescape"))
            if facts is not None:
                times = (facts.st_mtime_ns, facts.st_ctime_ns)
                stamps.append(b"%d %d %d %d" % (facts.st_ino, facts.st_size, *times))
                is_settled = is_settled and max(times) < self._settled_ns
        key = f"content:{_digest(stamps)}"
        known = self._cache.get(key) if is_settled else None
        if known is None:
            parts = []
            for name in names:
                parts.append(name.encode("utf-8", "surrogateescape"))
                if not name.endswith("/"):
                    with open(self._root + name, "rb", buffering=0) as file:  # noqa: PTH123
                        parts.append(file.read())
            known = _digest(parts).encode()
            if is_settled:
                self._cache.put(key, known)
        return known

    def _entries(self) -> Iterator[tuple[str, os.stat_result | None]]:
        """Give files with what the system knows of them, and folders; what is not there is left out."""
        for name in (f"/{layout.APP_FILE}", f"/{layout.LOCK_FILE}", f"/{layout.OVERRIDES}"):
            with suppress(FileNotFoundError):
                yield name, _ordinary(os.lstat(self._root + name))
        for name in (layout.COMPONENTS, layout.ENVIRONMENTS, layout.VENDOR):
            yield from self._below(f"{self._root}/{name}")

    def _below(self, folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
        entries: list[os.DirEntry[str]] = []
        with suppress(FileNotFoundError):
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            yield (
                entry.path[len(self._root) :],
                None if is_folder else _ordinary(entry.stat(follow_symlinks=False)),
            )
            if is_folder:
                yield from self._below(entry.path)


def _ordinary(facts: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_BYTES:
        raise OSError("this is no ordinary file: a link may lead anywhere")
    return facts


def _digest(parts: Iterable[bytes]) -> str:
    hashed = blake2b(digest_size=32)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()
