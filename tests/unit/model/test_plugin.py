"""What credential plug-ins are asked, and which answers count: by the rules of client-go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlstack.kube import login
from mlstack.kube.login import Plugin, Proof

V1 = "client.authentication.k8s.io/v1"
CERT = "-----BEGIN CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\n"
LOGIN = Plugin(command="login", api_version=V1)


def said(status: Any, **more: Any) -> bytes:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status, **more}).encode()


def test_a_plug_in_is_told_in_its_version_whether_it_can_ask() -> None:
    asked = json.loads(login.exec_info(LOGIN, interactive=True))
    assert asked == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": True}}


def test_a_plug_in_is_told_of_the_cluster() -> None:
    cluster = {"server": "https://c", "config": None}
    wants = Plugin(command="login", api_version=V1, cluster=cluster)
    asked = json.loads(login.exec_info(wants, interactive=False))
    assert asked["spec"] == {"cluster": cluster, "interactive": False}


def test_a_token_and_a_certificate_are_taken_together() -> None:
    status = {
        "token": "t",
        "clientCertificateData": CERT,
        "clientKeyData": KEY,
        "expirationTimestamp": "1970-01-01T01:00:10.123456789+01:00",
    }
    found = login.read_answer(LOGIN, said(status))
    assert (found.authorization, found.cert_pem, found.key_pem) == ("Bearer t", CERT, KEY)
    assert found.expires_s == pytest.approx(10.123456)
    assert "BEGIN" not in repr(found)


@pytest.mark.parametrize("time", [None, "0001-01-01T00:00:00Z"], ids=["none", "Go's zero"])
def test_a_token_may_never_expire(time: str | None) -> None:
    assert login.read_answer(LOGIN, said({"token": "t", "expirationTimestamp": time})) == Proof(
        authorization="Bearer t"
    )


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (b"", "it is empty"),
        (b"hush", "it is no JSON"),
        (b"[]", "it is no ExecCredential"),
        (said({"token": "hush"}, kind="Secret"), "it is no ExecCredential"),
        (
            said({"token": "hush"}, apiVersion=f"{V1}beta1"),
            f"its `apiVersion` is `{V1}beta1`, the kubeconfig",
        ),
        (said({"token": "hush"}, apiVersion=None), "its `apiVersion` is missing"),
        (said(None), "it has no `status`"),
        (said({}), "neither a token nor a certificate"),
        (said({"token": ["hush"]}), "`token` is no text"),
        (said({"clientCertificateData": "hush"}), "only one of certificate and key"),
        (said({"token": "hush", "clientKeyData": "hush"}), "only one of certificate and key"),
        (said({"clientCertificateData": CERT, "clientKeyData": "hush"}), "certificate or key is no PEM"),
        (said({"token": "hush", "expirationTimestamp": "tomorrow"}), "no time of RFC 3339"),
        (said({"token": "hush", "expirationTimestamp": "2026-13-01T00:00:00Z"}), "no time of RFC 3339"),
        (said({"token": "hush", "expirationTimestamp": 5}), "no time of RFC 3339"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_answer_is_said_without_secrets(output: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=r"^it|^`token") as caught:
        login.read_answer(LOGIN, output)
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
