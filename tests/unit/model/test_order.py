"""Waves of kinds."""

from mlstack.model import order
from mlstack.model.objects import Identity, KubeObject

KINDS = [
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Service"),
    ("apps", "Deployment"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("kubeflow.org", "TFJob"),
]


def make(group: str, kind: str, name: str = "a") -> KubeObject:
    version = f"{group}/v1" if group else "v1"
    return KubeObject(data={"apiVersion": version, "kind": kind, "metadata": {"name": name}})


def test_waves_follow_what_needs_what() -> None:
    backwards = [make(*kind) for kind in reversed(KINDS)]
    ranks = [order.rank(found.identity) for found in order.ordered(backwards)]
    assert ranks == sorted(ranks)
    kinds = [found.kind for found in order.ordered(backwards)]
    assert (kinds[0], kinds[-1]) == ("Namespace", "TFJob")


def test_roles_are_written_before_their_bindings() -> None:
    binding, role = (
        make("rbac.authorization.k8s.io", "RoleBinding"),
        make("rbac.authorization.k8s.io", "Role"),
    )
    assert order.ordered([binding, role]) == (role, binding)


def test_objects_of_one_wave_keep_their_order() -> None:
    names = ["c", "a", "b"]
    found = order.ordered([make("", "ConfigMap", name) for name in names])
    assert [one.name for one in found] == names


def test_waves_are_named_and_never_empty() -> None:
    waves = order.waves([make("apps", "Deployment"), make("", "Secret")], lambda one: one.identity)
    assert [(wave.name, len(wave.items)) for wave in waves] == [("configuration", 1), ("workloads", 1)]


def test_deletion_goes_the_other_way() -> None:
    things = [make("", "Service"), make("apps", "Deployment", "a"), make("apps", "Deployment", "b")]
    waves = order.reversed_waves(things, lambda one: one.identity)
    assert [one.name + one.kind for wave in waves for one in wave.items] == [
        "bDeployment",
        "aDeployment",
        "aService",
    ]


def test_kinds_nobody_lists_come_last() -> None:
    assert order.rank(Identity("x.org", "Thing", "", "a")) == len(order.WAVES) - 1
