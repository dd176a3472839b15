"""The cluster and the user of a context, from all kubeconfig files; which one counts is as with kubectl."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mlstack.errors import ClusterError, NotFoundError, YamlError
from mlstack.files import document as documents
from mlstack.model.names import nearest

T = TypeVar("T")

LOOK = "kubectl config view shows what it holds"

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
            return decoded((self.folder / file).read_bytes()) if file else None
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


def named(kubeconfig: str | None, environ: Mapping[str, str]) -> str:
    """Give the kubeconfig files as kubectl finds them, separated as in `KUBECONFIG`."""
    return kubeconfig or environ.get("KUBECONFIG") or "~/.kube/config"


def exist(files: str) -> bool:
    """Tell whether one of the files is there."""
    return any(file.exists() for file in _paths(files))


def decoded(data: bytes) -> str:
    """Read a text of certificates: around them anything may stand, and must come back as it was."""
    return data.decode("utf-8", "surrogateescape")


def read(context: str, files: str) -> Parts:
    """Find the parts of a context.

    Args:
        context: its name; empty for the current one.
        files: what `named` gives.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ClusterError: it cannot be read, or lacks a part.
    """
    found = _Entries(files)
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


class _Entries:
    """All entries of all files; where several have one name, the first counts."""

    def __init__(self, files: str) -> None:
        self._files = files
        self.current = ""
        self._known: dict[str, dict[str, Part]] = {section: {} for section in _SECTIONS}
        contents = [(file, content) for file in _paths(files) if (content := _content(file)) is not None]
        if not contents:
            raise NotFoundError(
                f"there is no kubeconfig at {files}",
                hint="set KUBECONFIG, or let your cluster write one: minikube start, "
                "gcloud container clusters get-credentials NAME",
            )
        for file, content in contents:
            try:
                self._take(content, file)
            except (AttributeError, TypeError, KeyError, ValueError):
                raise _unreadable("it is not a kubeconfig", str(file)) from None

    def context(self, name: str) -> Mapping[str, Any]:
        known = self._known["contexts"]
        if name not in known:
            raise NotFoundError(
                f"the kubeconfig has no context `{name}`; it has "
                + (", ".join(f"`{each}`" for each in sorted(known)) or "none"),
                near=(near := nearest(name, known)),
                where=self._files,
                hint=None if near else "kubectl config get-contexts; --context NAME takes another one",
            )
        return known[name].value

    def part(self, context: str, section: str, chosen: Mapping[str, Any]) -> Part:
        what = _SECTIONS[section]
        name = str(chosen.get(what) or "")
        if name and name not in self._known[section]:
            raise ClusterError(
                f"context `{context}` names the {what} `{name}`, which the kubeconfig does not have",
                where=self._files,
                hint=LOOK,
            )
        return self._known[section].get(name, Part())

    def _take(self, content: Mapping[str, Any], file: Path) -> None:
        self.current = self.current or str(content.get("current-context") or "")
        for section, what in _SECTIONS.items():
            for entry in content.get(section) or ():
                if not isinstance(name := entry["name"], str) or not name:
                    raise ValueError(section)
                value = entry.get(what) or {}
                if not isinstance(value, Mapping):
                    raise ValueError(section)
                self._known[section].setdefault(name, Part(value, file, name))


def _paths(files: str) -> list[Path]:
    return [Path(name).expanduser() for name in files.split(os.pathsep) if name]


def _content(file: Path) -> Mapping[str, Any] | None:
    """Read a file; None if it is not there or says nothing."""
    try:
        read = documents.read_all(file.read_bytes(), file=str(file))
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
