"""In which order objects are written: waves of kinds, and their reverse for deletion."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mlstack.model.objects import Identity, KubeObject

T = TypeVar("T")

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

# Each wave needs only what stands above it. Bindings come after roles, because the API server looks
# the role up when it checks that nobody grants more than they hold.
WAVES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
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
    (
        "webhooks",
        (
            (_ADMISSION, "MutatingWebhookConfiguration"),
            (_ADMISSION, "ValidatingWebhookConfiguration"),
            (_ADMISSION, "ValidatingAdmissionPolicy"),
            (_ADMISSION, "ValidatingAdmissionPolicyBinding"),
        ),
    ),
    ("custom resources", ()),
)

RANK = {kind: rank for rank, (_, kinds) in enumerate(WAVES) for kind in kinds}
_LAST = len(WAVES) - 1


@dataclass(frozen=True)
class Wave(Generic[T]):
    """Things that may be written side by side."""

    name: str
    items: tuple[T, ...]


def rank(identity: Identity) -> int:
    """Give the number of the wave an object belongs to; kinds nobody lists come last."""
    return RANK.get((identity.group, identity.kind), _LAST)


def ordered(objects: Iterable[KubeObject]) -> tuple[KubeObject, ...]:
    """Sort objects by wave; inside a wave they keep their order."""
    return tuple(sorted(objects, key=lambda found: rank(found.identity)))


def waves(items: Iterable[T], identity: Callable[[T], Identity]) -> tuple[Wave[T], ...]:
    """Group things by the wave of their object, first wave first; empty waves are left out."""
    groups: dict[int, list[T]] = {}
    for item in items:
        groups.setdefault(rank(identity(item)), []).append(item)
    return tuple(Wave(WAVES[number][0], tuple(groups[number])) for number in sorted(groups))


def reversed_waves(items: Sequence[T], identity: Callable[[T], Identity]) -> tuple[Wave[T], ...]:
    """Group things for deletion: last wave first, and inside a wave the last thing first."""
    return tuple(Wave(wave.name, tuple(reversed(wave.items))) for wave in reversed(waves(items, identity)))
