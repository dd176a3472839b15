"""Every change of an app writes whole files and keeps what people wrote."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app import Component, PackageRef, RegistryRef
from mlstack.app.app_dir import AppDir
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.app.package import FetchedPackage, digest
from mlstack.app.params import ParamScope
from mlstack.app.versions import Lock, LockedPackage, LockedRegistry
from mlstack.errors import ConfigError, MlstackError, UsageError
from tests.support.builders import Tree, read_tree, write_tree
from tests.support.packages import COMMON, JOBS, as_files, built, installed_app, of_kind, own
from tests.support.registry import Passed

Build = Callable[[Tree], Path]
ENVIRONMENT = of_kind("Environment")
IDENTITY = ClusterIdentity(uid="u", ca="sha256:" + "0" * 64, server="https://example.org")


@pytest.fixture
def demo(app: Build) -> AppDir:
    return AppDir(app(installed_app()))


def text(app: AppDir, file: str) -> str:
    return (app.root / file).read_text()


def changed(app: AppDir, act: Callable[[], object]) -> dict[str, str | None]:
    """Do something and give the files that are new, other, or gone."""
    before = read_tree(app.root)
    act()
    after = read_tree(app.root)
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return {name: after[name].decode() if name in after else None for name in names}


def refused(
    app: AppDir, act: Callable[[], object], kind: type[MlstackError], match: str | None = None
) -> None:
    """Do something that is refused and changes nothing."""

    def refuse() -> None:
        with pytest.raises(kind, match=match):
            act()

    assert changed(app, refuse) == {}


APP, CNN = ParamScope(), ParamScope(component="cnn")


# --- parameters ---


@pytest.mark.parametrize(("where", "file"), [(CNN, "components/cnn.yaml"), (APP, "app.yaml")])
def test_the_spelling_of_the_file_is_kept(demo: AppDir, where: ParamScope, file: str) -> None:
    demo.set_param(where, ("numGpus",), 1)
    demo.set_param(where, ("num_gpus",), 2)
    assert "numGpus: 2" in text(demo, file)
    assert "num_gpus" not in text(demo, file)


@pytest.mark.parametrize(
    "value", ["--x", "", "yes", "1.10", "a\nb", "{{ x }}", None, -3, 2.5, True, [], {}, ["a"]]
)
def test_any_value_reads_back(demo: AppDir, value: Any) -> None:
    demo.set_param(CNN, ("image",), value)
    assert own(demo).params["image"] == value


def test_a_read_only_folder_changes_nothing(demo: AppDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_names: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    def act() -> None:
        with monkeypatch.context() as patch, pytest.raises(ConfigError, match="read-only"):
            patch.setattr(os, "open", refuse)
            demo.set_param(CNN, ("num_gpus",), 1)

    assert changed(demo, act) == {}


# --- components ---


def test_replacing_a_component_of_another_suffix_removes_that_file(app: Build) -> None:
    app_dir = AppDir(app({**installed_app(), "components/web.json": "{}"}))
    app_dir.add_component(Component(name="web", prototype="tf-serving", file=""), replace=True)
    assert not (app_dir.root / "components/web.json").exists()


# --- environments ---


def test_pinning_a_cluster_keeps_comments(app: Build) -> None:
    head = "# ours\n" + ENVIRONMENT + "context: gke # ctx\n"
    app_dir = built(app, environments__gke__environment=head)
    app_dir.pin_identity("gke", IDENTITY)
    assert text(app_dir, "environments/gke/environment.yaml").startswith(head + "cluster:\n")
    assert app_dir.environment("gke").cluster == IDENTITY


def test_environments_that_we_wrote_are_not_checked_again(
    demo: AppDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.store = passed = Passed()
    demo.add_environment(Environment(name="new", context="c", namespace="n"))
    demo.pin_identity("new", IDENTITY)
    assert AppDir(demo.root).environment("new").cluster is not None  # it fits its schema

    def check(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("mlstack.app.schema._refusals", check)
    assert AppDir(demo.root, store=passed).environment("new").context == "c"


# --- registries and new apps ---


def test_a_registry_is_added_once_with_comments_kept(app: Build) -> None:
    head = of_kind("App", "name: demo\nregistries:\n# first\n- {name: a, address: ./a}\n")
    app_dir = AppDir(app({"app.yaml": head + "# after\npackages: []\n"}))
    other = RegistryRef(name="b", address="./b", protocol="directory")
    app_dir.add_registry(other)
    added = "- name: b\n  address: ./b\n  protocol: directory\n"
    assert text(app_dir, "app.yaml") == head + added + "# after\npackages: []\n"
    refused(app_dir, lambda: app_dir.add_registry(other), UsageError, "there is a registry `b` already")


# --- packages ---

REGISTRY = LockedRegistry(name="kubeflow", address="bundled")


def ref(name: str, version: str = "") -> PackageRef:
    return PackageRef(registry="kubeflow", name=name, version=version)


def fetched(tree: Tree, name: str, **requires: str) -> FetchedPackage:
    files = as_files(tree)
    needs = {f"kubeflow/{needed}": wanted for needed, wanted in requires.items()}
    locked = LockedPackage(
        full_name=f"kubeflow/{name}", version="0.1.0", digest=digest(files), source="bundled", requires=needs
    )
    return FetchedPackage(locked=locked, files=files)


def install(app: AppDir, *refs: PackageRef, environment: str = "*") -> None:
    packages = [fetched(JOBS, "jobs", common=""), fetched(COMMON, "common")]
    lock = Lock(registries=(REGISTRY,), packages=tuple(package.locked for package in packages))
    app.install(lock, packages, entered={environment: refs or (ref("jobs"),)})


@pytest.fixture
def empty(app: Build) -> AppDir:
    return AppDir(app({"app.yaml": of_kind("App", "name: demo\n# what we need\npackages: []\n")}))


def test_requirements_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    app_dir = AppDir.create(tmp_path / "new", "demo")
    install(app_dir, ref("jobs"), ref("more", "^1.2"), ref("more", "1.0.0"))
    assert text(app_dir, "app.yaml").endswith(
        'packages:\n- kubeflow/jobs\n- name: kubeflow/more\n  version: "^1.2"\n- kubeflow/more@1.0.0\n'
    )
    install(app_dir, ref("more", "~2.1"))  # one requirement without an exact version for each package
    assert app_dir.app.packages == (ref("jobs"), ref("more", "~2.1"), ref("more", "1.0.0"))


def test_installing_again_in_any_order_restores_the_vendored_files(empty: AppDir) -> None:
    install(empty)
    before, folder = read_tree(empty.root), "vendor/kubeflow/jobs@0.1.0"
    install(empty)
    assert read_tree(empty.root) == before
    write_tree(empty.root, {f"{folder}/package.yaml": "changed", f"{folder}/extra.txt": "x"})
    (empty.root / folder / "tf-cnn/files/launcher.py").unlink()
    install(empty)
    assert read_tree(empty.root) == before
