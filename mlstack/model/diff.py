"""What would change in a cluster, as values: one `Change` an object, `Changes` for a run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlstack.model.app import ClusterIdentity
from mlstack.model.fields import FieldChange
from mlstack.model.objects import Identity, KubeObject

Action = Literal["create", "update", "recreate", "delete", "unchanged", "missing", "kept"]

DESTRUCTIVE: frozenset[Action] = frozenset({"recreate", "delete"})
EXISTING: frozenset[Action] = frozenset({"update", "recreate", "delete"})


RefusalKind = Literal["immutable", "destructive", "foreign"]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a change must not be carried out.

    Attributes:
        kind: a field that cannot change in place, a definition that would lose something, or an object
            of another app or environment.
        reasons: sentences, each with its own.
        hint: what to do next.
    """

    kind: RefusalKind
    reasons: tuple[str, ...]
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to one object.

    Attributes:
        identity: the object.
        component: full name of the component that brings it, empty if none does any more.
        action: `missing` is an object that only a creation could bring and creation is off; `kept`
            one that a deletion spares.
        fields: what differs, secrets masked; empty for creations.
        reason: why it is recreated, kept or deleted.
        notes: remarks for people, as whose fields are overridden.
        api_version: API version the object is addressed by.
        desired: what is sent, None for deletions.
        live_uid: UID of the object the change was computed from, empty if there was none.
        writes: whether anything is sent. An unchanged object is still written when a value is as
            wanted but not owned by us: else removing it later would do nothing.
        refusal: why this must not be done; a difference shows it, an apply refuses to begin.
        payload: what is really sent where that is less than what is desired.
        seen: the live object's metadata, `{"metadata": {…}}`, of an object found unchanged by asking.
    """

    identity: Identity
    component: str
    action: Action
    fields: tuple[FieldChange, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    api_version: str = ""
    desired: KubeObject | None = None
    live_uid: str = ""
    writes: bool = True
    refusal: Refusal | None = None
    payload: Mapping[str, Any] | None = None
    seen: Mapping[str, Any] | None = None

    @property
    def destructive(self) -> bool:
        """Tell whether something that exists is deleted, if only to be made anew."""
        return self.action in DESTRUCTIVE

    @property
    def changes_existing(self) -> bool:
        """Tell whether something that exists changes or goes."""
        return self.action in EXISTING


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Everything one run would do.

    Attributes:
        app: name of the app.
        environment: name of the environment.
        namespace: its namespace.
        context: the kubectl context the run goes to.
        cluster: who answered there.
        changes: one an object, in the order of execution.
        notes: remarks on the run as a whole.
    """

    app: str
    environment: str
    namespace: str
    context: str
    cluster: ClusterIdentity | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def visible(self) -> tuple[Change, ...]:
        """Give the changes a person would call changes."""
        return tuple(change for change in self.changes if change.action in EXISTING | {"create"})

    @property
    def writes(self) -> tuple[Change, ...]:
        """Give the changes that send something."""
        return tuple(change for change in self.changes if change.writes)

    @property
    def destructive(self) -> bool:
        """Tell whether anything is deleted or recreated."""
        return any(change.destructive for change in self.changes)

    @property
    def changes_existing(self) -> bool:
        """Tell whether anything that exists changes or goes."""
        return any(change.changes_existing for change in self.changes)

    def counts(self) -> Mapping[Action, int]:
        """Count the objects of each action."""
        return Counter(change.action for change in self.changes)
