"""Knows that a person pressed Ctrl-C, also where a library made another error of it."""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from types import FrameType


class Interruption:
    """Lets no error out that only comes of Ctrl-C, as an import that was cut off half-way.

    Compiled modules turn the exception into an ImportError of theirs when it meets them while they load.
    """

    def __init__(self) -> None:
        """Begin with nothing pressed."""
        self._pressed = False
        self._noting = False

    def __enter__(self) -> None:
        """Begin to listen, if Python's own handler is in place."""
        ordinary = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if ordinary and current_thread() is main_thread():
            self._noting = True
            signal.signal(signal.SIGINT, self._note)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop listening.

        Raises:
            KeyboardInterrupt: an error came after Ctrl-C.
        """
        if self._noting:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._pressed and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        signal.default_int_handler(number, frame)
