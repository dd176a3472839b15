"""Kubeconfig files as kubectl reads them: contexts, clusters, users, where each leads and by which program.

The reader is ours because those of `kubernetes`, lightkube and kr8s get impersonation (`as`) wrong.
Credential plug-ins follow the rules of client-go:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import errno
import os
import re
import select
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from mlstack.addresses import Endpoint, address, host_name, proxy_of
from mlstack.app import document
from mlstack.dataclass import Record, dataclass
from mlstack.errors import ClusterError, NotFoundError, UsageError, YamlError
from mlstack.names import did_you_mean, nearest

T = TypeVar("T")

MOST_BYTES = 10 << 20
"""How many bytes a kubeconfig may have."""
LOOK = "kubectl config view shows what it holds"

_SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}

IN_CLUSTER = "in-cluster"
"""The context of an environment that is deployed from a pod of its cluster, by the pod's own account."""


class UnfitError(Exception):
    """Raised when a key of a kubeconfig has a value that it cannot have; says its name alone."""


@dataclass(frozen=True)
class Entry:
    """What a kubeconfig says of a context, cluster or user, the file that says it, and its name there.

    Values of another type than asked for raise UnfitError.
    """

    value: Mapping[str, Any] = field(default_factory=dict, repr=False)
    file: Path = Path()  # relative paths begin in its folder
    name: str = ""

    def text(self, key: str) -> str:
        """Give a text, empty without."""
        return self._value(key, str) or ""

    def flag(self, key: str) -> bool:
        """Give a truth value, false without."""
        return self._value(key, bool) or False

    def part(self, key: str) -> Entry:
        """Give a map, empty without."""
        value = self._value(key, Mapping) or {}  # type: ignore[type-abstract] # any map will do
        return replace(self, value=value)

    def pem(self, key: str) -> str | None:
        """Give certificates or a key that stand here or in a file that is named here (else OSError)."""
        data, file = self.text(f"{key}-data"), self.text(key)
        if not data:
            return pem_text(read_bounded(self.file.parent / file)) if file else None
        try:
            return pem_text(base64.b64decode(data, validate=True))
        except ValueError:
            raise UnfitError(key) from None

    def _value(self, key: str, kind: type[T]) -> T | None:
        value = self.value.get(key)
        if value is not None and not isinstance(value, kind):
            raise UnfitError(key)
        return value


class ContextEntry(Record):
    """A context with its two parts; `files` are the kubeconfig files, as the user names them."""

    context: str
    files: str
    cluster: Entry
    user: Entry

    def fault(self, text: str, hint: str) -> ClusterError:
        """Give the fault of a context that does not say how to log in."""
        return ClusterError(f"context `{self.context}` {text}", where=self.files, hint=hint)


class Context(Record):
    """A kubectl context: its cluster entry, that entry's address (empty when missing), its namespace."""

    name: str
    cluster: str
    server: str
    namespace: str


class Kubeconfig(Record):
    """All contexts of one or several kubeconfig files; where several have one name, the first counts."""

    current_context: str = ""  # what kubectl uses unless told otherwise; may be empty
    contexts: Mapping[str, Context] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()  # the files that were looked for, in order
    exists: bool = True  # whether one of them is there
    # By section and name; None where no file says anything.
    entries: Mapping[str, Mapping[str, Entry]] | None = field(default=None, repr=False)

    def context(self, name: str) -> Context:
        """Give a context; a NotFoundError names the nearest known one."""
        if not self.exists:
            raise self._missing()
        if name not in self.contexts:
            listed = ", ".join(f"`{context}`" for context in sorted(self.contexts)) or "none"
            near = nearest(name, self.contexts)
            hint = None if near else "kubectl config get-contexts; --context NAME takes another one"
            text = f"the kubeconfig has no context `{name}`; it has {listed}"
            raise NotFoundError(text, near=near, where=self._files or None, hint=hint)
        return self.contexts[name]

    def of_server(self, server: str) -> Context:
        """Give the context that leads to a server; a NotFoundError if none does, a UsageError if several."""
        contexts = [ctx for ctx in self.contexts.values() if ctx.server.rstrip("/") == server.rstrip("/")]
        if len(contexts) == 1:
            return contexts[0]
        if not contexts:
            servers = [context.server for context in self.contexts.values()]
            hint = did_you_mean(server, servers, "kubectl config view; or name it: --context NAME")
            raise NotFoundError(f"no context leads to `{server}`", hint=hint)
        names = ", ".join(f"`{context.name}`" for context in contexts)
        raise UsageError(f"several contexts lead to `{server}`: {names}", hint="choose one: --context NAME")

    def current(self) -> Context:
        """Give the context that kubectl uses unless told otherwise.

        Raises:
            NotFoundError: there is no kubeconfig, or no such context in it.
            UsageError: none is current.
        """
        if not self.exists:
            raise self._missing()
        if not self.current_context:
            raise UsageError(
                "no kubectl context is current", hint="kubectl config use-context NAME, or --context NAME"
            )
        return self.context(self.current_context)

    def entry(self, name: str) -> ContextEntry:
        """Give all that is said of a context; of the current one where `name` is empty.

        Raises:
            NotFoundError: no kubeconfig, or no such context in it.
            ClusterError: it names a part that is not there.
        """
        files, name = self._files, name or self.current_context
        if self.entries is None:
            raise self._missing()
        if not name:
            raise NotFoundError(
                "the kubeconfig has no current context",
                where=files,
                hint="kubectl config use-context NAME; `kubectl config get-contexts` lists them",
            )
        context, parts = self.entries["contexts"][self.context(name).name], dict[str, Entry]()
        for section, what in (("clusters", "cluster"), ("users", "user")):
            part = str(context.value.get(what) or "")
            if part and part not in self.entries[section]:
                text = f"context `{name}` names the {what} `{part}`, which the kubeconfig does not have"
                raise ClusterError(text, where=files, hint=LOOK)
            parts[what] = self.entries[section].get(part, Entry())
        return ContextEntry(context=name, files=files, **parts)

    @property
    def _files(self) -> str:
        return os.pathsep.join(map(str, self.paths))

    def _missing(self) -> NotFoundError:
        return NotFoundError(
            f"there is no kubeconfig at {self._files or '~/.kube/config'}",
            hint="set KUBECONFIG, or let your cluster write one: minikube start, "
            "gcloud container clusters get-credentials NAME",
        )


def load(option: str | None, environ: Mapping[str, str]) -> Kubeconfig:
    """Read the contexts of the kubeconfig, as whoever logs in reads them.

    Args:
        option: what `--kubeconfig` says.
        environ: the environment.

    Raises:
        NotFoundError: the file given by option does not exist.
        ClusterError: kubectl would not read a file.
    """
    if option and not Path(option).exists():
        raise NotFoundError(
            f"there is no kubeconfig at {option}", hint="relative paths start at the working directory"
        )
    return read(option, environ)


def read(option: str | None, environ: Mapping[str, str]) -> Kubeconfig:
    """Read the files that kubectl would read, those that are there; a ClusterError says that it would not."""
    files: tuple[Path, ...]
    if option:  # names one, whatever its name; the variable a list
        files = (Path(option),)
    elif listed := environ.get("KUBECONFIG"):
        files = tuple(Path(name) for name in listed.split(os.pathsep) if name)
    else:
        files = (Path(environ["HOME"], ".kube", "config"),) if environ.get("HOME") else ()
    entries: dict[str, dict[str, Entry]] = {section: {} for section in _SECTIONS}
    current, contexts, is_empty = "", {}, True
    for file in files:
        if (content := _content(file)) is None:
            continue
        is_empty = False
        try:
            name = content.get("current-context") or ""
            if not isinstance(name, str):
                raise ValueError("`current-context` is no text")
            current = current or name
            _add_entries(entries, content, file)
        except ValueError as error:
            raise _unreadable(f"it is not a kubeconfig: {error}", str(file)) from None
    for name, entry in entries["contexts"].items():
        cluster = _text(entry.value.get("cluster"))
        server = _text(entries["clusters"].get(cluster, Entry()).value.get("server"))
        namespace = _text(entry.value.get("namespace")) or "default"
        contexts[name] = Context(name=name, cluster=cluster, server=server, namespace=namespace)
    return Kubeconfig(
        current_context=current,
        contexts=contexts,
        paths=files,
        exists=any(file.exists() for file in files),
        entries=None if is_empty else entries,
    )


def _content(file: Path) -> Mapping[str, Any] | None:
    """Read a file; None if it is not there or says nothing."""
    try:
        documents = document.read_all(read_bounded(file, MOST_BYTES), file=str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable((error.strerror or "").lower(), str(file)) from None
    except YamlError as error:  # its text may quote a line, and that a token
        raise _unreadable("it is not a kubeconfig", error.where or str(file)) from None
    if documents and not isinstance(documents[0].value, Mapping):
        raise _unreadable("it is not a kubeconfig", str(file))
    return documents[0].value if documents else None


def _unreadable(reason: str, where: str) -> ClusterError:
    return ClusterError(f"the kubeconfig cannot be read: {reason}", where=where, hint=LOOK)


def _add_entries(all_entries: dict[str, dict[str, Entry]], content: Mapping[str, Any], file: Path) -> None:
    for section, what in _SECTIONS.items():
        entries, names = content.get(section) or [], set()
        if not isinstance(entries, list):
            raise ValueError(f"`{section}` is no list")
        for number, entry in enumerate(entries):
            place = f"{section}[{number}]"
            if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
                raise ValueError(f"`{place}` has no name")
            name, value = entry["name"], entry.get(what) or {}
            if not isinstance(value, Mapping):
                raise ValueError(f"`{place}.{what}` is no map")
            if name in names:
                raise ValueError(f"`{place}` has a name that stands there already")
            names.add(name)
            all_entries[section].setdefault(name, Entry(value, file, name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- files that a kubeconfig names ---


def pem_text(data: bytes) -> str:
    """Read a text of certificates: around them anything may stand, and must come back as it was."""
    return data.decode("utf-8", "surrogateescape")


def read_bounded(file: Path, most_bytes: int = 1 << 20) -> bytes:
    """Read a file or pipe; one without end or that gives nothing for 10 s fails like any, by OSError."""
    number = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    data = bytearray()
    try:
        while len(data) <= most_bytes:
            try:
                piece = os.read(number, 1 << 16)
            except BlockingIOError:
                if not select.select([number], [], [], 10.0)[0]:
                    raise TimeoutError(errno.ETIMEDOUT, "it gives nothing", str(file)) from None
                continue
            if not piece:
                return bytes(data)
            data += piece
        raise OSError(errno.EFBIG, "file too large")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    finally:
        os.close(number)


@dataclass(frozen=True, kw_only=True)
class Login(Endpoint):
    """Where an API server is, by whom it is trusted and how it is reached, and as whom we act there."""

    # Headers that say as whom the server shall take us.
    impersonation: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


# --- where a context leads, and as whom we act there ---

_SERVER = "set `server` of its cluster in the kubeconfig"


def login_of(entry: ContextEntry, label: str, environ: Mapping[str, str]) -> Login:
    """Read where a context leads; a value that it cannot have is an UnfitError, a file an OSError."""
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


_AS = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}
_EXTRA = "as-user-extra"
_NO_HEADER = re.compile(r"[^a-z0-9!#$&'*+.^_`|~-]")


def _impersonation(user: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Give the headers by which a user acts as another one; a ValueError if it is not clear as whom."""
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


# --- credential plug-ins ---


class Interactive(StrEnum):
    """Whether a plug-in may ask the person who sits there."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


class Plugin(Record):
    """A program that gives credentials, as a kubeconfig describes it."""

    command: str  # its name on the PATH, or its path
    api_version: str  # the version of the protocol it speaks
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # laid over those of this process
    interactive: Interactive = Interactive.IF_AVAILABLE
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)  # what it is told of the cluster


_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_LISTED_VERSIONS, _MODES = (", ".join(f"`{name}`" for name in names) for names in (_VERSIONS, Interactive))


def plugin_of(entry: ContextEntry, login: Login) -> Plugin:
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
            raise ValueError(f"`apiVersion` is {shown(version)}, not one of {_LISTED_VERSIONS}")
        if not isinstance(args, list | tuple) or not all(isinstance(text, str) for text in args):
            raise ValueError("`args` is no list of texts")
        for variable in value.get("env") or ():
            if not isinstance(variable, Mapping) or not text_of(variable, "name"):
                raise ValueError("`env` is no list of names and values")
            environment[text_of(variable, "name")] = text_of(variable, "value")
        if not mode and version != _VERSIONS[0]:  # v1 has no default
            mode = "IfAvailable"
        if mode not in tuple(Interactive):
            raise ValueError(f"`interactiveMode` is {shown(mode)}, not one of {_MODES}")
        hint = text_of(value, "installHint")
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


def text_of(part: Mapping[str, Any], key: str) -> str:
    """Give a text that a plug-in says, or is told; empty without it, a ValueError if it is none."""
    value = part.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{key}` is no text")
    return value or ""


def shown(value: Any) -> str:
    """Write what stands in place of a text that was expected."""
    return f"`{value}`" if isinstance(value, str) and value else "missing" if not value else "no text"


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
