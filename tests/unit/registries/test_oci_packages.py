"""Packages of an OCI registry in an app: chosen by range or digest, locked, and had again."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.operations import app as apps
from mlstack.operations import packages, registries
from mlstack.registries.oci import place_of
from tests.support.builders import read_tree
from tests.support.oci import FakeRegistry
from tests.support.packages import COMMON, JOBS, as_files
from tests.support.registries import next_jobs


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def new_app(tmp_path: Path, host: str) -> AppDir:
    apps.init(tmp_path / "demo", "demo", default_registry=False)
    made = AppDir(tmp_path / "demo")
    registries.add_registry(made, "own", f"oci://{host}/ml")
    return made


@pytest.mark.slow
def test_what_is_locked_comes_again_after_newer_versions(fake: FakeRegistry, tmp_path: Path) -> None:
    place = place_of(f"oci://{fake.host}/ml")
    place.publish(as_files(COMMON))
    first = place.publish(as_files(JOBS))
    made = new_app(tmp_path, fake.host)
    packages.install_packages(made, ["own/jobs@^0.1"])
    assert {p.full_name: p.revision for p in AppDir(made.root).lock.packages}[
        "own/jobs"
    ] == first.manifest_digest
    before = read_tree(made.root)
    place.publish(as_files(next_jobs()))
    shutil.rmtree(made.root / "vendor")
    packages.restore_packages(AppDir(made.root))
    assert read_tree(made.root) == before


@pytest.mark.slow
def test_a_package_is_named_by_its_digest(fake: FakeRegistry, tmp_path: Path) -> None:
    place = place_of(f"oci://{fake.host}/ml")
    place.publish(as_files(COMMON))
    first = place.publish(as_files(JOBS))
    place.publish(as_files(next_jobs()))
    made = new_app(tmp_path, fake.host)
    packages.install_packages(made, ["own/jobs", f"own/jobs@{first.manifest_digest}"])
    versions = [p.version for p in AppDir(made.root).lock.packages if p.name == "jobs"]
    assert versions == ["0.1.0", "0.10.0"]
    assert [str(ref) for ref in AppDir(made.root).app.packages] == ["own/jobs", "own/jobs@0.1.0"]
