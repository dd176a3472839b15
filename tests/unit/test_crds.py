"""The CustomResourceDefinitions that kubeflow-core ships."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from mlstack.validate.validate import load_schemas
from tests.generate import crds

LIMIT_BYTES = 262_144
"""The most that a last-applied annotation holds."""
SCHEMAS = load_schemas(crds.KUBERNETES)
JOBS = {job.plural: job for job in crds.kinds(SCHEMAS)}


@pytest.fixture(params=sorted(JOBS))
def definition(request: pytest.FixtureRequest) -> Any:
    return crds.crd(JOBS[request.param], SCHEMAS)


def schemas_of(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas_of(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from schemas_of(schema[name], f"{path}.{name}")


def root_of(definition: Any) -> dict[str, Any]:
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("plural", sorted(JOBS))
def test_the_shipped_files_are_what_the_script_makes(plural: str) -> None:
    shipped = (crds.FOLDER / f"{plural}.yaml").read_text("utf-8")
    assert yaml.load(shipped, yaml.CSafeLoader) == crds.crd(JOBS[plural], SCHEMAS)
    assert not shipped.startswith("---")
    for folder in crds.COPIES.get(plural, ()):
        assert (folder / f"{plural}.yaml").read_text("utf-8") == shipped


def test_nothing_below_the_job_is_open(definition: Any) -> None:
    """An open part of a job can hold what the operator cannot decode, which stops it for everyone."""
    for path, schema in schemas_of(root_of(definition)):
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert "x-kubernetes-preserve-unknown-fields" not in schema, path
        is_open = (
            schema.get("type") == "object" and not {"properties", "additionalProperties"} & schema.keys()
        )
        assert not is_open or path == ".metadata", path


def test_keys_of_lists_are_required_or_have_a_default(definition: Any) -> None:
    for path, schema in schemas_of(root_of(definition)):
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            items = schema["items"]
            assert key in items["required"] or "default" in items["properties"][key], path


def test_it_stays_far_below_the_limit_of_an_annotation(definition: Any) -> None:
    assert len(json.dumps(definition)) < LIMIT_BYTES / 3


def test_only_jobs_that_live_through_it_can_be_scaled(definition: Any) -> None:
    scaled = "scale" in definition["spec"]["versions"][0]["subresources"]
    assert scaled == (definition["spec"]["names"]["kind"] in ("PyTorchJob", "JAXJob", "PaddleJob"))
