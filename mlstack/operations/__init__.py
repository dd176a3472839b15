"""The use cases: functions of an app directory or a target that give one immutable result; none prints.

Each calls the rooms below in order; none calls another.
"""

from dataclasses import fields
from typing import Any, TypeVar

Result = TypeVar("Result")


def row(kind: type[Result], source: object, /, **values: Any) -> Result:
    """Make a dataclass of `values`, and of what the source has under the names of its other fields."""
    names = [field.name for field in fields(kind) if field.name not in values]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names if hasattr(source, name)}, **values)
