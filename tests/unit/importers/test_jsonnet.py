"""The tokens of Jsonnet: what is rewritten, what is a literal."""

from typing import Any

import pytest

from mlstack.importers import jsonnet


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('import("a.libsonnet")', 'import "a.libsonnet" '),
        ("importstr ( 'a' )", "importstr   'a'  "),
        ("{a: +{b: 1}}", "{a:  {b: 1}}"),
        ("{a:+{}}", "{a: {}}"),
        ("x + + y", "x +   y"),
        ("x ++ y", "x +  y"),
        ("if a then +b else +c", "if a then  b else  c"),
    ],
)
def test_old_syntax_is_rewritten(before: str, after: str) -> None:
    assert jsonnet.modern(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "{a+: 1, b+:: 2}",
        "x + y",
        "\"import('a') + + b\"",
        '// import("a") + + b\n1',
        "/* + + */ 'x' + |||\n  import(\"a\") + +\n|||",
        "$ + self.a + f(1) + a[0]",
        'import "a" + import "b"',
        "@'it''s + +' + 1",
        '"never closed + +',
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert jsonnet.modern(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            "{global: {}, components: {'a-b': {x: 1, y: [true, null,],}}}",
            {"global": {}, "components": {"a-b": {"x": 1, "y": [True, None]}}},
        ),
        ("// head\n{a: -1.5, 'b': \"it's\", c: 'say \"x\"\\n'}", {"a": -1.5, "b": "it's", "c": 'say "x"\n'}),
        ("@'a\\b'", "a\\b"),
    ],
)
def test_literals_are_read_without_evaluation(text: str, value: Any) -> None:
    assert jsonnet.literal(text) == value


@pytest.mark.parametrize(
    "text", ["{a: b}", "local a = 1; a", "{a: 1 + 1}", "{[a]: 1}", "[1, 2", "", "{a: import 'x'}"]
)
def test_code_is_no_literal(text: str) -> None:
    with pytest.raises(jsonnet.NotLiteralError):
        jsonnet.literal(text)
