"""A parameter server: holds every n-th parameter, adds up what trainers push, keeps checkpoints."""

from __future__ import annotations

import sys
import threading
import time

import problem
import settings
import wire


class ParameterServer:
    """A part of the model.

    Args:
        given: the settings of the job.
    """

    def __init__(self, given: settings.Settings) -> None:
        self._given = given
        self._file = given.folder / f"parameters-{given.index}.json"
        state = wire.load(self._file)
        width = len(range(given.index, problem.WIDTH, len(given.pservers)))
        self._values: list[float] = state["values"] if state else [0.0] * width
        self._updates = int(state["updates"]) if state else 0
        self._saved_at = time.monotonic()
        self._saving = threading.Lock()

    def answer(self, message: wire.Message) -> wire.Message:
        """Answer one message of a trainer: give the values, after adding the changes if it has any."""
        if changes := message.get("changes"):
            self._values = [value + change for value, change in zip(self._values, changes, strict=True)]
            self._updates += 1
        if time.monotonic() - self._saved_at >= self._given.checkpoint_s:
            self.checkpoint()
        return {"values": self._values}

    def checkpoint(self) -> None:
        """Put the values on disk; what was pushed later is lost with the process, which training bears."""
        with self._saving:
            wire.save(self._file, {"values": self._values, "updates": self._updates})
            self._saved_at = time.monotonic()


def main() -> int:
    """Serve until told to go, then save."""
    given = settings.read()
    given.folder.mkdir(parents=True, exist_ok=True)
    server = ParameterServer(given)
    wire.serve((given.bind, given.pservers[given.index][1]), server.answer)
    server.checkpoint()
    return wire.TERMINATED


if __name__ == "__main__":
    sys.exit(main())
