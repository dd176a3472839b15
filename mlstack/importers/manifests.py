"""Manifests of others as components, and what helm and kustomize make of others' charts and folders.

The text stays as it is, byte for byte, comments included. Only where it cannot stay is it changed: an object
with `generateName` gets a name, and items of a List that become components of their own are written anew.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mlstack.app.document import decode
from mlstack.app.environment import Environment
from mlstack.app.files import read_file, read_folder
from mlstack.app.prototype import Chart
from mlstack.dataclass import Record
from mlstack.errors import ClusterError, ConfigError, NotFoundError, RegistryError, UsageError
from mlstack.importers.convert import cleaned, document_texts
from mlstack.importers.plan import PlannedComponent, component_name, identity_of, secret_note
from mlstack.names import listed, nearest
from mlstack.objects import masking
from mlstack.objects.kube_object import Data, Identity, Kinds
from mlstack.render import helm
from mlstack.render.component import check_object, unpacked
from mlstack.render.kustomize import NAMES, build_folder, remote_entries
from mlstack.yaml import read
from mlstack.yaml.read import read_documents
from mlstack.yaml.write import dump_commented, load_commented

if TYPE_CHECKING:
    from mlstack.kube.client import Cluster


_SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"

# --- sources ---


class SourceFile(Record):
    """A file to import: what messages call it, its path below what was named, and its text."""

    name: str
    path: PurePosixPath
    text: str
    notes: tuple[str, ...] = ()  # what was changed in it


def read_sources(place: str) -> list[SourceFile]:
    """Read a file, all manifests of a folder and the folders in it, what a URL gives, or `-`, standard input.

    Raises:
        NotFoundError: there is no such file, folder or page.
        RegistryError: the server of a URL does not answer, or refuses.
        ConfigError: it cannot be read, or is no text.
        UsageError: the folder is an app, a chart or a kustomization, which have commands of their own.
    """
    if place == STDIN:
        return [_source("standard input", PurePosixPath("stdin.yaml"), sys.stdin.buffer.read())]
    if re.match(r"https?://", place):
        return [_fetched(place)]
    path = Path(place)
    if not path.exists():
        near = nearest(place, ("helm", "kustomize", "ksonnet-app"))
        hint = f"did you mean `mlstack import {near}`?" if near else "relative paths start where you are"
        raise NotFoundError(f"no file or folder `{place}`", hint=hint)
    if not path.is_dir():
        _lead_elsewhere(path.parent, path.name)
        try:
            return [_source(place, PurePosixPath(path.name), read_file(path))]
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"cannot read the file: {reason}", where=place) from error
    files = read_folder(path)
    for file in files:
        if len(file.parts) == 1:
            _lead_elsewhere(path, file.name)
    manifests = {file: data for file, data in files.items() if file.suffix in _SUFFIXES}
    if not manifests:
        raise UsageError(f"`{place}` holds no YAML or JSON file", hint="name a file or folder of manifests")
    return [_source(f"{place.rstrip('/')}/{file}", file, data) for file, data in manifests.items()]


def _fetched(url: str) -> SourceFile:
    from mlstack.web import Web

    shown, answer = masking.without_logins(url), Web().get(url)
    if answer.status in (404, 410):
        raise NotFoundError(f"nothing stands at `{shown}`", hint="check the address")
    if answer.status != 200:
        hint = "download it with your login, then import the file"
        raise RegistryError(f"`{shown}` answers with HTTP {answer.status}", hint=hint)
    name = PurePosixPath(re.split("[?#]", url)[0]).name or "url"
    return _source(shown, PurePosixPath(name), answer.data)


_COMMANDS = {**dict.fromkeys(NAMES, "kustomize"), "Chart.yaml": "helm"}


def _lead_elsewhere(folder: Path, file: str) -> None:
    """Refuse what is more than manifests, with the command that takes it."""
    if file in _COMMANDS:
        message = f"`{folder / file}` is no manifest"
        raise UsageError(message, hint=f"mlstack import {_COMMANDS[file]} {folder}")
    if file == "app.yaml" and b"ksonnet.io/app" in read_file(folder / file):
        raise UsageError(f"`{folder}` is an app of ksonnet", hint=f"mlstack import ksonnet-app {folder}")
    if file.endswith((".jsonnet", ".libsonnet")) and (folder / file).is_file():
        hint = "render it with `jsonnet`, and import what comes out: jsonnet FILE | mlstack import -"
        raise UsageError(f"`{folder / file}` is Jsonnet, not YAML or JSON", hint=hint)


def _source(name: str, path: PurePosixPath, data: bytes) -> SourceFile:
    if re.match(rb"\s*<(!doctype|html)", data[:200], re.IGNORECASE):
        hint = "give the address of the text itself: https://raw.githubusercontent.com/OWNER/REPO/REF/FILE"
        raise UsageError(f"`{name}` is a web page, not YAML or JSON", hint=hint)
    text, notes = cleaned(decode(data, file=name), source=name)
    return SourceFile(name=name, path=path, text=text, notes=tuple(notes))


# --- components ---


def components(
    places: Sequence[str], *, module: str = "", name: str | None = None, split: bool = False
) -> tuple[list[PlannedComponent], list[str]]:
    """Make a component of each file at some places, or of each object (`split`); tell what needs a look.

    A component is called as its file (`--name` for the only one), one of a split file as kind and name of its
    object; folders become modules. Files without an object of Kubernetes are left out with a line.

    Raises:
        ConfigError: broken YAML, a document that is no object beside some that are, an object twice.
        UsageError: there is no object at all, or a name for several.
    """
    planned, notes = list[PlannedComponent](), list[str]()
    origins, has_lists = dict[Identity, str](), False
    sources = [source for place in places for source in read_sources(place)]
    for source in sources:
        is_small = len(source.text) < _LARGE
        documents = read.read_documents(source.text, source=source.name, with_positions=is_small)
        items = [data for document in documents for _, data in unpacked(document.value)]
        if not any(isinstance(data, Mapping) and {"apiVersion", "kind"} <= data.keys() for data in items):
            notes.append(f"left out {source.name}: it holds no object of Kubernetes")
            has_lists = has_lists or any(isinstance(document.value, list) for document in documents)
            continue
        notes += source.notes
        _check(source, documents, origins)
        parts = [*_split(source, documents)] if split else [(component_name(source.path.stem), source)]
        folder = ".".join(map(component_name, source.path.parent.parts))
        for stem, part in parts:
            full_name = ".".join(filter(None, (module, folder, name or stem)))
            component, more = _component(full_name, part)
            planned.append(component)
            notes += more
    if not planned:
        hint = "name a file or folder of manifests"
        if has_lists:
            hint = "a list of objects is written as `apiVersion: v1`, `kind: List`, `items:`"
        raise UsageError(f"there is no object of Kubernetes in `{sources[0].name}`", hint=hint)
    if name is not None and len(planned) > 1:
        raise UsageError(f"`--name` names one component, and there are {len(planned)}", hint="leave it out")
    return planned if name else _distinct(planned, notes), notes


_LARGE = 1 << 20  # above it, messages name a document's line, not that of each part: positions cost a third


def _check(source: SourceFile, documents: Sequence[read.Document], places: dict[Identity, str]) -> None:
    for document in documents:
        for path, data in unpacked(document.value):
            line = document.position(path).line if document.positions else document.line
            where = f"{source.name}:{line}"
            check_object(data, lambda part, where=where: where)  # type: ignore[misc]
            identity = identity_of(data)
            if identity in places:
                message = (
                    f"{identity.kind} `{identity.name}` is there twice: it stands at {places[identity]} too"
                )
                raise ConfigError(message, where=where, hint="leave one of them out")
            places[identity] = where


_HELM = re.compile(r"\{\{-?\s*\.(Values|Release|Chart|Capabilities|Files)\b[^\n]{0,60}?\}\}")


def _component(full_name: str, source: SourceFile) -> tuple[PlannedComponent, list[str]]:
    suffix = ".json" if source.path.suffix == ".json" else ".yaml"
    notes: list[str] = []
    objects = _objects(read.read_documents(source.text, source=source.name))
    for data in objects:
        notes += secret_note(data, full_name)
    if template := _HELM.search(source.text):
        advice = "Helm's templates are rendered first, mlstack import helm CHART"
        notes.append(f"{source.name}: holds `{template[0]}` as text: {advice}")
    planned = PlannedComponent(name=full_name, text=source.text, suffix=suffix, objects=tuple(objects))
    return planned, notes


def _split(source: SourceFile, documents: Sequence[read.Document]) -> Iterator[tuple[str, SourceFile]]:
    for text in document_texts(source.text, source.name):
        for document in read.read_documents(text, source=source.name):
            items = [*unpacked(document.value)]
            if [path for path, _ in items] == [()]:
                yield _object_name(document.value), replace(source, text=text)
                continue
            [commented] = load_commented(text, source=source.name)
            for path, data in items:
                inner: Any = commented
                for part in path:
                    inner = inner[part]
                file = source.path.with_suffix(".yaml")
                yield _object_name(data), replace(source, text=dump_commented(inner), path=file)


def _object_name(data: Data) -> str:
    return component_name(f"{str(data['kind']).lower()}-{data['metadata']['name']}")


def _distinct(planned: Sequence[PlannedComponent], notes: list[str]) -> list[PlannedComponent]:
    """Number components that would have the same file, or one that differs in letter case alone."""
    taken: set[str] = set()
    distinct = []
    for component in planned:
        name, number = component.name, 1
        is_of_module = name.lower().endswith(".params")
        while name.casefold() in taken or name.lower().endswith(".params"):
            number += 1
            name = f"{component.name}-{number}"
        if is_of_module:
            why = "a module keeps its parameters in `params.yaml`"
            notes.append(f"`{component.name}` is called `{name}`: {why}")
        taken.add(name.casefold())
        distinct.append(replace(component, name=name))
    return distinct


# --- Helm charts, rendered by the user's helm ---


_LARGEST_RECORD = 64 * 1024 * 1024


def rendered_chart(
    chart: Chart, name: str, place: Environment, values: Mapping[str, Any], *, hooks: bool
) -> tuple[list[Data], list[str]]:
    """Give the objects of a chart in an environment, and what was left out.

    Raises:
        TemplateError: it does not render, or something else each time.
    """
    release = helm.Release(
        name=name, namespace=place.namespace, values=values, kubernetes_version=place.kubernetes_version
    )
    first, second = helm.template(chart, release, times=2)
    parts = [helm.without_hooks(run, component=name, keep=hooks, how="--hooks") for run in (first, second)]
    objects, others = (_objects(item.document for item in kept) for kept, _ in parts)
    if faults := helm.differences(objects, others):
        raise helm.unrepeatable(chart, faults, component=name)
    return objects, parts[0][1]


def _objects(documents: Iterable[read.Document]) -> list[Data]:
    return [data for document in documents for _, data in unpacked(document.value)]


# --- releases in a cluster: the record that helm keeps in a Secret ---


class LiveRelease(Record):
    """A release as helm applied it last."""

    name: str
    namespace: str
    chart: str  # `redis-20.0.0`
    objects: Sequence[Data]
    notes: Sequence[str]  # what helm made besides


def read_release(cluster: Cluster, name: str, namespace: str, *, hooks: bool = False) -> LiveRelease:
    """Read the newest deployed revision of a release, with those of its hooks that an apply has a moment for.

    Raises:
        NotFoundError: there is no such release; carries the nearest one.
        ClusterError: the record cannot be read.
    """
    records = cluster.list("v1", "Secret", namespace=namespace, labels="owner=helm").items
    revisions = [record for record in records if _label(record, "name") == name]
    deployed = [record for record in revisions if _label(record, "status") == "deployed"]
    if not deployed:
        names = sorted({_label(record, "name") for record in records})
        near = nearest(name, names)
        what = f"release `{name}` is not deployed" if revisions else f"no release `{name}` of Helm"
        hint = None if near else f"helm list -n {namespace}"
        raise NotFoundError(f"{what} in namespace `{namespace}`", near=near, hint=hint)
    newest = max(deployed, key=lambda record: int(_label(record, "version") or 0))
    content = _decoded(newest, name)
    chart = content.get("chart") or {}
    head = chart.get("metadata") or {}
    texts = [content.get("manifest"), *(hook.get("manifest") for hook in content.get("hooks") or ())]
    documents = [
        helm.Templated(template="", document=document)
        for text in texts
        for document in read_documents(str(text or ""), source=f"release {name}")
    ]
    kept, notes = helm.without_hooks(documents, component=name, keep=hooks, how="--hooks")
    kinds = cluster.kinds()
    files = (str(file.get("name")) for file in chart.get("files") or ())
    if crds := [name for name in files if name.startswith("crds/")]:
        notes.append(f"helm keeps no definitions in a release: {listed(crds)} of the chart stay as they are")
    return LiveRelease(
        name=name,
        namespace=namespace,
        chart=f"{head.get('name')}-{head.get('version')}",
        objects=[_placed(data, namespace, kinds) for data in _objects(item.document for item in kept)],
        notes=notes,
    )


def _placed(data: Data, namespace: str, kinds: Kinds) -> Data:
    """Give an object with the namespace that helm has put it in, whatever the environment's is."""
    kind = kinds.lookup(str(data.get("apiVersion")), str(data.get("kind")))
    metadata = data.get("metadata") or {}
    if kind is None or not kind.namespaced or metadata.get("namespace"):
        return data
    return {**data, "metadata": {**metadata, "namespace": namespace}}


def _label(record: Data, name: str) -> str:
    return str(((record.get("metadata") or {}).get("labels") or {}).get(name) or "")


def _decoded(record: Data, name: str) -> dict[str, Any]:
    """Unpack a record: base64 of the Secret, base64 of helm, gzip, JSON."""
    try:
        packed = base64.b64decode(base64.b64decode(str(record["data"]["release"])))
        content = json.loads(zlib.decompressobj(wbits=31).decompress(packed, _LARGEST_RECORD))
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        message = f"the record of release `{name}` cannot be read"
        hint = f"helm get manifest {name}, and mlstack import - takes that"
        raise ClusterError(message, hint=hint) from error
    return dict(content) if isinstance(content, Mapping) else {}


# --- kustomizations: a base, and what each overlay changes ---


_COLLECTIONS = ("overlays", "environments", "envs")


class Overlay(Record):
    """One kustomization that stands for an environment, and what it builds."""

    environment: str
    folder: Path
    namespace: str  # where its objects are; empty where it says nothing
    objects: tuple[Data, ...]


def overlays(folder: Path) -> list[Overlay]:
    """Build a folder's overlays, or the folder itself where it has none.

    Raises:
        NotFoundError: there is no kustomization.
        ConfigError: one does not build.
        RegistryError: there is neither kustomize nor kubectl.
    """
    if not folder.is_dir():
        raise NotFoundError(f"no folder `{folder}`", hint="relative paths start at the working directory")
    places = [
        path for name in _COLLECTIONS for path in sorted((folder / name).glob("*")) if _is_kustomization(path)
    ]
    if not places and _is_kustomization(folder):
        return [_built("", folder)]
    if not places:
        hint = "it needs kustomization.yaml, or overlays/NAME/kustomization.yaml"
        raise NotFoundError(f"no kustomization in `{folder}`", hint=hint)
    return [_built(path.name, path) for path in places]


def _is_kustomization(folder: Path) -> bool:
    return any((folder / name).is_file() for name in NAMES)


def _built(environment: str, folder: Path) -> Overlay:
    for file, entry in remote_entries(folder):
        message = f"`{entry}` is somebody else's, which building would fetch each time"
        hint = f"kustomize localize {folder} NEWDIR, and import that"
        raise ConfigError(message, where=str(file), hint=hint)
    text = build_folder(folder, where=str(folder))
    objects = tuple(_objects(read_documents(text, source=f"what kustomize builds of `{folder}`")))
    namespaces = {(data.get("metadata") or {}).get("namespace") for data in objects} - {None}
    namespace = str(namespaces.pop()) if len(namespaces) == 1 else ""
    return Overlay(environment=environment, folder=folder, namespace=namespace, objects=objects)
