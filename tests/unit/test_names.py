"""Names that can become folders and labels, package references, versions, and what was meant."""

from collections.abc import Callable

import pytest

from mlstack import names
from mlstack.app.app import parse_package_ref
from mlstack.errors import NotFoundError, UsageError
from mlstack.names import Table, nearest

COMPONENT, ENVIRONMENT = names.check_component_name, names.check_environment_name
CHECKS = (names.check_app_name, names.check_registry_name, names.check_package_name, names.check_module_name)


@pytest.mark.parametrize(
    ("check", "fitting"),
    [
        (COMPONENT, ["cnn", "kubeflow-core", "a_b", "A1", "x" * 63]),
        (ENVIRONMENT, ["gke", "us-west/staging", "v1.2"]),
    ],
)
def test_names_that_fit_come_back(check: Callable[[str], str], fitting: list[str]) -> None:
    assert [check(name) for name in fitting] == fitting


@pytest.mark.parametrize(
    ("check", "name"),
    [
        *(
            (COMPONENT, name)
            for name in ("", "a.b", "../x", "a/b", "-a", "a-", "x" * 64, "a b", ".", "é", "a\n")
        ),
        *((ENVIRONMENT, name) for name in ("", "/a", "a/", "a//b", "..", "a/../b", "a b")),
        *((check, name) for check in CHECKS for name in ("..", "../x", "a/b", "", ".git")),
    ],
)
def test_no_name_leaves_its_folder_or_breaks_a_label(check: Callable[[str], str], name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a"):
        check(name)


def test_package_reference_with_and_without_version() -> None:
    ref = parse_package_ref("kubeflow/core@0.1.0")
    assert (ref.registry, ref.name, ref.version) == ("kubeflow", "core", "0.1.0")
    assert str(ref) == "kubeflow/core@0.1.0"
    assert str(parse_package_ref("kubeflow/tf_job.x")) == "kubeflow/tf_job.x"


NO_PACKAGES = (
    "core",
    "a/b/c",
    "kubeflow/",
    "/core",
    "a/b@",
    "a/b@../..",
    "a/b@../x",
    "a/..@1",
    "a/b@-1",
    "a/b@-x",
)


@pytest.mark.parametrize("text", [*NO_PACKAGES, "a/b@^", "a/b@1.2 || nonsense"])
def test_other_texts_are_no_package(text: str) -> None:
    with pytest.raises(UsageError, match="is not a package"):
        parse_package_ref(text)


def test_versions_sort_semantically() -> None:
    older = ["main", "0.2.0-rc.1", "0.2.0", "0.10.0"]
    ordered = [*older, "v1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "v1.0.0"]
    assert sorted(reversed(ordered), key=names.version_key) == ordered


KNOWN = ["num_gpus", "num_workers", "batch_size", "image"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("num_gpu", "num_gpus"),
        ("num-gpus", "num_gpus"),
        ("NumWorkers", "num_workers"),
        ("batchsize", "batch_size"),
        ("imgae", "image"),
        ("gpus", "num_gpus"),
        ("replicas", None),
        ("", None),
        ("x", None),
    ],
)
def test_nearest_finds_what_was_meant_if_anything(typed: str, meant: str | None) -> None:
    assert nearest(typed, KNOWN) == meant
    assert nearest(typed, []) is None


def test_order_of_known_names_does_not_matter() -> None:
    assert nearest("ab", ["abd", "abc"]) == nearest("ab", ["abc", "abd"])


def table() -> Table[str]:
    rows: Table[str] = Table("format")
    rows.register("yaml", "yml")("Y")
    rows.register("json")("J")
    return rows


def test_a_thing_is_found_under_each_of_its_names_and_listed_by_name() -> None:
    assert [table().find(name) for name in ("yaml", "yml", "json")] == ["Y", "Y", "J"]
    assert table().names() == ("json", "yaml", "yml")
    assert next(iter(table())) == ("json", "J")
    assert len(table()) == 3
    assert "json" in table()


def test_an_unknown_name_tells_the_nearest_and_one_taken_twice_is_our_own_mistake() -> None:
    with pytest.raises(NotFoundError, match="no format `yamll`; known: `json`") as caught:
        table().find("yamll")
    assert caught.value.near == "yaml"
    assert table().get("yamll") is None
    with pytest.raises(ValueError, match="two entries claim the format `json`"):
        table().register("json")("K")
