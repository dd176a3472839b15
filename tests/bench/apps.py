"""Apps to measure with."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from mlstack.yaml import write

MLSTACK = [str(Path(sys.executable).with_name("mlstack"))]


def serving_app(folder: Path, *, components: int, environments: int) -> Path:
    """Make an app of `tf-serving` components: three objects each, a third overridden in every environment."""
    _mlstack(folder.parent, "init", folder.name)
    _mlstack(folder, "registry", "add", "kubeflow", "github.com/google/kubeflow/tree/master/kubeflow")
    _mlstack(folder, "pkg", "install", "kubeflow/tf-serving")
    for number in range(components):
        text = (
            "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: kubeflow/tf-serving/tf-serving\n"
            f"params:\n  name: m{number}\n  model_path: gs://models/m{number}\n  replicas: {1 + number % 3}\n"
        )
        (folder / "components" / f"m{number}.yaml").write_text(text)
    for number in range(environments):
        _write_environment(folder / "environments" / f"e{number}", components=components)
    return folder


def _write_environment(folder: Path, *, components: int) -> None:
    folder.mkdir(parents=True)
    (folder / "environment.yaml").write_text(
        f"apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: bench\nnamespace: {folder.name}\n"
    )
    lines = ["apiVersion: mlstack.dev/v1", "kind: EnvironmentParams", "globals: {}", "components:"]
    for number in range(0, components, 3):
        lines += [f"  m{number}:", "    replicas: 4"]
    (folder / "params.yaml").write_text("\n".join(lines) + "\n")


def settings_app(folder: Path, *, objects: int) -> Path:
    """Make an app of plain manifests: ConfigMaps of 1.3 kB, ten a file."""
    _mlstack(folder.parent, "init", folder.name)
    for first in range(0, objects, 10):
        manifests = [_settings(number) for number in range(first, min(first + 10, objects))]
        (folder / "components" / f"s{first:03}.yaml").write_text(write.to_yaml_documents(manifests))
    return folder


def mixed_app(folder: Path, *, deployments: int, maps: int) -> Path:
    """Make an app of plain manifests: Deployments of one pod, and ConfigMaps."""
    _mlstack(folder.parent, "init", folder.name)
    objects = [_web(number) for number in range(deployments)] + [_settings(number) for number in range(maps)]
    (folder / "components" / "mixed.yaml").write_text(write.to_yaml_documents(objects))
    return folder


def _web(number: int) -> dict[str, Any]:
    labels = {"app": f"web-{number:03}"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": labels["app"]}, "spec": spec}


def _settings(number: int) -> dict[str, Any]:
    text = "\n".join(f"setting{line} = {number}-{'x' * 16}" for line in range(40))
    metadata = {"name": f"settings-{number:03}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"settings": text}}


def crowded_app(folder: Path, *, namespaces: int, objects: int) -> Path:
    """Make an app of plain manifests: in every namespace so many objects, itself one of them."""
    _mlstack(folder.parent, "init", folder.name)
    for number in range(namespaces):
        name = f"crowd-{number:02}"
        manifests = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}]
        manifests += [_member(name, index) for index in range(objects - 1)]
        (folder / "components" / f"{name}.yaml").write_text(write.to_yaml_documents(manifests))
    return folder


def _member(namespace: str, number: int) -> dict[str, Any]:
    metadata = {"name": f"m{number:03}", "namespace": namespace}
    match number % 10:
        case 0:
            return {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"selector": {"app": "crowd"}, "ports": [{"port": 80}]},
            }
        case 1:
            return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        case 2:
            return {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "stringData": {"key": "value"},
            }
        case _:
            text = "\n".join(f"setting{line} = {number}" for line in range(20))
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"settings": text}}


def _mlstack(cwd: Path, *arguments: str) -> None:
    subprocess.run([*MLSTACK, *arguments], cwd=cwd, check=True, capture_output=True)
