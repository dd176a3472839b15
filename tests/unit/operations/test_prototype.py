"""Prototypes: listed, searched, described with every parameter, previewed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.draft import ComponentRequest
from mlstack.errors import NotFoundError, UsageError
from mlstack.operations import app, packages, prototypes
from tests.support.builders import read_tree
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import small_app


@pytest.fixture
def made(tmp_path: Path) -> AppDir:
    return small_app(tmp_path)


def test_list_names_prototype_and_package(made: AppDir) -> None:
    (row,) = prototypes.list_prototypes(made).prototypes
    assert (row.name, row.package, row.full_name, row.installed) == (
        "web",
        "ours/tools@1.2.0",
        "ours/tools/web",
        True,
    )


@pytest.mark.parametrize("name", ["web", "we", "old-web", "tools"])
def test_matching_finds_names_aliases_and_packages(made: AppDir, name: str) -> None:
    assert [found.name for found in prototypes.matching_prototypes(made, name).prototypes] == ["web"]


@pytest.mark.parametrize(
    ("name", "described", "others"),
    [
        ("tf-job", ["tf-job"], ["tf-cnn", "tf-job-simple"]),
        ("job", ["tf-job", "tf-cnn", "tf-job-simple"], []),
        ("kubeflow/tf-job/tf-cnn", ["tf-cnn"], []),
        ("tf-job-operator", ["kubeflow-core"], []),
    ],
    ids=["name-before-package", "end-before-middle", "full-name", "alias-when-nothing-else-fits"],
)
def test_matches_stand_in_the_order_of_their_fit(
    tmp_path: Path, name: str, described: list[str], others: list[str]
) -> None:
    app.init(tmp_path, "demo")
    made = AppDir(tmp_path)
    packages.install_package(made, "kubeflow/core")
    packages.install_package(made, "kubeflow/tf-job")
    found = prototypes.matching_prototypes(made, name)
    assert [each.name for each in found.prototypes] == described
    assert [each.name for each in found.others] == others


def test_nothing_that_matches_names_the_nearest(made: AppDir) -> None:
    with pytest.raises(NotFoundError) as caught:
        prototypes.matching_prototypes(made, "wbe")
    assert caught.value.near == "web"


def test_without_packages_the_next_step_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        prototypes.matching_prototypes(small_app(tmp_path, installed=False), "web")
    assert "mlstack pkg install" in str(caught.value.hint)


def test_search_looks_in_descriptions_and_in_packages_not_installed(tmp_path: Path) -> None:
    made = small_app(tmp_path / "one")
    assert [row.name for row in prototypes.search_prototypes(made, "one PAGE").prototypes] == ["web"]
    assert prototypes.search_prototypes(made, "nothing like it").prototypes == ()
    bare = small_app(tmp_path / "two", installed=False)
    (row,) = prototypes.search_prototypes(bare, "small things").prototypes
    assert (row.name, row.installed) == ("tools", False)


def test_description_says_all_of_a_parameter(made: AppDir) -> None:
    rows = {row.name: row for row in prototypes.describe_prototype(made, "web").parameters}
    replicas = rows["replicas"]
    assert (replicas.type, replicas.default, replicas.unit, replicas.limits, replicas.aliases) == (
        "integer",
        1,
        "pods",
        "0 to 9",
        ("num_replicas",),
    )
    assert rows["image"].required
    assert rows["token"].secret
    assert rows["size"].deprecated == "use `replicas`"
    assert (rows["args"].type, rows["tags"].type) == ("list", "map")
    assert rows["color"].limits == 'one of "red", "green"'


def test_preview_gives_the_objects_and_writes_nothing(made: AppDir) -> None:
    before = read_tree(made.root)
    state = prototypes.preview_prototype(
        made, ComponentRequest(prototype="web", texts={"image": "nginx", "color": "green"})
    )
    (found,) = state.objects
    assert (found.kind, found.name, found.namespace) == ("ConfigMap", "web", "default")
    assert found.data["data"]["color"] == "green"
    assert read_tree(made.root) == before


def test_preview_in_an_environment_takes_its_namespace(made: AppDir) -> None:
    app.add_environment(made, "gke", kubeconfig=KUBECONFIG, context="gke", use_preset=False)
    wanted = ComponentRequest(prototype="web", name="page", texts={"image": "nginx"})
    (found,) = prototypes.preview_prototype(made, wanted, environment="gke").objects
    assert (found.name, found.namespace) == ("page", "ml")


def test_preview_needs_what_is_required(made: AppDir) -> None:
    with pytest.raises(UsageError, match="needs `image`"):
        prototypes.preview_prototype(made, ComponentRequest(prototype="web"))


RETIRED = """\
retired:
- {names: [cgi, perl], reason: nobody writes it, instead: use `web`}
packages:
"""


@pytest.fixture
def retiring(made: AppDir) -> AppDir:
    """An app whose registry retired two names."""
    folder = made.root.parent / "registry"
    packages.index_registry(folder)
    file = folder / "registry.yaml"
    file.write_text(file.read_text().replace("packages:\n", RETIRED))
    return made


def test_retired_names_are_found_by_search_alone(retiring: AppDir) -> None:
    (row,) = prototypes.search_prototypes(retiring, "perl").prototypes
    assert (row.name, row.full_name, row.retired, row.installed) == ("perl", "ours/perl", True, False)
    assert row.summary == "retired: nobody writes it; use `web`"
    assert [row.name for row in prototypes.list_prototypes(retiring).prototypes] == ["web"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda app: prototypes.describe_prototype(app, "cgi"),
        lambda app: prototypes.matching_prototypes(app, "cgi"),
        lambda app: prototypes.preview_prototype(app, ComponentRequest(prototype="cgi")),
        lambda app: prototypes.generate(app, ComponentRequest(prototype="cgi", name="x")),
        lambda app: packages.install_package(app, "ours/cgi"),
        lambda app: packages.install_package(app, "ours/cgi@1.0"),
        lambda app: packages.describe_package(app, "ours/cgi"),
    ],
    ids=["describe", "list", "preview", "generate", "install", "install-version", "package"],
)
def test_a_retired_name_stops_with_what_to_do_instead(
    retiring: AppDir, ask: Callable[[AppDir], object]
) -> None:
    with pytest.raises(NotFoundError) as caught:
        ask(retiring)
    assert caught.value.describe() == "error: `cgi` is retired: nobody writes it\nhint: use `web`"
