"""The master: hands out tasks, takes reports, survives its own end.

The whole queue is on disk before an answer leaves: what a trainer was told is never forgotten. After a
restart the leases run anew; trainers that still work on a task report it as if nothing had happened.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import settings
import wire
from tasks import TaskQueue


class Master:
    """The queue with a clock, a file and a voice.

    Args:
        given: the settings of the job.
    """

    def __init__(self, given: settings.Settings) -> None:
        self._given = given
        self._file = given.folder / "tasks.json"
        state = wire.load(self._file)
        self._queue = (
            TaskQueue.restore(state)
            if state
            else TaskQueue.start(tasks=given.tasks, passes=given.passes, failure_limit=given.failure_limit)
        )
        self._ends = dict.fromkeys(self._queue.pending, time.monotonic() + given.lease_s)

    def answer(self, message: wire.Message) -> wire.Message:
        """Answer one message of a trainer."""
        self._expire()
        verb = message["verb"]
        if verb == "next":
            return self._next()
        task, lease, number = int(message["task"]), int(message["lease"]), self._queue.number
        is_taken = self._report(verb, task, lease, message)
        if is_taken:
            self._save()
            print(f"{verb} pass={number} task={task} lease={lease}", flush=True)
        return {"ok": is_taken}

    def _report(self, verb: str, task: int, lease: int, message: dict[str, Any]) -> bool:
        if verb == "done":
            return self._queue.finish(task, lease, loss=float(message["loss"]))
        return self._queue.fail(task, lease) if verb == "failed" else self._queue.give_back(task, lease)

    def _next(self) -> wire.Message:
        if self._queue.is_over:
            return {"over": True}
        found = self._queue.lease()
        if not found:
            return {"wait_s": min(0.5, max(0.01, min(self._ends.values()) - time.monotonic()))}
        self._ends[found[0]] = time.monotonic() + self._given.lease_s
        self._save()
        return {"task": found[0], "lease": found[1]}

    def _expire(self) -> None:
        self._ends = {task: end for task, end in self._ends.items() if task in self._queue.pending}
        late = [task for task, end in self._ends.items() if end < time.monotonic()]
        for task in late:
            self._queue.fail(task, self._queue.pending[task])
            del self._ends[task]
        if late:
            self._save()

    def _save(self) -> None:
        wire.save(self._file, self._queue.snapshot())


def main() -> int:
    """Serve until told to go."""
    given = settings.read()
    given.folder.mkdir(parents=True, exist_ok=True)
    wire.serve((given.bind, given.master[1]), Master(given).answer)
    return wire.TERMINATED


if __name__ == "__main__":
    sys.exit(main())
