"""Library modules are shared by the templates of a component while nobody can tell."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mlstack.render.template import Libraries

VARIABLES: Mapping[str, Any] = {"params": {"a": 1}, "name": "cnn"}


class Module:
    """Stands for a module."""


@pytest.fixture
def libraries() -> Libraries:
    return Libraries(VARIABLES)


def module(libraries: Libraries, name: str = "_pod.j2", **added: Any) -> Any:
    return libraries.module(name, {**VARIABLES, **added}, Module)


def test_a_library_that_sees_the_same_is_made_once(libraries: Libraries) -> None:
    first = module(libraries)
    libraries.begin()
    assert module(libraries) is first
    assert module(libraries, pod=first) is module(libraries, pod=first)
    assert module(libraries, replicas=1) is module(libraries, replicas=1)


def test_other_libraries_and_other_values_are_other_modules(libraries: Libraries) -> None:
    first = module(libraries)
    libs = [first, module(libraries, "_job.j2"), module(libraries, pod=first), module(libraries, job=first)]
    libs += [module(libraries, name="other"), module(libraries, replicas=1), module(libraries, replicas=2)]
    assert len({id(lib) for lib in libs}) == len(libs)


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), Module()], ids=lambda value: type(value).__name__)
def test_what_may_change_inside_is_not_compared(libraries: Libraries, value: Any) -> None:
    assert module(libraries, value=value) is not module(libraries, value=value)


def test_a_state_written_by_its_own_template_changes_nothing(libraries: Libraries) -> None:
    def writing() -> Module:
        libraries.written(libraries.frame)
        return Module()

    libraries.written(libraries.frame)
    first = libraries.module("_pod.j2", VARIABLES, writing)
    assert module(libraries) is first


def from_the_template(libraries: Libraries) -> None:
    frames: list[int] = []
    libraries.module("_state.j2", VARIABLES, lambda: frames.append(libraries.frame))
    libraries.written(frames[0])


def from_a_library(libraries: Libraries) -> None:
    frame = libraries.frame
    libraries.module("_state.j2", VARIABLES, lambda: libraries.written(frame))


def from_the_next_template(libraries: Libraries) -> None:
    frame = libraries.frame
    libraries.begin()
    libraries.written(frame)


@pytest.mark.parametrize("write", [from_the_template, from_a_library, from_the_next_template, Libraries.stop])
def test_a_state_written_from_outside_ends_the_sharing(
    libraries: Libraries, write: Callable[[Libraries], None]
) -> None:
    first = module(libraries)
    write(libraries)
    second = module(libraries)
    assert second is not first
    assert module(libraries) is not second


def test_a_library_that_fails_is_tried_again(libraries: Libraries) -> None:
    frame = libraries.frame
    with pytest.raises(ZeroDivisionError):
        libraries.module("_pod.j2", VARIABLES, lambda: 1 // 0)
    assert libraries.frame == frame
    assert isinstance(module(libraries), Module)
