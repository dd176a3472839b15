"""Registries in folders, the shipped registry, retired names, and protocols found from addresses."""

import re
from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.app.app import PackageRef, RegistryRef, Retired
from mlstack.app.app_dir import AppDir, write_lock
from mlstack.app.versions import Lock, LockedRegistry
from mlstack.errors import NotFoundError, RegistryError
from mlstack.registries.publish import build_index
from mlstack.registries.registry import Registry, find_usable, protocol_of
from tests.support import examples
from tests.support.builders import Tree, write_tree
from tests.support.packages import JOBS, registry_folder, vendored
from tests.support.registries import Open, RegistrySuite, fetch_all, opened, plain, write_registry


class TestDirectory(RegistrySuite):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Open:
        def build(files: Tree) -> Registry:
            write_registry(tmp_path / "registry", files)
            return opened("../registry", protocol="directory", root=tmp_path / "app")

        return build


def test_home_may_be_written_as_a_tilde() -> None:
    write_registry(Path.home() / "registry", plain())
    assert opened("~/registry", protocol="", root=Path("/")).index.packages


def test_a_revision_of_a_folder_is_refused_not_ignored(tmp_path: Path) -> None:
    write_registry(tmp_path, plain())
    registry = opened(".", protocol="directory", root=tmp_path)
    with pytest.raises(RegistryError, match="is a folder, which has no revision `main`"):
        registry.at("main")


@pytest.mark.parametrize("address", ["s3://example.org/x", "example.org/x", "https:/x", ""])
def test_an_address_of_no_protocol_is_refused(address: str) -> None:
    with pytest.raises(RegistryError, match="is no address of a registry"):
        protocol_of(address)


# --- retired names answer without a network, and never hide what is installed ---

RETIRED = (
    Retired(names=("old-job", "older-job"), reason="nobody runs it"),
    Retired(names=("tf-cnn", "moved"), reason="it moved", instead="mlstack pkg install own/jobs"),
)
INDEX = """\
apiVersion: mlstack.dev/v1
kind: Registry
name: own
retired:
- {names: [old-job, older-job], reason: nobody runs it}
- {names: [tf-cnn, moved], reason: it moved, instead: mlstack pkg install own/jobs}
packages: []
"""
APP = """\
apiVersion: mlstack.dev/v1
kind: App
name: demo
registries:
- {{name: own, address: "{address}", protocol: {protocol}}}
"""


def app_of(folder: Path, address: str, protocol: str = "directory", *, lock: Lock | None = None) -> AppDir:
    files = {"app.yaml": APP.format(address=address, protocol=protocol).encode()}
    write_tree(folder / "app", files | ({"mlstack.lock": write_lock(lock)} if lock is not None else {}))
    return AppDir(folder / "app")


@pytest.fixture
def app(tmp_path: Path) -> AppDir:
    registry_folder(tmp_path / "registry", index=INDEX)
    return app_of(tmp_path, "../registry")


@pytest.mark.parametrize("name", ["moved", "own/any/moved", "io.ksonnet.pkg.moved"])
def test_a_retired_name_answers_with_what_to_do_instead(app: AppDir, name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_usable(app, name)
    assert caught.value.describe() == (
        "error: `moved` is retired: it moved\nhint: mlstack pkg install own/jobs"
    )


def test_a_name_without_anything_in_its_place_says_so(app: AppDir) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_usable(app, "older-job")
    assert caught.value.hint == "registry `own` has nothing in its place"


def test_what_is_installed_comes_first(tmp_path: Path) -> None:
    registry_folder(tmp_path / "registry", index=INDEX)
    jobs = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("requires: [common]", "requires: []")}
    serving = str(jobs["tf-serving/prototype.yaml"])
    jobs["tf-serving/prototype.yaml"] = serving.replace(
        "name: tf-serving", "name: tf-serving\n        aliases: [moved]"
    )
    app = app_of(tmp_path, "../registry")
    write_tree(app.root, vendored(jobs, registry="own"))
    assert find_usable(app, "moved")[0].name == "tf-serving"


def test_other_names_are_not_found_as_ever(app: AppDir) -> None:
    with pytest.raises(NotFoundError, match="no installed package has a prototype `new-job`"):
        find_usable(app, "new-job")


def test_a_registry_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no installed package has a prototype `old-job`"):
        find_usable(app_of(tmp_path, "../gone"), "old-job")


def test_a_registry_behind_a_network_is_not_asked_but_remembered(tmp_path: Path) -> None:
    address = "https://registry.invalid/own.git"
    lock = Lock(registries=(LockedRegistry(name="own", address=address, retired=RETIRED),))
    with pytest.raises(NotFoundError, match="`old-job` is retired: nobody runs it"):
        find_usable(app_of(tmp_path, address, "git", lock=lock), "old-job")


# --- the registry that comes with mlstack ---

LAUNCH = "github.com/google/kubeflow/tree/master/kubeflow"


def test_the_shipped_index_is_fresh() -> None:
    folder = files.folder("registry")
    shipped = (folder / "registry.yaml").read_text(encoding="utf-8")
    assert shipped == build_index(folder).text, "stale: python -m tests.generate.registry_index rewrites it"


@pytest.mark.parametrize(
    "address",
    [
        *("bundled", LAUNCH, f"https://{LAUNCH}", f"https://GitHub.com/{LAUNCH[11:]}/"),
        "https://github.com/kubeflow/kubeflow/tree/master/kubeflow/",
    ],
)
def test_the_launch_post_leads_to_the_shipped_registry_offline(address: str, tmp_path: Path) -> None:
    index = opened(address, protocol=protocol_of(address), root=tmp_path).index
    assert {"core", "tf-job", "tf-serving"} <= index.packages.keys()


@pytest.mark.parametrize("name", ["core", "tf-job", "tf-serving"])
def test_the_packages_of_the_launch_can_be_fetched_with_what_they_require(name: str, tmp_path: Path) -> None:
    refs = [RegistryRef(name="mine", address=LAUNCH, protocol="git")]
    fetched, locked = fetch_all(refs, PackageRef(registry="mine", name=name), root=tmp_path)
    assert fetched[0].locked.name == name
    assert "common" in [package.locked.name for package in fetched]
    assert locked.address == LAUNCH


def test_retired_names_are_given_once_and_lead_to_what_has_them_now(tmp_path: Path) -> None:
    index = opened("bundled", protocol="directory", root=tmp_path).index
    names = [name for retired in index.retired for name in retired.names]
    assert {"mxnet-job", "katib", "spartakus"} <= set(names)
    assert len(names) == len(set(names))
    assert not set(names) & {*index.packages}
    # The packages of Kubeflow were called as their prototypes: such a name leads to the package of today.
    brought = {
        name: package.name
        for package in index.packages.values()
        for p in package.prototypes
        for name in p.names
    }
    steps = {name: retired.instead for retired in index.retired for name in retired.names if name in brought}
    assert not [name for name, step in steps.items() if f"pkg install kubeflow/{brought[name]}" not in step]


def test_what_to_do_instead_of_a_retired_name_names_what_is_there(tmp_path: Path) -> None:
    index = opened("bundled", protocol="directory", root=tmp_path).index
    text = " ".join(retired.instead for retired in index.retired)
    prototypes = {name for p in examples.prototypes() for name in (p.name, *p.aliases)}
    assert set(re.findall(r"mlstack generate (\S+)", text)) <= prototypes
    assert {f"kubeflow/{name}" for name in index.packages} >= set(re.findall(r"pkg install ([^\s,]+)", text))


def test_presets_are_found_by_name() -> None:
    assert {"minikube", "gke"} <= set(files.presets())
    assert files.preset("nothing") is None
    preset = files.preset("gke")
    assert preset is not None
    assert (preset / "environment.yaml").is_file()
