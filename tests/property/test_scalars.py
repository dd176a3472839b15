"""Law: a written scalar reads back the same, whoever reads it and wherever it stands."""

import io
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from ruamel.yaml import YAML

from mlstack.yaml.write import needs_quotes, resolve_plain, write_scalar, write_string
from tests.property import strategies

READERS = {
    "PyYAML with libyaml": lambda text: yaml.load(text, Loader=yaml.CSafeLoader),
    "PyYAML": lambda text: yaml.load(text, Loader=yaml.SafeLoader),
    "ruamel, YAML 1.2": lambda text: YAML(typ="safe", pure=True).load(io.StringIO(text)),
}
PLACES = {
    "document": ("{}\n", lambda read: read),
    "value": ("a: {}\nb: 1\n", lambda read: read["a"]),
    "item": ("- - {}\n  - 1\n", lambda read: read[0][0]),
    "flow item": ("[{}, {}]\n", lambda read: read[0] if read[0] == read[1] else read),
    "flow value": ("{{a: {}, b: 1}}\n", lambda read: read["a"]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", PLACES)
@given(value=strategies.scalars)
def test_written_scalar_reads_back_the_same(reader: str, place: str, value: Any) -> None:
    text, pick = PLACES[place]
    written = write_scalar(value)
    read = pick(READERS[reader](text.format(*[written] * text.count("{}"))))
    assert read == value
    assert isinstance(read, bool) == isinstance(value, bool)
    assert isinstance(read, str) == isinstance(value, str)


@given(text=strategies.strings)
@example("a ? b")
def test_a_string_left_plain_is_the_same_string_to_kubectl(text: str) -> None:
    assert needs_quotes(text) or resolve_plain(text) == text


@given(text=strategies.strings)
def test_written_strings_stay_on_one_line(text: str) -> None:
    assert len(write_string(text).splitlines()) == 1
