"""Write the JSON Schemas of results: `python -m tests.generate.result_schemas`.

What `-o json` and `-o yaml` print is a result's dataclass, field by field, so its types are the schema and
its docstring and the comments at its fields are the descriptions.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import mlstack
from mlstack.app import schema as schemas
from mlstack.app.document import API_VERSION, keys_of
from mlstack.app.environment import Environment
from mlstack.cli import page
from mlstack.cli.page import camel
from mlstack.operations.app import EnvironmentDescription

# What a field of this name is in every result where nothing else is said of it.
USUAL = {
    "address": "Where the registry is.",
    "after": "What it would be then.",
    "aliases": "Other names that it answers to.",
    "api_version": "Version of this format.",
    "app": "Name of the app.",
    "authors": "Who wrote it.",
    "before": "What it was before.",
    "bugs": "Where faults are reported.",
    "bundled": "Whether it is the registry that comes with mlstack.",
    "changed": "Whether anything is not as it was before.",
    "checks": "What was looked at.",
    "component": "Full name of the component.",
    "components": "What is known of each component.",
    "context": "The kubectl context.",
    "current": "Whether commands take it that name none.",
    "description": "What it is for, in some sentences.",
    "digest": "Digest of its content.",
    "environment": "Name of the environment.",
    "environments": "The environments.",
    "examples": "The worked examples.",
    "extends": "The environment whose values lie below.",
    "fault": "What is wrong, empty if nothing is.",
    "faults": "What is wrong.",
    "file": "Its file, below the app directory.",
    "findings": "What was found.",
    "first": "The first of the two environments, or its value.",
    "full_name": "Its name with what it is in.",
    "globals": "Values for all components that declare them.",
    "hostile_texts": "How many texts that break out of bad templates were tried.",
    "installed": "Whether it is installed, or the version that is.",
    "job": "The training job, with its namespace.",
    "keywords": "Words to find it by.",
    "kind": "Its kind.",
    "kubernetes_version": "The version of Kubernetes that its objects are for.",
    "layer": "The level of an app, as `environment globals`.",
    "license": "Its licence.",
    "message": "What is wrong.",
    "modules": "The modules.",
    "name": "Its name.",
    "namespace": "Its namespace.",
    "notes": "Remarks.",
    "object": "The object as people name it.",
    "objects": "The objects.",
    "ok": "Whether the answer is yes: the exit code is 0, else 1.",
    "overridden": "Whether something of whoever works here alone counts over what is shared.",
    "package": "Full name of the package.",
    "packages": "The packages.",
    "parameter": "Name of the parameter.",
    "parameters": "The parameters.",
    "path": "The field.",
    "place": "The level of an app at which it was done.",
    "protected": "Whether a run wants its name typed.",
    "protocol": "How it is read, as `registry add --type` names it.",
    "prototype": "Full name of the prototype.",
    "prototypes": "The prototypes.",
    "quick_start": "The first commands to type.",
    "registries": "The registries.",
    "registry": "Name of the registry.",
    "repository": "Where its source is.",
    "required": "Whether it needs a value.",
    "requires": "The packages that it needs.",
    "requires_mlstack": "The versions of mlstack that it works with.",
    "revision": "The commit or digest that it was read at, if there is one.",
    "rows": "One for each line of the table.",
    "schemas": "The schemas.",
    "second": "The second of the two environments, or its value.",
    "state": "How it stands.",
    "summary": "What it is, in a few words.",
    "unit": "Unit of the value.",
    "value": "The value, masked if it is secret.",
    "version": "Its version.",
    "versions": "Its versions.",
    "where": "File and line, or what else it comes from.",
    "wins": "Whether it is the one that counts.",
    "written": "Whether a file was written.",
}


def _results() -> dict[str, type]:
    """Give the type behind each kind of result: whatever has a view, but for schemas, which are their own."""
    for module in ("views_app", "views_deploy", "views_packages"):
        import_module(f"mlstack.cli.{module}")
    printed = {*page.VIEWS, *page.TABLE_VIEWS} - {"SchemaResult"}
    kinds: dict[str, type] = {}
    for info in walk_packages(mlstack.__path__, "mlstack."):
        if info.name == "mlstack.__main__":
            continue
        for name, member in vars(import_module(info.name)).items():
            if is_dataclass(member) and member.__module__ == info.name:
                _TYPES[name] = member
                tells = {"api_version", "kind"} <= set(member.__annotations__)
                kinds |= {name: member} if name in printed or tells else {}
    for name, member in list(kinds.items()):
        if "api_version" in member.__annotations__:  # it says itself what it is
            del kinds[name]
            kinds |= dict.fromkeys(get_args(_hints(member)["kind"]), member)
    return dict(sorted(kinds.items()))


def _hints(kind: type) -> dict[str, Any]:
    """Give the types of fields; those that are imported for type checkers alone are found too."""
    return get_type_hints(kind, {**_TYPES, **vars(sys.modules[kind.__module__])})


_TYPES: dict[str, Any] = {}
RESULTS: Mapping[str, type] = _results()
PROMISE = "Within v1 fields may be added; none is removed or gets another meaning."
_SCALARS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def schema(kind: str) -> dict[str, Any]:
    """Build the schema of one kind of result."""
    definitions: dict[str, Any] = {}
    top = _object(RESULTS[kind], definitions)
    constants = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind}}
    top["properties"] = constants | {
        key: part for key, part in top["properties"].items() if key not in constants
    }
    top["required"] = list(top["properties"])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://mlstack.dev/schemas/v1/{kind}.json",
        "title": kind,
    }
    body = {**top, "description": f"{top['description']} {PROMISE}"}
    return {**head, **body, **({"$defs": dict(sorted(definitions.items()))} if definitions else {})}


def _helps(kind: type) -> dict[str, str]:
    """Give what is said of each field that is a key of a file too."""
    return {key.field: key.schema["description"] for key in keys_of(kind) if "description" in key.schema}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints, texts = _hints(kind), {**USUAL, **_helps(kind), **_attributes(kind)}
    names = {field.name: camel(field.name) for field in fields(kind)}
    if kind is EnvironmentDescription:  # the keys of its file stand among its own
        hints |= _hints(Environment)
        texts |= _helps(Environment)
        settings = {"name": "name", "file": "file"} | {key.field: key.name for key in keys_of(Environment)}
        names = settings | {name: key for name, key in names.items() if name != "environment"}
    properties = {}
    if "ok" not in names and hasattr(kind, "ok"):
        properties["ok"] = {"type": "boolean", "description": USUAL["ok"]}
    for name, key in names.items():
        description = texts.get(name)
        value = _value(hints[name], definitions)
        properties[key] = {**value, **({"description": description} if description else {})}
    return {
        "description": _sentence((kind.__doc__ or "").split("\n\n")[0]),
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
        return _either([_value(part, definitions) for part in inner if part is not type(None)], hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(inner[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _value(inner[0], definitions)}
    return _named(hint, definitions)


def _either(options: list[dict[str, Any]], hint: Any) -> dict[str, Any]:
    if type(None) not in get_args(hint):
        return {"anyOf": options}
    if len(options) == 1 and isinstance(options[0].get("type"), str):
        return {**options[0], "type": [options[0]["type"], "null"]}
    return {"anyOf": [*options, {"type": "null"}]}


def _named(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    if not is_dataclass(kind) or "__str__" in kind.__dict__:  # printed as their text
        return {"type": "string"}
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}
        definitions[kind.__name__] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _attributes(kind: type) -> dict[str, str]:
    """Read what is said of each field: in the docstring, or in comments beside or above the field."""
    text = re.split(r"\n\s*(?:Attributes|Args):\n", kind.__doc__ or "")[1:]
    texts: dict[str, str] = {}
    for name, words in re.findall(r"^ {8}(\w+): ((?:.|\n {9,})*)", text[0] if text else "", re.MULTILINE):
        texts[name] = _sentence(words)
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        code, _, beside = line.strip().partition("  # ")
        if code.startswith("# "):
            above.append(code[2:])
            continue
        field = re.match(r"(\w+): \S", code)
        if field and (above or beside):
            texts[field[1]] = _sentence(" ".join(above) or beside).removesuffix(".") + "."
        above = []
    return texts


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
