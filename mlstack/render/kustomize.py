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
from mlstack.app.app_dir import AppDir, Copy
from mlstack.app.files import Files, read_folder
from mlstack.app.package import digest
from mlstack.app.reader import AppReader
from mlstack.app.versions import LockedKustomization
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError, TemplateError
from mlstack.objects import masking
from mlstack.programs import ProgramError
from mlstack.yaml.read import read_documents

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
        for file, entry in remote_entries(folder):
            message = f"`{entry}` is somebody else's, which no render fetches"
            hint = f"`kustomize localize {component.source} NEWDIR` makes a copy with all it needs: name that"
            raise ConfigError(message, where=str(file), hint=hint)
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


def remote_entries(folder: Path, seen: Sequence[Path] = ()) -> list[tuple[Path, str]]:
    """Give what a kustomization, and those below it, take from elsewhere, with the file that says so."""
    place = folder.resolve()
    file = next((place / name for name in NAMES if (place / name).is_file()), None)
    if file is None or place in seen:
        return []
    entries = []
    for entry in _entries(file):
        if (place / entry).exists():
            entries += remote_entries(place / entry, (*seen, place))
        elif _REMOTE.fullmatch(entry):
            entries.append((file, entry))
    return entries


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


# --- copies of other people's kustomizations: made by the user's kustomize, pinned by commit and digest ---

_ASK_S, _COPY_S = 60.0, 300.0


def missing_copies(app: AppDir, *, frozen: bool = False, force: bool = False) -> list[Copy]:
    """Fetch the copies that components need and `vendor/` lacks (all with `force`), as they are locked.

    Raises:
        ConfigError: a component names one that is not locked, and the lock must not change (`frozen`).
        RegistryError: one cannot be fetched, or is not what the lock says.
    """
    entries = {entry.source: entry for entry in app.lock.kustomizations}
    copies = []
    for component in app.kustomizations():
        locked = entries.get(component.source)
        if locked is None and frozen:
            message = f"mlstack.lock is not up to date with the app's components: `{component.source}`"
            raise ConfigError(message, where=component.file, hint="mlstack pkg install")
        if locked is None or force or not (app.root / locked.folder).is_dir():
            copies.append(fetch_copy(component.source, locked))
            entries[component.source] = copies[-1][0]
    return copies


def fetch_copy(source: str, locked: LockedKustomization | None = None) -> Copy:
    """Fetch somebody else's kustomization with all that it refers to; `locked` says which commit.

    Raises:
        RegistryError: there is no kustomize (kubectl cannot), it cannot be fetched, or is not what is locked.
    """
    url = _url(source)
    masking.note(*re.findall(r"://[^/@:]*:?([^/@]+)@", url))
    commit = locked.revision if locked else _commit(source, url)
    files, root = _localized(source, re.sub(r"(?<=[?&]ref=)[^&]*", commit, url))
    name = re.sub(r"[^A-Za-z0-9._@-]+", "-", url.partition("://")[2].replace("?ref=", "@"))
    folder = f"vendor/kustomize/{re.sub('^[^@/]*@(?=.*@)', '', name).strip('-.')}"
    entry = LockedKustomization(
        source=source, folder=folder, root=root, revision=commit, digest=digest(files)
    )
    if locked is not None and entry.digest != locked.digest:
        differs = f"{entry.digest[:19]}, locked {locked.digest[:19]}"
        update = f"mlstack import kustomize {source} --update takes it as it is now"
        hint = f"what it refers to has moved: {update}"
        raise RegistryError(f"`{source}` is not what mlstack.lock holds: {differs}", hint=hint)
    return entry, files


def _url(source: str) -> str:
    """Give an address as kustomize takes it: `https://host/repo//folder?ref=v1`."""
    if "?ref=" in source:
        return source
    address, at, revision = source.rpartition("@")
    if not at or "/" in revision.partition("://")[2] or not address:
        raise RegistryError(f"`{source}` says no branch, tag or commit", hint=f"write {source}@REVISION")
    return f"{address}?ref={revision}"


def _commit(source: str, url: str) -> str:
    place, _, query = url.removeprefix("git::").partition("?")
    scheme, mark, rest = place.rpartition("://")
    is_whole = mark or "@" in rest  # `git@host:…` is for ssh
    repository = (f"{scheme}{mark}" if is_whole else "https://") + rest.partition("//")[0]
    revision = re.split("[&=]", query)[1]
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    command = ["git", "ls-remote", "--", repository, revision, f"{revision}^{{}}"]
    hint = "write URL//FOLDER@REVISION, where URL is what `git clone` takes"
    answer = _fetching(source, command, hint, timeout_s=_ASK_S).decode()
    commits = {name: commit for commit, _, name in (line.partition("\t") for line in answer.splitlines())}
    for name in (f"refs/tags/{revision}^{{}}", f"refs/tags/{revision}", f"refs/heads/{revision}", revision):
        if name in commits:
            return commits[name]
    message = f"`{source}` cannot be fetched: there is no branch or tag `{revision}`"
    raise RegistryError(message, hint="check it; a commit is written with all its 40 digits")


def _localized(source: str, url: str) -> tuple[Files, str]:
    """Have kustomize copy a kustomization; give the files, and its folder in them."""
    with TemporaryDirectory(prefix="mlstack-kustomize-") as place:
        target = Path(place, "copy")
        try:
            programs.find("kustomize")
        except ProgramError as error:
            message = f"a copy of `{source}` needs `kustomize`; kubectl cannot make one"
            raise RegistryError(message, hint=GET_KUSTOMIZE) from error
        command = ["kustomize", "localize", "--no-verify", url, str(target)]
        hint = "check the address and its branch, tag or commit"
        _fetching(source, command, hint, timeout_s=_COPY_S, cwd=Path(place))
        files = read_folder(target, source=source)
    root = PurePosixPath(url.partition("?")[0].partition("://")[2].partition("//")[2].strip("/"))
    if not any(root / name in files for name in NAMES):
        raise RegistryError(f"no kustomization in `{source}`", hint="write URL//FOLDER@REVISION")
    return files, "" if root == PurePosixPath(".") else root.as_posix()


def _fetching(
    source: str, command: Sequence[str], hint: str, *, timeout_s: float, cwd: Path | None = None
) -> bytes:
    try:
        return programs.run(command, settings=SETTINGS, timeout_s=timeout_s, cwd=cwd).stdout
    except ProgramError as error:
        raise RegistryError(f"`{source}` cannot be fetched: {error.message}", hint=hint) from error
