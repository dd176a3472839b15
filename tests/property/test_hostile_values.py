"""Any string that a prototype admits for any parameter changes that value, never the structure around it.

The law: what is rendered with hostile texts is what is rendered with harmless tokens, with each text in its
token's place wherever that stands: in values, in keys that are values, in JSON inside of values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.app import schema
from mlstack.app.params import Layer, Resolved
from mlstack.app.prototype import Prototype
from mlstack.errors import ParamError, TemplateError
from mlstack.render.template import Renderer
from mlstack.yaml import read as yamlread
from tests.support import examples
from tests.support.builders import resolve
from tests.support.examples import Case

Path = tuple[str, ...]
HOSTILE = [
    *("yes", "no", "on", "off", "y", "n", "NO", "True", "null", "~", "Null", "none", "", " ", "  x", "x  "),
    *(
        "012",
        "0o12",
        "0x1F",
        "1e3",
        "1E3",
        ".5",
        "1_000",
        "1:30",
        "12:30:45",
        "-0",
        "+1",
        ".inf",
        ".NaN",
        "123",
    ),
    *(
        "2001-01-01",
        "2001-01-01T00:00:00Z",
        "=",
        "<<",
        "---",
        "...",
        "- x",
        "? x",
        "-",
        "?",
        ":",
        ",",
        "[",
        "]",
    ),
    *(
        "a: b",
        "a:b",
        "a :b",
        ": ",
        "x:",
        "#",
        "a #b",
        "a#b",
        "&a",
        "*a",
        "!a",
        "!!str x",
        "%YAML 1.1",
        "@x",
        "`x`",
    ),
    *(
        "'",
        '"',
        "''",
        '""',
        "it's",
        'say "x"',
        "\\",
        "a\\nb",
        "\\u0041",
        "{",
        "}",
        "{}",
        "[]",
        "{a: b}",
        "[a, b]",
    ),
    *("{{ params }}", "{% raw %}", "{# x #}", "{{", "}}", "%}", "${x}", "$(x)", "{username}", "{pvc_name}"),
    *(
        "a\nb",
        "a\n",
        "\na",
        "a\n\nb\n",
        "a\n  b",
        "\ta",
        "a\tb",
        "a\rb",
        "a\r\nb",
        "| x",
        "> x",
        "|",
        "a\n---\nb",
    ),
    *(
        "\x85",
        "\u2028",
        "\ufeff",
        "\x7f",
        "\x01",
        "\x1b[31m",
        "\ue000",
        "\u200b",
        "é",
        "日本語",
        "🚀",
        "👩‍🔬",
        "\U0010ffff",
    ),
    *("a, b", "a]", "a}", "a]}, {b: [", "a', b: 'c", "x" * 10_000, "x " * 5_000, "&anchor *alias", "a=b,c=d"),
]
TEXT = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40),
)


def string_places(prototype: Prototype) -> Iterator[Path]:
    """Give the path of every place in the parameters that holds a string of the user's choice."""
    for name, param in prototype.params.items():
        if param.deprecated is None:
            yield from ((name, *path) for path in _strings(param.schema))


def _strings(found: Mapping[str, Any]) -> Iterator[Path]:
    kind = found.get("type", [])
    if "enum" in found or "const" in found:
        return
    if (
        kind == "string"
        or "string" in kind
        or any("string" in b.get("type", ()) for b in found.get("anyOf", ()))
    ):
        yield ()
    elif kind == "array":
        yield from (("0", *path) for path in _strings(found["items"]))
    elif kind == "object":
        for name, inner in {"KEY": found.get("additionalProperties"), **found.get("properties", {})}.items():
            yield from ((name, *path) for path in _strings(inner or {}))


PLACES = [(each, path) for each in examples.prototypes() for path in string_places(each)]
IDS = [f"{each.name}:{'.'.join(path)}" for each, path in PLACES]


@pytest.mark.parametrize("prototype", examples.prototypes(), ids=lambda each: each.name)
def test_hostile_texts_change_only_their_values(prototype: Prototype) -> None:
    for case, places in stages(prototype.full_name).items():
        tokens = {path: prefix(case, path) + f"t0ken{n}x" for n, path in enumerate(places)}
        harmless = render(case, with_texts(case, tokens))
        for number in range(max(len(hostile_texts(case, path)) for path in places)):
            texts = {path: hostile_at(case, path, number + 7 * n) for n, path in enumerate(places)}
            swaps = {f"t0ken{n}x": texts[path][len(prefix(case, path)) :] for n, path in enumerate(places)}
            assert_substituted(harmless, render(case, with_texts(case, texts)), swaps)


@pytest.mark.parametrize("prototype", examples.prototypes(), ids=lambda each: each.name)
def test_every_string_is_shown_by_an_example(prototype: Prototype) -> None:
    shown = {path for places in stages(prototype.full_name).values() for path in places}
    hidden = {path[0] for path in string_places(prototype) if not is_number(prototype, path)} - {
        path[0] for path in shown
    }
    # Namespaces are stamped on objects later; a name may be only hashed; a model's path begins with a mount;
    # shares must be numbers that add up, and steps lead to each other.
    mount = {"volumeMountPath"}
    excused = {
        "kubeflow-core": {"name"},
        "tf-serving": {*mount, "trafficRule"},
        "triton": mount,
        "cluster-queue": {"borrowing"},  # names resources of `quotas`
        "katib-experiment": {"parameters"},  # their names are identifiers, and agree with each other
        "kserve-inferencegraph": {"steps", "nodes"},
        "tensorboard": {"accelerator", "gpuResource"},  # both ask for no GPUs
        "mlflow": {"accelerator", "gpuResource"},
        **{name: {"steps", "onExit"} for name in ("pipeline-run", "argo-workflow", "argo-cron-workflow")},
        # A SparkApplication has no such field.
        **{name: {"runtimeClassName"} for name in ("spark-application", "scheduled-spark-application")},
    }
    assert hidden <= {"namespace"} | excused.get(prototype.name, set())


@given(name=st.sampled_from([each.full_name for each in examples.prototypes()]), text=TEXT)
def test_any_text_changes_only_its_value(name: str, text: str) -> None:
    for case, places in stages(name).items():
        for path in [path for path in places if path[0] in FREE and is_admitted(case, path, text)]:
            harmless = render(case, with_texts(case, {path: "t0ken"}))
            assert_substituted(harmless, render(case, with_texts(case, {path: text})), {"t0ken": text})


@pytest.mark.parametrize(("prototype", "path"), PLACES, ids=IDS)
def test_nul_is_refused(prototype: Prototype, path: Path) -> None:
    with pytest.raises(ParamError):
        resolve(prototype.params, [Layer("component", {path[0]: nested(path[1:], "a\x00b", None)})])


FREE = ("env", "annotations", "args", "script", "data_dir")


def is_number(prototype: Prototype, path: Path) -> bool:
    """Tell whether a string here is a quantity: hostile texts that it admits are numbers to it."""
    return "^[0-9]" in str(prototype.params[path[0]].schema) and len(path) == 1


@cache
def stages(prototype: str) -> dict[Case, list[Path]]:
    """Give examples that show every string of a prototype between them, and which ones each shows."""
    missing = [path for each, path in PLACES if each.full_name == prototype and not is_number(each, path)]
    found: dict[Case, list[Path]] = {}
    for case in [case for case in examples.cases() if case.prototype.full_name == prototype]:
        for path in list(missing):
            trial = [*found.get(case, []), path]
            if shows(case, trial):
                found[case] = trial
                missing.remove(path)
    return found


def shows(case: Case, places: list[Path]) -> bool:
    """Tell whether an example renders with texts at all these places, and shows the last of them."""
    texts = {path: prefix(case, path) + f"t0ken{n}x" for n, path in enumerate(places)}
    try:
        return f"t0ken{len(places) - 1}x" in json.dumps(render(case, with_texts(case, texts)))
    except (ParamError, TemplateError):
        return False


def prefix(case: Case, path: Path) -> str:
    """Give what has to stand before a text to make sense: the example's own path or address."""
    own = value_at(as_it_is(case), path)
    return own if isinstance(own, str) and (own.startswith("/") or "://" in own) else ""


def hostile_at(case: Case, path: Path, number: int) -> str:
    """Give one of the hostile texts that the prototype admits; a harmless one where it admits none."""
    admitted = hostile_texts(case, path)
    return admitted[number % len(admitted)] if admitted else prefix(case, path) + "x"


@cache
def hostile_texts(case: Case, path: Path) -> list[str]:
    """Give the hostile texts that the prototype admits at a place."""
    texts = [prefix(case, path) + text for text in HOSTILE]
    return [text for text in texts if is_admitted(case, path, text)]


def is_admitted(case: Case, path: Path, text: str) -> bool:
    """Tell whether a parameter takes a text for what it is; not for nothing, a number, or a fault.

    A slash at its end is left out: where a path is joined to another one slash is enough.
    """
    param = case.prototype.params[path[0]]
    try:
        own = case.example.params.get(param.name)
        found = resolve({param.name: param}, [Layer("component", {param.name: nested(path[1:], text, own)})])
    except ParamError:
        return False
    value = found.values[param.name]
    taken = bool(text) and value_at(found, path) == text and not text.endswith("/")
    return taken and not schema.check_value(param, value)


def nested(path: Path, text: str, own: Any) -> Any:
    """Give a value that holds a text at a place, beside what else an example's value holds."""
    if not path:
        return text
    if path[0] == "0":
        first, *others = own if isinstance(own, list) and own else [None]
        return [nested(path[1:], text, first), *others]
    beside = own if isinstance(own, Mapping) else {}
    return {**beside, path[0]: nested(path[1:], text, beside.get(path[0]))}


def with_texts(case: Case, texts: Mapping[Path, str]) -> Resolved:
    """Resolve an example's parameters with texts on top, each as an environment would give it."""
    changed: dict[str, Any] = {}
    for (name, *path), text in texts.items():
        changed[name] = nested(tuple(path), text, changed.get(name, case.example.params.get(name)))
    layers = [Layer("component", case.example.params), Layer("environment", changed)]
    return resolve(case.prototype.params, layers, prototype=case.prototype.full_name)


@cache
def as_it_is(case: Case) -> Resolved:
    """Resolve an example's parameters."""
    return with_texts(case, {})


def value_at(found: Resolved, path: Path) -> Any:
    """Give what resolution left at a place."""
    value: Any = found.values
    for key in path:
        if isinstance(value, list):
            value = value[0] if value else None
        elif isinstance(value, Mapping):
            value = value.get(key)
    return value


_RENDERERS: dict[str, Renderer] = {}


def render(case: Case, found: Resolved) -> list[Any]:
    """Give the documents of an example's prototype for these parameters, whatever its schema says of them."""
    prototype = case.prototype
    engine = _RENDERERS.setdefault(prototype.full_name, Renderer(prototype))
    variables = {
        "params": dict(found.values),
        "name": found.values["name"] or "x",
        "component": {"name": "x", "module": ""},
        "namespace": found.values.get("namespace") or "default",
        "app": {"name": "demo"},
        "env": {"name": "plain", "namespace": "default", "context": "plain"},
    }
    return [
        value
        for template in engine.names
        if template != "crds.yaml.j2"  # takes no text, and is long
        for value in read(engine.render(template, variables))
    ]


@lru_cache(maxsize=256)
def read(text: str) -> list[Any]:
    """Read the documents of a text; much of what is rendered is the same every time."""
    return [document.value for document in yamlread.read_documents(text, source="rendered")]


def assert_substituted(harmless: Any, hostile: Any, swaps: Mapping[str, str], key: str = "") -> None:
    """Compare two renderings part by part."""
    if isinstance(harmless, dict):
        expected = {swapped(name, swaps): name for name in harmless}
        assert hostile.keys() == expected.keys()
        for name, token_name in expected.items():
            assert_substituted(harmless[token_name], hostile[name], swaps, name)
    elif isinstance(harmless, list):
        assert len(harmless) == len(hostile)
        for one, other in zip(harmless, hostile, strict=True):
            assert_substituted(one, other, swaps, key)
    elif isinstance(harmless, str) and key.endswith(".json"):
        assert_substituted(json.loads(harmless), json.loads(hostile), swaps)
    elif key == "models.config":
        assert hostile == swapped(harmless, {t: _as_protobuf(text) for t, text in swaps.items()})
    elif isinstance(harmless, str) and not key.startswith("checksum/") and key != "proxy-token":
        assert hostile == swapped(harmless, swaps)
    else:
        assert isinstance(hostile, type(harmless))


def swapped(text: str, swaps: Mapping[str, str]) -> str:
    """Put each hostile text in its token's place."""
    if "t0ken" not in text:
        return text
    for token, hostile in swaps.items():
        text = text.replace(token, hostile)
    return text


def _as_protobuf(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
