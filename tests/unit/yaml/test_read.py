"""Text becomes plain values as kubectl reads it; every fault names its line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import YamlError
from mlstack.yaml import read as yamlread
from mlstack.yaml.read import Position, read_document, read_documents


def read(text: str) -> Any:
    return read_document(text, source="a.yaml").value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: yes\nb: 'yes'\nc: \"yes\"\nd: |\n  yes\n", {"a": True, "b": "yes", "c": "yes", "d": "yes\n"}),
        ("a: 2001-01-01\nb: 1:30\nc: =\nd: 0123\n", {"a": "2001-01-01", "b": "1:30", "c": "=", "d": 83}),
        ("a:\nb: ~\nc: ''\n", {"a": None, "b": None, "c": ""}),
        ("- 1\n- - 2\n  - {a: [3]}\n- []\n- {}\n", [1, [2, {"a": [3]}], [], {}]),
        ("on: 1\n0x10: 2\n1.50: 3\nno: 4\n", {"true": 1, "16": 2, "1.5": 3, "false": 4}),
        ("a: !!str 12\nb: !!int '12'\nc: !!float 1\nd: !!map {}\n", {"a": "12", "b": 12, "c": 1, "d": {}}),
        ("a: ! 12\nb: ! [1]\n", {"a": "12", "b": [1]}),
        ("!!str 1: a\n", {"1": "a"}),
        ("a: &x {b: 1}\nc: *x\n", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x\n- 1\nb: [*x, *x]\n", {"a": [1], "b": [[1], [1]]}),
        ("'<<': 1\n", {"<<": 1}),
        ("a: {<<: {x: 1, z: 2}, z: 3}\n", {"a": {"x": 1, "z": 3}}),
        ("a: {z: 3, <<: {x: 1, z: 2}}\n", {"a": {"z": 2, "x": 1}}),
        ("a: {<<: [{x: 1}, {x: 2, z: 2}]}\n", {"a": {"x": 1, "z": 2}}),
        ("a: &b {<<: {x: 1}, z: 1}\nc:\n  <<: *b\n  z: 2\n", {"a": {"x": 1, "z": 1}, "c": {"x": 1, "z": 2}}),
        ("\ufeffa: 1\r\nb: |\r\n  x\r\n  y\r\n", {"a": 1, "b": "x\ny\n"}),
        ("%YAML 1.1\n---\na: 1\n...\n", {"a": 1}),
        ('{"a": "\\ud83d\\ude80", "b": [true, null]}', {"a": "🚀", "b": [True, None]}),
        ('{"b": 1.0, "c": 1e3, "e": 1.5}', {"b": 1, "c": 1000, "e": 1.5}),
        ('\n{"a": 1, }\n', {"a": 1}),
        ('{"a":\t"x\\/y"}', {"a": "x/y"}),
        ("{a: 1, b}\n", {"a": 1, "b": None}),
        ("a: |\n  no line end", {"a": "no line end\n"}),
    ],
)  # fmt: skip
def test_text_becomes_the_value_that_kubectl_reads(text: str, value: Any) -> None:
    assert json.dumps(read(text)) == json.dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1}\nc: *x\nd: {<<: *x, b: 2}\ne: {b: 3, <<: *x}\nf: {<<: [{x: 1}, {x: 2, y: 2}]}\n",
        "on: 1\n0x10: 2\n1.50: 3\nno: 4\n1e6: 5\n1234567.5: 6\n.inf: 7\n2001-01-01: 8\n",
        "a: !!str 12\nb: !!int '12'\nc: !!float 1\nd: !!map {}\ne: ! 12\nf: !!binary aGVsbG8=\n!!str 1: g\n",
        "a: >\n  folded\n  text\n\n  more\nb: |+\n  kept\n\nc: 'it''s'\nd: \"\\u00e9\\x41\\n\"\n",
        "e: multi\n  line\nf: 'multi\n\n  line'\ng: |\n  no line end",
        "a:\n- 1\n-\n  - 2\n- b: c\n  d: e\n? f\n: g\n",
    ],
)
def test_a_file_is_read_as_the_kubectl_of_this_machine_reads_it(text: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
    command = ["kubectl", "annotate", "--local", "-o", "json", "-f", "-", "x=y"]
    done = subprocess.run(command, input=head + text, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    for key, value in read(text).items():
        assert theirs[key] == value, key


def test_documents_come_in_order_and_empty_ones_are_left_out() -> None:
    text = "# only a comment\n---\na: 1\n---\n---\nnull\n---\n# b\nb: 2\n...\n---\n- 3\n"
    documents = read_documents(text, source="a.yaml")
    assert [(document.value, document.line) for document in documents] == [
        ({"a": 1}, 3),
        ({"b": 2}, 9),
        ([3], 12),
    ]


@pytest.mark.parametrize("text", ["", "\n", "# comment\n", "---\n", "null\n"])
def test_a_text_without_content_has_no_documents(text: str) -> None:
    assert read_documents(text, source="a.yaml") == []
    with pytest.raises(YamlError, match="the file holds nothing"):
        read_document(text, source="a.yaml")


def test_one_document_is_expected_where_one_is_asked_for() -> None:
    with pytest.raises(YamlError, match="2 documents, expected one") as caught:
        read_document("a: 1\n---\nb: 2\n", source="a.yaml")
    assert caught.value.where == "a.yaml:3"


def test_positions_are_those_of_keys_and_items() -> None:
    text = "# x\na: 1\nb:\n  c:\n  - d\n  - e: [1,\n      {f: 2}]\n"
    document = read_document(text, source="a.yaml")
    assert document.positions == {
        (): Position(2, 1),
        ("a",): Position(2, 1),
        ("b",): Position(3, 1),
        ("b", "c"): Position(4, 3),
        ("b", "c", 0): Position(5, 5),
        ("b", "c", 1): Position(6, 5),
        ("b", "c", 1, "e"): Position(6, 5),
        ("b", "c", 1, "e", 0): Position(6, 9),
        ("b", "c", 1, "e", 1): Position(7, 7),
        ("b", "c", 1, "e", 1, "f"): Position(7, 8),
    }  # fmt: skip


def test_a_path_that_stands_nowhere_has_the_place_of_its_parent() -> None:
    document = read_document("a: &x\n  b: 1\nc: *x\n", source="a.yaml")
    assert document.position(["c", "b"]) == Position(3, 1)
    assert document.position(["z"]) == Position(1, 1)
    assert read_documents("\n\na: 1\n", source="a.yaml")[0].position(["a"]) == Position(3, 1)


def test_json_has_positions_too() -> None:
    document = read_document('{\n  "a": "\\/",\n  "b": [\n    1\n  ]\n}\n', source="a.json")
    assert document.position(["b", 0]) == Position(4, 5)
    assert read_document('\n{"a": "\\ud83d\\ude80"}', source="a.json").position(["a"]) == Position(2, 1)
    stream = read_documents('{"a": 1}{"a": 2}\n\n{\n "b": "\\/"}\n', source="a.json", with_positions=True)
    assert [(doc.value, doc.line) for doc in stream] == [({"a": 1}, 1), ({"a": 2}, 1), ({"b": "/"}, 3)]
    assert stream[2].position(["b"]) == Position(4, 2)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "`a` is set twice", 3),
        ("a: {on: 1, true: 2}\n", "`true` is set twice", 1),
        ('{"a": 1,\n "a": 2}', "`a` is set twice", 2),
        ("a:\n\tb: 2\n", "a tab cannot indent", 2),
        ("a: b: c\n", "mapping values are not allowed", 1),
        ("a: [1, 2\nb: 3\n", "did not find expected", 2),
        ("a: @b\n", "cannot start any token", 1),
        ("a: *b\n", "alias `*b` has no anchor `&b` before it", 1),
        ("a: &x [*x]\n", "alias `*x` has no anchor", 1),
        ("a: 1\nb: !Ref c\n", "unknown tag `!Ref`", 2),
        ("a: !!set {b}\n", "unknown tag `!!set`", 1),
        ("a: !!int x\n", "`x` is no value of `!!int`", 1),
        ("a: .inf\n", "`.inf` is no number that Kubernetes can carry", 1),
        ("a:\n- .nan\n", "`.nan` is no number", 2),
        ("~: 1\n", "a key is null", 1),
        ("!!null '': 1\n", "a key is null", 1),
        ("? [a]\n: 1\n", "a mapping or a list cannot be a key", 1),
        ("&a b: 1\n*a : 2\n", "an alias cannot be a key", 2),
        ("<<: 1\n", "`<<` takes a mapping", 1),
        ("a: 'x\n", "unexpected end of stream", 2),
        ("a: 1\nb: \x07\n", "control characters are not allowed", 2),
        ("a: 1\nb: \ud800\n", "surrogates not allowed", 2),
        ("a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> other\n", "the marks of a merge conflict", 2),
        ("[" * 300, "nested deeper than 200 levels", 1),
        ("- " * 300 + "a", "nested deeper than 200 levels", 1),
    ],
)
def test_faults_name_what_is_wrong_and_where(text: str, message: str, line: int) -> None:
    with pytest.raises(YamlError) as caught:
        read_documents(text, source="app.yaml")
    assert message in str(caught.value)
    assert caught.value.where == f"app.yaml:{line}"


def test_frequent_mistakes_come_with_a_hint() -> None:
    template = "name: {{ .Values.name }}\n", "{{- if .Values.on }}\na: 1\n{{- end }}\n"
    hints = {**dict.fromkeys(template, "helm template"), "a:\n\tb: 1\n": "spaces", "a: b: c\n": "quotes"}
    for text, hint in hints.items():
        with pytest.raises(YamlError) as caught:
            read(text)
        assert hint in (caught.value.hint or "")


def test_a_few_lines_cannot_expand_to_billions_of_values() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    with pytest.raises(YamlError, match="aliases expand to more than 100000 values"):
        read("\n".join(lines))


def test_copies_made_by_aliases_are_apart() -> None:
    value = read("a: &x {b: [1]}\nc: *x\n")
    value["a"]["b"].append(2)
    assert value["c"] == {"b": [1]}


def test_marks_slice_the_text() -> None:
    text = "\ufeffa: 'b c' # d\ne: [1, &x f]\ng: |\n  h\n"
    marks = [
        (mark.kind, text[mark.start : mark.end], mark.style) for mark in yamlread.read_marks(text, source="x")
    ]
    assert marks[:9] == [
        ("document", "", ""),
        ("mapping", "", ""),
        ("scalar", "a", ""),
        ("scalar", "'b c'", "'"),
        ("scalar", "e", ""),
        ("sequence", "[", "flow"),
        ("scalar", "1", ""),
        ("scalar", "&x f", ""),
        ("end", "]", ""),
    ]
    assert marks[10] == ("scalar", "|\n  h\n", "|")


def test_the_pure_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    text = "a: &x {b: [yes, 0123]}\nc: |\n  x\nd: {<<: *x}\n"
    with_libyaml = read_document(text, source="x")
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert read_document(text, source="x") == with_libyaml
    with pytest.raises(YamlError, match="mapping values are not allowed here"):
        read("a: b: c\n")


def test_importing_the_door_imports_no_yaml(tmp_path: Path) -> None:
    code = "import sys, mlstack.yaml.read; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path).returncode == 0
