"""The only door to gojsonnet and jsonnet: a process that evaluates Jsonnet of others, each job in a child.

    python -m mlstack.importers.evaluate < request.json > outcomes

The request has `jobs` (`importers.jsonnet.Evaluation`) and limits; a line of the answer is one outcome:
`{"value": …}` or `{"error": "…"}`, with `stub: true` if our own `k.libsonnet` took the place of one that
is not there, and `whole: true` if a component looks at the others. Jsonnet can read files by `import` alone,
and that is answered here: from the folders that a job names, nowhere else. It loops and eats memory at will,
so each job has a process with limits of both.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlstack.importers.tokens import as_printed, modern

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
    """Evaluate a job in a process of its own."""
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
        said = raw.decode("utf-8", "replace")
        if imports.refusal:  # gojsonnet hands on what happens to stand behind our message in memory
            said = re.sub(re.escape(imports.refusal) + "[^\n]*", lambda _: imports.refusal, said)
        return {"error": said, "missing": imports.missing, **imports.traits}
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
    from mlstack.errors import MlstackError
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
