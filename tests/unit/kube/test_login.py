"""What a kubeconfig, or the folder of a service account, says of a login."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ClusterError, NotFoundError
from mlstack.kube import login
from mlstack.kube.kubeconfig import Login
from mlstack.kube.login import ContextLogin, IdToken, Interactive, Plugin, Proof, TokenFile
from tests.support.providers import LATER_S, id_token

SERVER = "https://127.0.0.1:6443"
V1 = "client.authentication.k8s.io/v1"


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


def login_of(folder: Path, user: Any = None, environ: Any = None, **cluster: Any) -> ContextLogin:
    return login.find("test", config(folder / "k", user=user, cluster=cluster), environ or {})


def proof(folder: Path, user: Any) -> Proof:
    source = login_of(folder, user).source
    assert isinstance(source, Proof)
    return source


def plugin_of(folder: Path, user: Any, **cluster: Any) -> Plugin:
    source = login_of(folder, user, **cluster).source
    assert isinstance(source, Plugin)
    return source


def plugin(**more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": "login", "interactiveMode": "Never", **more}}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_token_and_certificates_are_read(tmp_path: Path) -> None:
    (tmp_path / "client.key").write_text("KEY")
    user = {"token": "t", "client-certificate-data": encoded("CERT"), "client-key": "client.key"}
    cluster = {"certificate-authority-data": encoded("CA"), "tls-server-name": "kubernetes"}
    access = login_of(tmp_path, user, **cluster)
    assert access.login == Login(label="context `test`", server=SERVER, ca_pem="CA", server_name="kubernetes")
    assert access.source == Proof(authorization="Bearer t", cert_pem="CERT", key_pem="KEY")


def test_what_is_secret_is_in_no_text_of_a_login(tmp_path: Path) -> None:
    secret = encoded("hush")
    users: list[dict[str, Any]] = [
        {"token": "hush", "client-certificate-data": secret, "client-key-data": secret},
        {"username": "ada", "password": "hush"},
        plugin(args=["hush"], env=[{"name": "A", "value": "hush"}], provideClusterInfo=True),
    ]
    for user in users:
        access = login_of(tmp_path, user, **{"proxy-url": "http://ada:hush@proxy"})
        assert "hush" not in repr(access)
        assert "hush" not in repr(access.source)


def test_the_first_of_several_files_counts(tmp_path: Path) -> None:
    first = config(tmp_path / "1", user={"token": "first"})
    second = config(tmp_path / "2", user={"token": "second"})
    both = {"KUBECONFIG": os.pathsep.join((first, second))}
    assert login.find("test", None, both).source == Proof(authorization="Bearer first")


def test_a_login_may_be_spread_over_files(tmp_path: Path) -> None:
    first = config(tmp_path / "1", context="other")
    second = config(tmp_path / "2", user={"token": "second"})
    files = os.pathsep.join((str(tmp_path / "none"), first, second))
    assert login.find("test", None, {"KUBECONFIG": files}).source == Proof(authorization="Bearer t")


def test_a_user_without_anything_is_nobody(tmp_path: Path) -> None:
    assert proof(tmp_path, {}) == Proof()


def test_a_certificate_counts_with_its_key_only(tmp_path: Path) -> None:
    assert proof(tmp_path, {"client-key-data": encoded("KEY")}) == Proof()


def test_a_token_file_lies_beside_the_kubeconfig(tmp_path: Path) -> None:
    source = login_of(tmp_path, {"tokenFile": "token", "token": "t"}).source
    assert source == TokenFile(path=str(tmp_path / "token"), proof=Proof(authorization="Bearer t"))


def test_a_token_counts_while_its_file_cannot_be_read(tmp_path: Path) -> None:
    access = login_of(tmp_path, {"tokenFile": "token", "token": "t"})
    assert isinstance(access.source, TokenFile)
    assert login.read_token(access, access.source).authorization == "Bearer t"
    (tmp_path / "token").write_text(" new\n")
    assert login.read_token(access, access.source).authorization == "Bearer new"


@pytest.mark.parametrize(
    "user",
    [{"token": "t"}, {"username": "ada"}, {"tokenFile": "t"}, {"client-certificate-data": encoded("C")}],
    ids=lambda user: ",".join(user),
)
def test_a_plug_in_is_the_last_way(tmp_path: Path, user: dict[str, Any]) -> None:
    assert not isinstance(login_of(tmp_path, {**user, **plugin()}).source, Plugin)


def test_a_token_counts_before_an_auth_provider(tmp_path: Path) -> None:
    provider = {"auth-provider": {"name": "oidc", "config": {}}}
    assert proof(tmp_path, {"token": "t", **provider}) == Proof(authorization="Bearer t")
    source = login_of(tmp_path, provider).source
    assert isinstance(source, IdToken)
    assert source.proof == Proof(expires_s=0)


def test_an_identity_provider_is_read_with_its_place(tmp_path: Path) -> None:
    settings = {"id-token": id_token(expires_s=LATER_S), "refresh-token": "hush"}
    user = {"auth-provider": {"name": "oidc", "config": settings}, "client-certificate-data": encoded("C")}
    access = login_of(tmp_path, user)
    proof = Proof(authorization=f"Bearer {settings['id-token']}", cert_pem="C", expires_s=LATER_S - 10)
    assert access.source == IdToken(proof=proof, settings=settings, file=str(tmp_path / "k"), user="u")
    assert "hush" not in repr(access.source)


def test_tokens_are_not_kept_where_the_user_is_gone(tmp_path: Path) -> None:
    source = login_of(tmp_path, {"auth-provider": {"name": "oidc", "config": {}}}).source
    assert isinstance(source, IdToken)
    before = Path(config(tmp_path / "k", user={"token": "t"})).read_text()
    for name in ("u", "gone"):
        with pytest.raises(ValueError, match="changed meanwhile"):
            login.keep(replace(source, user=name), {"id-token": "t"})
    assert (tmp_path / "k").read_text() == before


def test_a_plug_in_and_an_auth_provider_are_not_taken_together(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="both by a credential plug-in and by an auth-provider"):
        login_of(tmp_path, {**plugin(), "auth-provider": {"name": "oidc"}})


def test_a_plug_in_is_read_whole(tmp_path: Path) -> None:
    user = plugin(
        args=["--cluster", "c"],
        env=[{"name": "A", "value": "1"}, {"name": "EMPTY"}],
        interactiveMode="Always",
        installHint="get it \x1b[1mhere\n",
    )
    assert plugin_of(tmp_path, user) == Plugin(
        command="login",
        api_version=V1,
        args=("--cluster", "c"),
        env={"A": "1", "EMPTY": ""},
        interactive=Interactive.ALWAYS,
        install_hint="get it U+001B[1mhere",
    )


def test_a_plug_in_hears_of_the_cluster_if_it_wants_to(tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(b"\xe9\n")
    cluster = {
        "certificate-authority": "ca",
        "tls-server-name": "kubernetes",
        "insecure-skip-tls-verify": False,
        "proxy-url": "http://proxy",
        "extensions": [
            {"name": "other", "extension": {"a": 1}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
        ],
    }
    assert plugin_of(tmp_path, plugin(provideClusterInfo=True), **cluster).cluster == {
        "server": SERVER,
        "tls-server-name": "kubernetes",
        "certificate-authority-data": base64.b64encode(b"\xe9\n").decode(),
        "proxy-url": "http://proxy",
        "config": {"audience": "x"},
    }
    assert plugin_of(tmp_path, plugin(), **cluster).cluster is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"command": ""}, "`command` is missing"),
        ({"apiVersion": None}, "`apiVersion` is missing, not one of"),
        ({"apiVersion": f"{V1}alpha1"}, f"`apiVersion` is `{V1}alpha1`, not one of `{V1}`, `{V1}beta1`"),
        ({"interactiveMode": None}, "`interactiveMode` is missing"),
        ({"interactiveMode": "never"}, "`interactiveMode` is `never`, not one of `Never`"),
        ({"env": [{"value": "hush"}]}, "`env` is no list of names and values"),
        ({"env": "hush"}, "`env` is no list of names and values"),
        ({"args": "hush"}, "`args` is no list of texts"),
        ({"args": [1]}, "`args` is no list of texts"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_plug_in_that_kubectl_would_not_run_is_refused(
    tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        login_of(tmp_path, plugin(**more))
    assert message in caught.value.message
    assert "hush" not in caught.value.describe()


def test_before_v1_a_plug_in_may_ask_where_somebody_is_there(tmp_path: Path) -> None:
    entry = {"exec": {"apiVersion": f"{V1}beta1", "command": "login"}}
    assert plugin_of(tmp_path, entry).interactive is Interactive.IF_AVAILABLE


def test_a_proxy_is_that_of_the_context_else_that_of_the_environment(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128"}
    assert login_of(tmp_path, environ=environ).login.proxy is None  # on this machine
    assert login_of(tmp_path, environ=environ, server="https://far").login.proxy == "http://proxy:3128"
    both = login_of(tmp_path, environ=environ, server="https://far", **{"proxy-url": "http://own"})
    assert both.login.proxy == "http://own"


def account(folder: Path) -> Path:
    for name in ("ca.crt", "token"):
        (folder / name).write_text(name)
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": "/none"}


def test_an_environment_of_the_pod_uses_its_account_beside_a_kubeconfig(tmp_path: Path) -> None:
    place, kubeconfig = account(tmp_path), tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\n")
    environ = {**POD, "KUBECONFIG": str(kubeconfig)}
    assert login.find("in-cluster", None, environ, account=place).login.label == "this pod's service account"
    with pytest.raises(NotFoundError, match="no pod"):
        login.find("in-cluster", None, environ, account=tmp_path / "none")


def test_in_a_pod_its_service_account_logs_in(tmp_path: Path) -> None:
    access = login.find("", None, POD, account=account(tmp_path))
    assert (access.login.server, access.login.ca_pem) == ("https://[fd00::1]:443", "ca.crt")
    assert isinstance(access.source, TokenFile)
    assert login.read_token(access, access.source).authorization == "Bearer token"


def test_a_kubeconfig_or_a_context_counts_before_the_account_of_the_pod(tmp_path: Path) -> None:
    environ = {**POD, "KUBECONFIG": config(tmp_path / "k")}
    assert login.find("", None, environ, account=account(tmp_path)).context == "test"
    with pytest.raises(NotFoundError, match="there is no kubeconfig"):
        login.find("test", None, POD, account=tmp_path)


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "token"])
def test_a_pod_without_an_account_says_so(tmp_path: Path, missing: str) -> None:
    folder = account(tmp_path)
    (folder / missing).unlink(missing_ok=True)
    environ = {key: value for key, value in POD.items() if key != missing}
    with pytest.raises(ClusterError, match="this pod's service account"):
        access = login.find("", None, environ, account=folder)
        assert isinstance(access.source, TokenFile)
        login.read_token(access, access.source)
