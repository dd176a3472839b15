"""Time whole commands in turn, so that a busy machine is unfair to all of them alike."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Self

_STOPWATCH = Path(__file__).with_name("stopwatch.py")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one command took over several rounds, a value a round.

    Attributes:
        name: of the command.
        wall_s: seconds on the clock, in which a busy machine counts as well.
        cpu_s: seconds of the processor, user and system, children that were waited for included.
        peak_bytes: largest resident memory of any round.
    """

    name: str
    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    peak_bytes: int

    @classmethod
    def joined(cls, runs: Sequence[Self]) -> Self:
        """Put the rounds of several timings of one command together."""
        return cls(
            name=runs[0].name,
            wall_s=tuple(s for run in runs for s in run.wall_s),
            cpu_s=tuple(s for run in runs for s in run.cpu_s),
            peak_bytes=max(run.peak_bytes for run in runs),
        )


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
    taken: dict[str, list[Timing]] = {command.name: [] for command in commands}
    for number in range(warm_up + rounds):
        for command in commands:
            once = run_once(command)
            if number >= warm_up:
                taken[command.name].append(once)
    return [Timing.joined(runs) for runs in taken.values()]


def run_once(command: Command) -> Timing:
    """Run a command a single time, as for what can only be done once (a first apply).

    Raises:
        RuntimeError: it ended with a status it should not end with; its stderr is shown.
    """
    with TemporaryDirectory() as folder, ExitStack() as stack:
        report = Path(folder, "report")
        stdin = stack.enter_context(command.stdin.open("rb")) if command.stdin else subprocess.DEVNULL
        done = subprocess.run(
            [sys.executable, "-I", "-S", _STOPWATCH, report, *command.argv],
            cwd=command.cwd,
            env={**os.environ, **(command.environ or {})},
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode not in command.statuses:
            complaint = done.stderr.decode()[-2000:]
            raise RuntimeError(f"{command.name} ended with {done.returncode}: {complaint}")
        wall_s, cpu_s, peak_bytes = report.read_text().split()
    return Timing(
        name=command.name, wall_s=(float(wall_s),), cpu_s=(float(cpu_s),), peak_bytes=int(peak_bytes)
    )


def show(title: str, timings: Sequence[Timing], *, unit: str) -> None:
    """Print a table in milliseconds; ratios are those of the medians to the row named by `unit`.

    On a busy machine the ratio of the processor's time is the steadier one; for what waits for a server, or
    uses several processors, the wall counts.
    """
    base = next(t for t in timings if t.name == unit)
    width = max(len(t.name) for t in timings)
    print(f"\n{title}\n{'':{width}}     wall      min      max   ratio      cpu   ratio    memory")
    for t in timings:
        wall, cpu = median(t.wall_s), median(t.cpu_s)
        clock = "".join(f"  {1000 * s:7.0f}" for s in (wall, min(t.wall_s), max(t.wall_s)))
        ratios = (wall / median(base.wall_s), cpu / median(base.cpu_s))
        print(
            f"{t.name:{width}}{clock}  {ratios[0]:6.2f}  {1000 * cpu:7.0f}  {ratios[1]:6.2f}"
            f"  {t.peak_bytes >> 20:4d} MiB"
        )
