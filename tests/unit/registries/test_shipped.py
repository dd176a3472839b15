"""The registry that comes with mlstack is fresh, and the address of the launch post leads to it."""

import re
from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.app.app import PackageRef, RegistryRef
from mlstack.registries import registry
from mlstack.registries.registry import build_index
from tests.support import examples

LAUNCH = "github.com/google/kubeflow/tree/master/kubeflow"


def test_the_shipped_index_is_fresh() -> None:
    folder = files.folder("registry")
    shipped = (folder / "registry.yaml").read_text(encoding="utf-8")
    assert shipped == build_index(folder), "stale: python -m tests.generate.registry_index rewrites it"


@pytest.mark.parametrize(
    "address", ["bundled", LAUNCH, f"https://{LAUNCH}", f"https://GitHub.com/{LAUNCH[11:]}/"]
)
def test_the_launch_post_leads_to_the_shipped_registry_offline(address: str, tmp_path: Path) -> None:
    ref = RegistryRef(name="kubeflow", address=address, protocol=registry.protocol_of(address))
    assert set(registry.open_registry(ref, root=tmp_path).index().packages) >= {
        "core",
        "tf-job",
        "tf-serving",
    }


def test_another_branch_of_that_repository_is_not_ours() -> None:
    assert not registry.is_bundled("github.com/google/kubeflow/tree/other/kubeflow")


@pytest.mark.parametrize("name", ["core", "tf-job", "tf-serving"])
def test_the_packages_of_the_launch_can_be_fetched_with_what_they_require(name: str, tmp_path: Path) -> None:
    refs = [RegistryRef(name="mine", address=LAUNCH, protocol="git")]
    fetched, locked = registry.fetch_all(refs, PackageRef(registry="mine", name=name), root=tmp_path)
    assert fetched[0].name == name
    assert "common" in [package.name for package in fetched]
    assert locked.address == LAUNCH


def test_retired_names_are_given_once_and_no_prototype_or_package_has_them(tmp_path: Path) -> None:
    ref = RegistryRef(name="kubeflow", address="bundled", protocol="directory")
    index = registry.open_registry(ref, root=tmp_path).index()
    names = [name for each in index.retired for name in each.names]
    assert {"mxnet-job", "katib", "spartakus"} <= set(names)
    assert len(names) == len(set(names))
    assert not set(names) & {*index.packages, *(each.name for each in examples.prototypes())}


def test_what_to_do_instead_of_a_retired_name_names_what_is_there(tmp_path: Path) -> None:
    ref = RegistryRef(name="kubeflow", address="bundled", protocol="directory")
    index = registry.open_registry(ref, root=tmp_path).index()
    said = " ".join(each.instead for each in index.retired)
    prototypes = {name for each in examples.prototypes() for name in (each.name, *each.aliases)}
    assert set(re.findall(r"mlstack generate (\S+)", said)) <= prototypes
    assert {f"kubeflow/{name}" for name in index.packages} >= set(re.findall(r"pkg install ([^\s,]+)", said))


def test_presets_are_found_by_name() -> None:
    assert {"minikube", "gke"} <= set(files.presets())
    assert files.preset("nothing") is None
    found = files.preset("gke")
    assert found is not None
    assert (found / "environment.yaml").is_file()
