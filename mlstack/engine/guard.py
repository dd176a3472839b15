"""Before anything else is asked of a cluster: is it the right one, and is there anything to do?"""

from mlstack.cluster.api import Cluster
from mlstack.errors import ConfigError, WrongClusterError
from mlstack.model.app import ClusterIdentity, Environment
from mlstack.model.objects import DesiredState


def check_cluster(environment: Environment, cluster: Cluster) -> ClusterIdentity:
    """Give the identity of the cluster that answers, if it is the environment's.

    A restored copy of a cluster has the same UID and a cluster behind the same certificate authority
    may be another one, so both have to agree as far as both sides know them.

    Raises:
        WrongClusterError: the context now leads to another cluster; names both.
    """
    found, pinned = cluster.identity(), environment.cluster
    if pinned is None or not _differ(pinned, found):
        return found
    raise WrongClusterError(
        f"context `{environment.context}` leads to another cluster than environment `{environment.name}`:"
        f" expected {describe(pinned)}, found {describe(found)}",
        where=environment.file or None,
        hint=f"choose the right context with `mlstack env set {environment.name} --context CONTEXT`;"
        f" if the environment has moved: mlstack env set {environment.name} --forget-cluster",
    )


def _differ(pinned: ClusterIdentity, found: ClusterIdentity) -> bool:
    pairs = ((pinned.uid, found.uid), (pinned.ca, found.ca))
    return any(one is not None and other is not None and one != other for one, other in pairs)


def describe(identity: ClusterIdentity) -> str:
    """Name a cluster: its address, UID and certificate authority as far as they are known."""
    digest = (identity.ca or "").removeprefix("sha256:")[:12]
    parts = [
        identity.server,
        f"UID {identity.uid}" if identity.uid else None,
        f"CA {digest}…" if digest else None,
    ]
    return ", ".join(part for part in parts if part) or "a cluster that does not say who it is"


def is_known(identity: ClusterIdentity) -> bool:
    """Tell whether an identity can tell clusters apart, so that it is worth keeping."""
    return identity.uid is not None or identity.ca is not None


def refuse_empty(state: DesiredState) -> None:
    """Raise if there is nothing to deploy: more likely a mistake than a wish.

    Raises:
        ConfigError: no component gave an object.
    """
    if state.objects:
        return
    what = f"component{'s' * (len(state.components) > 1)} {', '.join(f'`{one}`' for one in state.components)}"
    raise ConfigError(
        f"environment `{state.environment}` has no objects"
        + (f": {what} rendered none" if state.components else ": the app has no components for it"),
        hint="mlstack generate PROTOTYPE NAME" if not state.components else None,
    )
