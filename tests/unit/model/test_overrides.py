"""Values for one run reach the component they name, or all that declare them."""

import json

import pytest

from mlstack.app import params as overrides
from mlstack.app.params import Overrides, ValuesFile, parse_set, resolve
from mlstack.errors import ParamError, UsageError
from tests.support.builders import layer, params

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
    back = overrides.from_plain(json.loads(json.dumps(overrides.plain(given))))
    assert overrides.plain(back) == overrides.plain(given)
    assert [resolved(back, name) for name in NAMES] == [resolved(given, name) for name in NAMES]
    assert overrides.plain(Overrides()) == {}
    assert not overrides.from_plain({})
