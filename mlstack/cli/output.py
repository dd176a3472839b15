"""The one way out for text: streams to which nothing goes raw, results in the asked format, whole objects.

Names, messages and values come from packages, files, command lines and clusters: none of them may tell a
secret (`objects.masking`), move the cursor, hide a part of itself, turn the direction of writing or begin a
line that looks like one of ours. A render that was printed before imports this module and hardly another.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from typing import Any, TextIO

    from mlstack.objects.kube_object import DesiredState, KubeObject

CLOSED_OUTPUT_EXIT_CODE = 141

# --- standard streams ---


class ClosedOutputError(Exception):
    """Raised when the reader of stdout has gone, as `head` does: no fault, and nothing to say."""


class SafeStream:
    """A standard stream to which nothing goes raw, whoever writes: libraries, threads, the interpreter.

    With `is_output` it is stdout, whose loss is a fault; talk that nobody hears is none.
    """

    def __init__(self, stream: TextIO, *, is_output: bool) -> None:
        self.stream, self._faults = stream, _output_faults if is_output else _talk_faults

    def write(self, text: str) -> int:
        """Write text as it may be printed; to write nothing, as click tries a stream, touches nothing."""
        if not isinstance(text, str):
            raise TypeError("text is written, not bytes")
        if text:
            with self._faults():
                self.stream.write(safe(text))
        return len(text)

    def flush(self) -> None:
        """Send on what was written."""
        with self._faults():
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Let nothing raw onto stdout and stderr until the block is left; it may be entered again inside."""
    before = sys.stdout, sys.stderr
    guard()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def guard() -> None:
    """Let nothing raw onto stdout and stderr from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, SafeStream):
            setattr(sys, name, SafeStream(stream, is_output=name == "stdout"))


def raw(stream: TextIO) -> TextIO:
    """Give the stream behind a safe one, for what was made safe already: colours, documents."""
    return stream.stream if isinstance(stream, SafeStream) else stream


def write(text: str, *, exact: bool = False) -> None:
    """Write text to stdout, ending with a line break.

    Args:
        text: what is written.
        exact: whether it is a document, in which no text is put in another's place any more: its values were
            masked when it was made, or are wanted as they are.
    """
    if text:
        write_bytes(as_bytes(text if exact else scrubbed(text)))


def as_bytes(text: str) -> bytes:
    """Give a text as stdout gets it: ended, in UTF-8, without what a terminal would obey."""
    ended = text if text.endswith("\n") or not text else f"{text}\n"
    return escaped(ended).encode("utf-8", "backslashreplace")


def write_bytes(data: bytes) -> None:
    """Write to stdout what `as_bytes` gave, in this run or an earlier one."""
    with _output_faults():
        stream = raw(sys.stdout)
        stream.flush()
        buffer = getattr(stream, "buffer", None)
        if buffer is None:  # not a file: whoever calls `main` reads what is printed
            stream.write(data.decode())
        else:
            buffer.write(data)
            buffer.flush()


def say(*messages: str) -> None:
    """Tell the person something on stderr that is no part of the result; if nobody reads it, so be it.

    Each message begins a line; its further lines are indented, so that they pass for no other message.
    """
    _talk("".join(f"{safe(indented(scrubbed(message)))}\n" for message in messages))


def prompt(question: str) -> None:
    """Put a question on stderr; the answer is typed behind it."""
    _talk(f"{safe(indented(question))} ")


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person reads the stream and its terminal can move the cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def stop_writing() -> int:
    """Send the rest of the output nowhere, so that the interpreter's last flush cannot fail."""
    _lead_nowhere(sys.stdout)
    return CLOSED_OUTPUT_EXIT_CODE


def _talk(text: str) -> None:
    with _talk_faults():
        stream = raw(sys.stderr)
        stream.write(text)
        stream.flush()


@contextlib.contextmanager
def _talk_faults() -> Iterator[None]:
    try:
        yield
    except OSError:
        _lead_nowhere(sys.stderr)


@contextlib.contextmanager
def _output_faults() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedOutputError from error
    except OSError as error:
        from mlstack.errors import ConfigError

        stop_writing()
        raise ConfigError(
            f"cannot write the output: {(error.strerror or str(error)).lower()}",
            hint="what the command was to change is changed; make room, or send the output elsewhere",
        ) from error


def _lead_nowhere(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):  # a stream that is no file needs nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# --- text as it may be printed ---


def safe(text: str, *, kept: str = "\n\t") -> str:
    """Give a text as it may be printed; width and line breaks are worked out after this."""
    return escaped(scrubbed(text), kept=kept)


def scrubbed(text: str) -> str:
    """Give a text without what the run knows to be secret."""
    if "mlstack.objects.masking" not in sys.modules and "://" not in text:
        return text  # nobody can have noted anything
    from mlstack.objects import masking

    return masking.scrubbed(text)


def escaped(text: str, *, kept: str = "\n\t") -> str:
    r"""Write what a terminal would obey or hide visibly (`\x1b`, `\u202e`), but for the characters `kept`."""
    rest = text
    for character in (*kept, "…"):  # which the help of the program has
        rest = rest.replace(character, "")
    if rest.isascii() and rest.isprintable():
        return text
    from mlstack.yaml.write import respell_unseen

    return respell_unseen(text, lambda char: char if char in kept else char.encode("unicode_escape").decode())


def json_escaped(document: str) -> str:
    r"""Give a JSON document in which every such character stands as `\u…`; it says the same as before."""
    if document.isascii() and "\x7f" not in document:
        return document
    from mlstack.yaml.write import respell_unseen, write_code

    return respell_unseen(document, lambda char: char if char == "\n" else write_code(char))


def indented(message: str) -> str:
    """Give a message whose further lines begin with blanks, as no line of ours does."""
    first, *others = message.replace("\r\n", "\n").split("\n")
    return "\n".join([first, *(line if line[:2] in ("  ", "") else f"  {line}" for line in others)])


# --- whole Kubernetes objects ---


def notes_text(state: DesiredState) -> str:
    """Write the notes of a render, each on lines of its own."""
    return "\n".join(indented(f"note: {note}") for note in state.notes)


def objects_yaml(objects: Sequence[KubeObject]) -> str:
    """Write objects as one YAML stream, in the order they are applied."""
    from mlstack.yaml import write

    return write.to_yaml_documents(manifest.data for manifest in objects)
