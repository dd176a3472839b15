"""How a kubeconfig, or the account of the pod we run in, says that one gets to an API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlstack.errors import ClusterError
from mlstack.files import kubeparts, pluginlogin, podlogin, providerlogin
from mlstack.files.kubeparts import Parts, UnfitError
from mlstack.model import login, proxies
from mlstack.model.login import Login, Proof, TokenFile, Way

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


def find(
    context: str, kubeconfig: str | None, environ: Mapping[str, str], *, account: Path = podlogin.ACCOUNT
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
    if not context and podlogin.is_there(account) and not kubeparts.exist(files):
        login_, way = podlogin.read(account, environ)
        return Found(login=login_, way=way)
    parts = kubeparts.read(context, files)
    label = f"context `{parts.context}`"
    try:
        found = _login(parts, label, environ)
        return Found(login=found, way=_way(parts, found), context=parts.context, files=files)
    except OSError as error:
        text = f"{label} needs the file {error.filename}: {(error.strerror or '').lower()}"
    except (UnfitError, ValueError):  # whatever is wrong with it may be said in the words of a secret
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
        ca_pem=cluster.pem("certificate-authority"),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or proxies.between(server, environ),
        impersonation=impersonation,
    )


def _way(parts: Parts, found: Login) -> Way:
    """Say how one comes by the proof: as with kubectl, what stands in the kubeconfig counts first."""
    user = parts.user
    proof = _standing(parts)
    if file := user.text("tokenFile"):
        return TokenFile(path=str(user.folder / file), proof=proof)
    if user.value.get("auth-provider"):
        provided = providerlogin.read(parts)
        shown = replace(proof, authorization=provided.proof.authorization, expires_s=provided.proof.expires_s)
        return proof if proof.authorization else replace(provided, proof=shown)
    is_known = proof.authorization or proof.cert_pem
    return proof if is_known or not user.value.get("exec") else pluginlogin.read(parts, found)


def _standing(parts: Parts) -> Proof:
    """Give what stands in the kubeconfig itself, or in files that it names."""
    user = parts.user
    token, name, password = (user.text(key) for key in ("token", "username", "password"))
    if (token or user.text("tokenFile")) and (name or password):
        raise pluginlogin.unclear(
            parts,
            "shows the server both a token and a password",
            "leave one of them in the kubeconfig: `token` or `username`",
        )
    certificate = user.pem("client-certificate")
    authorization = login.basic(name, password) if name or password else None
    return Proof(
        authorization=login.bearer(token) if token else authorization,
        cert_pem=certificate,
        key_pem=user.pem("client-key") if certificate else None,
    )
