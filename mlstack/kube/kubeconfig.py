"""The cluster and the user of a context, from all kubeconfig files; which one counts is as with kubectl."""

from __future__ import annotations

import base64
import errno
import ipaddress
import json
import os
import re
import select
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from mlstack.app import document
from mlstack.errors import ClusterError, ConfigError, NotFoundError, UsageError, YamlError
from mlstack.names import nearest
from mlstack.objects import masking

# --- The cluster and the user of a context, from all kubeconfig files; which one counts is as with
# kubectl

T = TypeVar("T")

MOST_BYTES = 10 << 20
"""How many bytes a kubeconfig may have."""

LOOK = "kubectl config view shows what it holds"

_PIECE, _SILENCE_S = 1 << 16, 10.0
_SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}


class UnfitError(Exception):
    """Raised when a key of a kubeconfig has a value that it cannot have; says its name alone."""


@dataclass(frozen=True)
class Part:
    """What a kubeconfig says of a cluster or user, the file that says it, and its name there."""

    value: Mapping[str, Any] = field(default_factory=dict, repr=False)
    file: Path = Path()
    name: str = ""

    @property
    def folder(self) -> Path:
        """Give the folder at which relative paths begin."""
        return self.file.parent

    def text(self, key: str) -> str:
        """Give a text, empty without.

        Raises:
            UnfitError: it is something else.
        """
        return self._of(key, str) or ""

    def flag(self, key: str) -> bool:
        """Give a truth value, false without.

        Raises:
            UnfitError: it is something else.
        """
        return self._of(key, bool) or False

    def part(self, key: str) -> Part:
        """Give a map, empty without.

        Raises:
            UnfitError: it is something else.
        """
        value = self._of(key, Mapping) or {}  # type: ignore[type-abstract] # any map will do
        return replace(self, value=value)

    def pem(self, key: str) -> str | None:
        """Give certificates or a key that stand here or in a file that is named here.

        Raises:
            UnfitError: what stands here cannot be any.
            OSError: the file cannot be read.
        """
        data, file = self.text(f"{key}-data"), self.text(key)
        if not data:
            return decoded(bounded(self.folder / file)) if file else None
        try:
            return decoded(base64.b64decode(data, validate=True))
        except ValueError:
            raise UnfitError(key) from None

    def _of(self, key: str, kind: type[T]) -> T | None:
        value = self.value.get(key)
        if value is not None and not isinstance(value, kind):
            raise UnfitError(key)
        return value


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A context with its two parts.

    Attributes:
        context: its name.
        files: the kubeconfig files, as the user names them.
        cluster: where it leads.
        user: who one is there.
    """

    context: str
    files: str
    cluster: Part
    user: Part


def paths(option: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Give the kubeconfig files as kubectl finds them: `--kubeconfig`, `$KUBECONFIG`, `~/.kube/config`.

    The option names one file, whatever its name; the variable a list.
    """
    if option:
        return (Path(option),)
    if listed := environ.get("KUBECONFIG"):
        return tuple(Path(name) for name in listed.split(os.pathsep) if name)
    home = environ.get("HOME")
    return (Path(home, ".kube", "config"),) if home else ()


def shown(files: Iterable[Path]) -> str:
    """Write files as a list in `KUBECONFIG`."""
    return os.pathsep.join(str(file) for file in files)


def decoded(data: bytes) -> str:
    """Read a text of certificates: around them anything may stand, and must come back as it was."""
    return data.decode("utf-8", "surrogateescape")


def bounded(file: Path, most: int = 1 << 20) -> bytes:
    """Read a file, or what is written to a pipe; neither a device without end nor a silent pipe holds us up.

    Args:
        file: its place.
        most: how many bytes it may have.

    Raises:
        OSError: it cannot be read, gives nothing for a while, or is larger.
    """
    number = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    pieces, size = [], 0
    try:
        while piece := _piece(number, str(file)):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise OSError(errno.EFBIG, "file too large", str(file))
    finally:
        os.close(number)
    return b"".join(pieces)


def _piece(number: int, name: str) -> bytes:
    while True:
        try:
            return os.read(number, _PIECE)
        except BlockingIOError:
            if not select.select([number], [], [], _SILENCE_S)[0]:
                raise TimeoutError(errno.ETIMEDOUT, "it gives nothing", name) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from None


def read_parts(context: str, option: str | None, environ: Mapping[str, str]) -> Parts:
    """Find the parts of a context.

    Args:
        context: its name; empty for the current one.
        option: what `--kubeconfig` says.
        environ: the environment.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ClusterError: it cannot be read, or lacks a part.
    """
    found = Entries(option, environ)
    files = shown(found.files)
    if not found.is_there:
        raise missing(found.files)
    name = context or found.current
    if not name:
        raise NotFoundError(
            "the kubeconfig has no current context",
            where=files,
            hint="kubectl config use-context NAME; `kubectl config get-contexts` lists them",
        )
    chosen = found.context(name)
    cluster, user = (found.part(name, section, chosen) for section in ("clusters", "users"))
    return Parts(context=name, files=files, cluster=cluster, user=user)


def missing(files: Iterable[Path]) -> NotFoundError:
    """Give the fault that there is no kubeconfig."""
    return NotFoundError(
        f"there is no kubeconfig at {shown(files) or '~/.kube/config'}",
        hint="set KUBECONFIG, or let your cluster write one: minikube start, "
        "gcloud container clusters get-credentials NAME",
    )


class Entries:
    """All entries of all files; where several files have one name, the first counts.

    Args:
        option: what `--kubeconfig` says.
        environ: the environment.

    Attributes:
        files: those that were looked for, in order.
        is_there: whether one of them says something.
        current: the context that kubectl uses unless told otherwise, empty if there is none.
        known: the entries of each section by name.
    """

    def __init__(self, option: str | None, environ: Mapping[str, str]) -> None:
        """Read the files; those that are not there are passed over.

        Raises:
            ClusterError: kubectl would not read one of them.
        """
        self.files = paths(option, environ)
        self.current = ""
        self.known: dict[str, dict[str, Part]] = {section: {} for section in _SECTIONS}
        contents = [(file, content) for file in self.files if (content := _content(file)) is not None]
        self.is_there = bool(contents)
        for file, content in contents:
            try:
                self._take(content, file)
            except ValueError as error:
                raise _unreadable(f"it is not a kubeconfig: {error}", str(file)) from None

    def context(self, name: str) -> Mapping[str, Any]:
        """Give a context.

        Raises:
            NotFoundError: with the known ones.
        """
        known = self.known["contexts"]
        if name not in known:
            raise NotFoundError(
                f"the kubeconfig has no context `{name}`; it has "
                + (", ".join(f"`{each}`" for each in sorted(known)) or "none"),
                near=(near := nearest(name, known)),
                where=shown(self.files),
                hint=None if near else "kubectl config get-contexts; --context NAME takes another one",
            )
        return known[name].value

    def part(self, context: str, section: str, chosen: Mapping[str, Any]) -> Part:
        """Give the cluster or user that a context names.

        Raises:
            ClusterError: there is none of that name.
        """
        what = _SECTIONS[section]
        name = str(chosen.get(what) or "")
        if name and name not in self.known[section]:
            raise ClusterError(
                f"context `{context}` names the {what} `{name}`, which the kubeconfig does not have",
                where=shown(self.files),
                hint=LOOK,
            )
        return self.known[section].get(name, Part())

    def _take(self, content: Mapping[str, Any], file: Path) -> None:
        current = content.get("current-context") or ""
        if not isinstance(current, str):
            raise ValueError("`current-context` is no text")
        self.current = self.current or current
        for section, what in _SECTIONS.items():
            entries = content.get(section) or []
            if not isinstance(entries, list):
                raise ValueError(f"`{section}` is no list")
            names = set()
            for number, entry in enumerate(entries):
                place = f"{section}[{number}]"
                name, value = _named(entry, what, place)
                if name in names:
                    raise ValueError(f"`{place}` has a name that stands there already")
                names.add(name)
                self.known[section].setdefault(name, Part(value, file, name))


def _named(entry: Any, what: str, place: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ValueError(f"`{place}` has no name")
    value = entry.get(what) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f"`{place}.{what}` is no map")
    return entry["name"], value


def _content(file: Path) -> Mapping[str, Any] | None:
    """Read a file; None if it is not there or says nothing."""
    try:
        read = document.read_all(bounded(file, MOST_BYTES), file=str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable((error.strerror or "").lower(), str(file)) from None
    except YamlError as error:  # its text may quote a line, and that a token
        raise _unreadable("it is not a kubeconfig", error.where or str(file)) from None
    if not read:
        return None
    if not isinstance(read[0].value, Mapping):
        raise _unreadable("it is not a kubeconfig", str(file))
    return read[0].value


def _unreadable(reason: str, where: str) -> ClusterError:
    return ClusterError(f"the kubeconfig cannot be read: {reason}", where=where, hint=LOOK)


# --- The contexts of a kubeconfig and where they lead; credentials are left to the client ---


@dataclass(frozen=True, kw_only=True)
class Context:
    """A kubectl context.

    Args:
        name: the context's name.
        cluster: the cluster entry it uses.
        server: that entry's address; empty when it is missing.
        namespace: the namespace it sets; `default` when it sets none.
    """

    name: str
    cluster: str
    server: str
    namespace: str


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """All contexts of one or several kubeconfig files.

    Args:
        current_context: the context kubectl uses unless told otherwise; empty when there is none.
        contexts: by name.
        paths: the files that were looked for, in order.
        exists: whether one of them is there.
    """

    current_context: str = ""
    contexts: Mapping[str, Context] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    exists: bool = True

    def context(self, name: str) -> Context:
        """Give a context.

        Raises:
            NotFoundError: with the nearest known one.
        """
        if name not in self.contexts:
            looked = ", ".join(str(path) for path in self.paths)
            near = nearest(name, self.contexts)
            hint = f"did you mean `{near}`?" if near else "kubectl config get-contexts"
            raise NotFoundError(f"no context `{name}` in {looked or 'the kubeconfig'}", near=near, hint=hint)
        return self.contexts[name]

    def current(self) -> Context:
        """Give the context that kubectl uses unless told otherwise.

        Raises:
            NotFoundError: there is no kubeconfig, or no such context in it.
            UsageError: none is current.
        """
        if not self.exists:
            raise missing(self.paths)
        if not self.current_context:
            raise UsageError(
                "no kubectl context is current", hint="kubectl config use-context NAME, or --context NAME"
            )
        return self.context(self.current_context)

    def by_server(self, server: str) -> tuple[Context, ...]:
        """Give the contexts that lead to an address."""
        wanted = server.rstrip("/")
        return tuple(context for context in self.contexts.values() if context.server.rstrip("/") == wanted)


def load(option: str | None, environ: Mapping[str, str]) -> Kubeconfig:
    """Read the contexts of the kubeconfig, as whoever logs in reads them.

    Raises:
        NotFoundError: the file given by option does not exist.
        ClusterError: kubectl would not read a file.
    """
    if option and not Path(option).exists():
        raise NotFoundError(
            f"there is no kubeconfig at {option}", hint="relative paths start at the working directory"
        )
    entries = Entries(option, environ)
    servers = {name: _text(part.value.get("server")) for name, part in entries.known["clusters"].items()}
    contexts = {name: _context(part, servers) for name, part in entries.known["contexts"].items()}
    return Kubeconfig(
        current_context=entries.current,
        contexts=contexts,
        paths=entries.files,
        exists=any(file.exists() for file in entries.files),
    )


def _context(part: Part, servers: Mapping[str, str]) -> Context:
    cluster = _text(part.value.get("cluster"))
    namespace = _text(part.value.get("namespace")) or "default"
    return Context(name=part.name, cluster=cluster, server=servers.get(cluster, ""), namespace=namespace)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- What a credential plug-in is told and what it may answer, by the rules of client-go ---
# See https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins

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
        args=_plugin_texts(entry.get("args"), "args"),
        env=_environment(entry.get("env")),
        interactive=_interactive(entry.get("interactiveMode"), version),
        install_hint=_plain(_plugin_text(entry, "installHint")),
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
        token=_plugin_text(status, "token"),
        cert_pem=_plugin_text(status, "clientCertificateData"),
        key_pem=_plugin_text(status, "clientKeyData"),
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
        if not isinstance(entry, Mapping) or not _plugin_text(entry, "name"):
            raise ValueError("`env` is no list of names and values")
        found[_plugin_text(entry, "name")] = _plugin_text(entry, "value")
    return found


def _plugin_texts(value: Any, name: str) -> tuple[str, ...]:
    found = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    if (value and not found) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"`{name}` is no list of texts")
    return found


def _plugin_text(part: Mapping[str, Any], key: str) -> str:
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


# --- How one gets to an API server, and how one shows there who one is: what a kubeconfig says of a
# context

_AS = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}
_EXTRA = "as-user-extra"
IMPERSONATION = frozenset({*_AS, _EXTRA})
"""What a user of a kubeconfig may say of somebody else, whose rights he wants to have."""

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://([^/@\s?#\\]*@)?(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]\\]+))"
    r"(:(?P<port>[0-9]{1,5})?)?(?P<path>/[^\s?#]*)?(\?[^\s#]*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_LONGEST_NAME = 253

_UNFIT = re.compile(r"[^a-z0-9!#$&'*+.^_`|~-]")

_ID_TOKEN_MARGIN_S = 10  # client-go's


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a server's address; who one is, which may stand before an `@`, is none of them.

    Attributes:
        scheme: `http` or `https`.
        host: name or number, in small letters.
        port: its port.
        path: what stands before every path, without a slash at its end.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def is_secure(self) -> bool:
        """Tell whether it is spoken to over TLS."""
        return self.scheme == "https"

    @property
    def is_here(self) -> bool:
        """Tell whether it is this machine itself, by its number or the name that never leads elsewhere."""
        number = ip_number(self.host)
        return self.host.removesuffix(".") == "localhost" or (number is not None and number.is_loopback)

    @property
    def url(self) -> str:
        """Write it as short as it can be."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == (443 if self.is_secure else 80) else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def address(text: str) -> Address:
    """Read the address of a server.

    Raises:
        ValueError: it is none, or that of no host.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError("no address")
    scheme = found["scheme"].lower()
    port = int(found["port"] or (443 if scheme == "https" else 80))
    if not 0 < port < 1 << 16:
        raise ValueError("no port")
    host = str(ipaddress.IPv6Address(found["v6"])) if found["v6"] else host_name(found["name"])
    return Address(scheme=scheme, host=host, port=port, path=(found["path"] or "").rstrip("/"))


def host_name(text: str) -> str:
    """Give a name as it is asked for in DNS: in small letters, those of other alphabets encoded; or a number.

    Raises:
        ValueError: no host can have it.
    """
    if ip_number(text):
        return text
    name = text if text.isascii() else text.encode("idna").decode()
    if len(name) > _LONGEST_NAME + 1 or not all(map(_LABEL.fullmatch, name.removesuffix(".").split("."))):
        raise ValueError("no host")
    return name.lower()


def ip_number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an IP address, None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class Login:
    """Where an API server is, by whom it is trusted and how it is reached, and as whom we act there.

    Attributes:
        label: how people call it: "context `minikube`".
        server: address, `https://…`.
        ca_pem: certificates to verify the server with, None for those of the system.
        verify: off only where the kubeconfig says insecure-skip-tls-verify.
        server_name: the name to verify, where it is not that of the address.
        proxy: URL of the proxy in between, None without.
        packed: whether answers may come packed (gzip).
        impersonation: headers that say as whom the server shall take us.
    """

    label: str
    server: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    packed: bool = True
    impersonation: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What shows an API server who we are; with nothing in it we are nobody.

    Attributes:
        authorization: value of the header of that name, None without.
        cert_pem: client certificate, None without.
        key_pem: its key.
        expires_s: when it stops to count, in seconds since 1970; None if nobody knows.
    """

    authorization: str | None = field(default=None, repr=False)
    cert_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    expires_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """A token in a file that others write anew before it expires.

    Attributes:
        path: the file.
        proof: what is shown beside the token, and alone while the file cannot be read.
    """

    path: str
    proof: Proof = field(default_factory=Proof)


@dataclass(frozen=True, kw_only=True)
class IdToken:
    """A token of an identity provider (OpenID Connect), which gives another one for a refresh-token.

    Attributes:
        proof: what is shown; without authorization if there is no token yet.
        settings: what the kubeconfig says of the provider, by its keys.
        file: the kubeconfig file in which that stands.
        user: name of the user to whom it belongs there.
    """

    proof: Proof
    settings: Mapping[str, str] = field(repr=False)
    file: str
    user: str

    def with_token(self, proof: Proof) -> Proof:
        """Give the proof by another token; the certificate beside it stays."""
        return replace(proof, cert_pem=self.proof.cert_pem, key_pem=self.proof.key_pem)


Way = Proof | TokenFile | IdToken | Plugin
"""How one comes by a proof: it is there, it is read, a provider renews it, or a plug-in is asked for it."""


def bearer(token: str) -> str:
    """Give the header of a token."""
    masking.note(token)
    return f"Bearer {token}"


def basic(user: str, password: str) -> str:
    """Give the header of a name and a password."""
    masking.note(password, f"{user}:{password}".encode())
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def id_token(token: str) -> Proof:
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
    return Proof(authorization=bearer(token), expires_s=expires_s - _ID_TOKEN_MARGIN_S)


def impersonation_of(user: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Give the headers by which a user of a kubeconfig acts as another one, as kubectl sends them.

    Raises:
        ValueError: it cannot be told as whom; to go on would be to act with the user's own rights.
    """
    given = {key: user[key] for key in IMPERSONATION if user.get(key)}
    if given and not (isinstance(given.get("as"), str) and isinstance(given.get("as-uid", ""), str)):
        raise ValueError("no user")
    extra = given.pop(_EXTRA, {})
    if not isinstance(extra, Mapping):
        raise ValueError(_EXTRA)
    headers = {_AS[key]: _texts(value) for key, value in given.items()}
    return headers | {f"Impersonate-Extra-{_escaped(key)}": _texts(value) for key, value in extra.items()}


def _texts(value: Any) -> tuple[str, ...]:
    texts = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no text")
    return texts


def _escaped(key: Any) -> str:
    """Write a key so that it can stand in the name of a header."""
    return _UNFIT.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), str(key).lower())


# --- What a kubeconfig says of a credential plug-in, and what the plug-in is told of its cluster ---


def read_plugin_login(parts: Parts, found: Login) -> Plugin:
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
        return described(entry.value, command=command, cluster=_told(parts, found))
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
        if isinstance(each, Mapping) and each.get("name") == EXTENSION
    ]
    return {**{key: value for key, value in told.items() if value}, "config": own[0] if own else None}


def unclear(parts: Parts, text: str, hint: str) -> ClusterError:
    """Give the fault of a context that does not say how to log in."""
    return ClusterError(f"context `{parts.context}` {text}", where=parts.files, hint=hint)


# --- What a kubeconfig says of an identity provider (OpenID Connect), and how new tokens are kept
# there

_OIDC = "oidc"
_AUTHORITY = "idp-certificate-authority"


def read_provider_login(parts: Parts) -> IdToken:
    """Read the auth-provider of a context.

    Raises:
        UnfitError: a key has a value that it cannot have.
        ValueError: what stands there is no id-token.
        ClusterError: it is another provider, or there is a plug-in beside it.
    """
    if parts.user.value.get("exec"):
        raise unclear(
            parts,
            "logs in both by a credential plug-in and by an auth-provider",
            "leave one of them in the kubeconfig: `exec` or `auth-provider`",
        )
    provider = parts.user.part("auth-provider")
    name, config = provider.text("name"), provider.part("config")
    if name != _OIDC:
        raise ClusterError(
            f"the credentials of context `{parts.context}` come from auth-provider `{name}`, "
            "which cannot be used",
            where=parts.files,
            hint="get its credentials anew, with the credential plug-in that kubectl takes today",
        )
    settings = {key: config.text(key) for key in config.value}
    token = settings.get("id-token")
    return IdToken(
        proof=id_token(token) if token else Proof(expires_s=0),
        settings=settings,
        file=str(parts.user.file),
        user=parts.user.name,
    )


def authority(way: IdToken) -> str | None:
    """Give the certificates to verify a provider with, None for those of the system.

    Raises:
        ValueError: they cannot be read.
    """
    data, file = (way.settings.get(f"{_AUTHORITY}{end}") for end in ("-data", ""))
    try:
        if data:
            return decoded(base64.b64decode(data, validate=True))
        return decoded(bounded(Path(file))) if file else None
    except (OSError, ValueError):
        raise ValueError(f"its `{_AUTHORITY}` cannot be read") from None


def keep(way: IdToken, tokens: Mapping[str, str]) -> None:
    """Write new tokens into the kubeconfig, as kubectl does; nothing else changes there.

    Args:
        way: where they stand.
        tokens: what stands there from now on, by key.

    Raises:
        ValueError: they cannot be written; the text says why, without any part of them.
    """
    from mlstack.app import atomic

    file = Path(way.file)
    try:
        text = _with(way, tokens, file.read_bytes().decode("utf-8"))
        try:
            atomic.write_files({file: text})
        except ConfigError:  # a file that is mounted alone cannot be replaced
            file.write_bytes(text.encode())
    except OSError as error:
        raise ValueError((error.strerror or type(error).__name__).lower()) from None
    except (ConfigError, ValueError, LookupError, TypeError):
        raise ValueError("it has changed meanwhile, or is written in an unusual way") from None


def _with(way: IdToken, tokens: Mapping[str, str], text: str) -> str:
    from mlstack.yaml import edit, read

    users = read.read_document(text, source=way.file, with_positions=False).value["users"]
    number = [user["name"] for user in users].index(way.user)
    if not users[number]["user"]["auth-provider"]["config"]:
        raise LookupError("config")
    for key, token in tokens.items():
        path: list[str | int] = ["users", number, "user", "auth-provider", "config", key]
        text = edit.set_value(text, path, token, source=way.file)
    return text


# --- Whether a proxy named by the environment stands between us and a server: kubectl's rules ---
# Those of Go's net/http: one variable a scheme, none for the machine itself, and exceptions in NO_PROXY.

_WITH_PORT = re.compile(r"(\[(?P<v6>[^\]]*)\]|(?P<name>[^:\[\]]*)):(?P<port>[^:]*)")


def between(server: str, environ: Mapping[str, str]) -> str | None:
    """Give the URL of the proxy that a server is reached by, None where it is reached directly.

    Args:
        server: address of the server.
        environ: the environment.
    """
    try:
        there = address(server)
    except ValueError:
        return None
    proxy = _variable(f"{there.scheme}_proxy", environ)
    exceptions = _variable("no_proxy", environ)
    if not proxy or there.is_here or _is_excepted(there.host, str(there.port), exceptions):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str, environ: Mapping[str, str]) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_excepted(host: str, port: str, exceptions: str) -> bool:
    return any(_covers(entry.strip().lower(), host, port) for entry in exceptions.split(","))


def _covers(entry: str, host: str, port: str) -> bool:
    """Tell whether an exception is about a server, as golang.org/x/net/http/httpproxy reads it."""
    if entry in ("", "*"):
        return entry == "*"
    number = ip_number(host)
    if number is not None and _is_in(number, entry):
        return True
    found = None if ip_number(entry) else _WITH_PORT.fullmatch(entry)
    name, wanted = (found["v6"] or found["name"], found["port"]) if found else (entry, "")
    if not name or wanted not in ("", port):
        return False
    if number is not None:
        return ip_number(name) == number
    name = name[1:] if name.startswith("*.") else name
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _is_in(number: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    if "/" not in network:
        return False
    try:
        return number in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


# --- The service account of the pod we run in, as a login ---

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""


def is_in_pod(account: Path) -> bool:
    """Tell whether we run in a pod with an account."""
    return (account / "ca.crt").exists()


def read_pod_login(account: Path, environ: Mapping[str, str]) -> tuple[Login, TokenFile]:
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
    login = Login(label=label, server=server, ca_pem=ca, proxy=between(server, environ))
    return login, TokenFile(path=str(account / "token"))


# --- How a kubeconfig, or the account of the pod we run in, says that one gets to an API server ---

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
    context: str, kubeconfig: str | None, environ: Mapping[str, str], *, account: Path = ACCOUNT
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
    is_there = any(file.exists() for file in paths(kubeconfig, environ))
    if not context and is_in_pod(account) and not is_there:
        login_, way = read_pod_login(account, environ)
        return Found(login=login_, way=way)
    parts = read_parts(context, kubeconfig, environ)
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
    return replace(way.proof, authorization=bearer(token))


def _login(parts: Parts, label: str, environ: Mapping[str, str]) -> Login:
    cluster = parts.cluster
    server, name = _address(parts)
    ca_pem, verify = cluster.pem("certificate-authority"), not cluster.flag("insecure-skip-tls-verify")
    if address(server).is_secure and ca_pem is not None and not verify:
        raise unclear(
            parts,
            "names a certificate authority, and says insecure-skip-tls-verify, by which none counts",
            "leave one of them in the kubeconfig; kubectl refuses both together too",
        )
    try:
        impersonation = impersonation_of(parts.user.value)
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
        proxy=cluster.text("proxy-url") or between(server, environ),
        packed=not cluster.flag("disable-compression"),
        impersonation=impersonation,
    )


def _address(parts: Parts) -> tuple[str, str]:
    """Give the address of the server, and the name to verify where that is another one."""
    server, name = parts.cluster.value.get("server"), parts.cluster.text("tls-server-name")
    if not isinstance(server, str) or not server.lower().startswith(("https://", "http://")):
        raise unclear(parts, "has no address of an API server that begins with https://", _SERVER)
    try:
        address(server)
    except ValueError:
        raise unclear(parts, "has an address of an API server that is not a URL of a host", _SERVER) from None
    try:
        return server, name and host_name(name)
    except ValueError:
        raise unclear(
            parts, "has a tls-server-name that no host can have", "mend it in the kubeconfig, or remove it"
        ) from None


def _way(parts: Parts, found: Login) -> Way:
    """Say how one comes by the proof: as with kubectl, what stands in the kubeconfig counts first.

    What would go over the network as plain text is never sent, nor asked of anybody: we are nobody there.
    """
    there = address(found.server)
    if not there.is_secure and (found.proxy or not there.is_here):
        return Proof()
    user = parts.user
    proof = _standing(parts)
    if file := user.text("tokenFile"):
        return TokenFile(path=str(user.folder / file), proof=proof)
    if user.value.get("auth-provider"):
        provided = read_provider_login(parts)
        shown = replace(proof, authorization=provided.proof.authorization, expires_s=provided.proof.expires_s)
        return proof if proof.authorization else replace(provided, proof=shown)
    is_known = proof.authorization or proof.cert_pem
    return proof if is_known or not user.value.get("exec") else read_plugin_login(parts, found)


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
    authorization = basic(name, password) if name or password else None
    return Proof(
        authorization=bearer(token) if token else authorization,
        cert_pem=certificate,
        key_pem=user.pem("client-key") if certificate else None,
    )
