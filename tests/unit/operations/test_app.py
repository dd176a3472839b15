"""A new app directory, its environments, and the JSON Schemas."""

from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.app.environment import ClusterIdentity
from mlstack.errors import ConfigError, UsageError
from mlstack.kube.kubeconfig import Kubeconfig
from mlstack.operations import app
from tests.support.builders import read_tree
from tests.support.kubectl import KUBECONFIG


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


def test_gitignore_hides_no_file_that_is_shared(tmp_path: Path) -> None:
    app.init(tmp_path, "x")
    patterns = [
        line for line in (tmp_path / ".gitignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert patterns == ["/.mlstack/"]


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        app.init(tmp_path / "file", "x")


@pytest.fixture
def app_dir(tmp_path: Path) -> AppDir:
    app.init(tmp_path, "demo")
    return AppDir(tmp_path)


def add(app_dir: AppDir, name: str = "dev", **options: object) -> app.EnvironmentAdded:
    named = {key: options.pop(key) for key in ("context", "namespace") if key in options}
    place = app.Place(**named)  # type: ignore[arg-type]
    return app.add_environment(app_dir, name, kubeconfig=KUBECONFIG, place=place, **options)  # type: ignore[arg-type]


def test_named_context_brings_its_namespace_unless_one_is_given(app_dir: AppDir) -> None:
    assert add(app_dir, "a", context="gke").namespace == "ml"
    assert add(app_dir, "b", context="gke", namespace="own").namespace == "own"


def test_preset_of_that_name_seeds_the_environment(app_dir: AppDir) -> None:
    assert add(app_dir, "gke", context="gke").preset == "gke"
    assert app.describe_environment(app_dir, "gke").globals["cloud"] == "gke"
    assert app.describe_environment(app_dir, "gke").environment.wait_for_load_balancer


def test_files_of_a_preset_come_with_their_comments_and_order(app_dir: AppDir) -> None:
    add(app_dir, "minikube", namespace="ml")
    read = {name: bundled_text(name) for name in ("environment.yaml", "params.yaml")}
    written = read_tree(app_dir.root / "environments/minikube")
    assert written == {
        "environment.yaml": f"{read['environment.yaml']}context: minikube\nnamespace: ml\n".encode(),
        "params.yaml": read["params.yaml"].encode(),
    }
    assert b"# One small machine" in written["params.yaml"]


def bundled_text(name: str) -> str:
    return (files.folder("environments") / "minikube" / name).read_text("utf-8")


def test_preset_counts_over_what_is_extended(app_dir: AppDir) -> None:
    add(app_dir, "base", context="gke")
    add(app_dir, "gke", extends="base")
    env = app_dir.environment("gke")
    assert (env.context, env.extends, env.wait_for_load_balancer) == ("gke", "base", True)


def test_only_the_very_name_of_a_preset_takes_it(app_dir: AppDir) -> None:
    assert add(app_dir, "us/gke", context="gke").preset is None


def test_preset_can_be_left_out(app_dir: AppDir) -> None:
    assert add(app_dir, "minikube", use_preset=False).preset is None
    assert app.describe_environment(app_dir, "minikube").globals == {}


def test_own_context_counts_over_the_inherited_one(app_dir: AppDir) -> None:
    add(app_dir, "base", context="gke")
    assert add(app_dir, "other", extends="base", context="minikube").context == "minikube"


def test_no_current_context_is_said_with_the_way_out(app_dir: AppDir) -> None:
    with pytest.raises(UsageError, match="no kubectl context is current") as caught:
        app.add_environment(app_dir, "dev", kubeconfig=Kubeconfig())
    assert "--context" in str(caught.value.hint)


def test_another_context_is_not_bound_to_the_old_cluster(app_dir: AppDir) -> None:
    add(app_dir)
    app_dir.pin_identity("dev", ClusterIdentity(uid="u", ca=None))
    result = app.change_environment(app_dir, "dev", {"context": "gke"}, kubeconfig=KUBECONFIG)
    assert result.cluster_forgotten
    assert app_dir.environment("dev").cluster is None


def test_cluster_can_be_forgotten(app_dir: AppDir) -> None:
    add(app_dir)
    app_dir.pin_identity("dev", ClusterIdentity(uid="u", ca=None))
    app.change_environment(app_dir, "dev", {"namespace": "x"})
    assert app_dir.environment("dev").cluster is not None
    app.change_environment(app_dir, "dev", {}, forget_cluster=True)
    assert app_dir.environment("dev").cluster is None


def test_allowed_namespaces_are_set_and_taken_back(app_dir: AppDir) -> None:
    add(app_dir, namespace="ml")
    app.change_environment(app_dir, "dev", {"allowedNamespaces": ("monitoring",), "clusterScoped": "refused"})
    text = (app_dir.root / "environments/dev/environment.yaml").read_text()
    assert text.endswith("clusterScoped: refused\nallowedNamespaces:\n- monitoring\n")
    env = app_dir.environment("dev")
    assert env.allowed_namespaces == ("ml", "monitoring")  # its own is always among them
    assert env.cluster_scoped == "refused"
    app.change_environment(app_dir, "dev", {"allowedNamespaces": (), "clusterScoped": "allowed"})
    assert app_dir.environment("dev").allowed_namespaces == ()
    assert app_dir.environment("dev").cluster_scoped == "allowed"


def test_allowed_namespaces_are_inherited(app_dir: AppDir) -> None:
    add(app_dir, "base", namespace="ml")
    app.change_environment(app_dir, "base", {"allowedNamespaces": ("monitoring",)})
    add(app_dir, "heir", extends="base", namespace="own")
    assert app_dir.environment("heir").allowed_namespaces == ("own", "monitoring")
    assert app.describe_environment(app_dir, "heir").environment.allowed_namespaces == ("own", "monitoring")
