"""The tokens of Jsonnet: what is rewritten."""

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
