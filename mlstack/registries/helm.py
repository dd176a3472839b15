"""Helm charts as packages: chart repositories (`index.yaml` over https), and charts in OCI registries.

https://HOST/PATH, https://HOST/PATH/index.yaml    a chart repository; each chart of it is a package
oci://HOST/PATH                                    the charts below a path, of which a registry gives no list
oci://HOST/PATH/CHART                              one chart

An index is believed for ten minutes; archives are kept by their digest. What is locked is the digest of the
chart's files, whatever the archive around them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from mlstack import disk_cache
from mlstack.addresses import joined as joined_url
from mlstack.addresses import shown
from mlstack.app.app import RegistryRef
from mlstack.app.chart import unpack
from mlstack.app.files import CHART_FILE, Files, is_chart, read_file
from mlstack.app.package import PackageFolder
from mlstack.app.prototype import Chart
from mlstack.app.versions import IndexPackage, IndexPrototype, IndexVersion, RegistryIndex, joined
from mlstack.dataclass import Record
from mlstack.errors import NotFoundError, RegistryError, UsageError, YamlError
from mlstack.names import best_first, names_a_package
from mlstack.registries.distribution import DIGEST, chart_login, chart_repositories, chart_web
from mlstack.registries.oci import entry_of, place_of
from mlstack.registries.registry import CHART_INDEX, PackagesByName, latest, protocol, refusing
from mlstack.yaml.read import read_document

if TYPE_CHECKING:
    from mlstack.web import Web

_LAYER_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_DEPRECATED = "its maintainers say so"


@protocol("helm")
class HelmRegistry:
    """A chart repository, or charts of an OCI registry."""

    def __init__(self, ref: RegistryRef, *, root: Path, fresh: bool = False) -> None:
        self._ref = ref
        address = ref.address.rstrip("/")
        if re.match(r"https?://[^/]*@", address):
            message = f"the address of `{ref.name}` holds a login, which `app.yaml` would show to everybody"
            repository = shown(address).removesuffix(f"/{CHART_INDEX}")
            hint = f"helm repo add NAME {repository} --username USER --password-stdin; name {repository} here"
            raise RegistryError(message, hint=hint)
        self._place: _Repository | _OciCharts
        if address.startswith("oci://"):
            self._place = _OciCharts(address)
        else:
            self._place = _Repository(address.removesuffix(f"/{CHART_INDEX}"), fresh=fresh)

    @staticmethod
    def accepts(address: str) -> bool:
        """Tell whether an address names an index of charts; of others their server is asked."""
        return re.fullmatch(r"https?://.+/index\.yaml", address) is not None

    @cached_property
    def index(self) -> RegistryIndex:
        """Give the index."""
        return replace(self._place.index(self._ref.name), known_as=self._ref.name)

    def fetch(self, package: str, version: str = "") -> Files:
        """Give the files of a chart, its archive's digest checked where one is known."""
        exact = self.index.version(package, version).version
        named = f"{package}@{exact}"
        inside = unpack_chart(self._place.archive(package, exact), named)
        with refusing(f"package `{named}` is refused"):
            head = PackageFolder(inside, source=named).head
        if (head.name, head.version) != (package, exact):
            message = f"the archive of `{named}` holds `{head.name}@{head.version}`"
            raise RegistryError(message, hint="tell who keeps the repository")
        return inside

    def at(self, revision: str) -> HelmRegistry:
        """Give the charts of an OCI registry at a digest: charts have no other revisions."""
        if not isinstance(self._place, _OciCharts) or not DIGEST.fullmatch(revision):
            hint = f"mlstack registry describe {self._ref.name} lists the versions"
            message = f"registry `{self._ref.name}` holds charts, which have versions alone"
            raise RegistryError(message, hint=hint)
        moved = HelmRegistry(self._ref, root=Path())
        moved._place = _OciCharts(self._ref.address, revision)
        return moved


def unpack_chart(data: bytes, named: str) -> Files:
    """Give the files of a chart's archive, without the folder that is around them."""
    files = unpack(data, named)
    tops = {path.parts[0] for path in files}
    inside = {PurePosixPath(*path.parts[1:]): content for path, content in files.items() if path.parts[1:]}
    if len(tops) != 1 or CHART_FILE not in inside:
        raise RegistryError(f"the archive of `{named}` holds no chart")
    return inside


class ChartSource(Record):
    """Which chart is meant."""

    place: str  # a folder, an archive, `oci://…`, an address, or a name in `repository`
    repository: str = ""
    version: str = ""


def read_chart(source: ChartSource) -> Chart:
    """Read a chart that is in no registry of the app: from a folder or an archive, or as `helm pull` would.

    `NAME/CHART` is one of helm's repository `NAME`. The version may be a range; without one it is the newest.

    Raises:
        NotFoundError: there is no such folder, archive, chart or version.
        UsageError: the folder holds no chart.
        RegistryError: it cannot be fetched, or is no chart.
    """
    place, repository = source.place, source.repository
    if not repository and Path(place).is_dir():
        files = PackageFolder.read(Path(place), source=place).files
        if not is_chart(files):
            message = f"`{place}` holds no chart: there is no Chart.yaml"
            raise UsageError(message, hint="mlstack import DIR takes manifests")
        return Chart(files=files, folder=place)
    if not repository and Path(place).is_file():
        return Chart(files=unpack_chart(read_file(Path(place)), place), folder=place)
    if not repository and "://" not in place:
        owner, _, place = place.partition("/")
        entries = (entry for entry in chart_repositories() if place and entry.get("name") == owner)
        repository = next((str(entry.get("url")) for entry in entries), "")
        if not repository:
            hint = "name a folder, an archive, an address, or a chart with --repo ADDRESS"
            raise NotFoundError(f"no chart `{source.place}`", hint=hint)
    if repository or place.startswith("oci://"):
        address = repository or place
        ref = RegistryRef(name=shown(address), address=address, protocol="helm")
        registry = HelmRegistry(ref, root=Path())
        name = place if repository else place.rpartition("/")[2]
        versions = [entry.version for entry in registry.index.package(name).versions]
        files = registry.fetch(name, next(iter(best_first(versions, source.version)), source.version))
    else:
        folder = place.rpartition("/")[0]
        files = unpack_chart(_get(chart_web(folder), place, repository=folder), shown(place))
    return Chart(files=files, folder=shown(source.place))


# --- chart repositories ---


class _Release(NamedTuple):
    """One version of a chart; the cache keeps it as a list."""

    version: str
    url: str
    digest: str  # of the archive, in hexadecimal; empty where the index does not say
    summary: str
    deprecated: bool


class _Repository:
    def __init__(self, base: str, *, fresh: bool) -> None:
        self._base, self._fresh = base, fresh
        self._web = chart_web(base)
        self._cache = disk_cache.of_user(os.environ)

    @cached_property
    def _read(self) -> tuple[dict[str, list[_Release]], str]:
        """Give the releases by chart, and why they are not what the repository says now."""
        charts, note = latest(f"helm index {self._base}", self._ask, fresh=self._fresh)
        return {chart: [_Release(*row) for row in rows] for chart, rows in charts.items()}, note

    def _ask(self) -> dict[str, list[_Release]]:
        data = _get(self._web, f"{self._base}/{CHART_INDEX}", repository=self._base)
        try:
            content = read_document(data.decode("utf-8"), source=CHART_INDEX, with_positions=False).value
        except (YamlError, UnicodeDecodeError) as error:
            message = f"the index of `{shown(self._base)}` cannot be read: {error}"
            raise RegistryError(message) from error
        entries = content.get("entries") if isinstance(content, Mapping) else None
        if not isinstance(entries, Mapping):
            message = f"`{shown(self._base)}/{CHART_INDEX}` is no index of charts"
            raise RegistryError(message, hint="check the address: `helm repo add` takes the same")
        charts = {
            str(name): [release for entry in listed if (release := _release(str(name), entry))]
            for name, listed in entries.items()
            if isinstance(listed, list)
        }
        return {name: releases for name, releases in charts.items() if releases}

    def index(self, name: str) -> RegistryIndex:
        charts, note = self._read
        entries = [
            _package(chart, release.version, release.summary, _DEPRECATED if release.deprecated else "")
            for chart, releases in charts.items()
            for release in releases
        ]
        return RegistryIndex(name=name, packages=joined(entries), note=note)

    def archive(self, chart: str, version: str) -> bytes:
        release = next(entry for entry in self._read[0][chart] if entry.version == version)
        kept = self._cache.get(f"chart {release.digest}") if release.digest else None
        url = joined_url(f"{self._base}/{CHART_INDEX}", release.url)
        if away := re.fullmatch(r"(oci://.+/([^/:@]+))(?::([^/:@]+))?", release.url):
            data = kept or _OciCharts(away[1]).pulled(away[2], away[3] or version.replace("+", "_"))[0]
        else:
            data = kept or _get(self._web, url, repository=self._base)
        seen = hashlib.sha256(data).hexdigest()
        if release.digest and seen != release.digest:
            raise RegistryError(
                f"the archive of `{chart}@{version}` is not what the repository's index says:"
                f" sha256:{seen}, the index has sha256:{release.digest}",
                hint="nothing was changed; ask the repository's keeper, whose index may be stale",
            )
        if kept is None:
            self._cache.put(f"chart {seen}", data)
        return data


def _get(web: Web, url: str, *, repository: str) -> bytes:
    """Get a file of a chart repository, as whom helm knows us there."""
    login = chart_login(url, repository=repository)
    answer = web.get(url, headers=login)
    if answer.status in (401, 403):
        why = "does not take the login that helm has for it" if login else "wants to know who asks"
        hint = f"helm repo add NAME {shown(repository)} --username USER --password-stdin, which counts here"
        raise RegistryError(f"`{shown(url)}` {why} (status {answer.status})", hint=hint)
    if answer.status != 200:
        hint = "check the address: a chart repository has `index.yaml`"
        raise RegistryError(f"`{shown(url)}` answers with status {answer.status}", hint=hint)
    return answer.data


def _release(name: str, entry: Any) -> _Release | None:
    """Read one release; libraries, and what no name or version can be, are left out."""
    if not isinstance(entry, Mapping) or entry.get("type") == "library":
        return None
    version, urls = str(entry.get("version") or ""), entry.get("urls")
    if not version or not names_a_package("r", name, version) or not isinstance(urls, list) or not urls:
        return None
    digest = re.fullmatch(r"(?:sha256:)?([0-9a-f]{64})", str(entry.get("digest") or ""))
    summary = str(entry.get("description") or "").strip().partition("\n")[0]
    url, is_deprecated = str(urls[0]), entry.get("deprecated") is True
    return _Release(version, url, digest[1] if digest else "", summary, is_deprecated)


def _package(chart: str, version: str, summary: str = "", deprecated: str = "") -> IndexPackage:
    return IndexPackage(
        name=chart,
        summary=summary,
        prototypes=(IndexPrototype(name=chart, summary=summary),),
        versions=(IndexVersion(version=version, path=version, digest="", deprecated=deprecated),),
    )


# --- charts in OCI registries ---


class _OciCharts:
    """Charts below a path; at a digest, the one that it is of."""

    def __init__(self, address: str, digest: str = "") -> None:
        self._place, self._digest = place_of(address), digest
        self._packages = PackagesByName(self._entry, ())

    def index(self, name: str) -> RegistryIndex:
        """Give an index whose packages are looked for as they are named."""
        own = self._place.path.rpartition("/")[2]
        is_chart = bool(own) and not self._digest and bool(self._versions(own))
        self._packages = PackagesByName(self._entry, (own,) if is_chart else ())
        note = "" if is_chart else "an OCI registry gives no list of its charts: name them"
        return RegistryIndex(name=name, packages=self._packages, note=note)

    def _entry(self, chart: str) -> IndexPackage | None:
        if self._digest:
            return entry_of(chart, unpack_chart(self.pulled(chart, self._digest)[0], chart), self._digest)
        entries = [_package(chart, version) for version in self._versions(chart)]
        return joined(entries)[chart] if entries else None

    def _versions(self, chart: str) -> list[str]:
        return [version for version in self._place.versions(chart) if re.match(r"v?\d+\.\d+", version)]

    def archive(self, chart: str, version: str) -> bytes:
        data, digest = self.pulled(chart, self._digest or version.replace("+", "_"))
        package = self._packages[chart]
        versions = (replace(v, revision=digest) if v.version == version else v for v in package.versions)
        self._packages.learn(replace(package, versions=tuple(versions)))
        return data

    def pulled(self, chart: str, reference: str) -> tuple[bytes, str]:
        """Give the archive at a tag or digest, and the digest."""
        manifest = self._place.manifest(chart, reference)
        if manifest is None:
            raise NotFoundError(f"no chart `{chart}@{reference}` in `{self._place.shown(chart)}`")
        return self._place.layer(chart, manifest, _LAYER_TYPE), manifest.digest
