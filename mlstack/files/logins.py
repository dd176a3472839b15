"""Logins that a kubeconfig holds whole: an address, certificates, a token; no plug-in, provider or proxy.

The client library reads every kubeconfig, but takes a third of a second to be imported, longer than a deploy
of a few hundred objects talks to its server. What is read here needs none of it. All else, faults included,
is left to the library: it knows the other ways to log in, and its door has the messages.
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlstack.errors import MlstackError
from mlstack.files import document as documents
from mlstack.model import login, proxies
from mlstack.model.login import FixedLogin

_CLUSTER = frozenset(
    {
        "certificate-authority",
        "certificate-authority-data",
        "disable-compression",  # it costs time only where a network is faster than packing
        "extensions",
        "insecure-skip-tls-verify",
        "server",
        "tls-server-name",
    }
)
_USER = frozenset(
    {
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "extensions",
        "token",
        *login.IMPERSONATION,
    }
)

_Entry = tuple[Mapping[str, Any], Path]


class _NotFixedError(Exception):
    """This login is the library's."""


def fixed(context: str, kubeconfig: str | None, environ: Mapping[str, str]) -> FixedLogin | None:
    """Give the login of a context if the kubeconfig holds it whole, else None.

    Args:
        context: name of the context; the current one is left to the library.
        kubeconfig: one or more files, separated as in `KUBECONFIG`; None for what kubectl takes.
        environ: the environment.
    """
    if not context:
        return None
    try:
        entries = _entries(kubeconfig or environ.get("KUBECONFIG") or "~/.kube/config")
        chosen, _ = entries["contexts", context]
        cluster, beside = entries["clusters", _text(chosen, "cluster")]
        user, beside_user = entries["users", _text(chosen, "user")]
        if not (cluster.keys() <= _CLUSTER and user.keys() <= _USER):
            return None
        server = _address(_text(cluster, "server"))
        if proxies.between(server, environ):
            return None
        return FixedLogin(
            context=context,
            server=server,
            ca_pem=_pem(cluster, "certificate-authority", beside),
            verify=not _flag(cluster, "insecure-skip-tls-verify"),
            server_name=_text(cluster, "tls-server-name") or None,
            token=_text(user, "token") or None,
            cert_pem=_pem(user, "client-certificate", beside_user),
            key_pem=_pem(user, "client-key", beside_user),
            impersonation=login.impersonation(user),
        )
    except (_NotFixedError, LookupError, AttributeError, TypeError, ValueError, OSError, MlstackError):
        return None  # whatever shape the file has: the library's door says what is wrong with it


def _entries(files: str) -> dict[tuple[str, str], _Entry]:
    """Give the parts of all files by section and name; where several have one name, the first counts."""
    found: dict[tuple[str, str], _Entry] = {}
    for file in (Path(part).expanduser() for part in files.split(os.pathsep) if part):
        if file.exists():
            read = documents.read_all(file.read_bytes(), file=str(file))
            content = read[0].value if read else {}
            for section, what in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
                for entry in content.get(section) or ():
                    found.setdefault((section, entry["name"]), (entry.get(what) or {}, file.parent))
    return found


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key) or ""
    if not isinstance(value, str):
        raise _NotFixedError(key)
    return value


def _flag(part: Mapping[str, Any], key: str) -> bool:
    value = part.get(key, False)
    if not isinstance(value, bool):
        raise _NotFixedError(key)
    return value


def _address(server: str) -> str:
    if not server.startswith(("https://", "http://")):
        raise _NotFixedError(server)
    return server


def _pem(part: Mapping[str, Any], key: str, beside: Path) -> str | None:
    """Give certificates or a key that stand in the kubeconfig or in a file that it names."""
    data, file = _text(part, f"{key}-data"), _text(part, key)
    if data:
        return base64.b64decode(data, validate=True).decode()
    return (beside / file).read_text("utf-8") if file else None
