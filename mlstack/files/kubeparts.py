"""The cluster and the user of a context, from all kubeconfig files; which one counts is as with kubectl."""

from __future__ import annotations

import base64
import errno
import os
import select
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mlstack.errors import ClusterError, NotFoundError, YamlError
from mlstack.files import document as documents
from mlstack.model.names import nearest

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


def read(context: str, option: str | None, environ: Mapping[str, str]) -> Parts:
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
        read = documents.read_all(bounded(file, MOST_BYTES), file=str(file))
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
