"""Which kinds are written before which others when nothing else says so."""

from mlstack.model.objects import Identity

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

# Each rank needs only what stands above it. Bindings come after roles, because the API server looks
# the role up when it checks that nobody grants more than they hold. Webhooks come last: from then on
# the API server refuses what they do not answer for.
RANKS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("namespaces", (("", "Namespace"),)),
    ("definitions", (("apiextensions.k8s.io", "CustomResourceDefinition"),)),
    (
        "policies",
        (
            ("scheduling.k8s.io", "PriorityClass"),
            ("node.k8s.io", "RuntimeClass"),
            ("networking.k8s.io", "IngressClass"),
            ("networking.k8s.io", "NetworkPolicy"),
            ("", "ResourceQuota"),
            ("", "LimitRange"),
        ),
    ),
    ("access", (("", "ServiceAccount"), (_RBAC, "ClusterRole"), (_RBAC, "Role"))),
    ("bindings", ((_RBAC, "ClusterRoleBinding"), (_RBAC, "RoleBinding"))),
    ("configuration", (("", "ConfigMap"), ("", "Secret"))),
    (
        "storage",
        (("storage.k8s.io", "StorageClass"), ("", "PersistentVolume"), ("", "PersistentVolumeClaim")),
    ),
    (
        "services",
        (
            ("", "Service"),
            ("", "Endpoints"),
            ("discovery.k8s.io", "EndpointSlice"),
            ("policy", "PodDisruptionBudget"),
        ),
    ),
    (
        "workloads",
        (
            ("apps", "DaemonSet"),
            ("apps", "Deployment"),
            ("apps", "ReplicaSet"),
            ("apps", "StatefulSet"),
            ("", "ReplicationController"),
            ("", "Pod"),
            ("batch", "Job"),
            ("batch", "CronJob"),
        ),
    ),
    (
        "traffic",
        (
            ("autoscaling", "HorizontalPodAutoscaler"),
            ("networking.k8s.io", "Ingress"),
            ("apiregistration.k8s.io", "APIService"),
        ),
    ),
    ("custom resources", ()),
    (
        "webhooks",
        (
            (_ADMISSION, "MutatingWebhookConfiguration"),
            (_ADMISSION, "ValidatingWebhookConfiguration"),
            (_ADMISSION, "ValidatingAdmissionPolicy"),
            (_ADMISSION, "ValidatingAdmissionPolicyBinding"),
        ),
    ),
)

RANK = {kind: rank for rank, (_, kinds) in enumerate(RANKS) for kind in kinds}
COUNT = len(RANKS)
FIRST = ("namespaces", "definitions")
WEBHOOKS = COUNT - 1
_OTHERS = next(number for number, (_, kinds) in enumerate(RANKS) if not kinds)


def rank(identity: Identity) -> int:
    """Give the number of the rank an object belongs to; kinds nobody lists are custom resources."""
    return RANK.get((identity.group, identity.kind), _OTHERS)


def is_first(identity: Identity) -> bool:
    """Tell whether an object is a namespace or a definition: what everything else may need."""
    return rank(identity) < len(FIRST)


def is_webhook(identity: Identity) -> bool:
    """Tell whether an object makes the API server ask somebody else before it writes."""
    return identity.group == _ADMISSION and identity.kind.endswith("WebhookConfiguration")
