"""What a credential plug-in is told and what it may answer, by the rules of client-go.

See https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

GROUP = "client.authentication.k8s.io"
INFO = "KUBERNETES_EXEC_INFO"
"""The environment variable in which a plug-in finds what it is asked."""
EXTENSION = f"{GROUP}/exec"
"""The extension of a cluster that is handed to plug-ins as it is."""

_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_KIND = "ExecCredential"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")
_CERTIFICATE, _KEY = "-----BEGIN CERTIFICATE-----", "PRIVATE KEY-----"
_NO_TIME = "its `expirationTimestamp` is no time of RFC 3339"
_NEVER_S = datetime(1, 1, 1, tzinfo=UTC).timestamp()  # Go's time that was never set


class Interactive(StrEnum):
    """Whether a plug-in may ask the person who sits there."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A program that gives credentials, as a kubeconfig describes it.

    Attributes:
        command: name of the program on the PATH, or its path.
        api_version: the version of the protocol it speaks.
        args: its arguments.
        env: environment variables laid over those of this process.
        interactive: whether it may ask the person.
        install_hint: what to do where it is missing.
        cluster: what it is told of the cluster, None if it is not to be told.
    """

    command: str
    api_version: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    interactive: Interactive = Interactive.IF_AVAILABLE
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a plug-in gives.

    Attributes:
        token: bearer token, empty without.
        cert_pem: client certificate, empty without.
        key_pem: its key.
        expires_s: when they stop to count, in seconds since 1970; None if it does not say.
    """

    token: str = field(default="", repr=False)
    cert_pem: str = field(default="", repr=False)
    key_pem: str = field(default="", repr=False)
    expires_s: float | None = None


def described(entry: Mapping[str, Any], *, command: str, cluster: Mapping[str, Any]) -> Plugin:
    """Read `exec` of a kubeconfig's user.

    Args:
        entry: what stands there.
        command: the program, where the kubeconfig's folder has been counted in.
        cluster: what a plug-in is told of the cluster if it wants to know it.

    Raises:
        ValueError: kubectl would not run it; the text says why.
    """
    version = entry.get("apiVersion") or ""
    if version not in _VERSIONS:
        raise ValueError(f"`apiVersion` is {_shown(version)}, not one of {_listed(_VERSIONS)}")
    return Plugin(
        command=command,
        api_version=version,
        args=_texts(entry.get("args"), "args"),
        env=_environment(entry.get("env")),
        interactive=_interactive(entry.get("interactiveMode"), version),
        install_hint=_plain(_text(entry, "installHint")),
        cluster=cluster if entry.get("provideClusterInfo") is True else None,
    )


def question(plugin: Plugin, *, interactive: bool) -> str:
    """Write what a plug-in is asked: the content of the variable `INFO`.

    Args:
        plugin: whom.
        interactive: whether it can ask the person.
    """
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec = {"cluster": plugin.cluster, **spec}
    asked = {"kind": _KIND, "apiVersion": plugin.api_version, "spec": spec}
    return json.dumps(asked, separators=(",", ":"), ensure_ascii=False)


def answered(plugin: Plugin, output: bytes) -> Answer:
    """Read the answer of a plug-in.

    Raises:
        ValueError: it is none; the text says why, without any part of the answer that could be secret.
    """
    said = _credential(plugin, output)
    status = said.get("status")
    if not isinstance(status, Mapping):
        raise ValueError("it has no `status`")
    found = Answer(
        token=_text(status, "token"),
        cert_pem=_text(status, "clientCertificateData"),
        key_pem=_text(status, "clientKeyData"),
        expires_s=_seconds(status.get("expirationTimestamp")),
    )
    if not (found.token or found.cert_pem or found.key_pem):
        raise ValueError("it has neither a token nor a certificate with its key")
    if bool(found.cert_pem) != bool(found.key_pem):
        raise ValueError("it has only one of certificate and key")
    if found.cert_pem and not (_CERTIFICATE in found.cert_pem and _KEY in found.key_pem):
        raise ValueError("its certificate or key is no PEM")
    return found


def _credential(plugin: Plugin, output: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(output)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON" if output.strip() else "it is empty") from None
    if not isinstance(said, Mapping) or said.get("kind") != _KIND:
        raise ValueError(f"it is no {_KIND}")
    if said.get("apiVersion") != plugin.api_version:
        version = _shown(said.get("apiVersion"))
        raise ValueError(f"its `apiVersion` is {version}, the kubeconfig says `{plugin.api_version}`")
    return said


def _interactive(mode: Any, version: str) -> Interactive:
    """Say whether the person may be asked; v1 has no default."""
    if not mode and version != _VERSIONS[0]:
        return Interactive.IF_AVAILABLE
    try:
        return Interactive(mode or "")
    except ValueError:
        listed = _listed(tuple(Interactive))
        raise ValueError(f"`interactiveMode` is {_shown(mode)}, not one of {listed}") from None


def _environment(entries: Any) -> dict[str, str]:
    found = {}
    for entry in entries or ():
        if not isinstance(entry, Mapping) or not _text(entry, "name"):
            raise ValueError("`env` is no list of names and values")
        found[_text(entry, "name")] = _text(entry, "value")
    return found


def _texts(value: Any, name: str) -> tuple[str, ...]:
    found = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    if (value and not found) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"`{name}` is no list of texts")
    return found


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{key}` is no text")
    return value or ""


def _seconds(time: Any) -> float | None:
    if time is None:
        return None
    if not isinstance(time, str) or not _TIME.fullmatch(time):
        raise ValueError(_NO_TIME)
    try:
        seconds = datetime.fromisoformat(time).timestamp()
    except ValueError:
        raise ValueError(_NO_TIME) from None
    return None if seconds == _NEVER_S else seconds


def _plain(text: str) -> str:
    """Write a hint so that it changes nothing of a terminal."""
    return "".join(c if c.isprintable() or c in "\t\n" else f"U+{ord(c):04X}" for c in text).strip()


def _shown(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) and value else "missing" if not value else "no text"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
