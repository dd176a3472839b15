"""JSON Schemas of files and parameters, with patterns read by RE2 as the API server does.

Patterns come with packages and definitions, and Python's `re` lets one of them take longer than the universe
lasts. RE2's time grows with the text alone. (`regex` has a time limit for matching, but none for compiling:
`((((a{100}){100}){100}){100})` took it 35 s and 4 GB.) It is imported on first use, which takes 20 ms.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from mlstack.app import declare
from mlstack.app.app import API_VERSION, SIGN, App, Component, Environment, Lock
from mlstack.app.document import AppDocument, expectation, shown, suggestion
from mlstack.app.params import KeyPath as ValuePath
from mlstack.app.params import Origin, ParamFault, Resolved, Setting, join_path, nearest_origin, param_error
from mlstack.app.prototype import Param, Prototype, mask_value
from mlstack.errors import SchemaError
from mlstack.names import nearest

LONGEST = 4096
"""Characters of a pattern."""
# What a JSON Schema may say and RE2 writes otherwise. `$` is the end of a text, never the place before a last
# line break: patterns made for Python's `re` say so in these ways.
_WRITTEN_OTHERWISE = re.compile(r"\$\(\?!\\n\)|\\Z|\\u([0-9a-fA-F]{4})|\\(?s:.)")


def matches(pattern: str, text: str) -> bool | None:
    """Tell whether a pattern occurs in a text; None where the pattern is none that RE2 can read."""
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    try:
        return compiled.search(text) is not None
    except UnicodeError:  # half a surrogate pair
        return None


def is_readable(pattern: str) -> bool:
    """Tell whether RE2 reads a pattern: neither too large, nor with look-around or back references."""
    return _compiled(pattern) is not None


@cache
def _compiled(pattern: str) -> Any:
    import re2

    if len(pattern) > LONGEST:
        return None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(_WRITTEN_OTHERWISE.sub(_as_re2, pattern), options)
    except (re2.error, UnicodeError):
        return None


def _as_re2(found: re.Match[str]) -> str:
    if found[1]:
        return rf"\x{{{found[1]}}}"
    return {r"$(?!\n)": "$", r"\Z": r"\z"}.get(found[0], found[0])


# --- The only door to jsonschema: files of the app and of packages, and resolved parameters ---
# jsonschema takes longer to import than a small render takes in all, so what has passed once is
# remembered under the hash of schema and values, and it is imported for what has not.

_FOLDER = Path(__file__).parent / "schemas"
RESULTS = _FOLDER / "results"


class PassedStore(Protocol):
    """Remembers across runs what has passed; `disk_cache` has the one that people's machines use."""

    def get(self, key: str) -> bytes | None:
        """Give what was stored, or nothing."""

    def put(self, key: str, data: bytes) -> None:
        """Store, or forget: a store that fails is never an error."""


_DECLARED: Mapping[str, tuple[type, Mapping[str, Any]]] = {  # kind → dataclass and `$defs`
    "App": (App, {"sign": SIGN}),
    "Component": (Component, {}),
    "Environment": (Environment, {}),
    "Lock": (Lock, {}),
}


def file_kinds() -> tuple[str, ...]:
    """Give the kinds of files that have a schema."""
    return tuple(sorted([*_DECLARED, *(file.stem for file in _FOLDER.glob("*.json"))]))


@cache
def file_schema(kind: str) -> dict[str, Any]:
    """Give the JSON Schema of a file kind: of its dataclass, or as a file of `schemas/` says it."""
    if kind in _DECLARED:
        return declare.file_schema(_DECLARED[kind][0], API_VERSION, _DECLARED[kind][1])
    schema: dict[str, Any] = json.loads((_FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    return schema


def result_kinds() -> tuple[str, ...]:
    """Give the kinds of results that have a schema."""
    return tuple(sorted(file.stem for file in RESULTS.glob("*.json")))


def result_schema(kind: str) -> dict[str, Any]:
    """Read the JSON Schema of a kind of result."""
    schema: dict[str, Any] = json.loads((RESULTS / f"{kind}.json").read_text(encoding="utf-8"))
    return schema


@cache
def _schema_text(kind: str) -> str:
    return json.dumps(file_schema(kind))


def check_file(
    kind: str,
    value: Any,
    *,
    source: str,
    origins: Mapping[ValuePath, Origin] | None = None,
    passed: PassedStore | None = None,
) -> None:
    """Check a file's content against the schema of its kind.

    Args:
        kind: a file kind (`App`).
        value: the file's content as plain data.
        source: the file's name for messages.
        origins: path → place.
        passed: what has passed before is not checked again.

    Raises:
        SchemaError: listing every fault with its line.
    """
    schema = file_schema(kind)
    key = _key(_schema_text(kind), outline(schema, value))
    if passed is not None and passed.get(key) is not None:
        return
    lines = []
    for refusal in _refusals(schema, value):
        origin = nearest_origin(origins or {}, refusal.path, Origin(source))
        lines.append(
            (f"`{join_path(refusal.path)}` " if refusal.path else "") + refusal.sentence() + f" ({origin})"
        )
    if lines:
        head = f"{source} is not a valid {kind}"
        raise SchemaError(
            "\n  ".join([head, *lines]), hint=f"the schema is https://mlstack.dev/schemas/v1/{kind}.json"
        )
    if passed is not None:
        passed.put(key, b"")


def note_passed(kind: str, value: Any, passed: PassedStore) -> None:
    """Remember that a file's content fits its kind, where that is known without a check."""
    passed.put(_key(_schema_text(kind), outline(file_schema(kind), value)), b"")


def check_schema(schema: Mapping[str, Any], document: AppDocument, path: ValuePath) -> None:
    """Check that a schema of parameters is one."""
    from jsonschema import Draft202012Validator, FormatChecker, exceptions

    formats = FormatChecker(Draft202012Validator.FORMAT_CHECKER.checkers)
    formats.checks("regex")(lambda value: not isinstance(value, str) or is_readable(value))
    try:
        Draft202012Validator.check_schema(schema, format_checker=formats)
    except exceptions.SchemaError as error:
        place = (*path, *error.absolute_path)
        message = f"`{join_path(place)}` cannot be {shown(error.instance)}"
        hint = "see https://json-schema.org/understanding-json-schema"
        if error.validator == "format" and error.validator_value == "regex":
            hint = f"a pattern is RE2's: {LONGEST} characters, no look-around, no back references"
        raise SchemaError(message, where=str(document.origin(place)), hint=hint) from error


def check_params(
    prototype: Prototype, resolved: Resolved, *, passed: PassedStore | None = None, component: str = ""
) -> None:
    """Check resolved parameters against the prototype's schema.

    Args:
        prototype: whose schema counts.
        resolved: unset values are left out of the check.
        passed: parameter sets that have passed before are not checked again.
        component: its full name, for hints.

    Raises:
        ParamError: listing every fault with file, line, bounds, unit and the command that mends it.
    """
    values = {name: value for name, value in resolved.values.items() if value is not None}
    key = _key(
        prototype.digest or json.dumps(prototype.schema, sort_keys=True), outline(prototype.schema, values)
    )
    if passed is not None and passed.get(key) is not None:
        return
    faults = list(_param_faults(prototype, resolved, values, component))
    if faults:
        raise param_error(faults, subject=f"of `{component}`" if component else "")
    if passed is not None:
        passed.put(key, b"")


def check_value(param: Param, value: Any) -> list[str]:
    """Tell what is wrong with one value of one parameter, wherever it will be written."""
    if value is None:
        return []
    return [
        f"`{join_path((param.name, *refusal.path))}` {refusal.sentence(unit=param.unit, secret=param.secret)}"
        for refusal in _refusals(param.schema, value)
    ]


_SAYS_NOTHING = frozenset(
    {
        "$schema",
        "$id",
        "title",
        "description",
        "default",
        "examples",
        "unit",
        "aliases",
        "additionalProperties",
    }
    | {"type", "properties", "required", "x-secret", "x-deprecated", "x-format", "x-value-aliases", "x-merge"}
)


def outline(schema: Any, value: Any) -> Any:
    """Give what a schema can tell of a value: where it asks for the type alone, the name of that.

    Values of one outline pass or fail together, so one of them is checked for all.
    """
    if not isinstance(schema, Mapping) or not _SAYS_NOTHING.issuperset(schema):
        return value
    if value.__class__ is float:
        return "integral" if value.is_integer() else "float"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if value.__class__ is not dict or not schema.keys() & _OF_MAPS:
        return value.__class__.__name__
    return {name: outline(properties.get(name, others), inner) for name, inner in value.items()}


_OF_MAPS = frozenset({"properties", "required", "additionalProperties"})


def _key(schema: str, values: Any) -> str:
    """Give the name under which a schema, or what stands for it, and values are remembered together."""
    text = json.dumps([schema, values], sort_keys=True, ensure_ascii=True, default=repr)
    return "passed-" + hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class _Refusal:
    """One schema error in plain data, so that no object of jsonschema leaves this module."""

    path: ValuePath
    keyword: str
    schema: Mapping[str, Any]
    value: Any

    def sentence(self, *, unit: str = "", secret: bool = False) -> str:
        if self.keyword == "unknown":
            near = nearest(self.value, self.schema.get("properties", ()))
            return f"is unknown{f'; did you mean `{near}`?' if near else ''}"
        if self.keyword == "required":
            return "is required"
        if self.keyword == "forbidden":
            return "must not be set here"
        if secret:
            return "does not fit (its value is secret)"
        return expectation(self.keyword, self.schema, self.value, unit=unit)


def _refusals(schema: Mapping[str, Any], value: Any) -> list[_Refusal]:
    """Check, and flatten jsonschema's errors to one refusal a place, in a stable order.

    What has the wrong type is not told of its bounds as well; the whole may break several rules.
    """
    from referencing import Registry

    found: dict[tuple[ValuePath, str], _Refusal] = {}
    registry: Registry[Any] = Registry()  # empty, and asks nobody: a reference to elsewhere is never followed
    for error in _validator()(schema, registry=registry).iter_errors(value):
        for refusal in _flattened(error):
            key = (refusal.path, "" if refusal.path else refusal.keyword)
            if key not in found or refusal.keyword == "type":
                found[key] = refusal
    return sorted(found.values(), key=lambda refusal: [str(part) for part in refusal.path])


@cache
def _validator() -> Any:
    """Give a validator that leaves patterns to RE2, which ends."""
    from jsonschema import Draft202012Validator, ValidationError, validators

    def pattern(_validator: Any, expected: Any, instance: Any, _schema: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not matches(expected, instance):
            yield ValidationError(f"{instance!r} does not match {expected!r}")

    def pattern_properties(validator: Any, inner: Any, instance: Any, _schema: Any) -> Iterator[Any]:
        for expected, below in inner.items() if isinstance(instance, dict) else ():
            for name in filter(partial(matches, expected), instance):
                yield from validator.descend(instance[name], below, path=name, schema_path=expected)

    def additional_properties(validator: Any, below: Any, instance: Any, schema: Any) -> Iterator[Any]:
        extras = _extras(schema, instance) if isinstance(instance, dict) else []
        if isinstance(below, dict):
            for name in extras:
                yield from validator.descend(instance[name], below, path=name)
        elif not below and extras:
            yield ValidationError(f"{extras!r} are unknown")

    changed = {"pattern": pattern, "patternProperties": pattern_properties}
    extend: Any = validators.extend
    return extend(Draft202012Validator, {**changed, "additionalProperties": additional_properties})


def _flattened(error: Any) -> Iterator[_Refusal]:
    path: ValuePath = tuple(error.absolute_path)
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    if error.schema is False or error.validator is None:
        yield _Refusal(path, "forbidden", {}, error.instance)
    elif error.validator == "required":
        for name in error.validator_value:
            if name not in error.instance:
                yield _Refusal((*path, name), "required", schema, None)
    elif error.validator == "dependentRequired":
        for needed in error.validator_value.values():
            yield from (
                _Refusal((*path, n), "required", schema, None) for n in needed if n not in error.instance
            )
    elif error.validator == "additionalProperties" and not isinstance(
        schema["additionalProperties"], Mapping
    ):
        for name in _extras(schema, error.instance):
            yield _Refusal((*path, name), "unknown", schema, name)
    elif error.validator in ("anyOf", "oneOf") and error.context and not _types_differ(error):
        yield from _best_branch(error)
    else:
        yield _Refusal(path, str(error.validator), schema, error.instance)


def _extras(schema: Mapping[str, Any], instance: Mapping[str, Any]) -> list[str]:
    expected = schema.get("patternProperties", ())
    return [
        name
        for name in instance
        if name not in schema.get("properties", {})
        and not any(matches(pattern, name) for pattern in expected)
    ]


def _types_differ(error: Any) -> bool:
    """Tell whether every branch refuses the value's type: then the list of types says it best."""
    return all(inner.validator == "type" and not inner.relative_path for inner in error.context)


def _best_branch(error: Any) -> Iterator[_Refusal]:
    """Give the errors of the branch that came furthest: fewest complaints about the type of the whole."""
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    best = min(branches.values(), key=lambda errors: (any(_about_type(e) for e in errors), len(errors)))
    for inner in best:
        yield from _flattened(inner)


def _about_type(error: Any) -> bool:
    return error.validator == "type" and not error.relative_path


def _param_faults(
    prototype: Prototype, resolved: Resolved, values: Mapping[str, Any], component: str
) -> Iterator[ParamFault]:
    refusals = _refusals(prototype.schema, values)
    missing = [str(refusal.path[0]) for refusal in refusals if _is_missing(refusal)]
    if missing:
        yield _missing_fault(missing, component, prototype)
    for refusal in refusals:
        if not _is_missing(refusal):
            yield _fault(refusal, prototype, resolved)


def _is_missing(refusal: _Refusal) -> bool:
    return refusal.keyword == "required" and len(refusal.path) == 1


def _missing_fault(missing: Sequence[str], component: str, prototype: Prototype) -> ParamFault:
    names = " and ".join(", ".join(f"`{name}`" for name in missing).rsplit(", ", 1))
    verb = "is" if len(missing) == 1 else "are"
    subject = f" by `{component}`" if component else f" by prototype `{prototype.name}`"
    target = f"{component} " if component else ""
    hint = "\n      ".join(f"mlstack param set {target}{name} VALUE" for name in missing)
    return ParamFault(f"{names} {verb} required{subject} and not set", hint=hint)


def _fault(refusal: _Refusal, prototype: Prototype, resolved: Resolved) -> ParamFault:
    name = str(refusal.path[0]) if refusal.path else ""
    param, inner = prototype.params.get(name), refusal.path[1:]
    unit, secret = (param.unit, param.secret) if param else ("", False)
    if not refusal.path:
        refusal = _without_secrets(refusal, prototype.params)
    sentence = refusal.sentence(unit=unit if not inner else "", secret=secret)
    setting = resolved.setting(name, inner)
    return ParamFault(
        f"`{join_path(refusal.path)}` {sentence}" if refusal.path else f"the parameters: {sentence}",
        where=str(nearest_origin(setting.origins, inner, setting.origin)) if setting else None,
        hint=_hint(refusal, setting, secret=secret),
    )


def _without_secrets(refusal: _Refusal, params: Mapping[str, Param]) -> _Refusal:
    """Mask the secret ones in what is said of the whole set, and of the sets that are allowed."""

    def masked(value: Any) -> Any:
        if isinstance(value, list):
            return [masked(each) for each in value]
        if isinstance(value, Mapping):
            return {name: mask_value(inner, params.get(name)) for name, inner in value.items()}
        return value

    allowed = {word: masked(refusal.schema[word]) for word in ("const", "enum") if word in refusal.schema}
    return replace(refusal, value=masked(refusal.value), schema={**refusal.schema, **allowed})


def _hint(refusal: _Refusal, setting: Setting | None, *, secret: bool = False) -> str | None:
    if setting is None or setting.layer == "default" or not refusal.path:
        return None
    key = join_path(refusal.path)
    if refusal.keyword in ("unknown", "forbidden"):
        return f"mlstack param unset {setting.target} {key}".replace("  ", " ")
    value = "VALUE" if secret else suggestion(refusal.keyword, refusal.schema, refusal.value)
    if setting.layer == "command line":
        return f"--set {key}={value}"
    return f"mlstack param set {setting.target} {key} {value}".replace("  ", " ")
