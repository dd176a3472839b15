"""What an app says about when objects of a kind work, where no rule is known or another one is wanted."""

from collections.abc import Mapping
from dataclasses import dataclass

from mlstack.model.fieldpaths import FieldPattern

Scalar = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class ConditionSign:
    """A condition that tells of a state.

    Attributes:
        condition: its type.
        status: the status it must have.
        reason: the reason it must have, empty for any.
    """

    condition: str
    status: str = "True"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FieldSign:
    """A field that tells of a state.

    Attributes:
        path: where it stands in the object.
        values: it must have one of these.
    """

    path: FieldPattern
    values: tuple[Scalar, ...]


Sign = ConditionSign | FieldSign


@dataclass(frozen=True, kw_only=True)
class ReadyRule:
    """Says when objects of one kind work.

    Attributes:
        kind: `example.com/Widget`, or `Pod` for the core group.
        ready: tells that an object works.
        failed: tells that it will not work without a change.
        done: tells that its work has ended well.
        observed_generation: its controller says which generation it has seen; until that is the newest,
            nothing else counts.
    """

    kind: str
    ready: Sign
    failed: Sign | None = None
    done: Sign | None = None
    observed_generation: bool = False


ReadyRules = Mapping[str, ReadyRule]
"""The rules of an app by kind."""
