"""Kustomizations built by the user's own kustomize, or by kubectl: folders, and copies of other people's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from mlstack import programs
from mlstack.app.app import Kustomization
from mlstack.app.files import read_folder
from mlstack.app.lock import LockedKustomization
from mlstack.app.package import digest
from mlstack.app.reader import AppReader
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError, TemplateError
from mlstack.programs import ProgramError
from mlstack.yaml.read import read_documents

Files = Mapping[PurePosixPath, bytes]

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
GET_KUSTOMIZE = "get kustomize from https://kubectl.docs.kubernetes.io/installation/kustomize, or kubectl"
SETTINGS = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
_BUILD_S = 120.0
_REMOTE = re.compile(r"[a-z+]+://.+|git@.+:.+|git::.+|(www\.)?(github|gitlab|bitbucket)\.(com|org)/.+")
_LISTS = ("resources", "bases", "components")


def build(app: AppReader, component: Kustomization) -> str:
    """Give the objects of a component as YAML; no network is asked.

    Raises:
        RegistryError: there is neither kustomize nor kubectl; the copy is missing, or not as it was locked.
        ConfigError: the folder holds no kustomization, or it does not build.
    """
    if not component.is_remote:
        folder = app.root / Path(component.source).expanduser()
        _refuse_remote(folder, component)
        return build_folder(folder, where=component.file)
    locked = next((entry for entry in app.lock.kustomizations if entry.source == component.source), None)
    files = _vendored(app.root, component, locked)
    with TemporaryDirectory(prefix="mlstack-kustomize-") as place:
        for path, data in files.items():
            file = Path(place) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return build_folder(Path(place) / (locked.root if locked else ""), where=component.file)


def _vendored(root: Path, component: Kustomization, locked: LockedKustomization | None) -> Files:
    if locked is None or not (root / locked.folder).is_dir():
        message = f"there is no copy of `{component.source}` in vendor/"
        raise RegistryError(message, where=component.file, hint="mlstack pkg install")
    files = read_folder(root / locked.folder, source=locked.folder)
    if digest(files) != locked.digest:
        message = f"the copy of `{component.source}` is not what mlstack.lock says"
        raise RegistryError(message, where=locked.folder, hint="mlstack pkg install --force restores it")
    return files


def build_folder(folder: Path, *, where: str) -> str:
    """Build a kustomization; messages are about the component's file at `where`.

    Raises:
        RegistryError: there is neither kustomize nor kubectl.
        NotFoundError: there is no such kustomization.
        TemplateError: it does not build.
    """
    if not any((folder / name).is_file() for name in NAMES):
        message = f"no kustomization in `{os.path.normpath(folder)}`"
        is_file = folder.name in NAMES and folder.is_file()
        hint = "name the folder that holds the file" if is_file else "paths start at the app's folder"
        raise NotFoundError(message, where=where, hint=hint)
    for command in (["kustomize", "build"], ["kubectl", "kustomize"]):
        try:
            programs.find(command[0])
        except ProgramError:
            continue
        try:
            done = programs.run([*command, str(folder)], settings=SETTINGS, timeout_s=_BUILD_S)
            return done.stdout.decode("utf-8", "replace")
        except ProgramError as error:
            text = re.sub(r"^`[^`]*` failed: (.*?[Ee]rror: )?", "", error.message, flags=re.DOTALL)
            raise TemplateError(f"kustomize does not build it: {text}", where=where) from error
    message = "a kustomization needs `kustomize` or `kubectl`, and neither is installed"
    raise RegistryError(message, where=where, hint=GET_KUSTOMIZE)


def _refuse_remote(folder: Path, component: Kustomization) -> None:
    """Raise for a local kustomization that refers to other people's: each render would fetch those."""
    for file, entry in remote_entries(folder):
        message = f"`{entry}` is somebody else's, which no render fetches"
        hint = f"`kustomize localize {component.source} NEWDIR` makes a copy with all it needs: name that"
        raise ConfigError(message, where=str(file), hint=hint)


def remote_entries(folder: Path, seen: Sequence[Path] = ()) -> list[tuple[Path, str]]:
    """Give what a kustomization, and those below it, take from elsewhere, with the file that says so."""
    place = folder.resolve()
    file = next((place / name for name in NAMES if (place / name).is_file()), None)
    if file is None or place in seen:
        return []
    found = []
    for entry in _entries(file):
        if (place / entry).exists():
            found += remote_entries(place / entry, (*seen, place))
        elif _REMOTE.fullmatch(entry):
            found.append((file, entry))
    return found


def _entries(file: Path) -> list[str]:
    try:
        documents = read_documents(file.read_text(encoding="utf-8"), source=str(file))
    except (MlstackError, OSError, UnicodeDecodeError):  # kustomize says what is wrong
        return []
    content: Any = documents[0].value if documents else {}
    lists = [content.get(name) for name in _LISTS] if isinstance(content, Mapping) else []
    return [
        entry for listed in lists if isinstance(listed, list) for entry in listed if isinstance(entry, str)
    ]
