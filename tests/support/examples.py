"""Every example of the shipped prototypes, and an app directory that has them all as components."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mlstack.app import app_dir, files
from mlstack.app.app_dir import AppDir
from mlstack.app.package import PackageFolder
from mlstack.app.prototype import Example, Package, Prototype
from mlstack.app.versions import Lock, LockedPackage
from mlstack.objects.kube_object import DesiredState
from mlstack.render import render as desired

REGISTRY = "kubeflow"
PLAIN = "plain"  # the environment of examples that name none: without values of its own


@dataclass(frozen=True, eq=False)
class Case:
    """One example of one prototype; there is one object of each."""

    prototype: Prototype
    example: Example

    def __str__(self) -> str:
        """Give what tests and golden files call it: `tf-job/tf-cnn/gpu`."""
        return f"{self.prototype.package}/{self.prototype.name}/{self.example.name}"

    @property
    def component(self) -> str:
        """Give the name of the component in the app of `shipped_app`."""
        return f"{self.prototype.name}-{self.example.name}"

    @property
    def environment(self) -> str:
        """Give the environment it is rendered for."""
        return self.example.environment or PLAIN

    @property
    def namespace(self) -> str:
        """Give the namespace that its objects are in."""
        return str(self.example.params.get("namespace") or self.example.namespace or "default")


@cache
def folders() -> Mapping[str, PackageFolder]:
    """Give the shipped packages' folders by name."""
    places = sorted(file.parent for file in files.folder("prototypes").glob("*/package.yaml"))
    return {place.name: PackageFolder.read(place, source=place.name, registry=REGISTRY) for place in places}


@cache
def packages() -> tuple[Package, ...]:
    """Give the shipped packages with their prototypes."""
    by_name = folders()
    return tuple(
        folder.package({name: by_name[name] for name in folder.head.requires}) for folder in by_name.values()
    )


@cache
def prototypes() -> tuple[Prototype, ...]:
    """Give the shipped prototypes."""
    return tuple(prototype for package in packages() for prototype in package.prototypes.values())


def prototype(name: str) -> Prototype:
    """Give the shipped prototype of a short name."""
    return next(prototype for prototype in prototypes() if prototype.name == name)


@cache
def cases() -> tuple[Case, ...]:
    """Give every example of every shipped prototype."""
    return tuple(Case(entry, example) for entry in prototypes() for example in entry.examples.values())


def served_cases() -> tuple[Case, ...]:
    """Give the examples whose kinds a cluster of today can serve: Kubernetes has PodGroups from 1.37 on."""
    return tuple(case for case in cases() if str(case) != "scheduling/pod-group/kubernetes")


class _Memory(dict[str, bytes]):
    """Compiled templates and passed schemas, for as long as the tests run; threads may share it."""

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key."""
        self[key] = data


STORE = _Memory()


def write_app(root: Path, components: Mapping[str, tuple[str, Mapping[str, Any]]]) -> AppDir:
    """Make an app directory with all shipped packages installed: links to them, so leave `vendor/` alone.

    Args:
        root: if it was written before, these components come in place of those of their names.
        components: name → full name of the prototype and parameters.
    """
    locked = []
    for name, folder in folders().items():
        package = LockedPackage(
            full_name=f"{REGISTRY}/{name}",
            version=folder.head.version,
            digest=folder.digest,
            source="bundled",
        )
        (root / package.folder).parent.mkdir(parents=True, exist_ok=True)
        if not (root / package.folder).is_symlink():
            (root / package.folder).symlink_to(files.folder("prototypes") / name)
        locked.append(package)
    (root / "mlstack.lock").write_bytes(app_dir.write_lock(Lock(registries=(), packages=tuple(locked))))
    _write(root / "app.yaml", "App", name="demo")
    for name, (prototype, params) in components.items():
        _write(root / "components" / f"{name}.yaml", "Component", prototype=prototype, params=dict(params))
    _write(
        root / "environments" / PLAIN / "environment.yaml", "Environment", context=PLAIN, namespace="default"
    )
    for preset in files.presets():
        place = root / "environments" / preset
        shutil.copytree(files.folder("environments") / preset, place, dirs_exist_ok=True)
        _write(place / "environment.yaml", "Environment", context=preset, namespace="default")
    return AppDir(root, store=STORE)


def _write(file: Path, kind: str, **content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"apiVersion": "mlstack.dev/v1", "kind": kind, **content}), encoding="utf-8")


def shipped_app(root: Path) -> AppDir:
    """Make an app directory in which every example is a component."""
    return write_app(
        root, {case.component: (case.prototype.full_name, case.example.params) for case in cases()}
    )


def render(app: AppDir, case: Case) -> DesiredState:
    """Render one example of `shipped_app`."""
    place = case.example.namespace or None
    return desired.load(app, case.environment, components=[case.component], namespace=place)


def render_one(root: Path, prototype: str, params: Mapping[str, Any]) -> DesiredState:
    """Render a component `it` of a prototype in an app of its own.

    Args:
        root: must not exist.
        prototype: full name.
        params: of the component.
    """
    return desired.load(write_app(root, {"it": (prototype, params)}), PLAIN)
