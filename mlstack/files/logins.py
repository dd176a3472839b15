"""How a kubeconfig, or the account of the pod we run in, says that one gets to an API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlstack.errors import ClusterError
from mlstack.files import kubeparts, pluginlogin, podlogin, providerlogin
from mlstack.files.kubeparts import Parts, UnfitError, bounded
from mlstack.files.pluginlogin import unclear
from mlstack.model import login, proxies
from mlstack.model.login import Login, Proof, TokenFile, Way

_SERVER = "set `server` of its cluster in the kubeconfig"
_LOG_IN_AGAIN = "log in to the cluster again, so that a token is written to it"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A login, and how one comes by the proof for it.

    Attributes:
        login: where it leads.
        way: what shows who we are, or gives it.
        context: name of the context, empty in a pod.
        files: the kubeconfig files, as a list in `KUBECONFIG`; None in a pod.
        option: what `--kubeconfig` said.
    """

    login: Login
    way: Way = field(repr=False)
    context: str = ""
    files: str | None = None
    option: str | None = None


def find(
    context: str, kubeconfig: str | None, environ: Mapping[str, str], *, account: Path = podlogin.ACCOUNT
) -> Found:
    """Read the login of a context.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        kubeconfig: what `--kubeconfig` says; None for what kubectl takes without it.
        environ: the environment.
        account: the folder of the service account.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ClusterError: the kubeconfig or a file it names cannot be used.
    """
    is_there = any(file.exists() for file in kubeparts.paths(kubeconfig, environ))
    if not context and podlogin.is_there(account) and not is_there:
        login_, way = podlogin.read(account, environ)
        return Found(login=login_, way=way)
    parts = kubeparts.read(context, kubeconfig, environ)
    label = f"context `{parts.context}`"
    try:
        found = _login(parts, label, environ)
        return Found(
            login=found,
            way=_way(parts, found),
            context=parts.context,
            files=parts.files,
            option=kubeconfig,
        )
    except OSError as error:
        text = f"{label} needs the file {error.filename}: {(error.strerror or '').lower()}"
    except (UnfitError, ValueError):  # whatever is wrong with it may be said in the words of a secret
        text = f"the credentials or certificates of {label} cannot be used"
    hint = f"kubectl --context {parts.context} version shows whether kubectl can use them"
    raise ClusterError(text, where=parts.files, hint=hint)


def read_token(found: Found, way: TokenFile) -> Proof:
    """Read a token without the blanks around it; it counts before one that stands in the kubeconfig.

    Raises:
        ClusterError: there is none.
    """
    label, place = found.login.label, found.files or way.path
    try:
        token = bounded(Path(way.path)).decode("utf-8").strip()
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
    server, name = _address(parts)
    ca_pem, verify = cluster.pem("certificate-authority"), not cluster.flag("insecure-skip-tls-verify")
    if login.address(server).is_secure and ca_pem is not None and not verify:
        raise unclear(
            parts,
            "names a certificate authority, and says insecure-skip-tls-verify, by which none counts",
            "leave one of them in the kubeconfig; kubectl refuses both together too",
        )
    try:
        impersonation = login.impersonation(parts.user.value)
    except ValueError:
        raise unclear(
            parts,
            "does not say clearly as whom to act",
            "`as` of its user is a name, `as-groups` a list of names",
        ) from None
    return Login(
        label=label,
        server=server,
        ca_pem=ca_pem,
        verify=verify,
        server_name=name or None,
        proxy=cluster.text("proxy-url") or proxies.between(server, environ),
        packed=not cluster.flag("disable-compression"),
        impersonation=impersonation,
    )


def _address(parts: Parts) -> tuple[str, str]:
    """Give the address of the server, and the name to verify where that is another one."""
    server, name = parts.cluster.value.get("server"), parts.cluster.text("tls-server-name")
    if not isinstance(server, str) or not server.lower().startswith(("https://", "http://")):
        raise unclear(parts, "has no address of an API server that begins with https://", _SERVER)
    try:
        login.address(server)
    except ValueError:
        raise unclear(parts, "has an address of an API server that is not a URL of a host", _SERVER) from None
    try:
        return server, name and login.host_name(name)
    except ValueError:
        raise unclear(
            parts, "has a tls-server-name that no host can have", "mend it in the kubeconfig, or remove it"
        ) from None


def _way(parts: Parts, found: Login) -> Way:
    """Say how one comes by the proof: as with kubectl, what stands in the kubeconfig counts first.

    What would go over the network as plain text is never sent, nor asked of anybody: we are nobody there.
    """
    there = login.address(found.server)
    if not there.is_secure and (found.proxy or not there.is_here):
        return Proof()
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
        raise unclear(
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
