"""The only door to other programs: argument lists, pipes of our own, time limits, no shell."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlstack.errors import MlstackError

DEFAULT_TIMEOUT_S = 120.0
MAX_ERROR_LINES = 12


class ProgramError(MlstackError):
    """Raised when a program is missing, runs out of time or says no; callers turn it into their branch.

    Args:
        message: what went wrong, with what the program said last.
        status: the program's exit status; None when it did not run to its end.
        hint: what to do next.
    """

    def __init__(self, message: str, *, status: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ProgramMissingError(ProgramError):
    """Raised when there is no such program."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a program left behind when it ended well."""

    stdout: bytes
    stderr: str


def find(name: str) -> Path:
    """Give the program's place on the PATH.

    Raises:
        ProgramError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise ProgramError(
            f"the program `{name}` is needed and is not installed",
            hint=f"install {name} and make sure it is on the PATH",
        )
    return Path(path)


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    settings: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Finished:
    """Run a program to its end, with nothing of our own terminal.

    Args:
        arguments: the program's name and its arguments; never a shell's line.
        cwd: where it runs.
        settings: environment variables laid over our own, so that the user's credentials work.
        stdin: what it reads.
        timeout_s: seconds after which it is killed.

    Raises:
        ProgramError: missing, out of time, or an exit status other than 0.
    """
    import os
    import subprocess

    command = [str(find(arguments[0])), *arguments[1:]]
    try:
        # A session of its own, so that a program out of time goes with all that it started.
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(settings or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(f"`{_shown(arguments)}` cannot run: {error.strerror}") from error
    try:
        stdout, stderr = process.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        _end(process.pid)
        process.communicate()
        raise ProgramError(f"`{_shown(arguments)}` took more than {timeout_s:g} seconds") from error
    except BaseException:  # an interrupt must not leave the program running
        _end(process.pid)
        process.communicate()
        raise
    errors = stderr.decode(errors="replace")
    if process.returncode != 0:
        raise ProgramError(f"`{_shown(arguments)}` failed: {_last_lines(errors)}", status=process.returncode)
    return Finished(stdout=stdout, stderr=errors)


def ask(
    program: str,
    arguments: Sequence[str],
    *,
    settings: Mapping[str, str],
    reads_terminal: bool,
) -> bytes:
    """Run a program that may speak to the person, as long as that takes, and give what it answers.

    What it says on stderr, the person reads as it comes.

    Args:
        program: its name, to be found on the PATH, or its path.
        arguments: what it is given.
        settings: environment variables laid over our own.
        reads_terminal: whether it has our standard input.

    Raises:
        ProgramError: an exit status other than 0, or None if it cannot run.
        ProgramMissingError: there is no such program.
    """
    import atexit
    import os
    import subprocess

    path = shutil.which(program)
    if path is None or not Path(path).is_absolute():  # what lies where we happen to work is nobody's login
        raise ProgramMissingError(f"there is no program `{program}`")
    try:
        process = subprocess.Popen(
            [path, *arguments],
            env={**os.environ, **settings},
            stdin=None if reads_terminal else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:  # a zero byte in an argument
        reason = (getattr(error, "strerror", None) or "an argument cannot be given to it").lower()
        raise ProgramError(f"`{program}` cannot run: {reason}") from None
    # Nobody may wait for it any more: it must not go on asking a person who sees a prompt again.
    atexit.register(process.terminate)
    try:
        with process:
            output: bytes = process.communicate()[0]
    finally:
        process.terminate()  # does nothing to one that has ended
        atexit.unregister(process.terminate)
    if process.returncode != 0:
        raise ProgramError(f"`{program}` failed", status=process.returncode)
    return output


def _end(pid: int) -> None:
    """Kill the session that `pid` leads."""
    import os
    import signal
    from contextlib import suppress

    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _shown(arguments: Sequence[str]) -> str:
    """Give the program and its verb: the rest may hold addresses with passwords."""
    words = [
        word for word in arguments[1:] if not word.startswith("-") and "://" not in word and "=" not in word
    ]
    return " ".join([arguments[0], *words[:1]])


def _last_lines(text: str) -> str:
    text = re.sub(r"://[^/@\s]+@", "://", text)  # no user or password of an address
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-MAX_ERROR_LINES:]) or "it gave no reason"
