"""Find the upstream CRDs that tests install; they are data beside the project, no part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

CRDS = Path(__file__).parents[2].parent / "shared" / "crds"


def crd(name: str) -> Path:
    """Give the file of an upstream CRD (`kubeflow.org/tfjobs.yaml`); skip the test where it is absent."""
    path = CRDS / name
    if not path.is_file():
        pytest.skip(f"the upstream schema {name} is not in ../shared/crds")
    return path
