"""A new app directory."""

from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.errors import ConfigError, MlstackError, UsageError
from mlstack.operations import app
from tests.support.builders import read_tree


def test_new_app_has_every_file_it_needs(tmp_path: Path) -> None:
    result = app.init(tmp_path / "my-app", "my-app")
    assert (result.app, result.registries) == ("my-app", ("kubeflow",))
    assert sorted(read_tree(tmp_path / "my-app")) == [
        ".gitignore",
        ".mlstack/.gitignore",
        ".mlstack/lock",
        "app.yaml",
        "mlstack.lock",
    ]
    assert all((tmp_path / "my-app" / name).is_dir() for name in ("components", "environments"))
    assert AppDir(tmp_path / "my-app").components() == ()


def test_default_registry_can_be_left_out(tmp_path: Path) -> None:
    assert app.init(tmp_path, "x", default_registry=False).registries == ()
    assert AppDir(tmp_path).app.registries == ()


def test_gitignore_hides_no_file_that_is_shared(tmp_path: Path) -> None:
    app.init(tmp_path, "x")
    patterns = [
        line for line in (tmp_path / ".gitignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert patterns == ["/.mlstack/"]


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 64])
def test_name_must_fit_a_label(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        app.init(tmp_path / "new", name)
    assert not (tmp_path / "new").exists()


def test_existing_app_is_left_alone(tmp_path: Path) -> None:
    app.init(tmp_path, "x")
    before = read_tree(tmp_path)
    with pytest.raises(MlstackError, match="already"):
        app.init(tmp_path, "y")
    assert read_tree(tmp_path) == before


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        app.init(tmp_path / "file", "x")
