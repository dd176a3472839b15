"""Write the index of a registry from its package folders."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlstack.errors import RegistryError
from mlstack.files.packages import PackageFolder
from mlstack.files.retired import retired_maps
from mlstack.model import emit
from mlstack.model.app import API_VERSION
from mlstack.model.names import version_key
from mlstack.registries.base import IndexPackage, IndexVersion, RegistryIndex
from mlstack.registries.tree import INDEX_FILE, FolderTree, read_index

_HEADER = "# The packages are derived from their folders: mlstack rewrites them.\n"


def build_index(folder: Path, *, packages: Path | None = None) -> str:
    """Give the text of `registry.yaml` for a registry's folder, from what its packages hold now.

    Name, summary, addresses and retired names are taken from the index that is there. Older versions stay
    as long as their folder does.

    Args:
        folder: the registry's folder.
        packages: the folder with the packages; the registry's own, or `prototypes` beside it.

    Raises:
        RegistryError: there is no package.
        SchemaError: a package is wrong.
    """
    source = packages or (folder if _has_packages(folder) else folder.parent / "prototypes")
    if not _has_packages(source):
        raise RegistryError(
            f"no package folder in `{source}`", hint="a package is a folder with package.yaml"
        )
    known = _known(folder)
    found = {name: dict(versions) for name, versions in _kept(known, folder)}
    summaries = {package.name: package.summary for package in known.packages.values()}
    for path in sorted(file.parent for file in source.glob("*/package.yaml")):
        read = PackageFolder.read(path, source=path.name)
        summaries[read.head.name] = read.head.summary
        entry = IndexVersion(version=read.head.version, path=_relative(path, folder), digest=read.digest)
        found.setdefault(read.head.name, {})[entry.version] = entry
    listed = [
        _package_map(name, summaries.get(name, ""), versions) for name, versions in sorted(found.items())
    ]
    return _HEADER + emit.to_yaml(_index_map(known, listed))


def _has_packages(folder: Path) -> bool:
    return any(folder.glob("*/package.yaml"))


def _known(folder: Path) -> RegistryIndex:
    name = folder.resolve().name  # `.` has none
    if (folder / INDEX_FILE).is_file():
        return read_index(FolderTree(folder.resolve()), source=name, name=name)
    return RegistryIndex(name=name, packages={})


def _kept(known: RegistryIndex, folder: Path) -> Iterator[tuple[str, Mapping[str, IndexVersion]]]:
    for package in known.packages.values():
        kept = {each.version: each for each in package.versions if _still_there(package, each, folder)}
        if kept:
            yield package.name, kept


def _still_there(package: IndexPackage, version: IndexVersion, folder: Path) -> bool:
    """Tell whether a version's folder still holds that version."""
    place = folder / version.path
    if not (place / "package.yaml").is_file():
        return False
    head = PackageFolder.read(place, source=version.path).head
    return (head.name, head.version) == (package.name, version.version)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def _package_map(name: str, summary: str, versions: Mapping[str, IndexVersion]) -> dict[str, Any]:
    ordered = sorted(versions.values(), key=lambda each: version_key(each.version))
    listed = [{"version": each.version, "path": each.path, "digest": each.digest} for each in ordered]
    return {"name": name, **({"summary": summary} if summary else {}), "versions": listed}


def _index_map(known: RegistryIndex, packages: list[dict[str, Any]]) -> dict[str, Any]:
    head: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Registry", "name": known.name}
    head |= {"summary": known.summary} if known.summary else {}
    head |= {"aliases": list(known.aliases)} if known.aliases else {}
    head |= {"retired": retired_maps(known.retired)} if known.retired else {}
    return {**head, "packages": packages}
