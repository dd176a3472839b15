"""Packages come into an app and leave it: vendor/, app.yaml and the lock change together."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app.app import LockedRegistry, PackageRef
from mlstack.app.app_dir import AppDir
from mlstack.app.package import FetchedPackage, digest
from mlstack.errors import NotFoundError, RegistryError
from tests.support.builders import Tree, read_tree, write_tree
from tests.support.packages import COMMON, JOBS, as_files

Build = Callable[[Tree], Path]
REGISTRY = LockedRegistry(name="kubeflow", address="bundled")
NEWER = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("0.1.0", "0.2.0")}


def fetched(tree: Tree, name: str, version: str = "0.1.0") -> FetchedPackage:
    files = as_files(tree)
    return FetchedPackage(
        registry="kubeflow", name=name, version=version, digest=digest(files), source="bundled", files=files
    )


def install(app: AppDir, tree: Tree = JOBS, version: str = "0.1.0", *, named: bool = False) -> None:
    requirement = PackageRef(registry="kubeflow", name="jobs", version=version if named else "")
    app.install(requirement, [fetched(tree, "jobs", version), fetched(COMMON, "common")], REGISTRY)


@pytest.fixture
def empty(app: Build) -> AppDir:
    head = "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n# what we need\npackages: []\n"
    return AppDir(app({"app.yaml": head}))


def versions(app: AppDir) -> list[str]:
    return [str(package.ref) for package in app.lock().packages]


def test_an_installed_package_can_be_used_and_is_locked(empty: AppDir) -> None:
    install(empty)
    assert empty.prototype("tf-cnn").version == "0.1.0"
    assert empty.app().packages == (PackageRef(registry="kubeflow", name="jobs"),)
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.1.0"]
    assert empty.lock().registries == (REGISTRY,)
    assert empty.lock().packages[1].digest == digest(as_files(JOBS))
    assert "# what we need" in (empty.root / "app.yaml").read_text()


def test_requirements_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    made = AppDir.create(tmp_path / "new", "demo")
    install(made)
    other = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("name: jobs", "name: more")}
    made.install(PackageRef(registry="kubeflow", name="more"), [fetched(other, "more")], REGISTRY)
    assert (made.root / "app.yaml").read_text().endswith("packages:\n- kubeflow/jobs\n- kubeflow/more\n")


def test_installing_again_changes_nothing(empty: AppDir) -> None:
    install(empty)
    before = read_tree(empty.root)
    install(empty)
    assert read_tree(empty.root) == before


def test_installing_again_restores_the_vendored_files(empty: AppDir) -> None:
    install(empty)
    before = read_tree(empty.root)
    folder = "vendor/kubeflow/jobs@0.1.0"
    write_tree(empty.root, {f"{folder}/package.yaml": "changed", f"{folder}/extra.txt": "x"})
    (empty.root / folder / "tf-cnn/files/launcher.py").unlink()
    install(empty)
    assert read_tree(empty.root) == before


def test_a_newer_version_takes_the_place_of_one_nobody_named(empty: AppDir) -> None:
    install(empty)
    install(empty, NEWER, "0.2.0")
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.2.0"]
    assert not (empty.root / "vendor/kubeflow/jobs@0.1.0").exists()
    assert empty.app().packages == (PackageRef(registry="kubeflow", name="jobs"),)


def test_named_versions_stand_side_by_side(empty: AppDir) -> None:
    install(empty, named=True)
    install(empty, NEWER, "0.2.0", named=True)
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.1.0", "kubeflow/jobs@0.2.0"]
    assert [str(ref) for ref in empty.app().packages] == ["kubeflow/jobs@0.1.0", "kubeflow/jobs@0.2.0"]
    empty.remove_package(PackageRef(registry="kubeflow", name="jobs", version="0.1.0"))
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.2.0"]


def test_other_content_of_a_locked_version_is_an_error_and_changes_nothing(empty: AppDir) -> None:
    install(empty)
    before = read_tree(empty.root)
    with pytest.raises(RegistryError, match="is not the one that mlstack"):
        install(empty, {**JOBS, "tf-cnn/files/launcher.py": "other"})
    assert read_tree(empty.root) == before


def test_removing_a_package_removes_what_only_it_required(empty: AppDir) -> None:
    start = (empty.root / "app.yaml").read_bytes()
    install(empty)
    gone = empty.remove_package(PackageRef(registry="kubeflow", name="jobs"))
    assert [str(package.ref) for package in gone] == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.1.0"]
    assert empty.packages() == ()
    assert not list((empty.root / "vendor").rglob("*.yaml"))
    assert (empty.root / "app.yaml").read_bytes() == start


def test_what_another_package_requires_stays(empty: AppDir) -> None:
    install(empty)
    other = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("name: jobs", "name: more")}
    empty.install(
        PackageRef(registry="kubeflow", name="more"),
        [fetched(other, "more"), fetched(COMMON, "common")],
        REGISTRY,
    )
    empty.remove_package(PackageRef(registry="kubeflow", name="jobs"))
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/more@0.1.0"]


def test_a_package_that_is_not_installed_cannot_be_removed(empty: AppDir) -> None:
    with pytest.raises(NotFoundError, match="package `kubeflow/jobs` is not installed"):
        empty.remove_package(PackageRef(registry="kubeflow", name="jobs"))


def test_the_lock_is_the_same_whatever_the_order(empty: AppDir) -> None:
    install(empty)
    one = (empty.root / "mlstack.lock").read_bytes()
    empty.install(
        PackageRef(registry="kubeflow", name="jobs"),
        [fetched(COMMON, "common"), fetched(JOBS, "jobs")][::-1],
        REGISTRY,
    )
    assert (empty.root / "mlstack.lock").read_bytes() == one
