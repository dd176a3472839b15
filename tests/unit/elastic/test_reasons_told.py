"""The table of reasons in the package's README is about the reasons that the controller tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mlstack.elastic
from mlstack.app import files

README = files.folder("prototypes") / "elastic" / "README.md"
CODE = Path(mlstack.elastic.__file__).parent
TELLING = ("status.py", "state.py")
CONDITIONS = {"Admitted", "GangReady", "Progressing", "Degraded", "Scaled", "PriorityGranted"}
# Words of these modules that are no reasons: what the controller did, fields of an Event, outcomes.
OTHERS = {
    *("Admit", "Finish", "Observe", "Scale", "Suspend", "Wait"),
    *("Event", "TrainingJob", "Normal", "Warning", "True", "False", "Succeeded", "Pending", "Running"),
    *("Scaling", "StatefulSet", "Service", "PodDisruptionBudget", "Retries", "RetryTime"),
}
WORD = re.compile(r"[A-Z][a-z]+([A-Z][a-z]+)*")


def words() -> Iterator[str]:
    """Give the words in CamelCase of the modules that give reasons, and of notes and priorities elsewhere."""
    for file in sorted(CODE.rglob("*.py")):
        is_telling = file.relative_to(CODE).as_posix() in TELLING
        for part in ast.walk(ast.parse(file.read_text())):
            if is_telling and isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value
            elif (
                isinstance(part, ast.Call)
                and isinstance(part.func, ast.Name)
                and part.func.id in ("JobEvent", "Priority")
            ):
                for each in part.keywords:
                    if each.arg == "reason":
                        yield from (
                            str(one.value) for one in ast.walk(each.value) if isinstance(one, ast.Constant)
                        )


def table() -> list[list[str]]:
    text = README.read_text()
    assert "| reason | told by |" in text
    rows = text.partition("| reason | told by |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_reason_is_explained_and_every_explained_one_is_told() -> None:
    told = {word for word in words() if WORD.fullmatch(word)} - OTHERS - (CONDITIONS - {"Admitted", "Scaled"})
    assert set(re.findall(r"`(\w+)`", " ".join(row[0] for row in table()))) == told


def test_who_tells_a_reason_is_an_event_or_a_condition() -> None:
    tellers = {who for row in table() for who in re.split(r"[,;] ", row[1])}
    assert tellers == {"event", *CONDITIONS}
