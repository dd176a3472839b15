"""Whom the real client trusts, who it says it is, and how it reads kubeconfig files."""

from __future__ import annotations

import json
import os
import shlex
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from mlstack.cluster import kube
from mlstack.cluster.api import ObjectRef
from mlstack.cluster.remote import RemoteCluster
from mlstack.cluster.tls import ca_fingerprint
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, NotFoundError, UnreachableError
from tests.support.certificates import self_signed
from tests.support.fakeapi import Answer, Asked, Serve, always, kubeconfig, serve, status

MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "q", "resourceVersion": "7"},
}
REF = ObjectRef("v1", "ConfigMap", "q", "a")


# Identity and trust


@pytest.fixture
def tls(tmp_path: Path) -> Callable[[str], tuple[ssl.SSLContext, str]]:
    """Make a server's TLS context for a host, and the file clients trust it by."""

    def make(host: str) -> tuple[ssl.SSLContext, str]:
        certificate, key = self_signed(host).write(tmp_path, "server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context, str(certificate)

    return make


def test_the_server_is_verified_by_the_ca_of_the_context(
    tmp_path: Path, tls: Callable[[str], tuple[ssl.SSLContext, str]]
) -> None:
    context, ca = tls("127.0.0.1")
    body = {"metadata": {"name": "kube-system", "uid": "u-1"}}
    with serve(always(Answer(body=body)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, **{"certificate-authority": ca})
        identity = kube.connect("test", kubeconfig=config).identity()
    assert (identity.uid, identity.server) == ("u-1", api.url)
    assert identity.ca is not None
    assert identity.ca.startswith("sha256:")


def test_the_identity_does_not_depend_on_how_the_ca_file_is_written(tmp_path: Path) -> None:
    one, two = (self_signed("127.0.0.1", seed=seed).certificate for seed in "ab")
    (tmp_path / "1").write_text(f"# comment\n{one}\n{two}")
    (tmp_path / "2").write_bytes(f"{two}{one}{one}".replace("\n", "\r\n").encode())
    (tmp_path / "3").write_text(one)
    first, second, third = (ca_fingerprint(str(tmp_path / name)) for name in "123")
    assert first == second
    assert first != third
    assert ca_fingerprint(None) is None


def test_a_uid_that_may_not_be_read_is_none(served: Serve) -> None:
    _, cluster = served(always(status(403, 'User "u" cannot get resource', reason="Forbidden")))
    assert cluster.identity().uid is None


@pytest.mark.parametrize(
    ("host", "trusted", "reason"),
    [
        ("127.0.0.1", False, "TLS fails: self-signed certificate"),
        ("elsewhere.example", True, "TLS fails: IP address mismatch"),
    ],
    ids=["unknown CA", "another name"],
)
def test_a_server_that_cannot_be_verified_gets_no_request(
    tmp_path: Path, tls: Callable[[str], tuple[ssl.SSLContext, str]], host: str, trusted: bool, reason: str
) -> None:
    context, ca = tls(host)
    with serve(always(Answer(body={})), tls=context).running() as api:
        cluster = {"certificate-authority": ca} if trusted else {}
        config = kubeconfig(tmp_path, api.url, **cluster)
        with pytest.raises(UnreachableError, match=reason):
            kube.connect("test", kubeconfig=config).get(REF)
    assert api.asked == []


def test_the_name_to_verify_can_be_another_than_the_address(
    tmp_path: Path, tls: Callable[[str], tuple[ssl.SSLContext, str]]
) -> None:
    context, ca = tls("kubernetes")
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        cluster = {"certificate-authority": ca, "tls-server-name": "kubernetes"}
        assert kube.connect("test", kubeconfig=kubeconfig(tmp_path, api.url, **cluster)).get(REF) == MAP


def test_verification_is_off_only_where_the_kubeconfig_says_so(
    tmp_path: Path, tls: Callable[[str], tuple[ssl.SSLContext, str]]
) -> None:
    context, _ = tls("127.0.0.1")
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, **{"insecure-skip-tls-verify": True})
        assert kube.connect("test", kubeconfig=config).get(REF) == MAP


def test_a_server_without_tls_says_so(served: Serve, tmp_path: Path) -> None:
    api, _ = served(always(Answer(body={})))
    config = kubeconfig(tmp_path, api.url.replace("http:", "https:"))
    with pytest.raises(UnreachableError, match="does not speak TLS"):
        kube.connect("test", kubeconfig=config).get(REF)


# Kubeconfig and credentials


def refused(text: str, tmp_path: Path, context: str = "test") -> MlstackError:
    file = tmp_path / "broken"
    file.write_text(text)
    with pytest.raises(MlstackError) as caught:
        kube.connect(context, kubeconfig=str(file))
    return caught.value


def test_an_unknown_context_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no context `tset`; it has `test`") as caught:
        kube.connect("tset", kubeconfig=kubeconfig(tmp_path, "https://127.0.0.1:1"))
    assert caught.value.near == "test"


@pytest.mark.parametrize(
    ("cluster", "user", "told"),
    [
        ({"server": "https://h"}, None, "the credentials or certificates of context `test` cannot be used"),
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
        ({"server": "https://h"}, {"auth-provider": {"name": "azure"}}, "come from auth-provider `azure`"),
        ({"server": "https://h"}, {"token": "t", "as-groups": ["a"]}, "not say clearly as whom to act"),
        ({"server": "https://h", "proxy-url": "socks5://u:p@h"}, {}, "through a proxy that mlstack does not"),
    ],
    ids=[
        "no-user",
        "server-number",
        "server-bare",
        "no-ca",
        "odd-ca",
        "no-cert",
        "no-token",
        "token-empty",
        "provider",
        "provider-odd",
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
        kube.connect("test", kubeconfig=str(tmp_path / "none"))
    assert caught.value.hint is not None
    assert "KUBECONFIG" in caught.value.hint


def test_the_environment_names_the_kubeconfig_at_the_time_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, "https://127.0.0.1:1"))
    assert isinstance(kube.connect("test"), RemoteCluster)


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


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    file, program = tmp_path / "plugin", tmp_path / "plugin.py"
    program.write_text(script)
    file.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, str(program)])}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    api_version = "client.authentication.k8s.io/v1"
    return {
        "exec": {"apiVersion": api_version, "command": str(file), "args": [], "installHint": "install it"}
    }


COUNTING = """
import json, pathlib
count = pathlib.Path(__file__ + ".count")
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
status = {"token": f"token-{number}"}
answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
print(json.dumps({**answer, "status": status}))
"""


def test_refused_credentials_are_renewed_once_by_the_plug_in(tmp_path: Path) -> None:
    def script(asked: Asked) -> Answer:
        fresh = asked.headers["authorization"] == "Bearer token-2"
        return Answer(body=MAP) if fresh else status(401, "Unauthorized", reason="Unauthorized")

    with serve(script).running() as api:
        config = kubeconfig(tmp_path, api.url, user=plugin(tmp_path, COUNTING))
        cluster = kube.connect("test", kubeconfig=config)
        assert cluster.get(REF) == MAP
        assert cluster.get(REF) == MAP
    assert len(api.asked) == 3


def test_a_plug_in_runs_once_for_all_whose_credentials_are_refused(tmp_path: Path) -> None:
    together = Barrier(8)

    def script(asked: Asked) -> Answer:
        if asked.headers["authorization"] == "Bearer token-1":
            together.wait(timeout=10)
            return status(401, "Unauthorized", reason="Unauthorized")
        return Answer(body=MAP)

    with serve(script).running() as api:
        user = plugin(tmp_path, COUNTING)
        cluster = kube.connect("test", kubeconfig=kubeconfig(tmp_path, api.url, user=user))
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(cluster.get, [REF] * 8)) == [MAP] * 8
    assert (tmp_path / "plugin.py.count").read_text() == "2"


def test_a_token_file_counts_before_a_token_and_is_read_again(tmp_path: Path) -> None:
    def script(asked: Asked) -> Answer:
        fresh = asked.headers["authorization"] == "Bearer new"
        return Answer(body=MAP) if fresh else status(401, "Unauthorized", reason="Unauthorized")

    (tmp_path / "token").write_text("old\n")
    with serve(script).running() as api:
        config = kubeconfig(tmp_path, api.url, user={"token": "other", "tokenFile": "token"})
        cluster = kube.connect("test", kubeconfig=config)
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
        assert kube.connect("test", kubeconfig=config).get(REF) == MAP
    sent = api.asked[0].headers
    assert (sent["host"], sent["proxy-authorization"]) == ("cluster.example", "Basic YWRhOnBAc3M=")


def test_a_password_in_the_address_is_in_no_message(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "https://ada:hush@127.0.0.1:1")
    with pytest.raises(UnreachableError, match=r"at https://127\.0\.0\.1:1: ") as caught:
        kube.connect("test", kubeconfig=config).get(REF)
    assert "hush" not in caught.value.describe()


def test_empty_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing yet\n")
    files = os.pathsep.join((str(tmp_path / "empty"), kubeconfig(tmp_path, "https://127.0.0.1:1")))
    assert isinstance(kube.connect("test", kubeconfig=files), RemoteCluster)
    with pytest.raises(NotFoundError, match="there is no kubeconfig"):
        kube.connect("test", kubeconfig=str(tmp_path / "empty"))


def test_an_expired_token_says_so(served: Serve) -> None:
    api, cluster = served(always(status(401, "Unauthorized", reason="Unauthorized")))
    with pytest.raises(ForbiddenError, match="does not accept the credentials") as caught:
        cluster.identity()
    assert caught.value.why == "credentials"
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('session is over')", "session is over"),
        ("print('{}')", "missing key"),
        ("print('no json')", "failed to decode"),
    ],
    ids=["fails", "empty", "garbage"],
)
def test_a_failing_plug_in_is_named_with_what_it_said(tmp_path: Path, script: str, said: str) -> None:
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=plugin(tmp_path, script))
    with pytest.raises(ForbiddenError, match=said) as caught:
        kube.connect("test", kubeconfig=config)
    assert caught.value.hint == "install it"


def test_a_missing_plug_in_is_named(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plug-in"}}
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=user)
    with pytest.raises(ForbiddenError, match="`no-such-plug-in` of context `test` fails"):
        kube.connect("test", kubeconfig=config)


def test_an_identity_provider_without_a_ca_is_still_verified(
    tmp_path: Path, tls: Callable[[str], tuple[ssl.SSLContext, str]]
) -> None:
    context, _ = tls("127.0.0.1")
    expired = "e30.eyJleHAiOjF9.c2ln"  # {"exp": 1}
    with serve(always(Answer(body={})), tls=context).running() as provider:
        settings = {
            "id-token": expired,
            "refresh-token": "refresh",
            "client-id": "c",
            "client-secret": "s",
            "idp-issuer-url": provider.url,
        }
        user = {"auth-provider": {"name": "oidc", "config": settings}}
        config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=user)
        before = Path(config).read_text()
        with pytest.raises(ClusterError, match="credentials"):
            kube.connect("test", kubeconfig=config)
    assert provider.asked == []
    assert Path(config).read_text() == before


def test_the_library_is_imported_on_first_use_only() -> None:
    code = (
        "import sys, mlstack.cluster.kube; sys.exit('kubernetes' in sys.modules or 'urllib3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0


def test_in_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    certificate = self_signed("127.0.0.1").write(tmp_path, "ca")[0]
    (tmp_path / "token").write_text("token-of-the-pod")
    monkeypatch.setattr(kube, "_SERVICE_ACCOUNT_CA", certificate)
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "ca.key")
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rpartition(":")[2])
        assert kube.connect().get(REF) == MAP
    assert api.asked[0].headers["authorization"].lower() == "bearer token-of-the-pod"
    with pytest.raises(NotFoundError):
        kube.connect("test")
