"""Kustomizations as plain manifests: a base, and what each overlay changes as patches of an environment."""

from __future__ import annotations

from pathlib import Path

from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, NotFoundError
from mlstack.importers.manifests import component_name
from mlstack.importers.plan import Data
from mlstack.render.kustomize import NAMES, build_folder, remote_entries
from mlstack.render.render import unpacked
from mlstack.yaml.read import read_documents

_COLLECTIONS = ("overlays", "environments", "envs")


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """One kustomization that stands for an environment, and what it builds."""

    environment: str
    folder: Path
    namespace: str  # where its objects are; empty where it says nothing
    objects: tuple[Data, ...]


def name_of(folder: Path) -> str:
    """Give what the component of a folder is called."""
    resolved = folder.resolve()
    return component_name(resolved.parent.name if resolved.name == "base" else resolved.name)


def overlays(folder: Path) -> list[Overlay]:
    """Build a folder's overlays, or the folder itself where it has none.

    Raises:
        NotFoundError: there is no kustomization.
        ConfigError: one does not build.
        RegistryError: there is neither kustomize nor kubectl.
    """
    if not folder.is_dir():
        raise NotFoundError(f"no folder `{folder}`", hint="relative paths start at the working directory")
    places = [path for name in _COLLECTIONS for path in sorted((folder / name).glob("*")) if _is_one(path)]
    if not places and _is_one(folder):
        return [_built("", folder)]
    if not places:
        hint = "it needs kustomization.yaml, or overlays/NAME/kustomization.yaml"
        raise NotFoundError(f"no kustomization in `{folder}`", hint=hint)
    return [_built(path.name, path) for path in places]


def _is_one(folder: Path) -> bool:
    return any((folder / name).is_file() for name in NAMES)


def _built(environment: str, folder: Path) -> Overlay:
    for file, entry in remote_entries(folder):
        message = f"`{entry}` is somebody else's, which building would fetch each time"
        raise ConfigError(
            message, where=str(file), hint=f"kustomize localize {folder} NEWDIR, and import that"
        )
    text = build_folder(folder, where=str(folder))
    documents = read_documents(text, source=f"what kustomize builds of `{folder}`")
    objects = tuple(data for document in documents for _, data in unpacked(document.value))
    namespaces = {(data.get("metadata") or {}).get("namespace") for data in objects} - {None}
    namespace = str(namespaces.pop()) if len(namespaces) == 1 else ""
    return Overlay(environment=environment, folder=folder, namespace=namespace, objects=objects)
