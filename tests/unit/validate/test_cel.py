"""The CEL that rules of CustomResourceDefinitions use."""

from typing import Any

import pytest

from mlstack.validate import cel
from mlstack.validate.cel import UnsupportedError

SELF = {
    "name": "cnn",
    "replicas": 2,
    "ratio": 0.5,
    "on": True,
    "tags": ["a", "b"],
    "roles": {"Worker": {"replicas": 0}, "PS": {}},
    "type": "x",
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7.0 / 2.0", 3.5),
        ("'a' + \"b\"", "ab"),
        (r"'it\'s'", "it's"),
        (r"r'\d'", r"\d"),
        ("1 == 1.0", True),
        ("true == 1", False),
        ("null == null", True),
        ("1 < 2 && 2 <= 2 && 3 > 2 && 2 >= 2 && 1 != 2", True),
        ("!(1 in [1, 2])", False),
        ("true ? 1 : 2", 1),
        ("false ? 1 : true ? 3 : 4", 3),
        ("self.name", "cnn"),
        ("self.tags[1]", "b"),
        ("self.roles['Worker'].replicas", 0),
        ("'Worker' in self.roles", True),
        ("has(self.name) && !has(self.missing)", True),
        ("has(self.roles.PS.replicas)", False),
        ("size(self.name) == 3 && self.tags.size() == 2", True),
        ("self.name.matches('^c[n]+$')", True),
        ("self.name.startsWith('c') && self.name.endsWith('n') && self.name.contains('n')", True),
        ("self.roles.all(r, r in ['Worker', 'PS'])", True),
        ("self.tags.exists(t, t == 'b')", True),
        ("self.tags.exists_one(t, t == 'b')", True),
        ("self.tags.filter(t, t != 'a')", ["b"]),
        ("self.tags.map(t, t + t)", ["aa", "bb"]),
        ("self.__type__", "x"),
        ("self.x__dash__y", None),
        ("quantity('1Gi').compareTo(quantity('1024Mi')) == 0", True),
        ("int('3') + 1", 4),
        ("string(self.on) + string(self.replicas) + string('x')", "true2x"),
        ("'ÄB'.lowerAscii()", "Äb"),
        ("'ab'.split('')", ["a", "b"]),
        ("type(self.name) == string && type(self.replicas) == int && type(self.ratio) == double", True),
        ("type(self.on) == int || type(self.replicas) == bool", False),
        ("  self.replicas > 1  ", True),
        ('self.name.matches(r"""^[a-z"]+$""")', True),
        ('"""a\'b""" == "a\'b"', True),
        ("duration('1h30m') == duration('5400s') && duration('0.5ms') > duration('499us')", True),
        ("duration('-1s') < duration('0') && duration('1.5s') >= duration('1500ms')", True),
        ("self.name.substring(1) + self.name.substring(0, 1)", "nnc"),
    ],
)
def test_values(expression: str, value: Any) -> None:
    subject = {**SELF, "x-y": None}
    if value is None:
        with pytest.raises(cel.EvaluationError):
            cel.evaluate(expression, {"self": subject})
        return
    assert cel.evaluate(expression, {"self": subject}) == value


@pytest.mark.parametrize(
    "expression",
    ["true || self.missing > 1", "self.missing > 1 || true", "[1, 2].exists(x, x == 2 || self.missing)"],
)
def test_an_error_does_not_count_where_another_part_decides(expression: str) -> None:
    assert cel.evaluate(expression, {"self": SELF}) is True


@pytest.mark.parametrize(
    "expression",
    [
        "self.missing",
        "self.tags[5]",
        "self.name > 1",
        "1 / 0",
        "self.name && true",
        "false || self.missing > 1",
        "has(self.missing.deep)",
        "quantity('abc') == quantity('1')",
        "!self.name",
        "duration('5') > duration('1s')",
        "duration('') > duration('1s')",
        "self.name.substring(2, 4)",
    ],
)
def test_without_a_value_there_is_an_error(expression: str) -> None:
    with pytest.raises(cel.EvaluationError):
        cel.evaluate(expression, {"self": SELF})


@pytest.mark.parametrize(
    "expression",
    [
        "self == oldSelf",
        "self.name.reverse()",
        "timestamp('2026-01-31T12:00:00Z')",
        "self.?name",
        "{'a': 1}",
        "1 +",
        "a b",
        "(1",
        "has(self)",
        "'\\u00e9'",
        "self.tags.all(1, true)",
        "self.name.matches('(?=a)')",
        "string(1.5)",
        "int(true)",
        "size(1)",
        "self.tags + self.tags",
        "self.tags == ['b', 'a']",
        "self.name.all(x, true)",
        "self.tags.all(a, " * 30 + "true" + ")" * 30,
        "(" * 5000 + "true" + ")" * 5000,
        "[1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, " * 9 + "true" + ")" * 9,
    ],
)
def test_what_is_not_known_is_left_to_the_server(expression: str) -> None:
    with pytest.raises(UnsupportedError):
        cel.evaluate(expression, {"self": SELF})
