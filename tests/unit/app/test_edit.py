"""Every change of an app writes whole files and keeps what people wrote."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.app import components
from mlstack.app.app import Component, PackageRef, RegistryRef
from mlstack.app.app_dir import AppDir
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.app.lock import Lock, LockedPackage, LockedRegistry
from mlstack.app.package import FetchedPackage, digest
from mlstack.app.params import ParamScope
from mlstack.errors import ConfigError, MlstackError, NotFoundError, ParamError, UsageError
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
GKE, GKE_CNN = (
    ParamScope(environment="gke"),
    ParamScope(environment="gke", component="cnn"),
)


# --- parameters ---


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
    resolved: Any = demo.resolve(own(demo), where.environment or "gke").values
    for part in path:
        resolved = resolved[part]
    assert resolved == value
    assert demo.unset_param(where, path) == file
    assert {name: data for name, data in read_tree(demo.root).items() if name in before} == before


def test_a_module_gets_its_own_file(app: Build) -> None:
    made = built(app, components__ml__cnn=of_kind("Component", "prototype: tf-cnn\n"))
    module = ParamScope(module="ml")
    assert made.set_param(module, ("num_workers",), 3) == ("components/ml/params.yaml", True)
    assert made.resolve(own(made, "ml.cnn")).values["num_workers"] == 3
    assert made.components()[1].full_name == "ml.cnn"


def test_what_is_set_or_unset_already_writes_nothing(demo: AppDir) -> None:
    assert changed(demo, lambda: demo.set_param(GKE_CNN, ("num_gpus",), 1)) == {}
    assert demo.set_param(GKE_CNN, ("num_gpus",), 1)[1] is False
    assert demo.unset_param(CNN, ("num_gpus",)) is None


@pytest.mark.parametrize(("where", "file"), [(CNN, "components/cnn.yaml"), (APP, "app.yaml")])
def test_the_spelling_of_the_file_is_kept(demo: AppDir, where: ParamScope, file: str) -> None:
    demo.set_param(where, ("numGpus",), 1)
    demo.set_param(where, ("num_gpus",), 2)
    assert "numGpus: 2" in text(demo, file)
    assert "num_gpus" not in text(demo, file)


def test_a_number_in_a_path_is_a_place_in_a_list(demo: AppDir) -> None:
    demo.set_param(CNN, ("args",), ["a", "b"])
    demo.set_param(CNN, ("args", "1"), "c")
    assert own(demo).params["args"] == ["a", "c"]


@pytest.mark.parametrize(
    "value", ["--x", "", "yes", "1.10", "a\nb", "{{ x }}", None, -3, 2.5, True, [], {}, ["a"]]
)
def test_any_value_reads_back(demo: AppDir, value: Any) -> None:
    demo.set_param(CNN, ("image",), value)
    assert own(demo).params["image"] == value


@pytest.mark.parametrize(
    "where",
    [
        ParamScope(component="cn"),
        ParamScope(environment="gk", component="cnn"),
        ParamScope(environment="gke", component="cn"),
        ParamScope(environment="gk"),
        ParamScope(module="nothing"),
    ],
)
def test_a_level_that_is_not_there_is_refused(demo: AppDir, where: ParamScope) -> None:
    refused(demo, lambda: demo.set_param(where, ("num_gpus",), 1), NotFoundError)


@pytest.mark.parametrize("value", ["a\0b", {"k": ["\x1b"]}])
def test_control_characters_are_refused_before_anything_is_written(demo: AppDir, value: Any) -> None:
    message = r"holds the control character U\+00"
    refused(demo, lambda: demo.set_param(CNN, ("labels",), value), ParamError, message)


def test_a_manifest_has_no_parameters(app: Build) -> None:
    made = built(app, components__web="a: 1\n")
    with pytest.raises(UsageError, match="`web` is a plain manifest") as caught:
        made.set_param(ParamScope(component="web"), ("a",), 1)
    assert "patches/web.yaml" in str(caught.value.hint)


def test_a_read_only_folder_changes_nothing(demo: AppDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_names: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    def act() -> None:
        with monkeypatch.context() as patch, pytest.raises(ConfigError, match="read-only"):
            patch.setattr(os, "open", refuse)
            demo.set_param(CNN, ("num_gpus",), 1)

    assert changed(demo, act) == {}


# --- components ---


def test_a_new_component_holds_what_was_set_and_no_more(demo: AppDir) -> None:
    params = {"model_path": "gs://m"}
    new = Component(
        name="web", module="ml.serving", prototype="kubeflow/jobs/tf-serving", params=params, file=""
    )
    written = of_kind("Component", "prototype: kubeflow/jobs/tf-serving\nparams:\n  model_path: gs://m\n")
    assert changed(demo, lambda: demo.add_component(new)) == {"components/ml/serving/web.yaml": written}
    assert demo.component("ml.serving.web").full_name == "ml.serving.web"


def test_a_component_is_not_replaced_unless_asked(demo: AppDir) -> None:
    new = Component(name="cnn", prototype="tf-serving", file="")
    refused(demo, lambda: demo.add_component(new), UsageError, "there is a component `cnn` already")
    demo.add_component(new, replace=True)
    assert "tf-serving" in text(demo, "components/cnn.yaml")


def test_replacing_a_component_of_another_suffix_removes_that_file(app: Build) -> None:
    made = AppDir(app({**installed_app(), "components/web.json": "{}"}))
    made.add_component(Component(name="web", prototype="tf-serving", file=""), replace=True)
    assert not (made.root / "components/web.json").exists()


@pytest.mark.parametrize("name", ["../x", "a.b", "", "-x"])
def test_a_component_name_must_fit_a_file(demo: AppDir, name: str) -> None:
    new = Component(name=name, prototype="tf-serving", file="")
    refused(demo, lambda: demo.add_component(new), UsageError)


def test_removing_a_component_removes_all_that_speaks_of_it(app: Build) -> None:
    made = built(
        app,
        components__web="a: 1\n",
        environments__gke__environment=ENVIRONMENT + "targets:\n# first\n- cnn\n# second\n- web\n",
        environments__gke__patches__cnn="kind: A\n",
    )
    assert changed(made, lambda: components.remove(made, ["cnn"])) == {
        "components/cnn.yaml": None,
        "environments/gke/environment.yaml": ENVIRONMENT + "targets:\n# first\n# second\n- web\n",
        "environments/gke/params.yaml": "# Values of the GPU cluster.\n"
        + of_kind("EnvironmentParams", "globals:\n  cloud: gke  # not on premises\n"),
        "environments/gke/patches/cnn.yaml": None,
    }
    assert [component.full_name for component in made.components()] == ["web"]


# --- environments ---


def test_a_new_environment_can_be_read_back(demo: AppDir) -> None:
    facts: dict[str, Any] = {"context": "c", "namespace": "n", "targets": ("cnn",), "protected": True}
    new = Environment(name="us-west/staging", kubernetes_version="1.33", **facts)
    params = "# ours\n" + of_kind("EnvironmentParams", "components: {cnn: {num_gpus: 2}}\n")
    file = demo.add_environment(new, seed={"params.yaml": params.encode()})
    read = demo.environment("us-west/staging")
    assert file == read.file == "environments/us-west/staging/environment.yaml"
    assert {name: getattr(read, name) for name in facts} == facts
    assert read.kubernetes_version == "1.33"
    assert demo.resolve(own(demo), "us-west/staging").values["num_gpus"] == 2
    assert text(demo, "environments/us-west/staging/params.yaml").startswith("# ours\n")


def test_values_set_in_a_new_environment_stand_on_lines_of_their_own(demo: AppDir) -> None:
    demo.add_environment(Environment(name="new"))
    demo.set_param(ParamScope(environment="new", component="cnn"), ("num_gpus",), 1)
    demo.set_param(ParamScope(environment="new", component="cnn"), ("num_workers",), 2)
    demo.set_param(ParamScope(environment="new"), ("cloud",), "gke")
    assert text(demo, "environments/new/params.yaml") == of_kind(
        "EnvironmentParams",
        "components:\n  cnn:\n    num_gpus: 1\n    num_workers: 2\nglobals:\n  cloud: gke\n",
    )


@pytest.mark.parametrize("name", ["gke", "../x", ""])
def test_an_environment_name_must_be_free_and_fit(demo: AppDir, name: str) -> None:
    refused(demo, lambda: demo.add_environment(Environment(name=name)), UsageError)


def test_editing_an_environment_changes_single_fields(demo: AppDir) -> None:
    file = "environments/gke/environment.yaml"
    assert demo.edit(file, "Environment", {"namespace": "other", "context": None}) == (file, True)
    assert text(demo, file) == ENVIRONMENT + "namespace: other\n"


def test_pinning_a_cluster_keeps_comments(app: Build) -> None:
    head = "# ours\n" + ENVIRONMENT + "context: gke # ctx\n"
    made = built(app, environments__gke__environment=head)
    made.pin_identity("gke", IDENTITY)
    assert text(made, "environments/gke/environment.yaml").startswith(head + "cluster:\n")
    assert made.environment("gke").cluster == IDENTITY


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


def nested(app: Build, **changes: str) -> AppDir:
    made = built(app, environments__gke__nested__environment=ENVIRONMENT, **changes)
    write_tree(made.root, {".mlstack/current-environment": "gke\n"})
    return made


def test_renaming_an_environment_takes_files_heirs_and_the_choice_along(app: Build) -> None:
    made = nested(
        app,
        environments__gke__patches__cnn="kind: A\n",
        environments__heir__environment=ENVIRONMENT + "extends: gke # parent\n",
    )
    made.rename_environment("gke", "prod/main")
    assert made.environment_names == ("gke/nested", "heir", "minikube", "prod/main")
    assert made.environment("heir").namespace == "ml"
    assert text(made, "environments/heir/environment.yaml") == ENVIRONMENT + "extends: prod/main # parent\n"
    assert (made.root / "environments/prod/main/patches/cnn.yaml").is_file()
    assert made.current_environment() == "prod/main"


def test_removing_an_environment_leaves_nested_ones(app: Build) -> None:
    made = nested(app)
    made.remove_environment("gke")
    assert made.environment_names == ("gke/nested", "minikube")
    assert made.current_environment() is None


def test_an_environment_that_others_extend_stays(app: Build) -> None:
    made = built(app, environments__heir__environment=ENVIRONMENT + "extends: gke\n")
    refused(made, lambda: made.remove_environment("gke"), UsageError, "`gke` is extended by `heir`")


def test_the_current_environment_is_chosen_and_taken_back(demo: AppDir) -> None:
    assert demo.current_environment() is None
    demo.set_current_environment("gke")
    assert demo.current_environment() == "gke"
    with pytest.raises(NotFoundError):
        demo.set_current_environment("gk")
    demo.set_current_environment(None)
    demo.set_current_environment(None)
    assert demo.current_environment() is None


# --- registries and new apps ---


def test_a_registry_is_added_once_with_comments_kept(app: Build) -> None:
    head = of_kind("App", "name: demo\nregistries:\n# first\n- {name: a, address: ./a}\n")
    made = AppDir(app({"app.yaml": head + "# after\npackages: []\n"}))
    other = RegistryRef(name="b", address="./b", protocol="directory")
    made.add_registry(other)
    added = "- name: b\n  address: ./b\n  protocol: directory\n"
    assert text(made, "app.yaml") == head + added + "# after\npackages: []\n"
    refused(made, lambda: made.add_registry(other), UsageError, "there is a registry `b` already")


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
    assert text(made, "app.yaml").partition("registries:\n")[2] == (
        "- name: kubeflow\n  address: bundled\n  protocol: directory\n"
        "- name: b\n  address: ./b\n  protocol: directory\nparams:\n  x: 1\n"
    )


def test_an_existing_app_is_not_overwritten_nor_a_gitignore(demo: AppDir, tmp_path: Path) -> None:
    refused(demo, lambda: AppDir.create(demo.root, "other"), UsageError, "there is an app at")
    write_tree(tmp_path / "new", {".gitignore": "mine\n"})
    AppDir.create(tmp_path / "new", "x")
    assert (tmp_path / "new/.gitignore").read_text().startswith("mine\n")


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


def test_an_installed_package_can_be_used_and_is_locked(empty: AppDir) -> None:
    install(empty)
    assert empty.prototype("tf-cnn").version == "0.1.0"
    assert empty.app.packages == (ref("jobs"),)
    assert [str(package.ref) for package in empty.lock.packages] == [
        "kubeflow/common@0.1.0",
        "kubeflow/jobs@0.1.0",
    ]
    assert empty.lock.registries == (REGISTRY,)
    assert empty.lock.packages[1].digest == digest(as_files(JOBS))
    assert "# what we need" in text(empty, "app.yaml")


def test_requirements_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    made = AppDir.create(tmp_path / "new", "demo")
    install(made, ref("jobs"), ref("more", "^1.2"), ref("more", "1.0.0"))
    assert text(made, "app.yaml").endswith(
        'packages:\n- kubeflow/jobs\n- name: kubeflow/more\n  version: "^1.2"\n- kubeflow/more@1.0.0\n'
    )
    install(made, ref("more", "~2.1"))  # one requirement without an exact version for each package
    assert made.app.packages == (ref("jobs"), ref("more", "~2.1"), ref("more", "1.0.0"))


def test_installing_again_in_any_order_restores_the_vendored_files(empty: AppDir) -> None:
    install(empty)
    before, folder = read_tree(empty.root), "vendor/kubeflow/jobs@0.1.0"
    install(empty)
    assert read_tree(empty.root) == before
    write_tree(empty.root, {f"{folder}/package.yaml": "changed", f"{folder}/extra.txt": "x"})
    (empty.root / folder / "tf-cnn/files/launcher.py").unlink()
    install(empty)
    assert read_tree(empty.root) == before


def test_what_is_locked_no_more_leaves_the_app_with_its_requirement(empty: AppDir) -> None:
    start = text(empty, "app.yaml")
    install(empty)
    gone = empty.install(Lock(), removed={"*": [ref("jobs")]})
    assert [str(package.ref) for package in gone] == ["kubeflow/common@0.1.0", "kubeflow/jobs@0.1.0"]
    assert empty.vendor.packages() == ()
    assert not list((empty.root / "vendor").rglob("*.yaml"))
    assert text(empty, "app.yaml") == start
