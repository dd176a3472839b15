"""Prototypes: listed, searched, described with every parameter, previewed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.errors import NotFoundError, UsageError
from mlstack.files.appdir import AppDir
from mlstack.files.drafts import Wanted
from mlstack.operations import app, component, env, package, prototype, registry
from tests.support.builders import read_tree
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import small_app


@pytest.fixture
def made(tmp_path: Path) -> AppDir:
    return small_app(tmp_path)


def test_list_names_prototype_and_package(made: AppDir) -> None:
    (row,) = prototype.list_all(made).prototypes
    assert (row.name, row.package, row.full_name, row.installed) == (
        "web",
        "ours/tools@1.2.0",
        "ours/tools/web",
        True,
    )


@pytest.mark.parametrize("name", ["web", "we", "old-web", "tools"])
def test_matching_finds_names_aliases_and_packages(made: AppDir, name: str) -> None:
    assert [found.name for found in prototype.matching(made, name).prototypes] == ["web"]


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
    package.install(made, "kubeflow/core")
    package.install(made, "kubeflow/tf-job")
    found = prototype.matching(made, name)
    assert [each.name for each in found.prototypes] == described
    assert [each.name for each in found.others] == others


def test_nothing_that_matches_names_the_nearest(made: AppDir) -> None:
    with pytest.raises(NotFoundError) as caught:
        prototype.matching(made, "wbe")
    assert caught.value.near == "web"


def test_without_packages_the_next_step_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        prototype.matching(small_app(tmp_path, installed=False), "web")
    assert "mlstack pkg install" in str(caught.value.hint)


def test_search_looks_in_descriptions_and_in_packages_not_installed(tmp_path: Path) -> None:
    made = small_app(tmp_path / "one")
    assert [row.name for row in prototype.search(made, "one PAGE").prototypes] == ["web"]
    assert prototype.search(made, "nothing like it").prototypes == ()
    bare = small_app(tmp_path / "two", installed=False)
    (row,) = prototype.search(bare, "small things").prototypes
    assert (row.name, row.installed) == ("tools", False)


def test_description_says_all_of_a_parameter(made: AppDir) -> None:
    rows = {row.name: row for row in prototype.describe(made, "web").parameters}
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
    state = prototype.preview(made, Wanted(prototype="web", texts={"image": "nginx", "color": "green"}))
    (found,) = state.objects
    assert (found.kind, found.name, found.namespace) == ("ConfigMap", "web", "default")
    assert found.data["data"]["color"] == "green"
    assert read_tree(made.root) == before


def test_preview_in_an_environment_takes_its_namespace(made: AppDir) -> None:
    env.add(made, "gke", kubeconfig=KUBECONFIG, context="gke", use_preset=False)
    wanted = Wanted(prototype="web", name="page", texts={"image": "nginx"})
    (found,) = prototype.preview(made, wanted, environment="gke").objects
    assert (found.name, found.namespace) == ("page", "ml")


def test_preview_needs_what_is_required(made: AppDir) -> None:
    with pytest.raises(UsageError, match="needs `image`"):
        prototype.preview(made, Wanted(prototype="web"))


RETIRED = """\
retired:
- {names: [cgi, perl], reason: nobody writes it, instead: use `web`}
packages:
"""


@pytest.fixture
def retiring(made: AppDir) -> AppDir:
    """An app whose registry retired two names."""
    folder = made.root.parent / "registry"
    registry.index(folder)
    file = folder / "registry.yaml"
    file.write_text(file.read_text().replace("packages:\n", RETIRED))
    return made


def test_retired_names_are_found_by_search_alone(retiring: AppDir) -> None:
    (row,) = prototype.search(retiring, "perl").prototypes
    assert (row.name, row.full_name, row.retired, row.installed) == ("perl", "ours/perl", True, False)
    assert row.summary == "retired: nobody writes it; use `web`"
    assert [row.name for row in prototype.list_all(retiring).prototypes] == ["web"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda app: prototype.describe(app, "cgi"),
        lambda app: prototype.matching(app, "cgi"),
        lambda app: prototype.preview(app, Wanted(prototype="cgi")),
        lambda app: component.generate(app, Wanted(prototype="cgi", name="x")),
        lambda app: package.install(app, "ours/cgi"),
        lambda app: package.install(app, "ours/cgi@1.0"),
        lambda app: package.describe(app, "ours/cgi"),
    ],
    ids=["describe", "list", "preview", "generate", "install", "install-version", "package"],
)
def test_a_retired_name_stops_with_what_to_do_instead(
    retiring: AppDir, ask: Callable[[AppDir], object]
) -> None:
    with pytest.raises(NotFoundError) as caught:
        ask(retiring)
    assert caught.value.describe() == "error: `cgi` is retired: nobody writes it\nhint: use `web`"
