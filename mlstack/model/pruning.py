"""What may be deleted: whose an object is, what is kept whatever the files say, how much is too much."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlstack.model import applyset, fields, objects
from mlstack.model.inventory import Inventory, Member
from mlstack.model.objects import MANAGER, Identity

PRUNE_ANNOTATION = "mlstack.dev/prune"

# Annotations that keep an object when what brought it goes, ours and those of kindred tools.
KEEPING: Mapping[str, frozenset[str]] = {
    PRUNE_ANNOTATION: frozenset({"false", "disabled"}),
    "helm.sh/resource-policy": frozenset({"keep"}),
    "client.lifecycle.config.k8s.io/deletion": frozenset({"detach"}),
    "cli-utils.sigs.k8s.io/on-remove": frozenset({"keep"}),
    "kustomize.toolkit.fluxcd.io/prune": frozenset({"disabled"}),
    "kapp.k14s.io/delete-strategy": frozenset({"orphan"}),
}

LARGE = 4
"""From so many deletions on, more than half of all members looks like a mistake; small sets change often."""

_LOST = f"was applied by mlstack, and has lost its label `{objects.APP_LABEL}`: nothing says whose it is"

Fate = Literal["gone", "foreign", "kept", "delete"]


@dataclass(frozen=True, kw_only=True)
class Spare:
    """What is kept because deleting it takes data or other people's things along.

    `foreign` is what a namespace that goes holds of others, and what annotations keep in it.
    """

    definitions: bool = True
    namespaces: bool = True
    claims: bool = True
    foreign: bool = True

    def reason(self, identity: Identity) -> str:
        """Say why an object is kept, nothing if it is not."""
        kind = (identity.group, identity.kind)
        if self.definitions and kind == ("apiextensions.k8s.io", "CustomResourceDefinition"):
            return "definitions are kept: deleting one deletes its objects in every namespace (delete --crds)"
        if self.namespaces and kind == ("", "Namespace"):
            return "namespaces are kept: deleting one deletes everything in it (delete --namespaces)"
        if self.claims and is_claim(identity):
            return "volume claims are kept: deleting one deletes its data (delete --claims)"
        return ""


def is_claim(identity: Identity) -> bool:
    """Tell whether an object is a claim of a volume: it holds data."""
    return (identity.group, identity.kind) == ("", "PersistentVolumeClaim")


@dataclass(frozen=True)
class Verdict:
    """What becomes of one member that nothing brings any more.

    Attributes:
        fate: `gone` is not there, `foreign` is there and another's, `kept` is ours and stays.
        reason: why it is another's or stays.
    """

    fate: Fate
    reason: str = ""


def judge(live: Mapping[str, Any] | None, member: Member, inventory: Inventory, *, spare: Spare) -> Verdict:
    """Say what becomes of a member that is to go.

    It goes only if it still carries our marks, and is the very object we wrote or one that we applied since.

    Args:
        live: the object, None if it is not there.
        member: as it is recorded; its UID may be unknown.
        inventory: what it is a member of.
        spare: kinds to keep.
    """
    if live is None:
        return Verdict("gone")
    foreign = whose(live, inventory)
    if not foreign and live["metadata"].get("uid") != member.uid and not is_applied_by_us(live):
        foreign = "was made anew by somebody else"
    if foreign:
        return Verdict("foreign", foreign)
    kept = _owner(live) or spare.reason(member.identity) or _annotated(live)
    return Verdict("kept", kept) if kept else Verdict("delete")


def whose(live: Mapping[str, Any], inventory: Inventory) -> str:
    """Say whose an object is if it is not this environment's."""
    labels = live["metadata"].get("labels") or {}
    wanted = objects.marks(app=inventory.app, environment=inventory.environment, component="")
    app, environment = labels.get(objects.APP_LABEL), labels.get(objects.ENVIRONMENT_LABEL)
    if app is None:
        return _LOST if is_applied_by_us(live) else "was not made by mlstack"
    if (app, environment) != (wanted[objects.APP_LABEL], wanted[objects.ENVIRONMENT_LABEL]):
        return f"belongs to environment `{environment}` of app `{app}`"
    if labels.get(applyset.MEMBER_LABEL, inventory.id) != inventory.id:
        return f"belongs to environment `{environment}` of app `{app}` in another namespace"
    return ""


def is_applied_by_us(live: Mapping[str, Any]) -> bool:
    """Tell whether we are a field manager of an object: marks alone may have been copied by a controller."""
    return bool(fields.owned(live, MANAGER))


def _owner(live: Mapping[str, Any]) -> str:
    owners = live["metadata"].get("ownerReferences") or ()
    return f"is owned by {owners[0].get('kind')} `{owners[0].get('name')}`" if owners else ""


def _annotated(live: Mapping[str, Any]) -> str:
    annotations = live["metadata"].get("annotations") or {}
    for name, values in KEEPING.items():
        found = str(annotations.get(name, "")).strip()
        if found.lower() in values:
            return f"is kept: annotation `{name}: {found}`"
    return ""


def is_too_much(going: int, members: int) -> bool:
    """Tell whether so many deletions among so many members look like a mistake."""
    return going >= LARGE and going * 2 > members
