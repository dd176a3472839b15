"""Parameters: texts get types, layers merge, and each value knows where it was set."""

import json
from itertools import pairwise
from typing import Any

import pytest

from mlstack.app.components import Overrides, ValuesFile, parse_set
from mlstack.app.document import Origin, join_path, split_path
from mlstack.app.params import GLOBAL_LAYERS, LAYERS, Layer, coerce, inner_param, merge, parse_text
from mlstack.app.prototype import Param
from mlstack.errors import ParamError, UsageError
from tests.support.builders import layer, param, params, resolve

INTEGER = param(type="integer")
NUMBER = param(type="number")
BOOLEAN = param(type="boolean")
STRING = param(type="string")
QUANTITY = param(type=["string", "number"])
ARRAY = param(type="array")
OBJECT = param(type="object")
CSV = param(type="array", format="csv")
KV = param(type="object", format="kv")
CLOUD = param(enum=["", "minikube", "gke"], value_aliases={"none": "", "gcp": "gke"})


@pytest.mark.parametrize(
    ("declared", "text", "value"),
    [
        (INTEGER, "5", 5),
        (INTEGER, "-3", -3),
        (INTEGER, "+3", 3),
        (INTEGER, "2.5", "2.5"),
        (INTEGER, "abc", "abc"),
        (INTEGER, "9" * 5000, "9" * 5000),
        (INTEGER, "null", None),
        (NUMBER, "2.5", 2.5),
        (NUMBER, "1e3", 1000.0),
        (NUMBER, ".5", 0.5),
        (NUMBER, "1e999", "1e999"),
        (NUMBER, "nan", "nan"),
        (BOOLEAN, "true", True),
        (BOOLEAN, "FALSE", False),
        (BOOLEAN, "tRue", True),
        (BOOLEAN, "yes", "yes"),
        (STRING, "5", "5"),
        (STRING, "true", "true"),
        (STRING, "", ""),
        (STRING, "--flag", "--flag"),
        (STRING, "1.10", "1.10"),
        (STRING, "{a: 1}", "{a: 1}"),
        (STRING, "null", None),
        (STRING, '"null"', "null"),
        (STRING, "'null'", "null"),
        (STRING, '"other"', '"other"'),
        (QUANTITY, "2", 2),
        (QUANTITY, "500m", "500m"),
        (QUANTITY, "null", None),
        (ARRAY, '["a", 1]', ["a", 1]),
        (ARRAY, "a", "a"),
        (ARRAY, "null", None),
        (OBJECT, '{"a": 1}', {"a": 1}),
        (OBJECT, "{a", "{a"),
        (CSV, "a, b,,c", ["a", "b", "c"]),
        (CSV, "", []),
        (CSV, '["a,b"]', ["a,b"]),
        (KV, "a=1,b=x=y", {"a": "1", "b": "x=y"}),
        (KV, "a", "a"),
        (KV, '{"a": "1,2"}', {"a": "1,2"}),
        (CLOUD, "gcp", "gke"),
        (CLOUD, "none", ""),
        (CLOUD, "minikube", "minikube"),
    ],
)
def test_text_is_typed_by_the_declared_type(declared: Any, text: str, value: Any) -> None:
    parsed = parse_text(declared, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("true", True), ("2.5", 2.5), ("abc", "abc"), ("", ""), ("null", None)]
)
def test_undeclared_text_goes_by_the_readers_rules(text: str, value: Any) -> None:
    assert parse_text(None, text) == value


@pytest.mark.parametrize("declared", [INTEGER, STRING, OBJECT, CSV, None])
def test_as_string_keeps_the_text(declared: Any) -> None:
    assert parse_text(declared, "5,6", as_string=True) == "5,6"


def test_structured_text_is_read_by_the_given_reader() -> None:
    assert parse_text(OBJECT, "a: 1") == {"a": 1}


@pytest.mark.parametrize("value", [5, 2.5, True, ["a"], {"a": 1}, None])
def test_typed_values_of_a_file_stay(value: Any) -> None:
    assert coerce(STRING, value) == value


@pytest.mark.parametrize("path", [("a",), ("a", "b"), ("a.b", "c"), ("cloud.google.com/pool",)])
def test_dotted_keys_read_back(path: tuple[str, ...]) -> None:
    assert split_path(join_path(path)) == path


def test_the_schema_inside_a_map_types_its_values() -> None:
    declared = param(
        type="object", properties={"n": {"type": "integer"}}, additionalProperties={"type": "string"}
    )
    assert parse_text(inner_param(declared, ("n",)), "5") == 5
    assert parse_text(inner_param(declared, ("other",)), "5") == "5"
    assert inner_param(declared, ("n", "deeper")) is None


def test_append_works_inside_maps() -> None:
    schema = {"properties": {"l": {"x-merge": "append"}}}
    assert merge({"l": [1]}, {"l": [2]}, schema) == {"l": [1, 2]}


def test_merging_leaves_both_sides_as_they_were() -> None:
    lower, upper = {"a": {"b": 1}}, {"a": {"c": 2}}
    merge(lower, upper)
    assert (lower, upper) == ({"a": {"b": 1}}, {"a": {"c": 2}})


GPUS = params(num_gpus={"type": "integer", "default": 0, "aliases": ("numGpus",)})
CLOUDS = params(cloud={"enum": ["", "gke"], "value_aliases": {"gcp": "gke", "none": ""}})


def described(declared: dict[str, Param], *layers: Layer, prototype: str = "k/tf-job/tf-cnn") -> str:
    with pytest.raises(ParamError) as caught:
        resolve(declared, list(layers), prototype=prototype)
    return caught.value.describe()


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(LAYERS[1:])))
def test_each_layer_wins_over_the_one_below(lower: str, higher: str) -> None:
    resolved = resolve(GPUS, [layer(lower, num_gpus=1), layer(higher, num_gpus=2)])
    assert resolved.values == {"num_gpus": 2}
    assert resolved.origin("num_gpus") == Origin(higher, 1)
    chain = [(setting.layer, setting.value) for setting in resolved.chains["num_gpus"]]
    assert chain == [("default", 0), (lower, 1), (higher, 2)]


def test_layers_are_ordered_from_general_to_specific() -> None:
    assert set(LAYERS) > GLOBAL_LAYERS
    assert (LAYERS[0], LAYERS[-1]) == ("default", "command line")


def test_the_default_is_the_lowest_layer_and_without_one_a_value_comes_from_nowhere() -> None:
    resolved = resolve(GPUS | params(image={"type": "string"}), [], prototype="kubeflow/tf-job/tf-cnn")
    assert resolved.values == {"num_gpus": 0, "image": None}
    assert str(resolved.origin("num_gpus")) == "prototype kubeflow/tf-job/tf-cnn"
    assert str(resolved.origin("image")) == "not set"


ENV = {"type": "object", "default": {"a": {"x": 1}, "l": [1]}}


@pytest.mark.parametrize(
    ("schema", "layers", "value"),
    [
        pytest.param(GPUS, [layer("component", numGpus=3)], 3, id="old spelling"),
        pytest.param(
            GPUS, [layer("component", numGpus=3), layer("environment", num_gpus=4)], 4, id="spellings mix"
        ),
        *(
            pytest.param(GPUS, [layer(kind, other=1)], 0, id=f"{kind} skips")
            for kind in sorted(GLOBAL_LAYERS)
        ),
        pytest.param(
            ENV, [layer("component", p={"a": {"y": 2}, "l": [2]})], {"a": {"x": 1, "y": 2}, "l": [2]}
        ),
        pytest.param(
            {"type": "array", "x-merge": "append", "default": ["a"]},
            [layer("component", p=["b"])],
            ["a", "b"],
            id="append",
        ),
        pytest.param(GPUS, [layer("app", num_gpus=1), layer("component", num_gpus=None)], None, id="null"),
        pytest.param(
            GPUS, [layer("app", num_gpus=1), layer("component", num_gpus="null")], None, id="'null'"
        ),
        pytest.param(
            {"type": "object", "default": {"a": 1, "b": 2}},
            [layer("component", p={"a": None})],
            {"b": 2},
            id="null inside a map",
        ),
        pytest.param(
            {"type": "object", "format": "kv", "default": {"a": "1"}},
            [layer("app", p="b=2,c=3")],
            {"a": "1", "b": "2", "c": "3"},
            id="a map as text",
        ),
    ],
)
def test_layers_resolve_to_one_value(schema: Any, layers: list[Layer], value: Any) -> None:
    declared = schema if schema is GPUS else params(p=schema)
    assert list(resolve(declared, layers).values.values()) == [value]


def test_all_unknown_names_are_told_together() -> None:
    message = described(GPUS, layer("component", num_gpu=1), layer("environment", xyz=1), prototype="")
    assert message.splitlines()[:3] == [
        "error: 2 parameters are wrong",
        "  the prototype has no parameter `num_gpu` (component:1)",
        "  the prototype has no parameter `xyz` (environment:1)",
    ]


def test_both_spellings_in_one_layer_are_refused() -> None:
    message = described(GPUS, layer("component", numGpus=3, num_gpus=4))
    assert "spellings of one parameter, and both are set (component:2)" in message


def test_deprecated_parameters_and_old_values_are_noted_with_their_place() -> None:
    declared = CLOUDS | params(old={"type": "string", "deprecated": "use `new`"})
    resolved = resolve(declared, [layer("app", cloud="none"), layer("component", cloud="gcp", old="x")])
    assert resolved.values == {"cloud": "gke", "old": "x"}
    assert resolved.notes == (
        "`cloud: none` now means `empty` (app:1)",
        "`cloud: gcp` now means `gke` (component:1)",
        "`old` is deprecated: use `new` (component:2)",
    )


def test_a_value_inside_a_map_keeps_its_own_place() -> None:
    places = {("env",): Origin("c", 1), ("env", "a"): Origin("c", 2)}
    low = Layer("component", {"env": {"a": 1, "b": 2}}, places)
    high = Layer("environment", {"env": {"b": 3}}, {("env",): Origin("e", 1), ("env", "b"): Origin("e", 2)})
    resolved = resolve(params(env={"type": "object"}), [low, high])
    assert resolved.setting("env", ("a",)).origin == Origin("c", 2)
    assert resolved.setting("env", ("b",)).origin == Origin("e", 2)


@pytest.mark.parametrize("character", ["\0", "\x07", "\x1b", "\x7f", "\udc80"])
def test_control_characters_are_refused_and_secrets_not_shown(character: str) -> None:
    declared = params(text={"type": "object"}, token={"type": "string", "secret": True})
    message = described(declared, layer("component", text={"a": [f"a{character}b"]}))
    assert f"`text.a[0]` holds the control character U+{ord(character):04X}" in message
    assert "(component:1)" in message
    assert "hunter2" not in described(declared, layer("component", token=f"hunter2{character}"))


@pytest.mark.parametrize("text", ["a\tb\nc\rd", "é😀", "{{ x }}", "yes", "\x85"])
def test_every_other_character_is_fine(text: str) -> None:
    assert resolve(params(t={"type": "string"}), [layer("component", t=text)]).values == {"t": text}


# --- values given for one run ---

CNN = params(num_gpus={"type": "integer", "aliases": ("numGpus",)}, env={"type": "object"})
NAMES = ("cnn", "ml.cnn", "web")


def resolved(overrides: Overrides, component: str = "cnn") -> object:
    return resolve(CNN, overrides.layers(component, CNN, components=NAMES)).values


def sets(*texts: str) -> Overrides:
    return Overrides(sets=tuple(parse_set(text) for text in texts))


@pytest.mark.parametrize(
    ("texts", "component", "gpus", "env"),
    [
        (["num_gpus=2"], "cnn", 2, None),
        (["numGpus=2"], "cnn", 2, None),
        (["cnn.num_gpus=2"], "cnn", 2, None),
        (["ml.cnn.num_gpus=2"], "ml.cnn", 2, None),
        (["web.num_gpus=2"], "cnn", None, None),
        (["cnn.num_gpus=2", "num_gpus=1"], "cnn", 2, None),
        (["num_gpus=2", "num_gpus=1"], "cnn", 1, None),
        ([r"env.a\.b=x", "env.c=1"], "cnn", None, {"a.b": "x", "c": 1}),
    ],
    ids=lambda value: str(value),
)
def test_set_reaches_what_it_names_and_the_more_specific_or_later_one_wins(
    texts: list[str], component: str, gpus: int | None, env: object
) -> None:
    assert resolved(sets(*texts), component) == {"num_gpus": gpus, "env": env}


def test_set_wins_over_values_files_and_later_files_over_earlier() -> None:
    files = (
        ValuesFile(layer("command line", num_gpus=1), {"cnn": layer("command line", num_gpus=2)}),
        ValuesFile(layer("command line", env={"a": 1})),
    )
    assert resolved(Overrides(files=files)) == {"num_gpus": 2, "env": {"a": 1}}
    both = Overrides(files=files, sets=(parse_set("num_gpus=3"),))
    assert resolved(both) == {"num_gpus": 3, "env": {"a": 1}}


def test_keys_tell_owner_name_and_place() -> None:
    keys = [(owner, name, str(origin)) for owner, name, origin in sets("cnn.a=1", "b=2").keys(NAMES)]
    assert keys == [("cnn", "a", "--set cnn.a"), (None, "b", "--set b")]


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ""])
def test_text_without_a_key_and_a_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not `key=value`"):
        parse_set(text)
    assert parse_set("a=--b=c").text == "--b=c"  # a value may hold equals and start with dashes


def test_overrides_come_back_from_plain_data_as_they_were() -> None:
    files = ValuesFile(layer("command line", num_gpus=1), {"cnn": layer("command line", env={"A": "1"})})
    overrides = Overrides(
        files=(files,), sets=(*sets("num_gpus=2").sets, parse_set("web.env.A=3", option="--set-string"))
    )
    back = Overrides.from_plain(json.loads(json.dumps(overrides.plain())))
    assert back.plain() == overrides.plain()
    assert [resolved(back, name) for name in NAMES] == [resolved(overrides, name) for name in NAMES]
    assert Overrides().plain() == {}
    assert not Overrides.from_plain({})
