"""`dataclasses.dataclass`, whose methods are made when the first value of a class is.

Making them takes 0.3 ms a class (they are written as text and compiled), and a command uses a tenth of the
classes in the modules that it imports: of one changed component's `render` that was a third. Everything else
is as in the standard library, whose `field`, `fields`, `replace` and `asdict` know these classes.
"""

from __future__ import annotations

import dataclasses
from _thread import RLock  # `threading` is not loaded for it
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Take the place of `dataclasses.dataclass`."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if "slots" in options:  # needs a class of its own at once
            return dataclasses.dataclass(**options)(cls)
        unmade = _Unmade(cls, options)
        cls.__dataclass_fields__ = unmade
        cls.__init__ = unmade.init()
        return cls


_MAKING = RLock()


class _Unmade:
    """Stands for a class's fields until somebody asks for them, which makes its methods."""

    def __init__(self, cls: type, options: dict[str, Any]) -> None:
        self._class, self._options = cls, options

    def __get__(self, value: object, owner: type) -> Any:
        self._make()
        return self._class.__dict__["__dataclass_fields__"]

    def init(self) -> Any:
        """Give what stands for the constructor: it makes the class, then calls the real one."""

        def __init__(value: object, /, *args: Any, **kwargs: Any) -> None:
            self._make()
            self._class.__init__(value, *args, **kwargs)  # type: ignore[misc]

        return __init__

    def _make(self) -> None:
        """Make the methods; another thread that needs the class meanwhile waits.

        It must find a constructor at any moment, and `dataclass` leaves one that is there as it is: the real
        one is made in a class of its own and taken over last.
        """
        cls = self._class
        with _MAKING:
            if cls.__dict__["__dataclass_fields__"] is not self:
                return
            annotations = cls.__dict__.get("__annotations__", {})
            names = {*annotations, "__annotations__", "__doc__", "__module__", "__post_init__"}
            content = {name: value for name, value in cls.__dict__.items() if name in names}
            twin = type(cls.__name__, cls.__bases__, content)
            without = {"eq": False, "order": False, "repr": False}
            dataclasses.dataclass(**{**self._options, **without})(twin)
            dataclasses.dataclass(**self._options, init=False)(cls)
            cls.__init__ = twin.__init__  # type: ignore[misc]
