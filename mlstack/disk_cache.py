"""The user's cache directory: bytes under a key, which may be missing at any time and are never wrong.

Compiled templates, parsed forms and rendered output are remembered here. The folder belongs to the user
alone, since `marshal` must not read what others write: a folder of somebody else, or one that others may
write to, is not used at all. An entry carries the digest of its bytes; whatever is odd is a miss. Nothing
here raises an error: without a cache everything is slower, not different.
"""

from __future__ import annotations

import os
import stat
import sys
from _blake2 import blake2b  # `hashlib` loads OpenSSL, which takes longer than all that a stored render does
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec

import mlstack

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeVar

    T = TypeVar("T")

LIMIT_BYTES = 256 * 1024 * 1024
_DIGEST_BYTES = 16
_SWEEP_SHARE = 16  # a sweep comes at the latest when this part of the limit was written


class ByteStore:
    """Keeps bytes by key from run to run; this one keeps nothing."""

    def get(self, key: str) -> bytes | None:
        """Give the bytes of a key, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, or forget them: a store that fails is never an error."""


NO_STORE = ByteStore()


class Cache(ByteStore):
    """Bytes by key in one folder, made on the first `put`; above the limit the entries written first go."""

    def __init__(self, folder: Path | str, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = str(folder)
        self._limit = limit_bytes
        self._unswept = 0
        self._swept = False
        self._trusted: bool | None = None
        self._marks: set[str] = set()  # keys without bytes, which say that something has passed

    def get(self, key: str) -> bytes | None:
        """Give the bytes of a key, or None when they are not there, not readable or not as written."""
        if key in self._marks:
            return b""
        if not self._is_trusted():
            return None
        try:
            descriptor = os.open(self._place(key), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read()
        except OSError:
            return None
        digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(key, data):
            return None
        if not data:
            self._marks.add(key)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key; when that is not possible, nothing happens."""
        if not data:
            self._marks.add(key)
        with suppress(OSError):
            if not os.path.exists(self._folder):  # noqa: PTH110 # `pathlib` is not loaded here
                os.makedirs(os.path.dirname(self._folder), exist_ok=True)  # noqa: PTH103, PTH120
                os.mkdir(self._folder, mode=0o700)  # noqa: PTH102
                self._trusted = None
        if not self._is_trusted():
            return
        place = self._place(key)
        temporary, folder = f"{place}.{os.getpid()}.tmp", place.rpartition("/")[0]
        try:
            with suppress(FileExistsError):
                os.mkdir(folder, mode=0o700)  # noqa: PTH102
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(key, data) + data)
            os.replace(temporary, place)  # noqa: PTH105
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            return
        self._unswept += len(data)
        by_chance = folder.endswith("/00") and not self._swept
        if by_chance or self._unswept > self._limit // _SWEEP_SHARE:
            self.sweep()

    def subfolder(self, name: str) -> Path | None:
        """Give a folder beside the entries, for what another program keeps; None where that cannot be."""
        from pathlib import Path

        folder = Path(self._folder, name)
        with suppress(OSError):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._trusted = None
            if self._is_trusted():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                return folder if os.access(folder, os.W_OK) else None
        return None

    def sweep(self) -> None:
        """Drop the entries written first until the rest is within the limit."""
        from pathlib import Path

        self._unswept, self._swept = 0, True
        entries = []
        for path in Path(self._folder).glob("??/*"):
            with suppress(OSError):
                status = path.lstat()
                entries.append((status.st_mtime_ns, path, status.st_size))
        size = sum(length for _, _, length in entries)
        for _, path, length in sorted(entries):
            if size <= self._limit:
                return
            size -= length
            with suppress(OSError):
                path.unlink()

    def _place(self, key: str) -> str:
        name = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        return f"{self._folder}/{name[:2]}/{name[2:]}"

    def _is_trusted(self) -> bool:
        """Tell whether the folder is there, a real one, ours, and closed to others; asked once."""
        if self._trusted is None:
            try:
                status = os.lstat(self._folder)
            except OSError:
                return False
            own = status.st_uid == os.geteuid() if hasattr(os, "geteuid") else True
            closed = not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or os.name == "nt"
            self._trusted = stat.S_ISDIR(status.st_mode) and own and closed
        return self._trusted


def of_user(environ: Mapping[str, str]) -> Cache:
    """Open the user's cache, where the XDG base directory specification places it."""
    base = environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        home = os.path.expanduser("~")  # noqa: PTH111 # Path.home raises for a user without one, as in pods
        base = f"{home}/.cache" if home.startswith("/") else os.devnull
    return Cache(f"{base}/mlstack")


def from_json(data: bytes | None, kind: type[T]) -> T | None:
    """Read JSON that was kept or sent; None for what is none, or of another kind."""
    import json

    try:
        value = json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _digest(key: str, data: bytes) -> bytes:
    """Give the digest of an entry; one in the place of another is none."""
    name = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
    return blake2b(name + data, digest_size=_DIGEST_BYTES).digest()


# --- what tells this program from any other: what it remembers is for itself alone ---

_LIBRARIES = ("jinja2", "yaml", "jsonschema")


@cache
def program_identity() -> str:
    """Give a hash of this program, its libraries and its interpreter; a change of a source is enough."""
    hashed = blake2b(sys.version.encode(), digest_size=20)
    specs = filter(None, map(find_spec, _LIBRARIES))
    libraries = [spec.origin for spec in specs if spec.origin]
    sources = _sources(os.path.dirname(mlstack.__file__))  # noqa: PTH120
    for file in (*sources, *libraries):
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
