"""Jsonnet of others, evaluated in a process of its own with limits of time and memory."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlstack import programs
from mlstack.dataclass import dataclass
from mlstack.errors import RegistryError

CPU_S = 30
MEMORY_BYTES = 2 << 30
OUTPUT_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation."""

    file: str  # what imports are relative to, and what messages call the text
    text: str
    folders: tuple[str, ...] = ()  # where imports are looked for, the first before the last
    packages: Mapping[str, str] = field(default_factory=dict)  # REGISTRY/NAME of imports -> folder
    roots: tuple[str, ...] = ()  # nothing outside of these folders is read
    printed: tuple[str, ...] = ()  # files that ks printed anew before it evaluated them
    ext_vars: Mapping[str, str] = field(default_factory=dict)
    ext_codes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an evaluation gave: a value, or an error with its place."""

    value: Any = None
    error: str = ""  # one line; empty if there is a value
    where: str = ""  # file:line of the error, if it is known
    used_stub: bool = False  # our own `k.libsonnet` took the place of one that is not there
    looks_at_others: bool = False  # a component asks for what the others bring
    missing: tuple[str, ...] = ()  # imports that led nowhere


def check_evaluator() -> None:
    """Raise when there is nothing that evaluates Jsonnet.

    Raises:
        RegistryError: neither gojsonnet nor jsonnet is installed.
    """
    if not any(map(find_spec, ("_gojsonnet", "_jsonnet"))):
        message = "to import an app of ksonnet an evaluator of Jsonnet is needed, and none is installed"
        raise RegistryError(message, hint="pip install 'mlstack[ksonnet]', or jsonnet")


def evaluate(
    jobs: Sequence[Evaluation], *, cpu_s: int = CPU_S, memory_bytes: int = MEMORY_BYTES
) -> list[Outcome]:
    """Evaluate jobs one after the other; each has `cpu_s` seconds and `memory_bytes`.

    Raises:
        RegistryError: the evaluator is missing, or does not run.
    """
    if not jobs:
        return []
    check_evaluator()
    limits = {"cpu_s": cpu_s, "memory_bytes": memory_bytes, "output_bytes": OUTPUT_BYTES}
    request = json.dumps({"jobs": [asdict(job) for job in jobs], **limits}).encode()
    command = [sys.executable, "-P", "-m", "mlstack.importers.evaluate"]
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
