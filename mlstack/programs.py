"""The only door to other programs: argument lists, pipes of our own, time limits, no shell."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mlstack.clock import limit_s
from mlstack.dataclass import dataclass
from mlstack.errors import MlstackError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen

DEFAULT_TIMEOUT_S = 120.0
UNATTENDED_S = 300.0  # of a login without a terminal: a code may be typed into a browser elsewhere
TIMEOUT_VARIABLE = "MLSTACK_PROGRAM_TIMEOUT"
MORE_TIME = f"{TIMEOUT_VARIABLE}=10m gives it more time"
_LOGIN = r"://[^/@\s]+@"  # user and password of an address
MAX_ERROR_LINES = 12
# What git tells hooks of their repository; no program that we run is to work in that.
_OF_HOOKS = "GIT_(DIR|COMMON_DIR|WORK_TREE|INDEX_FILE|NAMESPACE|PREFIX|QUARANTINE_PATH|.*OBJECT_DIRECTOR.*)"


class ProgramError(MlstackError):
    """Raised when a program is missing, runs out of time or says no; callers turn it into their branch.

    `status` is the program's exit status, None when it did not run to its end.
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
    """Give the program's place on the PATH; a ProgramError tells that it is not installed."""
    path = shutil.which(name)
    if path is None:
        hint = f"install {name} and make sure it is on the PATH"
        raise ProgramError(f"the program `{name}` is needed and is not installed", hint=hint)
    return Path(path)


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    settings: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Finished:
    """Run a program, `arguments` with its name first, to its end, with nothing of our own terminal.

    `settings` are environment variables laid over our own, so that the user's credentials work. After
    `timeout_s` seconds, or what the user's MLSTACK_PROGRAM_TIMEOUT says, it is killed.

    Raises:
        ProgramError: missing, out of time, or an exit status other than 0.
    """
    import subprocess

    timeout_s, shown = limit_s(TIMEOUT_VARIABLE, timeout_s, os.environ), _shown(arguments)
    command, pipe = [str(find(arguments[0])), *arguments[1:]], subprocess.PIPE
    environ = {name: text for name, text in os.environ.items() if not re.fullmatch(_OF_HOOKS, name)}
    environ |= settings or {}
    try:
        # A session of its own, so that a program out of time goes with all that it started.
        process = subprocess.Popen(
            command, cwd=cwd, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        raise ProgramError(f"`{shown}` cannot run: {error.strerror}") from error
    try:
        with _killed_on_error(process):
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"`{shown}` took more than {timeout_s:g} seconds", hint=MORE_TIME) from error
    errors = stderr.decode(errors="replace")
    if process.returncode != 0:
        lines = [line.strip() for line in re.sub(_LOGIN, "://", errors).splitlines() if line.strip()]
        reason = "; ".join(lines[-MAX_ERROR_LINES:]) or "it gave no reason"
        raise ProgramError(f"`{shown}` failed: {reason}", status=process.returncode)
    return Finished(stdout=stdout, stderr=errors)


def _shown(arguments: Sequence[str]) -> str:
    """Name a program and its verb: the rest may hold addresses with passwords."""
    words = [word for word in arguments[1:] if not word.startswith("-")]
    return " ".join([arguments[0], *[word for word in words if "://" not in word and "=" not in word][:1]])


@contextmanager
def _killed_on_error(process: "Popen[bytes]") -> Iterator[None]:
    """Kill the session that a process leads when it is out of time or we are interrupted."""
    import signal

    try:
        yield
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise


def ask(
    program: str, arguments: Sequence[str], *, settings: Mapping[str, str], reads_terminal: bool
) -> bytes:
    """Run a program that may speak to the person, as long as that takes, and give what it answers.

    Its stderr is the person's; without a terminal its time is limited. `program` is on the PATH, or a path.

    Raises:
        ProgramError: an exit status other than 0, or None if it cannot run or takes too long.
        ProgramMissingError: there is no such program.
    """
    import atexit
    import subprocess

    path = shutil.which(program)
    if path is None or not Path(path).is_absolute():  # what lies where we happen to work is nobody's login
        raise ProgramMissingError(f"there is no program `{program}`")
    command, environ = [path, *arguments], {**os.environ, **settings}
    stdin = None if reads_terminal else subprocess.DEVNULL
    timeout_s = None if reads_terminal else limit_s(TIMEOUT_VARIABLE, UNATTENDED_S, os.environ)
    try:
        process = subprocess.Popen(command, env=environ, stdin=stdin, stdout=subprocess.PIPE)
    except (OSError, ValueError) as error:  # a zero byte in an argument
        reason = (getattr(error, "strerror", None) or "an argument cannot be given to it").lower()
        raise ProgramError(f"`{program}` cannot run: {reason}") from None
    # Nobody may wait for it any more: it must not go on asking a person who sees a prompt again.
    atexit.register(process.terminate)
    try:
        with process:
            try:
                output: bytes = process.communicate(timeout=timeout_s)[0]
            finally:
                process.terminate()  # does nothing to one that has ended
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"`{program}` took more than {timeout_s:g} seconds", hint=MORE_TIME) from error
    finally:
        atexit.unregister(process.terminate)
    if process.returncode != 0:
        raise ProgramError(f"`{program}` failed", status=process.returncode)
    return output
