"""Proofs of who we are to an API server: read from a kubeconfig or a file, renewed, or given by a program.

Tokens of identity providers (OpenID Connect) are renewed as the auth-provider `oidc` of kubectl does, here
because `kubernetes` sets no time limit and follows redirects with the refresh-token. See
https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokens
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

from mlstack.addresses import Endpoint, address, proxy_of, quote
from mlstack.dataclass import Record
from mlstack.errors import ClusterError, ConfigError, ForbiddenError, MlstackError, NotFoundError
from mlstack.http import ConnectionPool, NoAnswerError, Sent, basic, tls_context
from mlstack.kube import kubeconfig
from mlstack.kube.kubeconfig import LOOK, Interactive, Login, Plugin, UnfitError, pem_text, read_bounded
from mlstack.kube.parallel import prefetch
from mlstack.kube.transport import AGENT, decoded
from mlstack.objects import masking


class Proof(Record):
    """What shows an API server who we are; with nothing in it we are nobody."""

    authorization: str | None = field(default=None, repr=False)  # value of the header of that name
    cert_pem: str | None = field(default=None, repr=False)  # client certificate
    key_pem: str | None = field(default=None, repr=False)
    expires_s: float | None = None  # seconds since 1970; None if nobody knows


class TokenFile(Record):
    """A token in a file that others write anew; `proof` is shown beside it, and alone while it is gone."""

    path: str
    proof: Proof = field(default_factory=Proof)


class IdToken(Record):
    """A token of an identity provider (OpenID Connect), which gives another one for a refresh-token."""

    proof: Proof  # what is shown; without authorization if there is no token yet
    settings: Mapping[str, str] = field(repr=False)  # what the kubeconfig says of the provider, by its keys
    file: str  # the kubeconfig file in which that stands
    user: str  # to whom it belongs there


class ContextLogin(Record):
    """A login, and how one comes by the proof for it: it is there, read, renewed, or a plug-in is asked."""

    login: Login
    source: Proof | TokenFile | IdToken | Plugin = field(repr=False)
    context: str = ""  # empty in a pod
    files: str | None = None  # the kubeconfig files, as a list in `KUBECONFIG`; None in a pod
    option: str | None = None  # what `--kubeconfig` said

    def fault(self, text: str, hint: str) -> ForbiddenError:
        """Give the fault that there is no proof."""
        return ForbiddenError(text, why="credentials", where=self.files, hint=hint)


# --- the login of a context, or of a pod ---

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""


def find(
    context: str, option: str | None, environ: Mapping[str, str], *, account: Path = ACCOUNT
) -> ContextLogin:
    """Read the login of a context.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        option: what `--kubeconfig` says; None for what kubectl takes without it.
        environ: the environment.
        account: the folder of the service account.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ClusterError: the kubeconfig or a file it names cannot be used.
    """
    config = kubeconfig.read(option, environ)
    is_pods = context == kubeconfig.IN_CLUSTER and context not in config.contexts
    if is_pods and not (account / "ca.crt").exists():
        hint = "run it in a pod of the cluster; elsewhere: --context NAME"
        raise NotFoundError("this is no pod with a service account, which `in-cluster` stands for", hint=hint)
    if is_pods or (not context and not config.exists and (account / "ca.crt").exists()):
        return _pod_login(account, environ)
    entry = config.entry(context)
    label = f"context `{entry.context}`"
    try:
        login = kubeconfig.login_of(entry, label, environ)
        source = _source(entry, login)
    except OSError as error:
        text = f"{label} needs the file {error.filename}: {(error.strerror or '').lower()}"
    except (UnfitError, ValueError):  # whatever is wrong with it may be said in the words of a secret
        text = f"the credentials or certificates of {label} cannot be used"
    else:
        return ContextLogin(
            login=login, source=source, context=entry.context, files=entry.files, option=option
        )
    hint = f"kubectl --context {entry.context} version shows whether kubectl can use them"
    raise ClusterError(text, where=entry.files, hint=hint)


def _source(entry: kubeconfig.ContextEntry, login: Login) -> Proof | TokenFile | IdToken | Plugin:
    """Say how one comes by the proof: as with kubectl, what stands in the kubeconfig counts first.

    What would go over the network as plain text is never sent, nor asked of anybody: we are nobody there.
    """
    endpoint, user = address(login.server), entry.user
    if not endpoint.is_secure and (login.proxy or not endpoint.is_here):
        return Proof()
    token, name, password = (user.text(key) for key in ("token", "username", "password"))
    if (token or user.text("tokenFile")) and (name or password):
        raise entry.fault(
            "shows the server both a token and a password",
            "leave one of them in the kubeconfig: `token` or `username`",
        )
    certificate = user.pem("client-certificate")
    authorization = basic(name, password) if name or password else None
    proof = Proof(
        authorization=_bearer(token) if token else authorization,
        cert_pem=certificate,
        key_pem=user.pem("client-key") if certificate else None,
    )
    if file := user.text("tokenFile"):
        return TokenFile(path=str(user.file.parent / file), proof=proof)
    if user.value.get("auth-provider"):
        provided = _provider_login(entry)
        shown = replace(proof, authorization=provided.proof.authorization, expires_s=provided.proof.expires_s)
        return proof if proof.authorization else replace(provided, proof=shown)
    is_known = proof.authorization or proof.cert_pem
    return proof if is_known or not user.value.get("exec") else kubeconfig.plugin_of(entry, login)


def _bearer(token: str) -> str:
    masking.note(token)
    return f"Bearer {token}"


def _pod_login(account: Path, environ: Mapping[str, str]) -> ContextLogin:
    """Give the login of the pod we run in."""
    label = "this pod's service account"
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    names = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        if not host or not port:
            raise ValueError("no address")
        address(server)
        ca = pem_text(read_bounded(account / "ca.crt"))
    except OSError as error:
        reason = f"{error.filename}: {(error.strerror or '').lower()}"
        hint = "check `automountServiceAccountToken` of the pod and of its service account"
        raise ClusterError(f"{label} cannot be used: {reason}", hint=hint) from error
    except ValueError:
        reason, hint = f"{names} are no address", "they name the API server in the environment of every pod"
        if not host or not port:
            reason = "the environment does not say where the API server is"
            hint = f"{names} stand in the environment of every pod"
        raise ClusterError(f"{label} cannot be used: {reason}", hint=hint) from None
    login = Login(label=label, server=server, ca_pem=ca, proxy=proxy_of(server, environ))
    return ContextLogin(login=login, source=TokenFile(path=str(account / "token")))


# --- the headers that say who we are ---


class LoginCredentials:
    """Gives the headers that say who we are, the same object until there are others; safe for many threads.

    A proof that expires or is refused is got anew, by one thread for all; connections show its certificate.
    A MlstackError says that there is none.
    """

    def __init__(self, resolved: ContextLogin, pool: ConnectionPool) -> None:
        self._login, self._pool = resolved.login, pool
        self._is_renewable = not isinstance(resolved.source, Proof)
        match resolved.source:
            case Plugin() as plugin:
                self._prove: Callable[[], Proof] = partial(ask_plugin, resolved, plugin)
            case TokenFile() as token_file:
                self._prove = partial(read_token, resolved, token_file)
            case IdToken() as id_token:
                self._prove = IdTokens(resolved, id_token)
            case proof:
                self._prove = lambda: proof
        self._lock = Lock()
        self._failures = 0
        self._fault: MlstackError | None = None
        self._certificate: tuple[str | None, str | None] | None = None
        self._renew()

    def __call__(self, refused: Sent | None = None) -> Sent | None:
        """Give the headers, or others than those that a server refused; None if there are no others."""
        if not self._is_renewable:
            return self._headers if refused is None else None
        failures = self._failures
        with self._lock:
            if self._fault is not None and self._failures > failures:  # it failed while we waited for it
                raise self._fault
            is_over = self._expires_s is not None and time.time() >= self._expires_s
            if refused is self._headers or (refused is None and is_over):
                self._renew()
            return self._headers

    def _renew(self) -> None:
        try:
            proof = self._prove()
            if (proof.cert_pem, proof.key_pem) != self._certificate:
                self._show(proof)
        except MlstackError as error:
            self._failures, self._fault = self._failures + 1, error
            raise
        self._fault, self._expires_s = None, proof.expires_s
        authorization = {"authorization": proof.authorization} if proof.authorization else {}
        self._headers: Sent = {"User-Agent": AGENT, **authorization, **self._login.impersonation}

    def _show(self, proof: Proof) -> None:
        """Let connections show the certificate of a proof."""
        login = self._login
        try:
            with _file(proof.cert_pem) as cert, _file(proof.key_pem) as key:
                tls = tls_context(ca_pem=login.ca_pem, cert_file=cert, key_file=key, verify=login.verify)
        except (OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or "no certificate is resolved in them"
            reason = text.partition(" (_ssl")[0].rpartition("] ")[2]
            message = f"the certificates of {login.label} cannot be used: {reason}"
            raise ClusterError(message, hint=LOOK) from None
        self._pool.use(tls)
        self._certificate = (proof.cert_pem, proof.key_pem)


@contextmanager
def _file(pem: str | None) -> Iterator[str | None]:
    """Put a text into a file of ours alone for a moment: OpenSSL reads client certificates from files."""
    if pem is None:
        yield None
        return
    file = NamedTemporaryFile("wb", delete=False)  # noqa: SIM115 # Windows opens it once
    try:
        with file:
            file.write(pem.encode("utf-8", "surrogateescape"))
        yield file.name
    finally:
        os.unlink(file.name)  # noqa: PTH108 # a name is all there is


def read_token(resolved: ContextLogin, source: TokenFile) -> Proof:
    """Read a token without the blanks around it; it counts before one that stands in the kubeconfig."""
    label, where = resolved.login.label, resolved.files or source.path
    hint = "log in to the cluster again, so that a token is written to it"
    try:
        token = read_bounded(Path(source.path)).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        if source.proof.authorization:
            return source.proof
        reason = (getattr(error, "strerror", None) or "it is no text").lower()
        text = f"{label} needs the file {source.path}: {reason}"
        raise ClusterError(text, where=where, hint=hint) from None
    if not token:
        text = f"the token file of {label} is empty: {source.path}"
        raise ClusterError(text, where=where, hint=hint)
    return replace(source.proof, authorization=_bearer(token))


# --- credential plug-ins ---

_KIND = "ExecCredential"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)"
_NEVER_S = datetime(1, 1, 1, tzinfo=UTC).timestamp()  # Go's time that was never set


def ask_plugin(resolved: ContextLogin, plugin: Plugin) -> Proof:
    """Ask a credential plug-in; a ForbiddenError says that it is missing, fails or says something else."""
    from mlstack import programs

    hint = f"log in with it again, then try: kubectl --context {resolved.context} version"
    subject = f"the credential plug-in `{plugin.command}` of {resolved.login.label}"
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive is Interactive.ALWAYS and not is_terminal:
        raise resolved.fault(
            f"{subject} wants to ask a person, and standard input is no terminal",
            "run it on a terminal, or log in for programs: a service account's token",
        )
    interactive = is_terminal and plugin.interactive is not Interactive.NEVER
    cluster = {} if plugin.cluster is None else {"cluster": plugin.cluster}
    info = {"kind": _KIND, "apiVersion": plugin.api_version, "spec": {**cluster, "interactive": interactive}}
    exec_info = json.dumps(info, separators=(",", ":"), ensure_ascii=False)
    settings = {**plugin.env, "KUBERNETES_EXEC_INFO": exec_info}
    try:
        output = programs.ask(plugin.command, plugin.args, settings=settings, reads_terminal=interactive)
        return read_answer(plugin, output)
    except programs.ProgramMissingError:
        install = plugin.install_hint or "install it and make sure that it is on the PATH"
        raise resolved.fault(f"{subject} is not installed", install) from None
    except programs.ProgramError as error:
        text = error.message.partition("` ")[2].partition(":")[0]
        text += f" with exit code {error.status}" if error.status is not None else ""
        raise resolved.fault(f"{subject} {text}", error.hint or hint) from None
    except ValueError as error:  # says nothing of what may be secret
        raise resolved.fault(f"{subject} gives no answer that can be used: {error}", hint) from None


def read_answer(plugin: Plugin, output: bytes) -> Proof:
    """Read the answer of a plug-in; a ValueError says why it is none, without what could be secret."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON" if output.strip() else "it is empty") from None
    if not isinstance(answer, Mapping) or answer.get("kind") != _KIND:
        raise ValueError(f"it is no {_KIND}")
    if answer.get("apiVersion") != plugin.api_version:
        version = kubeconfig.shown(answer.get("apiVersion"))
        raise ValueError(f"its `apiVersion` is {version}, the kubeconfig says `{plugin.api_version}`")
    status = answer.get("status")
    if not isinstance(status, Mapping):
        raise ValueError("it has no `status`")
    keys = ("token", "clientCertificateData", "clientKeyData")
    token, cert_pem, key_pem = (kubeconfig.text_of(status, key) for key in keys)
    expires_s, time = None, status.get("expirationTimestamp")
    try:
        if time is not None and re.fullmatch(_TIME, time):
            expires_s = datetime.fromisoformat(time).timestamp()
        elif time is not None:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError("its `expirationTimestamp` is no time of RFC 3339") from None
    if not (token or cert_pem or key_pem):
        raise ValueError("it has neither a token nor a certificate with its key")
    if bool(cert_pem) != bool(key_pem):
        raise ValueError("it has only one of certificate and key")
    if cert_pem and not ("-----BEGIN CERTIFICATE-----" in cert_pem and "PRIVATE KEY-----" in key_pem):
        raise ValueError("its certificate or key is no PEM")
    return Proof(
        authorization=_bearer(token) if token else None,
        cert_pem=cert_pem or None,
        key_pem=key_pem or None,
        expires_s=None if expires_s == _NEVER_S else expires_s,
    )


# --- identity providers (OpenID Connect) ---

_ID_TOKEN, _REFRESH_TOKEN, _ISSUER = "id-token", "refresh-token", "idp-issuer-url"
_AUTHORITY = "idp-certificate-authority"
_USELESS = "its provider gives no answer that can be used"
TIMEOUT_S = 20.0
"""How long a provider has for all that it is asked."""


def _provider_login(entry: kubeconfig.ContextEntry) -> IdToken:
    if entry.user.value.get("exec"):
        raise entry.fault(
            "logs in both by a credential plug-in and by an auth-provider",
            "leave one of them in the kubeconfig: `exec` or `auth-provider`",
        )
    provider = entry.user.part("auth-provider")
    name, config = provider.text("name"), provider.part("config")
    if name != "oidc":
        text = f"the credentials of context `{entry.context}` come from auth-provider `{name}`"
        hint = "get its credentials anew, with the credential plug-in that kubectl takes today"
        raise ClusterError(f"{text}, which cannot be used", where=entry.files, hint=hint)
    settings = {key: config.text(key) for key in config.value}
    token = settings.get("id-token")
    return IdToken(
        proof=id_token_proof(token) if token else Proof(expires_s=0),
        settings=settings,
        file=str(entry.user.file),
        user=entry.user.name,
    )


def id_token_proof(token: str) -> Proof:
    """Give the proof of an OpenID Connect token, which says when it expires; a ValueError if it is none."""
    _, payload, _ = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    expires_s = claims["exp"] if isinstance(claims, Mapping) and "exp" in claims else 0
    if not isinstance(expires_s, int | float):
        raise ValueError("no time")
    return Proof(authorization=_bearer(token), expires_s=expires_s - 10)  # client-go's margin


class IdTokens:
    """Gives the token of a kubeconfig while it counts, else a new one, which is kept there.

    It gives none twice: to be asked again says that it was refused. One thread at a time asks it.
    """

    def __init__(self, resolved: ContextLogin, source: IdToken) -> None:
        self._login, self._source = resolved, source
        self._given: str | None = None

    def __call__(self) -> Proof:
        """Give the token of the kubeconfig, which others renew as well, or get a new one."""
        if self._given:
            source = find(self._login.context, self._login.option, os.environ).source
            self._source = source if isinstance(source, IdToken) else self._source
        proof = self._source.proof
        if not proof.authorization:
            proof = self._renew("is missing")
        elif time.time() >= (proof.expires_s or 0):
            proof = self._renew("has expired")
        elif proof.authorization == self._given:
            proof = self._renew("is refused by the API server")
        self._given = proof.authorization
        return proof

    def _renew(self, fault: str) -> Proof:
        source, subject = self._source, f"the id-token of {self._login.login.label}"
        log_in = "log in to the identity provider again, so that new tokens are written to the kubeconfig"
        try:
            tokens = renew(source.settings)
        except ValueError as error:
            raise self._login.fault(f"{subject} {fault} and cannot be renewed: {error}", log_in) from None
        try:
            proof = id_token_proof(tokens[_ID_TOKEN])
        except ValueError:
            text = f"{subject} {fault}, and what its provider gives anew is none"
            raise self._login.fault(text, log_in) from None
        try:
            keep(source, tokens)
        except ValueError as error:
            raise self._login.fault(
                f"{subject} was renewed and cannot be written to {source.file}: {error}",
                "let that file be changed, and log in to the identity provider again",
            ) from None
        return replace(proof, cert_pem=source.proof.cert_pem, key_pem=source.proof.key_pem)


def keep(source: IdToken, tokens: Mapping[str, str]) -> None:
    """Write new tokens into the kubeconfig, as kubectl does; a ValueError says why not, without them."""
    from mlstack.app.edit import write_files
    from mlstack.yaml import edit, read

    file = Path(source.file)
    try:
        text = file.read_bytes().decode("utf-8")
        users = read.read_document(text, source=source.file, with_positions=False).value["users"]
        number = [user["name"] for user in users].index(source.user)
        if not users[number]["user"]["auth-provider"]["config"]:
            raise LookupError("config")
        for key, token in tokens.items():
            path = ("users", number, "user", "auth-provider", "config", key)
            text = edit.set_value(text, path, token, source=source.file)
        try:
            write_files({file: text})
        except ConfigError:  # a file that is mounted alone cannot be replaced
            file.write_bytes(text.encode())
    except OSError as error:
        raise ValueError((error.strerror or type(error).__name__).lower()) from None
    except (ConfigError, ValueError, LookupError, TypeError):
        raise ValueError("it has changed meanwhile, or is written in an unusual way") from None


def renew(settings: Mapping[str, str]) -> dict[str, str]:
    """Get new tokens for a refresh-token; a ValueError says why there are none, without a secret."""
    try:
        ca_pem = kubeconfig.Entry(settings).pem(_AUTHORITY)
    except (OSError, UnfitError):
        raise ValueError(f"its `{_AUTHORITY}` cannot be read") from None
    given = {key: value for key, value in settings.items() if value}
    if missing := [key for key in (_REFRESH_TOKEN, _ISSUER, "client-id") if key not in given]:
        raise ValueError(f"the kubeconfig has no `{missing[0]}`")
    try:
        return prefetch(lambda: _ask_provider(given, ca_pem))(TIMEOUT_S)
    except TimeoutError:
        raise ValueError(f"its provider did not answer within {TIMEOUT_S:g} s") from None
    except NoAnswerError as error:
        raise ValueError(f"its provider gives no answer: {error.text}") from None


def _ask_provider(given: Mapping[str, str], ca_pem: str | None) -> dict[str, str]:
    url = f"{given[_ISSUER].rstrip('/')}/.well-known/openid-configuration"
    status, configuration = _send("GET", url, ca_pem=ca_pem)
    endpoint = configuration.get("token_endpoint")
    if status != 200 or not isinstance(endpoint, str):
        raise ValueError(_USELESS)
    form = {"grant_type": "refresh_token", "refresh_token": given[_REFRESH_TOKEN]}
    name, secret = given["client-id"], given.get("client-secret", "")
    alone = {**form, "client_id": name, **({"client_secret": secret} if secret else {})}
    # With a password as Go's oauth2: first beside the form, then, for those who want it so, in it.
    status, tokens = 400, dict[str, Any]()
    if secret:
        proof = {"Authorization": basic(quote(name), quote(secret))}
        status, tokens = _send("POST", endpoint, form, proof, ca_pem=ca_pem)
    if status in (400, 401):
        status, tokens = _send("POST", endpoint, alone, ca_pem=ca_pem)
    if status != 200:
        code = tokens.get("error")
        is_code = isinstance(code, str) and re.fullmatch(r"[a-z_]{1,30}", code)
        raise ValueError(f"its provider refuses ({code})" if is_code else _USELESS)
    id_token, refresh_token = tokens.get("id_token"), tokens.get("refresh_token") or given[_REFRESH_TOKEN]
    if not (isinstance(id_token, str) and isinstance(refresh_token, str)):
        raise ValueError("its provider gives none for a refresh-token")
    return {_ID_TOKEN: id_token, _REFRESH_TOKEN: refresh_token}


def _send(
    method: str,
    url: str,
    form: Mapping[str, str] | None = None,
    proof: Sent | None = None,
    *,
    ca_pem: str | None,
) -> tuple[int, dict[str, Any]]:
    """Ask a provider; gives status and map. Where it leads elsewhere, nobody follows with a token."""
    place, mark, query = url.partition("?")
    try:
        endpoint = address(place)
    except ValueError:
        raise ValueError("the address of its provider is not a URL of a host") from None
    proxy = proxy_of(place, os.environ)
    if not endpoint.is_secure and (proxy or not endpoint.is_here):
        raise ValueError("nothing secret is sent to its provider over http://")
    pool = ConnectionPool(Endpoint(label="its provider", server=place, proxy=proxy))
    try:
        pool.use(tls_context(ca_pem=ca_pem, cert_file=None, key_file=None, verify=True))
    except (OSError, ValueError):
        raise ValueError("its `idp-certificate-authority` cannot be used") from None
    headers, body = {"Accept": "application/json", **(proof or {})}, None
    if form is not None:
        body = "&".join(f"{key}={quote(value)}" for key, value in form.items()).encode()
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    path = f"{endpoint.path}{mark}{query}"
    answer = pool.send(method, path, body=body, headers=headers, timeout_s=TIMEOUT_S, whole=True)
    try:
        value = decoded(answer.data)
    except ValueError:
        raise ValueError(_USELESS) from None
    if not isinstance(value, Mapping):
        raise ValueError(_USELESS)
    return answer.status, dict(value)
