"""Jsonnet of others, evaluated in a process of its own: the only door to gojsonnet and jsonnet.

The request has `jobs` (`Evaluation`) and limits; a line of the answer is one outcome: `{"value": …}` or
`{"error": "…"}`, with `stub: true` if our own `k.libsonnet` took the place of one that is not there, and
`whole: true` if a component looks at the others. Jsonnet can read files by `import` alone, which is answered
here: from the folders that a job names, nowhere else. It loops and eats memory at will, so each job has a
process with limits of both.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from mlstack import programs
from mlstack.dataclass import Record
from mlstack.errors import MlstackError, RegistryError

CPU_S = 30
MEMORY_BYTES = 2 << 30
OUTPUT_BYTES = 64 << 20


class Evaluation(Record):
    """One evaluation."""

    file: str  # what imports are relative to, and what messages call the text
    text: str
    folders: tuple[str, ...] = ()  # where imports are looked for, the first before the last
    packages: Mapping[str, str] = field(default_factory=dict)  # REGISTRY/NAME of imports -> folder
    roots: tuple[str, ...] = ()  # nothing outside of these folders is read
    printed: tuple[str, ...] = ()  # files that ks printed anew before it evaluated them
    ext_vars: Mapping[str, str] = field(default_factory=dict)
    ext_codes: Mapping[str, str] = field(default_factory=dict)


class Outcome(Record):
    """What an evaluation gave: a value, or an error with its place."""

    value: Any = None
    error: str = ""  # one line; empty if there is a value
    where: str = ""  # file:line of the error, if it is known
    used_stub: bool = False  # our own `k.libsonnet` took the place of one that is not there
    looks_at_others: bool = False  # a component asks for what the others bring
    missing: tuple[str, ...] = ()  # imports that led nowhere


def evaluate(
    jobs: Sequence[Evaluation], *, cpu_s: int = CPU_S, memory_bytes: int = MEMORY_BYTES
) -> list[Outcome]:
    """Evaluate jobs one after the other; each has `cpu_s` seconds and `memory_bytes`.

    Raises:
        RegistryError: the evaluator is missing, or does not run.
    """
    if not jobs:
        return []
    if not any(map(find_spec, ("_gojsonnet", "_jsonnet"))):
        message = "to import an app of ksonnet an evaluator of Jsonnet is needed, and none is installed"
        raise RegistryError(message, hint="pip install 'mlstack[ksonnet]', or jsonnet")
    limits = {"cpu_s": cpu_s, "memory_bytes": memory_bytes, "output_bytes": OUTPUT_BYTES}
    request = json.dumps({"jobs": [asdict(job) for job in jobs], **limits}).encode()
    command = [sys.executable, "-P", "-m", "mlstack.importers.jsonnet"]
    settings = {"PYTHONPATH": str(Path(__file__).parents[2])}
    try:
        answer = programs.run(
            command, settings=settings, stdin=request, timeout_s=4.0 * cpu_s * len(jobs) + 60
        )
    except programs.ProgramError as error:
        raise RegistryError(f"the evaluator of Jsonnet does not run: {error}") from error
    return [_outcome(json.loads(line)) for line in answer.stdout.splitlines()]


def _outcome(answer: Mapping[str, Any]) -> Outcome:
    stub, whole = bool(answer.get("stub")), bool(answer.get("whole"))
    if "value" in answer:
        return Outcome(value=answer["value"], used_stub=stub, looks_at_others=whole)
    text = str(answer["error"])
    first = text.strip().splitlines()[0] if text.strip() else "it gave no reason"
    beginnings = r"(RUNTIME ERROR: |STATIC ERROR: |importer error: |couldn't open import \".*?\": )*"
    reason = re.sub(f"^{beginnings}", "", first)
    static = re.match(r"(\S+?):(?:\((\d+):|(\d+):)\d+\S* (.+)", reason)
    if static:
        where, reason = f"{static[1]}:{static[2] or static[3]}", static[4]
    else:
        places = re.findall(r"^\t(.+?):(?:\((\d+):|(\d+):)", text, re.MULTILINE)
        where = next((f"{file}:{a or b}" for file, a, b in places if not file.startswith("<")), "")
    missing = tuple(answer.get("missing", ()))
    return Outcome(error=reason, where=where, used_stub=stub, looks_at_others=whole, missing=missing)


# --- tokens: to rewrite what old go-jsonnet took and today's does not ---
# Rewritten are `import("x")` and `importstr("x")`, which lose their parentheses, and a `+` where a value
# begins (`a: +{…}`, `x + +y`), which goes. Every other character stays, so that places in messages are right.


_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
  | (?P<block>\|\|\|-?[\ \t\r]*\n.*?\n[\ \t]*\|\|\|)
  | (?P<string>@"(?:[^"]|"")*"|@'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*|\$)
  | (?P<operator>[!:~+\-&|^=<>*/%]+)
  | (?P<open>["'].*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# Words behind which a value begins.
_LEADING = frozenset({"assert", "else", "error", "if", "in", "local", "then"})


class Token(NamedTuple):
    """A token, and where it begins in the text."""

    kind: str  # string, block, number, word, operator, open or other
    text: str
    start: int


def tokens(text: str) -> Iterator[Token]:
    """Give the tokens of a text; what follows a quote without its end is one."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:  # cannot be: any character is a token
            return
        kind, token = str(match.lastgroup), match.group()
        if kind == "operator":
            token = _operator(token)
        if kind != "blank":
            yield Token(kind, token, position)
        position += len(token)


def _operator(token: str) -> str:
    """Cut a row of symbols where Jsonnet does: before a comment or block, and no `+ - ~ !` behind another."""
    for mark in ("//", "/*", "|||"):
        place = token.find(mark)
        token = token[:place] if place > 0 else token
    while len(token) > 1 and token[-1] in "+-~!":
        token = token[:-1]
    return token


def modern(text: str) -> str:
    """Rewrite what today's Jsonnet does not take any more; a text without it is given back as it is."""
    if "import" not in text and "+" not in text:
        return text
    blanked: list[tuple[int, int]] = []
    before: Token | None = None
    listed = [*tokens(text)]
    for index, token in enumerate(listed):
        after = [follower.text for follower in listed[index + 1 : index + 4]]
        if token.text in ("import", "importstr") and token.kind == "word":
            is_string = len(after) == 3 and listed[index + 2].kind == "string"
            if is_string and after[0] == "(" and after[2] == ")":
                blanked += [(listed[index + 1].start, 1), (listed[index + 3].start, 1)]
        if token.kind == "operator" and token.text == "+" and _begins_value(before):
            blanked.append((token.start, 1))
            continue
        before = token
    if not blanked:
        return text
    characters = list(text)
    for start, length in blanked:
        characters[start : start + length] = " " * length
    return "".join(characters)


def as_printed(text: str) -> str:
    """Give code as ks printed it before it was evaluated: a text block ends with one more line break."""
    if "|||" not in text:
        return text
    parts, position = [], 0
    for token in tokens(text):
        if token.kind == "block":
            parts += [text[position : token.start], "(", token.text, ' + "\\n")']
            position = token.start + len(token.text)
    return "".join([*parts, text[position:]])


def _begins_value(before: Token | None) -> bool:
    if before is None or before.kind == "operator":
        return True
    return before.text in _LEADING if before.kind == "word" else before.text in ("(", "[", "{", ",", ";")


def text_of(token: Token) -> str:
    """Give what a string says; raises a ValueError for one that is none."""
    if token.text[0] == "@":
        return token.text[2:-1].replace(token.text[1] * 2, token.text[1])
    if token.text[0] == "'":
        escape = r"\\(u[0-9a-fA-F]{4}|.)"
        inner = re.sub(escape, lambda m: "'" if m[1] == "'" else m[0], token.text[1:-1], flags=re.DOTALL)
        text = '"' + re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inner) + '"'
    else:
        text = token.text.replace("\\'", "'")
    return str(json.loads(text, strict=False))


# --- the process: `python -m mlstack.importers.jsonnet < request.json > outcomes` ---


LARGEST_FILE = 32 << 20
_STUBS = ("k.libsonnet", "k8s.libsonnet")
# What most components need of ksonnet-lib: the constructor of a List.
_STUB = """
{ core:: { v1:: { list:: {
  new(items):: { apiVersion: "v1", kind: "List" } + self.items(items),
  items(items):: { items+: if std.type(items) == "array" then items else [items] },
} } } }
"""


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    for job in request["jobs"]:
        if not hasattr(os, "fork"):  # on Windows the caller's limit of time is the only one
            sys.stdout.write(json.dumps(evaluated(job)) + "\n")
            continue
        outcome = _apart(job, request["cpu_s"], request["memory_bytes"], request["output_bytes"])
        sys.stdout.buffer.write(outcome + b"\n")
        sys.stdout.buffer.flush()


def _apart(job: Mapping[str, Any], cpu_s: int, memory_bytes: int, output_bytes: int) -> bytes:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(job, writing, cpu_s, memory_bytes)
    os.close(writing)
    answer, until_s = bytearray(), time.monotonic() + 4 * cpu_s
    why = ""
    while not why:
        if not select.select([reading], [], [], max(until_s - time.monotonic(), 0))[0]:
            why = f"it took more than {4 * cpu_s} s"
        elif not (piece := os.read(reading, 1 << 20)):
            break
        elif len(answer := answer + piece) > output_bytes:
            why = f"its result is larger than {output_bytes >> 20} MiB"
    os.close(reading)
    if why:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not why and os.waitstatus_to_exitcode(status) == 0:
        return bytes(answer)
    killed = -os.waitstatus_to_exitcode(status) in (signal.SIGXCPU, signal.SIGKILL)
    usual = (
        f"more than {cpu_s} s of processor time"
        if killed
        else f"more than {memory_bytes >> 20} MiB of memory"
    )
    return json.dumps({"error": f"evaluation was ended: {why or f'it took {usual}'}"}).encode()


def _child(job: Mapping[str, Any], writing: int, cpu_s: int, memory_bytes: int) -> None:
    import resource

    status = 1
    try:
        with Path(os.devnull).open("w") as nothing:  # Go says a lot when it runs out of memory
            os.dup2(nothing.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        # Go's runtime and the arenas of its threads reserve much more than they use.
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_AS, (4 * memory_bytes, 4 * memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        answer = memoryview(json.dumps(evaluated(job)).encode())
        while answer:
            answer = answer[os.write(writing, answer) :]
        status = 0
    finally:
        os._exit(status)


def _evaluator() -> tuple[Any, Mapping[str, Any]]:
    """Give gojsonnet, which evaluates as ks did, or the one in C++, and what they are to be given."""
    try:
        import _gojsonnet
    except ImportError:
        import _jsonnet

        # It takes several parameters of a function for the same one unless each has a name of one letter.
        return _jsonnet, {name: (tuple("abc"[: len(params)]), f) for name, (params, f) in NATIVE.items()}
    return _gojsonnet, NATIVE


def evaluated(job: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one job (`importers.jsonnet.Evaluation` as a map), without any limits."""
    imports = _Imports(job)
    evaluator, native = _evaluator()
    try:
        text = evaluator.evaluate_snippet(
            job["file"],
            modern(job["text"]),
            ext_vars=job["ext_vars"],
            ext_codes=job["ext_codes"],
            import_callback=imports.load,
            native_callbacks=native,
        )
    except (RuntimeError, UnicodeDecodeError) as error:
        raw = error.object if isinstance(error, UnicodeDecodeError) else str(error).encode()
        reason = raw.decode("utf-8", "replace")
        if imports.refusal:  # gojsonnet hands on what happens to stand behind our message in memory
            reason = re.sub(re.escape(imports.refusal) + "[^\n]*", lambda _: imports.refusal, reason)
        return {"error": reason, "missing": imports.missing, **imports.traits}
    return {"value": json.loads(text), **imports.traits}


class _Imports:
    """Answers imports: beside the file that imports, then from packages and folders in their order."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._folders, self._packages = job["folders"], job["packages"]
        self._roots = [Path(root).resolve() for root in job["roots"]]
        self._printed = frozenset(job["printed"])
        self._main = Path(job["file"]).parent
        self.traits = {"stub": False, "whole": False}  # as of `jsonnet.Outcome`
        self.missing: list[str] = []
        self.refusal = ""  # what was said of the last import that was refused

    def load(self, base: str, name: str) -> tuple[str, bytes]:
        """Give the place and text of a file, or raise RuntimeError with the reason."""
        try:
            return self._loaded(base, name)
        except RuntimeError as error:
            self.refusal = str(error)
            raise

    def _loaded(self, base: str, name: str) -> tuple[str, bytes]:
        for place in self._places(base, name):
            real = place.resolve()
            if not place.is_symlink() and not place.is_file():
                continue
            if not any(real.is_relative_to(root) for root in self._roots):
                raise RuntimeError(f"`{name}` leads out of the app: --jpath FOLDER allows another folder")
            if not real.is_file():
                continue
            if real.stat().st_size > LARGEST_FILE:
                raise RuntimeError(f"`{name}` is larger than {LARGEST_FILE >> 20} MiB")
            data = real.read_bytes()
            is_frame = real.name == "base.libsonnet" or real.is_relative_to(self._main)
            self.traits["whole"] |= b"__ksonnet/components" in data and not is_frame
            if name.endswith((".jsonnet", ".libsonnet")):
                text = modern(data.decode("utf-8", "replace"))
                data = (as_printed(text) if str(place) in self._printed else text).encode()
            return str(place), data
        if name in _STUBS:
            self.traits["stub"] = True
            return f"<{name} of mlstack>", _STUB.encode()
        self.missing.append(name)
        raise RuntimeError(f"there is no file `{name}`")

    def _places(self, base: str, name: str) -> list[Path]:
        beside = [Path(base) / name]
        parts = name.split("/", 2)
        if len(parts) == 3 and (folder := self._packages.get("/".join(parts[:2]))):
            beside.append(Path(folder) / parts[2])
        return beside + [Path(folder) / name for folder in self._folders]


# --- the functions that ks gave to Jsonnet ---


def _parse_yaml(text: str) -> list[Any]:
    from mlstack.yaml.read import read_documents

    try:
        return [document.value for document in read_documents(text, source="parseYaml")]
    except MlstackError as error:
        raise RuntimeError(str(error)) from error


def _subst(pattern: str, source: str, replacement: str) -> str:
    def expanded(match: re.Match[str]) -> str:
        def group(reference: re.Match[str]) -> str:
            name = reference[1] or reference[2] or ""
            with suppress(IndexError):
                return match[int(name) if name.isdigit() else name] or ""
            return "" if name else "$"

        return re.sub(r"\$(?:\{(\w+)\}|(\w+)|\$)", group, replacement)

    return re.sub(pattern, expanded, source)


NATIVE: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "parseYaml": (("yaml",), _parse_yaml),
    "parseJson": (("json",), json.loads),
    "escapeStringRegex": (("str",), lambda text: re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)),
    "regexMatch": (("regex", "string"), lambda pattern, text: re.search(pattern, text) is not None),
    "regexSubst": (("regex", "src", "repl"), _subst),
}


if __name__ == "__main__":
    main()
