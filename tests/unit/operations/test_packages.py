"""Packages: installed with what they require, pinned, listed, removed."""

import shutil
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.files import read_folder
from mlstack.app.package import digest
from mlstack.errors import MlstackError
from mlstack.operations import components, packages, registries
from tests.support.builders import read_tree, write_tree
from tests.support.registry import REGISTRY, generate, small_app


def two_versions(tmp_path: Path) -> AppDir:
    """Make an app with `tools` 2.0.0 installed from a registry that also offers 1.2.0."""
    app_dir = small_app(tmp_path, installed=False)
    newer = {
        path.replace("registry/tools", "registry/newer"): str(text).replace("1.2.0", "2.0.0")
        for path, text in REGISTRY.items()
        if path.startswith("registry/tools")
    }
    write_tree(tmp_path, newer)
    registries.index_registry(tmp_path / "registry")
    packages.install_packages(app_dir, ["ours/tools"])
    return app_dir


def rows(app_dir: AppDir) -> tuple[components.ComponentRow, ...]:
    """List the components of an app."""
    return components.list_components(AppDir(app_dir.root)).components


def test_a_newer_version_by_its_number_changes_no_component_either(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path)
    generate(app_dir, "before")
    newer = (tmp_path / "registry/tools/package.yaml").read_text().replace("1.2.0", "2.0.0")
    (tmp_path / "registry/tools/package.yaml").write_text(newer)
    packages.install_packages(app_dir, ["ours/tools@2.0.0"])
    assert [row.package for row in rows(app_dir)] == ["ours/tools@1.2.0"]
    packages.install_packages(app_dir, ["ours/tools"])  # whoever asks for the newest gets it
    assert [row.package for row in rows(app_dir)] == ["ours/tools@2.0.0"]


def test_either_of_two_versions_can_be_removed(tmp_path: Path) -> None:
    app_dir = two_versions(tmp_path)
    packages.install_packages(app_dir, ["ours/tools@1.2.0"])
    assert packages.remove_packages(app_dir, ["ours/tools@2.0.0"]).packages == ("ours/tools@2.0.0",)
    assert [str(ref) for ref in app_dir.app.packages] == ["ours/tools@1.2.0"]
    packages.install_packages(app_dir, ["ours/tools"])
    assert packages.remove_packages(app_dir, ["ours/tools@1.2.0"]).packages == ("ours/tools@1.2.0",)
    assert [str(ref) for ref in app_dir.app.packages] == ["ours/tools"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("web/prototype.yaml", "name: web", "name: other"),
        ("web/prototype.yaml", "image: {", "$(touch pwned): {"),
        ("web/prototype.yaml", "aliases: [num_replicas]", "aliases: ['a b']"),
        ("web/prototype.yaml", "minimum: 0", "minimum: [0]"),
        ("package.yaml", "summary: Small", "smmary: Small"),
        ("package.yaml", "version: 1.2.0", "version: 1.3.0"),
        ("package.yaml", "name: tools", "name: tolls"),
    ],
)
def test_a_package_that_could_not_be_used_or_removed_is_not_let_in(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    app_dir = small_app(tmp_path, installed=False)
    place = tmp_path / "registry/tools" / file
    registries.index_registry(tmp_path / "registry")
    assert old in place.read_text()
    place.write_text(place.read_text().replace(old, new))
    index = tmp_path / "registry/registry.yaml"
    fresh = digest(read_folder(tmp_path / "registry/tools"))
    stale = (
        packages.install_packages(small_app(tmp_path / "other", installed=False), ["ours/tools"])
        .packages[-1]
        .digest
    )
    index.write_text(index.read_text().replace(stale, fresh))
    before = read_tree(app_dir.root)
    with pytest.raises(MlstackError):
        packages.install_packages(app_dir, ["ours/tools"])
    assert read_tree(app_dir.root) == before


@pytest.mark.parametrize("broken", ["ours/tools@1.2.0/web/prototype.yaml", "ours/tools@1.2.0/package.yaml"])
@pytest.mark.parametrize("what", ["other content", "no YAML", "gone"])
def test_what_is_broken_in_vendor_can_be_removed(tmp_path: Path, broken: str, what: str) -> None:
    app_dir = small_app(tmp_path)
    file = app_dir.root / "vendor" / broken
    if what == "gone":
        file.unlink()
    else:
        file.write_text(": [" if what == "no YAML" else file.read_text() + "x-new: 1\n")
    packages.remove_packages(AppDir(app_dir.root), ["ours/tools"])
    assert AppDir(app_dir.root).app.packages == ()
    packages.install_packages(AppDir(app_dir.root), ["ours/tools"])
    AppDir(app_dir.root).prototype("web")


def test_what_is_locked_is_restored_from_where_it_came_though_the_registry_leads_elsewhere(
    tmp_path: Path,
) -> None:
    app_dir = small_app(tmp_path)
    shutil.copytree(tmp_path / "registry", tmp_path / "other")
    registries.set_registry(app_dir, "ours", "../other")
    before = read_tree(app_dir.root)
    shutil.rmtree(app_dir.root / "vendor")
    packages.restore_packages(AppDir(app_dir.root))
    assert read_tree(app_dir.root) == before
