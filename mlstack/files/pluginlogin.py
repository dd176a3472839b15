"""What a kubeconfig says of a credential plug-in, and what the plug-in is told of its cluster."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from mlstack.errors import ClusterError
from mlstack.files.kubeparts import Parts
from mlstack.model import plugin
from mlstack.model.login import Login
from mlstack.model.plugin import Plugin


def read(parts: Parts, found: Login) -> Plugin:
    """Read the credential plug-in of a context.

    Raises:
        UnfitError: a key has a value that it cannot have.
        ClusterError: kubectl would not run it.
    """
    entry = parts.user.part("exec")
    command = entry.text("command")
    try:
        if not command:
            raise ValueError("`command` is missing")
        if "/" in command:  # else it is found on the PATH
            command = str(parts.user.folder.absolute() / command)
        return plugin.described(entry.value, command=command, cluster=_told(parts, found))
    except ValueError as error:
        raise unclear(
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
        "proxy-url": cluster.text("proxy-url"),
        "disable-compression": cluster.flag("disable-compression"),
    }
    extensions = cluster.value.get("extensions") or ()
    own = [
        each.get("extension")
        for each in extensions
        if isinstance(each, Mapping) and each.get("name") == plugin.EXTENSION
    ]
    return {**{key: value for key, value in told.items() if value}, "config": own[0] if own else None}


def unclear(parts: Parts, text: str, hint: str) -> ClusterError:
    """Give the fault of a context that does not say how to log in."""
    return ClusterError(f"context `{parts.context}` {text}", where=parts.files, hint=hint)
