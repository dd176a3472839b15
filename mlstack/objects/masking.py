"""What nobody may read: secret parameters and the data of Secrets, by place and wherever else they stand.

By its place a value is hidden whatever it is. In other texts, as a server's message that quotes an object, it
is looked for in the forms that programs write: plain, escaped for JSON, YAML, Go, Python, HTML and addresses,
in base64 at any offset, as bytes, a text of many lines line by line too, and cut off before its end. There a
value counts from 6 characters on (8 digits), or 4 if it mixes letters and figures and stands alone; words
that stand everywhere (`admin`, `default`) and names of what is deployed do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

MASK = "********"
_COPIES = "kubectl.kubernetes.io/last-applied-configuration"

_WORDS = """
admin administrator amazon basic bearer client cluster config database debug default development
disabled docker enabled example external false github google internal jupyter jupyterhub kafka katib
kubeflow kubernetes latest localhost master minikube minio mlpipeline mongodb mysql nobody nothing
opaque operator password postgres postgresql private production public rabbitmq readonly redis
registry release root secret secrets server service staging string system tensorflow testing token
training unknown unlimited username values warning worker
"""
_COMMON = frozenset(_WORDS.split())
_LEAST, _LEAST_DIGITS, _LEAST_MIXED, _LEAST_LINE = 6, 8, 4, 8
_START = 4
"""How many characters of a form lead to it."""
_LEAST_CUT = 8
_LONG = 4096
"""Longer values are looked for as they are and in base64 alone."""
_CUTS = ("…", "...", "\n")
_NOT_TELLING = ("-----", "apiVersion:", "kind:")


class Secrets:
    """Values that nobody may read, and where they stand in a text."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._values: set[str | bytes] = set()
        self._waiting: list[str | bytes] = []
        self._forms: dict[str, dict[str, bool]] = {}
        self._names: set[str] = set()
        self._called_secret: set[str] = set()
        self.add(list(values))

    def add(self, value: Any) -> None:
        """Take note of a value; of a map or list, of every scalar in it."""
        for scalar in _scalars([value]):
            if scalar and scalar not in self._values:
                self._values.add(scalar)
                self._waiting.append(scalar)

    def allow(self, names: Iterable[str]) -> None:
        """Take note of names that may be read although a Secret holds the same: a user, a database."""
        self._names.update(names)

    def insist(self, value: Any) -> None:
        """Take note of a value that somebody called secret: no name is made of it."""
        self.add(value)
        self._called_secret.update(_scalars([value]))

    def masked(self, text: str) -> str:
        """Give a text with the mask in the place of all it holds of secrets."""
        while self._waiting:
            for form, is_bounded in _forms(self._waiting.pop()):
                forms = self._forms.setdefault(form[:_START], {})
                forms[form] = is_bounded and forms.get(form, True)
        if not self._forms:
            return text
        spans = set(self._spans(text))
        if re.search(_ESCAPED, text) is not None:  # a program has escaped something
            plain, edges = _unescaped(text)
            spans |= {(edges[start], edges[end]) for start, end in self._spans(plain)}
        parts: list[str] = []
        at = 0
        for start, end in sorted(spans):
            if start > at or not parts:
                parts += [text[at:start], MASK]
            at = max(at, end)
        return "".join(parts) + text[at:] if parts else text

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Give where secrets stand, from left to right; places may overlap."""
        by_start, allowed = self._forms, self._names - self._called_secret
        for start in range(len(text) - _START + 1):
            forms = by_start.get(text[start : start + _START])
            if forms is not None:
                ends = (_end(text, start, *form) for form in forms.items() if form[0] not in allowed)
                end = max(ends, default=0)
                if end > start:
                    yield start, end


def _end(text: str, start: int, form: str, is_bounded: bool) -> int:
    """Give where a form ends that begins at `start`, whole or cut off; 0 if it does not stand there."""
    end = start + len(form)
    if text.startswith(form, start):
        alone = not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum())
        return end if alone or not is_bounded else 0
    if (
        is_bounded
        or len(form) <= _LEAST_CUT
        or form.startswith("-----")
        or not text.startswith(form[:_LEAST_CUT], start)
    ):
        return 0
    most = min(len(form), len(text) - start)
    same = next((count for count in range(most) if text[start + count] != form[count]), most)
    rest = text[start + same : start + same + 4].removeprefix(" ")
    return start + same if not rest or rest.startswith(_CUTS) else 0


def _forms(value: str | bytes) -> Iterator[tuple[str, bool]]:
    """Give how programs write a value, and whether it counts only where it stands alone."""
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    if isinstance(value, str) or _is_text(value):
        text = value if isinstance(value, str) else data.decode()
        lines = [line.strip() for line in text.splitlines()] if "\n" in text else []
        telling = [line for line in lines if len(line) >= _LEAST_LINE and not line.startswith(_NOT_TELLING)]
        for part in dict.fromkeys((text, text.strip(), *telling)):
            weight = _weight(part)
            plain = _unescaped(part)[0].strip("\\ ") if weight and len(part) <= _LONG else ""
            forms = (part, plain, plain.replace(" ", "+")) if weight else ()
            yield from ((form, weight == 1) for form in forms if len(form) >= _START)
    yield from _in_base64(data)
    if _START <= len(data) <= _LONG:
        yield data.hex(), True
        yield data.hex().upper(), True
        for style, between in (("d", " "), ("d", ", "), ("d", ","), ("#x", ", "), ("#04x", ", ")):
            yield between.join(format(byte, style) for byte in data), True


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _weight(text: str) -> int:
    """Say whether a value counts in a text: 2 anywhere, 1 where it stands alone, 0 not at all."""
    if text.lower() in _COMMON:
        return 0
    letters, digits = sum(map(str.isalpha, text)), sum(map(str.isdigit, text))
    if not letters:
        return 2 if digits >= _LEAST_DIGITS or len(text) - digits >= _LEAST else 0
    if len(text) >= _LEAST:
        return 2
    return 1 if len(text) >= _LEAST_MIXED and digits else 0


# How JSON, YAML, Go, Python, C, HTML and addresses write characters, even one inside the other; blanks
# may have been joined, and quotes doubled.
_ESCAPED = (
    r"""(?:\\+x[0-9A-Fa-f]{2})+|(?:\\+u[0-9A-Fa-f]{4})+|\\+U[0-9A-Fa-f]{8}|\\+[abfnrtv0"'/]?|(?:%[0-9A-Fa-f]{2})+"""
    r"""|&(?:\#x?[0-9A-Fa-f]{1,6}|amp|lt|gt|quot|apos);|\s+|'+"""
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": " ", "r": " ", "t": " ", "v": " ", "0": "\0", "/": "/"}
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def _unescaped(text: str) -> tuple[str, list[int]]:
    """Give a text as it was before it was escaped, and where in the text each of its characters begins."""
    plain: list[str] = []
    edges: list[int] = []
    at = 0
    for match in re.finditer(_ESCAPED, text):
        piece = _meant(match[0])
        plain += [text[at : match.start()], piece]
        edges += [*range(at, match.start()), *[match.start()] * len(piece)]
        at = match.end()
    return "".join(plain) + text[at:], [*edges, *range(at, len(text) + 1)]


def _meant(escape: str) -> str:
    if escape.isspace() or escape[0] == "'":
        return escape[0] if escape[0] == "'" else " "
    if escape[0] == "&":
        name = escape[1:-1]
        code = int(name[2:], 16) if name[:2] == "#x" else int(name[1:]) if name[1:].isdigit() else 0
        return _ENTITIES.get(name) or (chr(code) if 0 < code < 0x110000 else escape)
    letters = escape.replace("\\", "") or "\\"
    match letters[0]:
        case "%" | "x":
            data = bytes.fromhex(letters.replace(letters[0], ""))
            return data.decode() if _is_text(data) else data.decode("latin-1")
        case "u":
            return bytes.fromhex(letters.replace("u", "")).decode("utf-16-be", "replace")
        case "U":
            return chr(min(int(letters[1:], 16), 0x10FFFF))
    return _LETTERS.get(letters, letters)


def _in_base64(data: bytes) -> Iterator[tuple[str, bool]]:
    """Give the base64 of a value, alone and within that of a longer text, at each of its three offsets."""
    from base64 import b64encode

    whole = b64encode(data).decode()
    yield whole, len(whole) < _LEAST_LINE
    yield whole.translate(_URL_SAFE), len(whole) < _LEAST_LINE
    for offset in range(3):
        inner = b64encode(b"\0" * offset + data).decode()
        sure = inner[-(-8 * offset // 6) : 8 * (offset + len(data)) // 6]
        if len(sure) >= _LEAST_LINE:
            yield sure, False
            yield sure.translate(_URL_SAFE), False
    for width in (64, 76) if len(whole) > 76 else ():  # as `base64` and PEM break lines
        for start in range(0, min(len(whole), _LONG), width):
            line = whole[start : start + width]
            if len(line) >= 2 * _LEAST_LINE:
                yield line, False


_URL_SAFE = str.maketrans("+/", "-_")


# --- what a run knows ----------------------------------------------------------------------------------
# One a run of the program, and known to all of it: a secret is met in a file, a render or an answer of the
# server, and may leave in any error, log line or traceback of any thread.
_of_run: Secrets | None = None


@contextmanager
def collecting() -> Iterator[Secrets]:
    """Keep what is noted until the block is left; inside another one, that one goes on."""
    global _of_run
    before = _of_run
    _of_run = before if before is not None else Secrets()
    try:
        yield _of_run
    finally:
        _of_run = before


def note(*values: Any) -> None:
    """Take note, for the run that collects them, of values that nobody may read."""
    if _of_run is not None:
        for value in values:
            _of_run.insist(value)


def note_object(data: Any) -> None:
    """Take note of what a Kubernetes object keeps secret, if it is a Secret; of those in a List too."""
    if _of_run is None or not isinstance(data, Mapping):
        return
    for value in values_of_secret(data) if is_secret(data) else ():
        _of_run.add(value)
    for item in data["items"] if isinstance(data.get("items"), list) else ():
        note_object(item)


def allow(names: Iterable[str]) -> None:
    """Take note, for the run, of names that may be read."""
    if _of_run is not None:
        _of_run.allow(names)


def scrubbed(text: str) -> str:
    """Give a text without what the run knows to be secret, and without passwords of addresses."""
    text = without_logins(text)
    return text if _of_run is None else _of_run.masked(text)


def without_logins(text: str) -> str:
    """Mask passwords and tokens that stand in addresses, before the host or in the query."""
    if "://" not in text:
        return text
    text = re.sub(r"(://)([^\s/?#\"'`<>@:]*):([^\s/\"'`<>]*)@", rf"\1\2:{MASK}@", text)
    text = re.sub(r"(https?://)(?!git@|oauth2@)[^\s/?#\"'`<>@:]+@", rf"\1{MASK}@", text)
    return re.sub(
        r"(?i)([?&](?:[a-z_-]*(?:token|password|passwd|secret|api[_-]?key|signature|credential)|sig)=)[^\s&#\"'`<>)]+",
        rf"\1{MASK}",
        text,
    )


def scrubbed_value(value: Any) -> Any:
    """Give plain data whose texts are scrubbed."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, Mapping):
        return {scrubbed(key): scrubbed_value(inner) for key, inner in value.items()}
    return [scrubbed_value(inner) for inner in value] if isinstance(value, list | tuple) else value


# --- by the place --------------------------------------------------------------------------------------


def is_secret(data: Mapping[str, Any]) -> bool:
    """Tell whether a Kubernetes object is a Secret."""
    return data.get("kind") == "Secret" and data.get("apiVersion") == "v1"


def values_of_secret(data: Mapping[str, Any]) -> Iterator[str | bytes]:
    """Give the values of a Secret: decoded where they are base64, else as they stand."""
    from base64 import b64decode

    yield from _scalars([data.get("stringData")])
    for value in _scalars([data.get("data")]):
        yield value
        with suppress(ValueError):  # what is wrong there is secret all the same
            yield b64decode(value, validate=True)
    metadata = data.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    copy = annotations.get(_COPIES) if isinstance(annotations, Mapping) else None
    if isinstance(copy, str):
        import json

        try:
            inner = json.loads(copy)
        except (ValueError, RecursionError):
            return
        if isinstance(inner, Mapping) and is_secret(inner):
            yield from values_of_secret({key: value for key, value in inner.items() if key != "metadata"})


def _scalars(values: Iterable[Any]) -> Iterator[Any]:
    """Give every scalar as text, or as bytes where it is such."""
    for value in values:
        if isinstance(value, Mapping):
            yield from _scalars(value.values())
        elif isinstance(value, list | tuple):
            yield from _scalars(value)
        elif value is not None and not isinstance(value, bool):
            yield value if isinstance(value, bytes) else str(value)


def mask_object(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give a Kubernetes object without what it keeps secret: `data` and `stringData` of a Secret.

    Annotations with a copy of the object (`kubectl apply` leaves one) are masked as well.
    """
    masked = dict(data)
    if not is_secret(data):
        return masked
    for field in ("data", "stringData"):
        if data.get(field) is not None:
            masked[field] = mask_whole(data[field])
    metadata = data.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("annotations"), Mapping):
        copies = {name: MASK if name == _COPIES else text for name, text in metadata["annotations"].items()}
        masked["metadata"] = {**metadata, "annotations": copies}
    return masked


def mask_whole(value: Any) -> Any:
    """Give the mask in the place of a value, of a map in the place of each of its values."""
    if isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    return None if value is None else MASK


def secret_texts(values: Iterable[Any]) -> tuple[str, ...]:
    """Give the texts of secret values, for `mask_values`; longest first."""
    return tuple(sorted({text for text in _scalars(values) if text}, key=lambda text: (-len(text), text)))


def mask_values(value: Any, secrets: Sequence[str]) -> Any:
    """Give plain data in which texts that are or hold a secret are masked, wherever a template put them."""
    return _masked(value, _known(tuple(secrets)), frozenset(secrets)) if secrets else value


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """Give the text with the mask in the place of every secret."""
    return _known(tuple(secrets)).masked(text)


@lru_cache(maxsize=16)
def _known(secrets: tuple[str, ...]) -> Secrets:
    return Secrets(secrets)


def _masked(value: Any, known: Secrets, secrets: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(inner, known, secrets) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(inner, known, secrets) for inner in value]
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    if text in secrets and text.lower() not in _COMMON and (isinstance(value, str) or len(text) >= _START):
        return MASK
    return known.masked(value) if isinstance(value, str) else value
