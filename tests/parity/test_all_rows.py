"""The rows of what ksonnet's `ks` did: each of the 182 has a test here that is called by its id."""

import ast
import re
from pathlib import Path

ROWS = {"a": 17, "r": 18, "p": 17, "c": 30, "m": 21, "e": 18, "s": 11, "d": 11, "y": 23, "x": 16}
# Rows without a test, each with what is missing.
MISSING = {
    "s7": "`render --out` writes one file an object, with no index, provenance or removal of stale files",
}


def _tested() -> dict[str, list[str]]:
    """Give the names of the tests of each row."""
    names: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match = re.match(r"test_([a-z]\d+)_", node.name) if isinstance(node, ast.FunctionDef) else None
            if match:
                names.setdefault(match[1], []).append(node.name)
    return names


def test_every_row_has_a_test_or_stands_as_missing() -> None:
    every = {f"{group}{number}" for group, count in ROWS.items() for number in range(1, count + 1)}
    assert len(every) == 182
    names = _tested()
    assert every - set(names) == set(MISSING)
    assert not set(names) - every
