"""Law: what `emit` writes reads the same under YAML 1.1, 1.2 and goyaml's rules; JSON likewise."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlstack.yaml import write as emit
from mlstack.yaml.write import resolve_plain, write_scalar
from tests.property import strategies
from tests.property.test_scalars import READERS


def typed(value: Any) -> Any:
    """Make `1`, `1.0` and `True` differ in comparisons, apart from floats without a fraction."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (isinstance(value, bool), isinstance(value, str), value)


def has_short_keys(value: Any) -> bool:
    """Leave out keys above 1,024 characters: as JSON they are fine, readers of YAML give up on them."""
    if isinstance(value, dict):
        return all(len(key) < 1000 and has_short_keys(item) for key, item in value.items())
    return not isinstance(value, list) or all(map(has_short_keys, value))


def as_kubectl(value: Any) -> Any:
    """Give the value after a way through kubectl: floats without a fraction come back as integers."""
    if isinstance(value, dict):
        return {key: as_kubectl(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_kubectl(item) for item in value]
    return resolve_plain(write_scalar(value)) if isinstance(value, float) else value


@pytest.mark.parametrize("reader", READERS)
@given(value=strategies.values)
def test_yaml_reads_back_the_same(reader: str, value: Any) -> None:
    assert typed(READERS[reader](emit.to_yaml(value))) == typed(value)


@pytest.mark.parametrize("reader", READERS)
@given(value=strategies.values)
def test_one_line_reads_back_the_same(reader: str, value: Any) -> None:
    assert typed(READERS[reader](emit.to_flow([value]))) == typed([value])


@pytest.mark.parametrize("reader", READERS)
@given(value=strategies.values.filter(has_short_keys))
def test_json_reads_back_the_same_as_yaml(reader: str, value: Any) -> None:
    assert typed(READERS[reader](emit.to_json(value))) == typed(value)


@given(value=strategies.values)
def test_json_reads_back_the_same(value: Any) -> None:
    assert typed(json.loads(emit.to_json(value))) == typed(value)
    assert typed(json.loads(emit.to_compact_json([value]))) == typed([value])


UNWRITABLE = st.one_of(
    st.sampled_from(
        ["a\x00b", "\ud800", "a\udfff", 2**63, -(2**63) - 1, float("inf"), float("nan"), b"a", {1}]
    ),
    st.builds(lambda: -(10**5000)),  # which Python itself cannot show
    st.dictionaries(st.sampled_from(["\x00", "\udc80", 1, None, True, 1.5, ()]), st.none(), min_size=1),
)


@given(value=UNWRITABLE, others=st.lists(strategies.values, max_size=3))
def test_what_cannot_be_written_is_refused_by_every_form(value: Any, others: list[Any]) -> None:
    for write in (emit.to_yaml, emit.to_flow, emit.to_json, emit.to_compact_json):
        with pytest.raises((ValueError, TypeError), match=r"cannot hold|does not fit|must be a|is no "):
            write([*others, {"a": value}])


@given(value=strategies.values)
def test_writing_twice_gives_the_same_text(value: Any) -> None:
    assert emit.to_yaml(value) == emit.to_yaml(json.loads(emit.to_json(value)))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
@settings(max_examples=settings.default.max_examples // 8)  # each starts a program
@given(values=st.lists(strategies.values, min_size=4, max_size=12))
def test_kubectl_reads_back_the_same(values: list[Any]) -> None:
    probe = {"apiVersion": "v1", "kind": "Probe", "metadata": {"name": "x"}, "probe": values}
    command = ["kubectl", "annotate", "--local", "-o", "json", "-f", "-", "a=b"]
    done = subprocess.run(command, input=emit.to_yaml(probe).encode(), capture_output=True, check=True)
    assert typed(json.loads(done.stdout)["probe"]) == typed(as_kubectl(values))
