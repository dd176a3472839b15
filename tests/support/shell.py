"""Run the program as a person does: a process of its own in an app directory, against one kubeconfig."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from mlstack.cli.main import main
from tests.support.waiting import wait_until


class Started:
    """A command that runs, or has run; its stdout and stderr are kept in files."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self._folder = process, folder

    @property
    def out(self) -> str:
        return (self._folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self._folder / "err").read_text()

    def wait_for_lines(self, count: int) -> None:
        wait_until(lambda: self.out.count("\n") >= count or None, what=f"{count} lines", timeout_s=60)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the program as a power cut would."""
        self.process.kill()
        self.process.wait(10)

    def end(self, *, timeout_s: float = 60) -> int:
        """Wait until the program has ended, and give its exit code."""
        return self.process.wait(timeout_s)


@dataclass(kw_only=True)
class Shell:
    """Where commands are typed.

    Attributes:
        root: the app directory.
        kubeconfig: the kubeconfig that all commands see.
    """

    root: Path
    kubeconfig: Path
    _started: list[Started] = field(default_factory=list)

    def start(self, *words: str) -> Started:
        """Start a command; nobody is there to answer its questions."""
        folder = Path(mkdtemp(dir=self.root.parent))
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "mlstack", *words],
                cwd=self.root,
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self._started.append(Started(process, folder))
        return self._started[-1]

    def close(self) -> None:
        """End what still runs, as when a test has failed in the middle."""
        for process in self._started:
            process.kill()

    def run(self, *words: str) -> tuple[int, Started]:
        """Run a command to its end; gives its exit code and what it printed."""
        started = self.start(*words)
        return started.end(timeout_s=300), started


class Typed:
    """Runs command lines of the app; nobody is there to answer."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Take what pytest catches of what is printed."""
        self._capsys = capsys

    def __call__(self, line: str, *, code: int = 0) -> Any:
        """Give what it printed, read as JSON."""
        self._capsys.readouterr()
        status = main([*line.split(), "-o", "json"])
        printed = self._capsys.readouterr()
        assert status == code, printed
        return json.loads(printed.out) if printed.out else None
