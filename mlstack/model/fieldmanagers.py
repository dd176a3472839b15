"""Field managers: who writes to objects in a cluster, and which of them stand for people."""

import re
from dataclasses import dataclass

from mlstack.model.fields import Entry
from mlstack.model.objects import MANAGER

HANDOVER = f"{MANAGER}-handover"
"""Holds a field between us, who let go of it, and the autoscaler that has not written it yet."""


BEFORE_FIRST_APPLY = "before-first-apply"
"""The server's name for whoever wrote before it kept books: people and programs alike."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A field manager as the API server tells it from others.

    Attributes:
        manager: its name.
        operation: `Apply` or `Update`.
        subresource: `scale` or `status` if it writes through one.
    """

    manager: str
    operation: str = "Update"
    subresource: str = ""

    def __str__(self) -> str:
        """Write the manager as people read it."""
        how = f" (through `{self.subresource}`)" if self.subresource else ""
        return f"`{self.manager}`{how}"


AUTOSCALING = Owner(manager="kube-controller-manager", subresource="scale")
"""The HorizontalPodAutoscaler: what it set is ours again when its object goes."""


@dataclass(frozen=True, kw_only=True)
class ManagerRow:
    """A row of the table of managers whose fields are ours to take.

    Attributes:
        name: of the manager, as a regular expression for all of it.
        operation: `Apply` or `Update`, empty for both.
        subresources: through which it may have written; None for any.
        said: whether taking its fields is worth a line.
    """

    name: str
    operation: str = ""
    subresources: tuple[str, ...] | None = None
    said: bool = True

    def matches(self, owner: Owner) -> bool:
        """Tell whether this row speaks of a manager."""
        return (
            re.fullmatch(self.name, owner.manager) is not None
            and self.operation in ("", owner.operation)
            and (self.subresources is None or owner.subresource in self.subresources)
        )


# Field managers that stand for a person at a keyboard: what they set by hand is put back to what the
# files say. Everything else is a program that would set its value again (an autoscaler, an operator, another
# deployer) and keeps its fields. Browsers send their own name: Rancher, Lens, Headlamp, the dashboard.
MANAGERS: tuple[ManagerRow, ...] = (
    ManagerRow(name=re.escape(MANAGER), said=False),
    ManagerRow(name=re.escape(HANDOVER), operation="Apply", said=False),
    ManagerRow(name=r"kubectl(-.*)?", subresources=("", "scale")),
    ManagerRow(name=r"kubectx|kubens|kubecolor|oc|k9s|k9s\..*|stern", subresources=("", "scale")),
    ManagerRow(
        name=r"Lens|OpenLens|Freelens|node-fetch|Headlamp|headlamp|octant|dashboard|Mozilla|rancher-ui"
    ),
    ManagerRow(name=BEFORE_FIRST_APPLY, operation="Update", subresources=("",)),
)


def owner_of(entry: Entry) -> Owner:
    """Give whose entry it is."""
    return Owner(manager=entry.manager, operation=entry.operation, subresource=entry.subresource)


def row_of(owner: Owner) -> ManagerRow | None:
    """Give the row of the table that speaks of a manager, None for programs."""
    return next((row for row in MANAGERS if row.matches(owner)), None)


def is_persons_tool(owner: Owner) -> bool:
    """Tell whether a manager stands for a person (or for us)."""
    return row_of(owner) is not None
