"""Apps of ksonnet, formats 0.0.1 to 0.3.0, as values: environments, modules, components, libraries.

Written by hand and by many releases of `ks`, so everything may be missing but the name of an environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack.app.document import decode
from mlstack.app.files import read_file
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.names import nearest
from mlstack.yaml import read

FORMATS = ("0.0.1", "0.1.0", "0.2.0", "0.3.0")
APP_KIND = "ksonnet.io/app"


@dataclass(frozen=True, kw_only=True)
class Library:
    """A package of ksonnet that an app or environment has installed."""

    registry: str
    name: str
    version: str = ""  # a commit; empty where it came from a folder

    @property
    def path(self) -> str:
        """Give `REGISTRY/NAME`, as imports spell it."""
        return f"{self.registry}/{self.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class KsEnvironment:
    """An environment of an app of ksonnet."""

    name: str
    path: str  # below environments/; empty of one that stands in where there is none
    server: str = ""
    namespace: str = "default"
    kubernetes_version: str = ""
    targets: tuple[str, ...] = ()  # dotted modules, `/` for the root; none means the root
    libraries: Mapping[str, Library] = field(default_factory=dict)  # by REGISTRY/NAME, the app's included

    @property
    def modules(self) -> tuple[str, ...]:
        """Give the modules it deploys, empty for the root, in ks's order."""
        return tuple(sorted({target.strip("/").replace("/", ".") for target in self.targets} or {""}))


@dataclass(frozen=True, kw_only=True)
class KsComponent:
    """A file below components/ that ks deploys."""

    module: str  # dotted, empty for the root
    name: str
    file: Path

    @property
    def full_name(self) -> str:
        """Give `module.name`, as ks calls it in parameters and labels."""
        return f"{self.module}.{self.name}" if self.module else self.name

    @property
    def is_jsonnet(self) -> bool:
        """Tell whether it is code."""
        return self.file.suffix == ".jsonnet"


@dataclass(frozen=True, kw_only=True)
class KsApp:
    """An app of ksonnet."""

    root: Path
    name: str
    format: str
    environments: tuple[KsEnvironment, ...]
    registries: Mapping[str, str]  # name -> address
    notes: tuple[str, ...] = ()

    def folder(self, module: str) -> Path:
        """Give the folder of a module."""
        return self.root.joinpath("components", *filter(None, module.split(".")))

    def components(self, module: str) -> tuple[KsComponent, ...]:
        """Give the components of a module in the order of their files."""
        folder = self.folder(module)
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        return tuple(
            KsComponent(module=module, name=file.stem, file=file)
            for file in files
            if file.suffix in (".jsonnet", ".yaml", ".json") and file.is_file()
        )

    @cached_property
    def unrendered(self) -> tuple[str, ...]:
        """Give the components of modules that no environment deploys."""
        deployed = {module for environment in self.environments for module in environment.modules}
        return tuple(
            component.full_name
            for module in _modules(self.root)
            if module not in deployed
            for component in self.components(module)
        )


def is_app(folder: Path) -> bool:
    """Tell whether a folder is an app of ksonnet."""
    try:
        return APP_KIND.encode() in read_file(folder / "app.yaml")
    except (OSError, ConfigError):
        return False


def read_app(root: Path) -> KsApp:
    """Read an app.

    Raises:
        NotFoundError: there is none in the folder.
        ConfigError: its `app.yaml` is broken, or of a format that is none of ksonnet's.
    """
    if not root.is_dir():
        raise NotFoundError(f"no folder `{root}`", hint="name the folder with ksonnet's app.yaml")
    if not is_app(root):
        hint = "name the folder whose app.yaml says `kind: ksonnet.io/app`"
        below = sorted(file.parent for file in root.glob("*/app.yaml") if is_app(file.parent))
        hint = f"mlstack import ksonnet-app {below[0]}" if below else hint
        raise NotFoundError(f"`{root}` is no app of ksonnet", hint=hint)
    spec = _map(root / "app.yaml")
    version = str(spec.get("apiVersion", ""))
    if version not in FORMATS:
        known = ", ".join(FORMATS)
        message = f"`{version}` is no format of ksonnet's apps; known: {known}"
        raise SchemaError(message, where=str(root / "app.yaml"))
    overlay = _map(root / "app.override.yaml") if (root / "app.override.yaml").is_file() else {}
    registries = {**_maps(spec, "registries"), **_maps(overlay, "registries")}
    environments = _maps(spec, "environments")
    for name, values in _maps(overlay, "environments").items():
        environments[name] = {**environments.get(name, {}), **values}
    libraries = _libraries(spec)
    listed = [_environment(name, values, libraries, version) for name, values in environments.items()]
    listed = listed or [*_found_environments(root, libraries)]
    notes = ["app.override.yaml is laid over app.yaml, as ks did"] if overlay else []
    if not listed:
        # ks deployed nothing: the components are taken with their own values alone.
        alone = KsEnvironment(name="default", path="", kubernetes_version="v1.8.0", targets=_modules(root))
        listed = [replace(alone, libraries=libraries)]
        notes.append(
            "app.yaml has no environment, and so there is nothing that ks deployed to be compared with: the"
            " components were taken with their own values, in the namespace `default`"
        )
    return KsApp(
        root=root,
        name=str(spec.get("name") or root.resolve().name),
        format=version,
        environments=tuple(sorted(listed, key=lambda environment: environment.name)),
        registries={name: str(values.get("uri", "")) for name, values in registries.items()},
        notes=tuple(notes),
    )


def _modules(root: Path) -> tuple[str, ...]:
    """Give all modules below components/, empty for the root."""
    base = root / "components"
    folders = [Path(folder).relative_to(base).parts for folder, _, _ in os.walk(base)]
    return tuple(sorted(".".join(parts) for parts in folders if not any("." in part for part in parts)))


def selected(app: KsApp, names: tuple[str, ...]) -> KsApp:
    """Give the app with these environments alone; all if none is named.

    Raises:
        NotFoundError: there is no such environment.
    """
    known = [environment.name for environment in app.environments if environment.path]
    for name in names:
        if name not in known:
            message = f"the app of ksonnet has no environment `{name}`; it has {', '.join(known) or 'none'}"
            raise NotFoundError(message, near=nearest(name, known))
    return replace(app, environments=tuple(e for e in app.environments if not names or e.name in names))


def _environment(
    name: str, values: Mapping[str, Any], libraries: Mapping[str, Library], version: str
) -> KsEnvironment:
    several, listed = values.get("destinations"), values.get("targets")
    first = several[0] if isinstance(several, list) and several else None
    place = mapping(values.get("destination") or first)
    targets = tuple(map(str, listed)) if isinstance(listed, list) else ()
    if version in FORMATS[:2]:
        targets = tuple(target if target == "/" else target.replace("/", ".") for target in targets)
    path = PurePosixPath(str(values.get("path") or name))
    if path.is_absolute() or ".." in path.parts:
        message = f"the folder `{path}` of environment `{name}` leads out of the app"
        raise SchemaError(message, where="app.yaml", hint="name a folder below environments/")
    return KsEnvironment(
        name=name,
        path=str(path),
        server=str(place.get("server") or ""),
        namespace=str(place.get("namespace") or "default"),
        kubernetes_version=str(values.get("k8sVersion") or ""),
        targets=targets,
        libraries={**libraries, **_libraries(values)},
    )


def _found_environments(root: Path, libraries: Mapping[str, Library]) -> Iterator[KsEnvironment]:
    """Find the environments of the first format, which app.yaml does not list."""
    base = root / "environments"
    for file in sorted(base.rglob("spec.json")):
        name = file.parent.relative_to(base).as_posix()
        if not any(part.startswith(".") for part in name.split("/")):
            yield _environment(name, {"path": name, "destination": _map(file)}, libraries, FORMATS[0])


def _libraries(values: Mapping[str, Any]) -> dict[str, Library]:
    libraries = {}
    for key, library in _maps(values, "libraries").items():
        git = mapping(library.get("gitVersion"))
        version = str(library.get("version") or git.get("commitSha") or "")
        name = str(library.get("name") or key.rpartition("/")[2])
        entry = Library(registry=str(library.get("registry") or ""), name=name, version=version)
        libraries[entry.path] = entry
    return libraries


def _map(file: Path) -> dict[str, Any]:
    value = read.read_document(decode(read_file(file), file=str(file)), source=str(file)).value
    if not isinstance(value, dict):
        raise SchemaError("the file is no map", where=str(file))
    return value


def _maps(values: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Give a map of maps, empty where it is something else: these files were written by hand."""
    return {str(name): dict(mapping(value)) for name, value in mapping(values.get(key)).items()}


def mapping(value: Any) -> Mapping[str, Any]:
    """Give a value if it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}
