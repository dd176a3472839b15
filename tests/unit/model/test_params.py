"""Layers resolve to one set; each value keeps the place it came from."""

from itertools import pairwise
from typing import Any

import pytest

from mlstack.app.params import GLOBAL_LAYERS, LAYERS, Layer, Origin, resolve
from mlstack.errors import ParamError
from tests.support.builders import layer, params

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
