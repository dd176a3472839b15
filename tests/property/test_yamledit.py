"""Laws: set then unset gives the file back; an edit changes only the edited value."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from mlstack.errors import ConfigError
from mlstack.yaml.edit import set_value, set_values, unset_value
from mlstack.yaml.read import read_documents
from mlstack.yaml.write import same
from tests.property import strategies, styled

Path = list[str | int]
written = st.one_of(strategies.scalars, styled.values)


def read(text: str) -> Any:
    documents = read_documents(text, source="x")
    return documents[0].value if documents else None


def mappings(value: Any, path: Path) -> list[Path]:
    """Every path to a mapping, or to a null that may become one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    here = [path] if value is None or isinstance(value, dict) else []
    return here + [inner_path for key, item in inner for inner_path in mappings(item, [*path, key])]


def leaves(value: Any, path: Path) -> list[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [[*path, key] for key, _ in inner] + [
        inner_path for key, item in inner for inner_path in leaves(item, [*path, key])
    ]


def with_value(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copied = [*value] if isinstance(value, list) else {**(value or {}), path[0]: (value or {}).get(path[0])}
    copied[path[0]] = with_value(copied[path[0]], path[1:], new)
    return copied


@given(file=styled.files())
def test_generated_files_hold_what_they_should(file: styled.Styled) -> None:
    assert (read(file.text) or None) == file.value


@given(file=styled.files(), data=st.data(), value=written)
def test_set_then_unset_gives_the_file_back(file: styled.Styled, data: st.DataObject, value: Any) -> None:
    parent = data.draw(st.sampled_from(mappings(read(file.text), [])))
    keys = data.draw(st.lists(st.sampled_from(("new", "other", "yes", "a b")), min_size=1, max_size=3))
    path = [*parent, *keys]
    assume(path[: len(parent) + 1] not in leaves(read(file.text), []))
    edited = set_value(file.text, path, value, source="x")
    assert all(comment in edited for comment in file.comments)
    back = unset_value(edited, path, source="x")
    if stands_empty_on_purpose(file.text, parent):
        assert pruned(read(back)) == pruned(read(file.text))
    else:
        assert back == file.text


def stands_empty_on_purpose(text: str, parent: Path) -> bool:
    """Tell whether the parent is null in words (`~`), in brackets or in a list: then the word is lost."""
    value = read(text)
    for step in parent:
        value = value[step]
    return value is None and bool(parent)


@given(file=styled.files(), data=st.data(), value=written)
def test_an_edit_changes_only_the_edited_value(file: styled.Styled, data: st.DataObject, value: Any) -> None:
    before = read(file.text)
    paths = leaves(before, [])
    assume(paths)
    path = data.draw(st.sampled_from(paths))
    edited = set_value(file.text, path, value, source="x")
    assert same(read(edited), with_value(before, path, value))
    old = before
    for step in path:
        old = old[step]
    if not isinstance(old, dict | list):
        assert [comment for comment in file.comments if comment not in edited] == []
    changed, rest = lines(file.text), lines(edited)
    while changed and rest and changed[0] == rest[0]:
        del changed[0], rest[0]
    while changed and rest and changed[-1] == rest[-1]:
        del changed[-1], rest[-1]
    if not isinstance(old, dict | list | str):
        assert len(changed) <= 1


@given(file=styled.files(), data=st.data(), values=st.lists(written, min_size=2, max_size=4))
def test_values_set_at_once_stand_as_those_set_in_turn(
    file: styled.Styled, data: st.DataObject, values: list[Any]
) -> None:
    before = read(file.text)
    added = [[*parent, key] for parent in mappings(before, []) for key in ("new", "other")]
    paths = st.sampled_from([path for path in [*leaves(before, []), *added] if path])
    chosen = {tuple(data.draw(paths)): value for value in values}
    assume(not any(path != other and other[: len(path)] == path for path in chosen for other in chosen))
    in_turn = file.text
    for path, value in chosen.items():
        in_turn = set_value(in_turn, path, value, source="x")
    assert set_values(file.text, chosen, source="x") == in_turn


@given(file=styled.files(), data=st.data())
def test_unset_removes_only_that_key(file: styled.Styled, data: st.DataObject) -> None:
    before = read(file.text)
    paths = [path for path in leaves(before, []) if isinstance(path[-1], str)]
    assume(paths)
    path = data.draw(st.sampled_from(paths))
    after = read(unset_value(file.text, path, source="x"))
    assert pruned(after) == pruned(with_value(before, path, None))


def pruned(value: Any) -> Any:
    """Leave out what is empty: parents that an edit emptied may go, be null or `{}`."""
    if isinstance(value, dict):
        inner = {key: pruned(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, {})} or None
    return [pruned(item) for item in value] if isinstance(value, list) else value


def lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


@given(file=styled.files(), path=st.lists(st.sampled_from(("a", "b", "zz", 0, 1)), min_size=1, max_size=3))
def test_any_path_is_edited_or_refused_with_reason(file: styled.Styled, path: Path) -> None:
    try:
        edited = set_value(file.text, path, 5, source="x")
    except ConfigError as error:
        assert error.where
    else:
        assert path in leaves(read(edited), [])
