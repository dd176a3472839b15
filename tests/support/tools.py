"""Real programs of others that slow tests run beside ours: helm, kustomize, an OCI registry, sops, cosign."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from unittest.mock import patch

from tests.controlplane.artifacts import cache_root
from tests.controlplane.recipes import obtain_tool

# The developer's own, before a test gets an empty home: nothing is to be built again for each of them.
_HOME = {"HOME": os.environ.get("HOME", ""), "XDG_CACHE_HOME": str(cache_root().parent)}


@cache
def tool(name: str) -> Path:
    """Give the binary of one of `recipes.TOOLS`; what the cache lacks is built now, which takes minutes."""
    with patch.dict(os.environ, _HOME):
        return obtain_tool(name, lambda line: None)
