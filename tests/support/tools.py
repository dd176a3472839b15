"""Real programs of others that slow tests run beside ours: helm, kustomize, an OCI registry, sops, cosign."""

from __future__ import annotations

from pathlib import Path

from tests.controlplane.recipes import obtain_tool


def tool(name: str) -> Path:
    """Give the binary of one of `recipes.TOOLS`; what the cache lacks is built now, which takes minutes."""
    return obtain_tool(name, lambda line: None)
