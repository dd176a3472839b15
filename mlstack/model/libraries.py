"""Which library modules the templates of one component can share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

_SCALARS = frozenset({str, int, float, bool, type(None)})
_Key = tuple[str, frozenset[tuple[str, int]]]


class Libraries:
    """The modules that one component's templates have imported, each made once.

    A library imported with its context gives the same module again when it sees the same values, which
    several templates of one component often do. It sees the component's variables, and what the importing
    template set before; that is compared by identity, and must be a scalar or a module. Whatever changes in
    place ends the sharing: a state written from outside the template that made it, and objects with a memory
    of their own.

    Args:
        variables: what every template of the component sees.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._numbers = count()
        self._modules: dict[_Key, tuple[Any, tuple[Any, ...]]] = {}
        self._shares = True
        self.frame = next(self._numbers)
        """Number of the template that runs now: of a module while it is made, else of the one rendered."""

    def begin(self) -> None:
        """Begin with the next template that is rendered."""
        self.frame = next(self._numbers)

    def module(self, name: str, seen: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Give the module of a library, made now unless it was before.

        Args:
            name: of the library.
            seen: all variables that it sees.
            make: makes it.
        """
        added = [(key, value) for key, value in seen.items() if self._variables.get(key, self) is not value]
        kinds = _SCALARS | {type(module) for module, _ in self._modules.values()}
        comparable = self._shares and all(type(value) in kinds for _, value in added)
        key = name, frozenset((name, id(value)) for name, value in added)
        if comparable and key in self._modules:
            return self._modules[key][0]
        module = self._made(make)
        if comparable and self._shares:
            # The values are kept, so that no other object gets the identity of one of them.
            self._modules[key] = module, tuple(value for _, value in added)
        return module

    def _made(self, make: Callable[[], Any]) -> Any:
        frame, self.frame = self.frame, next(self._numbers)
        try:
            return make()
        finally:
            self.frame = frame

    def written(self, frame: int) -> None:
        """Take note that a state was written which the template `frame` made."""
        if frame != self.frame:
            self.stop()

    def stop(self) -> None:
        """Share nothing from now on."""
        self._shares = False
        self._modules.clear()
