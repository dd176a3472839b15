"""Whose an object is: that of another app or environment, or of another set of objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mlstack.model.applyset import MEMBER_LABEL
from mlstack.model.fields import FieldChange, path_text
from mlstack.model.kinds import CRD_GROUP
from mlstack.model.objects import APP_LABEL, ENVIRONMENT_LABEL, KubeObject, marks

# What several apps may bring at once, as long as they agree on it.
_SHARED = frozenset({("", "Namespace"), (CRD_GROUP, "CustomResourceDefinition")})
_MARKS = frozenset(
    path_text(("f:metadata", "f:labels", f"f:{name}"))
    for name in (*marks(app="", environment="", component=""), MEMBER_LABEL)
)


def other_owner(wanted: KubeObject, live: KubeObject) -> str:
    """Say whose an object is if it is not ours; empty if it is, or is nobody's.

    Args:
        wanted: the object as we want it, with our marks.
        live: the object as it is.
    """
    app, environment = live.labels.get(APP_LABEL), live.labels.get(ENVIRONMENT_LABEL)
    if app:
        ours = (wanted.labels.get(APP_LABEL), wanted.labels.get(ENVIRONMENT_LABEL))
        return "" if (app, environment) == ours else f"environment `{environment}` of app `{app}`"
    found, own = live.labels.get(MEMBER_LABEL), wanted.labels.get(MEMBER_LABEL)
    return f"ApplySet `{found}`" if found and found != own else ""


def former(wanted: KubeObject, live: KubeObject, environments: Collection[str]) -> str:
    """Give the environment that an object of our own app belongs to if the app does not have that one.

    Args:
        wanted: the object as we want it, with our marks.
        live: the object as it is.
        environments: those of the app, as labels name them.
    """
    environment = live.labels.get(ENVIRONMENT_LABEL, "")
    same = live.labels.get(APP_LABEL) == wanted.labels.get(APP_LABEL)
    return environment if same and environment not in environments else ""


def is_shared(wanted: KubeObject, changed: Iterable[FieldChange]) -> bool:
    """Tell whether an object of another is just as we want it and may stay theirs: only marks differ."""
    is_mine_alone = (wanted.group, wanted.kind) not in _SHARED
    return not is_mine_alone and all(one.path in _MARKS for one in changed)
