"""Parameters: texts get types, layers merge, and each value knows where it was set."""

import json
from itertools import pairwise
from typing import Any

import pytest

from mlstack.app.params import (
    GLOBAL_LAYERS,
    LAYERS,
    Layer,
    Origin,
    Overrides,
    ValuesFile,
    coerce,
    inner_param,
    join_path,
    merge,
    parse_set,
    parse_text,
    resolve,
    split_path,
)
from mlstack.errors import ParamError, UsageError
from tests.support.builders import layer, param, params

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
        (QUANTITY, "2", "2"),
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


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(LAYERS[1:])))
def test_each_layer_wins_over_the_one_below(lower: str, higher: str) -> None:
    resolved = resolve(GPUS, [layer(lower, num_gpus=1), layer(higher, num_gpus=2)])
    assert resolved.values == {"num_gpus": 2}
    assert resolved.origin("num_gpus") == Origin(higher, 1)


def test_the_default_is_the_lowest_layer() -> None:
    resolved = resolve(GPUS, [], prototype="kubeflow/tf-job/tf-cnn")
    assert resolved.values == {"num_gpus": 0}
    assert str(resolved.origin("num_gpus")) == "prototype kubeflow/tf-job/tf-cnn"


def test_the_chain_tells_every_layers_word_lowest_first() -> None:
    resolved = resolve(GPUS, [layer("app", num_gpus=1), layer("component", num_gpus=2)])
    assert [(s.layer, s.value) for s in resolved.chains["num_gpus"]] == [
        ("default", 0),
        ("app", 1),
        ("component", 2),
    ]


def test_a_parameter_that_nothing_sets_is_none_and_comes_from_nowhere() -> None:
    resolved = resolve(params(image={"type": "string"}), [])
    assert resolved.values == {"image": None}
    assert str(resolved.origin("image")) == "not set"


@pytest.mark.parametrize("kind", ["app", "module", "environment globals"])
def test_a_layer_that_speaks_to_many_skips_undeclared_names(kind: str) -> None:
    assert resolve(GPUS, [layer(kind, other=1)]).values == {"num_gpus": 0}


@pytest.mark.parametrize("kind", ["component", "environment", "command line"])
def test_an_unknown_name_is_refused_with_the_nearest_known_one(kind: str) -> None:
    with pytest.raises(ParamError) as caught:
        resolve(GPUS, [layer(kind, file="a.yaml", num_gpu=1)], prototype="kubeflow/tf-job/tf-cnn")
    assert caught.value.describe() == (
        "error: prototype `tf-cnn` has no parameter `num_gpu` (a.yaml:1)\nhint: did you mean `num_gpus`?"
    )


def test_a_name_near_to_nothing_points_to_the_description() -> None:
    with pytest.raises(ParamError) as caught:
        resolve(GPUS, [layer("component", zzzz=1)], prototype="kubeflow/tf-job/tf-cnn")
    assert caught.value.hint == "mlstack prototype describe tf-cnn"


def test_all_unknown_names_are_told_together() -> None:
    with pytest.raises(ParamError) as caught:
        resolve(GPUS, [layer("component", num_gpu=1), layer("environment", xyz=1)])
    assert str(caught.value).splitlines() == [
        "2 parameters are wrong",
        "  the prototype has no parameter `num_gpu` (component:1)",
        "  the prototype has no parameter `xyz` (environment:1)",
    ]


def test_an_old_spelling_sets_the_parameter() -> None:
    assert resolve(GPUS, [layer("component", numGpus=3)]).values == {"num_gpus": 3}


def test_spellings_mix_across_layers() -> None:
    resolved = resolve(GPUS, [layer("component", numGpus=3), layer("environment", num_gpus=4)])
    assert resolved.values == {"num_gpus": 4}


def test_both_spellings_in_one_layer_are_refused() -> None:
    with pytest.raises(ParamError, match="spellings of one parameter") as caught:
        resolve(GPUS, [layer("component", numGpus=3, num_gpus=4)])
    assert caught.value.where == "component:2"


def test_a_deprecated_parameter_is_noted_with_its_place() -> None:
    declared = params(old={"type": "string", "deprecated": "use `new`"})
    assert resolve(declared, [layer("component", old="x")]).notes == (
        "`old` is deprecated: use `new` (component:1)",
    )


def test_an_old_value_is_understood_and_noted() -> None:
    declared = params(cloud={"enum": ["", "gke"], "value_aliases": {"gcp": "gke", "none": ""}})
    resolved = resolve(declared, [layer("app", cloud="none"), layer("component", cloud="gcp")])
    assert resolved.values == {"cloud": "gke"}
    assert resolved.notes == (
        "`cloud: none` now means `empty` (app:1)",
        "`cloud: gcp` now means `gke` (component:1)",
    )


def test_maps_merge_deeply_and_lists_replace() -> None:
    declared = params(env={"type": "object", "default": {"a": {"x": 1}, "l": [1]}})
    resolved = resolve(declared, [layer("component", env={"a": {"y": 2}, "l": [2]})])
    assert resolved.values["env"] == {"a": {"x": 1, "y": 2}, "l": [2]}


def test_a_list_appends_where_the_schema_says_so() -> None:
    declared = params(args={"type": "array", "x-merge": "append", "default": ["a"]})
    assert resolve(declared, [layer("component", args=["b"])]).values == {"args": ["a", "b"]}


@pytest.mark.parametrize("null", [None, "null"])
def test_null_unsets_whatever_lies_below(null: Any) -> None:
    resolved = resolve(GPUS, [layer("app", num_gpus=1), layer("component", num_gpus=null)])
    assert resolved.values == {"num_gpus": None}
    assert resolved.origin("num_gpus") == Origin("component", 1)


def test_null_inside_a_map_removes_the_key() -> None:
    declared = params(env={"type": "object", "default": {"a": 1, "b": 2}})
    assert resolve(declared, [layer("component", env={"a": None})]).values == {"env": {"b": 2}}


def test_a_string_map_given_as_text_merges_with_a_map() -> None:
    declared = params(labels={"type": "object", "format": "kv", "default": {"a": "1"}})
    assert resolve(declared, [layer("app", labels="b=2,c=3")]).values["labels"] == {
        "a": "1",
        "b": "2",
        "c": "3",
    }


def test_a_value_inside_a_map_keeps_its_own_place() -> None:
    declared = params(env={"type": "object"})
    low = Layer(
        "component", {"env": {"a": 1, "b": 2}}, {("env",): Origin("c", 1), ("env", "a"): Origin("c", 2)}
    )
    high = Layer("environment", {"env": {"b": 3}}, {("env",): Origin("e", 1), ("env", "b"): Origin("e", 2)})
    resolved = resolve(declared, [low, high])
    assert resolved.origin("env", ("a",)) == Origin("c", 2)
    assert resolved.origin("env", ("b",)) == Origin("e", 2)


@pytest.mark.parametrize("character", ["\0", "\x07", "\x1b", "\x7f", "\udc80"])
def test_control_characters_are_refused(character: str) -> None:
    declared = params(text={"type": "string"})
    with pytest.raises(ParamError, match=r"`text` holds the control character U\+") as caught:
        resolve(declared, [layer("component", text=f"a{character}b")])
    assert caught.value.where == "component:1"


def test_a_control_character_deep_inside_is_found() -> None:
    declared = params(env={"type": "object"})
    with pytest.raises(ParamError, match=r"`env.a.0` holds the control character U\+0000"):
        resolve(declared, [layer("component", env={"a": ["\0"]})])


def test_a_secret_does_not_appear_in_a_message() -> None:
    declared = params(token={"type": "string", "secret": True})
    with pytest.raises(ParamError) as caught:
        resolve(declared, [layer("component", token="hunter2\0")])
    assert "hunter2" not in caught.value.describe()


@pytest.mark.parametrize("text", ["a\tb\nc\rd", "é😀", "{{ x }}", "yes", "\x85"])
def test_every_other_character_is_fine(text: str) -> None:
    assert resolve(params(t={"type": "string"}), [layer("component", t=text)]).values == {"t": text}


def test_layers_are_ordered_from_general_to_specific() -> None:
    assert set(LAYERS) > GLOBAL_LAYERS
    assert LAYERS[0] == "default"
    assert LAYERS[-1] == "command line"


CNN = params(num_gpus={"type": "integer", "aliases": ("numGpus",)}, env={"type": "object"})
NAMES = ("cnn", "ml.cnn", "web")


def resolved(overrides: Overrides, component: str = "cnn") -> object:
    return resolve(CNN, overrides.layers(component, CNN, components=NAMES)).values


def sets(*texts: str) -> Overrides:
    return Overrides(sets=tuple(parse_set(text) for text in texts))


def test_set_is_typed_by_the_declared_parameter() -> None:
    assert resolved(sets("num_gpus=2")) == {"num_gpus": 2, "env": None}


def test_set_takes_an_old_spelling() -> None:
    assert resolved(sets("numGpus=2")) == {"num_gpus": 2, "env": None}


@pytest.mark.parametrize(
    ("key", "component", "gpus"), [("cnn", "cnn", 2), ("ml.cnn", "ml.cnn", 2), ("web", "cnn", None)]
)
def test_set_with_a_component_reaches_that_one_alone(key: str, component: str, gpus: int | None) -> None:
    assert resolved(sets(f"{key}.num_gpus=2"), component) == {"num_gpus": gpus, "env": None}


def test_the_more_specific_set_wins_whatever_its_place() -> None:
    assert resolved(sets("cnn.num_gpus=2", "num_gpus=1")) == {"num_gpus": 2, "env": None}


def test_the_later_of_two_sets_wins() -> None:
    assert resolved(sets("num_gpus=2", "num_gpus=1")) == {"num_gpus": 1, "env": None}


def test_dots_reach_into_a_map_and_an_escaped_dot_does_not() -> None:
    assert resolved(sets(r"env.a\.b=x", "env.c=1")) == {"num_gpus": None, "env": {"a.b": "x", "c": 1}}


def test_set_wins_over_values_files_and_later_files_over_earlier() -> None:
    files = (
        ValuesFile(layer("command line", num_gpus=1), {"cnn": layer("command line", num_gpus=2)}),
        ValuesFile(layer("command line", env={"a": 1})),
    )
    assert resolved(Overrides(files=files)) == {"num_gpus": 2, "env": {"a": 1}}
    assert resolved(Overrides(files=files, sets=(parse_set("num_gpus=3"),))) == {
        "num_gpus": 3,
        "env": {"a": 1},
    }


def test_an_unknown_name_for_one_component_is_refused() -> None:
    with pytest.raises(ParamError, match="has no parameter `num_gpu`"):
        resolved(sets("cnn.num_gpu=1"))


def test_keys_tell_owner_name_and_place() -> None:
    keys = [(owner, name, str(origin)) for owner, name, origin in sets("cnn.a=1", "b=2").keys(NAMES)]
    assert keys == [("cnn", "a", "--set cnn.a"), (None, "b", "--set b")]


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ""])
def test_text_without_a_key_and_a_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not `key=value`"):
        parse_set(text)


def test_a_value_may_hold_equals_and_start_with_dashes() -> None:
    assert parse_set("a=--b=c").text == "--b=c"


def test_overrides_come_back_from_plain_data_as_they_were() -> None:
    given = Overrides(
        files=(
            ValuesFile(layer("command line", num_gpus=1), {"cnn": layer("command line", env={"A": "1"})}),
        ),
        sets=(*sets("num_gpus=2").sets, parse_set("web.env.A=3", as_string=True)),
    )
    back = Overrides.from_plain(json.loads(json.dumps(given.plain())))
    assert back.plain() == given.plain()
    assert [resolved(back, name) for name in NAMES] == [resolved(given, name) for name in NAMES]
    assert Overrides().plain() == {}
    assert not Overrides.from_plain({})
