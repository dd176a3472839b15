"""Retired names answer with what to do instead, without a network, and never hide what is installed."""

from pathlib import Path

import pytest

from mlstack.app.app import Lock, LockedRegistry, Retired
from mlstack.app.app_dir import AppDir
from mlstack.app.app_files import write_lock
from mlstack.errors import NotFoundError
from mlstack.registries.registry import find_prototype
from tests.support.builders import write_tree
from tests.support.packages import JOBS, registry_folder, vendored

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
def made(tmp_path: Path) -> AppDir:
    registry_folder(tmp_path / "registry", index=INDEX)
    return app_of(tmp_path, "../registry")


@pytest.mark.parametrize("name", ["moved", "own/any/moved", "io.ksonnet.pkg.moved"])
def test_a_retired_name_answers_with_what_to_do_instead(made: AppDir, name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_prototype(made, name)
    assert caught.value.describe() == (
        "error: `moved` is retired: it moved\nhint: mlstack pkg install own/jobs"
    )


def test_a_name_without_anything_in_its_place_says_so(made: AppDir) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_prototype(made, "older-job")
    assert caught.value.hint == "registry `own` has nothing in its place"


def test_what_is_installed_comes_first(tmp_path: Path) -> None:
    registry_folder(tmp_path / "registry", index=INDEX)
    jobs = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("requires: [common]", "requires: []")}
    serving = str(jobs["tf-serving/prototype.yaml"])
    jobs["tf-serving/prototype.yaml"] = serving.replace(
        "name: tf-serving", "name: tf-serving\n        aliases: [moved]"
    )
    made = app_of(tmp_path, "../registry")
    write_tree(made.root, vendored(jobs, registry="own"))
    assert find_prototype(made, "moved").name == "tf-serving"


def test_other_names_are_not_found_as_ever(made: AppDir) -> None:
    with pytest.raises(NotFoundError, match="no installed package has a prototype `new-job`"):
        find_prototype(made, "new-job")


def test_a_registry_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no installed package has a prototype `old-job`"):
        find_prototype(app_of(tmp_path, "../gone"), "old-job")


def test_a_registry_behind_a_network_is_not_asked_but_remembered(tmp_path: Path) -> None:
    address = "https://registry.invalid/own.git"
    lock = Lock(registries=(LockedRegistry(name="own", address=address, revision="abc", retired=RETIRED),))
    with pytest.raises(NotFoundError, match="`old-job` is retired: nobody runs it"):
        find_prototype(app_of(tmp_path, address, "git", lock=lock), "old-job")
