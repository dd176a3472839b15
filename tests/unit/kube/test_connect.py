"""The door to real clusters: whom it trusts, who it says we are, and through which proxy it goes."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ClusterError, ForbiddenError, MlstackError, NotFoundError, UnreachableError
from mlstack.http import fingerprint
from mlstack.kube.api_server import ApiServerClient, connect
from mlstack.kube.client import ObjectRef
from tests.support import plugins
from tests.support.certificates import Certificate, self_signed, tls_server
from tests.support.fakeapi import Answer, Asked, FakeApi, Serve, always, kubeconfig, serve, status
from tests.support.providers import LATER_S, id_token

MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "q", "resourceVersion": "7"},
}
REF = ObjectRef("v1", "ConfigMap", "q", "a")
# The key of `self_signed("ada")` under the password `x`.
ENCRYPTED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAh8f4skLCwF0gICA+gw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEAQIEEPCJ5/trzsaCtVuaQ7hHiMIEgZD0
U3GH99IRZ/J98KXU2VHGQKpenjTVxDoc4KWpBc+7oajfP5+H1NEPMqzLyRymgqUW
XqBcUHlIGlPISz9BirdbnXRN0mRqLLBw4qUuQqXwNd10HOlOmbigu2sJDNphY9OF
/K6JnfLdmhElOZCYwjUDcHfYyy+zHnUnYQLOB+Vuw5pHF0p1gtCqSoxkmsAOPdQ=
-----END ENCRYPTED PRIVATE KEY-----
"""


def opened(config: str) -> ApiServerClient:
    return connect("test", kubeconfig=config)


def reached(folder: Path, context: ssl.SSLContext | None = None, **entry: Any) -> FakeApi:
    """Get the object of a server by what a kubeconfig says of it, and give the server."""
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        assert opened(kubeconfig(folder, api.url, **entry)).get(REF) == MAP
    return api


def unreached(folder: Path, context: ssl.SSLContext | None = None, **entry: Any) -> str:
    """Say why there is no answer from a server that was asked nothing."""
    api = serve(always(Answer(body=MAP)), tls=context)
    with api.running(), pytest.raises(UnreachableError) as caught:
        opened(kubeconfig(folder, api.url, **entry)).get(REF)
    assert api.asked == []
    return "".join(traceback.format_exception(caught.value))


def tls(
    folder: Path, host: str, leaf: Certificate | None = None, *between: Certificate
) -> tuple[ssl.SSLContext, str]:
    """Make a server's TLS context for a host, and the file clients trust it by."""
    leaf = leaf or self_signed(host)
    chain = leaf.certificate + "".join(issuer.certificate for issuer in between)
    return tls_server(folder, replace(leaf, certificate=chain))


def test_the_server_is_verified_and_told_who_we_are(tmp_path: Path) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    headers = (
        reached(tmp_path, context, user={"token": "t-1"}, **{"certificate-authority": ca}).asked[0].headers
    )
    assert headers["authorization"] == "Bearer t-1"
    assert headers["user-agent"].startswith("mlstack/")


@pytest.mark.parametrize(
    ("host", "trusted", "reason"),
    [
        ("127.0.0.1", False, "TLS fails: self-signed certificate"),
        ("elsewhere.example", True, "TLS fails: IP address mismatch"),
    ],
    ids=["unknown CA", "another name"],
)
def test_a_server_that_cannot_be_verified_gets_no_request(
    tmp_path: Path, host: str, trusted: bool, reason: str
) -> None:
    context, ca = tls(tmp_path, host)
    assert reason in unreached(tmp_path, context, **({"certificate-authority": ca} if trusted else {}))


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("https://[fd00:0::1]", ("fd00::1", 443)),
        ("https://[fd00::1]:6443/k8s/", ("fd00::1", 6443)),
        ("https://[fe80::1%25eth0]:6443", ("fe80::1%eth0", 6443)),
        ("https://[fe80::1%25eth0]/k8s", ("fe80::1%eth0", 443)),
    ],
)
def test_a_server_may_be_an_ipv6_address_with_a_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, place: tuple[str, int]
) -> None:
    context, ca = tls(tmp_path, place[0].partition("%")[0])
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        here, places = socket.getaddrinfo("127.0.0.1", int(api.url.rpartition(":")[2])), list[Any]()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **_: places.append(asked[:2]) or here)
        assert opened(kubeconfig(tmp_path, server, **{"certificate-authority": ca})).get(REF) == MAP
    assert {place} == {*places}
    assert api.asked[0].path.startswith("/k8s/" if "k8s" in server else "/api/")


def test_a_name_that_is_no_alternative_name_is_none(tmp_path: Path) -> None:
    context, ca = tls(tmp_path, "kubernetes", self_signed("kubernetes", has_alternative=False))
    why = unreached(tmp_path, context, **{"certificate-authority": ca, "tls-server-name": "kubernetes"})
    assert re.search("TLS fails: .*kubernetes", why)


ROOT = self_signed("root")
MIDDLE = self_signed("middle", issuer=ROOT)
SIGNED = self_signed("127.0.0.1", issuer=MIDDLE)


@pytest.mark.parametrize(
    ("trusted", "sent", "is_trusted"),
    [
        (ROOT, [MIDDLE], True),
        (ROOT, [], False),
        (MIDDLE, [], True),
        (MIDDLE, [MIDDLE], True),
        (SIGNED, [], True),
        (SIGNED, [MIDDLE], True),
        (self_signed("middle", seed="other"), [MIDDLE], False),
    ],
    ids=["root", "root alone", "middle", "middle sent", "own", "own sent", "namesake"],
)
def test_any_certificate_of_the_chain_may_be_trusted(
    tmp_path: Path, trusted: Certificate, sent: list[Certificate], is_trusted: bool
) -> None:
    context, _ = tls(tmp_path, "127.0.0.1", SIGNED, *sent)
    authority = base64.b64encode(trusted.certificate.encode()).decode()
    if is_trusted:
        reached(tmp_path, context, **{"certificate-authority-data": authority})
    else:
        assert "TLS fails" in unreached(tmp_path, context, **{"certificate-authority-data": authority})


def test_the_name_to_verify_can_be_another_than_the_address(tmp_path: Path) -> None:
    context, ca = tls(tmp_path, "kubernetes")
    reached(tmp_path, context, **{"certificate-authority": ca, "tls-server-name": "kubernetes"})


def test_verification_is_off_only_where_the_kubeconfig_says_so(tmp_path: Path) -> None:
    context, _ = tls(tmp_path, "127.0.0.1")
    reached(tmp_path, context, **{"insecure-skip-tls-verify": True})


@pytest.mark.parametrize("inline", [True, False], ids=["in the kubeconfig", "in files"])
def test_a_client_certificate_is_shown(tmp_path: Path, inline: bool) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    own, key = self_signed("ada").write(tmp_path, "client")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=own)
    files = {"client-certificate": own, "client-key": key}
    user: dict[str, Any] = (
        {f"{name}-data": base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
        if inline
        else {name: str(file) for name, file in files.items()}
    )
    reached(tmp_path, context, user=user, **{"certificate-authority": ca})


def test_one_acts_as_whom_the_kubeconfig_says(tmp_path: Path) -> None:
    user = {"token": "t", "as": "ada", "as-groups": ["dev", "ops"], "as-uid": "7"}
    sent = reached(tmp_path, user={**user, "as-user-extra": {"A/b": ["1"]}}).asked[0].headers
    assert sent["impersonate-extra-a%2fb"] == "1"
    assert (sent["impersonate-user"], sent["impersonate-uid"]) == ("ada", "7")
    assert sent["impersonate-group"] == "ops"  # the last of two headers, not both in one
    assert sent["authorization"] == "Bearer t"


def test_the_identity_has_the_authority(tmp_path: Path) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    body = {"metadata": {"name": "kube-system", "uid": "u-1"}}
    with serve(always(Answer(body=body)), tls=context).running() as api:
        identity = opened(kubeconfig(tmp_path, api.url, **{"certificate-authority": ca})).identity()
    assert (identity.uid, identity.server) == ("u-1", api.url)
    assert identity.ca == fingerprint(Path(ca).read_text())


@pytest.mark.parametrize("inline", [True, False], ids=["in the kubeconfig", "in a file"])
def test_an_authority_that_verifies_nobody_is_refused(tmp_path: Path, inline: bool) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    authority = (
        {"certificate-authority-data": base64.b64encode(Path(ca).read_bytes()).decode()}
        if inline
        else {"certificate-authority": ca}
    )
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, **authority, **{"insecure-skip-tls-verify": True})
        with pytest.raises(ClusterError, match="authority, and says insecure-skip-tls-verify") as caught:
            opened(config).get(REF)
    assert (caught.value.exit_code, caught.value.where, api.asked) == (6, config, [])


def test_over_http_neither_counts(tmp_path: Path) -> None:
    reached(tmp_path, **{"certificate-authority-data": "aGk=", "insecure-skip-tls-verify": True})


SECRET = "hush"
NOBODY = status(401, "Unauthorized", reason="Unauthorized")


def asking(folder: Path, **more: Any) -> dict[str, Any]:
    return plugins.make(folder / "bin", plugins.token(SECRET)).user(**more)


USERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "token": lambda folder: {"token": SECRET},
    "token file": lambda folder: {"tokenFile": str(folder / "token")},
    "password": lambda folder: {"username": "ada", "password": SECRET},
    "plug-in": asking,
    "plug-in and as": lambda folder: {**asking(folder), "as": "ada"},
    "id-token": lambda folder: {
        "auth-provider": {"name": "oidc", "config": {"id-token": id_token(expires_s=LATER_S, name=SECRET)}}
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    "server",
    [
        "http://cluster.example",
        "http://localhost.example:8001",
        "http://127.0.0.1.example",
        "HTTP://10.0.0.1:8080/k8s",
        "http://127.0.0.1@cluster.example",
        "http://127.0.0.1:8001",
        "http://localhost",
    ],
)
def test_nobody_is_told_who_we_are_over_a_network_without_tls(tmp_path: Path, user: str, server: str) -> None:
    """All go through a proxy: whoever stands on the way reads what is sent, to the machine itself too."""
    (tmp_path / "token").write_text(SECRET)
    credentials = USERS[user](tmp_path)
    with serve(always(NOBODY)).running() as api:
        config = kubeconfig(tmp_path, server, user=credentials, **{"proxy-url": api.url})
        with pytest.raises(ForbiddenError) as caught:
            opened(config).get(REF)
    assert "is sent over http://" in (caught.value.hint or "")
    assert len(api.asked) == 1
    assert "authorization" not in api.asked[0].headers
    assert SECRET not in str(api.asked)
    assert not (tmp_path / "bin" / "runs").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_the_machine_itself_is_told_who_we_are(tmp_path: Path, host: str) -> None:
    with serve(always(Answer(body=MAP))).running() as api:
        server = api.url.replace("127.0.0.1", host)
        assert opened(kubeconfig(tmp_path, server, user={"token": "t"})).get(REF) == MAP
    assert api.asked[0].headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_to_http_gets_no_token(tmp_path: Path, code: int) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    with serve(always(Answer(body=MAP))).running() as plain:
        moved = Answer(code=code, body={}, headers=(("Location", f"{plain.url}/api"),))
        with serve(always(moved), tls=context).running() as api:
            config = kubeconfig(tmp_path, api.url, **{"certificate-authority": ca})
            with pytest.raises(ClusterError):
                opened(config).get(REF)
            with pytest.raises(ClusterError):
                opened(config).create(MAP)
    assert plain.asked == []


def test_a_token_that_no_header_takes_is_told_without_it(tmp_path: Path) -> None:
    why = unreached(tmp_path, user={"token": "hush\nX: y"})
    assert "characters that cannot be sent" in why
    assert "hush" not in why


def test_the_identity_does_not_depend_on_how_the_ca_file_is_written() -> None:
    ca, other = (self_signed("127.0.0.1", seed=seed).certificate for seed in "ab")
    first = fingerprint(f"# comment\n{ca}\n{other}")
    assert first == fingerprint(f"{other}{ca}{ca}".replace("\n", "\r\n"))
    assert first != fingerprint(ca)
    assert fingerprint("none") is None


def test_whatever_stands_around_certificates_is_passed_over(tmp_path: Path) -> None:
    context, ca = tls(tmp_path, "127.0.0.1")
    Path(ca).write_bytes(b"Ren\xe9's\n" + Path(ca).read_bytes() + b"\nend")
    reached(tmp_path, context, **{"certificate-authority": ca})


def test_an_encrypted_key_is_refused_and_nobody_asked_for_its_password(tmp_path: Path) -> None:
    own, key = self_signed("ada").write(tmp_path, "client")
    key.write_text(ENCRYPTED)
    user = {"client-certificate": str(own), "client-key": str(key)}
    with pytest.raises(ClusterError, match="cannot be used: the client key is encrypted"):
        opened(kubeconfig(tmp_path, "https://127.0.0.1:1", user=user))


def test_a_name_and_password_are_told(tmp_path: Path) -> None:
    api = reached(tmp_path, user={"username": "ada", "password": "p@ss"})
    assert api.asked[0].headers["authorization"] == "Basic YWRhOnBAc3M="


def test_a_uid_that_may_not_be_read_is_none(served: Serve) -> None:
    _, cluster = served(always(status(403, 'User "u" cannot get resource', reason="Forbidden")))
    assert cluster.identity().uid is None


def test_a_server_without_tls_says_so(served: Serve, tmp_path: Path) -> None:
    api, _ = served(always(Answer(body={})))
    config = kubeconfig(tmp_path, api.url.replace("http:", "https:"))
    with pytest.raises(UnreachableError, match="does not speak TLS"):
        connect("test", kubeconfig=config).get(REF)


def refused(text: str, tmp_path: Path, context: str = "test") -> MlstackError:
    file = tmp_path / "broken"
    file.write_text(text)
    with pytest.raises(MlstackError) as caught:
        connect(context, kubeconfig=str(file))
    return caught.value


def test_an_unknown_context_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no context `tset`; it has `test`") as caught:
        connect("tset", kubeconfig=kubeconfig(tmp_path, "https://127.0.0.1:1"))
    assert caught.value.near == "test"


HOST = {"server": "https://h"}
NO_CREDENTIALS = "the credentials or certificates of context `test` cannot be used"


def oidc(**config: str) -> dict[str, Any]:
    return {"auth-provider": {"name": "oidc", "config": config}}


LACKS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "odd token": (HOST, {"token": 3}, NO_CREDENTIALS),
    "odd token file": (HOST, {"tokenFile": ["t"]}, NO_CREDENTIALS),
    "odd certificate": (HOST, {"client-certificate-data": "no base64"}, NO_CREDENTIALS),
    "odd plug-in": (HOST, {"exec": "login"}, NO_CREDENTIALS),
    "odd server": ({"server": "https://h k"}, {}, "has an address of an API server that is not a URL"),
    "server as number": ({"server": 6443}, {}, "context `test` has no address of an API server"),
    "bare server": ({"server": "h:6443"}, {}, "context `test` has no address of an API server"),
    "no authority": ({**HOST, "certificate-authority": "/no/ca"}, {}, "needs the file /no/ca"),
    "odd authority": ({**HOST, "certificate-authority-data": "aGk="}, {}, "cannot be used"),
    "no certificate": (HOST, {"client-certificate": "/no/crt", "client-key": "/no/key"}, "file /no/crt"),
    "no token file": (HOST, {"tokenFile": "/no/token"}, "needs the file /no/token"),
    "empty token file": (HOST, {"tokenFile": os.devnull}, "the token file of context `test` is empty"),
    "provider": (HOST, {"auth-provider": {"name": "gcp"}}, "come from auth-provider `gcp`"),
    "old id-token": (
        HOST,
        oidc(**{"id-token": id_token(expires_s=1)}),
        "the id-token of context `test` has expired and cannot be renewed: the kubeconfig has no",
    ),
    "no id-token": (HOST, oidc(), "is missing and cannot be renewed: the kubeconfig has no `refresh-token`"),
    "odd id-token": (HOST, oidc(**{"id-token": "a.b.c"}), NO_CREDENTIALS),
    "two ways": (HOST, {"token": "t", "password": "p"}, "shows the server both a token and a password"),
    "groups alone": (HOST, {"token": "t", "as-groups": ["a"]}, "not say clearly as whom to act"),
    "proxy": ({**HOST, "proxy-url": "socks4://u:p@h"}, {}, "through a proxy that mlstack does not"),
}


@pytest.mark.parametrize(("cluster", "user", "message"), LACKS.values(), ids=LACKS)
def test_what_a_context_needs_and_does_not_have_is_named_with_the_next_step(
    tmp_path: Path, cluster: dict[str, Any], user: Any, message: str
) -> None:
    content = {
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    error = refused(json.dumps(content), tmp_path)
    assert message in error.message
    assert error.exit_code == 6
    assert error.hint is not None


def test_no_kubeconfig_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no kubeconfig at") as caught:
        connect("test", kubeconfig=str(tmp_path / "none"))
    assert caught.value.hint is not None
    assert "KUBECONFIG" in caught.value.hint


def test_the_environment_names_the_kubeconfig_at_the_time_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, "https://127.0.0.1:1"))
    assert isinstance(connect("test"), ApiServerClient)


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
    def script(request: Asked) -> Answer:
        fresh = request.headers["authorization"] == "Bearer new"
        return Answer(body=MAP) if fresh else status(401, "Unauthorized", reason="Unauthorized")

    (tmp_path / "token").write_text("old\n")
    with serve(script).running() as api:
        config = kubeconfig(tmp_path, api.url, user={"token": "other", "tokenFile": "token"})
        cluster = connect("test", kubeconfig=config)
        (tmp_path / "token").write_text("new\n")
        assert cluster.get(REF) == MAP
    assert [request.headers["authorization"] for request in api.asked] == ["Bearer old", "Bearer new"]


def test_the_proxy_of_a_context_is_told_its_password_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")  # kubectl asks the proxy of a context all the same
    with serve(always(Answer(body=MAP))).running() as api:
        proxy = api.url.replace("//", "//ada:p%40ss@")
        config = kubeconfig(tmp_path, "http://cluster.example", **{"proxy-url": proxy})
        assert connect("test", kubeconfig=config).get(REF) == MAP
    sent = api.asked[0].headers
    assert (sent["host"], sent["proxy-authorization"]) == ("cluster.example", "Basic YWRhOnBAc3M=")


def test_a_password_in_the_address_is_in_no_message(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "https://ada:hush@127.0.0.1:1")
    with pytest.raises(UnreachableError, match=r"at https://127\.0\.0\.1:1: ") as caught:
        connect("test", kubeconfig=config).get(REF)
    assert "hush" not in caught.value.describe()


def test_empty_files_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").write_text("# nothing yet\n")
    files = os.pathsep.join((str(tmp_path / "empty"), kubeconfig(tmp_path, "https://127.0.0.1:1")))
    monkeypatch.setenv("KUBECONFIG", files)
    assert isinstance(connect("test"), ApiServerClient)
    with pytest.raises(NotFoundError, match="there is no kubeconfig"):
        connect("test", kubeconfig=str(tmp_path / "empty"))


def test_an_expired_token_says_so(served: Serve) -> None:
    api, cluster = served(always(status(401, "Unauthorized", reason="Unauthorized")))
    with pytest.raises(ForbiddenError, match="does not accept the credentials") as caught:
        cluster.identity()
    assert (caught.value.why, caught.value.where) == ("credentials", "context `test`")
    assert len(api.asked) == 1
