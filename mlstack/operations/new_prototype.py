"""A prototype of one's own, begun: from nothing, or from manifests that work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack.app import atomic
from mlstack.app.app import API_VERSION
from mlstack.app.files import read_folder
from mlstack.app.package import PackageFolder
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, UsageError
from mlstack.importers.manifests import SourceFile, read_sources
from mlstack.importers.template import Offer, offered
from mlstack.names import check_package_name
from mlstack.render.trial import PrototypeTrial
from mlstack.yaml import write


@dataclass(frozen=True, kw_only=True)
class PrototypeBegun:
    """A prototype that was written."""

    name: str
    package: str  # the folder of its package
    new_package: bool  # the package was made with it
    files: tuple[str, ...]  # those that were written, by path
    parameters: tuple[str, ...]
    objects: tuple[str, ...]  # what its example renders to, equal to the manifests it was made from
    notes: tuple[str, ...] = ()  # what was left out of the manifests


_BEGINNING = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: 1
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      securityContext:
        seccompProfile: {{type: RuntimeDefault}}
      containers:
        - name: main
          image: nginx:1.29
          ports:
            - {{name: http, containerPort: 80}}
          resources:
            requests: {{cpu: 100m, memory: 128Mi}}
          securityContext:
            allowPrivilegeEscalation: false
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app: {name}}}
  ports:
    - {{name: http, port: 80, targetPort: http}}
"""
_NAME = {
    "type": "string",
    "pattern": r"^[a-z]([-a-z0-9]*[a-z0-9])?$(?!\n)",
    "maxLength": 50,
    "description": "Name of the objects; the component's name unless set.",
}
_ANY_NAME = {**_NAME, "pattern": r"^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$(?!\n)", "maxLength": 253}


def new_prototype(name: str, *, source: str = "", package: Path | None = None) -> PrototypeBegun:
    """Write a prototype with parameters, templates and an example, into a package or a new one.

    Args:
        name: of the prototype, and of its package if that is new.
        source: a manifest, a folder of them, or `-`; without one it begins with a Deployment and a Service.
        package: the package's folder; the working directory if that is one, else a new folder of the name.

    Raises:
        UsageError: the name is unfit, or there is such a prototype.
        NotFoundError: there is no such manifest.
        ConfigError: a manifest is wrong, or the files cannot be written. Nothing is written then.
    """
    check_package_name(name)
    text = _BEGINNING.format(name=name.lower().replace("_", "-").replace(".", "-"))
    beginning = SourceFile(name="the beginning", path=PurePosixPath(f"{name}.yaml"), text=text)
    sources = read_sources(source) if source else [beginning]
    offer = offered(sources, name=name)
    folder = package or (Path() if Path("package.yaml").is_file() else Path(name))
    is_new = not (folder / "package.yaml").is_file()
    if is_new and folder.is_dir() and any(folder.iterdir()):
        hint = "name another folder with --package"
        raise UsageError(f"`{folder}` is no package, and not empty", hint=hint)
    if (folder / name).exists():
        raise UsageError(
            f"there is `{folder / name}` already", hint="choose another name, or remove it first"
        )
    files = {f"{name}/{path}": text for path, text in _prototype_files(name, offer).items()}
    if is_new:
        files["package.yaml"] = _package_file(folder.resolve().name, name)
    objects = _proven(folder, name, files, offer)
    atomic.write_files({folder / path: text for path, text in files.items()})
    return PrototypeBegun(
        name=name,
        package=str(folder),
        new_package=is_new,
        files=tuple(str(folder / path) for path in files),
        parameters=("name", *offer.params),
        objects=objects,
        notes=tuple(note for read in sources for note in read.notes),
    )


def _prototype_files(name: str, offer: Offer) -> Mapping[str, str]:
    required = [param for param, schema in offer.params.items() if "default" in schema]
    parameters: dict[str, Any] = {"type": "object", **({"required": required} if required else {})}
    named = _NAME if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", offer.name) else _ANY_NAME
    parameters["properties"] = {"name": named, **offer.params}
    kinds = ", ".join(dict.fromkeys(str(data["kind"]) for data in offer.objects))
    content = {"name": name, "summary": f"{kinds} of {offer.name}", "parameters": parameters}
    namespace = {"namespace": offer.namespace} if offer.namespace else {}
    example = {"summary": "As it began", "params": {"name": offer.name}, **namespace}
    usage = f"# {name}\n\n```\nmlstack generate {name} NAME\n```\n\nRenders: {kinds}.\n"
    return {
        "prototype.yaml": _file("Prototype", content),
        "examples/default.yaml": _file("Example", example),
        "README.md": usage,
        **{f"templates/{file}": text for file, text in offer.templates.items()},
    }


def _package_file(package: str, prototype: str) -> str:
    check_package_name(package)
    return _file("Package", {"name": package, "version": "0.1.0", "summary": f"The prototype {prototype}"})


def _file(kind: str, content: Mapping[str, Any]) -> str:
    return write.to_yaml({"apiVersion": API_VERSION, "kind": kind, **content})


def _proven(folder: Path, name: str, files: Mapping[str, str], offer: Offer) -> tuple[str, ...]:
    """Render the example as it will be, and hold it to the manifests; gives what it renders."""
    known = read_folder(folder) if folder.is_dir() else {}
    content = {**known, **{PurePosixPath(path): text.encode() for path, text in files.items()}}
    prototype = PackageFolder(content, source=str(folder)).prototype(name, {})
    example = prototype.examples["default"]
    objects = PrototypeTrial(prototype).objects(example.params, example=example)
    for data in offer.objects:
        if data not in [obj.data for obj in objects]:
            what = f"{data['kind']} `{data['metadata']['name']}`"
            message = f"the template would render another {what} than the manifest has"
            raise ConfigError(
                message, hint="take out of the manifest what is not plain YAML, such as anchors"
            )
    return tuple(f"{obj.kind} {obj.name}" for obj in objects)
