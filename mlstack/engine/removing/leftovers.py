"""What outlives a deletion, because a controller made it and people's work may be in it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.errors import ForbiddenError
from mlstack.model import objects
from mlstack.model.objects import KubeObject

# The hub marks what its users start: see `common_labels` in its configuration.
_HUB_FILE = "jupyterhub_config.py"
_HUB_LABELS = "app=jupyterhub"
_HUB_MAKES = (("v1", "Pod"), ("v1", "PersistentVolumeClaim"))

# More names than these are counted, not listed.
_NAMED = 5


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
    names = [f"`{item['metadata']['name']}`" for item in items]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{kind} {', '.join(names[:_NAMED])}{more}"
