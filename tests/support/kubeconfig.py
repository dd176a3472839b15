"""Write kubeconfig files as people have them: clusters, users and contexts of one name."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Login:
    """One context of a kubeconfig: a cluster, and who one is there.

    Attributes:
        context: name of the context, the cluster and the user.
        server: URL of the API server.
        ca_pem: the certificate to check the server by.
        token: bearer token of the user.
        namespace: of the context.
    """

    context: str
    server: str
    ca_pem: str
    token: str
    namespace: str = "default"


def write_kubeconfig(path: Path, logins: Sequence[Login], *, current_context: str) -> Path:
    """Write a kubeconfig (as JSON, which is YAML too) and give its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current_context,
        "clusters": [{"name": login.context, "cluster": _cluster(login)} for login in logins],
        "users": [{"name": login.context, "user": {"token": login.token}} for login in logins],
        "contexts": [{"name": login.context, "context": _context(login)} for login in logins],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _cluster(login: Login) -> dict[str, str]:
    encoded = base64.b64encode(login.ca_pem.encode()).decode()
    return {"server": login.server, "certificate-authority-data": encoded}


def _context(login: Login) -> dict[str, str]:
    return {"cluster": login.context, "user": login.context, "namespace": login.namespace}
