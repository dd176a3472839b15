"""The shipped schemas of the built-in kinds."""

import gzip
import importlib.metadata

import pytest

from mlstack.errors import ConfigError
from mlstack.objects.kube_object import Kinds, ListType, Schema, list_type_of
from mlstack.validate.validate import load_schemas
from tests.generate import kubernetes_schemas

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
            found = schemas.root(kind.group, kind.version, kind.kind)
            assert (found is not None) == kind.is_served_by(minor), kind


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
