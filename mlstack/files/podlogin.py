"""The service account of the pod we run in, as a login."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlstack.errors import ClusterError
from mlstack.files.kubeparts import bounded, decoded
from mlstack.model import proxies
from mlstack.model.login import Login, TokenFile, address

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""


def is_there(account: Path) -> bool:
    """Tell whether we run in a pod with an account."""
    return (account / "ca.crt").exists()


def read(account: Path, environ: Mapping[str, str]) -> tuple[Login, TokenFile]:
    """Give the login of a pod, and how it comes by its proof.

    Raises:
        ClusterError: it cannot be used.
    """
    label = "this pod's service account"
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise ClusterError(
            f"{label} cannot be used: the environment does not say where the API server is",
            hint="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT stand in the environment of every pod",
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        address(server)
        ca = decoded(bounded(account / "ca.crt"))
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise ClusterError(
            f"{label} cannot be used: {error.filename}: {reason}",
            hint="check `automountServiceAccountToken` of the pod and of its service account",
        ) from error
    except ValueError:
        raise ClusterError(
            f"{label} cannot be used: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no address",
            hint="they name the API server in the environment of every pod",
        ) from None
    login = Login(label=label, server=server, ca_pem=ca, proxy=proxies.between(server, environ))
    return login, TokenFile(path=str(account / "token"))
