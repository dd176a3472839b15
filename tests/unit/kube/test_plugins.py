"""Logins by credential plug-ins: when they run, what they are told, and what is said when they fail."""

from __future__ import annotations

import json
import os
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from mlstack.errors import ForbiddenError
from mlstack.kube import login
from mlstack.kube.api_server import ApiServerClient, connect
from mlstack.kube.client import ObjectRef
from mlstack.kube.login import Plugin, Proof
from tests.support import plugins
from tests.support.certificates import self_signed, tls_server
from tests.support.fakeapi import Answer, Asked, FakeApi, Script, always, kubeconfig, serve, status
from tests.support.plugins import FakePlugin

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "q"}}
REF = ObjectRef("v1", "ConfigMap", "q", "a")
NOBODY = status(401, "Unauthorized", reason="Unauthorized")


def only(token: str) -> Script:
    """Take one token alone."""
    return lambda call: Answer(body=MAP) if call.headers.get("authorization") == f"Bearer {token}" else NOBODY


def opened(tmp_path: Path, api: FakeApi, plugin: FakePlugin, **more: Any) -> ApiServerClient:
    return connect("test", kubeconfig=kubeconfig(tmp_path, api.url, user=plugin.user(**more)))


def failed(tmp_path: Path, plugin: FakePlugin, **more: Any) -> ForbiddenError:
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user=plugin.user(**more))
    with pytest.raises(ForbiddenError) as caught:
        connect("test", kubeconfig=config)
    assert caught.value.why == "credentials"
    assert caught.value.where == config
    return caught.value


def in_time(**span: float) -> str:
    return (datetime.now(UTC) + timedelta(**span)).isoformat(timespec="seconds")


def test_one_run_is_enough_for_all_requests(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("t", expirationTimestamp=in_time(hours=1)))
    with serve(only("t")).running() as api:
        cluster = opened(tmp_path, api, plugin)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(cluster.get, [REF] * 8)) == [MAP] * 8
    assert plugin.asked == [
        {"apiVersion": plugins.V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    ]


def test_v1beta1_is_spoken_too(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.credential({"token": "t"}, version=plugins.V1BETA1))
    with serve(only("t")).running() as api:
        cluster = opened(tmp_path, api, plugin, apiVersion=plugins.V1BETA1, interactiveMode=None)
        assert cluster.get(REF) == MAP
    assert plugin.asked[0]["apiVersion"] == plugins.V1BETA1


def test_what_has_expired_is_got_anew_before_the_next_request(tmp_path: Path) -> None:
    over = plugins.token("old", expirationTimestamp=in_time(seconds=-1))
    plugin = plugins.make(tmp_path / "p", over, plugins.token("new"))
    with serve(only("new")).running() as api:
        cluster = opened(tmp_path, api, plugin)
        assert cluster.get(REF) == cluster.get(REF) == MAP
    assert [request.headers["authorization"] for request in api.asked] == ["Bearer new"] * 2
    assert len(plugin.asked) == 2


def test_what_is_refused_is_got_anew_once(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("old"), plugins.token("new"))
    with serve(only("new")).running() as api:
        cluster = opened(tmp_path, api, plugin)
        assert cluster.get(REF) == cluster.get(REF) == MAP
    assert len(api.asked) == 3


def test_a_server_that_refuses_all_ends_it(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("t"))
    with serve(always(NOBODY)).running() as api:
        cluster = opened(tmp_path, api, plugin)
        with pytest.raises(ForbiddenError, match="does not accept the credentials"):
            cluster.get(REF)
    assert (len(api.asked), len(plugin.asked)) == (2, 2)


def test_it_runs_once_for_all_who_are_refused(tmp_path: Path) -> None:
    together = Barrier(8)

    def script(request: Asked) -> Answer:
        if request.headers["authorization"] == "Bearer old":
            together.wait(timeout=30)
            return NOBODY
        return Answer(body=MAP)

    plugin = plugins.make(tmp_path / "p", plugins.token("old"), plugins.token("new"))
    with serve(script).running() as api:
        cluster = opened(tmp_path, api, plugin)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(cluster.get, [REF] * 8)) == [MAP] * 8
    assert len(plugin.asked) == 2


@pytest.mark.slow
def test_its_failure_counts_for_all_who_wait_for_it(tmp_path: Path) -> None:
    together = Barrier(8)

    def script(request: Asked) -> Answer:
        together.wait(timeout=30)
        return NOBODY

    code = "import time\nif number > 1: time.sleep(0.5); sys.exit(3)"
    plugin = plugins.make(tmp_path / "p", plugins.token("old"), code=code)
    with serve(script).running() as api:
        cluster = opened(tmp_path, api, plugin)
        with ThreadPoolExecutor(8) as pool:
            errors = [run.exception() for run in [pool.submit(cluster.get, REF) for _ in range(8)]]
    assert {str(error).partition(" failed ")[2] for error in errors} == {"with exit code 3"}
    assert len(plugin.asked) < 8


def test_a_certificate_of_a_plug_in_is_shown(tmp_path: Path) -> None:
    ada = self_signed("ada")
    context, ca = tls_for(tmp_path, ada.certificate)
    status = {"clientCertificateData": ada.certificate, "clientKeyData": ada.key}
    plugin = plugins.make(tmp_path / "p", plugins.credential(status))
    with serve(always(Answer(body=MAP)), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, user=plugin.user(), **{"certificate-authority": ca})
        assert connect("test", kubeconfig=config).get(REF) == MAP
    assert "authorization" not in api.asked[0].headers


def test_a_new_certificate_is_shown_on_new_connections(tmp_path: Path) -> None:
    old, new = self_signed("ada"), self_signed("bob")
    context, ca = tls_for(tmp_path, old.certificate + new.certificate)
    answers = [
        plugins.credential({"clientCertificateData": cert.certificate, "clientKeyData": cert.key})
        for cert in (old, new)
    ]
    plugin = plugins.make(tmp_path / "p", *answers)
    replies = iter([Answer(body=MAP), NOBODY, Answer(body=MAP)])
    with serve(lambda request: next(replies), tls=context).running() as api:
        config = kubeconfig(tmp_path, api.url, user=plugin.user(), **{"certificate-authority": ca})
        cluster = connect("test", kubeconfig=config)
        assert cluster.get(REF) == cluster.get(REF) == MAP
    assert (len(plugin.asked), api.connections) == (2, 2)


def tls_for(folder: Path, clients: str) -> tuple[ssl.SSLContext, str]:
    context, ca = tls_server(folder)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=clients)
    return context, ca


def test_it_has_our_environment_and_its_own_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "k")
    monkeypatch.setenv("LAID_OVER", "old")
    code = "answer = answer.replace('VALUE', os.environ['KEPT'] + os.environ['LAID_OVER'] + sys.argv[1])"
    plugin = plugins.make(tmp_path / "p", plugins.token("VALUE"), code=code)
    with serve(only("kna")).running() as api:
        env = [{"name": "LAID_OVER", "value": "n"}, {"name": "KUBERNETES_EXEC_INFO", "value": "{}"}]
        assert opened(tmp_path, api, plugin, env=env, args=["a"]).get(REF) == MAP
    assert plugin.asked[0]["kind"] == "ExecCredential"


def test_it_is_told_of_the_cluster_if_it_wants_to_know(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("t"))
    with serve(only("t")).running() as api:
        assert opened(tmp_path, api, plugin, provideClusterInfo=True).get(REF) == MAP
    assert plugin.asked[0]["spec"] == {"interactive": False, "cluster": {"server": api.url, "config": None}}


def test_a_name_is_found_on_the_path_and_a_path_beside_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("t"))
    monkeypatch.setenv("PATH", f"{plugin.folder}{os.pathsep}{os.environ['PATH']}")
    with serve(only("t")).running() as api:
        for command in ("login", "p/login", "./p/login"):
            assert opened(tmp_path, api, plugin, command=command).get(REF) == MAP


def test_what_lies_in_the_working_directory_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("t"))
    monkeypatch.chdir(plugin.folder)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    assert "is not installed" in failed(tmp_path, plugin, command="login").message
    assert plugin.asked == []


def test_what_it_says_on_stderr_reaches_the_person(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("t"), code="print('look here', file=sys.stderr)")
    with serve(only("t")).running() as api:
        assert opened(tmp_path, api, plugin).get(REF) == MAP
    assert capfd.readouterr() == ("", "look here\n")


def test_a_failing_one_is_named_with_its_exit_code(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p", plugins.token("hush"), code="sys.exit(7)")
    error = failed(tmp_path, plugin, args=["--secret=hush"])
    assert (
        error.message
        == f"the credential plug-in `{plugin.command}` of context `test` failed with exit code 7"
    )
    assert error.hint == "log in with it again, then try: kubectl --context test version"


@pytest.mark.parametrize("answer", ["hush", plugins.token("hush").replace("/v1", "/v2")], ids=["text", "v2"])
def test_what_answers_something_else_is_named_without_the_answer(tmp_path: Path, answer: str) -> None:
    error = failed(tmp_path, plugins.make(tmp_path / "p", answer))
    assert "gives no answer that can be used: it" in error.message
    assert "hush" not in error.describe()


def test_a_certificate_that_is_none_is_told_without_it(tmp_path: Path) -> None:
    status = {"clientCertificateData": "hush", "clientKeyData": "hush"}
    error = failed(tmp_path, plugins.make(tmp_path / "p", plugins.credential(status)))
    assert "certificate" in error.message
    assert "hush" not in error.describe()


def test_a_missing_one_comes_with_its_hint(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p")
    error = failed(tmp_path, plugin, command="no-such-login", installHint="get it there")
    assert error.message == "the credential plug-in `no-such-login` of context `test` is not installed"
    assert error.hint == "get it there"
    assert (
        failed(tmp_path, plugin, command="./none").hint == "install it and make sure that it is on the PATH"
    )


def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    plugin = plugins.make(tmp_path / "p")
    Path(plugin.command).write_bytes(b"\x00\x01")
    assert failed(tmp_path, plugin).message.endswith("cannot run")


def test_one_that_never_answers_is_given_up_where_nobody_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = plugins.make(tmp_path / "p")
    Path(plugin.command).write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("MLSTACK_PROGRAM_TIMEOUT", "0.1s")
    error = failed(tmp_path, plugin, interactiveMode="Never")
    assert error.message.endswith("of context `test` took more than 0.1 seconds")
    assert error.hint == "MLSTACK_PROGRAM_TIMEOUT=10m gives it more time"


class Terminal:
    """A standard input that says whether it is a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("mode", "is_terminal", "asks"),
    [
        ("Never", True, False),
        ("IfAvailable", True, True),
        ("IfAvailable", False, False),
        ("Always", True, True),
    ],
)
def test_it_asks_where_it_may_and_somebody_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, is_terminal: bool, asks: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(is_terminal=is_terminal))
    plugin = plugins.make(tmp_path / "p", plugins.token("t"))
    with serve(only("t")).running() as api:
        assert opened(tmp_path, api, plugin, interactiveMode=mode).get(REF) == MAP
    assert plugin.asked[0]["spec"] == {"interactive": asks}


def test_one_that_must_ask_does_not_run_where_nobody_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(is_terminal=False))
    plugin = plugins.make(tmp_path / "p", plugins.token("t"))
    assert "standard input is no terminal" in failed(tmp_path, plugin, interactiveMode="Always").message
    assert plugin.asked == []


V1 = "client.authentication.k8s.io/v1"
CERT = "-----BEGIN CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\n"
LOGIN = Plugin(command="login", api_version=V1)


def answer(status: Any, **more: Any) -> bytes:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status, **more}).encode()


def test_a_token_and_a_certificate_are_taken_together() -> None:
    status = {
        "token": "t",
        "clientCertificateData": CERT,
        "clientKeyData": KEY,
        "expirationTimestamp": "1970-01-01T01:00:10.123456789+01:00",
    }
    proof = login.read_answer(LOGIN, answer(status))
    assert (proof.authorization, proof.cert_pem, proof.key_pem) == ("Bearer t", CERT, KEY)
    assert proof.expires_s == pytest.approx(10.123456)
    assert "BEGIN" not in repr(proof)


@pytest.mark.parametrize("time", [None, "0001-01-01T00:00:00Z"], ids=["none", "Go's zero"])
def test_a_token_may_never_expire(time: str | None) -> None:
    assert login.read_answer(LOGIN, answer({"token": "t", "expirationTimestamp": time})) == Proof(
        authorization="Bearer t"
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"", "it is empty"),
        (b"hush", "it is no JSON"),
        (b"[]", "it is no ExecCredential"),
        (answer({"token": "hush"}, kind="Secret"), "it is no ExecCredential"),
        (
            answer({"token": "hush"}, apiVersion=f"{V1}beta1"),
            f"its `apiVersion` is `{V1}beta1`, the kubeconfig",
        ),
        (answer({"token": "hush"}, apiVersion=None), "its `apiVersion` is missing"),
        (answer(None), "it has no `status`"),
        (answer({}), "neither a token nor a certificate"),
        (answer({"token": ["hush"]}), "`token` is no text"),
        (answer({"clientCertificateData": "hush"}), "only one of certificate and key"),
        (answer({"token": "hush", "clientKeyData": "hush"}), "only one of certificate and key"),
        (answer({"clientCertificateData": CERT, "clientKeyData": "hush"}), "certificate or key is no PEM"),
        (answer({"token": "hush", "expirationTimestamp": "tomorrow"}), "no time of RFC 3339"),
        (answer({"token": "hush", "expirationTimestamp": "2026-13-01T00:00:00Z"}), "no time of RFC 3339"),
        (answer({"token": "hush", "expirationTimestamp": 5}), "no time of RFC 3339"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_answer_is_said_without_secrets(output: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r"^it|^`token") as caught:
        login.read_answer(LOGIN, output)
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
