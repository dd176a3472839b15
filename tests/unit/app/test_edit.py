"""Every change of an app writes whole files and keeps what people wrote."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app import (
    ClusterIdentity,
    Component,
    Environment,
    LockedPackage,
    LockedRegistry,
    PackageRef,
    RegistryRef,
)
from mlstack.app.app_dir import AppDir
from mlstack.app.package import FetchedPackage, digest
from mlstack.app.params import ParamScope
from mlstack.errors import ConfigError, MlstackError, NotFoundError, ParamError, RegistryError, UsageError
from tests.support.builders import Tree, read_tree, write_tree
from tests.support.packages import COMMON, JOBS, as_files, installed_app

Build = Callable[[Tree], Path]
ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\n"


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
    return {
        name: after[name].decode() if name in after else None
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


APP = ParamScope()
CNN = ParamScope(component="cnn")
GKE = ParamScope(environment="gke")
GKE_CNN = ParamScope(environment="gke", component="cnn")


# Parameters


def test_setting_a_value_changes_its_line_alone(demo: AppDir) -> None:
    before = text(demo, "environments/gke/params.yaml")
    assert demo.set_param(GKE_CNN, ("num_gpus",), 2) == ("environments/gke/params.yaml", True)
    after = text(demo, "environments/gke/params.yaml")
    assert after == before.replace("num_gpus: 1", "num_gpus: 2")
    assert "# not on premises" in after


@pytest.mark.parametrize(
    ("where", "file"),
    [
        (APP, "app.yaml"),
        (CNN, "components/cnn.yaml"),
        (GKE, "environments/gke/params.yaml"),
        (GKE_CNN, "environments/gke/params.yaml"),
        (ParamScope(environment="minikube", component="cnn"), "environments/minikube/params.yaml"),
        (ParamScope(environment="minikube"), "environments/minikube/params.yaml"),
    ],
)
@pytest.mark.parametrize("path", [("num_workers",), ("labels", "team.example.org/x")])
def test_set_at_every_level_reaches_the_component_and_unset_gives_the_file_back(
    demo: AppDir, where: ParamScope, file: str, path: tuple[str, ...]
) -> None:
    before = read_tree(demo.root)
    value: Any = 7 if path == ("num_workers",) else "seven"
    assert demo.set_param(where, path, value) == (file, True)
    component = demo.component("cnn")
    assert isinstance(component, Component)
    resolved = demo.resolve(component, where.environment or "gke")
    found: Any = resolved.values
    for part in path:
        found = found[part]
    assert found == value
    assert demo.unset_param(where, path) == file
    assert {name: data for name, data in read_tree(demo.root).items() if name in before} == before


def test_a_module_gets_its_own_file(app: Build) -> None:
    component = "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: tf-cnn\n"
    made = AppDir(app({**installed_app(), "components/ml/cnn.yaml": component}))
    module = ParamScope(module="ml")
    assert made.set_param(module, ("num_workers",), 3) == ("components/ml/params.yaml", True)
    found = made.component("ml.cnn")
    assert isinstance(found, Component)
    assert made.resolve(found).values["num_workers"] == 3
    assert made.components()[1].full_name == "ml.cnn"


def test_setting_what_is_set_already_writes_nothing(demo: AppDir) -> None:
    assert changed(demo, lambda: demo.set_param(GKE_CNN, ("num_gpus",), 1)) == {}
    assert demo.set_param(GKE_CNN, ("num_gpus",), 1)[1] is False


def test_unsetting_what_is_not_set_says_so(demo: AppDir) -> None:
    assert demo.unset_param(CNN, ("num_gpus",)) is None


def test_the_spelling_of_the_file_is_kept(demo: AppDir) -> None:
    demo.set_param(CNN, ("numGpus",), 1)
    demo.set_param(CNN, ("num_gpus",), 2)
    assert "numGpus: 2" in text(demo, "components/cnn.yaml")
    assert "num_gpus" not in text(demo, "components/cnn.yaml")
    demo.set_param(APP, ("numGpus",), 1)
    demo.set_param(APP, ("num_gpus",), 2)
    assert "numGpus: 2" in text(demo, "app.yaml")


def test_a_number_in_a_path_is_a_place_in_a_list(demo: AppDir) -> None:
    demo.set_param(CNN, ("args",), ["a", "b"])
    demo.set_param(CNN, ("args", "1"), "c")
    component = demo.component("cnn")
    assert isinstance(component, Component)
    assert component.params["args"] == ["a", "c"]


@pytest.mark.parametrize(
    "value", ["--x", "", "yes", "1.10", "a\nb", "{{ x }}", None, -3, 2.5, True, [], {}, ["a"]]
)
def test_any_value_reads_back(demo: AppDir, value: Any) -> None:
    demo.set_param(CNN, ("image",), value)
    component = demo.component("cnn")
    assert isinstance(component, Component)
    assert component.params["image"] == value


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        (ParamScope(component="cn"), NotFoundError),
        (ParamScope(environment="gk", component="cnn"), NotFoundError),
        (ParamScope(environment="gke", component="cn"), NotFoundError),
        (ParamScope(environment="gk"), NotFoundError),
        (ParamScope(module="nothing"), NotFoundError),
    ],
)
def test_a_level_that_is_not_there_is_refused(
    demo: AppDir, where: ParamScope, kind: type[MlstackError]
) -> None:
    def act() -> None:
        with pytest.raises(kind):
            demo.set_param(where, ("num_gpus",), 1)

    assert changed(demo, act) == {}


@pytest.mark.parametrize("value", ["a\0b", {"k": ["\x1b"]}])
def test_control_characters_are_refused_before_anything_is_written(demo: AppDir, value: Any) -> None:
    def act() -> None:
        with pytest.raises(ParamError, match=r"holds the control character U\+00"):
            demo.set_param(CNN, ("labels",), value)

    assert changed(demo, act) == {}


def test_a_manifest_has_no_parameters(app: Build) -> None:
    made = AppDir(app({**installed_app(), "components/web.yaml": "a: 1\n"}))
    with pytest.raises(UsageError, match="`web` is a plain manifest") as caught:
        made.set_param(ParamScope(component="web"), ("a",), 1)
    assert "patches/web.yaml" in str(caught.value.hint)


def test_a_read_only_folder_changes_nothing(demo: AppDir, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def refuse(*_arguments: object, **_names: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    def act() -> None:
        with monkeypatch.context() as patch, pytest.raises(ConfigError, match="read-only"):
            patch.setattr(os, "open", refuse)
            demo.set_param(CNN, ("num_gpus",), 1)

    assert changed(demo, act) == {}


# Components


def test_a_new_component_holds_what_was_set_and_no_more(demo: AppDir) -> None:
    new = Component(
        name="web",
        module="ml.serving",
        prototype="kubeflow/jobs/tf-serving",
        params={"model_path": "gs://m"},
        file="",
    )
    assert changed(demo, lambda: demo.add_component(new)) == {
        "components/ml/serving/web.yaml": "apiVersion: mlstack.dev/v1\nkind: Component\n"
        "prototype: kubeflow/jobs/tf-serving\nparams:\n  model_path: gs://m\n"
    }
    assert demo.component("ml.serving.web").full_name == "ml.serving.web"


def test_a_component_is_not_replaced_unless_asked(demo: AppDir) -> None:
    new = Component(name="cnn", prototype="tf-serving", file="")
    with pytest.raises(UsageError, match="there is a component `cnn` already"):
        demo.add_component(new)
    demo.add_component(new, replace=True)
    assert "tf-serving" in text(demo, "components/cnn.yaml")


def test_replacing_a_component_of_another_suffix_removes_that_file(app: Build) -> None:
    made = AppDir(app({**installed_app(), "components/web.json": "{}"}))
    made.add_component(Component(name="web", prototype="tf-serving", file=""), replace=True)
    assert not (made.root / "components/web.json").exists()


@pytest.mark.parametrize("name", ["../x", "a.b", "", "-x"])
def test_a_component_name_must_fit_a_file(demo: AppDir, name: str) -> None:
    with pytest.raises(UsageError):
        demo.add_component(Component(name=name, prototype="tf-serving", file=""))


def test_removing_a_component_removes_all_that_speaks_of_it(app: Build) -> None:
    made = AppDir(
        app(
            {
                **installed_app(),
                "components/web.yaml": "a: 1\n",
                "environments/gke/environment.yaml": ENVIRONMENT
                + "targets:\n# first\n- cnn\n# second\n- web\n",
                "environments/gke/patches/cnn.yaml": "kind: A\n",
            }
        )
    )
    seen = changed(made, lambda: made.remove_component("cnn"))
    assert seen == {
        "components/cnn.yaml": None,
        "environments/gke/environment.yaml": ENVIRONMENT + "targets:\n# first\n# second\n- web\n",
        "environments/gke/params.yaml": "# Values of the GPU cluster.\napiVersion: mlstack.dev/v1\n"
        "kind: EnvironmentParams\nglobals:\n  cloud: gke  # not on premises\n",
        "environments/gke/patches/cnn.yaml": None,
    }
    assert [each.full_name for each in made.components()] == ["web"]


# Environments


def test_a_new_environment_can_be_read_back(demo: AppDir) -> None:
    new = Environment(
        name="us-west/staging",
        context="c",
        namespace="n",
        targets=("cnn",),
        protected=True,
        kubernetes_version="1.33",
    )
    params = (
        b"# ours\napiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents: {cnn: {num_gpus: 2}}\n"
    )
    file = demo.add_environment(new, seed={"params.yaml": params})
    read = demo.environment("us-west/staging")
    assert file == read.file == "environments/us-west/staging/environment.yaml"
    assert (read.context, read.namespace, read.targets, read.protected) == ("c", "n", ("cnn",), True)
    assert read.kubernetes_version == "1.33"
    component = demo.component("cnn")
    assert isinstance(component, Component)
    assert demo.resolve(component, "us-west/staging").values["num_gpus"] == 2
    assert text(demo, "environments/us-west/staging/params.yaml").startswith("# ours\n")


def test_values_set_in_a_new_environment_stand_on_lines_of_their_own(demo: AppDir) -> None:
    demo.add_environment(Environment(name="new"))
    demo.set_param(ParamScope(environment="new", component="cnn"), ("num_gpus",), 1)
    demo.set_param(ParamScope(environment="new", component="cnn"), ("num_workers",), 2)
    demo.set_param(ParamScope(environment="new"), ("cloud",), "gke")
    assert text(demo, "environments/new/params.yaml") == (
        "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents:\n  cnn:\n    num_gpus: 1\n"
        "    num_workers: 2\nglobals:\n  cloud: gke\n"
    )


@pytest.mark.parametrize("name", ["gke", "../x", ""])
def test_an_environment_name_must_be_free_and_fit(demo: AppDir, name: str) -> None:
    with pytest.raises(UsageError):
        demo.add_environment(Environment(name=name))


def test_editing_an_environment_changes_single_fields(demo: AppDir) -> None:
    assert demo.edit_environment("gke", {"namespace": "other", "context": None}) == (
        "environments/gke/environment.yaml",
        True,
    )
    assert text(demo, "environments/gke/environment.yaml") == ENVIRONMENT + "namespace: other\n"


def test_pinning_a_cluster_keeps_comments(app: Build) -> None:
    made = AppDir(
        app(
            {
                **installed_app(),
                "environments/gke/environment.yaml": "# ours\n" + ENVIRONMENT + "context: gke # ctx\n",
            }
        )
    )
    identity = ClusterIdentity(uid="u", ca="sha256:" + "0" * 64, server="https://example.org")
    made.pin_identity("gke", identity)
    assert text(made, "environments/gke/environment.yaml").startswith(
        "# ours\n" + ENVIRONMENT + "context: gke # ctx\ncluster:\n"
    )
    assert made.environment("gke").cluster == identity


class Passed(dict[str, bytes]):
    """Remembers what has passed its schema."""

    def put(self, key: str, data: bytes) -> None:
        self[key] = data


def test_environments_that_we_wrote_are_not_checked_again(
    app: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, passed = AppDir(app(installed_app())), Passed()
    made.store = passed
    made.add_environment(Environment(name="new", context="c", namespace="n"))
    made.pin_identity("new", ClusterIdentity(uid="u", ca="sha256:" + "0" * 64, server="https://example.org"))
    assert AppDir(made.root).environment("new").cluster is not None  # it fits its schema

    def check(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("mlstack.app.schema._refusals", check)
    assert AppDir(made.root, store=passed).environment("new").context == "c"


def test_renaming_an_environment_takes_files_heirs_and_the_choice_along(app: Build) -> None:
    made = AppDir(
        app(
            {
                **installed_app(),
                "environments/gke/patches/cnn.yaml": "kind: A\n",
                "environments/gke/nested/environment.yaml": ENVIRONMENT,
                "environments/heir/environment.yaml": ENVIRONMENT + "extends: gke # parent\n",
                ".mlstack/current-environment": "gke\n",
            }
        )
    )
    made.rename_environment("gke", "prod/main")
    assert made.environment_names == ("gke/nested", "heir", "minikube", "prod/main")
    assert made.environment("heir").namespace == "ml"
    assert text(made, "environments/heir/environment.yaml") == ENVIRONMENT + "extends: prod/main # parent\n"
    assert (made.root / "environments/prod/main/patches/cnn.yaml").is_file()
    assert made.current_environment() == "prod/main"


def test_removing_an_environment_leaves_nested_ones(app: Build) -> None:
    made = AppDir(
        app(
            {
                **installed_app(),
                "environments/gke/nested/environment.yaml": ENVIRONMENT,
                ".mlstack/current-environment": "gke\n",
            }
        )
    )
    made.remove_environment("gke")
    assert made.environment_names == ("gke/nested", "minikube")
    assert made.current_environment() is None


def test_an_environment_that_others_extend_stays(app: Build) -> None:
    made = AppDir(
        app({**installed_app(), "environments/heir/environment.yaml": ENVIRONMENT + "extends: gke\n"})
    )
    with pytest.raises(UsageError, match="`gke` is extended by `heir`"):
        made.remove_environment("gke")


def test_the_current_environment_is_chosen_and_taken_back(demo: AppDir) -> None:
    demo.set_current_environment("gke")
    assert demo.current_environment() == "gke"
    with pytest.raises(NotFoundError):
        demo.set_current_environment("gk")
    demo.set_current_environment(None)
    demo.set_current_environment(None)
    assert demo.current_environment() is None


# Registries and new apps


def test_a_registry_is_added_with_comments_kept(app: Build) -> None:
    head = (
        "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\nregistries:\n# first\n- {name: a, address: ./a}\n"
    )
    made = AppDir(app({"app.yaml": head + "# after\npackages: []\n"}))
    made.add_registry(RegistryRef(name="b", address="./b", protocol="directory"))
    assert text(made, "app.yaml") == (
        head + "- name: b\n  address: ./b\n  protocol: directory\n# after\npackages: []\n"
    )


def test_a_registry_name_is_taken_once(demo: AppDir) -> None:
    with pytest.raises(UsageError, match="there is a registry `kubeflow` already"):
        demo.add_registry(RegistryRef(name="kubeflow", address=".", protocol="directory"))


def test_a_new_app_can_be_used_at_once(tmp_path: Path) -> None:
    registries = [RegistryRef(name="kubeflow", address="bundled", protocol="directory")]
    made = AppDir.create(tmp_path / "new", "my-app", registries=registries)
    assert made.app.registries == tuple(registries)
    assert made.components() == made.environments() == made.vendor.packages() == ()
    assert ".mlstack" in (tmp_path / "new/.gitignore").read_text()
    assert AppDir.find(tmp_path / "new").app.name == "my-app"
    made.set_param(APP, ("x",), 1)
    made.add_registry(RegistryRef(name="b", address="./b", protocol="directory"))
    assert [registry.name for registry in made.app.registries] == ["kubeflow", "b"]
    assert text(made, "app.yaml").splitlines()[3:] == [
        "registries:",
        "- name: kubeflow",
        "  address: bundled",
        "  protocol: directory",
        "- name: b",
        "  address: ./b",
        "  protocol: directory",
        "params:",
        "  x: 1",
    ]


def test_an_existing_app_is_not_overwritten(demo: AppDir) -> None:
    def act() -> None:
        with pytest.raises(UsageError, match="there is an app at"):
            AppDir.create(demo.root, "other")

    assert changed(demo, act) == {}


def test_an_existing_gitignore_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n")
    AppDir.create(tmp_path, "x")
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


REGISTRY = LockedRegistry(name="kubeflow", address="bundled")
NEWER = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("0.1.0", "0.2.0")}


def fetched(tree: Tree, name: str, version: str = "0.1.0") -> FetchedPackage:
    files = as_files(tree)
    locked = LockedPackage(
        full_name=f"kubeflow/{name}", version=version, digest=digest(files), source="bundled"
    )
    return FetchedPackage(locked=locked, files=files)


def install(app: AppDir, tree: Tree = JOBS, version: str = "0.1.0", *, named: bool = False) -> None:
    requirement = PackageRef(registry="kubeflow", name="jobs", version=version if named else "")
    app.install(requirement, [fetched(tree, "jobs", version), fetched(COMMON, "common")], REGISTRY)


@pytest.fixture
def empty(app: Build) -> AppDir:
    head = "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n# what we need\npackages: []\n"
    return AppDir(app({"app.yaml": head}))


def versions(app: AppDir) -> list[str]:
    return [str(package.ref) for package in app.lock.packages]


def test_an_installed_package_can_be_used_and_is_locked(empty: AppDir) -> None:
    install(empty)
    assert empty.prototype("tf-cnn").version == "0.1.0"
    assert empty.app.packages == (PackageRef(registry="kubeflow", name="jobs"),)
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.1.0"]
    assert empty.lock.registries == (REGISTRY,)
    assert empty.lock.packages[1].digest == digest(as_files(JOBS))
    assert "# what we need" in (empty.root / "app.yaml").read_text()


def test_requirements_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    made = AppDir.create(tmp_path / "new", "demo")
    install(made)
    other = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("name: jobs", "name: more")}
    made.install(PackageRef(registry="kubeflow", name="more"), [fetched(other, "more")], REGISTRY)
    assert (made.root / "app.yaml").read_text().endswith("packages:\n- kubeflow/jobs\n- kubeflow/more\n")


def test_installing_again_changes_nothing(empty: AppDir) -> None:
    install(empty)
    before = read_tree(empty.root)
    install(empty)
    assert read_tree(empty.root) == before


def test_installing_again_restores_the_vendored_files(empty: AppDir) -> None:
    install(empty)
    before = read_tree(empty.root)
    folder = "vendor/kubeflow/jobs@0.1.0"
    write_tree(empty.root, {f"{folder}/package.yaml": "changed", f"{folder}/extra.txt": "x"})
    (empty.root / folder / "tf-cnn/files/launcher.py").unlink()
    install(empty)
    assert read_tree(empty.root) == before


def test_a_newer_version_takes_the_place_of_one_nobody_named(empty: AppDir) -> None:
    install(empty)
    install(empty, NEWER, "0.2.0")
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.2.0"]
    assert not (empty.root / "vendor/kubeflow/jobs@0.1.0").exists()
    assert empty.app.packages == (PackageRef(registry="kubeflow", name="jobs"),)


def test_named_versions_stand_side_by_side(empty: AppDir) -> None:
    install(empty, named=True)
    install(empty, NEWER, "0.2.0", named=True)
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.1.0", "kubeflow/jobs@0.2.0"]
    assert [str(ref) for ref in empty.app.packages] == ["kubeflow/jobs@0.1.0", "kubeflow/jobs@0.2.0"]
    empty.remove_package(PackageRef(registry="kubeflow", name="jobs", version="0.1.0"))
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.2.0"]


def test_other_content_of_a_locked_version_is_an_error_and_changes_nothing(empty: AppDir) -> None:
    install(empty)
    before = read_tree(empty.root)
    with pytest.raises(RegistryError, match="is not the one that mlstack"):
        install(empty, {**JOBS, "tf-cnn/files/launcher.py": "other"})
    assert read_tree(empty.root) == before


def test_removing_a_package_removes_what_only_it_required(empty: AppDir) -> None:
    start = (empty.root / "app.yaml").read_bytes()
    install(empty)
    gone = empty.remove_package(PackageRef(registry="kubeflow", name="jobs"))
    assert [str(package.ref) for package in gone] == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.1.0"]
    assert empty.vendor.packages() == ()
    assert not list((empty.root / "vendor").rglob("*.yaml"))
    assert (empty.root / "app.yaml").read_bytes() == start


def test_what_another_package_requires_stays(empty: AppDir) -> None:
    install(empty)
    other = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("name: jobs", "name: more")}
    empty.install(
        PackageRef(registry="kubeflow", name="more"),
        [fetched(other, "more"), fetched(COMMON, "common")],
        REGISTRY,
    )
    empty.remove_package(PackageRef(registry="kubeflow", name="jobs"))
    assert versions(empty) == ["kubeflow/common@0.1.0", "kubeflow/more@0.1.0"]


def test_a_package_that_is_not_installed_cannot_be_removed(empty: AppDir) -> None:
    with pytest.raises(NotFoundError, match="package `kubeflow/jobs` is not installed"):
        empty.remove_package(PackageRef(registry="kubeflow", name="jobs"))


def test_the_lock_is_the_same_whatever_the_order(empty: AppDir) -> None:
    install(empty)
    one = (empty.root / "mlstack.lock").read_bytes()
    empty.install(
        PackageRef(registry="kubeflow", name="jobs"),
        [fetched(COMMON, "common"), fetched(JOBS, "jobs")][::-1],
        REGISTRY,
    )
    assert (empty.root / "mlstack.lock").read_bytes() == one
