"""Law: what `emit` writes, our reader reads back, with positions or without."""

from typing import Any

from hypothesis import given

from mlstack.yaml import write as emit
from mlstack.yaml.read import Position, read_documents
from tests.property import strategies
from tests.property.test_emit import as_kubectl, typed


@given(value=strategies.values)
def test_what_is_written_is_read_back(value: Any) -> None:
    for write in (emit.to_yaml, emit.to_json):
        found = read_documents(write({"value": value}), source="x")
        assert typed(found[0].value) == typed({"value": as_kubectl(value)})


@given(value=strategies.values)
def test_positions_change_nothing_and_name_every_path(value: Any) -> None:
    text = emit.to_yaml({"value": value})
    (plain,) = read_documents(text, source="x")
    (placed,) = read_documents(text, source="x", with_positions=True)
    assert plain.value == placed.value
    assert set(placed.positions) == set(paths(placed.value))
    assert placed.positions[("value",)] == Position(1, 1)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in paths(item, (*path, key)))]


@given(values=strategies.st.lists(strategies.values.filter(lambda value: value is not None), max_size=4))
def test_documents_stay_apart(values: list[Any]) -> None:
    found = read_documents(emit.to_yaml_documents(values), source="x")
    assert [typed(document.value) for document in found] == [typed(as_kubectl(value)) for value in values]
