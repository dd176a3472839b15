"""Logins: how a kubeconfig, or the pod we run in, says who we are to an API server, and the proof of it.

Credential plug-ins follow the rules of client-go:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from mlstack.addresses import address, host_name, proxy_of
from mlstack.dataclass import dataclass
from mlstack.errors import ClusterError, ForbiddenError, NotFoundError
from mlstack.http import basic
from mlstack.kube import kubeconfig
from mlstack.kube.kubeconfig import ContextEntry, Login, UnfitError, pem_text, read_bounded
from mlstack.objects import masking


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What shows an API server who we are; with nothing in it we are nobody."""

    authorization: str | None = field(default=None, repr=False)  # value of the header of that name
    cert_pem: str | None = field(default=None, repr=False)  # client certificate
    key_pem: str | None = field(default=None, repr=False)
    expires_s: float | None = None  # seconds since 1970; None if nobody knows


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """A token in a file that others write anew; `proof` is shown beside it, and alone while it is gone."""

    path: str
    proof: Proof = field(default_factory=Proof)


@dataclass(frozen=True, kw_only=True)
class IdToken:
    """A token of an identity provider (OpenID Connect), which gives another one for a refresh-token."""

    proof: Proof  # what is shown; without authorization if there is no token yet
    settings: Mapping[str, str] = field(repr=False)  # what the kubeconfig says of the provider, by its keys
    file: str  # the kubeconfig file in which that stands
    user: str  # to whom it belongs there


class Interactive(StrEnum):
    """Whether a plug-in may ask the person who sits there."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A program that gives credentials, as a kubeconfig describes it."""

    command: str  # its name on the PATH, or its path
    api_version: str  # the version of the protocol it speaks
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # laid over those of this process
    interactive: Interactive = Interactive.IF_AVAILABLE
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)  # what it is told of the cluster


@dataclass(frozen=True, kw_only=True)
class ContextLogin:
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

_SERVER = "set `server` of its cluster in the kubeconfig"


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
        login = _login(entry, label, environ)
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


def _login(entry: ContextEntry, label: str, environ: Mapping[str, str]) -> Login:
    cluster, server = entry.cluster, entry.cluster.value.get("server")
    if not isinstance(server, str) or not server.lower().startswith(("https://", "http://")):
        raise entry.fault("has no address of an API server that begins with https://", _SERVER)
    try:
        is_secure = address(server).is_secure
    except ValueError:
        raise entry.fault("has an address of an API server that is not a URL of a host", _SERVER) from None
    name = cluster.text("tls-server-name")
    try:
        name = name and host_name(name)
    except ValueError:
        hint = "mend it in the kubeconfig, or remove it"
        raise entry.fault("has a tls-server-name that no host can have", hint) from None
    ca_pem, verify = cluster.pem("certificate-authority"), not cluster.flag("insecure-skip-tls-verify")
    if is_secure and ca_pem is not None and not verify:
        raise entry.fault(
            "names a certificate authority, and says insecure-skip-tls-verify, by which none counts",
            "leave one of them in the kubeconfig; kubectl refuses both together too",
        )
    try:
        impersonation = _impersonation(entry.user.value)
    except ValueError:
        hint = "`as` of its user is a name, `as-groups` a list of names"
        raise entry.fault("does not say clearly as whom to act", hint) from None
    return Login(
        label=label,
        server=server,
        ca_pem=ca_pem,
        verify=verify,
        server_name=name or None,
        proxy=cluster.text("proxy-url") or proxy_of(server, environ),
        packed=not cluster.flag("disable-compression"),
        impersonation=impersonation,
    )


def _source(entry: ContextEntry, login: Login) -> Proof | TokenFile | IdToken | Plugin:
    """Say how one comes by the proof: as with kubectl, what stands in the kubeconfig counts first.

    What would go over the network as plain text is never sent, nor asked of anybody: we are nobody there.
    """
    there, user = address(login.server), entry.user
    if not there.is_secure and (login.proxy or not there.is_here):
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
    return proof if is_known or not user.value.get("exec") else _plugin_login(entry, login)


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


def read_token(resolved: ContextLogin, source: TokenFile) -> Proof:
    """Read a token without the blanks around it; it counts before one that stands in the kubeconfig.

    Raises:
        ClusterError: there is none.
    """
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


# --- as whom we act ---

_AS = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}
_EXTRA = "as-user-extra"
_NO_HEADER = re.compile(r"[^a-z0-9!#$&'*+.^_`|~-]")


def _impersonation(user: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Give the headers by which a user of a kubeconfig acts as another one, as kubectl sends them.

    Raises:
        ValueError: it cannot be told as whom; to go on would be to act with the user's own rights.
    """
    given = {key: user[key] for key in (*_AS, _EXTRA) if user.get(key)}
    if given and not (isinstance(given.get("as"), str) and isinstance(given.get("as-uid", ""), str)):
        raise ValueError("no user")
    extra = given.pop(_EXTRA, {})
    if not isinstance(extra, Mapping):
        raise ValueError(_EXTRA)
    values = {_AS[key]: value for key, value in given.items()}
    for key, value in extra.items():
        name = _NO_HEADER.sub(
            lambda odd: "".join(f"%{byte:02X}" for byte in odd[0].encode()), str(key).lower()
        )
        values[f"Impersonate-Extra-{name}"] = value
    headers = {
        key: tuple(value) if isinstance(value, list | tuple) else (value,) for key, value in values.items()
    }
    if not all(isinstance(text, str) for texts in headers.values() for text in texts):
        raise ValueError("no text")
    return headers


# --- identity providers ---

AUTHORITY = "idp-certificate-authority"


def _provider_login(entry: ContextEntry) -> IdToken:
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
    """Give the proof of an OpenID Connect token, which says itself when it expires.

    Raises:
        ValueError: it is no such token.
    """
    _, payload, _ = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    expires_s = claims["exp"] if isinstance(claims, Mapping) and "exp" in claims else 0
    if not isinstance(expires_s, int | float):
        raise ValueError("no time")
    return Proof(authorization=_bearer(token), expires_s=expires_s - 10)  # client-go's margin


# --- credential plug-ins ---

_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_KIND = "ExecCredential"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")
_NEVER_S = datetime(1, 1, 1, tzinfo=UTC).timestamp()  # Go's time that was never set


def _plugin_login(entry: ContextEntry, login: Login) -> Plugin:
    """Read `exec` of a context's user."""
    value, command = entry.user.part("exec").value, entry.user.part("exec").text("command")
    version, mode, args = value.get("apiVersion") or "", value.get("interactiveMode"), value.get("args") or ()
    environment = {}
    try:
        if not command:
            raise ValueError("`command` is missing")
        if "/" in command:  # else it is found on the PATH
            command = str(entry.user.file.parent.absolute() / command)
        if version not in _VERSIONS:
            raise ValueError(f"`apiVersion` is {_shown(version)}, not one of {_listed(_VERSIONS)}")
        if not isinstance(args, list | tuple) or not all(isinstance(text, str) for text in args):
            raise ValueError("`args` is no list of texts")
        for variable in value.get("env") or ():
            if not isinstance(variable, Mapping) or not _plugin_text(variable, "name"):
                raise ValueError("`env` is no list of names and values")
            environment[_plugin_text(variable, "name")] = _plugin_text(variable, "value")
        if not mode and version != _VERSIONS[0]:  # v1 has no default
            mode = "IfAvailable"
        if mode not in tuple(Interactive):
            raise ValueError(f"`interactiveMode` is {_shown(mode)}, not one of {_listed(tuple(Interactive))}")
        hint = _plugin_text(value, "installHint")
    except ValueError as error:
        raise entry.fault(
            f"does not say clearly which credential plug-in to run: {error}",
            "let the cluster's own program write its user into the kubeconfig anew, or mend `exec` there",
        ) from None
    return Plugin(
        command=command,
        api_version=version,
        args=tuple(args),
        env=environment,
        interactive=Interactive(mode),
        # It changes nothing of a terminal.
        install_hint="".join(
            c if c.isprintable() or c in "\t\n" else f"U+{ord(c):04X}" for c in hint
        ).strip(),
        cluster=_cluster_info(entry, login) if value.get("provideClusterInfo") is True else None,
    )


def _plugin_text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{key}` is no text")
    return value or ""


def _shown(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) and value else "missing" if not value else "no text"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cluster_info(entry: ContextEntry, login: Login) -> dict[str, Any]:
    """Say of a cluster what a plug-in may want to know, in the fields of its protocol."""
    cluster, ca = entry.cluster, (login.ca_pem or "").encode("utf-8", "surrogateescape")
    info = {
        "server": login.server,
        "tls-server-name": login.server_name,
        "insecure-skip-tls-verify": not login.verify,
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "proxy-url": cluster.text("proxy-url"),
        "disable-compression": cluster.flag("disable-compression"),
    }
    extensions = [part for part in cluster.value.get("extensions") or () if isinstance(part, Mapping)]
    own = [part.get("extension") for part in extensions if part.get("name") == f"{_GROUP}/exec"]
    return {**{key: value for key, value in info.items() if value}, "config": own[0] if own else None}


def ask_plugin(resolved: ContextLogin, plugin: Plugin) -> Proof:
    """Ask a credential plug-in.

    Raises:
        ForbiddenError: it is missing, fails, or answers something else.
    """
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
        text = f"failed with exit code {error.status}" if error.status is not None else "cannot run"
        raise resolved.fault(f"{subject} {text}", hint) from None
    except ValueError as error:  # says nothing of what may be secret
        raise resolved.fault(f"{subject} gives no answer that can be used: {error}", hint) from None


def read_answer(plugin: Plugin, output: bytes) -> Proof:
    """Read the answer of a plug-in.

    Raises:
        ValueError: it is none; the text says why, without any part of the answer that could be secret.
    """
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON" if output.strip() else "it is empty") from None
    if not isinstance(answer, Mapping) or answer.get("kind") != _KIND:
        raise ValueError(f"it is no {_KIND}")
    if answer.get("apiVersion") != plugin.api_version:
        version = _shown(answer.get("apiVersion"))
        raise ValueError(f"its `apiVersion` is {version}, the kubeconfig says `{plugin.api_version}`")
    status = answer.get("status")
    if not isinstance(status, Mapping):
        raise ValueError("it has no `status`")
    keys = ("token", "clientCertificateData", "clientKeyData")
    token, cert_pem, key_pem = (_plugin_text(status, key) for key in keys)
    expires_s, time = None, status.get("expirationTimestamp")
    try:
        if time is not None and _TIME.fullmatch(time):
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
