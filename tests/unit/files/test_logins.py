"""Which logins are read without the client library, and what is read of them."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlstack.files import logins
from mlstack.model.login import FixedLogin

SERVER = "https://127.0.0.1:6443"


def config(
    file: Path, *, user: Any = None, cluster: Any = None, context: str = "test", server: str = SERVER
) -> str:
    content = {
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
    }
    file.write_text(json.dumps(content))
    return str(file)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_token_and_certificates_are_read(tmp_path: Path) -> None:
    (tmp_path / "client.key").write_text("KEY")
    user = {"token": "t", "client-certificate-data": encoded("CERT"), "client-key": "client.key"}
    cluster = {"certificate-authority-data": encoded("CA"), "tls-server-name": "kubernetes"}
    file = config(tmp_path / "k", user=user, cluster=cluster)
    assert logins.fixed("test", file, {}) == FixedLogin(
        context="test",
        server=SERVER,
        ca_pem="CA",
        server_name="kubernetes",
        token="t",
        cert_pem="CERT",
        key_pem="KEY",
    )


def test_what_is_secret_is_in_no_text_of_a_login(tmp_path: Path) -> None:
    file = config(tmp_path / "k", user={"token": "hush", "client-key-data": encoded("hush")})
    assert "hush" not in repr(logins.fixed("test", file, {}))


def test_the_first_of_several_files_counts(tmp_path: Path) -> None:
    one = config(tmp_path / "1", user={"token": "first"})
    two = config(tmp_path / "2", user={"token": "second"})
    found = logins.fixed("test", None, {"KUBECONFIG": os.pathsep.join((one, two))})
    assert found is not None
    assert found.token == "first"


def test_a_login_may_be_spread_over_files(tmp_path: Path) -> None:
    one = config(tmp_path / "1", context="other")
    two = config(tmp_path / "2", user={"token": "second"})
    found = logins.fixed("test", os.pathsep.join((str(tmp_path / "none"), one, two)), {})
    assert found is not None
    assert found.token == "t"


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "login"}},
        {"auth-provider": {"name": "oidc"}},
        {"tokenFile": "token"},
        {"username": "ada", "password": "x"},
        {"token": "t", "as": ["root"]},
        {"token": "t", "as-groups": ["admins"]},
        {"token": 1},
        {"client-certificate-data": "no base64"},
        {"client-certificate": "not-there"},
    ],
    ids=lambda user: ",".join(user),
)
def test_other_ways_to_log_in_are_left_to_the_library(tmp_path: Path, user: dict[str, Any]) -> None:
    assert logins.fixed("test", config(tmp_path / "k", user=user), {}) is None


@pytest.mark.parametrize(
    "cluster",
    [{"proxy-url": "http://proxy"}, {"insecure-skip-tls-verify": "yes"}, {"certificate-authority": "none"}],
    ids=lambda cluster: ",".join(cluster),
)
def test_other_ways_to_a_server_are_left_to_the_library(tmp_path: Path, cluster: dict[str, Any]) -> None:
    assert logins.fixed("test", config(tmp_path / "k", cluster=cluster), {}) is None


@pytest.mark.parametrize("server", ["", "ftp://127.0.0.1:8080", "127.0.0.1"])
def test_what_is_no_address_is_left_to_the_library(tmp_path: Path, server: str) -> None:
    assert logins.fixed("test", config(tmp_path / "k", server=server), {}) is None


def test_proxies_of_the_environment_are_left_to_the_library(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128"}
    assert logins.fixed("test", config(tmp_path / "1", server="https://cluster"), environ) is None
    assert logins.fixed("test", config(tmp_path / "2"), environ) is not None  # on this machine


def test_who_acts_as_somebody_else_says_so(tmp_path: Path) -> None:
    user = {"token": "t", "as": "ada", "as-groups": ["dev", "ops"], "as-user-extra": {"A/b": ["1"]}}
    found = logins.fixed("test", config(tmp_path / "k", user=user), {})
    assert found is not None
    assert found.impersonation == {
        "Impersonate-User": ("ada",),
        "Impersonate-Group": ("dev", "ops"),
        "Impersonate-Extra-a%2Fb": ("1",),
    }


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n"])
def test_empty_files_are_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "empty").write_text(text)
    files = os.pathsep.join((str(tmp_path / "empty"), config(tmp_path / "k")))
    assert logins.fixed("test", files, {}) is not None


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "contexts: 3", "contexts: [3]", "contexts: [{context: {}}]", "\t- x"]
)
def test_what_is_no_kubeconfig_is_left_to_the_library(tmp_path: Path, text: str) -> None:
    file = tmp_path / "k"
    file.write_text(text)
    assert logins.fixed("test", str(file), {}) is None


def test_the_current_context_is_left_to_the_library(tmp_path: Path) -> None:
    assert logins.fixed("", config(tmp_path / "k"), {}) is None


def test_an_unknown_context_is_left_to_the_library(tmp_path: Path) -> None:
    assert logins.fixed("other", config(tmp_path / "k"), {}) is None
