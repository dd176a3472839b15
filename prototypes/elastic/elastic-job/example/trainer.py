"""A trainer: takes a task, learns from it, reports, takes the next; it may come and go at any time.

It keeps nothing of its own. Its exit code matters: 0 says that no work is left and ends the job, 143 says
that it was told to go; anything else is a failure, after which it is replaced.
"""

from __future__ import annotations

import sys
import time

import problem
import settings
import wire


def main() -> int:
    """Work until no work is left or the process is told to go."""
    given = settings.read()
    held: wire.Message = {}
    try:
        wire.stop_on_sigterm()
        while True:
            held = wire.call(given.master, {"verb": "next"})
            if held.get("over"):
                return 0
            if "wait_s" in held:
                time.sleep(held["wait_s"])
                continue
            _work(given, held)
            held = {}
    except wire.Stopped:
        _give_back(given, held)
        return wire.TERMINATED


def _work(given: settings.Settings, held: wire.Message) -> None:
    try:
        report = {"verb": "done", "loss": _learn(given, problem.data(held["task"]))}
    except ArithmeticError:
        report = {"verb": "failed"}
    wire.call(given.master, {**report, "task": held["task"], "lease": held["lease"]})


def _learn(given: settings.Settings, samples: list[problem.Sample]) -> float:
    """Fetch the model, see how wrong it is, push what makes it better; give the error found."""
    count = len(given.pservers)
    values = [0.0] * problem.WIDTH
    for index, where in enumerate(given.pservers):
        values[index::count] = wire.call(where, {})["values"]
    loss, changes = problem.step(values, samples)
    for index, where in enumerate(given.pservers):
        wire.call(where, {"changes": changes[index::count]})
    return loss


def _give_back(given: settings.Settings, held: wire.Message) -> None:
    """Let another trainer have the task at once; without this it would wait for the end of the lease."""
    if "task" not in held:
        return
    try:
        wire.call(given.master, {"verb": "back", "task": held["task"], "lease": held["lease"]}, patience_s=1)
    except ConnectionError:
        print("the master did not take the task back: its lease runs out", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
