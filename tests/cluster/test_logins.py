"""Who one is by a kubeconfig, and whether the server is trusted: as kubectl has it, with the same file."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from mlstack.cli import ports
from mlstack.errors import ClusterError
from mlstack.kube.client import Right
from tests.controlplane.recipes import Programs
from tests.support import plugins
from tests.support.builders import write_tree
from tests.support.certificates import self_signed
from tests.support.cluster import TestCluster
from tests.support.providers import FakeProvider
from tests.support.providers import id_token as made_up_token
from tests.support.proxies import ConnectingProxy, SocksProxy
from tests.support.shell import Shell

pytestmark = pytest.mark.cluster

Parts = Mapping[str, Any]
Variant = Callable[[TestCluster, Path], tuple[Parts, Parts, Parts]]
"""Gives user, cluster and environment variables of a login; may put files beside the kubeconfig."""


def trusted(cluster: TestCluster, **more: Any) -> Parts:
    ca = base64.b64encode(cluster.ca_pem.encode()).decode()
    return {"server": cluster.server, "certificate-authority-data": ca, **more}


def as_admin(cluster: TestCluster, **more: Any) -> Parts:
    return {"token": cluster.admin.token, **more}


def token_file(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    (folder / "token").write_text(f"{cluster.viewer.token}\n")
    return {"tokenFile": "token", "token": cluster.admin.token}, trusted(cluster), {}


def ca_file(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    (folder / "ca.pem").write_text(cluster.ca_pem)
    return as_admin(cluster), {"server": f"{cluster.server}/", "certificate-authority": "ca.pem"}, {}


def asking(
    answer: Callable[[TestCluster], str], *, code: str = "", cluster_more: Parts | None = None, **more: Any
) -> Variant:
    """Make the variant of a credential plug-in beside the kubeconfig."""

    def parts(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
        plugin = plugins.make(folder / "bin", answer(cluster), code=code)
        return plugin.user(**more), trusted(cluster, **(cluster_more or {})), {}

    return parts


def good(cluster: TestCluster) -> str:
    return plugins.token(cluster.viewer.token)


def admins(cluster: TestCluster) -> str:
    return plugins.token(cluster.admin.token)


def beta(cluster: TestCluster) -> str:
    return plugins.credential({"token": cluster.admin.token}, version=plugins.V1BETA1)


def expiring(time: str) -> Callable[[TestCluster], str]:
    return lambda cluster: plugins.token(cluster.admin.token, expirationTimestamp=time)


def on_path(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    user, server, _ = asking(admins, command="login")(cluster, folder)
    return user, server, {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def self_made(common_name: str) -> Callable[[TestCluster], str]:
    """Give the answer of a plug-in with a certificate that the cluster knows nothing of."""
    pair = self_signed(common_name)
    return lambda _: plugins.credential(
        {"clientCertificateData": pair.certificate, "clientKeyData": pair.key}
    )


def both_proofs(cluster: TestCluster) -> str:
    pair = self_signed("ada")
    status = {"clientCertificateData": pair.certificate, "clientKeyData": pair.key}
    return plugins.credential({"token": cluster.admin.token, **status})


def half(_: TestCluster) -> str:
    return plugins.credential({"clientCertificateData": self_signed("ada").certificate})


def token_and_plugin(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    user, server, _ = asking(good)(cluster, folder)
    return {**user, "token": cluster.admin.token}, server, {}


WANTS_ADMIN = """
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["spec"]["cluster"]
answer = answer if told["config"] == {"audience": "x"} and told["certificate-authority-data"] else "{}"
"""
OWN_CONFIG = {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}]}

PLUGINS: dict[str, Variant] = {
    "plug-in": asking(good, code="print('WARNING: old', file=sys.stderr)"),
    "plug-in of v1beta1": asking(beta, apiVersion=plugins.V1BETA1, interactiveMode=None),
    "plug-in of v1alpha1": asking(
        lambda c: plugins.credential({"token": c.admin.token}, version=f"{plugins.V1}alpha1"),
        apiVersion=f"{plugins.V1}alpha1",
    ),
    "plug-in without version": asking(admins, apiVersion=None),
    "plug-in without mode": asking(admins, interactiveMode=None),
    "plug-in with odd mode": asking(admins, interactiveMode="never"),
    "plug-in if available": asking(admins, interactiveMode="IfAvailable"),
    "plug-in that must ask": asking(admins, interactiveMode="Always"),
    "plug-in beside": asking(admins, command="bin/login"),
    "plug-in on the path": on_path,
    "plug-in that is missing": asking(admins, command="mlstack-no-such-login", installHint="get it"),
    "plug-in that is missing beside": asking(admins, command="./login"),
    "plug-in without command": asking(admins, command=None),
    "plug-in that fails": asking(admins, code="sys.exit(1)"),
    "plug-in without JSON": asking(lambda _: "hello"),
    "plug-in without answer": asking(lambda _: ""),
    "plug-in of another version": asking(beta),
    "plug-in of another kind": asking(lambda c: plugins.credential({"token": c.admin.token}, kind="Secret")),
    "plug-in without status": asking(lambda _: plugins.credential(None)),
    "plug-in without token": asking(lambda _: plugins.credential({})),
    "plug-in with half a certificate": asking(half),
    "plug-in with a strange certificate": asking(self_made("ada")),
    "plug-in with token and certificate": asking(both_proofs),
    "plug-in with no certificate": asking(
        lambda _: plugins.credential({"clientCertificateData": "a", "clientKeyData": "b"})
    ),
    "plug-in with a wrong token": asking(lambda _: plugins.token("wrong")),
    "plug-in that expires later": asking(expiring("2100-01-01T00:00:00Z")),
    "plug-in that has expired": asking(expiring("2020-01-01T00:00:00.5+02:00")),
    "plug-in that never expires": asking(expiring("0001-01-01T00:00:00Z")),
    "plug-in with an odd time": asking(expiring("tomorrow")),
    "plug-in with environment": asking(
        admins,
        code="answer = answer if os.environ.get('A') == 'b' and 'PATH' in os.environ else '{}'",
        env=[{"name": "A", "value": "b"}],
    ),
    "plug-in with nameless environment": asking(admins, env=[{"value": "b"}]),
    "plug-in with arguments": asking(
        admins, code="answer = answer if sys.argv[1:] == ['a b', ''] else '{}'", args=["a b", ""]
    ),
    "plug-in that knows the cluster": asking(
        admins, code=WANTS_ADMIN, provideClusterInfo=True, cluster_more=OWN_CONFIG
    ),
    "plug-in that knows no cluster": asking(admins, code=WANTS_ADMIN, cluster_more=OWN_CONFIG),
    "plug-in and token": token_and_plugin,
    "plug-in and as": lambda c, folder: ({**asking(admins)(c, folder)[0], "as": "viewer"}, trusted(c), {}),
}


def id_token(expires_s: float) -> Parts:
    token = made_up_token(expires_s=expires_s)
    issuer = {"idp-issuer-url": "https://127.0.0.1:1", "client-id": "c", "id-token": token}
    return {"auth-provider": {"name": "oidc", "config": issuer}}


def another_authority(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    (folder / "ca.pem").write_text(self_signed("127.0.0.1").certificate)
    return as_admin(cluster), {"server": cluster.server, "certificate-authority": "ca.pem"}, {}


def served_certificate(cluster: TestCluster) -> str:
    """Give the certificate that the server shows."""
    address = urlsplit(cluster.server)
    return ssl.get_server_certificate((str(address.hostname), int(address.port or 443)))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


VARIANTS: dict[str, Variant] = {
    "token": lambda c, _: (as_admin(c), trusted(c), {}),
    "wrong token": lambda c, _: ({"token": "wrong"}, trusted(c), {}),
    "token file": token_file,
    "authority beside": ca_file,
    "another authority": another_authority,
    "no authority": lambda c, _: (as_admin(c), {"server": c.server}, {}),
    "unverified": lambda c, _: (as_admin(c), {"server": c.server, "insecure-skip-tls-verify": True}, {}),
    "unverified beside an authority": lambda c, _: (
        as_admin(c),
        trusted(c, **{"insecure-skip-tls-verify": True}),
        {},
    ),
    "the server's own certificate": lambda c, folder: (
        as_admin(c),
        {"server": c.server, "certificate-authority-data": encoded(served_certificate(c))},
        {},
    ),
    "server name": lambda c, _: (as_admin(c), trusted(c, **{"tls-server-name": "kubernetes"}), {}),
    "wrong server name": lambda c, _: (as_admin(c), trusted(c, **{"tls-server-name": "example.org"}), {}),
    "as": lambda c, _: (as_admin(c, **{"as": "viewer"}), trusted(c), {}),
    "as groups": lambda c, _: (
        as_admin(c, **{"as": "ada", "as-groups": ["dev", "system:masters"], "as-user-extra": {"a/b": ["c"]}}),
        trusted(c),
        {},
    ),
    "as without right": lambda c, _: ({"token": c.viewer.token, "as": "admin"}, trusted(c), {}),
    "id-token that has expired": lambda c, _: (id_token(1), trusted(c), {}),
    "id-token of a stranger": lambda c, _: (id_token(4_000_000_000), trusted(c), {}),
    "id-token and token": lambda c, _: ({**id_token(1), **as_admin(c)}, trusted(c), {}),
    "provider and plug-in": lambda c, folder: (
        {**id_token(1), **asking(admins)(c, folder)[0]},
        trusted(c),
        {},
    ),
    "provider": lambda c, _: ({"auth-provider": {"name": "azure"}}, trusted(c), {}),
    "proxy for others": lambda c, _: (as_admin(c), trusted(c), {"HTTPS_PROXY": "http://127.0.0.1:1"}),
    "dead proxy": lambda c, _: (as_admin(c), trusted(c, **{"proxy-url": "http://127.0.0.1:1"}), {}),
    "password": lambda c, _: ({"username": "ada", "password": "x"}, trusted(c), {}),
    "token and password": lambda c, _: (as_admin(c, username="ada", password="x"), trusted(c), {}),
    "token file that is missing": lambda c, _: (as_admin(c, tokenFile="none"), trusted(c), {}),
    **PLUGINS,
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_kubeconfig_means_what_it_means_to_kubectl(
    name: str, minikube: TestCluster, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, cluster, environ = VARIANTS[name](minikube, tmp_path)
    file = tmp_path / "config"
    file.write_text(json.dumps(configured(user, cluster)))
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    assert ours(str(file)) == kubectls(programs, str(file))


def configured(user: Parts, cluster: Parts) -> Parts:
    """Give the content of a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
    }


def ours(file: str) -> str:
    """Say whether we may create a ConfigMap; nothing if the server cannot be asked."""
    right = Right(verb="create", group="", resource="configmaps", namespace="default")
    try:
        return "yes" if ports.connect("test", file).may(right) else "no"
    except ClusterError:
        return ""


def kubectls(programs: Programs, file: str) -> str:
    """Let kubectl say it."""
    asked = [str(programs.kubectl), "--kubeconfig", file, "--context", "test", "auth", "can-i"]
    run = subprocess.run(
        [*asked, "create", "configmaps", "-n", "default"],
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return run.stdout.strip()


@pytest.mark.parametrize("version", [plugins.V1, plugins.V1BETA1])
@pytest.mark.parametrize("wants", [False, True], ids=["alone", "with cluster"])
def test_plug_ins_are_asked_as_kubectl_asks_them(
    version: str, wants: bool, minikube: TestCluster, programs: Programs, tmp_path: Path
) -> None:
    answer = plugins.credential({"token": minikube.admin.token}, version=version)
    plugin = plugins.make(tmp_path / "bin", answer)
    file = tmp_path / "config"
    cluster = trusted(minikube, **{"tls-server-name": "kubernetes"}, **OWN_CONFIG)
    user = plugin.user(apiVersion=version, provideClusterInfo=wants)
    file.write_text(json.dumps(configured(user, cluster)))
    assert ours(str(file)) == kubectls(programs, str(file)) == "yes"
    assert len(plugin.asked) == 2
    assert plugin.asked[0] == plugin.asked[1]


def test_a_refused_token_is_renewed_and_the_request_sent_anew(minikube: TestCluster, tmp_path: Path) -> None:
    answers = plugins.token("wrong"), plugins.token(minikube.admin.token)
    plugin = plugins.make(tmp_path / "bin", *answers)
    file = tmp_path / "config"
    file.write_text(json.dumps(configured(plugin.user(), trusted(minikube))))
    assert ours(str(file)) == "yes"
    assert len(plugin.asked) == 2


@pytest.mark.parametrize("kind", [lambda url: ConnectingProxy(url, None), SocksProxy], ids=["http", "socks5"])
def test_a_proxy_is_gone_through_as_by_kubectl(
    kind: Callable[[str], ConnectingProxy], minikube: TestCluster, programs: Programs, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    with kind(minikube.server).running() as proxy:
        cluster = trusted(minikube, **{"proxy-url": proxy.url})
        file.write_text(json.dumps(configured(as_admin(minikube), cluster)))
        assert ours(str(file)) == "yes"
        own = len(proxy.heads)
        assert kubectls(programs, str(file)) == "yes"
    assert 0 < own < len(proxy.heads)


def test_an_id_token_is_renewed_and_kept_as_by_kubectl(
    minikube: TestCluster, programs: Programs, tmp_path: Path
) -> None:
    left = []
    for asks in (ours, partial(kubectls, programs)):
        with FakeProvider(tmp_path).running() as provider:
            provider.own = minikube.service_account("default", "default").token
            file = tmp_path / "config"
            file.write_text(
                json.dumps(configured(provider.user(made_up_token(expires_s=1)), trusted(minikube)))
            )
            assert asks(str(file)) == "no"
            assert kubectls(programs, str(file)) == ours(str(file)) == "no"
        assert len(provider.asked) == 1
        user = yaml.safe_load(file.read_text())["users"][0]["user"]
        left.append({**user["auth-provider"]["config"], "idp-issuer-url": "", "id-token": ""})
        assert user["auth-provider"]["config"]["id-token"] == provider.own
    assert left[0] == left[1]
    assert left[0]["refresh-token"] == "refresh-2"


ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: test\nnamespace: {}\n"
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n"


def test_a_command_runs_its_plug_in_once(minikube: TestCluster, namespace: str, tmp_path: Path) -> None:
    tree = {
        "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
        "components/one.yaml": OBJECT,
        "environments/prod/environment.yaml": ENVIRONMENT.format(namespace),
    }
    root = write_tree(tmp_path / "app", tree)
    plugin = plugins.make(tmp_path / "bin", admins(minikube))
    file = tmp_path / "config"
    file.write_text(json.dumps(configured(plugin.user(), trusted(minikube))))
    verbs = [("apply", "prod", "--yes"), ("diff", "prod"), ("status", "prod"), ("delete", "prod", "--yes")]
    with closing(Shell(root=root, kubeconfig=file)) as shell:
        for count, words in enumerate(verbs, 1):
            code, ran = shell.run(*words)
            assert (code, len(plugin.asked)) == (0, count), ran.err
