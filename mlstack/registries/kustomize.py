"""Copies of other people's kustomizations: made by the user's kustomize, pinned by commit and digest."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mlstack import programs
from mlstack.app.app_dir import AppDir, Copy
from mlstack.app.files import read_folder
from mlstack.app.lock import LockedKustomization
from mlstack.app.package import Files, digest
from mlstack.errors import ConfigError, RegistryError
from mlstack.objects import masking
from mlstack.programs import ProgramError
from mlstack.render.kustomize import GET_KUSTOMIZE, NAMES, SETTINGS

_ASK_S, _COPY_S = 60.0, 300.0


def missing_copies(app: AppDir, *, frozen: bool = False, force: bool = False) -> list[Copy]:
    """Fetch the copies that components need and `vendor/` lacks (all with `force`), as they are locked.

    Raises:
        ConfigError: a component names one that is not locked, and the lock must not change (`frozen`).
        RegistryError: one cannot be fetched, or is not what the lock says.
    """
    known = {entry.source: entry for entry in app.lock.kustomizations}
    copies = []
    for component in app.kustomizations():
        locked = known.get(component.source)
        if locked is None and frozen:
            message = f"mlstack.lock is not up to date with the app's components: `{component.source}`"
            raise ConfigError(message, where=component.file, hint="mlstack pkg install")
        if locked is None or force or not (app.root / locked.folder).is_dir():
            copies.append(fetch(component.source, locked))
            known[component.source] = copies[-1][0]
    return copies


def fetch(source: str, locked: LockedKustomization | None = None) -> Copy:
    """Fetch somebody else's kustomization with all that it refers to; `locked` says which commit.

    Raises:
        RegistryError: there is no kustomize (kubectl cannot), it cannot be fetched, or is not what is locked.
    """
    url = _url(source)
    masking.note(*re.findall(r"://[^/@:]*:?([^/@]+)@", url))
    commit = locked.revision if locked else _commit(source, url)
    files, root = _localized(source, re.sub(r"(?<=[?&]ref=)[^&]*", commit, url))
    entry = LockedKustomization(
        source=source, folder=_folder_of(url), root=root, revision=commit, digest=digest(files)
    )
    if locked is not None and entry.digest != locked.digest:
        message = (
            f"`{source}` is not what mlstack.lock holds: {entry.digest[:19]}, locked {locked.digest[:19]}"
        )
        hint = (
            f"what it refers to has moved: mlstack import kustomize {source} --update takes it as it is now"
        )
        raise RegistryError(message, hint=hint)
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
    """Ask which commit a branch or tag is at."""
    place, _, query = url.removeprefix("git::").partition("?")
    scheme, mark, rest = place.rpartition("://")
    is_ssh = not mark and "@" in rest
    repository = (
        f"{scheme}{mark}{rest.partition('//')[0]}" if mark or is_ssh else f"https://{rest.partition('//')[0]}"
    )
    revision = re.split("[&=]", query)[1]
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    command = ["git", "ls-remote", "--", repository, revision, f"{revision}^{{}}"]
    try:
        answer = programs.run(command, settings=SETTINGS, timeout_s=_ASK_S).stdout.decode()
    except ProgramError as error:
        hint = "write URL//FOLDER@REVISION, where URL is what `git clone` takes"
        raise RegistryError(f"`{source}` cannot be fetched: {error.message}", hint=hint) from error
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
        try:
            programs.run(command, settings=SETTINGS, timeout_s=_COPY_S, cwd=Path(place))
        except ProgramError as error:
            hint = "check the address and its branch, tag or commit"
            raise RegistryError(f"`{source}` cannot be fetched: {error.message}", hint=hint) from error
        files = read_folder(target, source=source)
    base = url.partition("?")[0].partition("://")[2].partition("//")[2].strip("/")
    roots = [path.parent for path in files if path.name in NAMES]
    root = next((path for path in roots if path == PurePosixPath(base)), None)
    if root is None:
        raise RegistryError(f"no kustomization in `{source}`", hint="write URL//FOLDER@REVISION")
    return files, "" if root == PurePosixPath(".") else root.as_posix()


def _folder_of(url: str) -> str:
    """Give the folder in the app for the copy of a kustomization."""
    name = re.sub(r"[^A-Za-z0-9._@-]+", "-", url.partition("://")[2].replace("?ref=", "@"))
    return f"vendor/kustomize/{re.sub('^[^@/]*@(?=.*@)', '', name).strip('-.')}"
