"""Law: what `emit` writes, our reader reads back, with positions or without."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.errors import ConfigError
from mlstack.yaml import write as emit
from mlstack.yaml.read import Position, read_documents
from tests.property import strategies
from tests.property.test_emit import as_kubectl, typed


@given(value=strategies.values)
def test_what_is_written_is_read_back(value: Any) -> None:
    for write in (emit.to_yaml, emit.to_json):
        documents = read_documents(write({"value": value}), source="x")
        assert typed(documents[0].value) == typed({"value": as_kubectl(value)})


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
    return [path, *(inner_path for key, item in items for inner_path in paths(item, (*path, key)))]


@given(values=strategies.st.lists(strategies.values.filter(lambda value: value is not None), max_size=4))
def test_documents_stay_apart(values: list[Any]) -> None:
    documents = read_documents(emit.to_yaml_documents(values), source="x")
    assert [typed(document.value) for document in documents] == [typed(as_kubectl(value)) for value in values]


_INDENTS = st.sampled_from(("", "  ", "    ", "- ", "  - "))
_HEADS = st.sampled_from(
    [
        *(
            "a: ",
            "b: ",
            "c:",
            "a: &x ",
            "b: !!str ",
            "a: |",
            "b: >-",
            "# c: ",
            'a: "x: ',
            "'b: ",
            "a = ",
            "- ",
        ),
        *("", "c: [x, y: ", "b: {a: ", "? ", "a: *x", "<<: *x", "--- ", "a: some words = ", "{", "]", "%a: "),
    ]
)
_ODD = st.sampled_from(("x #y", "x'", 'y"', "é", "=", "5]", "6}", "z ", "", "*x"))
_ENDS = st.sampled_from(
    [
        *(
            "abc",
            "yes",
            "0x1F",
            "1e3",
            "12:30",
            ".5",
            "...",
            '"a b"',
            '"1"',
            '"a: b"',
            "null",
            "value-1",
            "1.0",
        ),
        *("registry.example/p1:1", "99999999999999999999", "_", "1_000", "0o17", '""'),
    ]
)
_LINES = st.lists(st.tuples(_INDENTS, _HEADS, st.none() | _ODD), min_size=1, max_size=6)


@given(lines=_LINES, data=st.data())
def test_a_text_of_a_known_shape_is_read_as_any_other(
    lines: list[tuple[str, str, str | None]], data: st.DataObject
) -> None:
    """Texts of one shape are split into events once; one with a private character never has a shape."""

    def outcome(text: str) -> object:
        try:
            return [
                (typed(document.value), document.line, document.positions)
                for document in read_documents(text, source="x", with_positions=True)
            ]
        except ConfigError as error:
            return error.message

    for _ in range(5):
        ends = [data.draw(_ENDS) if odd is None else odd for _, _, odd in lines]
        text = "\n".join(f"{indent}{head}{end}" for (indent, head, _), end in zip(lines, ends, strict=True))
        assert outcome(text) == outcome(f"{text}\n#\ue0a0")
