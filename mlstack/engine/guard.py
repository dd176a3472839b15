"""Before anything else is asked of a cluster: is it the right one, and is there anything to do?"""

from collections.abc import Iterable, Sequence

from mlstack.cluster.api import Cluster
from mlstack.errors import ConfigError, WrongClusterError
from mlstack.model.app import ClusterIdentity, Environment
from mlstack.model.objects import DesiredState, KubeObject


def check_cluster(environment: Environment, cluster: Cluster) -> ClusterIdentity:
    """Give the identity of the cluster that answers, if it is the environment's.

    Raises:
        WrongClusterError: the context now leads to another cluster; names both.
    """
    found = cluster.identity()
    refuse_other(environment, found)
    return found


def refuse_other(environment: Environment, found: ClusterIdentity) -> None:
    """Raise if a cluster is not the environment's.

    A restored copy of a cluster has the same UID and a cluster behind the same certificate authority
    may be another one, so both have to agree as far as both sides know them.

    Raises:
        WrongClusterError: the context now leads to another cluster; names both.
    """
    pinned = environment.cluster
    if pinned is None or not differ(pinned, found):
        return
    raise WrongClusterError(
        f"context `{environment.context}` leads to another cluster than environment `{environment.name}`:"
        f" expected {describe(pinned)}, found {describe(found)}",
        where=environment.file or None,
        hint=f"choose the right context with `mlstack env set {environment.name} --context CONTEXT`;"
        f" if the environment has moved: mlstack env set {environment.name} --forget-cluster",
    )


def differ(pinned: ClusterIdentity, found: ClusterIdentity) -> bool:
    """Tell whether two clusters cannot be the same, as far as both say who they are."""
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


def refuse_outside(environment: Environment, wanted: Iterable[KubeObject]) -> None:
    """Raise for objects in places that an environment may not write to.

    A Namespace counts as inside the namespace it is.

    Raises:
        ConfigError: naming every such object, its component and file.
    """
    if not environment.allowed_namespaces and environment.cluster_scoped == "allowed":
        return
    outside = [found for found in wanted if _is_outside(environment, found)]
    if not outside:
        return
    lines = [_placed(found) for found in outside]
    count = f"{len(outside)} objects lie" if len(outside) > 1 else "an object lies"
    raise ConfigError(
        "\n".join((f"{count} outside what environment `{environment.name}` may write to", *lines)),
        where=environment.file or None,
        hint=_how_to_allow(environment, outside),
    )


def _is_outside(environment: Environment, found: KubeObject) -> bool:
    namespace = _space(found)
    if namespace and environment.allowed_namespaces and namespace not in environment.allowed_namespaces:
        return True
    return not found.namespace and environment.cluster_scoped == "refused"


def _space(found: KubeObject) -> str:
    is_namespace = (found.group, found.kind) == ("", "Namespace")
    return found.name if is_namespace else found.namespace


def _placed(found: KubeObject) -> str:
    source = f" ({found.source})" if found.source is not None else ""
    return f"  `{found.identity}` of component `{found.component}`{source}"


def _how_to_allow(environment: Environment, outside: Sequence[KubeObject]) -> str:
    known = environment.allowed_namespaces
    spaces = sorted({_space(found) for found in outside} - {"", *known}) if known else []
    options = [f"--allow-namespace {name}" for name in (*known, *spaces)] if spaces else []
    if environment.cluster_scoped == "refused" and any(not found.namespace for found in outside):
        options.append("--cluster-scoped")
    return f"take them out, or allow it: mlstack env set {environment.name} {' '.join(options)}"


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
