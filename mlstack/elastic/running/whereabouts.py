"""Where the Lease of the controllers of a cluster is, for one that runs outside of it."""

from __future__ import annotations

from collections.abc import Callable

from mlstack.cluster.api import Cluster
from mlstack.cluster.lease import API_VERSION
from mlstack.errors import ForbiddenError, UsageError


def lease_namespace(cluster: Cluster, name: str, *, default: str, told: Callable[[str], None]) -> str:
    """Give the namespace of the Lease of this name that is there, else the default.

    Two controllers whose Leases are in different namespaces would both lead.

    Args:
        cluster: the cluster.
        name: of the Lease.
        default: the namespace where there is none yet, or where nobody may look.
        told: told in one line when nobody may look.

    Raises:
        UsageError: there are several.
        ClusterError: the cluster does not answer.
    """
    try:
        listing = cluster.list(API_VERSION, "Lease", fields=f"metadata.name={name}", metadata_only=True)
    except ForbiddenError:
        told(
            f"the Lease is `{default}/{name}`: no right to list Leases of all namespaces. "
            "With one elsewhere, another controller leads beside this one: see `--lease-namespace`"
        )
        return default
    found = sorted(str(one["metadata"]["namespace"]) for one in listing.items)
    if len(found) > 1:
        refs = ", ".join(f"`{namespace}/{name}`" for namespace in found)
        raise UsageError(
            f"there are several Leases of controllers: {refs}",
            hint=f"say which is meant: --lease-namespace {found[0]}; delete those that no controller uses",
        )
    return found[0] if found else default
