"""What a render printed, remembered under the hash of everything it was made from.

A render reads the files of the app directory and nothing else, so their content, the words of the command and
the program itself say what it prints. What does not look like an app's ordinary files is not remembered.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlstack import program
from mlstack.app import layout
from mlstack.disk_cache import Cache

LARGEST_BYTES = 32 * 1024 * 1024
"""Longer outputs are not remembered: a few of them would drive out all the rest."""
_FILES = (layout.APP_FILE, layout.LOCK_FILE)
_FOLDERS = (layout.COMPONENTS, layout.ENVIRONMENTS, layout.VENDOR)


class Outputs:
    """The outputs of one app directory.

    Args:
        root: the app directory.
        cache: where they are remembered.
    """

    def __init__(self, root: Path, cache: Cache) -> None:
        """Hold the places; nothing is read."""
        self._root = root
        self._cache = cache

    def key(self, words: Sequence[str]) -> str | None:
        """Give the name of what a command prints for the app as it is now; None when it has none.

        Args:
            words: the command, in one spelling.
        """
        hashed = hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=32)
        try:
            for part in (program.identity().encode(), *_content(self._root)):
                hashed.update(len(part).to_bytes(8, "big") + part)
        except OSError:
            return None
        return f"output:{hashed.hexdigest()}"

    def get(self, key: str | None) -> tuple[str, str] | None:
        """Give what went to stderr and to stdout, if it is remembered."""
        data = self._cache.get(key) if key else None
        if data is None:
            return None
        try:
            told, mark, text = data.decode("utf-8", "surrogatepass").partition("\0")
        except UnicodeDecodeError:  # nothing that was stored here
            return None
        return (told, text) if mark else None

    def put(self, key: str | None, told: str, text: str) -> None:
        """Remember what goes to stderr and to stdout.

        Args:
            key: asked for again after the work: files that changed meanwhile gave another one.
            told: for stderr; without NUL, as every text that people are told.
            text: for stdout.
        """
        data = f"{told}\0{text}".encode("utf-8", "surrogatepass")
        if key and len(data) <= LARGEST_BYTES:
            self._cache.put(key, data)


def _content(root: Path) -> Iterator[bytes]:
    for name in _FILES:
        file = root / name
        if file.exists() and not _is_small_file(file.stat()):
            raise OSError(f"`{file}` is no ordinary file")
        yield (file.read_bytes() if file.exists() else b"")
    for name in _FOLDERS:
        for path in sorted(_files_below(str(root / name))):
            yield path[len(str(root)) :].encode("utf-8", "surrogateescape")
            if not path.endswith(os.sep):
                yield Path(path).read_bytes()


def _is_small_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_BYTES


def _files_below(folder: str) -> Iterator[str]:
    """Give files, and folders with a slash behind them; a folder that is not there has none.

    Raises:
        OSError: something there is neither file nor folder: a link may lead anywhere.
    """
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield entry.path + os.sep
            yield from _files_below(entry.path)
        elif _is_small_file(entry.stat(follow_symlinks=False)):
            yield entry.path
        else:
            raise OSError(f"`{entry.path}` is no ordinary file")
