"""The task queue: todo, pending, done, failed, pass after pass. No clock, no files, no network.

A task is a piece of the data. Whoever gets one holds a lease with a number; only the holder of the lease can
report the task as done, so that it counts once however often it was tried.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(kw_only=True)
class TaskQueue:
    """All tasks of a training run.

    Attributes:
        tasks: how many there are.
        passes: how often each is to be done.
        failure_limit: failures of a task in one pass above which it is left out of the pass.
        number: the pass under way, from 0; equal to `passes` when all is over.
        issued: how many leases were ever given.
        todo: tasks that wait.
        pending: lease by task.
        done: loss by task.
        failures: how often a task failed in this pass.
        history: for each pass that is over: tasks done, tasks left out, mean loss.
    """

    tasks: int
    passes: int
    failure_limit: int = 3
    number: int = 0
    issued: int = 0
    todo: list[int] = field(default_factory=list)
    pending: dict[int, int] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, *, tasks: int, passes: int, failure_limit: int) -> TaskQueue:
        """Give a queue with everything still to do."""
        return cls(tasks=tasks, passes=passes, failure_limit=failure_limit, todo=list(range(tasks)))

    @classmethod
    def restore(cls, state: dict[str, Any]) -> TaskQueue:
        """Give the queue that `snapshot` was taken of; JSON has turned the tasks into text."""
        numbered = ("pending", "done", "failures")
        return cls(**{**state, **{name: {int(k): v for k, v in state[name].items()} for name in numbered}})

    def snapshot(self) -> dict[str, Any]:
        """Give the whole state as plain data."""
        return asdict(self)

    @property
    def is_over(self) -> bool:
        """Whether the last pass is over."""
        return self.number >= self.passes

    def lease(self) -> tuple[int, int] | None:
        """Give a task and the number of its lease, None if nothing waits."""
        if not self.todo:
            return None
        task = self.todo.pop(0)
        self.issued += 1
        self.pending[task] = self.issued
        return task, self.issued

    def finish(self, task: int, lease: int, *, loss: float) -> bool:
        """Count a task as done; False if the lease is not, or no longer, the one that holds it."""
        if not self._end(task, lease):
            return False
        self.done[task] = loss
        self._turn()
        return True

    def give_back(self, task: int, lease: int) -> bool:
        """Let somebody else do a task; whoever is told to go has not failed."""
        if not self._end(task, lease):
            return False
        self.todo.insert(0, task)
        return True

    def fail(self, task: int, lease: int) -> bool:
        """Try a task again after a failure or when its time is up, or leave it out of the pass."""
        if not self._end(task, lease):
            return False
        self.failures[task] = self.failures.get(task, 0) + 1
        if self.failures[task] <= self.failure_limit:
            self.todo.append(task)
        self._turn()
        return True

    def _end(self, task: int, lease: int) -> bool:
        if self.pending.get(task) != lease:
            return False
        del self.pending[task]
        return True

    def _turn(self) -> None:
        """Begin the next pass, with the tasks that were left out too, when nothing waits or is under way."""
        if self.todo or self.pending:
            return
        loss = sum(self.done.values()) / len(self.done) if self.done else None
        left_out = self.tasks - len(self.done)
        self.history.append({"pass": self.number, "done": len(self.done), "left_out": left_out, "loss": loss})
        self.number += 1
        self.done, self.failures = {}, {}
        self.todo = [] if self.is_over else list(range(self.tasks))
