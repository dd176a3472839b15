"""Helm charts and releases as plain manifests: rendered by the user's helm, or from a release's record."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.addresses import shown
from mlstack.app import files as folders
from mlstack.app.chart import is_chart
from mlstack.app.environment import Environment
from mlstack.app.package import PackageFolder
from mlstack.app.prototype import Chart
from mlstack.dataclass import dataclass
from mlstack.errors import ClusterError, NotFoundError, UsageError
from mlstack.events import listed
from mlstack.importers.plan import Data
from mlstack.names import nearest
from mlstack.objects.kube_object import Kinds
from mlstack.registries.helm import fetch_chart, unpacked
from mlstack.registries.logins import chart_repository
from mlstack.render import helm, render
from mlstack.yaml.read import read_documents

if TYPE_CHECKING:
    from mlstack.kube.client import Cluster

_LARGEST_RECORD = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ChartSource:
    """Which chart is meant."""

    place: str  # a folder, an archive, `oci://…`, an address, or a name in `repository`
    repository: str = ""
    version: str = ""


def fetch(source: ChartSource) -> Chart:
    """Read a chart from a folder or an archive, or fetch it; `NAME/CHART` is one of helm's repository `NAME`.

    Raises:
        NotFoundError: there is no such folder, archive or chart.
        UsageError: the folder holds no chart.
        RegistryError: it cannot be fetched, or is no chart.
    """
    place, repository = source.place, source.repository
    if not repository and Path(place).is_dir():
        return _read(Path(place), place)
    if not repository and Path(place).is_file():
        return Chart(files=unpacked(folders.read_file(place), place), folder=place)
    owner, _, name = place.partition("/")
    if not repository and "://" not in place:
        repository, place = (chart_repository(owner) if name else ""), name
        if not repository:
            hint = "name a folder, an archive, an address, or a chart with --repo ADDRESS"
            raise NotFoundError(f"no chart `{source.place}`", hint=hint)
    files = fetch_chart(place, repository=repository, version=source.version)
    return Chart(files=files, folder=shown(source.place))


def _read(folder: Path, named: str) -> Chart:
    files = PackageFolder.read(folder, source=named).files
    if not is_chart(files):
        raise UsageError(
            f"`{named}` holds no chart: there is no Chart.yaml", hint="mlstack import DIR takes manifests"
        )
    return Chart(files=files, folder=named)


def rendered(
    chart: Chart, name: str, place: Environment, values: Mapping[str, Any], *, hooks: bool
) -> tuple[list[Data], list[str]]:
    """Give the objects of a chart in an environment, and what was left out.

    Raises:
        TemplateError: it does not render, or something else each time.
    """
    release = helm.Release(
        name=name,
        namespace=place.namespace,
        values=values,
        kubernetes_version=place.kubernetes_version,
    )
    first, second = helm.template(chart, release, times=2)
    parts = [helm.without_hooks(run, component=name, keep=hooks, how="--hooks") for run in (first, second)]
    objects, others = (_objects(item.document for item in kept) for kept, _ in parts)
    if faults := helm.differences(objects, others):
        raise helm.unrepeatable(chart, faults, component=name)
    return objects, parts[0][1]


def _objects(documents: Any) -> list[Data]:
    return [data for document in documents for _, data in render.unpacked(document.value)]


# --- releases in a cluster: the record that helm keeps in a Secret ---


@dataclass(frozen=True, kw_only=True)
class LiveRelease:
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
    records = _records(cluster, namespace)
    revisions = [record for record in records if _label(record, "name") == name]
    deployed = [record for record in revisions if _label(record, "status") == "deployed"]
    if not deployed:
        known = sorted({_label(record, "name") for record in records})
        near = nearest(name, known)
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
    if crds := [str(file.get("name")) for file in chart.get("files") or () if _is_crd(file)]:
        notes.append(f"helm keeps no definitions in a release: {listed(crds)} of the chart stay as they are")
    return LiveRelease(
        name=name,
        namespace=namespace,
        chart=f"{head.get('name')}-{head.get('version')}",
        objects=[_placed(data, namespace, kinds) for data in _objects(item.document for item in kept)],
        notes=notes,
    )


def _is_crd(file: Data) -> bool:
    return str(file.get("name")).startswith("crds/")


def _placed(data: Data, namespace: str, kinds: Kinds) -> Data:
    """Give an object with the namespace that helm has put it in, whatever the environment's is."""
    kind = kinds.lookup(str(data.get("apiVersion")), str(data.get("kind")))
    metadata = data.get("metadata") or {}
    if kind is None or not kind.namespaced or metadata.get("namespace"):
        return data
    return {**data, "metadata": {**metadata, "namespace": namespace}}


def _records(cluster: Cluster, namespace: str) -> Sequence[Data]:
    listing = cluster.list("v1", "Secret", namespace=namespace, labels="owner=helm")
    return listing.items


def _label(record: Data, name: str) -> str:
    return str(((record.get("metadata") or {}).get("labels") or {}).get(name) or "")


def _decoded(record: Data, name: str) -> dict[str, Any]:
    """Unpack a record: base64 of the Secret, base64 of helm, gzip, JSON."""
    try:
        packed = base64.b64decode(base64.b64decode(str(record["data"]["release"])))
        stream = zlib.decompressobj(wbits=31)
        text = stream.decompress(packed, _LARGEST_RECORD)
        content = json.loads(text)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        message = f"the record of release `{name}` cannot be read"
        raise ClusterError(
            message, hint=f"helm get manifest {name}, and mlstack import - takes that"
        ) from error
    return dict(content) if isinstance(content, Mapping) else {}
