"""What packages cost: 500 with dependencies chosen, locked and verified, beside a start that does nothing."""

import time
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.operations import app as apps
from mlstack.operations import packages, registries
from mlstack.registries.installation import requirements_of
from mlstack.registries.resolver import AppCatalog, select
from tests.bench.apps import MLSTACK
from tests.bench.measure import Command, run_in_turn, show
from tests.support.builders import write_tree

pytestmark = pytest.mark.bench

COUNT, ROUNDS = 500, 7
VERSIONS = ("1.0.0", "1.1.0", "2.0.0")


def registry(folder: Path) -> Path:
    """Make a registry of packages in three versions each, which require up to three others by ranges."""
    files = {}
    for n in range(COUNT):
        others = sorted({other for other in (n + 1, n + 7, 2 * n + 3) if other < COUNT})
        needs = ", ".join(f'{{name: p{other}, version: "^1"}}' for other in others)
        for version in VERSIONS:
            head = f"apiVersion: mlstack.dev/v1\nkind: Package\nname: p{n}\nversion: {version}\n"
            files[f"p{n}-{version}/package.yaml"] = f"{head}summary: x\nrequires: [{needs}]\n"
    write_tree(folder, files)
    registries.index_registry(folder)
    return folder


def test_five_hundred_packages_with_dependencies(tmp_path: Path) -> None:
    registry(tmp_path / "registry")
    apps.init(tmp_path / "demo", "demo", default_registry=False)
    app = AppDir(tmp_path / "demo")
    registries.add_registry(app, "ours", "../registry")
    assert len(packages.install_packages(app, ["ours/p0@^1"]).packages) == COUNT
    app = AppDir(app.root)
    begin = time.perf_counter()
    catalog = AppCatalog(app.app.registries, (), root=app.root)
    choices = select(requirements_of(app), catalog, preferred={})
    print(f"\nindex read and {len(choices)} packages chosen anew: {time.perf_counter() - begin:.2f} s")
    commands = [
        Command(name="mlstack version", argv=[*MLSTACK, "version"], cwd=app.root),
        Command(name="pkg install, all there", argv=[*MLSTACK, "pkg", "install"], cwd=app.root),
        Command(name="pkg install --frozen", argv=[*MLSTACK, "pkg", "install", "--frozen"], cwd=app.root),
        Command(name="pkg outdated", argv=[*MLSTACK, "pkg", "outdated"], cwd=app.root),
        Command(name="pkg update --preview", argv=[*MLSTACK, "pkg", "update", "--preview"], cwd=app.root),
        Command(name="pkg verify", argv=[*MLSTACK, "pkg", "verify"], cwd=app.root),
    ]
    show(f"{COUNT} packages", run_in_turn(commands, rounds=ROUNDS), unit="mlstack version")
