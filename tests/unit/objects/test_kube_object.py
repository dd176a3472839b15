"""Identity, marks and namespaces of objects."""

import pytest

from mlstack.errors import ConfigError
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Identity, Kinds, KubeObject, Source


def deployment(**metadata: object) -> dict[str, object]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", **metadata}}


def stamp(data: dict[str, object], environment: str = "dev") -> KubeObject:
    labels = kube_object.marks(app="shop", environment=environment, component="core")
    stamped = kube_object.stamp(data, labels, namespace="ml", kinds=Kinds.builtin())
    return KubeObject(data=stamped, component="core")


def test_identity_leaves_out_the_version_of_the_api() -> None:
    old = KubeObject(data={**deployment(), "apiVersion": "apps/v1beta1"})
    assert old.identity == KubeObject(data=deployment()).identity == Identity("apps", "Deployment", "", "web")


def test_core_group_is_empty() -> None:
    pod = KubeObject(data={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"}})
    assert (pod.group, pod.version, str(pod.identity)) == ("", "v1", "Pod n/a")


def test_stamp_gives_namespace_and_labels() -> None:
    stamped = stamp(deployment(labels={"app": "web"}))
    assert stamped.namespace == "ml"
    assert stamped.labels == {
        "app": "web",
        "app.kubernetes.io/managed-by": "mlstack",
        "app.kubernetes.io/part-of": "shop",
        "mlstack.dev/app": "shop",
        "mlstack.dev/environment": "dev",
        "mlstack.dev/component": "core",
    }


def test_stamp_keeps_a_namespace_the_object_names() -> None:
    assert stamp(deployment(namespace="elsewhere")).namespace == "elsewhere"


def test_stamp_gives_cluster_scoped_objects_no_namespace() -> None:
    data = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "a", "namespace": "wrong"},
    }
    assert stamp(data).namespace == ""


def test_stamp_takes_unknown_kinds_for_namespaced() -> None:
    assert stamp({"apiVersion": "x.org/v1", "kind": "Thing", "metadata": {"name": "a"}}).namespace == "ml"


def test_stamp_leaves_its_argument_alone() -> None:
    data = deployment()
    stamp(data)
    assert data == deployment()


def test_nested_environment_names_fit_a_label_value() -> None:
    assert stamp(deployment(), "us-west/staging").labels["mlstack.dev/environment"] == "us-west.staging"
    query = kube_object.selector(app="shop", environment="us-west/staging")
    assert query == "mlstack.dev/app=shop,mlstack.dev/environment=us-west.staging"


def test_the_same_object_from_two_components_is_refused() -> None:
    one = KubeObject(data=deployment(), component="a", source=Source(component="a", file="a.yaml", line=3))
    other = KubeObject(data=deployment(), component="b", source=Source(component="b", file="b.yaml"))
    with pytest.raises(ConfigError, match=r"`Deployment web` .*`a` \(a.yaml:3\).*`b` \(b.yaml\)"):
        kube_object.refuse_duplicates([one, other])
