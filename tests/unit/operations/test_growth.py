"""Twice the components are at most about twice the work, whatever the command."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

COMMANDS = (
    "render gke",
    "validate gke --policy",
    "component list --kinds",
    "param list",
    "param list --env gke",
    "param diff gke minikube",
    "param lint",
    "images list gke",
    "footprint gke",
    "env matrix",
    "explain service/c8 spec.ports --env gke",
    "diff local:gke local:minikube --summary",
    "apply gke --yes",
    "apply gke --yes",
    "diff gke",
    "status gke",
    "history show gke",
    "delete gke --yes",
    "module rm m --components",
)
SMALL, FACTOR, GROWTH = 24, 2, 1.3
SELDOM = 20 * SMALL


def calls(run: Runner, line: str) -> Counter[str]:
    """Count the calls of each function of ours that a command makes."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: Any) -> None:
        _, ours, file = frame.f_code.co_filename.rpartition("/mlstack/")
        if event == "call" and ours and not file.startswith("testing/"):
            counts[f"{file}:{frame.f_code.co_qualname}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        run(line)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return counts


@pytest.mark.slow
def test_no_function_is_called_more_often_than_in_proportion(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[dict[str, Counter[str]]] = []
    for size in (SMALL, FACTOR * SMALL):
        root = small_app(tmp_path / str(size)).root
        monkeypatch.chdir(root)
        run.ok("env add gke --no-preset")
        run.ok("env add minikube --no-preset")
        component = "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: web\nparams: {image: nginx:1}\n"
        names = [f"m.c{n}" if n % 2 else f"c{n}" for n in range(size)]
        params = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents:\n"
        params += "".join(f"  {name}: {{replicas: 3}}\n" for name in names)
        files = {f"components/{name.replace('.', '/')}.yaml": component for name in names}
        write_tree(root, {**files, "environments/gke/params.yaml": params})
        run.ok(f"env targets gke {' '.join(names)}")
        run.clusters.clear()
        counted.append({f"{line} ({number})": calls(run, line) for number, line in enumerate(COMMANDS)})
    small, large = counted
    steep = {
        (line, name): f"{small[line][name]} -> {count}"
        for line, counts in large.items()
        for name, count in counts.items()
        if count > SELDOM and count > GROWTH * FACTOR * small[line][name]
    }
    assert steep == {}
