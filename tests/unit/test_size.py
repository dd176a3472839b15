"""How large the tree is: its lines and modules a room, and that a public name means one thing.

Size is a cost that every reader pays. `pytest -n 0 -s tests/unit/test_size.py` prints the figures. A limit is
lowered when a room has become smaller; it is raised for nothing but a feature that users see.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "mlstack"
LINES = {
    "": 2015,
    "app": 7108,
    "cli": 7320,
    "deploy": 8837,
    "elastic": 7385,
    "importers": 2894,
    "kube": 3241,
    "objects": 2876,
    "operations": 7594,
    "readiness": 3221,
    "registries": 4138,
    "render": 3465,
    "simulator": 3361,
    "testing": 2242,
    "validate": 3719,
    "yaml": 1607,
}
MODULES = 173
LINES_OF_PRODUCT = 71_018
LINES_OF_TESTS = 78_151
MOST_LINES_OF_A_MODULE = 600
MOST_LINES_OF_A_FUNCTION = 40


def lines(folder: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in sorted(folder.rglob("*.py")))


def rooms() -> dict[str, int]:
    """Give the lines of each room; those at the top have no name."""
    sizes = {
        folder.name: lines(folder)
        for folder in sorted(PRODUCT.iterdir())
        if (folder / "__init__.py").exists()
    }
    return {**sizes, "": sum(len(file.read_text().splitlines()) for file in PRODUCT.glob("*.py"))}


def public_classes() -> dict[str, list[str]]:
    """Give the modules of each public name of a class or a type."""
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PRODUCT.rglob("*.py")):
        for name in re.findall(r"(?m)^(?:class )?([A-Z]\w*[a-z]\w*)(?=[:(]| = )", file.read_text()):
            places[name].append(file.relative_to(PRODUCT).as_posix())
    return places


def test_every_room_is_within_its_limit() -> None:
    sizes = rooms()
    for room, size in sizes.items():
        print(f"mlstack/{room}: {size} lines of {LINES.get(room)}")  # noqa: T201 - for `-s`
    assert sizes.keys() == LINES.keys()
    assert {room: size for room, size in sizes.items() if size > LINES[room]} == {}


def test_the_whole_is_within_its_limits() -> None:
    modules = len(list(PRODUCT.rglob("*.py")))
    product, tests = lines(PRODUCT), lines(ROOT / "tests")
    print(f"product: {product} lines in {modules} modules; tests: {tests} lines")  # noqa: T201 - for `-s`
    assert modules <= MODULES
    assert product <= LINES_OF_PRODUCT
    assert tests <= LINES_OF_TESTS


def test_modules_and_functions_fit_on_their_screens() -> None:
    long = []
    for file in PRODUCT.rglob("*.py"):
        text = file.read_text()
        spans = [(file.name, 0, text.count("\n"), MOST_LINES_OF_A_MODULE)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                spans.append((node.name, node.lineno, node.end_lineno or 0, MOST_LINES_OF_A_FUNCTION - 1))
        long += [f"{file}: {name}" for name, first, last, most in spans if last - first > most]
    assert long == []


def test_no_public_class_name_stands_for_two_things() -> None:
    assert {name: files for name, files in public_classes().items() if len(files) > 1} == {}
