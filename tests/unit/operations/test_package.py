"""Packages: installed with what they require, pinned, listed, removed when nothing uses them."""

from pathlib import Path

import pytest

from mlstack.errors import MlstackError, NotFoundError, RegistryError, UsageError
from mlstack.files.appdir import AppDir
from mlstack.operations import package
from tests.support.builders import read_tree
from tests.support.registry import generate, small_app


def test_install_brings_what_is_required_and_pins_it(tmp_path: Path) -> None:
    made = small_app(tmp_path, installed=False)
    rows = package.install(made, "ours/tools").packages
    assert [(row.package, row.version, row.state) for row in rows] == [
        ("ours/base", "1.0.0", "installed"),
        ("ours/tools", "1.2.0", "installed"),
    ]
    assert {locked.full_name: locked.digest for locked in made.lock().packages} == {
        row.package: row.digest for row in rows
    }
    assert (made.root / "vendor/ours/tools@1.2.0/web/prototype.yaml").is_file()


def test_install_again_keeps_everything(tmp_path: Path) -> None:
    made = small_app(tmp_path)
    before = read_tree(made.root)
    assert {row.state for row in package.install(made, "ours/tools").packages} == {"kept"}
    assert read_tree(made.root) == before


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tools", UsageError),
        ("other/tools", NotFoundError),
        ("ours/tolos", NotFoundError),
        ("ours/tools@9.9", NotFoundError),
    ],
)
def test_failed_install_writes_nothing(tmp_path: Path, text: str, error: type[MlstackError]) -> None:
    made = small_app(tmp_path, installed=False)
    before = read_tree(made.root)
    with pytest.raises(error) as caught:
        package.install(made, text)
    assert caught.value.hint
    assert read_tree(made.root) == before


def test_changed_vendor_folder_is_refused_and_restored_by_force(tmp_path: Path) -> None:
    made = small_app(tmp_path)
    file = made.root / "vendor/ours/tools@1.2.0/web/prototype.yaml"
    original = file.read_bytes()
    file.write_bytes(original + b"# changed\n")
    with pytest.raises(RegistryError, match=r"not what mlstack\.lock says"):
        AppDir(made.root).prototype("web")
    package.install(AppDir(made.root), "ours/tools", force=True)
    assert file.read_bytes() == original


def test_list_shows_offered_and_installed(tmp_path: Path) -> None:
    made = small_app(tmp_path, installed=False)
    assert [(row.package, row.version, row.installed) for row in package.list_all(made).packages] == [
        ("ours/base", "1.0.0", None),
        ("ours/tools", "1.2.0", None),
    ]
    assert package.list_all(made, installed_only=True).packages == ()
    package.install(made, "ours/tools")
    assert [row.installed for row in package.list_all(made).packages] == ["1.0.0", "1.2.0"]


def test_installed_packages_need_no_registry(tmp_path: Path) -> None:
    made = small_app(tmp_path)
    (tmp_path / "registry").rename(tmp_path / "gone")
    assert len(package.list_all(made, installed_only=True).packages) == 2
    both = package.list_all(made)
    assert [row.package for row in both.packages] == ["ours/base", "ours/tools"]
    assert "ours" in both.notes[0]


@pytest.mark.parametrize("installed", [True, False])
def test_describe_works_before_and_after_install(tmp_path: Path, installed: bool) -> None:
    found = package.describe(small_app(tmp_path, installed=installed), "ours/tools")
    assert (found.version, found.license, found.requires) == ("1.2.0", "Apache-2.0", ("base",))
    assert found.installed == ("1.2.0" if installed else None)
    assert [each.name for each in found.prototypes] == ["web"]


def test_remove_takes_what_only_it_required(tmp_path: Path) -> None:
    made = small_app(tmp_path)
    assert sorted(package.remove(made, "ours/tools").packages) == ["ours/base@1.0.0", "ours/tools@1.2.0"]
    assert not list((made.root / "vendor").rglob("*.yaml"))
    assert made.app().packages == ()


def test_remove_is_refused_while_a_component_uses_it(tmp_path: Path) -> None:
    made = small_app(tmp_path)
    generate(made)
    before = read_tree(made.root)
    with pytest.raises(UsageError, match="used by `front`"):
        package.remove(made, "ours/tools")
    assert read_tree(made.root) == before


def test_remove_is_refused_while_a_package_requires_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="required by `ours/tools`"):
        package.remove(small_app(tmp_path), "ours/base")


def test_remove_of_what_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        package.remove(small_app(tmp_path), "ours/tolos")
    assert caught.value.near == "ours/tools"
