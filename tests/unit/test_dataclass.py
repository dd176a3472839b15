"""Classes whose methods are made with their first value behave as those of the standard library."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from threading import Barrier

import pytest

from mlstack.dataclass import Record, dataclass


@dataclass(frozen=True, kw_only=True)
class Point:
    """Two numbers."""

    x: int
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Labelled(Point):
    """A point with a name that its values make when it is new."""

    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or f"at {self.x}")


def test_the_first_value_is_as_every_other() -> None:
    first, second = Labelled(x=1), Labelled(x=1)
    assert first == second
    assert repr(first) == "Labelled(x=1, tags=[], name='at 1')"
    assert asdict(replace(first, x=2, name="")) == {"x": 2, "tags": [], "name": "at 2"}
    with pytest.raises(FrozenInstanceError):
        first.x = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'x'"):
        Labelled()  # type: ignore[call-arg]


def test_a_class_without_values_tells_its_fields() -> None:
    @dataclass(frozen=True)
    class Unused:
        """Nobody makes one."""

        size: int = 1

    assert dataclasses.is_dataclass(Unused)
    assert [declared.name for declared in fields(Unused)] == ["size"]


def test_threads_that_make_the_first_values_at_once_all_get_one() -> None:
    start = Barrier(8)

    for _ in range(50):

        @dataclass(frozen=True, order=True)
        class Size:
            """Compared by its number."""

            number: int
            unit: str = "Gi"

        def make(number: int, kind: type[Size] = Size) -> Size:
            start.wait()
            return kind(number)

        with ThreadPoolExecutor(8) as pool:
            sizes = list(pool.map(make, range(8)))
        assert sorted(sizes, reverse=True)[0] == Size(7)


def test_methods_are_not_made_at_import() -> None:
    code = "from mlstack.app.app import Component; print('__eq__' in Component.__dict__)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"False\n"


def test_a_record_is_a_frozen_dataclass_whose_fields_are_given_by_name() -> None:
    class Size(Record):
        """How large something is."""

        count: int
        notes: tuple[str, ...] = ()

    class Measured(Size):
        """How large something is, and who says so."""

        who: str

    assert Size(count=1) == Size(count=1, notes=())
    assert repr(Measured(count=1, who="me")).endswith("Measured(count=1, notes=(), who='me')")
    with pytest.raises(TypeError, match="positional"):
        Size(1)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Size(count=1).count = 2  # type: ignore[misc]
