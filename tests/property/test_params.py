"""Laws of resolving parameters."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.app.document import Origin
from mlstack.app.params import LAYERS, Layer, merge
from tests.support.builders import params, resolve

SCALARS = st.none() | st.booleans() | st.integers() | st.text("ab=,", max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
DECLARED = params(
    n={"type": "integer", "default": 1, "aliases": ("N",)},
    s={"type": "string"},
    m={"type": "object", "format": "kv", "default": {"a": {"b": 1}}},
    l={"type": "array", "format": "csv", "x-merge": "append", "default": ["d"]},
)


@st.composite
def layers(draw: st.DrawFn) -> list[Layer]:
    kinds = draw(st.lists(st.sampled_from(LAYERS[1:]), max_size=6))
    drawn = []
    for index, kind in enumerate(sorted(kinds, key=LAYERS.index)):
        values = draw(st.dictionaries(st.sampled_from(["n", "s", "m", "l"]), VALUES, max_size=4))
        drawn.append(Layer(kind, values, {(name,): Origin(f"{index}.yaml", 1) for name in values}))
    return drawn


@given(layers(), st.integers(0, 6))
def test_resolving_step_by_step_equals_resolving_at_once(layers: list[Layer], cut: int) -> None:
    first = resolve(DECLARED, layers[:cut]).values
    carried = {name: replace(p, default=first[name], has_default=True) for name, p in DECLARED.items()}
    assert resolve(carried, layers[cut:]).values == resolve(DECLARED, layers).values


@given(layers())
def test_the_last_layer_that_sets_a_value_is_its_source(layers: list[Layer]) -> None:
    resolved = resolve(DECLARED, layers)
    for name in DECLARED:
        setters = [layer for layer in layers if name in layer.values]
        expected = setters[-1].origins[(name,)] if setters else None
        assert expected is None or resolved.origin(name) == expected


@given(layers())
def test_the_chain_alone_gives_the_value(layers: list[Layer]) -> None:
    resolved = resolve(DECLARED, layers)
    for name, chain in resolved.chains.items():
        value: Any = None
        for setting in chain:
            value = None if setting.value is None else merge(value, setting.value, DECLARED[name].schema)
        assert value == resolved.values[name]


@given(layers())
def test_a_layer_of_nothing_changes_nothing(layers: list[Layer]) -> None:
    assert resolve(DECLARED, [*layers, Layer("command line", {})]) == resolve(DECLARED, layers)


@given(VALUES)
def test_merging_a_map_onto_itself_changes_nothing_but_removed_keys(value: Any) -> None:
    once = merge(None, value)
    assert merge(once, once) == once
