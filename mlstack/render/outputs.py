"""What a render printed, remembered under the hash of everything it was made from.

A render reads the files of the app directory and nothing else, so these, the words of the command and the
program itself say what it prints. What does not look like an app's ordinary files is not remembered.
"""

from __future__ import annotations

import os
import stat
import time
from _blake2 import blake2b  # not from `hashlib`: see `disk_cache`
from collections.abc import Iterable, Sequence
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

    def get(self, key: str | None) -> tuple[str, bytes] | None:
        """Give what went to stderr and to stdout, if it is remembered."""
        stored = self._cache.get(key) if key else None
        notes, mark, data = (stored or b"").partition(b"\0")
        with suppress(UnicodeDecodeError):  # nothing that was stored here
            return (notes.decode("utf-8", "surrogatepass"), data) if mark else None
        return None

    def put(self, key: str | None, notes: str, data: bytes) -> None:
        """Remember what goes to stderr (which has no NUL) and to stdout.

        Ask for the key again after the work: files that changed meanwhile give another one.
        """
        stored = b"%b\0%b" % (notes.encode("utf-8", "surrogatepass"), data)
        if key and len(stored) <= LARGEST_BYTES:
            self._cache.put(key, stored)

    def _content(self) -> bytes:
        """Give a hash of the names and bytes of all files; of settled ones it is known by their stamps."""
        entries = self._entries()
        stamps, youngest_ns = [self._root], 0
        for name, facts in entries:
            stamps.append(name)
            if facts is not None:
                changed_ns = max(facts.st_mtime_ns, facts.st_ctime_ns)
                youngest_ns = max(youngest_ns, changed_ns)
                stamps.append(f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}")
        is_settled = youngest_ns < self._settled_ns
        key = f"content:{_digest(_bytes(stamp) for stamp in stamps)}"
        known = self._cache.get(key) if is_settled else None
        if known is None:
            parts = []
            for name, facts in entries:
                parts.append(_bytes(name))
                if facts is not None:
                    parts.append(_read(self._root + name, facts.st_size))
            known = _digest(parts).encode()
            if is_settled:
                self._cache.put(key, known)
        return known

    def _entries(self) -> list[tuple[str, os.stat_result | None]]:
        """Give files with what the system knows of them, and folders; what is not there is left out."""
        entries: list[tuple[str, os.stat_result | None]] = []
        for name in (f"/{layout.APP_FILE}", f"/{layout.LOCK_FILE}", f"/{layout.OVERRIDES}"):
            with suppress(FileNotFoundError):
                entries.append((name, _ordinary(os.lstat(self._root + name))))
        for name in (layout.COMPONENTS, layout.ENVIRONMENTS, layout.VENDOR):
            self._add_below(f"{self._root}/{name}", entries)
        return entries

    def _add_below(self, folder: str, entries: list[tuple[str, os.stat_result | None]]) -> None:
        listed: list[os.DirEntry[str]] = []
        with suppress(FileNotFoundError):
            listed = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in listed:
            name = entry.path[len(self._root) :]
            if entry.is_dir(follow_symlinks=False):
                entries.append((f"{name}/", None))
                self._add_below(entry.path, entries)
            else:
                entries.append((name, _ordinary(entry.stat(follow_symlinks=False))))


def _ordinary(facts: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_BYTES:
        raise OSError("this is no ordinary file: a link may lead anywhere")
    return facts


def _read(path: str, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, size + 1)
    finally:
        os.close(descriptor)
    if len(data) != size:
        raise OSError("the file has changed since its size was asked for")
    return data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _digest(parts: Iterable[bytes]) -> str:
    hashed = blake2b(digest_size=32)
    hashed.update(b"".join([b"%d:%b" % (len(part), part) for part in parts]))
    return hashed.hexdigest()
