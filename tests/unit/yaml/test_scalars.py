"""Plain scalars read as kubectl reads them; strings are quoted where any reader would stumble."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from mlstack.yaml import write
from mlstack.yaml.write import needs_quotes, resolve_key, resolve_plain, resolve_tagged

AS_KUBECTL = [
    # words of YAML 1.1, with `y` and `n`
    *((word, True) for word in ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")),
    *((word, False) for word in ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")),
    *((word, None) for word in ("", "~", "null", "Null", "NULL")),
    *((word, word) for word in ("yEs", "tRUE", "nULL", "none", "None", "undefined", "=", "<<", "nan", "inf")),
    # integers
    ("0", 0),
    ("-0", 0),
    ("42", 42),
    ("+42", 42),
    ("-17", -17),
    ("0123", 83),
    ("-0123", -83),
    ("0o14", 12),
    ("0O14", 12),
    ("0x1F", 31),
    ("0X1f", 31),
    ("-0x1F", -31),
    ("0b11", 3),
    ("0B11", 3),
    ("+0b11", 3),
    ("0b-11", -3),
    ("0b12", "0b12"),
    ("0x", "0x"),
    ("0xG", "0xG"),
    ("0o8", "0o8"),
    ("08", 8),
    ("0989", 989),
    ("1_000", 1000),
    ("1__0_", 10),
    ("0x_1F", 31),
    ("_1", "_1"),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", float(2**63)),
    ("18446744073709551615", float(2**64)),
    ("0xFFFFFFFFFFFFFFFF", float(2**64)),
    ("0x1FFFFFFFFFFFFFFFF", "0x1FFFFFFFFFFFFFFFF"),
    # floats; those without a fraction come through JSON as integers
    ("1e3", 1000),
    ("1E3", 1000),
    ("1.0", 1),
    ("1.", 1),
    ("1.5", 1.5),
    ("-1.5e-3", -0.0015),
    (".5", 0.5),
    ("-.5", -0.5),
    (".5_0", 0.5),
    ("._5", "._5"),
    ("1_0.5", 10.5),
    ("-0.0", 0),
    ("1e-7", 1e-7),
    ("1e18", 10**18),
    ("5.281047941610446e16", 52810479416104460),
    ("1e30", 1e30),
    ("1e400", "1e400"),
    ("1e-400", 0),
    ("1e", "1e"),
    (".", "."),
    ("1.2.3", "1.2.3"),
    # never dates or numbers to the base of 60
    *((word, word) for word in ("2001-01-01", "2001-12-14t21:59:43.10-05:00", "12:30:45")),
    *((word, word) for word in ("1:30", "190:20:30.15")),
    # strings
    *((word, word) for word in ("500m", "8Gi", "v1", "a b", "-", "--x", "+x", "tf-hub-0", "größe", "①", "٣")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), AS_KUBECTL, ids=[repr(text) for text, _ in AS_KUBECTL])
def test_plain_scalar_is_read_as_kubectl_reads_it(text: str, value: Any) -> None:
    read = resolve_plain(text)
    assert (type(read), read) == (type(value), value)


def test_table_agrees_with_the_kubectl_of_this_machine() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    table = [(text, value) for text, value in AS_KUBECTL if text not in ("-", "=")] + [("=", "=")]
    lines = [f"v{number:03}: {text}" for number, (text, _) in enumerate(table)]
    read = kubectl_reads("\n".join(lines))
    for number, (text, value) in enumerate(table):
        assert read[f"v{number:03}"] == value, text


def kubectl_reads(fields: str) -> dict[str, Any]:
    """Give the top-level fields of an object as kubectl reads them, without any cluster."""
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n"
    command = ["kubectl", "annotate", "--local", "-o", "json", "-f", "-", "a=b"]
    done = subprocess.run(command, input=head + fields + "\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout, parse_int=lambda digits: resolve_plain(digits))
    return value


@pytest.mark.parametrize("text", [".inf", "-.INF", "+.Inf", ".nan", ".NaN"])
def test_numbers_that_json_lacks_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number that Kubernetes can carry"):
        resolve_plain(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("on", "true"),
        ("n", "false"),
        ("0x10", "16"),
        ("0123", "83"),
        ("1.50", "1.5"),
        ("1.0", "1"),
        ("1e6", "1e+06"),
        ("1234567.0", "1.234567e+06"),
        ("1e-5", "1e-05"),
        ("0.0001", "0.0001"),
        ("1e39", ".inf"),
        ("-.inf", "-.inf"),
        (".nan", ".nan"),
        ("2001-01-01", "2001-01-01"),
        ("name", "name"),
    ],
)
def test_keys_become_strings_as_kubectl_makes_them(text: str, key: str) -> None:
    assert resolve_key(text) == key


@pytest.mark.parametrize("text", ["", "~", "null", "18446744073709551615"])
def test_keys_that_kubectl_refuses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="key"):
        resolve_key(text)


@pytest.mark.parametrize(
    ("tag", "text", "value"),
    [
        ("str", "12", "12"),
        ("str", "yes", "yes"),
        ("int", "0x1F", 31),
        ("float", "1", 1),
        ("float", "1.5", 1.5),
        ("bool", "on", True),
        ("null", "", None),
        ("timestamp", "2001-01-01", "2001-01-01"),
        ("binary", "aGVs\nbG8=", "hello"),
    ],
)
def test_tags_of_yaml_itself_are_honoured(tag: str, text: str, value: Any) -> None:
    read = resolve_tagged(tag, text)
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("int", "1.5"),
        ("int", "yes"),
        ("bool", "1"),
        ("float", "x"),
        ("null", "x"),
        ("binary", "%"),
        ("set", ""),
    ],
)
def test_text_that_does_not_fit_its_tag_is_refused(tag: str, text: str) -> None:
    with pytest.raises(ValueError, match=tag):
        resolve_tagged(tag, text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a ", " a", "yes", "NO", "Off", "y", "N"),
        *("~", "null", "=", "<<", "-", "?", ":", "---", "..."),
        *("012", "1e3", "1_000", "0o14", "0x1F", "0b1", "1.0"),
        *("+1", "-1", ".5", "1:30", "2001-01-01", ".inf", ".NaN"),
        *("a: b", "a:", "a #b", "#a", "- a", "? a", "[a", "{a"),
        *("a,b", "a]", "&a", "*a", "!a", "|", ">", "'a", '"a'),
        *("%a", "@a", "`a", "a\nb", "a\tb", "\ta", "\x07", "\x85", "\u2028", "\ufeff", "🚀", "10.0.0.1"),
    ],
)  # fmt: skip
def test_strings_that_some_reader_misreads_need_quotes(text: str) -> None:
    assert needs_quotes(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "nginx",
            "gcr.io/a/b:v1.2",
            "500m",
            "8Gi",
            "--port=8000",
            "a b",
            "gs://bucket/dir",
            "$(POD_IP):2222",
        ),
        *("tf-hub-0", "/bin/sh", "v1", "rbac.authorization.k8s.io/v1", "it's", "a@b.c", "x:y"),
    ],
)
def test_ordinary_strings_stay_plain(text: str) -> None:
    assert write.write_string(text) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-5, "-5"),
        (2**63 - 1, "9223372036854775807"),
        (1.5, "1.5"),
        (1e16, "1.0e+16"),
        (1.5e-7, "1.5e-07"),
        ("yes", '"yes"'),
        ('{"a": "b"}', """'{"a": "b"}'"""),
        ('it\'s: "so"', "'it''s: \"so\"'"),
        ("a\nb\t\x01\x7f\u2028", '"a\\nb\\t\\u0001\\u007f\\u2028"'),
    ],
)
def test_scalars_are_written_on_one_line(value: Any, text: str) -> None:
    assert write.write_scalar(value) == text


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", float("inf"), float("nan"), 2**63, -(2**63) - 1])
def test_values_that_yaml_or_kubernetes_cannot_carry_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot|does not fit|no number"):
        write.write_scalar(value)


def test_other_types_are_no_scalars() -> None:
    with pytest.raises(TypeError, match="list"):
        write.write_scalar([])  # type: ignore[arg-type]
