"""Read a folder that others wrote: regular files inside it, within limits, in a stable order."""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from mlstack.errors import ConfigError

MAX_FILES = 2000
MAX_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 32
LIMITS = f"{MAX_FILES} files and {MAX_BYTES // 1024 // 1024} MiB"


def read_folder(folder: Path, *, source: str = "") -> dict[PurePosixPath, bytes]:
    """Read all files below a folder by relative path; names that start with `.` are left out.

    Links to files are followed as long as they stay inside the folder. Sizes are asked for before anything
    is read.

    Args:
        folder: where to read.
        source: what messages call it; its path when empty.

    Raises:
        ConfigError: a link leaves the folder, a name cannot be shown, something cannot be read, or there is
            more than `MAX_FILES`, `MAX_BYTES` or `MAX_DEPTH`.
    """
    source = source or str(folder)
    try:
        paths = list(islice(_files(folder, folder.resolve(), source), MAX_FILES + 1))
        if len(paths) > MAX_FILES or sum(path.stat().st_size for path in paths) > MAX_BYTES:
            raise ConfigError(f"the folder holds more than {LIMITS}", where=source)
        found = {PurePosixPath(path.relative_to(folder).as_posix()): read_file(path) for path in paths}
    except OSError as error:
        raise ConfigError(f"the folder cannot be read: {error.strerror}", where=source) from error
    return dict(sorted(found.items(), key=lambda item: item[0].parts))


def read_file(path: Path) -> bytes:
    """Read a file of at most `MAX_BYTES`; nothing else is opened for long, as a FIFO that nobody writes to.

    Raises:
        ConfigError: it is larger, or a FIFO, socket or device.
        OSError: it cannot be read.
    """
    if not stat.S_ISDIR(mode := path.stat().st_mode) and not stat.S_ISREG(mode):
        raise ConfigError(f"`{path.name}` is a FIFO, socket or device, not a file", hint="remove it")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if os.fstat(file.fileno()).st_size <= MAX_BYTES:
            data = file.read(MAX_BYTES + 1)
            if len(data) <= MAX_BYTES:
                return data
    raise ConfigError(f"`{path.name}` is larger than {MAX_BYTES // 1024 // 1024} MiB")


def check_name(path: PurePosixPath, source: str) -> None:
    """Refuse names that are no UTF-8 or hold what cannot be shown: nobody could see what they are.

    Raises:
        ConfigError: it is such a name, or it lies deeper than `MAX_DEPTH`.
    """
    if len(path.parts) > MAX_DEPTH:
        raise ConfigError(f"the folder holds folders more than {MAX_DEPTH} deep", where=source)
    for name in path.parts:
        if not name.isprintable():  # bytes that are no UTF-8 are half surrogate pairs here
            raise ConfigError(
                f"the folder holds a name that is no UTF-8 or cannot be shown: {name!a}", where=source
            )


def _files(folder: Path, root: Path, source: str, below: str = "") -> Iterator[Path]:
    with os.scandir(folder) as entries:
        listed = sorted(islice(entries, 2 * MAX_FILES), key=lambda entry: entry.name)
    if len(listed) == 2 * MAX_FILES:
        raise ConfigError(f"the folder holds more than {LIMITS}", where=source)
    for entry in listed:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        path = folder / entry.name
        check_name(PurePosixPath(below, entry.name), source)
        if entry.is_symlink():
            _check_link(path, root, source)
            yield path
        elif entry.is_dir():
            yield from _files(path, root, source, f"{below}{entry.name}/")
        elif entry.is_file():
            yield path
        else:
            raise ConfigError(
                f"`{below}{entry.name}` is a FIFO, socket or device, not a file",
                where=source,
                hint="remove it",
            )


def _check_link(path: Path, root: Path, source: str) -> None:
    if not path.is_file():
        raise ConfigError(
            f"`{path.name}` is a link, and not to a file", where=source, hint="copy what it leads to"
        )
    if not path.resolve().is_relative_to(root):
        raise ConfigError(f"`{path.name}` is a link that leaves the folder", where=source)
