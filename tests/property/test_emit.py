"""Law: what `emit` writes reads the same under YAML 1.1, 1.2 and goyaml's rules; JSON likewise."""

import io
import json
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from mlstack.model import emit
from mlstack.model.scalars import resolve_plain, write_scalar
from tests.property import strategies

READERS = {
    "PyYAML with libyaml": lambda text: yaml.load(text, Loader=yaml.CSafeLoader),
    "PyYAML": lambda text: yaml.load(text, Loader=yaml.SafeLoader),
    "ruamel, YAML 1.2": lambda text: YAML(typ="safe", pure=True).load(io.StringIO(text)),
}


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
@given(value=strategies.values.filter(has_short_keys))
def test_flow_and_json_read_back_the_same_as_yaml(reader: str, value: Any) -> None:
    assert typed(READERS[reader](emit.to_flow([value]))) == typed([value])
    assert typed(READERS[reader](emit.to_json(value))) == typed(value)


@given(value=strategies.values)
def test_json_reads_back_the_same(value: Any) -> None:
    assert typed(json.loads(emit.to_json(value))) == typed(value)
    assert typed(json.loads(emit.to_flow([value]))) == typed([value])


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
