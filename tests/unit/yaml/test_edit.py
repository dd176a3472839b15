"""An edit changes one value; every other byte of a person's file stays."""

from time import process_time
from typing import Any

import pytest

from mlstack.errors import ConfigError, YamlError
from mlstack.yaml.edit import set_value, set_values, unset_value

FILE = """\
# Parameters of gke.
apiVersion: mlstack.dev/v1   # fixed
kind: EnvironmentParams

globals:
    namespace:  'ml'          # theirs
components:
    cnn:                      # the example
        num_gpus: 1           # K80
        args: [ "a",  'b' ]   # flow
        env:
        -   name: A           # first
            value: "x"
        script: |-            # a script
            echo 1

            echo 2

    # the others
    inception: {model_path: 'gs://a', replicas: 1}
"""


SCRIPT = "|-            # a script\n            echo 1\n\n            echo 2\n"
ENV = '-   name: A           # first\n            value: "x"'
GPUS = "num_gpus: 1           # K80\n"


def path(text: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in text.split(".")]


@pytest.mark.parametrize(
    ("where", "value", "old", "new"),
    [
        ("components.cnn.num_gpus", 4, "num_gpus: 1  ", "num_gpus: 4  "),
        ("components.cnn.num_gpus", "yes", "num_gpus: 1  ", 'num_gpus: "yes"  '),
        ("globals.namespace", "it's", "'ml'", "'it''s'"),
        ("components.cnn.env.0.value", "y", '"x"', '"y"'),
        ("components.cnn.env.0.name", "B", "name: A", "name: B"),
        ("components.cnn.args", ["c", "yes"], "[ \"a\",  'b' ]", '["c", "yes"]'),
        ("components.inception.replicas", None, "replicas: 1", "replicas: null"),
        ("components.inception.model_path", "gs://b", "'gs://a'", "'gs://b'"),
        ("components.inception.new", [1, "a"], "replicas: 1}", "replicas: 1, new: [1, a]}"),
        ("components.inception.a.b", 1, "replicas: 1}", "replicas: 1, a: { b: 1 }}"),
        ("components.cnn.batch", 32, "            echo 2\n", "            echo 2\n        batch: 32\n"),
        ("components.cnn.env.0.x", 1, 'value: "x"\n', 'value: "x"\n            x: 1\n'),
        ("components.tb.log", "a", "replicas: 1}\n", "replicas: 1}\n    tb:\n      log: a\n"),
        ("new", {"a": [1]}, "replicas: 1}\n", "replicas: 1}\nnew:\n  a:\n  - 1\n"),
        ("components.cnn.script", "1\n2\n", SCRIPT, "| # a script\n          1\n          2\n"),
        ("components.cnn.script", "one", SCRIPT, "one # a script\n"),
        ("components.cnn.env", [{"name": "B"}], ENV, "- name: B"),
        ("components.cnn.env", [], f"env:\n        {ENV}\n", "env: []\n"),
        ("components.cnn.num_gpus", {"a": 1}, GPUS, "num_gpus:           # K80\n          a: 1\n"),
        ("globals.namespace", "a\nb", "'ml'", '"a\\nb"'),
        ("components.cnn.num_gpus", "a\nb", GPUS, "num_gpus: |-           # K80\n          a\n          b\n"),
    ],
)  # fmt: skip
def test_only_the_edited_value_changes(where: str, value: Any, old: str, new: str) -> None:
    assert FILE.count(old) == 1
    expected = FILE.replace(old, new)
    assert set_value(FILE, path(where), value, source="x") == expected
    windows = FILE.replace("\n", "\r\n")
    assert set_value(windows, path(where), value, source="x") == expected.replace("\n", "\r\n")
    assert set_value("\ufeff" + FILE, path(where), value, source="x") == "\ufeff" + expected


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("globals.namespace", "globals:\n    namespace:  'ml'          # theirs\n", ""),
        ("components.cnn.num_gpus", "        num_gpus: 1           # K80\n", ""),
        ("components.inception.model_path", "model_path: 'gs://a', ", ""),
        ("components.inception.replicas", ", replicas: 1", ""),
        ("components.cnn.env.0.name", "name: A           # first\n            ", ""),
        ("kind", "kind: EnvironmentParams\n", ""),
    ],
)
def test_only_the_value_and_its_key_go(where: str, old: str, new: str) -> None:
    assert unset_value(FILE, path(where), source="x") == FILE.replace(old, new)
    windows = FILE.replace("\n", "\r\n")
    assert unset_value(windows, path(where), source="x") == FILE.replace(old, new).replace("\n", "\r\n")


EMPTY_PLACES = [
    ("", "a"),
    ("", "a.b.c"),
    ("# nothing here\n", "a.b"),
    ("# nothing here", "a.b"),
    ("---\n", "a"),
    ("---\n# x\n...\n", "a"),
    ("a: 1\n", "b.c"),
    ("a: 1", "b.c"),
    ("a: 1\n\n\n", "b"),
    ("a: 1\n...\n", "b"),
    ("a: 1\n# the end", "b"),
    ("a:\n  b: 1\n  # more of a\n\n# of c\nc: 2\n", "a.x"),
    ("a:\n  b: 1\n  # more of a\n", "x.y"),
    ("a:\n  b: 1\n    # deeper\n", "a.x"),
    ("a:\n", "a.b"),
    ("a:", "a.b.c"),
    ("a:   # to be filled\n", "a.b"),
    ("a:\n  # b: 1\nc: 2\n", "a.b"),
    ("a: {}\n", "a.b"),
    ("a: { }\n", "a.b"),
    ("a: {   }  # c\n", "a.b.c"),
    ("{}\n", "a.b"),
    ('{\n  "a": 1\n}\n', "b.c"),
    ("{a: 1,}\n", "b"),
    ("{ a: 1 }\n", "b"),
    ("a: {\n  b: 1, # c\n  c: 2 # d\n  }\n", "a.x"),
    ("a: |\n  x\n", "b"),
    ("a: |+\n  x\n\n\n", "b"),
    ("a: |\n  x", "b"),
    ("a:\n  b: >-\n    x\n\n\n", "a.c"),
    ("a:\n- 1\n-  2\n", "b"),
    ("a:\n  - b: 1\n  - c: 2\n", "a.0.x"),
    ("a:\n  - b: 1\n\n  - c: 2", "a.1.x"),
    ("? a\n: 1\n", "b"),
    ("a: &x\n  b: 1\nc: *x\n", "d"),
    ("a: &x {b: 1}\nc:\n  <<: *x\n", "c.d"),
    ('"a": 1\n', "b"),
    ("a: 1\r\n", "b.c"),
    ("\ufeffa: 1\n", "b"),
    ("a:  'x\n\n  y'\n", "b"),
    ("a:\n b: 1\n", "a.c"),
    ("a: ! \n", "b"),
]


@pytest.mark.parametrize(("text", "where"), EMPTY_PLACES, ids=[repr(text) for text, _ in EMPTY_PLACES])
@pytest.mark.parametrize("value", [1, "yes", "a\nb\n", "a\n\n", [1, {"x": None}], {"k": {}}, {}], ids=repr)
def test_set_then_unset_gives_the_file_back(text: str, where: str, value: Any) -> None:
    edited = set_value(text, path(where), value, source="x")
    assert edited != text
    assert unset_value(edited, path(where), source="x") == text


def test_a_value_that_is_there_already_changes_nothing() -> None:
    assert set_value("a: 0x10\n", ["a"], 16, source="x") == "a: 0x10\n"
    assert set_value("a: 1\n", ["a"], True, source="x") == "a: true\n"
    assert unset_value("a: 1\n", ["b", "c"], source="x") == "a: 1\n"


def test_a_mapping_is_set_key_by_key() -> None:
    text = "a:\n  b: 1 # one\n  c: 2 # two\n  # three\n  d: 3\n"
    after = set_value(text, ["a"], {"b": 1, "d": 4, "e": 5}, source="x")
    assert after == "a:\n  b: 1 # one\n  # three\n  d: 4\n  e: 5\n"


def test_thousands_of_values_are_set_at_one_reading() -> None:
    text = "".join(f"c{number}:\n  replicas: 1 # prod\n" for number in range(2000))
    values = {(f"c{number}", "replicas"): 2 for number in range(2000)}
    begun = process_time()
    assert set_values(text, values, source="x") == text.replace("s: 1", "s: 2")
    assert process_time() - begun < 20  # each by itself, they take minutes


def test_what_was_commented_on_stays() -> None:
    text = "a:  # why\n  b: 1\n"
    assert unset_value(text, ["a", "b"], source="x") == "a:  # why\n"
    assert unset_value("- a: 1\n", [0, "a"], source="x") == "- {}\n"
    text, lists = "a: [x] # 1\nb: [] # 2\n", {("a",): ["x", "yes"], ("b",): ["y-z"]}
    assert set_values(text, lists, source="x") == 'a: [x, "yes"] # 1\nb: # 2\n- y-z\n'


@pytest.mark.parametrize(
    ("text", "where", "message", "line"),
    [
        ("a: 1\n", "a.b", "`a` holds nothing to set `b` in", ":1"),
        ("x: 1\na:\n  b: 1\n", "a.b.c", "`a.b` holds nothing to set `c` in", ":3"),
        ("a: [1]\n", "a.b", "`a` holds nothing to set `b` in", ":1"),
        ("a: [1]\n", "a.1", "`a` holds nothing to set `1` in", ":1"),
        ("- 1\n", "a", "`the file` holds nothing to set `a` in", ":1"),
        ("", "0", "`the file` holds nothing to set `0` in", ""),
        ("a: &x {b: 1}\n\nc: *x\n", "c.b", "`*x` stands for another part of the file", ":3"),
        ("a: &x {b: 1}\nc: *x\n", "a.b", "`a.b` cannot be changed without changing something else", ""),
    ],
)
def test_edits_that_cannot_be_made_are_refused(text: str, where: str, message: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_value(text, path(where), 5, source="app.yaml")
    assert message in str(caught.value)
    assert caught.value.where == f"app.yaml{line}"
    assert caught.value.hint


def test_a_key_that_comes_from_elsewhere_cannot_be_removed() -> None:
    for text, where in (("a: &x {b: 1}\nc: *x\n", "c.b"), ("a: &x {b: 1}\nc: {<<: *x, d: 1}\n", "c.b")):
        with pytest.raises(ConfigError, match="stand"):
            unset_value(text, path(where), source="x")


def test_broken_files_and_several_documents_are_refused() -> None:
    for text in ("a: [\n", "a: 1\n---\nb: 2\n", "a: 1\na: 2\n"):
        with pytest.raises(YamlError):
            set_value(text, ["a"], 5, source="x")
        with pytest.raises(YamlError):
            unset_value(text, ["a"], source="x")


def test_values_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(ValueError, match="U\\+0000"):
        set_value("a: 1\n", ["a"], "\x00", source="x")
    with pytest.raises(ValueError, match="path of a value is empty"):
        set_value("a: 1\n", [], 1, source="x")
