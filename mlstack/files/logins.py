"""How a kubeconfig, or the account of the pod we run in, says that one gets to an API server."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlstack.errors import ClusterError
from mlstack.files import kubeparts
from mlstack.files.kubeparts import Part, Parts
from mlstack.model import login, plugin, proxies
from mlstack.model.login import Login, Proof, TokenFile, Way
from mlstack.model.plugin import Plugin

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""

_LOG_IN_AGAIN = "log in to the cluster again, so that a token is written to it"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A login, and how one comes by the proof for it.

    Attributes:
        login: where it leads.
        way: what shows who we are, or gives it.
        context: name of the context, empty in a pod.
        files: the kubeconfig files, as the user names them; None in a pod.
    """

    login: Login
    way: Way = field(repr=False)
    context: str = ""
    files: str | None = None


class _UnfitError(Exception):
    """A key of a kubeconfig has a value that it cannot have."""


def find(
    context: str, kubeconfig: str | None, environ: Mapping[str, str], *, account: Path = ACCOUNT
) -> Found:
    """Read the login of a context.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        kubeconfig: one or more files, separated as in `KUBECONFIG`; None for what kubectl takes.
        environ: the environment.
        account: the folder of the service account.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ClusterError: the kubeconfig or a file it names cannot be used.
    """
    files = kubeparts.named(kubeconfig, environ)
    if not context and (account / "ca.crt").exists() and not kubeparts.exist(files):
        return _of_pod(account, environ)
    parts = kubeparts.read(context, files)
    label = f"context `{parts.context}`"
    try:
        found = _login(parts, label, environ)
        return Found(login=found, way=_way(parts, found), context=parts.context, files=files)
    except OSError as error:
        text = f"{label} needs the file {error.filename}: {(error.strerror or '').lower()}"
    except (_UnfitError, ValueError):  # whatever is wrong with it may be said in the words of a secret
        text = f"the credentials or certificates of {label} cannot be used"
    hint = f"kubectl --context {parts.context} version shows whether kubectl can use them"
    raise ClusterError(text, where=files, hint=hint)


def read_token(found: Found, way: TokenFile) -> Proof:
    """Read a token without the blanks around it; it counts before one that stands in the kubeconfig.

    Raises:
        ClusterError: there is none.
    """
    label, place = found.login.label, found.files or way.path
    try:
        token = Path(way.path).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        if way.proof.authorization:
            return way.proof
        reason = (getattr(error, "strerror", None) or "it is no text").lower()
        raise ClusterError(
            f"{label} needs the file {way.path}: {reason}", where=place, hint=_LOG_IN_AGAIN
        ) from None
    if not token:
        raise ClusterError(f"the token file of {label} is empty: {way.path}", where=place, hint=_LOG_IN_AGAIN)
    return replace(way.proof, authorization=login.bearer(token))


def expired(found: Found) -> ClusterError:
    """Give the fault of a token that does not count any more."""
    return ClusterError(
        f"the id-token of {found.login.label} is missing or has expired",
        where=found.files,
        hint=f"kubectl --context {found.context} version renews it, if it can be renewed",
    )


def _login(parts: Parts, label: str, environ: Mapping[str, str]) -> Login:
    cluster = parts.cluster
    server = cluster.value.get("server")
    if not isinstance(server, str) or not server.lower().startswith(("https://", "http://")):
        raise ClusterError(
            f"{label} has no address of an API server that begins with https://",
            hint="set `server` of its cluster in the kubeconfig",
        )
    try:
        impersonation = login.impersonation(parts.user.value)
    except ValueError:
        raise ClusterError(
            f"{label} does not say clearly as whom to act",
            where=parts.files,
            hint="`as` of its user is a name, `as-groups` a list of names",
        ) from None
    return Login(
        label=label,
        server=server,
        ca_pem=_pem(cluster, "certificate-authority"),
        verify=not _flag(cluster, "insecure-skip-tls-verify"),
        server_name=_text(cluster, "tls-server-name") or None,
        proxy=_text(cluster, "proxy-url") or proxies.between(server, environ),
        impersonation=impersonation,
    )


def _way(parts: Parts, found: Login) -> Way:
    """Say how one comes by the proof; where there are several ways, a plug-in is the last, as for kubectl."""
    user = parts.user
    token, token_file, name = (_text(user, key) for key in ("token", "tokenFile", "username"))
    password = _text(user, "password")
    if (token or token_file) and (name or password):
        raise _unclear(
            parts,
            "shows the server both a token and a password",
            "leave one of them in the kubeconfig: `token` or `username`",
        )
    certificate = _pem(user, "client-certificate")
    authorization = login.basic(name, password) if name or password else None
    proof = Proof(
        authorization=login.bearer(token) if token else authorization,
        cert_pem=certificate,
        key_pem=_pem(user, "client-key") if certificate else None,
    )
    if token_file:
        return TokenFile(path=str(user.folder / token_file), proof=proof)
    if user.value.get("auth-provider"):
        return _provided(parts)
    is_known = proof.authorization or proof.cert_pem
    return proof if is_known or not user.value.get("exec") else _plugin(parts, found)


def _plugin(parts: Parts, found: Login) -> Plugin:
    entry = parts.user.value["exec"]
    if not isinstance(entry, Mapping):
        raise _UnfitError("exec")
    command = entry.get("command")
    try:
        if not command or not isinstance(command, str):
            raise ValueError("`command` is missing")
        if "/" in command:  # else it is found on the PATH
            command = str(parts.user.folder.absolute() / command)
        return plugin.described(entry, command=command, cluster=_told(parts, found))
    except ValueError as error:
        raise _unclear(
            parts,
            f"does not say clearly which credential plug-in to run: {error}",
            "let the cluster's own program write its user into the kubeconfig anew, or mend `exec` there",
        ) from None


def _told(parts: Parts, found: Login) -> dict[str, Any]:
    """Say of a cluster what a plug-in may want to know, in the fields of its protocol."""
    cluster = parts.cluster
    ca = base64.b64encode((found.ca_pem or "").encode("utf-8", "surrogateescape")).decode()
    told = {
        "server": found.server,
        "tls-server-name": found.server_name,
        "insecure-skip-tls-verify": not found.verify,
        "certificate-authority-data": ca,
        "proxy-url": _text(cluster, "proxy-url"),
        "disable-compression": _flag(cluster, "disable-compression"),
    }
    extensions = cluster.value.get("extensions") or ()
    own = [
        each.get("extension")
        for each in extensions
        if isinstance(each, Mapping) and each.get("name") == plugin.EXTENSION
    ]
    return {**{key: value for key, value in told.items() if value}, "config": own[0] if own else None}


def _provided(parts: Parts) -> Proof:
    """Take the token that kubectl has put beside an auth-provider; it alone renews it."""
    entry = parts.user.value["auth-provider"]
    name, settings = (entry.get("name"), entry.get("config")) if isinstance(entry, Mapping) else (None, None)
    if name == "oidc" and isinstance(settings, Mapping):
        token = _text(Part(settings), "id-token")
        return login.id_token(token) if token else Proof(expires_s=0)
    raise ClusterError(
        f"the credentials of context `{parts.context}` come from auth-provider `{name}`, "
        "which cannot be used",
        where=parts.files,
        hint="get its credentials anew, with the credential plug-in that kubectl takes today",
    )


def _unclear(parts: Parts, text: str, hint: str) -> ClusterError:
    return ClusterError(f"context `{parts.context}` {text}", where=parts.files, hint=hint)


def _of_pod(account: Path, environ: Mapping[str, str]) -> Found:
    label = "this pod's service account"
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise ClusterError(
            f"{label} cannot be used: the environment does not say where the API server is",
            hint="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT stand in the environment of every pod",
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        ca = _decoded((account / "ca.crt").read_bytes())
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise ClusterError(
            f"{label} cannot be used: {error.filename}: {reason}",
            hint="check `automountServiceAccountToken` of the pod and of its service account",
        ) from error
    return Found(
        login=Login(label=label, server=server, ca_pem=ca, proxy=proxies.between(server, environ)),
        way=TokenFile(path=str(account / "token")),
    )


def _text(part: Part, key: str) -> str:
    value = part.value.get(key)
    if value is not None and not isinstance(value, str):
        raise _UnfitError(key)
    return value or ""


def _flag(part: Part, key: str) -> bool:
    value = part.value.get(key)
    if value is not None and not isinstance(value, bool):
        raise _UnfitError(key)
    return bool(value)


def _pem(part: Part, key: str) -> str | None:
    """Give certificates or a key that stand in the kubeconfig or in a file that it names."""
    data, file = _text(part, f"{key}-data"), _text(part, key)
    if data:
        return _decoded(base64.b64decode(data, validate=True))
    return _decoded((part.folder / file).read_bytes()) if file else None


def _decoded(data: bytes) -> str:
    """Read text around which anything may stand; what it is cannot be told from its bytes alone."""
    return data.decode("utf-8", "surrogateescape")
