"""Which kinds exist, and what a CustomResourceDefinition adds to them."""

from typing import Any

import pytest

from mlstack.objects.kube_object import Kinds

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"kind": "Lamp", "plural": "lamps"},
        "versions": [{"name": "v1", "served": True}, {"name": "v1alpha1", "served": False}],
    },
}


@pytest.mark.parametrize(
    ("api_version", "kind", "plural", "namespaced"),
    [
        ("v1", "Service", "services", True),
        ("v1", "Endpoints", "endpoints", True),
        ("v1", "Namespace", "namespaces", False),
        ("networking.k8s.io/v1", "Ingress", "ingresses", True),
        ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", True),
        ("storage.k8s.io/v1", "StorageClass", "storageclasses", False),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False),
        ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False),
    ],
)
def test_built_in_kinds_have_plural_and_scope(
    api_version: str, kind: str, plural: str, namespaced: bool
) -> None:
    found = Kinds.builtin().lookup(api_version, kind)
    assert found is not None
    assert (found.api_version, found.plural, found.namespaced) == (api_version, plural, namespaced)


def test_a_removed_version_knows_where_it_was_served() -> None:
    found = Kinds.builtin().lookup("flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema")
    assert found is not None
    assert [minor for minor in range(29, 39) if found.is_served_by(minor)] == [30, 31]


def test_unknown_kinds_are_none() -> None:
    assert Kinds.builtin().lookup("v1", "Deployment") is None
    assert Kinds.builtin().lookup("example.org/v1", "Lamp") is None


def test_a_crd_adds_its_served_versions() -> None:
    kinds = Kinds.builtin().with_crds([CRD, {"kind": "ConfigMap", "apiVersion": "v1"}])
    lamp = kinds.lookup("example.org/v1", "Lamp")
    assert lamp is not None
    assert (lamp.plural, lamp.namespaced) == ("lamps", True)
    assert lamp.is_served_by(30)
    assert kinds.lookup("example.org/v1alpha1", "Lamp") is None
    assert kinds.lookup("v1", "Service") is not None


@pytest.mark.parametrize(
    "spec",
    [None, "text", {}, {"names": []}, {"names": {}, "versions": None}, {"names": {}, "versions": ["v1"]}],
)
def test_a_broken_crd_adds_nothing(spec: Any) -> None:
    assert len(Kinds.builtin().with_crds([{**CRD, "spec": spec}])) == len(Kinds.builtin())
