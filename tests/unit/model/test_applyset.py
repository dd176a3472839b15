"""The marks of KEP-3659, with kubectl's own test data."""

import pytest

from mlstack.deploy import inventory
from mlstack.errors import ClusterError, ConfigError
from mlstack.objects.kinds import Kinds
from mlstack.objects.kube_object import Identity


@pytest.mark.parametrize(
    ("name", "namespace", "kind", "expected"),
    [
        pytest.param(
            "my-set",
            "test",
            "Secret",
            "applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1",
            id="kubectl",
        ),
        pytest.param(
            "mlstack-dev",
            "ml",
            "ConfigMap",
            "applyset-gMdVBSKqJ3RtneUhWacnU-3hBIyJjBKT7cjoJ86d9Kk-v1",
            id="config map",
        ),
    ],
)
def test_ids_are_those_of_other_tools(name: str, namespace: str, kind: str, expected: str) -> None:
    found = inventory.set_id(name, namespace, kind=kind)
    assert (found, len(found)) == (expected, 55)


def test_a_member_gets_the_label_and_keeps_its_own() -> None:
    data = {"kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "y"}}}
    labelled = inventory.with_member_label(data, "applyset-x-v1")
    assert labelled["metadata"]["labels"] == {"x": "y", inventory.MEMBER_LABEL: "applyset-x-v1"}
    assert data["metadata"]["labels"] == {"x": "y"}  # type: ignore[index]


def test_a_member_label_of_the_input_is_an_error() -> None:
    data = {"kind": "ConfigMap", "metadata": {"name": "a", "labels": {inventory.MEMBER_LABEL: "theirs"}}}
    with pytest.raises(ConfigError, match=r"brings the label `applyset\.kubernetes\.io/part-of` itself"):
        inventory.refuse_member_labels([data])
    with pytest.raises(ConfigError):
        inventory.with_member_label(data, "applyset-x-v1")


def test_annotations_are_sorted_and_name_served_kinds_only() -> None:
    members = [
        Identity("example.com", "Gadget", "ml", "g"),
        Identity("", "Secret", "b", "s"),
        Identity("apps", "Deployment", "ml", "d"),
        Identity("", "ConfigMap", "a", "c"),
        Identity("rbac.authorization.k8s.io", "ClusterRole", "", "r"),
    ]
    found = inventory.parent_annotations(members, namespace="ml", version="1.2.3", kinds=Kinds.builtin())
    assert found == {
        "applyset.kubernetes.io/tooling": "mlstack/v1.2.3",
        "applyset.kubernetes.io/contains-group-kinds": (
            "ClusterRole.rbac.authorization.k8s.io,ConfigMap,Deployment.apps,Secret"
        ),
        "applyset.kubernetes.io/additional-namespaces": "a,b",
    }


def parent(tooling: str | None = "mlstack/v0.1.0", set_id: str | None = "applyset-x-v1") -> dict[str, object]:
    labels = {} if set_id is None else {inventory.ID_LABEL: set_id}
    annotations = {} if tooling is None else {inventory.TOOLING: tooling}
    metadata = {"name": "p", "namespace": "ml", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


@pytest.mark.parametrize("tooling", ["mlstack/v0.1.0", "mlstack/v99", "mlstack"])
def test_our_own_set_is_accepted(tooling: str) -> None:
    inventory.check_parent(parent(tooling), "applyset-x-v1")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(
            parent("kubectl/v1.32"), "managed by `kubectl/v1.32` instead of `mlstack`", id="kubectl"
        ),
        pytest.param(parent("mlstack/fork/v1"), "managed by `mlstack/fork/v1`", id="fork"),
        pytest.param(parent(None), "no inventory of mlstack", id="no set"),
        pytest.param(
            parent(set_id="applyset-y-v1"), "`applyset-y-v1` instead of `applyset-x-v1`", id="copied"
        ),
        pytest.param(parent(set_id=None), "with `` instead of", id="unlabelled"),
    ],
)
def test_other_sets_are_refused(data: dict[str, object], said: str) -> None:
    with pytest.raises(ClusterError) as error:
        inventory.check_parent(data, "applyset-x-v1")
    assert said in error.value.message
    assert "kubectl delete configmap -n ml p" in (error.value.hint or "")
