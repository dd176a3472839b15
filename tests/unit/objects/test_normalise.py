"""Equal objects in the form the server keeps."""

from typing import Any

import pytest

from mlstack.objects.kube_object import normalised


def of(kind: str, **content: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "a"}, **content}


def test_string_data_becomes_data() -> None:
    secret = of("Secret", stringData={"key": "värde"}, data={"old": "eA=="})
    assert normalised(secret, built_in=True)["data"] == {"old": "eA==", "key": "dsOkcmRl"}
    assert "stringData" not in normalised(secret, built_in=True)


def test_string_data_wins_over_data_as_on_the_server() -> None:
    secret = of("Secret", stringData={"key": "a"}, data={"key": "eA=="})
    assert normalised(secret, built_in=True)["data"] == {"key": "YQ=="}


@pytest.mark.parametrize(
    "content", [{"data": 1, "stringData": {"a": "b"}}, {"stringData": ["a"]}], ids=["data", "stringData"]
)
def test_what_is_no_map_is_left_to_validation(content: dict[str, Any]) -> None:
    assert normalised(of("Secret", **content), built_in=True)["stringData"] == content["stringData"]


@pytest.mark.parametrize("name", ["data", "binaryData"])
def test_empty_maps_of_a_configmap_go(name: str) -> None:
    assert normalised(of("ConfigMap", **{name: {}}), built_in=True) == of("ConfigMap")


def test_a_null_in_data_is_the_empty_text() -> None:
    assert normalised(of("ConfigMap", data={"k": None}), built_in=True)["data"] == {"k": ""}


def test_server_metadata_goes() -> None:
    exported = of("Service")
    exported["metadata"] = {
        "name": "a",
        "uid": "1",
        "resourceVersion": "2",
        "managedFields": [],
        "labels": {},
    }
    assert normalised(exported, built_in=True) == of("Service")


def test_empty_maps_that_mean_something_stay() -> None:
    spec = {"selector": {}, "volumes": [{"name": "tmp", "emptyDir": {}}], "podSelector": {}}
    assert normalised(of("Deployment", spec=spec), built_in=True)["spec"] == spec


def test_empty_limits_env_and_nulls_go() -> None:
    container = {"name": "a", "env": [], "args": [], "resources": {"limits": {}, "requests": {"cpu": "1"}}}
    spec = {"containers": [container], "nodeSelector": None, "replicas": 0}
    assert normalised(of("Pod", spec=spec), built_in=True)["spec"] == {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
        "replicas": 0,
    }


def test_rules_of_an_aggregated_role_are_left_to_its_controller() -> None:
    role = of("ClusterRole", rules=[], aggregationRule={"clusterRoleSelectors": []})
    assert "rules" not in normalised(role, built_in=True)
    assert "rules" in normalised(of("ClusterRole", rules=[]), built_in=True)


def test_deny_all_policy_keeps_its_meaning() -> None:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}
    assert normalised(of("NetworkPolicy", spec=spec), built_in=True)["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress"],
    }
    kept = {"podSelector": {}, "ingress": [], "egress": [{"to": [], "ports": [{"port": 1}]}]}
    assert normalised(of("NetworkPolicy", spec=kept), built_in=True)["spec"] == {
        "podSelector": {},
        "ingress": [],
        "egress": [{"ports": [{"port": 1}]}],
    }


def test_custom_resources_keep_nulls_and_empty_maps() -> None:
    spec = {"limits": {}, "choice": None}
    assert normalised(of("Thing", spec=spec, status={}), built_in=False)["spec"] == spec


def test_null_creation_times_of_go_programs_go() -> None:
    spec = {"template": {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}}}
    cleaned = normalised(of("TFJob", spec=spec), built_in=False)["spec"]
    assert cleaned == {"template": {"metadata": {"labels": {"a": "b"}}}}


def test_definitions_are_left_alone_but_for_status() -> None:
    crd = of("CustomResourceDefinition", spec={"default": None, "data": {}}, status={"conditions": []})
    assert normalised(crd, built_in=True) == of(
        "CustomResourceDefinition", spec={"default": None, "data": {}}
    )
