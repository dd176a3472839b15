"""Registries of an app: added, listed, described, indexed."""

from pathlib import Path

import pytest

from mlstack.operations import registries as registry
from tests.support.builders import write_tree
from tests.support.registry import REGISTRY


@pytest.mark.parametrize("name", [".", "../shelf", "../shelf/."])
def test_index_of_a_registry_bears_the_name_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = write_tree(tmp_path / "shelf", {key.partition("/")[2]: text for key, text in REGISTRY.items()})
    monkeypatch.chdir(folder)
    registry.index_registry(Path(name))
    assert "\nname: shelf\n" in (folder / "registry.yaml").read_text()


def test_index_is_written_once_and_kept_fresh(tmp_path: Path) -> None:
    folder = write_tree(tmp_path, REGISTRY) / "registry"
    assert not registry.index_registry(folder, check=True).ok
    first = registry.index_registry(folder)
    assert (first.stale, first.written, first.packages, first.ok) == (True, True, 2, True)
    assert registry.index_registry(folder, check=True).ok
    (folder / "tools/web/files").mkdir()
    (folder / "tools/web/files/new.txt").write_text("new")
    assert registry.index_registry(folder, check=True).stale


def test_retired_names_survive_the_rewriting_of_the_index(tmp_path: Path) -> None:
    folder = write_tree(tmp_path, REGISTRY) / "registry"
    registry.index_registry(folder)
    file = folder / "registry.yaml"
    entry = "retired:\n- names:\n  - cgi\n  reason: nobody writes it\n  instead: use `web`\npackages:\n"
    file.write_text(file.read_text().replace("packages:\n", entry))
    assert registry.index_registry(folder, check=True).ok
    (folder / "tools/web/files").mkdir()
    (folder / "tools/web/files/new.txt").write_text("new")
    assert registry.index_registry(folder).written
    assert entry in file.read_text()


def test_shipped_index_is_up_to_date() -> None:
    assert registry.index_registry(Path(__file__).parents[3] / "registry", check=True).ok
