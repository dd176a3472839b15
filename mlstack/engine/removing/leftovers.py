"""What outlives a deletion, because a controller made it and people's work may be in it; what goes along."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.engine.records import scan
from mlstack.errors import ForbiddenError, ObjectNotFoundError, UsageError
from mlstack.model import objects, pruning
from mlstack.model.events import listed
from mlstack.model.inventory import Inventory
from mlstack.model.kinds import kinds_of_crd
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.pruning import Spare, Verdict

# The hub marks what its users start: see `common_labels` in its configuration.
_HUB_FILE = "jupyterhub_config.py"
_HUB_LABELS = "app=jupyterhub"
_HUB_MAKES = (("v1", "Pod"), ("v1", "PersistentVolumeClaim"))

# More names than these are counted, not listed; of what is lost people want to know more.
_NAMED = 5
_LOST = 50

# Controllers put these into every namespace.
_OF_EVERY_NAMESPACE = frozenset(
    {
        ("", "ServiceAccount", "default"),
        ("", "ConfigMap", "kube-root-ca.crt"),
        ("", "ConfigMap", "openshift-service-ca.crt"),
        ("", "ConfigMap", "istio-ca-root-cert"),
    }
)
_ACCOUNT = "kubernetes.io/service-account.name"


def leftovers(going: Sequence[KubeObject], cluster: Cluster) -> Iterator[str]:
    """Name what stays when these objects go: notebooks and homes of a hub, claims of a StatefulSet.

    Args:
        going: live objects that are about to be deleted.
        cluster: where to look; nothing is written.
    """
    for found in going:
        if found.kind == "ConfigMap" and _HUB_FILE in (found.data.get("data") or {}):
            yield from _of_hub(found.namespace, cluster)
        if (found.group, found.kind) == ("apps", "StatefulSet"):
            yield from _of_stateful_set(found, cluster)


def _of_hub(namespace: str, cluster: Cluster) -> Iterator[str]:
    for api_version, kind in _HUB_MAKES:
        made = [
            item
            for item in _list(cluster, api_version, kind, namespace, _HUB_LABELS)
            if objects.APP_LABEL not in (item["metadata"].get("labels") or {})
        ]
        if made:
            yield f"{_named(kind, made)} of the hub's users in namespace `{namespace}` will stay"


def _of_stateful_set(found: KubeObject, cluster: Cluster) -> Iterator[str]:
    templates = (found.data.get("spec") or {}).get("volumeClaimTemplates") or ()
    prefixes = tuple(f"{template['metadata']['name']}-{found.name}-" for template in templates)
    if not prefixes:
        return
    claims = _list(cluster, "v1", "PersistentVolumeClaim", found.namespace, "")
    made = [claim for claim in claims if claim["metadata"]["name"].startswith(prefixes)]
    if made:
        yield f"{_named('PersistentVolumeClaim', made)} of `{found.identity}` will stay"


def _list(
    cluster: Cluster, api_version: str, kind: str, namespace: str, labels: str
) -> Sequence[Mapping[str, Any]]:
    try:
        return cluster.list(api_version, kind, namespace=namespace, labels=labels, metadata_only=True).items
    except ForbiddenError:  # a remark is no reason to fail
        return ()


def _named(kind: str, items: Sequence[Mapping[str, Any]]) -> str:
    return f"{kind} {listed([f'`{KubeObject(data=item).name}`' for item in items], _NAMED)}"


def taken_along(going: Sequence[KubeObject], cluster: Cluster) -> Iterator[str]:
    """Name the objects that go with definitions although nobody asked for it, in all namespaces."""
    asked = {found.identity for found in going}
    for definition in going:
        kinds = kinds_of_crd(definition.data)
        if not kinds:
            continue
        served = kinds[-1]
        try:
            items = cluster.list(served.api_version, served.kind, metadata_only=True).items
        except ObjectNotFoundError:
            continue
        names = [_place_of(item) for item in items if KubeObject(data=item).identity not in asked]
        if names:
            yield (
                f"with definition `{definition.name}` go {len(names)} {served.kind} of all namespaces:"
                f" {listed(names, _LOST)}"
            )


def _place_of(item: Mapping[str, Any]) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


def namespaces_going(verdicts: Mapping[Identity, Verdict]) -> frozenset[str]:
    """Give the namespaces that are to be deleted."""
    going = (key for key, one in verdicts.items() if one.fate == "delete")
    return frozenset(key.name for key in going if (key.group, key.kind) == ("", "Namespace"))


def refuse_along(
    cluster: Cluster, inventory: Inventory, verdicts: Mapping[Identity, Verdict], spare: Spare
) -> tuple[str, ...]:
    """Raise if a namespace that goes would take along what is not to go; give what is to be said otherwise.

    Args:
        cluster: where to look; nothing is written.
        inventory: of the environment.
        verdicts: what becomes of each of its objects.
        spare: what is kept.

    Raises:
        UsageError: naming what a namespace holds of others, and what is kept in it.
    """
    notes: list[str] = []
    for namespace in sorted(namespaces_going(verdicts)):
        items, unseen = scan.contents(cluster, namespace)
        if unseen:
            notes.append(f"{unseen} in namespace `{namespace}`: what others have there goes with it unseen")
        lost = dict(_lost(items, inventory, verdicts))
        kept = {who: why for who, why in lost.items() if _is_spared(who, spare)}
        if kept:
            options = {"--claims" if pruning.is_claim(who) else "--foreign" for who in kept}
            lines = [f"  {who}: {why}" for who, why in list(kept.items())[:_LOST]]
            lines += [f"  and {len(kept) - _LOST} more"] if len(kept) > _LOST else []
            raise UsageError(
                "\n".join([f"namespace `{namespace}` would take along what is not to be deleted", *lines]),
                hint=f"nothing was deleted; if all of that may go: {' '.join(sorted(options))};"
                " else leave out --namespaces",
            )
        if lost:
            names = listed([str(who) for who in lost], _LOST)
            notes.append(f"with namespace `{namespace}` go {len(lost)} objects besides: {names}")
    return tuple(notes)


def _is_spared(identity: Identity, spare: Spare) -> bool:
    return spare.claims if pruning.is_claim(identity) else spare.foreign


def _lost(
    items: Sequence[Mapping[str, Any]], inventory: Inventory, verdicts: Mapping[Identity, Verdict]
) -> Iterator[tuple[Identity, str]]:
    """Give what nobody asked to delete, with the reason; what belongs to another object goes as that does."""
    uids = {item["metadata"]["uid"] for item in items}
    services = {item["metadata"]["name"] for item in items if item["kind"] == "Service"}
    for item in items:
        found = KubeObject(data=item)
        who, metadata = found.identity, item["metadata"]
        verdict = verdicts.get(who)
        is_owned = any(owner.get("uid") in uids for owner in metadata.get("ownerReferences") or ())
        is_made = (
            (who.group, who.kind, who.name) in _OF_EVERY_NAMESPACE
            or _ACCOUNT in (metadata.get("annotations") or {})
            or (who.kind == "Endpoints" and who.name in services)
        )
        if metadata.get("deletionTimestamp") or (verdict is not None and verdict.fate == "delete"):
            continue
        if is_owned or is_made or _is_record(found, inventory):
            continue
        member = inventory.members.get(who)
        other = f"is of component `{member.component}`, which stays" if member else ""
        said = verdict.reason if verdict else other
        yield who, said or pruning.whose(item, inventory) or "is not known to the inventory"


def _is_record(found: KubeObject, inventory: Inventory) -> bool:
    """Tell whether an object is what mlstack keeps of this very environment."""
    is_ours = not pruning.whose(found.data, inventory)
    return is_ours and objects.COMPONENT_LABEL not in (found.metadata.get("labels") or {})
