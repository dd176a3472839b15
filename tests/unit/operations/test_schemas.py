"""The schemas of files and results: listed, printed, and true to what commands print."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mlstack.app import schema as files
from mlstack.errors import NotFoundError
from mlstack.operations import app
from tests.generate import result_schemas
from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.mark.parametrize("kind", result_schemas.RESULTS)
def test_a_result_and_its_schema_say_the_same(kind: str) -> None:
    text = (files.RESULTS / f"{kind}.json").read_text(encoding="utf-8")
    assert text == result_schemas.text(kind), "a result changed: python -m tests.generate.result_schemas"


def test_every_result_kind_has_a_sound_schema_with_a_stable_id() -> None:
    assert tuple(files.result_schemas()) == tuple(sorted(result_schemas.RESULTS))
    assert not {*files.result_schemas()} & {*files.file_kinds()}
    for kind, schema in files.result_schemas().items():
        Draft202012Validator.check_schema(schema)
        assert schema["$id"] == f"https://mlstack.dev/schemas/v1/{kind}.json"
        assert schema["properties"]["kind"] == {"const": kind}
        assert schema["properties"]["apiVersion"] == {"const": "mlstack.dev/v1"}


def test_every_field_of_a_result_is_described() -> None:
    for kind, schema in files.result_schemas().items():
        for definition in (schema, *schema.get("$defs", {}).values()):
            missing = [
                name
                for name, field in definition["properties"].items()
                if "const" not in field and not field.get("description")
            ]
            assert missing == [], f"{kind}: {definition['description']}"


def closed(schema: Any) -> Any:
    """Refuse fields that the schema does not name, as programs that read it must not."""
    strict = deepcopy(schema)
    for definition in (strict, *strict.get("$defs", {}).values()):
        definition["additionalProperties"] = False
    return strict


def check(text: str) -> str:
    printed = json.loads(text)
    Draft202012Validator(closed(files.result_schemas()[printed["kind"]])).validate(printed)
    return str(printed["kind"])


def test_what_commands_print_fits_the_schemas(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add minikube --no-preset")
    run.ok("generate web front --image nginx --token s3cret")
    lines = [
        "diff minikube",
        "plan minikube",
        "diff minikube --live",
        "diff local:minikube remote:minikube",
        "apply minikube --dry-run",
        "apply minikube --yes",
        "status minikube",
        "param set front color green",
        "diff minikube",
        "apply minikube",
        "diff --all",
        "history minikube",
        "history show minikube 1",
        "history diff minikube 1 2",
        "rollback minikube --yes",
        "delete minikube --dry-run",
        "delete minikube --yes",
    ]
    ran = {line: run(f"{line} -o json").out for line in lines}
    kinds = {check(out) for out in ran.values()}
    runs = "Apply Compare Delete Diff Drift History Plan Revision Status"
    assert kinds == {f"{run}Result" for run in runs.split()} | {"ResultList", "RevisionDiff", "ParamChanged"}


def test_all_schemas_are_listed_with_their_ids() -> None:
    rows = {row.name: row for row in app.list_schemas().schemas}
    assert rows["App"].describes == "file"
    assert rows["DiffResult"].describes == "result"
    assert rows["DiffResult"].id == "https://mlstack.dev/schemas/v1/DiffResult.json"


@pytest.mark.parametrize("name", ["App", "diffresult"])
def test_a_schema_is_found_by_its_kind_in_any_case(name: str) -> None:
    assert app.find_schema(name).name.lower() == name.lower()


def test_an_unknown_schema_is_told_with_the_nearest() -> None:
    with pytest.raises(NotFoundError) as caught:
        app.find_schema("DifResult")
    assert caught.value.hint == "did you mean `DiffResult`?"


def test_the_command_prints_json_unless_asked_otherwise(run: Runner) -> None:
    assert json.loads(run.ok("schema DiffResult"))["title"] == "DiffResult"
    assert run.ok("schema DiffResult -o yaml").startswith("$schema: https://json-schema.org")
    assert "DiffResult" in run.ok("schema -o name").split()
    assert run("schema -o jsn").code == 2
