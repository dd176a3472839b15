"""Read a folder that others wrote: regular files inside it, within limits, in a stable order."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mlstack.errors import ConfigError

MAX_FILES = 2000
MAX_BYTES = 32 * 1024 * 1024


def read_folder(folder: Path, *, source: str = "") -> dict[PurePosixPath, bytes]:
    """Read all files below a folder by relative path; names that start with `.` are left out.

    Links to files are followed as long as they stay inside the folder.

    Args:
        folder: where to read.
        source: what messages call it; its path when empty.

    Raises:
        ConfigError: a link leaves the folder, or there is more than `MAX_FILES` or `MAX_BYTES`.
    """
    found: dict[PurePosixPath, bytes] = {}
    source = source or str(folder)
    size = 0
    for path in _files(folder, folder.resolve(), source):
        data = path.read_bytes()
        size += len(data)
        found[PurePosixPath(path.relative_to(folder).as_posix())] = data
        if len(found) > MAX_FILES or size > MAX_BYTES:
            limit = f"{MAX_FILES} files and {MAX_BYTES // 1024 // 1024} MiB"
            raise ConfigError(f"the folder holds more than {limit}", where=source)
    return dict(sorted(found.items(), key=lambda item: item[0].parts))


def _files(folder: Path, root: Path, source: str) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        path = folder / entry.name
        if entry.is_symlink():
            _check_link(path, root, source)
            yield path
        elif entry.is_dir():
            yield from _files(path, root, source)
        elif entry.is_file():
            yield path


def _check_link(path: Path, root: Path, source: str) -> None:
    if not path.is_file():
        raise ConfigError(
            f"`{path.name}` is a link, and not to a file", where=source, hint="copy what it leads to"
        )
    if not path.resolve().is_relative_to(root):
        raise ConfigError(f"`{path.name}` is a link that leaves the folder", where=source)
