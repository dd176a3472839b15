"""Tab offers names that exist."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlstack.operations import env
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import generate, small_app


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mlstack apply ", ["gke", "us/east"]),
        ("mlstack apply g", ["gke"]),
        ("mlstack apply gke -c ", ["front", "shop.cart"]),
        ("mlstack apply gke -c front,s", ["front,shop.cart"]),
        ("mlstack param set --env u", ["us/east"]),
        ("mlstack param list f", ["front"]),
        ("mlstack generate w", ["web"]),
        ("mlstack env r", ["rm"]),
        ("mlstack param s", ["set"]),
    ],
)
def test_names_are_offered(tmp_path: Path, line: str, offered: list[str]) -> None:
    made = small_app(tmp_path)
    for name in ("gke", "us/east"):
        env.add(made, name, kubeconfig=KUBECONFIG, use_preset=False)
    generate(made)
    generate(made, "shop.cart")
    asked = {"_MLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "mlstack"],
        cwd=made.root / "components",
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == offered
