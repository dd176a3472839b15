"""A small registry of our own, for tests that are not about the shipped packages."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from mlstack.app.app_dir import AppDir
from mlstack.app.components import ComponentRequest
from mlstack.operations import app, components, packages, registries
from tests.support.builders import Tree, read_tree, write_tree

REGISTRY: Tree = {
    "registry/base/package.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Package
        name: base
        version: 1.0.0
        summary: What the others share
        """,
    "registry/tools/package.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Package
        name: tools
        version: 1.2.0
        summary: Small things for tests
        license: Apache-2.0
        requires: [base]
        """,
    "registry/tools/web/prototype.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Prototype
        name: web
        summary: A page and its settings
        description: Serves one page.
        aliases: [old-web, {name: red-pair, params: {replicas: 2, color: red}}]
        parameters:
          type: object
          required: [image]
          properties:
            name: {type: string, description: Name of the objects.}
            image: {type: string, minLength: 1, description: What runs.}
            replicas:
              type: integer
              minimum: 0
              maximum: 9
              default: 1
              unit: pods
              description: How many run.
              aliases: [num_replicas]
            color: {type: string, enum: [red, green], default: red}
            debug: {type: boolean, default: false}
            args: {type: array, items: {type: string}, default: [], x-format: csv}
            tags: {type: object, additionalProperties: {type: string}, default: {}, x-format: kv}
            token: {type: string, x-secret: true, description: Opens the door.}
            size: {type: string, x-deprecated: use `replicas`}
        notes: |
          Look at it with a browser.
        """,
    "registry/tools/web/templates/page.yaml.j2": """\
        apiVersion: v1
        kind: ConfigMap
        metadata:
          name: {{ name }}
        data:
          image: {{ params.image }}
          color: {{ params.color }}
          replicas: {{ params.replicas | string }}
          args: {{ params.args | join(" ") }}
        {% if params.token %}
        ---
        apiVersion: v1
        kind: Secret
        metadata:
          name: {{ name }}
        stringData:
          token: {{ params.token }}
        {% endif %}
        """,
    "registry/tools/web/examples/plain.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Example
        summary: The least there is.
        params: {image: nginx}
        """,
}


class Passed(dict[str, bytes]):
    """Remembers for all tests which files and parameters have passed their schema."""

    def put(self, key: str, data: bytes) -> None:
        """Remember."""
        self[key] = data


PASSED = Passed()


def small_app(folder: Path, *, installed: bool = True) -> AppDir:
    """Make a registry and beside it an app that knows it, with its package installed or not."""
    write_tree(folder, _made(installed=installed))
    return AppDir(folder / "demo", store=PASSED)


@cache
def _made(*, installed: bool) -> Tree:
    with TemporaryDirectory() as name:
        folder = write_tree(Path(name), REGISTRY)
        app.init(folder / "demo", "demo", default_registry=False)
        app_dir = AppDir(folder / "demo", store=PASSED)
        registries.add_registry(app_dir, "ours", "../registry")
        if installed:
            packages.install_packages(app_dir, ["ours/tools"])
        return read_tree(folder)


def generate(app: AppDir, name: str = "front", **texts: str | None) -> None:
    """Generate a component of the prototype `web` from options as typed."""
    components.generate(app, ComponentRequest(prototype="web", name=name, texts={"image": "nginx", **texts}))


WEB_TEMPLATE = "tools/web/templates/page.yaml.j2"


def sound_registry(folder: Path) -> Path:
    """Write the registry, with its licence and an index, so that no lint finds a fault in it."""
    write_tree(folder, REGISTRY)
    root = folder / "registry"
    package = root / "base/package.yaml"
    package.write_text(package.read_text() + "license: Apache-2.0\n")
    edited(root / WEB_TEMPLATE, "params.args |", "(params.args or []) |")
    registries.index_registry(root)
    return root


def edited(file: Path, old: str, new: str) -> None:
    """Change one text in a file."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
