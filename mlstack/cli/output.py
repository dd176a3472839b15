"""The one way out for text: streams to which nothing goes raw, results in the asked format, whole objects.

Names, messages and values come from packages, files, command lines and clusters: none of them may tell a
secret (`objects.masking`), move the cursor, hide a part of itself, turn the direction of writing or begin a
line that looks like one of ours. A render that was printed before imports this module and hardly another.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, TextIO

    from mlstack.objects.kube_object import DesiredState, KubeObject

CLOSED_OUTPUT_EXIT_CODE = 141

# --- standard streams ---


class ClosedOutputError(Exception):
    """Raised when the reader of stdout has gone, as `head` does: no fault, and nothing to say."""


class SafeStream:
    """A standard stream to which nothing goes raw, whoever writes: libraries, threads, the interpreter.

    Args:
        stream: where it leads.
        is_output: whether it is stdout, whose loss is a fault; talk that nobody hears is none.
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

    Raises:
        ClosedOutputError: if nobody reads stdout any more.
        ConfigError: if it cannot be written, as to a full disk.
    """
    if not text:
        return
    ended = text if text.endswith("\n") else text + "\n"
    with _output_faults():
        stream = raw(sys.stdout)
        stream.write(escaped(ended if exact else scrubbed(ended)))
        stream.flush()


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
    for character in kept:
        rest = rest.replace(character, "")
    if rest.isascii() and rest.isprintable():
        return text
    from mlstack.yaml.scalars import UNSEEN

    return UNSEEN.sub(
        lambda match: match[0] if match[0] in kept else match[0].encode("unicode_escape").decode(), text
    )


def json_escaped(document: str) -> str:
    r"""Give a JSON document in which every such character stands as `\u…`; it says the same as before."""
    if document.isascii() and "\x7f" not in document:
        return document
    from mlstack.yaml.scalars import UNSEEN, write_code

    return UNSEEN.sub(lambda match: match[0] if match[0] == "\n" else write_code(match[0]), document)


def indented(message: str) -> str:
    """Give a message whose further lines begin with blanks, as no line of ours does."""
    first, *others = message.replace("\r\n", "\n").split("\n")
    return "\n".join([first, *(line if line[:2] in ("  ", "") else f"  {line}" for line in others)])


# --- results ---


def emit(result: object, output_format: str) -> int:
    """Print a result on stdout; exit code 1 for a truthful no (`result.ok` is false), else 0."""
    if output_format == "table":
        from mlstack.cli import page

        view = page.page_of(result)
        page.show(view)
        for note in view.notes:
            say(note)
    else:
        write(_formats(output_format)[output_format](result), exact=True)
    return 0 if getattr(result, "ok", True) else 1


def _formats(name: str) -> Mapping[str, Callable[[object], str]]:
    """Give the formats among which one is: those of every result, or those of findings alone."""
    if name in FORMATS:
        return FORMATS
    from mlstack.cli.commands.render import FINDING_FORMATS

    return FINDING_FORMATS


def table_text(result: object, *, names_only: bool = False) -> str:
    """Write the human view as plain text, or the names in it alone, one a line, for other programs."""
    from mlstack.cli import page

    view = page.page_of(result)
    return "\n".join(map(page.one_line, view.names)) if names_only else page.text(view)


def yaml_text(result: object) -> str:
    """Write the whole result as YAML."""
    from mlstack.objects import masking
    from mlstack.yaml import write

    return write.to_yaml(_without_unwritable(masking.scrubbed_value(document(result))))


def json_text(result: object) -> str:
    """Write the whole result as JSON, types kept."""
    import json

    from mlstack.objects import masking

    return json_escaped(json.dumps(masking.scrubbed_value(document(result)), indent=2, ensure_ascii=False))


# A new output format is one function here, and its name in the help of `-o`; one of findings alone, as SARIF,
# a decorated function in `commands/render.py`.
FORMATS: Mapping[str, Callable[[object], str]] = {
    "json": json_text,
    "name": lambda result: table_text(result, names_only=True),
    "table": table_text,
    "yaml": yaml_text,
}


def document(result: object) -> Any:
    """Turn a result into plain data that says what it is: its `kind` is the name of its schema."""
    from mlstack.app.app import API_VERSION

    content = plain(result)
    if not hasattr(result, "__dataclass_fields__") or "$schema" in content or hasattr(result, "api_version"):
        return content
    return {"apiVersion": API_VERSION, "kind": type(result).__name__, **content}


def plain(value: Any) -> Any:
    """Turn a result into mappings, lists and scalars, with the keys that files use (camelCase)."""
    from dataclasses import fields, is_dataclass
    from enum import Enum

    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, Enum):
        return value.value
    if "__str__" in type(value).__dict__ and not isinstance(value, str):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        content = {camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
        return content if "ok" in content or not hasattr(value, "ok") else {"ok": value.ok, **content}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def camel(name: str) -> str:
    """Write the name of a field as files do."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def _without_unwritable(value: Any) -> Any:
    """Give plain data without the characters that YAML cannot carry, which are written visibly."""
    if isinstance(value, str):
        return escaped(value) if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value) else value
    if isinstance(value, Mapping):
        return {_without_unwritable(key): _without_unwritable(item) for key, item in value.items()}
    return [_without_unwritable(item) for item in value] if isinstance(value, list) else value


# --- whole Kubernetes objects ---


def emit_objects(state: DesiredState, output_format: str, *, show_secrets: bool = False) -> int:
    """Print the objects of a render, on a terminal without secrets; its notes go to stderr."""
    if state.notes:
        say(*notes_text(state).split("\n"))
    objects = state.objects
    if state.has_secrets and sys.stdout.isatty() and not show_secrets:
        objects = tuple(manifest.with_data(masked(manifest.data, state)) for manifest in objects)
        say(
            f"note: secrets are hidden on a terminal; `mlstack render {state.environment} --show-secrets` and"
            " `> FILE` write them"
        )
    write(OBJECT_FORMATS[output_format](objects), exact=True)
    return 0


def masked(data: Mapping[str, Any], state: DesiredState) -> dict[str, Any]:
    """Give an object as a person may read it."""
    from mlstack.objects import masking

    return dict(masking.scrubbed_value(masking.mask_values(masking.mask_object(data), state.secrets)))


def notes_text(state: DesiredState) -> str:
    """Write the notes of a render, each on lines of its own."""
    return "\n".join(indented(f"note: {note}") for note in state.notes)


def objects_yaml(objects: Sequence[KubeObject]) -> str:
    """Write objects as one YAML stream, in the order they are applied."""
    from mlstack.yaml import write

    return write.to_yaml_documents(manifest.data for manifest in objects)


def objects_json(objects: Sequence[KubeObject]) -> str:
    """Write objects as one Kubernetes List."""
    from mlstack.yaml import write

    items = [dict(manifest.data) for manifest in objects]
    return json_escaped(write.to_json({"apiVersion": "v1", "kind": "List", "items": items}))


OBJECT_FORMATS: Mapping[str, Callable[[Sequence[KubeObject]], str]] = {
    "yaml": objects_yaml,
    "json": objects_json,
    "name": lambda objects: "\n".join(escaped(str(manifest.identity), kept="") for manifest in objects),
}
_LONGEST_FILE = 180  # bytes, of 255: a temporary name is longer


def object_files(objects: Sequence[KubeObject], suffix: str) -> dict[Path, tuple[KubeObject, bytes]]:
    """Give one file an object (`yaml` or `json`), named by component, kind, namespace and name.

    Names of some kinds (roles, bindings) hold any character but `/` and `%`. What two names must differ in on
    every system, and must not be lost, is written as in addresses: `a:b` is `a%3Ab`.
    """
    import re
    from hashlib import sha256
    from pathlib import Path

    from mlstack.yaml import write

    def percent_encoded(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match[0].encode())

    write_object = write.to_yaml if suffix == "yaml" else write.to_json
    files = {}
    for manifest in objects:
        kind = f"{manifest.kind}.{manifest.group}" if manifest.group else manifest.kind
        parts = [kind.lower(), *([manifest.namespace] if manifest.namespace else []), manifest.name]
        name = "_".join(re.sub(r"[^a-z0-9.-]", percent_encoded, part) for part in parts)
        if len(name) > _LONGEST_FILE:
            name = f"{name[: _LONGEST_FILE - 13]}-{sha256(name.encode()).hexdigest()[:12]}"
        file = Path(manifest.component or "_", f"{name}.{suffix}")
        files[file] = (manifest, write_object(dict(manifest.data)).encode())
    return files
