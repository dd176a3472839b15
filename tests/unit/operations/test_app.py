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


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 64])
def test_name_must_fit_a_label(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        app.init(tmp_path / "new", name)
    assert not (tmp_path / "new").exists()


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        app.init(tmp_path / "file", "x")


@pytest.fixture
def made(tmp_path: Path) -> AppDir:
    app.init(tmp_path, "demo")
    return AppDir(tmp_path)


def add(made: AppDir, name: str = "dev", **options: object) -> app.EnvironmentAdded:
    named = {key: options.pop(key) for key in ("context", "namespace") if key in options}
    place = app.Place(**named)  # type: ignore[arg-type]
    return app.add_environment(made, name, kubeconfig=KUBECONFIG, place=place, **options)  # type: ignore[arg-type]


def test_current_context_and_its_namespace_are_taken(made: AppDir) -> None:
    result = add(made)
    assert (result.context, result.namespace, result.preset) == ("minikube", "default", None)
    assert (made.root / result.file).read_text() == (
        "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: minikube\nnamespace: default\n"
    )


def test_named_context_brings_its_namespace_unless_one_is_given(made: AppDir) -> None:
    assert add(made, "a", context="gke").namespace == "ml"
    assert add(made, "b", context="gke", namespace="own").namespace == "own"


def test_preset_of_that_name_seeds_the_environment(made: AppDir) -> None:
    assert add(made, "gke", context="gke").preset == "gke"
    assert app.describe_environment(made, "gke").globals["cloud"] == "gke"
    assert app.describe_environment(made, "gke").environment.wait_for_load_balancer


def test_files_of_a_preset_come_with_their_comments_and_order(made: AppDir) -> None:
    add(made, "minikube", namespace="ml")
    read = {name: bundled_text(name) for name in ("environment.yaml", "params.yaml")}
    written = read_tree(made.root / "environments/minikube")
    assert written == {
        "environment.yaml": f"{read['environment.yaml']}context: minikube\nnamespace: ml\n".encode(),
        "params.yaml": read["params.yaml"].encode(),
    }
    assert b"# One small machine" in written["params.yaml"]


def bundled_text(name: str) -> str:
    return (files.folder("environments") / "minikube" / name).read_text("utf-8")


def test_preset_counts_over_what_is_extended(made: AppDir) -> None:
    add(made, "base", context="gke")
    add(made, "gke", extends="base")
    found = made.environment("gke")
    assert (found.context, found.extends, found.wait_for_load_balancer) == ("gke", "base", True)


def test_only_the_very_name_of_a_preset_takes_it(made: AppDir) -> None:
    assert add(made, "us/gke", context="gke").preset is None


def test_preset_can_be_left_out(made: AppDir) -> None:
    assert add(made, "minikube", use_preset=False).preset is None
    assert app.describe_environment(made, "minikube").globals == {}


def test_environment_that_extends_inherits_context_and_namespace(made: AppDir) -> None:
    add(made, "base", context="gke")
    result = add(made, "us/staging", extends="base")
    assert (result.context, result.namespace, result.extends) == ("gke", "ml", "base")
    assert "context" not in (made.root / result.file).read_text()


def test_own_context_counts_over_the_inherited_one(made: AppDir) -> None:
    add(made, "base", context="gke")
    assert add(made, "other", extends="base", context="minikube").context == "minikube"


def test_no_current_context_is_said_with_the_way_out(made: AppDir) -> None:
    with pytest.raises(UsageError, match="no kubectl context is current") as caught:
        app.add_environment(made, "dev", kubeconfig=Kubeconfig())
    assert "--context" in str(caught.value.hint)


def test_change_touches_what_is_named_alone(made: AppDir) -> None:
    file = made.root / add(made).file
    file.write_text(file.read_text() + "# ours\n")
    made.forget()
    app.change_environment(made, "dev", {"namespace": "kubeflow", "protected": True})
    lines = file.read_text().splitlines()
    assert lines[:3] == ["apiVersion: mlstack.dev/v1", "kind: Environment", "context: minikube"]
    assert sorted(lines[3:]) == ["# ours", "namespace: kubeflow", "protected: true"]
    assert made.environment("dev").protected


def test_another_context_is_not_bound_to_the_old_cluster(made: AppDir) -> None:
    add(made)
    made.pin_identity("dev", ClusterIdentity(uid="u", ca=None))
    result = app.change_environment(made, "dev", {"context": "gke"}, kubeconfig=KUBECONFIG)
    assert result.cluster_forgotten
    assert made.environment("dev").cluster is None


def test_cluster_can_be_forgotten(made: AppDir) -> None:
    add(made)
    made.pin_identity("dev", ClusterIdentity(uid="u", ca=None))
    app.change_environment(made, "dev", {"namespace": "x"})
    assert made.environment("dev").cluster is not None
    app.change_environment(made, "dev", {}, forget_cluster=True)
    assert made.environment("dev").cluster is None


def test_allowed_namespaces_are_set_and_taken_back(made: AppDir) -> None:
    add(made, namespace="ml")
    app.change_environment(made, "dev", {"allowedNamespaces": ("monitoring",), "clusterScoped": "refused"})
    text = (made.root / "environments/dev/environment.yaml").read_text()
    assert text.endswith("clusterScoped: refused\nallowedNamespaces:\n- monitoring\n")
    found = made.environment("dev")
    assert found.allowed_namespaces == ("ml", "monitoring")  # its own is always among them
    assert found.cluster_scoped == "refused"
    app.change_environment(made, "dev", {"allowedNamespaces": (), "clusterScoped": "allowed"})
    assert made.environment("dev").allowed_namespaces == ()
    assert made.environment("dev").cluster_scoped == "allowed"


def test_allowed_namespaces_are_inherited(made: AppDir) -> None:
    add(made, "base", namespace="ml")
    app.change_environment(made, "base", {"allowedNamespaces": ("monitoring",)})
    add(made, "heir", extends="base", namespace="own")
    assert made.environment("heir").allowed_namespaces == ("own", "monitoring")
    assert app.describe_environment(made, "heir").environment.allowed_namespaces == ("own", "monitoring")
