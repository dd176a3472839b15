"""The rows of what ksonnet's `ks` did: each of the 182 has a test or session here that bears its id."""

import re
from pathlib import Path

from tests.support.names import names_of_tests

ROWS = {"a": 17, "r": 18, "p": 17, "c": 30, "m": 21, "e": 18, "s": 11, "d": 11, "y": 23, "x": 16}


def test_every_row_has_a_test() -> None:
    every = {f"{group}{number}" for group, count in ROWS.items() for number in range(1, count + 1)}
    assert len(every) == 182
    matches = (re.match(r"test_([a-z]\d+)_", name) for name in names_of_tests(Path(__file__).parent))
    tested = {match[1] for match in matches if match}
    assert every == tested
