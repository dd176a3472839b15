"""Write the JSON Schemas of results: `python -m tests.generate.result_schemas`.

What `-o json` and `-o yaml` print is a result's dataclass, field by field, so its types are the schema and
its docstring and the comments at its fields are the descriptions.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mlstack.app import schema as schemas
from mlstack.app.app import API_VERSION
from mlstack.cli.output import camel
from mlstack.deploy.result import ChangeReport, ResultList, RunResult, StatusResult
from mlstack.operations.deploy import PlanResult
from mlstack.operations.history import CompareResult, DriftResult, HistoryResult, RevisionDiff, RevisionResult

RESULTS: Mapping[str, type] = {
    "ApplyResult": RunResult,
    "CompareResult": CompareResult,
    "DeleteResult": RunResult,
    "DiffResult": ChangeReport,
    "DriftResult": DriftResult,
    "HistoryResult": HistoryResult,
    "ResultList": ResultList,
    "RevisionDiff": RevisionDiff,
    "RevisionResult": RevisionResult,
    "PlanResult": PlanResult,
    "StatusResult": StatusResult,
}
PROMISE = "Within v1 fields may be added; none is removed or gets another meaning."
_SCALARS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def schema(kind: str) -> dict[str, Any]:
    """Build the schema of one kind of result."""
    definitions: dict[str, Any] = {}
    top = _object(RESULTS[kind], definitions)
    top["properties"]["apiVersion"] = {"const": API_VERSION}
    top["properties"]["kind"] = {"const": kind}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://mlstack.dev/schemas/v1/{kind}.json",
        "title": kind,
    }
    body = {**top, "description": f"{top['description']} {PROMISE}"}
    return {**head, **body, **({"$defs": dict(sorted(definitions.items()))} if definitions else {})}


def _object(found: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints, said = get_type_hints(found), _attributes(found)
    properties = {}
    for field in fields(found):
        description = said.get(field.name)
        made = _value(hints[field.name], definitions)
        properties[camel(field.name)] = {**made, **({"description": description} if description else {})}
    return {
        "description": _sentence((found.__doc__ or "").split("\n\n")[0]),
        "type": "object",
        "required": list(properties),
        "properties": properties,
    }


def _value(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return _either([_value(each, definitions) for each in inner if each is not type(None)], hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(inner[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _value(inner[0], definitions)}
    return _named(hint, definitions)


def _either(made: list[dict[str, Any]], hint: Any) -> dict[str, Any]:
    if type(None) not in get_args(hint):
        return {"anyOf": made}
    if len(made) == 1 and isinstance(made[0].get("type"), str):
        return {**made[0], "type": [made[0]["type"], "null"]}
    return {"anyOf": [*made, {"type": "null"}]}


def _named(found: type, definitions: dict[str, Any]) -> dict[str, Any]:
    if not is_dataclass(found) or "__str__" in found.__dict__:  # printed as their text
        return {"type": "string"}
    if found.__name__ not in definitions:
        definitions[found.__name__] = {}
        definitions[found.__name__] = _object(found, definitions)
    return {"$ref": f"#/$defs/{found.__name__}"}


def _attributes(found: type) -> dict[str, str]:
    """Read what is said of each field: in the docstring, or in comments beside or above the field."""
    text = re.split(r"\n\s*(?:Attributes|Args):\n", found.__doc__ or "")[1:]
    said: dict[str, str] = {}
    for name, words in re.findall(r"^ {8}(\w+): ((?:.|\n {9,})*)", text[0] if text else "", re.MULTILINE):
        said[name] = _sentence(words)
    above: list[str] = []
    for line in inspect.getsource(found).splitlines():
        code, _, beside = line.strip().partition("  # ")
        if code.startswith("# "):
            above.append(code[2:])
            continue
        field = re.match(r"(\w+): \S", code)
        if field and (above or beside):
            said[field[1]] = _sentence(" ".join(above) or beside).removesuffix(".") + "."
        above = []
    return said


def _sentence(words: str) -> str:
    text = re.sub(r"\bNone\b", "null", " ".join(words.split()))
    return text[:1].upper() + text[1:]


def text(kind: str) -> str:
    """Write the schema of one kind of result as its file holds it."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all schemas, and remove those of results that there are no more."""
    schemas.RESULTS.mkdir(exist_ok=True)
    for file in schemas.RESULTS.glob("*.json"):
        if file.stem not in RESULTS:
            file.unlink()
    for kind in RESULTS:
        Path(schemas.RESULTS / f"{kind}.json").write_text(text(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
