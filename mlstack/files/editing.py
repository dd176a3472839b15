"""What all changes of an app share: one lock from reading to writing, and files that are written together."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.errors import ConfigError
from mlstack.files import atomic, layout
from mlstack.model import emit
from mlstack.model.app import API_VERSION, App, Component, Lock, Manifest

if TYPE_CHECKING:
    from filelock import SoftFileLock

    from mlstack.files.appread import AppFiles
    from mlstack.files.edited import EditedFile
    from mlstack.model.prototype import Param, Prototype

LOCK_WAIT_S = 30.0
"""How long an edit waits for one other edit; whoever holds the lock longer has stopped or asks a person."""
_POLL_S = 0.02


class Editing:
    """The base of the classes that change an app; `AppDir` joins them."""

    root: Path
    _is_locked = False

    if TYPE_CHECKING:  # what the edits need of the reading side

        @property
        def files(self) -> AppFiles:
            """Give the reader of the app's files."""

        def app(self) -> App:
            """Give what `app.yaml` says."""

        def lock(self) -> Lock:
            """Give what `mlstack.lock` says."""

        def component(self, name: str) -> Component | Manifest:
            """Give the component of a full name."""

        def prototype(self, name: str, *, where: str | None = None) -> Prototype:
            """Find a prototype."""

        def declared_params(self) -> Mapping[str, Param]:
            """Give every spelling that an installed prototype declares."""

        def forget(self) -> None:
            """Read every file anew from now on."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other command from editing the app; what was read before is read anew.

        Whoever edits holds it from reading to writing. It may be entered again inside.

        Raises:
            ConfigError: another command has been editing the app for `LOCK_WAIT_S`.
        """
        if self._is_locked:
            yield
            return
        self.app()  # before there is a lock: in a folder of something else nothing is written
        with app_lock(self.root):
            self.forget()
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def write(self, files: Mapping[str, bytes | str], delete: Sequence[str] = ()) -> None:
        """Write and delete files below the app directory, all of them or none.

        Raises:
            ConfigError: the disk is full, the folder read-only …; nothing was changed.
        """
        contents = {self.root / file: content for file, content in files.items()}
        atomic.write_files(contents, delete=[self.root / file for file in delete])
        self.forget()

    def edited(self, file: str, kind: str) -> EditedFile:
        """Begin to edit a file of a kind; one that is not there begins with its kind alone.

        Raises:
            SchemaError: it does not fit its kind.
            YamlError: it is no YAML.
        """
        from mlstack.files.edited import EditedFile

        data = self.files.bytes(file)
        if data is None:
            start = emit.to_yaml({"apiVersion": API_VERSION, "kind": kind})
            return EditedFile(file, start)
        self.files.document(file, kind)
        return EditedFile.of(file, data)

    def save(self, edited: EditedFile) -> bool:
        """Write an edited file when it changed; tell whether it did."""
        if not edited.changed:
            return False
        self.write({edited.file: edited.content})
        return True


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
        try:
            if self._made and not (self._root / layout.APP_FILE).exists():
                self._leave_no_trace()
        finally:
            marker, descriptor, self._marker, self._descriptor = self._marker, self._descriptor, None, None
            if marker is not None:
                marker.release()
            if descriptor is not None:
                os.close(descriptor)

    def _leave_no_trace(self) -> None:
        from filelock import lock_descriptor

        with suppress(OSError):  # somebody else may have put something there
            if self._descriptor is None or lock_descriptor(self._descriptor, blocking=False):
                self._path.unlink(missing_ok=True)
                self._path.with_name(".gitignore").unlink(missing_ok=True)
                for folder in self._made:
                    folder.rmdir()

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
            missing = [each for each in (self._path.parent, *self._path.parent.parents) if not each.exists()]
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
        return ConfigError(
            f"{holder} has been editing this app for {LOCK_WAIT_S:.0f} s; nothing was changed",
            where=str(self._path),
            hint=f"wait for it or end it, then try again: {look}{leftover}",
        )

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
