"""Text on stdout and stderr, whatever became of these; imports next to nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

CLOSED_OUTPUT_EXIT_CODE = 141


class ClosedOutputError(Exception):
    """Raised when the reader of stdout has gone, as `head` does: no fault, and nothing to say."""


def write(text: str) -> None:
    """Write text to stdout, ending with a line break.

    Raises:
        ClosedOutputError: if nobody reads stdout any more.
        ConfigError: if it cannot be written, as to a full disk.
    """
    if not text:
        return
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ClosedOutputError from error
    except OSError as error:
        from mlstack.errors import ConfigError

        stop_writing()
        raise ConfigError(
            f"cannot write the output: {(error.strerror or str(error)).lower()}",
            hint="make room, or send the output elsewhere",
        ) from error


def say(text: str) -> None:
    """Tell the person something on stderr that is no part of the result; if nobody reads it, so be it."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        _leave(sys.stderr.fileno)


def stop_writing() -> int:
    """Send the rest of the output nowhere, so that the interpreter's last flush cannot fail."""
    _leave(sys.stdout.fileno)
    return CLOSED_OUTPUT_EXIT_CODE


def _leave(number: Callable[[], int]) -> None:
    with contextlib.suppress(OSError, ValueError):  # a stream that is no file needs nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), number())
