"""Knows that the program is asked to end, by Ctrl-C or by a signal, whatever a library makes of it."""

from __future__ import annotations

import atexit
import os
import signal

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from typing import Any, NoReturn

INTERRUPTED_EXIT_CODE = 130

_HANGUP = getattr(signal, "SIGHUP", 0)  # Windows has none
_WORDS = {int(signal.SIGINT): "interrupted", int(signal.SIGTERM): "terminated"}
_WORDS |= {int(_HANGUP): "hung up"} if _HANGUP else {}


class Interruption:
    """Makes a KeyboardInterrupt of the first signal that asks the program to end; the second ends it at once.

    Ctrl-C, SIGTERM (as CI systems and containers send it) and SIGHUP (a terminal was closed) end a command in
    the same way. A signal that is ignored when the program starts, as under nohup, stays ignored.

    It lets no error out that only comes of the signal, as an import that was cut off half-way: compiled
    modules turn the exception into an ImportError of theirs when it meets them while they load.
    """

    def __init__(self) -> None:
        self.heard = 0  # the signal that came
        self._taken: list[list[int]] = []

    @classmethod
    def of_process(cls) -> Interruption:
        """Give the one that listens in this process already, else a new one."""
        owners = (getattr(signal.getsignal(number), "__self__", None) for number in _WORDS)
        return next((owner for owner in owners if isinstance(owner, cls)), None) or cls()

    @property
    def word(self) -> str:
        """Say in a word why the program ends."""
        return _WORDS[self.heard or signal.SIGINT]

    @property
    def exit_code(self) -> int:
        """Give what shells report of a program that a signal ended: 128 and the number of the signal."""
        return 128 + self.heard if self.heard else INTERRUPTED_EXIT_CODE

    def __enter__(self) -> Interruption:
        """Begin to listen, to what nobody else listens to; it may be entered again inside."""
        self._taken.append([])
        for number in _WORDS:
            if signal.getsignal(number) is _usual(number):
                try:
                    signal.signal(number, self._note)
                except ValueError:  # only the main thread hears signals
                    break
                self._taken[-1].append(number)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop listening; an error after a signal becomes a KeyboardInterrupt."""
        for number in self._taken.pop():
            signal.signal(number, _usual(number))
        if self.heard and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def _note(self, number: int, frame: object) -> None:
        if not self.heard:
            self.heard = number
            raise KeyboardInterrupt
        if number != _HANGUP:  # a closed terminal says so itself, and its shell says it again
            os.write(2, f"{self.word}\n".encode())
            leave(self.exit_code)


def leave(code: int) -> NoReturn:
    """End the process here: no thread is waited for, but secrets in temporary files are removed."""
    try:
        atexit._run_exitfuncs()
    finally:
        os._exit(code)


def _usual(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
