"""A registry may be a folder of the disk."""

from pathlib import Path

import pytest

from mlstack.app.app import RegistryRef
from mlstack.errors import RegistryError
from mlstack.registries.registry import open_registry, protocol_of
from tests.support.builders import Tree
from tests.support.registries import Open, RegistrySuite, plain, write_registry


class TestDirectory(RegistrySuite):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Open:
        def build(files: Tree) -> object:
            write_registry(tmp_path / "registry", files)
            ref = RegistryRef(name="own", address="../registry", protocol="directory")
            return open_registry(ref, root=tmp_path / "app")

        return build  # type: ignore[return-value]


def test_a_relative_address_starts_at_the_app_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_registry(tmp_path / "app" / "packages", plain())
    monkeypatch.chdir("/")
    ref = RegistryRef(name="own", address="packages", protocol="directory")
    assert "jobs" in open_registry(ref, root=tmp_path / "app").index().packages


def test_home_may_be_written_as_a_tilde() -> None:
    write_registry(Path.home() / "registry", plain())
    ref = RegistryRef(name="own", address="~/registry", protocol="")
    assert open_registry(ref, root=Path("/")).index().packages


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    ref = RegistryRef(name="own", address="./nothing", protocol="directory")
    with pytest.raises(RegistryError, match=r"no folder `\./nothing` for registry `own`"):
        open_registry(ref, root=tmp_path).index()


def test_a_revision_of_a_folder_is_refused_not_ignored(tmp_path: Path) -> None:
    write_registry(tmp_path, plain())
    registry = open_registry(RegistryRef(name="own", address=".", protocol="directory"), root=tmp_path)
    with pytest.raises(RegistryError, match="is a folder, which has no revision `main`"):
        registry.at("main")


@pytest.mark.parametrize(
    ("address", "protocol"),
    [
        ("./packages", "directory"),
        ("/srv/packages", "directory"),
        ("~/packages", "directory"),
        ("../x", "directory"),
        ("packages/own", "directory"),
        ("github.com/google/other/tree/master/x", "git"),
        ("github.com/google/other", "git"),
        ("https://example.org/x.git", "git"),
        ("git@example.org:x/y.git", "git"),
        ("ssh://git@example.org/x", "git"),
        ("file:///srv/x.git#main:packages", "git"),
    ],
)
def test_the_protocol_is_found_from_the_address(address: str, protocol: str) -> None:
    assert protocol_of(address) == protocol


@pytest.mark.parametrize("address", ["oci://example.org/x", "example.org/x", "https:/x", ""])
def test_an_address_of_no_protocol_is_refused(address: str) -> None:
    with pytest.raises(RegistryError, match="is no address of a registry"):
        protocol_of(address)


def test_an_unknown_protocol_tells_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RegistryError) as caught:
        open_registry(RegistryRef(name="x", address=".", protocol="directry"), root=tmp_path)
    assert caught.value.hint == "did you mean `directory`?"
