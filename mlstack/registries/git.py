"""Registries that are git repositories. Git is the user's own, and so are the credentials.

An address is

    github.com/OWNER/REPO/tree/BRANCH/FOLDER     as the browser shows it; https:// may stand in front;
                                                 any host of GitHub or GitLab, blob/…/registry.yaml too
    https://host/repo.git, ssh://…, git@host:owner/repo.git, file:///path
    ADDRESS#BRANCH, ADDRESS#BRANCH:FOLDER        a branch, tag or commit, and a folder of it

One commit is fetched, without history, in one transfer, into a store of the user's cache that all apps
share; nothing is checked out, so that neither hooks nor filters nor links of the repository do anything.
What a branch or tag leads to is believed for ten minutes, a commit for ever.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from secrets import token_hex
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple
from weakref import finalize

from mlstack import disk_cache, programs
from mlstack.app.app import RegistryRef
from mlstack.app.files import LIMITS, MAX_BYTES, MAX_FILES, Files, check_name
from mlstack.app.versions import RegistryIndex
from mlstack.dataclass import Record
from mlstack.disk_cache import Cache
from mlstack.errors import RegistryError
from mlstack.objects import masking
from mlstack.programs import ProgramError
from mlstack.registries.registry import fetch_package, latest, protocol, read_index

_TREE = re.compile(
    r"(?P<repo>(?:https?://)?[\w-]+(?:\.[\w-]+)+(?::\d+)?/[^/]+/.+?)/(?:-/)?"
    r"(?:tree/(?P<rest>.+)|blob/(?P<index>.+)/registry\.yaml)"
)
_HOSTED = re.compile(r"(?:www\.)?(github|gitlab|bitbucket)\.(com|org)/[^/]+/[^/]+/?")
_SCP = re.compile(r"[\w.-]+@[\w.-]+:.+")
_URL = re.compile(r"(https?|ssh|git|git\+ssh|file)://.+")
# What git says behind each reason why it could not fetch.
_EVER = r"; (fatal: Could not read from remote|Please make sure you have|and the repository exists)[^;]*"
_TIMEOUT_S = 300.0
# No questions on a terminal, English messages, and no transport that runs a program of the address's choice.
_SETTINGS = {
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh:git+ssh",
}


class GitAddress(Record):
    """An address taken apart."""

    url: str
    # Branch, tag or commit, with the folder behind it: the readings to try in turn, since a branch's name
    # may hold `/`.
    revisions: tuple[tuple[str, str], ...] = (("HEAD", ""),)

    def at(self, revision: str) -> GitAddress:
        """Give the same folder at another revision: which reading's, the files there tell."""
        return replace(self, revisions=tuple((revision, folder) for _, folder in self.revisions))


def parse_address(address: str) -> GitAddress:
    """Take an address apart.

    Raises:
        RegistryError: it is none.
    """
    if shown := _TREE.fullmatch(address):
        parts = [part for part in (shown["rest"] or shown["index"]).split("/") if part]
        readings = [("/".join(parts[:n]), "/".join(parts[n:])) for n in range(1, len(parts) + 1)]
        return GitAddress(url=_https(shown["repo"]), revisions=tuple(readings))
    url, _, behind = address.partition("#")
    revision, _, folder = behind.partition(":")
    if _HOSTED.fullmatch(url):
        url = _https(url)
    if not (_URL.fullmatch(url) or _SCP.fullmatch(url)) or revision.startswith("-"):
        message = f"`{address}` is no git address"
        raise RegistryError(message, hint="give URL, URL#BRANCH or URL#BRANCH:FOLDER")
    if login := re.match(r"[a-z+]+://([^/\s]*)@", url):  # its password or token, also as git decodes it
        user, colon, password = login[1].partition(":")
        secret = password if colon else user.removeprefix("git")
        masking.note(secret, re.sub("%([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), secret))
    return GitAddress(url=url, revisions=((revision or "HEAD", folder.strip("/")),))


def _https(repository: str) -> str:
    place = repository.rpartition("://")[2].rstrip("/").removesuffix(".git")
    return f"https://{place}.git"


@protocol("git")
class GitRegistry:
    """A folder of a git repository at one commit."""

    def __init__(self, ref: RegistryRef, *, root: Path, fresh: bool = False) -> None:
        self._ref, self._fresh = ref, fresh
        self._address = parse_address(ref.address)

    @staticmethod
    def accepts(address: str) -> bool:
        """Tell whether an address is written as git addresses are."""
        plain = address.partition("#")[0]
        shapes = (_TREE, _HOSTED, _SCP, _URL)
        return not plain.endswith("/index.yaml") and any(shape.fullmatch(plain) for shape in shapes)

    @cached_property
    def _checkout(self) -> GitCheckout:
        return fetch_snapshot(self._address, shown=self._ref.address, fresh=self._fresh)

    @cached_property
    def index(self) -> RegistryIndex:
        """Give the index."""
        source, name, commit = self._ref.address, self._ref.name, self._checkout.commit
        index = read_index(self._checkout, source=source, name=name, revision=commit)
        return replace(index, note=self._checkout.note)

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a package version, its digest checked."""
        return fetch_package(self._checkout, self.index, package, version)

    def at(self, revision: str) -> GitRegistry:
        """Give the same folder at another branch, tag or commit."""
        if revision.startswith("-"):
            raise RegistryError(f"`{revision}` is no branch, tag or commit")
        moved = GitRegistry(self._ref, root=Path())
        moved._address = self._address.at(revision)
        return moved


_NO_FILES = {"120000": "a link", "160000": "a submodule"}  # by mode
_LFS = b"version https://git-lfs.github.com/spec/"
_THE_FILE = "what stands there cannot be installed: commit the files themselves"


class _Entry(NamedTuple):
    mode: str
    object_id: str
    size: int


class GitCheckout:
    """The files of one commit below a folder, read from git's own store; `note` says why it is not of now."""

    def __init__(self, store: _Store, *, commit: str, base: str, note: str = "") -> None:
        self._store, self.commit, self.base, self.note = store, commit, base, note
        self._base = PurePosixPath(base)

    @cached_property
    def _entries(self) -> dict[PurePosixPath, _Entry]:
        listed = self._store.git("ls-tree", "-r", "-z", "--long", self.commit)
        entries = {}
        for line in filter(None, listed.decode("utf-8", "surrogateescape").split("\0")):
            facts, _, path = line.partition("\t")
            mode, kind, object_id, size = facts.split()
            entries[PurePosixPath(path)] = _Entry(mode, object_id, int(size) if kind == "blob" else 0)
        return entries

    def has_folder(self, folder: str) -> bool:
        """Tell whether the commit has a folder."""
        return not PurePosixPath(folder).parts or any(file.is_relative_to(folder) for file in self._entries)

    def read(self, path: PurePosixPath) -> bytes | None:
        """Give a file, or nothing when it is not there."""
        place = self._place(path)
        if place not in self._entries:
            return None
        if self._entries[place].size > MAX_BYTES:
            raise RegistryError(f"the file `{path}` is larger than {MAX_BYTES // 1024 // 1024} MiB")
        return self._contents([place])[place]

    def folder(self, path: PurePosixPath) -> Files:
        """Give all files of a folder by path relative to it; names that start with `.` are left out.

        Raises:
            RegistryError: it holds a link, a submodule, a pointer of Git LFS, or more than a package may.
        """
        place = self._place(path)
        below = {file: file.relative_to(place) for file in self._entries if file.is_relative_to(place)}
        hidden = {file for file in below for part in below[file].parts if re.match(r"\.|__pycache__$", part)}
        inside = {file: inner for file, inner in below.items() if file not in hidden}
        for file in inside:
            if what := _NO_FILES.get(self._entries[file].mode):
                raise RegistryError(f"the folder `{path}` holds {what}: `{file}`", hint=_THE_FILE)
        if len(inside) > MAX_FILES or sum(self._entries[file].size for file in inside) > MAX_BYTES:
            raise RegistryError(f"the folder `{path}` holds more than {LIMITS}")
        for inner in inside.values():
            check_name(inner.as_posix(), str(path))
        contents = self._contents([*inside])
        return {inside[file]: contents[file] for file in sorted(inside, key=lambda file: file.parts)}

    def names(self) -> Iterable[str]:
        """Give the names of the folders in the registry's folder."""
        inside = [file.relative_to(self._base) for file in self._entries if file.is_relative_to(self._base)]
        tops = {path.parts[0] for path in inside if len(path.parts) > 1}
        return sorted(name for name in tops if not name.startswith("."))

    def _place(self, path: PurePosixPath) -> PurePosixPath:
        """Give a path from the repository's root; an index may point anywhere inside it."""
        parts: list[str] = []
        for part in (self._base / path).parts:
            if part == "..":
                if not parts:
                    raise RegistryError(f"the path `{path}` leads out of the repository")
                parts.pop()
            elif part != ".":
                parts.append(part)
        return PurePosixPath(*parts)

    def _contents(self, paths: Sequence[PurePosixPath]) -> dict[PurePosixPath, bytes]:
        """Read files in one run of git; each answer is `<id> blob <size>`, the bytes, a newline."""
        ids = "".join(f"{self._entries[path].object_id}\n" for path in paths)
        answer = self._store.git("cat-file", "--batch", stdin=ids.encode())
        contents, position = {}, 0
        for path in paths:
            start = answer.index(b"\n", position) + 1
            position = start + self._entries[path].size + 1
            contents[path] = answer[start : position - 1]
            if contents[path].startswith(_LFS):
                raise RegistryError(f"`{path}` is a pointer of Git LFS", hint=_THE_FILE)
        return contents


# --- stores: bare repositories in the user's cache, one a URL ---

_LOCK_LIFE_S = 600.0
_UNUSED_S = 90 * 86400.0


class _Store:
    """A bare repository; without a cache one that goes with this object."""

    def __init__(self, url: str, cache: Cache | None) -> None:
        folder = cache.subfolder("git") if cache else None
        if folder is None:
            self.path = Path(mkdtemp(prefix="mlstack-git-"))
            finalize(self, rmtree, self.path, ignore_errors=True)
        else:
            self.path = folder / hashlib.sha256(url.encode()).hexdigest()[:32]
        self._is_ready = False

    def git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        if not self._is_ready:
            self._make()
        options = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", f"--git-dir={self.path}")
        command = ["git", *options, *arguments]
        return programs.run(command, settings=_SETTINGS, stdin=stdin, timeout_s=_TIMEOUT_S).stdout

    def _make(self) -> None:
        path = self.path
        if not (path / "HEAD").is_file():
            for other in path.parent.glob("?" * 32):
                if time.time() - other.stat().st_mtime > _UNUSED_S:
                    rmtree(other, ignore_errors=True)
            new = mkdtemp(prefix=f"{path.name}-", dir=path.parent)  # whole or not there, if we are killed
            programs.run(["git", "init", "--quiet", "--bare", new], settings=_SETTINGS)
            try:
                Path(new).rename(path)
            except OSError:  # another process was faster
                rmtree(new, ignore_errors=True)
        for lock in (path / "shallow.lock", path / "packed-refs.lock"):
            with suppress(OSError):  # a fetch that was killed leaves it; a living one takes no longer
                if time.time() - lock.stat().st_mtime > _LOCK_LIFE_S:
                    lock.unlink()
        with suppress(OSError):
            os.utime(path)
        self._is_ready = True

    def has(self, commit: str) -> bool:
        with suppress(ProgramError):
            return (self.path / "HEAD").is_file() and bool(self.git("cat-file", "-t", f"{commit}^{{tree}}"))
        return False

    def fetch(self, url: str, revision: str) -> str:
        """Fetch a revision and give its commit; servers that hand out no single commits send all branches."""
        name = f"refs/mlstack/{os.getpid()}-{token_hex(4)}"
        fetch = ("fetch", "--quiet", "--no-tags")
        try:
            self.git(*fetch, "--depth=1", "--end-of-options", url, f"+{revision}:{name}")
        except ProgramError as error:
            if not (re.fullmatch("[0-9a-f]{7,64}", revision) and _is_about_revision(error)):
                raise
            refs = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
            self.git(*fetch, "--end-of-options", url, *refs)
            name = revision
        try:
            commit = self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
        except ProgramError as error:
            raise ProgramError(f"couldn't find remote ref {revision}", status=error.status) from error
        if name != revision:  # the next fetch tells the server that this commit is here
            self.git("update-ref", f"refs/mlstack/{commit}", commit)
            self.git("update-ref", "-d", name)
        return commit


class _NoAnswerError(RegistryError):
    """Raised when a repository could not be asked."""


def fetch_snapshot(address: GitAddress, *, shown: str, fresh: bool = False) -> GitCheckout:
    """Give one commit, fetched without history, or from the cache while that may be believed.

    A repository that cannot be asked is the one that was asked last; its note says so.

    Args:
        address: what to fetch; its readings are tried in turn.
        shown: what messages call it.
        fresh: ask what its branch or tag leads to, whatever the cache holds.

    Raises:
        RegistryError: git is missing, the repository does not answer, or it has no such revision or folder.
    """
    store = _Store(address.url, disk_cache.of_user(os.environ))
    revision, folder = address.revisions[0]
    if re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", revision) and store.has(revision):
        return _checked(GitCheckout(store, commit=revision, base=folder), address, shown)
    fetched: list[GitCheckout] = []

    def ask() -> dict[str, str]:
        try:
            fetched.append(_fetched(store, address, shown))
        except _NoAnswerError as error:
            if str(store.path) not in str(error):
                raise
            if ".lock'" not in str(error):  # else another fetch writes to it
                rmtree(store.path, ignore_errors=True)  # it is broken, and made anew next time
            fetched.append(_fetched(_Store(address.url, None), address, shown))
        return {"commit": fetched[0].commit, "folder": fetched[0].base}

    head, note = latest(
        f"git commit {address.url} {address.revisions}",
        ask,
        fresh=fresh,
        away=_NoAnswerError,
        holds=lambda head: store.has(head["commit"]),
    )
    if fetched:
        return fetched[0]
    return _checked(GitCheckout(store, commit=head["commit"], base=head["folder"], note=note), address, shown)


def _fetched(store: _Store, address: GitAddress, shown: str) -> GitCheckout:
    failures: list[ProgramError] = []
    for revision, folder in address.revisions:
        try:
            commit = store.fetch(address.url, revision)
        except ProgramError as error:
            failures.append(error)
            if not _is_about_revision(error):
                break
            continue
        return _checked(GitCheckout(store, commit=commit, base=folder), address, shown)
    raise _failed(failures, address, shown) from failures[0]


def _checked(checkout: GitCheckout, address: GitAddress, shown: str) -> GitCheckout:
    """Give the checkout at the first of the address's folders that its commit has."""
    revision = next(revision for revision, folder in address.revisions if folder == checkout.base)
    for folder in [folder for other, folder in address.revisions if other == revision]:
        if checkout.has_folder(folder):
            return GitCheckout(checkout._store, commit=checkout.commit, base=folder, note=checkout.note)
    message = f"`{shown}` has no folder `{checkout.base}` at `{revision}`"
    raise RegistryError(message, hint="check the address")


def _failed(failures: Sequence[ProgramError], address: GitAddress, shown: str) -> RegistryError:
    if all(map(_is_about_revision, failures)):
        revision = address.revisions[0][0]
        return RegistryError(f"`{shown}` has no branch, tag or commit `{revision}`", hint="check the address")
    error = failures[-1]
    text = re.sub(_EVER, "", str(error))
    usual = "check the address, the network, and that `git ls-remote` of it works"
    trust = "GIT_SSL_CAINFO, or `git config http.sslCAInfo`, names the authorities that git is to trust"
    hint = error.hint or (trust if "certificate" in text else usual)
    return _NoAnswerError(f"cannot fetch `{shown}`: {text}", hint=hint)


def _is_about_revision(error: ProgramError) -> bool:
    reasons = ("couldn't find remote ref", "not our ref", "unadvertised object")
    return any(reason in str(error) for reason in reasons)
