"""The rows of what ksonnet's `ks` did: each of the 182 has a test here that is called by its id."""

import ast
import re
from pathlib import Path

ROWS = {"a": 17, "r": 18, "p": 17, "c": 30, "m": 21, "e": 18, "s": 11, "d": 11, "y": 23, "x": 16}
# Rows without a test yet.
MISSING = """
a1 a4 a5 a8 a10 a11 a14
r1 r3 r4 r5 r6 r7 r10 r12 r13 r14 r15
c11 c12 c17 c19 c20 c21 c25 c27 c28 c29
m6 m7 m13 m15 m17 m21
e1 e3 e6 e10 e12 e13 e16
s7 s8
x16
"""


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
    assert every - set(names) <= set(MISSING.split())
    assert not set(names) - every
