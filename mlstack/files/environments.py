"""Environments: their files, and how one that extends another inherits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mlstack.files.document import Document
from mlstack.files.fields import Fields, fields_of
from mlstack.model.app import DEFAULT_KUBERNETES_VERSION, ClusterIdentity, ClusterScoped, Environment
from mlstack.model.params import Layer

ENVIRONMENT_KEYS: Mapping[str, str] = {
    "context": "context",
    "namespace": "namespace",
    "kubernetesVersion": "kubernetes_version",
    "extends": "extends",
    "targets": "targets",
    "protected": "protected",
    "allowedNamespaces": "allowed_namespaces",
    "clusterScoped": "cluster_scoped",
    "waitForLoadBalancer": "wait_for_load_balancer",
    "cluster": "cluster",
}
"""Field of the file → field of Environment."""


@dataclass(frozen=True)
class EnvironmentFiles:
    """One environment's own files, without what it extends.

    Args:
        environment: as its file says.
        given: names of the fields that the file sets.
        globals: its layer for all components.
        components: its layers by component.
    """

    environment: Environment
    given: frozenset[str]
    globals: Layer
    components: Mapping[str, Layer] = field(default_factory=dict)


def read_environment(document: Document, name: str) -> Environment:
    """Take an environment's file apart.

    Raises:
        SchemaError: it is wrong.
    """
    fields = fields_of(document, "Environment")
    fields.only("apiVersion", "kind", *ENVIRONMENT_KEYS)
    cluster = fields.inner("cluster")
    return Environment(
        name=name,
        context=fields.text("context", ""),
        namespace=fields.text("namespace", "default"),
        kubernetes_version=fields.text("kubernetesVersion", DEFAULT_KUBERNETES_VERSION),
        extends=fields.optional_text("extends"),
        targets=fields.texts("targets"),
        protected=fields.flag("protected"),
        allowed_namespaces=fields.texts("allowedNamespaces"),
        cluster_scoped=_cluster_scoped(fields),
        wait_for_load_balancer=fields.flag("waitForLoadBalancer"),
        cluster=_identity(cluster) if cluster else None,
        file=document.file,
    )


def merged_environment(chain: tuple[EnvironmentFiles, ...]) -> Environment:
    """Lay an environment over what it extends; fields it does not give are inherited.

    The pinned cluster goes with the context: who names another context is not bound to it. An environment's
    own namespace is always among those it may write to.
    """
    merged = chain[0].environment
    for each in chain[1:]:
        inherited = {
            name: getattr(merged, name)
            for key, name in ENVIRONMENT_KEYS.items()
            if key not in each.given and key != "extends"
        }
        if each.environment.context and each.environment.context != merged.context and "cluster" in inherited:
            inherited["cluster"] = None
        merged = replace(each.environment, **inherited)
    allowed = merged.allowed_namespaces
    if allowed and merged.namespace not in allowed:
        merged = replace(merged, allowed_namespaces=(merged.namespace, *allowed))
    return merged


def _cluster_scoped(fields: Fields) -> ClusterScoped:
    found = fields.text("clusterScoped", "allowed")
    if found not in ("allowed", "refused"):
        fields.refuse("clusterScoped", f"`clusterScoped` must be `allowed` or `refused`, got `{found}`")
    return "refused" if found == "refused" else "allowed"


def _identity(fields: Fields) -> ClusterIdentity:
    fields.only("uid", "ca", "server")
    texts = {name: fields.optional_text(name) for name in ("uid", "ca", "server")}
    return ClusterIdentity(**texts)
