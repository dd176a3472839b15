"""`dataclasses.dataclass`, whose methods are made when the first value of a class is.

Making them takes 0.3 ms a class (they are written as text and compiled), and a command uses a tenth of the
classes in the modules that it imports: of one changed component's `render` that was a third. Everything else
is as in the standard library, whose `field`, `fields`, `replace` and `asdict` know these classes.
"""

from __future__ import annotations

import dataclasses
from _thread import RLock  # `threading` is not loaded for it
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform

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
        cls.__init__ = unmade.constructor()
        return cls


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Record:
    """Makes a frozen dataclass, of fields given by name, of what derives from it: results and their rows."""

    def __init_subclass__(cls) -> None:
        dataclass(cls, frozen=True, kw_only=True)


Value = TypeVar("Value")


def row(kind: type[Value], /, *sources: object, **values: Any) -> Value:
    """Make a dataclass of `values`, and of what the first source that has it says of each other field."""
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        source = next((source for source in sources if hasattr(source, field.name)), None)
        if source is not None:
            values.setdefault(field.name, getattr(source, field.name))
    return kind(**values)


_MAKING = RLock()


class _Unmade:
    """Stands for a class's fields until somebody asks for them, which makes its methods."""

    def __init__(self, cls: type, options: dict[str, Any]) -> None:
        self._class, self._options = cls, options

    def __get__(self, value: object, owner: type) -> Any:
        self._make()
        return self._class.__dict__["__dataclass_fields__"]

    def constructor(self) -> Callable[..., None]:
        """Give what stands for the constructor: it makes the class, then calls the real one."""

        def __init__(value: object, /, *args: Any, **kwargs: Any) -> None:
            self._make()
            self._class.__init__(value, *args, **kwargs)  # type: ignore[misc]

        return __init__

    def _make(self) -> None:
        """Make the methods; another thread that needs the class meanwhile waits."""
        cls, options = self._class, {**self._options}
        with _MAKING:
            if cls.__dict__["__dataclass_fields__"] is not self:
                return
            # One pair of methods keeps all classes frozen: a pair for each takes half as long as the rest.
            if options.pop("frozen", False):
                cls.__setattr__, cls.__delattr__ = _keep, _keep  # type: ignore[assignment, method-assign]
                options["unsafe_hash"] = options.get("eq", True) and "__hash__" not in cls.__dict__
            dataclasses.dataclass(**options, init=False)(cls)
            # Last, as a constructor must be there at any moment; `dataclass` leaves one as it is.
            cls.__init__ = _constructor(cls)  # type: ignore[misc]


def _keep(value: object, name: str, *_: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to, or delete, field {name!r}")


def _constructor(cls: Any) -> Any:
    """Write the constructor as `dataclasses` does, for frozen and other classes alike."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    ordered, named, lines = ["self"], list[str](), list[str]()
    for declared in dataclasses.fields(cls):
        name, value = declared.name, declared.name
        has_factory = declared.default_factory is not MISSING
        if has_factory:
            names[f"_{name}"] = declared.default_factory
            value = f"_{name}() if {name} is _MISSING else {name}" if declared.init else f"_{name}()"
        elif declared.default is not MISSING:
            names[f"_{name}"] = declared.default
        if declared.init:
            usual = "=_MISSING" if has_factory else f"=_{name}" if f"_{name}" in names else ""
            (named if declared.kw_only else ordered).append(name + usual)
        if declared.init or has_factory:
            lines.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join([*ordered, *(["*", *named] if named else [])])
    exec(f"def __init__({arguments}):\n " + "\n ".join(lines or ["pass"]), names)
    constructor = names["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor
