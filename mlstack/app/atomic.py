"""Every write of a file: a whole set of files or none, and each file the old one or the new one.

New content goes to a temporary file in the same folder, is flushed to the disk, and takes its place by one
rename. A file that is replaced is kept by a second link until the whole set stands. When anything fails,
what was done is undone. A power cut between two renames leaves some files new and some old, never half of
one; temporary files (`.<name>.<number>.tmp`) that it leaves behind harm nobody.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from mlstack.errors import ConfigError

_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space, then run the command again"),
    errno.EDQUOT: ("your disk quota is used up", "free some space, then run the command again"),
    errno.EROFS: ("the file system is read-only", "work on a copy in a folder that can be written"),
    errno.EACCES: ("permission denied", "check who may write to this folder and file"),
    errno.EPERM: ("permission denied", "check who may write to this folder and file"),
    errno.ENOTDIR: ("a file stands where a folder is needed", "move that file away"),
    errno.EISDIR: ("a folder stands in its place", "move that folder away"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter name"),
}
_LONGEST_NAME = 180  # of 255 bytes; the temporary name adds to it


def write_files(
    files: Mapping[Path, bytes | str], *, delete: Iterable[Path] = (), private: Collection[Path] = ()
) -> None:
    """Write a set of files and delete others: all of it, or none of it when something fails.

    Missing folders are made, the mode of an existing file is kept, a symbolic link is followed; files to
    delete that are not there are passed over. Text is written as UTF-8, with its own line ends. Nobody but
    the owner may read the `private` ones, whatever the mode of an existing file.

    Raises:
        ConfigError: the disk is full, the folder read-only, a folder in the way …; nothing was changed.
    """
    work = _Work()
    try:
        staged = [
            (work.stage(path, content, private=path in private), path) for path, content in files.items()
        ]
        for temporary, path in staged:
            work.put(temporary, path)
        for path in delete:
            work.remove(path)
        work.flush()
    except OSError as error:
        lost = work.undo()
        reason, hint = _REASONS.get(error.errno or 0, ((error.strerror or str(error)).lower(), None))
        result = f"`{lost[0]}` could not be put back" if lost else "nothing was changed"
        raise ConfigError(f"cannot write `{work.path}`: {reason}; {result}", hint=hint) from error
    except BaseException:  # Ctrl-C as well: nothing stays half done
        work.undo()
        raise
    try:
        work.clean_up()
    except KeyboardInterrupt:  # all is done: what was needed on the way goes first
        work.clean_up()
        raise


class _Work:
    """What was done so far, and how to undo it."""

    def __init__(self) -> None:
        self.path = Path()  # what is worked on, for messages
        self._undo: list[tuple[Path, Callable[[], object]]] = []
        self._leftovers: list[Path] = []
        self._made: list[Path] = []  # folders
        self._touched: dict[Path, None] = {}  # folders, in order

    def stage(self, path: Path, content: bytes | str, *, private: bool = False) -> Path:
        """Write new content beside a file and flush it to the disk."""
        self.path = path
        path = _followed(path)
        missing = [folder for folder in path.parents if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._made.append(folder)
            self._touched[folder.parent] = None
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        temporary = self._reserved(path)
        self._fill(temporary, content, None if private else _existing(path), mode=0o600 if private else 0o666)
        return temporary

    def put(self, temporary: Path, path: Path) -> None:
        """Let a staged file take its place."""
        self.path = path
        path = _followed(path)
        if _existing(path):
            copy = self._reserved(path)
            try:
                os.link(path, copy)
            except OSError:  # a file system without links
                self._fill(copy, path.read_bytes(), _existing(path))
            self._undo.append((path, partial(copy.replace, path)))
        else:
            self._undo.append((path, partial(path.unlink, missing_ok=True)))
        temporary.replace(path)
        self._touched[path.parent] = None

    def remove(self, path: Path) -> None:
        """Move a file or folder out of the way; it goes when the whole set stands."""
        self.path = path
        if not os.path.lexists(path):
            return
        copy = self._reserved(path)

        def move_back() -> None:
            if os.path.lexists(copy):  # else this step never came to pass
                copy.rename(path)

        self._undo.append((path, move_back))
        path.rename(copy)
        self._touched[path.parent] = None

    def flush(self) -> None:
        """Bring the names of all that was touched to the disk."""
        for folder in self._touched:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems flush no folders
                    raise
            finally:
                os.close(descriptor)
        self._touched = {}

    def undo(self) -> list[Path]:
        """Undo everything, last step first; give the files for which this failed."""
        failed = []
        for path, step in reversed(self._undo):
            try:
                step()
            except OSError:
                failed.append(path)
        if not failed:  # else a temporary file may be the last copy of something
            self.clean_up()
        for folder in reversed(self._made):
            with suppress(OSError):  # somebody else may have put something there
                folder.rmdir()
        return failed

    def clean_up(self) -> None:
        """Remove what was needed on the way."""
        for path in reversed(self._leftovers):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def _reserved(self, path: Path) -> Path:
        """Find a free name beside a path, and remember to clean it up."""
        stem = path.name.encode()[:_LONGEST_NAME].decode(errors="ignore")
        number = os.getpid()
        while os.path.lexists(reserved := path.with_name(f".{stem}.{number}.tmp")):
            number += 1
        self._leftovers.append(reserved)
        return reserved

    def _fill(
        self, path: Path, content: bytes | str, like: os.stat_result | None, *, mode: int = 0o666
    ) -> None:
        rest = memoryview(content.encode() if isinstance(content, str) else content)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            if like:
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
                with suppress(OSError):  # only root may give a file away
                    os.fchown(descriptor, like.st_uid, like.st_gid)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _followed(path: Path) -> Path:
    return path.resolve() if path.is_symlink() else path


def _existing(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
