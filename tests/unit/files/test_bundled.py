"""What comes with mlstack is found in the installed package first, in the checkout beside it second."""

from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.errors import MlstackError
from tests.support.builders import write_tree


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "__file__", str(tmp_path / "mlstack/app/files.py"))
    return tmp_path


def test_the_checkout_is_taken_where_nothing_is_bundled(package: Path) -> None:
    write_tree(package, {"registry/registry.yaml": "x"})
    assert files.folder("registry") == package / "registry"


def test_the_installed_package_comes_first(package: Path) -> None:
    write_tree(package, {"registry/registry.yaml": "x", "mlstack/_bundled/registry/registry.yaml": "x"})
    assert files.folder("registry") == package / "mlstack/_bundled/registry"


def test_a_broken_installation_is_told(package: Path) -> None:
    with pytest.raises(MlstackError, match="the folder `registry` that comes with mlstack is missing"):
        files.folder("registry")


def test_every_preset_fits_its_schema() -> None:
    from mlstack.app import document as documents
    from mlstack.app.schema import check_file

    for name in files.presets():
        folder = files.preset(name)
        assert folder is not None
        for file, kind in (("environment.yaml", "Environment"), ("params.yaml", "EnvironmentParams")):
            if (folder / file).is_file():
                document = documents.read((folder / file).read_bytes(), file=file)
                check_file(kind, document.value, source=f"{name}/{file}", origins=document.origins())
