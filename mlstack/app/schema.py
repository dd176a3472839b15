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
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mlstack.app.app import SIGN, App, Component, ModuleParams, PatchFile, Stack
from mlstack.app.document import (
    API_VERSION,
    AppDocument,
    expectation,
    join_path,
    schema_of_file,
    shown,
    suggestion,
)
from mlstack.app.environment import (
    ApprovedDifferences,
    Environment,
    EnvironmentParams,
    PersonalOverrides,
    PolicyFile,
    Prices,
)
from mlstack.app.params import ParamFault, Resolved, Setting, nearest_origin, param_error
from mlstack.app.prototype import (
    DATA_KEYWORDS,
    NAMED_SCHEMAS,
    Example,
    Package,
    Param,
    Prototype,
    PrototypeFile,
    SecretRef,
    mask_value,
    reference_paths,
    with_inner,
)
from mlstack.app.versions import Lock, RegistryIndex
from mlstack.dataclass import dataclass
from mlstack.disk_cache import NO_STORE, ByteStore, from_json, program_identity
from mlstack.errors import SchemaError
from mlstack.names import did_you_mean, nearest
from mlstack.yaml.read import KeyPath

LONGEST = 4096
"""Characters of a pattern."""
# What a JSON Schema may say and RE2 writes otherwise. `$` is the end of a text, never the place before a last
# line break: patterns made for Python's `re` say so in these ways.
_WRITTEN_OTHERWISE = r"\$\(\?!\\n\)|\\Z|\\u([0-9a-fA-F]{4})|\\(?s:.)"


def matches(pattern: str, text: str) -> bool | None:
    """Tell whether a pattern occurs in a text; None where the pattern is none that RE2 can read."""
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    try:
        return compiled.search(text) is not None
    except UnicodeError:  # half a surrogate pair
        return None


@cache
def _compiled(pattern: str) -> Any:
    import re2

    if len(pattern) > LONGEST:
        return None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(_as_re2(pattern), options)
    except (re2.error, UnicodeError):
        return None


def _as_re2(pattern: str) -> str:
    written = {r"$(?!\n)": "$", r"\Z": r"\z"}

    def spelled(match: re.Match[str]) -> str:
        return rf"\x{{{match[1]}}}" if match[1] else written.get(match[0], match[0])

    return re.sub(_WRITTEN_OTHERWISE, spelled, pattern)


# --- The only door to jsonschema-rs: files of the app and of packages, and resolved parameters ---
# The library takes a quarter of a small render to import, so what has passed once is
# remembered under the hash of schema and values, and it is imported for what has not.

_FOLDER = Path(__file__).parent / "schemas"
RESULTS = _FOLDER / "results"


_DECLARED: Mapping[str, tuple[type, Mapping[str, Any]]] = {  # kind → dataclass and `$defs`
    "App": (App, {"sign": SIGN}),
    "ApprovedDifferences": (ApprovedDifferences, {}),
    "Component": (Component, {}),
    "Environment": (Environment, {}),
    "EnvironmentParams": (EnvironmentParams, {}),
    "Example": (Example, {}),
    "Lock": (Lock, {}),
    "ModuleParams": (ModuleParams, {}),
    "Package": (Package, {}),
    "PersonalOverrides": (PersonalOverrides, {}),
    "Patch": (PatchFile, {}),
    "Policy": (PolicyFile, {}),
    "Prices": (Prices, {}),
    "Prototype": (PrototypeFile, {}),
    "Registry": (RegistryIndex, {}),
    "Stack": (Stack, {}),
}


def file_kinds() -> tuple[str, ...]:
    """Give the kinds of files that have a schema."""
    return tuple(sorted([*_DECLARED, *(file.stem for file in _FOLDER.glob("*.json"))]))


@cache
def file_schema(kind: str) -> dict[str, Any]:
    """Give the JSON Schema of a file kind: of its dataclass, or as a file of `schemas/` says it."""
    if kind in _DECLARED:
        declared, definitions = _DECLARED[kind]
        return schema_of_file(declared, kind, API_VERSION, definitions)
    schema: dict[str, Any] = json.loads((_FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    return schema


def result_schemas() -> dict[str, dict[str, Any]]:
    """Read the JSON Schemas of results, by kind."""
    files = sorted(RESULTS.glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


_SCHEMAS: dict[str, tuple[str, Mapping[str, Any]]] = {}


def _known_schema(kind: str, store: ByteStore) -> tuple[str, Mapping[str, Any]]:
    """Give a file kind's schema and its text; a store keeps them, as making one takes milliseconds."""
    if kind not in _SCHEMAS:
        key, data = "", None
        if kind in _DECLARED:
            with suppress(OSError):  # nothing tells this program from another
                key = f"schema {kind} {program_identity()}"
                data = store.get(key)
        schema = from_json(data, dict)
        if data is None or schema is None:
            schema = file_schema(kind)
            data = json.dumps(schema).encode()
            if key:
                store.put(key, data)
        _SCHEMAS[kind] = data.decode(), schema
    return _SCHEMAS[kind]


def check_file(
    kind: str, value: Any, *, source: str, document: AppDocument | None = None, passed: ByteStore = NO_STORE
) -> None:
    """Check a file's content, known as `source`, against the schema of its kind (`App`).

    `document` is what it was read from, for lines in messages. Content that `passed` before is not checked
    again.

    Raises:
        SchemaError: listing every fault with its line.
    """
    text, schema = _known_schema(kind, passed)
    key = _key(text, outline(schema, value))
    if passed.get(key) is not None:
        return
    lines = [f"{source} is not a valid {kind}"]
    for refusal in _refusals(schema, value):
        origin = document.origin(refusal.path) if document is not None else source
        subject = f"`{join_path(refusal.path)}` " if refusal.path else ""
        lines.append(f"{subject}{refusal.sentence()} ({origin})")
    if lines[1:]:
        hint = f"the schema is https://mlstack.dev/schemas/v1/{kind}.json"
        raise SchemaError("\n  ".join(lines), hint=hint)
    passed.put(key, b"")


def note_passed(kind: str, value: Any, passed: ByteStore) -> None:
    """Remember that a file's content fits its kind, where that is known without a check."""
    text, schema = _known_schema(kind, passed)
    passed.put(_key(text, outline(schema, value)), b"")


def check_schema(schema: Mapping[str, Any], document: AppDocument, path: KeyPath) -> None:
    """Check that a schema of parameters is one."""
    fault = _schema_fault(schema)
    if fault is not None:
        place = (*path, *fault.path)
        message = f"`{join_path(place)}` cannot be {shown(fault.value)}"
        hint = "see https://json-schema.org/understanding-json-schema"
        if fault.keyword == "pattern":
            hint = f"a pattern is RE2's: {LONGEST} characters, no look-around, no back references"
        raise SchemaError(message, where=str(document.origin(place)), hint=hint)


def is_checkable(schema: Mapping[str, Any]) -> bool:
    """Tell whether values can be checked against a schema that was written for another validator."""
    return _schema_fault(schema) is None


def _schema_fault(schema: Any) -> _Refusal | None:
    """Give what in a schema is no schema, the outermost first; or a pattern that cannot be read."""
    import jsonschema_rs

    if error := min(
        _of_schemas().iter_errors(schema), key=lambda error: len(error.instance_path), default=None
    ):
        return _Refusal(tuple(error.instance_path), error.kind.name, {}, error.instance)
    for path, pattern in _patterns(schema):
        if _compiled(pattern) is None:
            return _Refusal(path, "pattern", {}, pattern)
    try:
        _validator(schema)
    except jsonschema_rs.ValidationError as error:
        return _Refusal(tuple(error.instance_path), "pattern", {}, error.instance)
    return None


@cache
def _of_schemas() -> Any:
    """Give the validator of schemas."""
    import jsonschema_rs

    about = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    return jsonschema_rs.Draft202012Validator(about, offline=True)


def _patterns(schema: Any) -> Iterator[tuple[KeyPath, str]]:
    """Give the patterns of a sound schema and of those inside it, with their places."""
    for path, value in _keywords(schema, ()):
        if path[-1] == "pattern":
            yield path, value
        elif path[-1] == "patternProperties":
            yield from ((path, pattern) for pattern in value)


def _keywords(schema: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Give the keywords of a sound schema and of those inside it, with their values."""
    for number, inner in enumerate(schema if isinstance(schema, list) else ()):
        yield from _keywords(inner, (*path, number))
    for keyword, inner in schema.items() if isinstance(schema, Mapping) else ():
        yield (*path, keyword), inner
        for name, named in inner.items() if keyword in _NAMED else ():
            yield from _keywords(named, (*path, keyword, name))
        if keyword not in _NAMED | DATA_KEYWORDS:
            yield from _keywords(inner, (*path, keyword))


_NAMED = NAMED_SCHEMAS | {"dependentRequired", "dependencies"}


# Of JSON Schema 2020-12 (its meta-schemas), of the drafts before it, and ours.
_WORDS = (
    "$anchor $comment $defs $id $ref $schema $vocabulary additionalProperties aliases allOf anyOf const"
    " contains contentEncoding contentMediaType contentSchema default definitions dependencies"
    " dependentRequired dependentSchemas deprecated description else enum examples exclusiveMaximum"
    " exclusiveMinimum format if items maxContains maxItems maxLength maxProperties maximum minContains"
    " minItems minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems"
    " properties propertyNames readOnly required then title type unevaluatedItems unevaluatedProperties"
    " uniqueItems unit writeOnly"
)
_KNOWN_KEYWORDS = frozenset(_WORDS.split())


def strange_keywords(schema: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Give the keywords of a schema that mean nothing, most of them misspelt, with the nearest that does."""
    for path, _ in _keywords(schema, ()):
        keyword = str(path[-1])
        if keyword not in _KNOWN_KEYWORDS and not keyword.startswith("x-"):
            yield path, did_you_mean(keyword, _KNOWN_KEYWORDS)


def check_params(
    prototype: Prototype, resolved: Resolved, *, passed: ByteStore = NO_STORE, component: str = ""
) -> None:
    """Check resolved parameters against the prototype's schema; unset values are left out.

    Values that stand elsewhere are left out. Sets that `passed` before are not checked again. `component` is
    its full name, for hints.

    Raises:
        ParamError: listing every fault with file, line, bounds, unit and the command that mends it.
    """
    values = {name: value for name, value in resolved.values.items() if value is not None}
    elsewhere = [*reference_paths(values)]
    passed = NO_STORE if elsewhere else passed
    schema = prototype.digest or json.dumps(prototype.schema, sort_keys=True)
    key = _key(schema, outline(prototype.schema, values))
    if passed.get(key) is not None:
        return
    faults: list[ParamFault] = []
    missing: list[str] = []
    for refusal in _refusals(prototype.schema, _with_nulls(values) if elsewhere else values):
        if refusal.keyword == "required" and len(refusal.path) == 1:
            missing.append(str(refusal.path[0]))
        elif not any(refusal.path[: len(path)] == path for path in elsewhere):  # nobody knows it yet
            faults.append(_fault(refusal, prototype, resolved))
    if missing:
        names = " and ".join(", ".join(f"`{name}`" for name in missing).rsplit(", ", 1))
        verb = "is" if len(missing) == 1 else "are"
        subject = f"`{component}`" if component else f"prototype `{prototype.name}`"
        target = f"{component} " if component else ""
        hint = "\n      ".join(f"mlstack param set {target}{name} VALUE" for name in missing)
        faults.insert(0, ParamFault(f"{names} {verb} required by {subject} and not set", hint=hint))
    if faults:
        raise param_error(faults, subject=f"of `{component}`" if component else "")
    passed.put(key, b"")


def _with_nulls(value: Any) -> Any:
    """Give a value with null in the place of each reference: the validator takes plain values alone."""
    if isinstance(value, dict):
        return {key: _with_nulls(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_nulls(inner) for inner in value]
    return None if isinstance(value, SecretRef) else value


def check_value(param: Param, value: Any) -> list[str]:
    """Tell what is wrong with one value of one parameter, wherever it will be written."""
    if value is None:
        return []
    return [
        f"`{join_path((param.name, *refusal.path))}` {refusal.sentence(unit=param.unit, secret=param.secret)}"
        for refusal in _refusals(param.schema, value)
    ]


_TYPE_WORDS = """$schema $id title description default examples unit aliases additionalProperties type
properties required x-secret x-image x-whole-images x-deprecated x-format x-value-aliases x-merge"""
_SAYS_NOTHING = frozenset(_TYPE_WORDS.split())
_OF_MAPS = frozenset({"properties", "required", "additionalProperties"})


def outline(schema: Any, value: Any) -> Any:
    """Give what a schema can tell of a value: where it asks for the type alone, the name of that.

    Values of one outline pass or fail together, so one of them is checked for all.
    """
    is_schema = schema.__class__ is dict or isinstance(schema, Mapping)
    if not is_schema or not _SAYS_NOTHING.issuperset(schema):
        return value
    if value.__class__ is str:
        return "str"
    if value.__class__ is float:
        return "integral" if value.is_integer() else "float"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if value.__class__ is not dict or not schema.keys() & _OF_MAPS:
        return value.__class__.__name__
    return {name: outline(properties.get(name, others), value[name]) for name in sorted(value)}


def _key(schema: str, values: Any) -> str:
    """Give the name under which a schema, or what stands for it, and values are remembered together."""
    return "passed-" + hashlib.sha256(f"{schema}\0{values!r}".encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class _Refusal:
    """One schema error in plain data, so that no object of jsonschema-rs leaves this module."""

    path: KeyPath
    keyword: str
    schema: Mapping[str, Any]
    value: Any
    conditions: tuple[str, ...] = ()  # parameters whose values make it a rule

    def sentence(self, *, unit: str = "", secret: bool = False) -> str:
        if self.keyword == "unknown":
            near = nearest(self.value, self.schema.get("properties", ()))
            return f"is unknown{f'; did you mean `{near}`?' if near else ''}"
        usual = {"required": "is required", "forbidden": "must not be set here"}.get(self.keyword)
        if usual is None and secret:
            return "does not fit (its value is secret)"
        return usual or expectation(self.keyword, self.schema, self.value, unit=unit)


def _refusals(schema: Mapping[str, Any], value: Any) -> list[_Refusal]:
    """Check, and flatten the validator's errors to one refusal a place, in the order of the places.

    What has the wrong type is not told of its bounds as well; the whole may break several rules.
    """
    refusals: dict[tuple[KeyPath, str], _Refusal] = {}
    whole, validator = _validator(schema)
    try:
        errors = [(_rule(whole, error.evaluation_path), error) for error in validator.iter_errors(value)]
    except UnicodeEncodeError:  # half a surrogate pair: what holds one is refused where values are resolved
        return []
    for rule, error in sorted(errors, key=lambda pair: pair[0].order):
        for refusal in _flattened(whole, rule, error):
            if rule.conditions:
                refusal = replace(refusal, conditions=rule.conditions)
            key = (refusal.path, "" if refusal.path else refusal.keyword)
            if key not in refusals or refusal.keyword == "type":
                refusals[key] = refusal
    return sorted(refusals.values(), key=lambda refusal: [str(part) for part in refusal.path])


@dataclass(frozen=True)
class _Rule:
    """A rule of a schema that a value breaks."""

    schema: Mapping[str, Any]  # the one that says it
    order: tuple[int, ...]  # its place in the order of writing
    conditions: tuple[str, ...]  # properties that every `if` on the way to it looks at


def _rule(schema: Mapping[str, Any], path: Sequence[str | int]) -> _Rule:
    """Find a rule by the keywords, names and numbers that lead to it; references are followed."""
    holder: Any = schema
    place: Any = schema
    order: list[int] = []
    conditions: dict[str, None] = {}
    for step in path:
        holder = place
        if step in ("then", "else") and "if" in holder:
            conditions |= dict.fromkeys(holder["if"].get("properties", ()))
        order.append(step if isinstance(step, int) else [*holder].index(step))
        place = holder[step]
        if step == "$ref":
            target = place
            place = schema
            for part in filter(None, target.removeprefix("#").split("/")):
                place = place[part]
    return _Rule(holder, tuple(order), tuple(conditions))


_MOST_VALIDATORS = 1000
_VALIDATORS: dict[int, tuple[Mapping[str, Any], Any, Any]] = {}


def _validator(schema: Mapping[str, Any]) -> tuple[Any, Any]:
    """Give a schema as its validator reads it, and the validator, made once.

    It asks nobody for a reference to elsewhere.
    """
    import jsonschema_rs

    if id(schema) not in _VALIDATORS:
        if len(_VALIDATORS) >= _MOST_VALIDATORS:
            _VALIDATORS.clear()
        prepared = _prepared(schema)
        validator = jsonschema_rs.Draft202012Validator(
            prepared,
            offline=True,
            validate_formats=False,
            pattern_options=jsonschema_rs.RegexOptions(),
            keywords={"pattern": _Pattern},
        )
        _VALIDATORS[id(schema)] = schema, prepared, validator  # the schema, so that its id stays its own
    return _VALIDATORS[id(schema)][1:]


class _Pattern:
    """The keyword `pattern`, which is RE2's to read."""

    def __init__(self, _schema: Any, pattern: str, _path: Any) -> None:
        self._pattern = pattern

    def validate(self, value: Any) -> None:
        if isinstance(value, str) and not matches(self._pattern, value):
            raise ValueError(self._pattern)


def _prepared(schema: Any) -> Any:
    """Give a schema as the validator needs it.

    Patterns of names are spelled as RE2 does, which it reads like RE2. Where additional properties are
    forbidden beside none, it would tell of the whole and not name them.
    """
    if isinstance(schema, list):
        return [_prepared(inner) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    prepared = with_inner(schema, _prepared)
    if patterns := prepared.get("patternProperties"):
        prepared["patternProperties"] = {_as_re2(pattern): inner for pattern, inner in patterns.items()}
    if prepared.get("additionalProperties") is False:
        prepared.setdefault("properties", {})
    return prepared


def _flattened(schema: Mapping[str, Any], rule: _Rule, error: Any) -> Iterator[_Refusal]:
    """Give the refusals that an error of the validator stands for."""
    path: KeyPath = tuple(error.instance_path)
    keyword, kind = error.kind.name, error.kind
    if keyword == "falseSchema":
        yield _Refusal(path, "forbidden", {}, error.instance)
    elif keyword == "required":
        yield _Refusal((*path, kind.property), "required", rule.schema, None)
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        for name in kind.unexpected:
            yield _Refusal((*path, name), "unknown", rule.schema, name)
    elif keyword == "propertyNames":
        yield _Refusal(path, kind.error.kind.name, rule.schema, kind.error.instance)
    elif keyword in ("anyOf", "oneOf") and (branches := _branches(error)):
        # The branch that came furthest: with the fewest complaints about the type of the whole.
        best = min(branches, key=lambda errors: (any(_is_type(e, path) for e in errors), len(errors)))
        for inner in best:
            yield from _flattened(schema, _rule(schema, inner.evaluation_path), inner)
    elif keyword in ("maxLength", "maxItems") and kind.limit == 0:
        yield _Refusal(path, "forbidden", {}, error.instance)
    else:  # where every branch refuses the value's type, the list of types says it best
        yield _Refusal(path, keyword, rule.schema, error.instance)


def _branches(error: Any) -> list[list[Any]]:
    """Give the errors of each branch; none where a branch has none, or all have them in the type alone."""
    branches: list[list[Any]] = error.kind.context
    is_plain = all(_is_type(inner, error.instance_path) for branch in branches for inner in branch)
    return [] if is_plain or not all(branches) else branches


def _is_type(error: Any, path: Sequence[str | int]) -> bool:
    """Tell whether an error refuses the type of what stands at a path."""
    return error.kind.name == "type" and [*error.instance_path] == [*path]


def _fault(refusal: _Refusal, prototype: Prototype, resolved: Resolved) -> ParamFault:
    name = str(refusal.path[0]) if refusal.path else ""
    param, inner = prototype.params.get(name), refusal.path[1:]
    unit, secret = (param.unit, param.secret) if param else ("", False)
    if not refusal.path:
        words = {word: refusal.schema[word] for word in ("const", "enum") if word in refusal.schema}
        masked = {word: _masked(value, prototype.params) for word, value in words.items()}
        value = _masked(refusal.value, prototype.params)
        refusal = replace(refusal, value=value, schema={**refusal.schema, **masked})
    sentence = refusal.sentence(unit=unit if not inner else "", secret=secret)
    if causes := [_cause(other, prototype, resolved) for other in refusal.conditions if other != name]:
        sentence = f"{sentence}, because {' and '.join(causes)}"
    setting = resolved.setting(name, inner)
    return ParamFault(
        f"`{join_path(refusal.path)}` {sentence}" if refusal.path else f"the parameters: {sentence}",
        where=str(nearest_origin(setting.origins, inner, setting.origin)) if setting else None,
        hint=_hint(refusal, setting, secret=secret),
    )


def _cause(name: str, prototype: Prototype, resolved: Resolved) -> str:
    value, param = resolved.values.get(name), prototype.params.get(name)
    if value is None or isinstance(value, list | Mapping) or (param is not None and param.secret):
        return f"`{name}` is {'not set' if value in (None, [], {}) else 'set'}"
    return f"`{name}` is {value if isinstance(value, str) and value else shown(value)}"


def _masked(value: Any, params: Mapping[str, Param]) -> Any:
    """Mask the secret ones in a set of parameters, or in each of several."""
    if isinstance(value, list):
        return [_masked(inner, params) for inner in value]
    if isinstance(value, Mapping):
        return {name: mask_value(inner, params.get(name)) for name, inner in value.items()}
    return value


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
