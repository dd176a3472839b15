"""Identity, marks and namespaces of objects."""

import gzip
import importlib.metadata
from typing import Any

import pytest

from mlstack.errors import ConfigError
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Kinds, KubeObject, ListType, Schema, list_type_of, normalised
from mlstack.validate.validate import load_schemas
from mlstack.yaml.write import same
from tests.generate import kubernetes_schemas


def deployment(**metadata: object) -> dict[str, object]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", **metadata}}


def stamp(data: dict[str, object], environment: str = "dev") -> KubeObject:
    labels = kube_object.marks(app="shop", environment=environment, component="core")
    stamped = kube_object.stamp(data, labels, namespace="ml", kinds=Kinds.builtin())
    return KubeObject(data=stamped, component="core")


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


# --- kinds ---


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
    info = Kinds.builtin().lookup(api_version, kind)
    assert info is not None
    assert (info.api_version, info.plural, info.namespaced) == (api_version, plural, namespaced)


def test_unknown_kinds_are_none() -> None:
    assert Kinds.builtin().lookup("v1", "Deployment") is None
    assert Kinds.builtin().lookup("example.org/v1", "Lamp") is None


@pytest.mark.parametrize(
    "spec",
    [None, "text", {}, {"names": []}, {"names": {}, "versions": None}, {"names": {}, "versions": ["v1"]}],
)
def test_a_broken_crd_adds_nothing(spec: Any) -> None:
    assert len(Kinds.builtin().with_crds([{**CRD, "spec": spec}])) == len(Kinds.builtin())


# --- schemas of the built-in kinds ---


MADE_FROM = "1.37.0"
"""The release of kubernetes-validate that the shipped files were made from."""


@pytest.mark.parametrize("version", ["1.30", "1.36", "v1.36", "1.36.3", "1.37"])
def test_versions_are_read_as_people_write_them(version: str) -> None:
    assert load_schemas(version).version == ".".join(version.removeprefix("v").split(".")[:2])


@pytest.mark.parametrize("version", ["1.29", "1.38", "2.30", "1", "", "latest", "1.x", "1.-36"])
def test_other_versions_are_refused_with_the_known_range(version: str) -> None:
    with pytest.raises(ConfigError, match=r"must be 1\.30 to 1\.37, got `"):
        load_schemas(version)


def test_every_kind_served_by_a_version_has_a_schema() -> None:
    for minor in range(30, 38):
        schemas = load_schemas(f"1.{minor}")
        for kind in Kinds.builtin():
            schema = schemas.root(kind.group, kind.version, kind.kind)
            assert (schema is not None) == kind.is_served_by(minor), kind


def test_every_reference_leads_to_a_definition() -> None:
    text = gzip.decompress(kubernetes_schemas.DEFINITIONS.read_bytes()).decode()
    for minor in (30, 37):
        schemas = load_schemas(f"1.{minor}")
        rows = [line.split("\t")[:2] for line in text.splitlines()]
        spans = [(name, run.split("-")) for name, runs in rows for run in runs.split(",")]
        names = {name for name, (first, last) in spans if int(first) <= minor <= int(last)}
        for name in names:
            for reference in kubernetes_schemas.references(schemas.definition(name)):
                assert reference in names, (minor, name, reference)


def pod_field(version: str, *path: str) -> Schema | None:
    """Follow fields of the pod of a Deployment; a list stands for its items."""
    schemas = load_schemas(version)
    schema = schemas.root("apps", "v1", "Deployment")
    for name in ("spec", "template", "spec", *path):
        assert schema is not None
        inner = schemas.resolve(schema.get("items", schema))["properties"].get(name)
        schema = schemas.resolve(inner) if inner is not None else None
    return schema


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("containers",), ListType("map", ("name",))),
        (("containers", "ports"), ListType("map", ("containerPort", "protocol"))),
        (("containers", "volumeMounts"), ListType("map", ("mountPath",))),
        (("containers", "command"), ListType("atomic")),
        (("tolerations",), ListType("atomic")),
    ],
    ids=str,
)
def test_list_types_are_those_of_server_side_apply(path: tuple[str, ...], expected: ListType) -> None:
    schema = pod_field("1.36", *path)
    assert schema is not None
    assert list_type_of(schema) == expected


def test_a_field_that_came_later_is_unknown_before() -> None:
    assert pod_field("1.31", "resources") is None
    assert pod_field("1.36", "resources") is not None


def test_the_shipped_files_are_what_the_script_makes() -> None:
    folder = kubernetes_schemas.source_folder()
    if folder is None:
        pytest.skip("kubernetes-validate is not installed (pip install 'mlstack[test]')")
    if importlib.metadata.version("kubernetes-validate") != MADE_FROM:
        pytest.skip(f"another kubernetes-validate is installed than the {MADE_FROM} they were made from")
    assert kubernetes_schemas.KINDS_TABLE.read_text("utf-8") == kubernetes_schemas.kinds_table(folder)
    shipped = gzip.decompress(kubernetes_schemas.DEFINITIONS.read_bytes()).decode()
    assert shipped == kubernetes_schemas.definition_lines(folder)


def test_the_packed_file_carries_no_time() -> None:
    assert kubernetes_schemas.DEFINITIONS.read_bytes()[4:8] == bytes(4)
    assert kubernetes_schemas.DEFINITIONS.stat().st_size < 100_000


# --- the form that the server keeps ---


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
    spec = {"podSelector": {}, "ingress": [], "egress": [{"to": [], "ports": [{"port": 1}]}]}
    assert normalised(of("NetworkPolicy", spec=spec), built_in=True)["spec"] == {
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


@pytest.mark.parametrize(
    ("value", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, {}, False),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ],
)
def test_values_are_the_same_as_json(value: Any, other: Any, equal: bool) -> None:
    assert same(value, other) is equal
