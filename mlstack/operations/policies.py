"""`policy list`: what `validate --policy` asks of objects."""

from __future__ import annotations

from typing import Literal

from mlstack.app.reader import AppReader
from mlstack.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class PolicyRow:
    """One policy."""

    id: str  # as waivers name it
    sets: tuple[str, ...]  # that it belongs to
    severity: Literal["error", "warning"]  # with an error `validate` says no
    reason: str  # why it is wanted
    fix: str  # what to do about an object that does not keep it
    where: str = ""  # the file of an app's own


@dataclass(frozen=True, kw_only=True)
class PolicyList:
    """The policies of an app: the built-in ones, then its own."""

    policies: tuple[PolicyRow, ...]  # as they are asked


def list_policies(app: AppReader) -> PolicyList:
    """List them.

    Raises:
        SchemaError: a file of the app's own is wrong.
    """
    from mlstack.validate.own_policies import all_policies

    return PolicyList(
        policies=tuple(
            PolicyRow(
                id=policy.id,
                sets=policy.sets,
                severity=policy.severity,
                reason=policy.reason,
                fix=policy.fix,
                where=policy.where,
            )
            for policy in all_policies(app.policies).values()
        )
    )
