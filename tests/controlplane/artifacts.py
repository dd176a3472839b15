"""Build a thing once and keep it outside the tree, under a key of everything it is made from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

Say = Callable[[str], None]


class BuildError(Exception):
    """A program of the cluster tests could not be built; the message ends with what its builder printed."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A directory that is built from sources and a version, and then never changes.

    Attributes:
        name: first half of the directory's name in the cache.
        version: what a person is told is built.
        options: whatever else decides the content, such as build flags.
        sources: files whose names and contents decide the content.
        build: fills the directory it is given, and may raise BuildError.
    """

    name: str
    version: str
    build: Callable[[Path], None]
    options: str = ""
    sources: tuple[Path, ...] = ()

    @property
    def directory(self) -> Path:
        """Where the finished artifact stands, built or not."""
        return cache_root() / f"{self.name}-{self._key()}"

    def _key(self) -> str:
        digest = hashlib.sha256()
        for part in (self.name, self.version, self.options, platform.system(), platform.machine()):
            digest.update(part.encode() + b"\0")
        for source in sorted(self.sources):
            digest.update(source.name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
        return digest.hexdigest()[:16]


def obtain(artifact: Artifact, say: Say) -> Path:
    """Give the artifact's directory, building it first where it is missing.

    Two builders do not clash: the second waits for the first and uses its work. A build that is cut off
    leaves nothing under the final name.

    Raises:
        BuildError: the build failed.
    """
    final = artifact.directory
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with _lock(final.with_suffix(".lock")):
        if not final.is_dir():
            _build(artifact, final, say)
    return final


def cache_root() -> Path:
    """Give the directory that holds all artifacts: the user's cache, outside of any checkout."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlstack-tests"


def run(command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
    """Run one step of a build, keeping its output for the message of a failure.

    Raises:
        BuildError: the step could not be started or did not exit 0.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise BuildError(f"cannot run `{command[0]}`: {error}") from error
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-30:])
        raise BuildError(f"`{' '.join(map(str, command))}` exited {done.returncode}:\n{end}")


def _build(artifact: Artifact, final: Path, say: Say) -> None:
    say(f"building {artifact.name} ({artifact.version}) ...")
    started = time.monotonic()
    unfinished = Path(tempfile.mkdtemp(prefix=f".{artifact.name}-", dir=final.parent))
    try:
        artifact.build(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(final)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    say(f"built {artifact.name} in {time.monotonic() - started:.0f} s")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
