"""What a person reads holds no secret."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
import yaml

from mlstack.app.prototype import mask_value
from mlstack.objects.masking import (
    MASK,
    Secrets,
    collecting,
    mask_object,
    mask_text,
    mask_values,
    note,
    note_object,
    scrubbed,
    secret_texts,
)
from tests.support.builders import params

DECLARED = params(token={"type": "string", "secret": True}, image={"type": "string"}, other={"secret": True})


def test_secret_parameters_are_masked_and_unset_ones_stay_unset() -> None:
    values = {"token": "hunter2", "image": "a", "other": None}
    masked = {name: mask_value(value, DECLARED[name]) for name, value in values.items()}
    assert masked == {"token": MASK, "image": "a", "other": None}


def test_the_data_of_a_secret_is_masked_key_by_key() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"},
        },
        "data": {"k": "aHVudGVyMg=="},
        "stringData": {"k": "hunter2"},
    }
    masked = mask_object(secret)
    assert masked["data"] == masked["stringData"] == {"k": MASK}
    assert masked["metadata"]["name"] == "s"
    assert masked["metadata"]["annotations"]["a"] == "b"
    assert "hunter2" not in str(masked)
    assert secret["stringData"] == {"k": "hunter2"}


def test_other_objects_stay_as_they_are() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
    assert mask_object(config) == config


SECRET = "pä\"ss<wör'd>&\\ 9/+?\n%"


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps({"k": SECRET}, ensure_ascii=False), ensure_ascii=False),
        json.dumps(SECRET, ensure_ascii=False)
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026"),
        repr(SECRET),
        ascii(SECRET),
        repr(SECRET.encode()),
        yaml.safe_dump({"k": SECRET}, allow_unicode=False, default_style='"', width=1000),
        yaml.safe_dump({"k": SECRET.strip()}, allow_unicode=True, default_style="'", width=1000),
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET).lower().replace("p%c3%a4", "p%c3%a4"),
        html.escape(SECRET),
        " ".join(SECRET.split()),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        *(
            base64.b64encode(b"user:"[:before] + SECRET.encode() + b" and more").decode()
            for before in range(5)
        ),
        SECRET.encode().hex(),
        " ".join(map(str, SECRET.encode())),
        ", ".join(f"{byte:#x}" for byte in SECRET.encode()),
        f"denied: {SECRET[:14]}…",
        f"denied: {SECRET[:14]}...",
        f"denied: {base64.b64encode(SECRET.encode()).decode()[:17]}",
    ],
)
def test_a_secret_is_found_however_a_program_writes_it(written: str) -> None:
    masked = Secrets([SECRET]).masked(f"before {written}")
    assert MASK in masked
    assert masked.startswith("before ")
    rest = masked.replace(MASK, "").removeprefix("before ")
    assert len(rest) <= max(20, len(written) // 3), rest
    assert "ss<w" not in masked
    assert base64.b64encode(SECRET.encode()).decode()[4:12] not in masked


@pytest.mark.parametrize(
    ("value", "text", "stays"),
    [
        ("true", "it is true", True),
        ("1", "1 of 1", True),
        ("admin", "the admin", True),
        ("default", "namespace default", True),
        ("8080", "port 8080", True),
        ("10.0.0.1", "https://10.0.0.1", True),
        ("x9z1", "x9z10 of x9z1a", True),
        ("x9z1", "token=x9z1.", False),
        ("hunter2", "xhunter2x", False),
        ("swordfish", "a swordfish", False),
        ("48151623", "pin 48151623", False),
        (
            b"\xff\xfe\x00\x01\x02\x03\x04",
            f"is {base64.b64encode(bytes((255, 254, 0, 1, 2, 3, 4))).decode()}",
            False,
        ),
        ("-----BEGIN KEY-----\nMIIabc123\n-----END KEY-----\n", "-----BEGIN KEY-----", True),
        ("-----BEGIN KEY-----\nMIIabc123\n-----END KEY-----\n", "line MIIabc123", False),
    ],
)
def test_what_stands_everywhere_is_not_torn_out_of_texts(value: str | bytes, text: str, stays: bool) -> None:
    assert (Secrets([value]).masked(text) == text) is stays


def test_names_of_what_is_deployed_may_be_read() -> None:
    secrets = Secrets(["tf-hub-lb", "hunter2"])
    secrets.allow(["tf-hub-lb"])
    assert secrets.masked("Service tf-hub-lb: hunter2") == f"Service tf-hub-lb: {MASK}"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://ada:pw@git.example.org/a.git", f"https://ada:{MASK}@git.example.org/a.git"),
        ("fatal: 'https://ghp_abc@github.com/a'", f"fatal: 'https://{MASK}@github.com/a'"),
        ("https://ada:p@w@h/a", f"https://ada:{MASK}@h/a"),
        ("ssh://git@github.com/a", "ssh://git@github.com/a"),
        ("git@github.com:a/b", "git@github.com:a/b"),
        ("https://h/a?x=1&access_token=abc&y=2", f"https://h/a?x=1&access_token={MASK}&y=2"),
        ("https://github.com/a/b/tree/v1@2", "https://github.com/a/b/tree/v1@2"),
        ("see https://h/a, or mail me@h", "see https://h/a, or mail me@h"),
    ],
)
def test_addresses_lose_their_passwords(text: str, clean: str) -> None:
    assert scrubbed(text) == clean


def test_only_what_a_run_noted_is_masked_and_only_in_that_run() -> None:
    note("hunter2")
    with collecting():
        note_object({"apiVersion": "v1", "kind": "Secret", "data": {"a": "aHVudGVyMg==", "b": 5, "c": None}})
        with collecting():
            assert scrubbed("hunter2 aHVudGVyMg==") == f"{MASK} {MASK}"
    assert scrubbed("hunter2") == "hunter2"


def test_texts_lose_every_occurrence_longest_first() -> None:
    secrets = secret_texts(["abc", {"a": ["abcdef", 7]}])
    assert secrets == ("abcdef", "abc", "7")
    assert mask_text("x abcdef abc", secrets) == f"x {MASK} abc"  # three letters stand anywhere


def test_plain_data_loses_secrets_wherever_they_stand() -> None:
    data = {"a": ["x abcdef", {"b": 7}], "c": "abc", "d": "x abc", "e": True, "f": None, "g": 70}
    assert mask_values(data, ("abcdef", "abc", "7", "True")) == {
        "a": [f"x {MASK}", {"b": 7}],
        "c": MASK,
        "d": "x abc",  # three letters stand by chance in too many texts
        "e": True,
        "f": None,
        "g": 70,
    }
