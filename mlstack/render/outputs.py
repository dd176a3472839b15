"""What a render printed, remembered under the hash of everything it was made from.

A render reads the files of the app directory and nothing else, so these, the words of the command and the
program itself say what it prints. What does not look like an app's ordinary files is not remembered.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlstack import program
from mlstack.app import layout
from mlstack.disk_cache import Cache

LARGEST_BYTES = 32 * 1024 * 1024
"""Longer outputs are not remembered: a few of them would drive out all the rest."""
SETTLED_S = 2.0
"""From this age on a file's inode, size and times stand for its content: no later change can leave them as
they are. Younger files are read, as a clock may tick only every few milliseconds, or every second."""


class Outputs:
    """The outputs of one app directory, kept in `cache`."""

    def __init__(self, root: Path, cache: Cache) -> None:
        self._root, self._cache = str(root), cache
        self._settled_ns = time.time_ns() - int(SETTLED_S * 1e9)

    def key(self, words: Sequence[str]) -> str | None:
        """Give the name of what a command, in one spelling, prints for the app as it is now, if any."""
        hashed = hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=32)
        try:
            for part in (program.identity().encode(), *self._content()):
                hashed.update(len(part).to_bytes(8, "big") + part)
        except OSError:
            return None
        return f"output:{hashed.hexdigest()}"

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

    def _content(self) -> Iterator[bytes]:
        for name in (layout.APP_FILE, layout.LOCK_FILE):
            try:
                yield self._stamp(f"{self._root}/{name}", os.lstat(f"{self._root}/{name}"))
            except FileNotFoundError:
                yield b""
        for name in (layout.COMPONENTS, layout.ENVIRONMENTS, layout.VENDOR):
            yield from self._below(f"{self._root}/{name}")

    def _below(self, folder: str) -> Iterator[bytes]:
        """Give names and stamps of what a folder holds; one that is not there has nothing."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            name = entry.path[len(self._root) :].encode("utf-8", "surrogateescape")
            if entry.is_dir(follow_symlinks=False):
                yield name + b"/"
                yield from self._below(entry.path)
            else:
                yield name
                yield self._stamp(entry.path, entry.stat(follow_symlinks=False))

    def _stamp(self, path: str, facts: os.stat_result) -> bytes:
        """Give what stands for a file's content.

        Raises:
            OSError: it is no ordinary file: a link may lead anywhere.
        """
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_BYTES:
            raise OSError(f"`{path}` is no ordinary file")
        if max(facts.st_mtime_ns, facts.st_ctime_ns) < self._settled_ns:
            return b"%d %d %d %d" % (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        return b"\0" + Path(path).read_bytes()
