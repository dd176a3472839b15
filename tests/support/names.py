"""The names of all tests, and of the sessions that are played as scripts, wherever they stand."""

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]


@cache
def names_of_tests(folder: Path = TESTS) -> frozenset[str]:
    """Give the names of test functions, and the titles of sessions as if they were names of functions."""
    names: set[str] = set()
    for file in folder.rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        names |= {*re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
        titles = re.findall(r'^    "([^"\n]+)": """', text, re.MULTILINE)
        names |= {f"test_{re.sub(r'[^a-z0-9]+', '_', title.lower())}" for title in titles}
    return frozenset(names)
