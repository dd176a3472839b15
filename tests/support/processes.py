"""Start programs that never outlive the tests, and find ports for them."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

from tests.support.waiting import wait_until

_PR_SET_PDEATHSIG = 1

# Below the range from which Linux takes the ports of outgoing connections: a client that dials a server which
# is being restarted could otherwise be given that server's own port. Those of each worker are its own.
_PORTS = count(20000 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))


class Program:
    """A program in the background: its output goes to a file, and it is killed when its parent dies.

    The kernel counts the *thread* that started a program as its parent: start programs from the main thread.

    Attributes:
        name: for messages.
        log: the file that gets everything the program prints.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Describe the program; `start` starts it.

        Args:
            name: for messages.
            command: the program and its arguments.
            log: where its output is appended.
            env: variables set beside those of this process.
            cwd: where it runs.
        """
        self.name = name
        self.log = log
        self._command = [str(part) for part in command]
        self._env = {**os.environ, **(env or {})}
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it; it must not run already."""
        assert self.pid is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
            )

    def kill(self) -> None:
        """Kill it and its children without a chance to tidy up, and wait for its end; dead ones stay dead."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def terminate(self, *, timeout_s: float = 30.0) -> int:
        """Tell it to go, wait for its end and give its exit code."""
        assert self._process is not None, f"{self.name} was never started"
        self._process.terminate()
        return self._process.wait(timeout_s)

    def wait_until(self, probe: Callable[[], object], *, what: str, timeout_s: float = 60.0) -> None:
        """Wait until `probe` is true while the program runs.

        Raises:
            AssertionError: the time is up, or the program ended; the message has the end of its log.
        """
        wait_until(
            lambda: probe() or self.pid is None,
            what=f"{what} of {self.name}",
            timeout_s=timeout_s,
            interval_s=0.1,
            details=self.log_tail,
        )
        assert self.pid is not None, f"{self.name} ended:\n{self.log_tail()}"

    def wait_until_finished(self, *, timeout_s: float) -> None:
        """Wait until the program ends by itself.

        Raises:
            AssertionError: it did not exit 0 in time.
        """
        assert self._process is not None, f"{self.name} was never started"
        code = self._process.wait(timeout_s)
        assert code == 0, f"{self.name} exited {code}:\n{self.log_tail()}"

    def log_tail(self, lines: int = 30) -> str:
        """Give the last lines of what it printed."""
        if not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    """Give a port of 127.0.0.1 on which nothing listens and which is given out only once in this process."""
    for port in _PORTS:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the counter has no end")


def answers(port: int) -> bool:
    """Say whether something accepts connections at that port of 127.0.0.1."""
    with socket.socket() as trial:
        trial.settimeout(1)
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _die_with_parent(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return prepare
