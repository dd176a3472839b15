"""Where the values of secret parameters stand: in environment variables, and in files that SOPS encrypted.

The files of an app say where; a value is read when objects are rendered, and stands nowhere on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlstack.dataclass import dataclass
from mlstack.objects.masking import MASK

FROM_ENV = "fromEnv"
SOPS = "sops"
"""The key under which SOPS keeps what it needs to decrypt a file."""


@dataclass(frozen=True)
class SecretRef:
    """Where the value of a secret parameter stands."""

    variable: str = ""  # an environment variable, or
    file: str = ""  # a file of the app that SOPS has encrypted, and
    path: tuple[str | int, ...] = ()  # the place in it

    @property
    def shown(self) -> Any:
        """Give what people see: the name of a variable is no secret."""
        return {FROM_ENV: self.variable} if self.variable else MASK


def mapped(value: Any, change: Callable[[SecretRef], Any]) -> Any:
    """Give a value with something else in the place of each reference."""
    if isinstance(value, SecretRef):
        return change(value)
    if isinstance(value, Mapping):
        is_reference = value.keys() == {FROM_ENV} and isinstance(value[FROM_ENV], str)
        if is_reference and value[FROM_ENV]:
            return change(SecretRef(variable=value[FROM_ENV]))
        return type(value)({key: mapped(inner, change) for key, inner in value.items()})  # type: ignore[call-arg]
    return [mapped(inner, change) for inner in value] if isinstance(value, list) else value


def referenced(value: Any) -> Any:
    """Give the value of a secret parameter with references for what names an environment variable."""
    return mapped(value, lambda reference: reference)


def shown(value: Any) -> Any:
    """Give what people may see of the value of a secret parameter: where it stands, else the mask."""
    return value.shown if isinstance(value := referenced(value), SecretRef) else MASK


def literals(value: Any) -> Any:
    """Give a value without its references, for those who must know what is not to be printed."""
    return mapped(value, lambda reference: None)


def references(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the paths of the references in a value."""
    if isinstance(value, SecretRef):
        yield path
    pairs = (
        value.items() if isinstance(value, Mapping) else enumerate(value if isinstance(value, list) else ())
    )
    for key, inner in pairs:
        if inner.__class__ is not str:  # as most values are
            yield from references(inner, (*path, key))


def encrypted(value: Any, file: str, path: tuple[str | int, ...] = ()) -> Any:
    """Give what a file that SOPS has encrypted says, with a reference in the place of each value."""
    if isinstance(value, Mapping):
        return {key: encrypted(inner, file, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [encrypted(inner, file, (*path, index)) for index, inner in enumerate(value)]
    return None if value is None else SecretRef(file=file, path=path)
