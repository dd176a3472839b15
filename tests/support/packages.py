"""Build packages, registries and apps with installed packages for tests."""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from textwrap import dedent

from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir, write_lock
from mlstack.app.package import digest, file_digests
from mlstack.app.versions import Lock, LockedPackage
from tests.support.builders import Tree, write_tree

COMMON: Tree = {
    "package.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Package
        name: common
        version: 0.1.0
        summary: What the others share
        """,
    "definitions.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Definitions
        definitions:
          count: {type: integer, minimum: 0}
          gpus: {$ref: common#/count, maximum: 64, unit: GPUs, default: 0}
        """,
    "blocks/meta.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: ParameterBlock
        properties:
          labels: {type: object, additionalProperties: {type: string}, x-format: kv}
          cloud: {enum: ["", minikube, gke], default: "", x-value-aliases: {gcp: gke}}
        """,
    "templates/_meta.j2": "{%- macro meta() %}{% endmacro %}",
}

JOBS: Tree = {
    "package.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Package
        name: jobs
        version: 0.1.0
        summary: Training jobs
        requires: [common]
        keywords: [training]
        """,
    "tf-cnn/prototype.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Prototype
        name: tf-cnn
        summary: A benchmark
        aliases: [old-cnn, {name: gpu-cnn, params: {num_gpus: 1}}]
        blocks: [common/meta]
        parameters:
          type: object
          required: [image]
          properties:
            image: {type: string, minLength: 1}
            num_workers: {type: integer, minimum: 1, maximum: 64, default: 1, aliases: [numWorkers]}
            num_gpus: {$ref: common#/gpus, aliases: [numGpus]}
            token: {type: string, x-secret: true, pattern: "^[a-z]*$"}
            cloud: {default: minikube}
            args: {type: array, items: {type: string}, x-format: csv}
        """,
    "tf-cnn/templates/job.yaml.j2": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ name }}}\n",
    "tf-cnn/files/launcher.py": "print('hello')\n",
    "tf-cnn/examples/one.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Example
        summary: One worker
        params: {image: a}
        """,
    "tf-serving/prototype.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Prototype
        name: tf-serving
        summary: Serves a model
        parameters:
          type: object
          required: [model_path, model_name]
          properties:
            model_path: {type: string}
            model_name: {type: string}
        """,
}


def as_files(tree: Tree) -> dict[PurePosixPath, bytes]:
    """Give a tree as a package's files."""
    return {PurePosixPath(path): _bytes(content) for path, content in tree.items()}


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else dedent(content).encode()


def vendored(*packages: Tree, registry: str = "kubeflow") -> dict[str, bytes]:
    """Give the files of an app in which packages are installed: `vendor/` and `mlstack.lock`."""
    files: dict[str, bytes] = {}
    locked = []
    for tree in packages:
        content = as_files(tree)
        package = LockedPackage(
            full_name=f"{registry}/{_field(content, 'name')}",
            version=_field(content, "version"),
            digest=digest(content),
            source="bundled",
            requires={f"{registry}/{name}": "" for name in _requires(content)},
            files=file_digests(content),
        )
        files |= {f"{package.folder}/{path}": data for path, data in content.items()}
        locked.append(package)
    return {**files, "mlstack.lock": write_lock(Lock(packages=tuple(locked)))}


def _requires(content: Mapping[PurePosixPath, bytes]) -> list[str]:
    lines = content[PurePosixPath("package.yaml")].decode().splitlines()
    listed = next((line.partition(":")[2] for line in lines if line.startswith("requires:")), "")
    return [name for name in listed.strip(" []").split(", ") if name]


def _field(content: Mapping[PurePosixPath, bytes], name: str) -> str:
    lines = content[PurePosixPath("package.yaml")].decode().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


def installed_app() -> dict[str, str | bytes]:
    """Give an app with `common` and `jobs` installed, a component `cnn`, and two environments."""
    return {
        **vendored(COMMON, JOBS),
        "app.yaml": """\
            apiVersion: mlstack.dev/v1
            kind: App
            name: demo
            registries:
            - name: kubeflow
              address: bundled
              protocol: directory
            packages:
            - kubeflow/jobs
            params: {}
            """,
        "components/cnn.yaml": """\
            apiVersion: mlstack.dev/v1
            kind: Component
            prototype: kubeflow/jobs/tf-cnn
            params:
              image: registry.example.org/cnn:1
            """,
        "environments/minikube/environment.yaml": """\
            apiVersion: mlstack.dev/v1
            kind: Environment
            context: minikube
            """,
        "environments/gke/environment.yaml": """\
            apiVersion: mlstack.dev/v1
            kind: Environment
            context: gke
            namespace: ml
            """,
        "environments/gke/params.yaml": """\
            # Values of the GPU cluster.
            apiVersion: mlstack.dev/v1
            kind: EnvironmentParams
            globals:
              cloud: gke  # not on premises
            components:
              cnn:
                num_gpus: 1
            """,
    }


def registry_folder(root: Path, *packages: Tree, index: str | None = None) -> Path:
    """Write a registry's folder with package folders, and `registry.yaml` when given."""
    for tree in packages:
        write_tree(root / _field(as_files(tree), "name"), tree)
    if index is not None:
        write_tree(root, {"registry.yaml": index})
    return root


def of_kind(kind: str, text: str = "") -> str:
    """Write a file of a kind."""
    return f"apiVersion: mlstack.dev/v1\nkind: {kind}\n{text}"


def built(make: Callable[[Tree], Path], **changes: str | bytes) -> AppDir:
    """Make the installed app with some files changed; `/` is written `__`, `.yaml` is added."""
    renamed = {f"{name.replace('__', '/')}.yaml": text for name, text in changes.items()}
    return AppDir(make({**installed_app(), **renamed}))


def own(app: AppDir, name: str = "cnn") -> Component:
    """Give a component that is made from a prototype."""
    component = app.component(name)
    assert isinstance(component, Component)
    return component
