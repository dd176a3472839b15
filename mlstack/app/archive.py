"""Packages as archives: written so that the same files give the same bytes everywhere, read with suspicion.

They are plain tar files: what zlib makes of the same bytes differs from one version of it to the next.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from mlstack.app.files import LIMITS, MAX_BYTES, MAX_FILES, check_name
from mlstack.app.package import Files
from mlstack.errors import ConfigError, RegistryError

_MOST_BYTES = 2 * MAX_BYTES  # with the heads of all its files
_HARMLESS = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


def pack(files: Files) -> bytes:
    """Write files as an archive, in the order of their paths, without owners, times and rights."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(files.items(), key=lambda item: item[0].as_posix().encode()):
            member = tarfile.TarInfo(path.as_posix())
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes, named: str) -> Files:
    """Read an archive, packed by gzip or not; names that start with `.` are left out.

    Raises:
        RegistryError: it is broken, or holds what a package may not: links, devices, paths out of it, two
            files of one name, or more than a package may.
    """
    files: dict[PurePosixPath, bytes] = {}
    try:
        for member, content in _members(_unpacked(data)):
            path = _path(member)
            if path is not None and content is not None:
                if path in files:
                    raise _Refusal(f"two files `{path}`")
                files[path] = content
        return dict(sorted(files.items(), key=lambda item: item[0].parts))
    except _Refusal as error:
        message = f"package `{named}` is refused: its archive holds {error}"
        raise RegistryError(message, hint="tell who published it") from None
    except ConfigError as error:
        raise RegistryError(f"package `{named}` is refused: {error}") from error
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError) as error:
        message = f"package `{named}` is refused: its archive cannot be read"
        raise RegistryError(message, hint="publish it again") from error


class _Refusal(Exception):
    """Raised of what no package may hold."""


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    stream = zlib.decompressobj(wbits=31)
    content = stream.decompress(data, _MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _Refusal(f"more than {LIMITS}")
    if not stream.eof:
        raise EOFError
    return content


def _members(data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """Give the entries with their content, None for a folder, as long as they are harmless."""
    entries = size = 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", errorlevel=2) as archive:
        for member in archive:
            entries, size = entries + 1, size + member.size
            if entries > 2 * MAX_FILES or size > MAX_BYTES:
                raise _Refusal(f"more than {LIMITS}")
            if member.type not in _HARMLESS or member.sparse is not None:
                raise _Refusal(f"`{member.name}`, which is a link or no file")
            file = archive.extractfile(member) if member.isreg() else None
            yield member, None if file is None else file.read()
    if not entries:
        raise EOFError


def _path(member: tarfile.TarInfo) -> PurePosixPath | None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or path.drive:
        raise _Refusal(f"`{member.name}`, a path that leads out of it")
    check_name(path, "its archive")
    is_hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    return None if is_hidden or not path.parts else path
