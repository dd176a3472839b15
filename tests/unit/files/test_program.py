"""A program that was changed in any way is another one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlstack
from mlstack import program


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "program"
    (folder / "cli").mkdir(parents=True)
    for name in ("__init__.py", "cli/main.py"):
        (folder / name).write_text("")
    monkeypatch.setattr(mlstack, "__file__", str(folder / "__init__.py"))
    yield folder
    program.identity.cache_clear()


def identity() -> str:
    program.identity.cache_clear()
    return program.identity()


def test_sources_and_interpreter_make_a_program(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [identity()]
    (package / "cli/main.py").write_text("print()")
    seen.append(identity())
    os.utime(package / "cli/main.py", ns=(0, 0))
    seen.append(identity())
    (package / "cli/main.py").rename(package / "cli/other.py")
    seen.append(identity())
    monkeypatch.setattr("sys.version", "4.0")
    seen.append(identity())
    assert len(set(seen)) == len(seen)


def test_byte_code_follows_from_its_source(package: Path) -> None:
    first = identity()
    (package / "__pycache__").mkdir()
    (package / "__pycache__/main.pyc").write_text("compiled")
    assert identity() == first


def test_libraries_are_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = identity()
    monkeypatch.setattr(program, "_LIBRARIES", ("jinja2", "no_such_library"))
    assert identity() != first
    program.identity.cache_clear()
