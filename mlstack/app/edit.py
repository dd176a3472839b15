"""How files of an app are edited: under one lock, value by value, then all files are written or none."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.app import layout
from mlstack.app.params import at
from mlstack.errors import ConfigError, YamlError
from mlstack.yaml import write
from mlstack.yaml.read import KeyPath, read_document

if TYPE_CHECKING:
    from filelock import SoftFileLock

LOCK_WAIT_S = 30.0
"""How long an edit waits for one other edit; whoever holds the lock longer has stopped or asks a person."""
_POLL_S = 0.02


@contextmanager
def app_lock(root: Path) -> Iterator[None]:
    """Hold the one lock of an app directory until the end of the block.

    An advisory lock of the operating system on `.mlstack/lock`, which the kernel frees however its holder
    ends. It lies in the app, since that is all that two users, or two machines on a network folder, have in
    common; git ignores it. It is never removed: some would wait for the old file while others hold a new one.
    Where the folder cannot be written, the folder itself is locked (on this machine alone); where the file
    system knows no locks, a file that is there while somebody edits takes their place. A folder that does
    not become an app inside the block is left as it was.

    Raises:
        ConfigError: another command has been editing the app for `LOCK_WAIT_S`, or what stands in the place
            of the lock is no file of ours.
    """
    lock = _AppLock(root)
    try:
        lock.acquire()
        yield
    finally:
        lock.release()


class _AppLock:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / layout.APP_LOCK
        self._made: list[Path] = []  # folders, the innermost first
        self._descriptor: int | None = None
        self._marker: SoftFileLock | None = None

    def acquire(self) -> None:
        """Wait for the lock: up to `LOCK_WAIT_S` for each holder, so that a long queue comes to its end."""
        holder, since_s = self._holder(), time.monotonic()
        while not self._take():
            if self._holder() != holder:
                holder, since_s = self._holder(), time.monotonic()
            if time.monotonic() - since_s > LOCK_WAIT_S:
                raise self._refusal()
            time.sleep(_POLL_S)
        if self._descriptor is not None:
            with suppress(OSError):  # it only names us to those who wait
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n{os.uname().nodename}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back, or what was opened for it; whatever happens on the way."""
        from filelock import lock_descriptor

        try:
            if not self._made or (self._root / layout.APP_FILE).exists():
                return
            with suppress(OSError):  # somebody else may have put something there
                if self._descriptor is None or lock_descriptor(self._descriptor, blocking=False):
                    self._path.unlink(missing_ok=True)
                    self._path.with_name(".gitignore").unlink(missing_ok=True)
                    for folder in self._made:
                        folder.rmdir()
        finally:
            marker, descriptor, self._marker, self._descriptor = self._marker, self._descriptor, None, None
            if marker is not None:
                marker.release()
            if descriptor is not None:
                os.close(descriptor)

    def _take(self) -> bool:
        from filelock import lock_descriptor

        if self._marker is not None:
            return self._take_marker()
        if self._descriptor is None:
            self._descriptor = self._opened()
        if self._descriptor is None:
            return True  # nothing here can be opened: whoever tries to write will be told why
        try:
            is_ours = lock_descriptor(self._descriptor, blocking=False)
        except OSError:  # ENOLCK, ENOTSUP, EBADF …: this file system knows no such locks
            return self._take_marker()
        if is_ours and not os.fstat(self._descriptor).st_nlink:  # it was removed: lock what stands there now
            self.release()
            return False
        return is_ours

    def _take_marker(self) -> bool:
        from filelock import SoftFileLock, Timeout

        if self._marker is None:
            self._marker = SoftFileLock(f"{self._path}.held")
        try:
            self._marker.acquire(blocking=False)
        except Timeout:
            return False
        except OSError:  # it cannot be made: whoever tries to write will be told why
            self._marker = None
        return True

    def _opened(self) -> int | None:
        for path in (self._path.parent, self._path):
            if path.is_symlink() or (path == self._path and path.exists() and not path.is_file()):
                message = "the lock of the app must be a plain file in a folder of its own"
                raise ConfigError(message, where=str(path), hint="remove what stands there")
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError):
            folders = (self._path.parent, *self._path.parent.parents)
            missing = [folder for folder in folders if not folder.exists()]
            for folder in reversed(missing):
                self._made.insert(0, folder)
                folder.mkdir(exist_ok=True)
            with suppress(OSError), self._path.with_name(".gitignore").open("x") as ignored:
                ignored.write("*\n")
            return os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        for path in (self._path, self._root):  # another user's lock, or a folder that only can be read
            with suppress(OSError):
                return os.open(path, os.O_RDONLY | flags)
        return None

    def _refusal(self) -> ConfigError:
        # A folder may be anybody's: only what we would have written ourselves is repeated.
        known = re.match(r"(\d{1,10})\n([\w.-]{1,64})\n", self._holder()[0], re.ASCII)
        holder = f"process {known[1]} on {known[2]}" if known else "another command"
        look = f"`ps -fp {known[1]}` shows it" if known else "look which mlstack runs there"
        leftover = f"; after a crash on another machine remove {self._path}.held" if self._marker else ""
        message = f"{holder} has been editing this app for {LOCK_WAIT_S:.0f} s; nothing was changed"
        hint = f"wait for it or end it, then try again: {look}{leftover}"
        return ConfigError(message, where=str(self._path), hint=hint)

    def _holder(self) -> tuple[str, int]:
        """Give what the holder wrote about itself, and when; both empty where that cannot be read."""
        path = f"{self._path}.held" if self._marker is not None else self._path
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return os.read(descriptor, 200).decode(errors="replace"), os.fstat(descriptor).st_mtime_ns
            finally:
                os.close(descriptor)
        return "", 0


class EditedFile:
    """The text of a file below the app directory, and what became of it; a new file starts with its kind."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self._before = text
        self._value: Any = None
        self._value_of: str | None = None

    @property
    def changed(self) -> bool:
        """Tell whether the text is another than the file's."""
        return self.text != self._before

    @property
    def value(self) -> Any:
        """Give the whole value as it is now."""
        if self._value_of != self.text:
            self._value = read_document(self.text, source=self.file, with_positions=False).value
            self._value_of = self.text
        return self._value

    def at(self, path: KeyPath) -> Any:
        """Give the value at a path; None where nothing stands."""
        return at(self.value, path)

    def actual_path(self, path: Sequence[str | int]) -> KeyPath:
        """Give a path as typed with the keys that stand for items of a list as numbers."""
        actual: KeyPath = ()
        for part in path:
            is_index = isinstance(part, str) and part.isdigit() and isinstance(self.at(actual), list)
            actual = (*actual, int(part) if is_index else part)
        return actual

    def set(self, path: KeyPath, value: Any) -> None:
        """Set a value; missing maps around it are made, the index behind the last adds an item."""
        if isinstance(path[-1], int) and path[-1] == len(self.at(path[:-1]) or ()):
            self.append(path[:-1], value)
            return
        self.set_all({path: value})

    def set_all(self, values: Mapping[KeyPath, Any]) -> None:
        """Set values by their paths, without adding items to lists; many take little longer than one."""
        from mlstack.yaml import edit

        self.text = edit.set_values(self.text, values, source=self.file)

    def unset(self, path: KeyPath) -> bool:
        """Remove a value with its key, an item from its list; tell whether it was there."""
        *around, last = path
        owner, before = tuple(around), self.text
        if not isinstance(last, int):
            from mlstack.yaml import edit

            self.text = edit.unset_value(before, path, source=self.file)
        elif (items := self.at(owner)) and isinstance(items, list) and last < len(items):
            self.remove(owner, last) if items[1:] else self.unset(owner)
        return self.text != before

    def unset_all(self, path: KeyPath, keys: Collection[str]) -> None:
        """Remove keys of a map, at one reading; with the last one goes what holds nothing else."""
        value = self.at(path) or {}
        if kept := {key: item for key, item in value.items() if key not in keys}:
            self.set(path, kept)
        elif value:
            first = next(iter(value))
            self.set(path, {first: value[first]})
            self.unset((*path, first))

    def update(self, path: KeyPath, changes: Mapping[str, Any]) -> None:
        """Set keys of a map; None takes one out."""
        for key, value in changes.items():
            if value is None:
                self.unset((*path, key))
            else:
                self.set((*path, key), value)

    def rename(self, path: KeyPath, key: str) -> bool:
        """Give a key another name, where it stands; tell whether it was there."""
        value = self.at(path[:-1])
        if not isinstance(value, dict) or path[-1] not in value:
            return False
        old, place = str(path[-1]), read_document(self.text, source=self.file).position(path)
        lines = self.text.splitlines(keepends=True)
        line, column = lines[place.line - 1], place.column - 1
        mark = line[column : column + 1] if line[column : column + 1] in ('"', "'") else ""
        if line[column:].startswith(f"{mark}{old}{mark}"):
            behind = line[column + len(old) + 2 * len(mark) :]
            lines[place.line - 1] = f"{line[:column]}{mark}{key}{mark}{behind}"
            if self._keep("".join(lines), path[:-1], {key if k == old else k: v for k, v in value.items()}):
                return True
        self.set((*path[:-1], key), value[old])  # an anchor or a tag stands before it
        return self.unset(path)

    def drop(self, path: KeyPath, is_gone: Callable[[Any], bool]) -> None:
        """Take items out of a list, and the list itself when nothing is left of it."""
        items = self.at(path) or []
        if gone := [number for number, item in enumerate(items) if is_gone(item)]:
            self.remove(path, *gone) if len(gone) < len(items) else self.unset(path)

    def append(self, path: KeyPath, item: Any) -> None:
        """Add an item to a list; comments between its items stay where the list is written in lines."""
        before = self.at(path) or []
        after = [*before, item]
        if before:
            lines, [(first, end)] = self._item_lines(path, [len(before) - 1])
            indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
            added = [f"{indent}{line}" for line in write.to_yaml([item]).splitlines(keepends=True)]
            ending = [] if lines[end - 1].endswith("\n") else ["\n"]
            if self._keep("".join([*lines[:end], *ending, *added, *lines[end:]]), path, after):
                return
        self.set(path, after)

    def remove(self, path: KeyPath, *gone: int) -> None:
        """Take items out of a list; comments between the others stay where it is written in lines."""
        after = [item for number, item in enumerate(self.at(path)) if number not in gone]
        if after:
            lines, spans = self._item_lines(path, gone)
            for first, end in reversed(spans):
                del lines[first:end]
            if self._keep("".join(lines), path, after):
                return
        self.set(path, after)

    def _item_lines(self, path: KeyPath, items: Sequence[int]) -> tuple[list[str], list[tuple[int, int]]]:
        """Give the text's lines, and of items the first line and the one behind the last, from 0."""
        document = read_document(self.text, source=self.file)
        lines, spans, depth = self.text.splitlines(keepends=True), list[tuple[int, int]](), len(path) + 1
        begins = [*sorted({place.line - 1 for place in document.positions.values()}), len(lines)]
        last = {full[:depth]: place.line - 1 for full, place in document.positions.items()}
        for item in items:
            first, end = document.position((*path, item)).line - 1, begins[bisect(begins, last[*path, item])]
            while end > first + 1 and lines[end - 1].lstrip()[:1] in ("", "#"):
                end -= 1
            spans.append((first, end))
        return lines, spans

    def _keep(self, text: str, path: KeyPath, value: Any) -> bool:
        """Take a text over if it reads `value` at the path, and everything else in it as before."""
        after = EditedFile(self.file, text)
        try:
            if after.at(path) != value or _without(after.value, path) != _without(self.value, path):
                return False
        except YamlError:
            return False
        self.text = text
        return True


def changed_texts(edits: Iterable[EditedFile]) -> dict[str, str]:
    """Give the texts of those files that changed, as they are written."""
    return {edited.file: edited.text for edited in edits if edited.changed}


def _without(value: Any, path: KeyPath) -> Any:
    """Give a value with nothing at a path."""
    if not path:
        return None
    if isinstance(value, dict) and path[0] in value:
        return {**value, path[0]: _without(value[path[0]], path[1:])}
    return value


# --- every write: a whole set of files or none, and each file the old one or the new one ---
#
# New content goes to a temporary file in the same folder, is flushed to the disk, and takes its place by one
# rename. A file that is replaced is kept by a second link until the whole set stands. When anything fails,
# what was done is undone. A power cut between two renames leaves some files new and some old, never half of
# one; temporary files (`.<name>.<number>.tmp`) that it leaves behind harm nobody.

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
        staged = [(work.stage(path, data, private=path in private), path) for path, data in files.items()]
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
