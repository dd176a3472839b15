"""Time whole commands in turn, so that a busy machine is unfair to all of them alike."""

import os
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Wall times of one command over several rounds, in seconds, and its largest resident memory."""

    name: str
    seconds: tuple[float, ...]
    peak_bytes: int

    @property
    def median_s(self) -> float:
        """Give the median of the rounds in seconds."""
        return median(self.seconds)


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command to time: its arguments, where it runs, what it sees of the environment."""

    name: str
    argv: Sequence[str]
    cwd: Path | None = None
    environ: Mapping[str, str] | None = None
    stdin: Path | None = None
    statuses: frozenset[int] = frozenset({0})


def run_in_turn(commands: Sequence[Command], *, rounds: int, warm_up: int = 1) -> list[Timing]:
    """Run every command once a round, in the given order, and keep the rounds after the warm-up.

    Raises:
        RuntimeError: a command ended with a status it should not end with; its stderr is shown.
    """
    taken: dict[str, list[tuple[float, int]]] = {command.name: [] for command in commands}
    for number in range(warm_up + rounds):
        for command in commands:
            once = _run(command)
            if number >= warm_up:
                taken[command.name].append(once)
    return [
        Timing(name=name, seconds=tuple(s for s, _ in runs), peak_bytes=max(b for _, b in runs))
        for name, runs in taken.items()
    ]


def run_once(command: Command) -> Timing:
    """Run a command a single time, as for what can only be done once (a first apply)."""
    return run_in_turn([command], rounds=1, warm_up=0)[0]


def _run(command: Command) -> tuple[float, int]:
    stdin = command.stdin.open("rb") if command.stdin else subprocess.DEVNULL
    begin = time.perf_counter()
    with subprocess.Popen(
        command.argv,
        cwd=command.cwd,
        env={**os.environ, **(command.environ or {})},
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        complaint = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if command.stdin:
        stdin.close()  # type: ignore[union-attr]
    if process.returncode not in command.statuses:
        raise RuntimeError(f"{command.name} ended with {process.returncode}: {complaint.decode()[-2000:]}")
    return seconds, _resident(usage)


def _resident(usage: resource.struct_rusage) -> int:
    # Linux counts ru_maxrss in KiB.
    return usage.ru_maxrss * 1024


def show(title: str, timings: Sequence[Timing], *, unit: str) -> None:
    """Print a table: median, fastest and slowest in milliseconds, the ratio to the row named by `unit`."""
    base = next(t.median_s for t in timings if t.name == unit)
    width = max(len(t.name) for t in timings)
    print(f"\n{title}\n{'':{width}}   median      min      max   ratio   memory")
    for t in timings:
        row = (f"{1000 * s:7.0f}" for s in (t.median_s, min(t.seconds), max(t.seconds)))
        print(f"{t.name:{width}}  {'  '.join(row)}  {t.median_s / base:6.2f}  {t.peak_bytes >> 20:4d} MiB")
