"""Names that can become folders and labels, package references, and the order of versions."""

from collections.abc import Callable

import pytest

from mlstack import names
from mlstack.app.app import parse_package_ref
from mlstack.errors import UsageError


@pytest.mark.parametrize("name", ["cnn", "kubeflow-core", "a_b", "A1", "x" * 63])
def test_component_names(name: str) -> None:
    assert names.check_component_name(name) == name


@pytest.mark.parametrize("name", ["", "a.b", "../x", "a/b", "-a", "a-", "x" * 64, "a b", ".", "é", "a\n"])
def test_names_that_cannot_name_a_component(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a component name"):
        names.check_component_name(name)


@pytest.mark.parametrize("name", ["gke", "us-west/staging", "v1.2"])
def test_environment_names_may_be_nested(name: str) -> None:
    assert names.check_environment_name(name) == name


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "..", "a/../b", "a b"])
def test_names_that_cannot_name_an_environment(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be an environment name"):
        names.check_environment_name(name)


@pytest.mark.parametrize(
    "check",
    [names.check_app_name, names.check_registry_name, names.check_package_name, names.check_module_name],
)
def test_no_name_leaves_its_folder(check: Callable[[str], str]) -> None:
    for hostile in ("..", "../x", "a/b", "", ".git"):
        with pytest.raises(UsageError):
            check(hostile)


def test_package_reference_with_and_without_version() -> None:
    ref = parse_package_ref("kubeflow/core@0.1.0")
    assert (ref.registry, ref.name, ref.version, str(ref)) == (
        "kubeflow",
        "core",
        "0.1.0",
        "kubeflow/core@0.1.0",
    )
    assert str(parse_package_ref("kubeflow/tf_job.x")) == "kubeflow/tf_job.x"


@pytest.mark.parametrize(
    "text", ["core", "a/b/c", "kubeflow/", "/core", "a/b@", "a/b@../..", "a/..@1", "a/b@-1"]
)
def test_other_texts_are_no_package(text: str) -> None:
    with pytest.raises(UsageError, match="is not a package"):
        parse_package_ref(text)


def test_versions_sort_semantically() -> None:
    ordered = [
        "main",
        "0.2.0-rc.1",
        "0.2.0",
        "0.10.0",
        "v1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-beta",
        "v1.0.0",
    ]
    assert sorted(reversed(ordered), key=names.version_key) == ordered
