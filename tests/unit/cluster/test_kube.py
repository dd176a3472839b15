"""How the real client reads kubeconfig files, and says what is wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ForbiddenError, MlstackError, NotFoundError, UnreachableError
from mlstack.kube import connect
from mlstack.kube.api_server import ApiServerClient
from mlstack.kube.client import ObjectRef
from tests.support.fakeapi import Answer, Asked, Serve, always, kubeconfig, serve, status
from tests.support.providers import id_token

MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "q", "resourceVersion": "7"},
}
REF = ObjectRef("v1", "ConfigMap", "q", "a")


def test_a_uid_that_may_not_be_read_is_none(served: Serve) -> None:
    _, cluster = served(always(status(403, 'User "u" cannot get resource', reason="Forbidden")))
    assert cluster.identity().uid is None


def test_a_server_without_tls_says_so(served: Serve, tmp_path: Path) -> None:
    api, _ = served(always(Answer(body={})))
    config = kubeconfig(tmp_path, api.url.replace("http:", "https:"))
    with pytest.raises(UnreachableError, match="does not speak TLS"):
        connect.connect("test", kubeconfig=config).get(REF)


def refused(text: str, tmp_path: Path, context: str = "test") -> MlstackError:
    file = tmp_path / "broken"
    file.write_text(text)
    with pytest.raises(MlstackError) as caught:
        connect.connect(context, kubeconfig=str(file))
    return caught.value


def test_an_unknown_context_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no context `tset`; it has `test`") as caught:
        connect.connect("tset", kubeconfig=kubeconfig(tmp_path, "https://127.0.0.1:1"))
    assert caught.value.near == "test"


@pytest.mark.parametrize(
    ("cluster", "user", "told"),
    [
        (
            {"server": "https://h"},
            {"token": 3},
            "the credentials or certificates of context `test` cannot be",
        ),
        ({"server": "https://h k"}, {}, "context `test` has an address of an API server that is not a URL"),
        ({"server": 6443}, {}, "context `test` has no address of an API server"),
        ({"server": "h:6443"}, {}, "context `test` has no address of an API server"),
        (
            {"server": "https://h", "certificate-authority": "/no/ca"},
            {},
            "needs the file /no/ca",
        ),
        ({"server": "https://h", "certificate-authority-data": "aGk="}, {}, "cannot be used"),
        ({"server": "https://h"}, {"client-certificate": "/no/crt", "client-key": "/no/key"}, "file /no/crt"),
        ({"server": "https://h"}, {"tokenFile": "/no/token"}, "needs the file /no/token"),
        ({"server": "https://h"}, {"tokenFile": os.devnull}, "the token file of context `test` is empty"),
        ({"server": "https://h"}, {"auth-provider": {"name": "gcp"}}, "come from auth-provider `gcp`"),
        (
            {"server": "https://h"},
            {"auth-provider": {"name": "oidc", "config": {"id-token": id_token(expires_s=1)}}},
            "the id-token of context `test` has expired and cannot be renewed: the kubeconfig has no",
        ),
        (
            {"server": "https://h"},
            {"auth-provider": {"name": "oidc", "config": {}}},
            "is missing and cannot be renewed: the kubeconfig has no `refresh-token`",
        ),
        (
            {"server": "https://h"},
            {"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}},
            "the credentials or certificates of context `test` cannot be used",
        ),
        (
            {"server": "https://h"},
            {"token": "t", "password": "p"},
            "shows the server both a token and a password",
        ),
        ({"server": "https://h"}, {"token": "t", "as-groups": ["a"]}, "not say clearly as whom to act"),
        ({"server": "https://h", "proxy-url": "socks4://u:p@h"}, {}, "through a proxy that mlstack does not"),
    ],
    ids=[
        "odd-token",
        "server-odd",
        "server-number",
        "server-bare",
        "no-ca",
        "odd-ca",
        "no-cert",
        "no-token",
        "token-empty",
        "provider",
        "id-token-old",
        "id-token-missing",
        "id-token-odd",
        "password",
        "as",
        "socks",
    ],
)
def test_what_a_context_needs_and_does_not_have_is_named_with_the_next_step(
    tmp_path: Path, cluster: dict[str, Any], user: Any, told: str
) -> None:
    content = {
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    error = refused(json.dumps(content), tmp_path)
    assert told in error.message
    assert error.exit_code == 6
    assert error.hint is not None


def test_no_kubeconfig_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no kubeconfig at") as caught:
        connect.connect("test", kubeconfig=str(tmp_path / "none"))
    assert caught.value.hint is not None
    assert "KUBECONFIG" in caught.value.hint


def test_the_environment_names_the_kubeconfig_at_the_time_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, "https://127.0.0.1:1"))
    assert isinstance(connect.connect("test"), ApiServerClient)


@pytest.mark.parametrize(
    "text",
    [
        "a: [1\ntoken: hunter2\n",
        "hunter2",
        "contexts: hunter2",
        "contexts: [{name: hunter2}]\nclusters: [{}]",
        '{"contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}], '
        '"clusters": [{"name": "c", "cluster": {"server": "https://h"}}], '
        '"users": [{"name": "u", "user": {"client-certificate-data": "hunter2"}}]}',
        '{"contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}], "clusters": [], '
        '"users": [{"name": "u", "user": {"token": "hunter2"}}]}',
        '{"contexts": [{"name": "test", "context": {"cluster": "c"}}], '
        '"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "/no"}}]}',
    ],
    ids=["yaml", "scalar", "shape", "nameless", "base64", "no cluster", "no ca file"],
)
def test_a_broken_kubeconfig_is_one_clear_error_without_its_secrets(tmp_path: Path, text: str) -> None:
    error = refused(text, tmp_path)
    assert "hunter2" not in error.describe().replace("`hunter2`", "")
    assert error.__cause__ is None or "hunter2" not in str(error.__cause__)


def test_a_token_file_counts_before_a_token_and_is_read_again(tmp_path: Path) -> None:
    def script(asked: Asked) -> Answer:
        fresh = asked.headers["authorization"] == "Bearer new"
        return Answer(body=MAP) if fresh else status(401, "Unauthorized", reason="Unauthorized")

    (tmp_path / "token").write_text("old\n")
    with serve(script).running() as api:
        config = kubeconfig(tmp_path, api.url, user={"token": "other", "tokenFile": "token"})
        cluster = connect.connect("test", kubeconfig=config)
        (tmp_path / "token").write_text("new\n")
        assert cluster.get(REF) == MAP
    assert [asked.headers["authorization"] for asked in api.asked] == ["Bearer old", "Bearer new"]


def test_the_proxy_of_a_context_is_told_its_password_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")  # kubectl asks the proxy of a context all the same
    with serve(always(Answer(body=MAP))).running() as api:
        proxy = api.url.replace("//", "//ada:p%40ss@")
        config = kubeconfig(tmp_path, "http://cluster.example", **{"proxy-url": proxy})
        assert connect.connect("test", kubeconfig=config).get(REF) == MAP
    sent = api.asked[0].headers
    assert (sent["host"], sent["proxy-authorization"]) == ("cluster.example", "Basic YWRhOnBAc3M=")


def test_a_password_in_the_address_is_in_no_message(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "https://ada:hush@127.0.0.1:1")
    with pytest.raises(UnreachableError, match=r"at https://127\.0\.0\.1:1: ") as caught:
        connect.connect("test", kubeconfig=config).get(REF)
    assert "hush" not in caught.value.describe()


def test_empty_files_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").write_text("# nothing yet\n")
    files = os.pathsep.join((str(tmp_path / "empty"), kubeconfig(tmp_path, "https://127.0.0.1:1")))
    monkeypatch.setenv("KUBECONFIG", files)
    assert isinstance(connect.connect("test"), ApiServerClient)
    with pytest.raises(NotFoundError, match="there is no kubeconfig"):
        connect.connect("test", kubeconfig=str(tmp_path / "empty"))


def test_an_expired_token_says_so(served: Serve) -> None:
    api, cluster = served(always(status(401, "Unauthorized", reason="Unauthorized")))
    with pytest.raises(ForbiddenError, match="does not accept the credentials") as caught:
        cluster.identity()
    assert caught.value.why == "credentials"
    assert len(api.asked) == 1
