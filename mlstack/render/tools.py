"""What the user's own helm renders of charts, and kustomize or kubectl of kustomizations: folders and copies.

No cluster is asked, the same comes out for everybody, errors are in our words. All that helm is given is
here: the chart's files as they were checked, values, the release's name and namespace, and what the
environment says of its cluster. Its configuration and plug-ins are left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from mlstack import programs
from mlstack.app.document import join_path
from mlstack.app.files import Files, read_folder
from mlstack.app.package import digest
from mlstack.app.prototype import Chart
from mlstack.app.versions import LockedKustomization
from mlstack.dataclass import dataclass
from mlstack.errors import (
    ConfigError,
    MlstackError,
    NotFoundError,
    RegistryError,
    TemplateError,
    TemplateRefusedError,
)
from mlstack.names import listed
from mlstack.objects import masking
from mlstack.objects.order import HOOK, HOOK_DELETE_POLICY, hook_phase
from mlstack.programs import ProgramError
from mlstack.render.patches import differing
from mlstack.yaml.read import Document, read_documents

if TYPE_CHECKING:
    from mlstack.app.app import Kustomization
    from mlstack.app.app_dir import AppDir, Copy
    from mlstack.app.reader import AppReader


def _write(files: Files, folder: Path) -> Path:
    """Write files into a folder that is ours alone."""
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


# --- charts ---

_HELM_MAJOR = 4
_GET_HELM = "get helm 4 from https://helm.sh/docs/intro/install and put it on the PATH"
_RENDER_S = 120.0
_LONGEST_RELEASE = 53
_NAMED = 4  # hooks in a message
_SOURCE = re.compile(r"^---\n# Source: (.+)\n", re.MULTILINE)
_LINE = re.compile(r"(?P<file>[\w./+-]+\.(?:ya?ml|tpl|txt|json))\)?:(?P<line>\d+)(?::\d+)?")
_RANDOM = re.compile(
    r"\b(rand(?:AlphaNum|Alpha|Numeric|Ascii|Bytes|Int)|uuidv4|shuffle|genPrivateKey|genCA(?:WithKey)?"
    r"|genSelfSignedCert(?:WithKey)?|genSignedCert(?:WithKey)?|htpasswd|bcrypt|encryptAES|now|ago)\b"
)
_INCLUDED, _SHOWN_INCLUDES = ": error calling include: ", 3
_LOOKUP = re.compile(r"\{\{[^}]*\blookup\s")


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a chart is rendered for."""

    name: str
    namespace: str
    values: Mapping[str, Any]  # laid over the chart's own
    kubernetes_version: str  # `1.36`
    api_versions: Sequence[str] = ()  # what the cluster serves besides Kubernetes itself, if that is known


@dataclass(frozen=True, kw_only=True)
class Templated:
    """One document, and the template that it came from, by its path in the chart."""

    template: str
    document: Document


def helm_version() -> str:
    """Give the version of the helm on the PATH, as `v4.0.1`.

    Raises:
        RegistryError: there is none, or it is too old.
    """
    with _needing_helm():
        path = programs.find("helm")
        text = programs.run([str(path), "version", "--template", "{{.Version}}"], settings=_FOR_HELM).stdout
    version = text.decode(errors="replace").strip()
    major = re.match(r"v?(\d+)", version)
    if major is None or int(major[1]) < _HELM_MAJOR:
        message = f"the helm on the PATH is {version or 'of no version'}, and charts need helm {_HELM_MAJOR}"
        raise RegistryError(message, where=str(path), hint=_GET_HELM)
    return version


def helm_stamp() -> str:
    """Give what tells the helm on the PATH from another one, without running it."""
    with _needing_helm():
        path = programs.find("helm").resolve()
    facts = path.stat()
    return f"{path}:{facts.st_size}:{facts.st_mtime_ns}"


@contextmanager
def _needing_helm() -> Iterator[None]:
    try:
        yield
    except ProgramError as error:
        raise RegistryError(f"a chart needs helm: {error.message}", hint=_GET_HELM) from error


def helm_template(chart: Chart, release: Release, *, times: int = 1) -> list[list[Templated]]:
    """Render a chart, so many times, and give the documents of each: CRDs and hooks included.

    Raises:
        RegistryError: there is no helm, or it is too old.
        TemplateRefusedError: the chart says that these values do not fit.
        TemplateError: it does not render; names file and line of the template.
    """
    _check_name(release.name)
    with TemporaryDirectory(prefix="mlstack-chart-") as temporary:
        place = Path(temporary)
        folder = str(_write(chart.files, place / "chart"))
        arguments = ["helm", "template", release.name, folder, "--namespace", release.namespace]
        arguments += ["--values", "-", "--include-crds"]
        arguments += ["--kube-version", f"v{release.kubernetes_version}.0"]
        arguments += ["--api-versions", ",".join(release.api_versions)] if release.api_versions else []
        values = json.dumps(release.values).encode()  # never a file: there may be a password among them
        try:
            run = partial(programs.run, arguments, settings=_FOR_HELM, stdin=values, timeout_s=_RENDER_S)
            runs = [run() for _ in range(times)]
        except ProgramError as error:
            _refuse(error, chart, place)
    return [list(_templated(run.stdout.decode("utf-8", "replace"), chart)) for run in runs]


# Whatever a person has set for other uses of helm changes nothing here: same inputs, same objects.
_FOR_HELM = {
    "KUBECONFIG": os.devnull,
    "HELM_DEBUG": "false",
    "HELM_PLUGINS": os.devnull,
    "HELM_NAMESPACE": "",
    "HELM_KUBECONTEXT": "",
    "LC_ALL": "C",
}


def _check_name(name: str) -> None:
    part = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    if len(name) > _LONGEST_RELEASE or not re.fullmatch(rf"{part}(\.{part})*", name):
        message = f"`{name}` cannot be the name of a release, which the component's name is"
        hint = f"call the component with up to {_LONGEST_RELEASE} lower-case letters, digits and `-`"
        raise ConfigError(message, hint=hint)


def _templated(text: str, chart: Chart) -> Iterator[Templated]:
    parts = _SOURCE.split(text)
    for source, content in zip(parts[1::2], parts[2::2], strict=True):
        name = source.strip().partition("/")[2]
        for document in read_documents(content, source=f"{chart.folder}/{name}"):
            yield Templated(template=name, document=document)


def _refuse(error: ProgramError, chart: Chart, place: Path) -> NoReturn:
    if error.status is None:
        raise RegistryError(f"helm did not render the chart: {error.message}", hint=error.hint) from error
    text = re.sub(r"^`helm template` failed: (.*?\bError: )?", "", error.message, flags=re.DOTALL)
    text = text.replace("; Use --debug flag to render out invalid YAML", "").replace(f"{place}/", "")
    where = None
    places = [match for match in _LINE.finditer(text) if "/" in match["file"]]
    if places:  # the last is where it happened, others include it
        where = f"{chart.folder}/{places[-1]['file'].partition('/')[2]}:{places[-1]['line']}"
    refused = re.match(r"execution error at \([^)]*\): (.*)", text, re.DOTALL)
    if refused:
        raise TemplateRefusedError(f"the chart says: {refused[1]}", where=where) from error
    parts = text.split(_INCLUDED)
    if len(parts) > _SHOWN_INCLUDES:  # one that includes itself says so a thousand times
        text = f"{parts[0]}: … {parts[-1]}"
    if "values don't meet the specifications" in text:
        faults = text.partition(":; ")[2] or text
        if "failing loading" in faults:
            message = f"the schema of the chart's values refers to what cannot be read: {faults}"
            hint = "take a copy of the chart whose `values.schema.json` stands alone"
            raise TemplateError(message, where=chart.folder, hint=hint) from error
        hint = "`mlstack param explain COMPONENT` shows where values come from"
        message = f"the chart refuses its values: {faults}"
        raise TemplateError(message, where=chart.folder, hint=hint) from error
    where, advice = where or chart.folder, ""
    if "missing in charts/ directory" in text:
        text = f"charts that it depends on are missing: {text.rpartition('directory: ')[2]}"
        advice = "run `helm dependency build` in the chart's folder where it is kept, or take it packed"
    elif "incompatible with Kubernetes" in text:
        advice = "`kubernetesVersion` counts: mlstack env set ENV --kubernetes-version VERSION"
    message = f"helm does not render the chart: {text}"
    raise TemplateError(message, where=where, hint=advice or None) from error


# --- hooks, and what comes out otherwise each time ---


_OTHERWISE = (
    "run when new, changed or failed, not at each upgrade",
    "run before the rest alone, not after it too",
    "stay when they have ended",
)


def without_hooks(
    objects: Sequence[Templated], *, component: str, keep: bool, how: str = "`hooks: apply` in its file"
) -> tuple[list[Templated], list[str]]:
    """Leave out hooks, or those alone for which an apply has no moment; say what differs from helm.

    `how` tells the person what keeps those that can be kept.
    """
    kept, can_stay = [], False
    left: list[str] = []
    otherwise: dict[str, list[str]] = {words: [] for words in _OTHERWISE}
    for item in objects:
        data, annotations = item.document.value, _annotations(item.document.value)
        events = [event.strip() for event in str(annotations.get(HOOK) or "").split(",") if event.strip()]
        name = f"{data.get('kind')} {data['metadata'].get('name')}" if events else ""
        phase = hook_phase(",".join(events))
        if events and not (keep and phase):
            can_stay = can_stay or bool(phase)
            left.append(f"{name} ({', '.join(sorted(events))})")
            continue
        kept.append(item)
        policy = str(annotations.get(HOOK_DELETE_POLICY))
        is_otherwise = (
            {"pre-upgrade", "post-upgrade"} & {*events} and data.get("kind") in ("Job", "Pod"),
            {"pre-install", "post-install"} <= {*events},
            events and ("hook-succeeded" in policy or "hook-failed" in policy),
        )
        for words, is_so in zip(_OTHERWISE, is_otherwise, strict=True):
            otherwise[words] += [name] if is_so else []
    notes = []
    if left:
        advice = f"; {how} keeps those of an install" if can_stay else ""
        notes.append(f"{component}: what only helm runs is left out: {listed(left, _NAMED)}{advice}")
    if differs := [f"{words}: {listed(names, _NAMED)}" for words, names in otherwise.items() if names]:
        notes.append(f"{component}: hooks that helm would run otherwise: {'; '.join(differs)}")
    return kept, notes


def _annotations(data: Any) -> Mapping[str, Any]:
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def lookup_note(chart: Chart, objects: Sequence[Templated]) -> list[str]:
    """Say which templates ask the cluster while they render, where there is none to ask."""
    used = {item.template for item in objects}
    places = [place for place in _places(chart, _LOOKUP) if place.rpartition(":")[0] in used]
    asks = f"the chart asks the cluster with `lookup` ({', '.join(places[:3])})"
    return [f"{asks}: here it finds nothing, as in a first install"] if places else []


def differences(first: Sequence[Any], second: Sequence[Any]) -> list[str]:
    """Tell in which objects, and which fields of them, two renders differ; values are left out."""
    if len(first) != len(second):
        return [f"{len(first)} objects, then {len(second)}"]
    faults = []
    for before, after in zip(first, second, strict=True):
        names = [f"{data['kind']} {data['metadata']['name']}" for data in (before, after)]
        if names[0] != names[1]:
            faults.append(f"{names[0]}, then {names[1]}")
        elif paths := sorted(join_path(path) for path, *_ in differing(before, after)):
            faults.append(f"{names[0]}: {', '.join(paths[:6])}{' …' if len(paths) > 6 else ''}")
    return faults


def _places(chart: Chart, pattern: re.Pattern[str]) -> list[str]:
    places = []
    for path, data in sorted(chart.files.items()):
        if "templates" not in path.parts:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if "{{" in line and pattern.search(line):
                places.append(f"{path}:{number}")
    return places


def unrepeatable(chart: Chart, faults: Sequence[str], *, component: str) -> MlstackError:
    """Make the error that a chart renders otherwise each time; `faults` are objects with their fields."""
    lines = [f"the chart of `{component}` renders something else each time:"]
    lines += [f"  {fault}" for fault in faults]
    hint = "set the values that the chart takes for these, or fix the fields in environments/ENV/patches/"
    if calls := _places(chart, _RANDOM)[:4]:
        hint += f"{component}.yaml; it calls for chance in {', '.join(calls)}"
    return TemplateError("\n".join(lines), where=chart.folder, hint=hint)


# --- kustomizations ---

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_GET_KUSTOMIZE = "get kustomize from https://kubectl.docs.kubernetes.io/installation/kustomize, or kubectl"
_FOR_KUSTOMIZE = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
_REMOTE = re.compile(r"[a-z+]+://.+|git@.+:.+|git::.+|(www\.)?(github|gitlab|bitbucket)\.(com|org)/.+")
_LISTS = ("resources", "bases", "components")


def kustomize_build(app: AppReader, component: Kustomization) -> str:
    """Give the objects of a component as YAML; no network is asked.

    Raises:
        RegistryError: there is neither kustomize nor kubectl; the copy is missing, or not as it was locked.
        ConfigError: the folder holds no kustomization, or it does not build.
    """
    if not component.is_remote:
        folder = app.root / Path(component.source).expanduser()
        _refuse_remote(folder, component)
        return kustomize_folder(folder, where=component.file)
    locked = next((entry for entry in app.lock.kustomizations if entry.source == component.source), None)
    files = _vendored(app.root, component, locked)
    with TemporaryDirectory(prefix="mlstack-kustomize-") as place:
        folder = _write(files, Path(place)) / (locked.root if locked else "")
        return kustomize_folder(folder, where=component.file)


def _vendored(root: Path, component: Kustomization, locked: LockedKustomization | None) -> Files:
    if locked is None or not (root / locked.folder).is_dir():
        message = f"there is no copy of `{component.source}` in vendor/"
        raise RegistryError(message, where=component.file, hint="mlstack pkg install")
    files = read_folder(root / locked.folder, source=locked.folder)
    if digest(files) != locked.digest:
        message = f"the copy of `{component.source}` is not what mlstack.lock says"
        raise RegistryError(message, where=locked.folder, hint="mlstack pkg install --force restores it")
    return files


def kustomize_folder(folder: Path, *, where: str) -> str:
    """Build a kustomization; messages are about the component's file at `where`.

    Raises:
        RegistryError: there is neither kustomize nor kubectl.
        NotFoundError: there is no such kustomization.
        TemplateError: it does not build.
    """
    if not any((folder / name).is_file() for name in KUSTOMIZATIONS):
        message = f"no kustomization in `{os.path.normpath(folder)}`"
        is_file = folder.name in KUSTOMIZATIONS and folder.is_file()
        hint = "name the folder that holds the file" if is_file else "paths start at the app's folder"
        raise NotFoundError(message, where=where, hint=hint)
    for command in (["kustomize", "build"], ["kubectl", "kustomize"]):
        try:
            programs.find(command[0])
        except ProgramError:
            continue
        try:
            done = programs.run([*command, str(folder)], settings=_FOR_KUSTOMIZE, timeout_s=_RENDER_S)
            return done.stdout.decode("utf-8", "replace")
        except ProgramError as error:
            text = re.sub(r"^`[^`]*` failed: (.*?[Ee]rror: )?", "", error.message, flags=re.DOTALL)
            raise TemplateError(f"kustomize does not build it: {text}", where=where) from error
    message = "a kustomization needs `kustomize` or `kubectl`, and neither is installed"
    raise RegistryError(message, where=where, hint=_GET_KUSTOMIZE)


def _refuse_remote(folder: Path, component: Kustomization) -> None:
    """Raise for a local kustomization that refers to other people's: each render would fetch those."""
    for file, entry in remote_entries(folder):
        message = f"`{entry}` is somebody else's, which no render fetches"
        hint = f"`kustomize localize {component.source} NEWDIR` makes a copy with all it needs: name that"
        raise ConfigError(message, where=str(file), hint=hint)


def remote_entries(folder: Path, seen: Sequence[Path] = ()) -> list[tuple[Path, str]]:
    """Give what a kustomization, and those below it, take from elsewhere, with the file that says so."""
    place = folder.resolve()
    file = next((place / name for name in KUSTOMIZATIONS if (place / name).is_file()), None)
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
            raise RegistryError(message, hint=_GET_KUSTOMIZE) from error
        command = ["kustomize", "localize", "--no-verify", url, str(target)]
        hint = "check the address and its branch, tag or commit"
        _fetching(source, command, hint, timeout_s=_COPY_S, cwd=Path(place))
        files = read_folder(target, source=source)
    root = PurePosixPath(url.partition("?")[0].partition("://")[2].partition("//")[2].strip("/"))
    if not any(root / name in files for name in KUSTOMIZATIONS):
        raise RegistryError(f"no kustomization in `{source}`", hint="write URL//FOLDER@REVISION")
    return files, "" if root == PurePosixPath(".") else root.as_posix()


def _fetching(
    source: str, command: Sequence[str], hint: str, *, timeout_s: float, cwd: Path | None = None
) -> bytes:
    try:
        return programs.run(command, settings=_FOR_KUSTOMIZE, timeout_s=timeout_s, cwd=cwd).stdout
    except ProgramError as error:
        raise RegistryError(f"`{source}` cannot be fetched: {error.message}", hint=hint) from error
