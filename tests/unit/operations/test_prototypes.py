"""Prototypes and components: found, described, previewed, generated as references, removed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.components import ComponentRequest
from mlstack.errors import MlstackError, NotFoundError
from mlstack.operations import app, components, packages, registries
from mlstack.operations.components import generate
from tests.support.builders import read_tree, write_tree
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import small_app


@pytest.fixture
def app_dir(tmp_path: Path) -> AppDir:
    return small_app(tmp_path)


def test_list_names_prototype_and_package(app_dir: AppDir) -> None:
    (row,) = packages.list_prototypes(app_dir).prototypes
    assert (row.name, row.package, row.full_name, row.installed) == (
        "web",
        "ours/tools@1.2.0",
        "ours/tools/web",
        True,
    )


@pytest.mark.parametrize("name", ["web", "we", "old-web", "tools"])
def test_matching_finds_names_aliases_and_packages(app_dir: AppDir, name: str) -> None:
    assert [row.name for row in packages.matching_prototypes(app_dir, name).prototypes] == ["web"]


@pytest.mark.slow
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
    app_dir = AppDir(tmp_path)
    packages.install_packages(app_dir, ["kubeflow/core"])
    packages.install_packages(app_dir, ["kubeflow/tf-job"])
    matches = packages.matching_prototypes(app_dir, name)
    assert [row.name for row in matches.prototypes] == described
    assert [row.name for row in matches.others] == others


def test_without_packages_the_next_step_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        packages.matching_prototypes(small_app(tmp_path, installed=False), "web")
    assert "mlstack pkg install" in str(caught.value.hint)


def test_description_says_all_of_a_parameter(app_dir: AppDir) -> None:
    rows = {row.name: row for row in packages.describe_prototype(app_dir, "web").parameters}
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


RETIRED = """\
retired:
- {names: [cgi, perl], reason: nobody writes it, instead: use `web`}
packages:
"""


@pytest.fixture
def retiring(app_dir: AppDir) -> AppDir:
    """An app whose registry retired two names."""
    folder = app_dir.root.parent / "registry"
    registries.index_registry(folder)
    file = folder / "registry.yaml"
    file.write_text(file.read_text().replace("packages:\n", RETIRED))
    return app_dir


def test_retired_names_are_found_by_search_alone(retiring: AppDir) -> None:
    (row,) = packages.search_prototypes(retiring, "perl").prototypes
    assert (row.name, row.full_name, row.retired, row.installed) == ("perl", "ours/perl", True, False)
    assert row.summary == "retired: nobody writes it; use `web`"
    assert [row.name for row in packages.list_prototypes(retiring).prototypes] == ["web"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda app: packages.describe_prototype(app, "cgi"),
        lambda app: packages.matching_prototypes(app, "cgi"),
        lambda app: components.preview_prototype(app, ComponentRequest(prototype="cgi")),
        lambda app: components.generate(app, ComponentRequest(prototype="cgi", name="x")),
        lambda app: packages.install_packages(app, ["ours/cgi"]),
        lambda app: packages.install_packages(app, ["ours/cgi@1.0"]),
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


def wanted(name: str | None = "front", **texts: str | None) -> ComponentRequest:
    return ComponentRequest(prototype="web", name=name, texts={"image": "nginx", **texts})


def content(app_dir: AppDir, file: str = "components/front.yaml") -> str:
    return (app_dir.root / file).read_text()


def test_name_of_the_component_is_not_written_twice(app_dir: AppDir) -> None:
    generate(app_dir, ComponentRequest(prototype="web", name="front", texts={"name": "front", "image": "x"}))
    assert "name: front" not in content(app_dir)


def test_component_takes_its_name_from_the_parameter(app_dir: AppDir) -> None:
    assert (
        generate(app_dir, ComponentRequest(prototype="web", texts={"name": "front", "image": "x"})).name
        == "front"
    )


def test_another_object_name_is_kept(app_dir: AppDir) -> None:
    generate(app_dir, ComponentRequest(prototype="web", name="front", texts={"name": "other", "image": "x"}))
    assert "  name: other\n" in content(app_dir)


@pytest.mark.parametrize(
    ("texts", "params"),
    [({}, "replicas: 2\n  color: red"), ({"replicas": "3", "color": "green"}, "replicas: 3\n  color: green")],
    ids=["as-it-is", "options-win"],
)
def test_what_an_alias_sets_is_written_below_what_was_given(
    app_dir: AppDir, texts: dict[str, str], params: str
) -> None:
    result = generate(
        app_dir, ComponentRequest(prototype="red-pair", name="front", texts={"image": "x", **texts})
    )
    assert result.prototype == "ours/tools/web"
    assert content(app_dir).endswith(f"prototype: ours/tools/web\nparams:\n  {params}\n  image: x\n")


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("old-web", "`old-web` is prototype `web`"),
        ("ours/tools/red-pair", "`red-pair` is prototype `web` with `replicas: 2` and `color: red`"),
    ],
)
def test_an_alias_says_which_prototype_it_is(app_dir: AppDir, name: str, note: str) -> None:
    result = generate(app_dir, ComponentRequest(prototype=name, name="front", texts={"image": "x"}))
    assert result.notes[0] == note


@pytest.mark.parametrize("name", ["web", "ours/tools/web", "io.ksonnet.pkg.web"])
def test_a_prototypes_own_name_needs_no_note(app_dir: AppDir, name: str) -> None:
    result = generate(app_dir, ComponentRequest(prototype=name, name="front", texts={"image": "x"}))
    assert result.notes == ("Look at it with a browser.",)


def test_list_knows_prototypes_and_manifests(app_dir: AppDir) -> None:
    generate(app_dir, wanted())
    (app_dir.root / "components/plain.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n")
    rows = components.list_components(AppDir(app_dir.root)).components
    assert [(row.name, row.type, row.prototype, row.package) for row in rows] == [
        ("front", "prototype", "web", "ours/tools@1.2.0"),
        ("plain", "manifest", None, None),
    ]


def test_a_removal_that_a_wrong_file_ends_removes_nothing(app_dir: AppDir) -> None:
    app.add_environment(app_dir, "gke", kubeconfig=KUBECONFIG, use_preset=False)
    generate(app_dir, wanted())
    write_tree(
        app_dir.root,
        {
            "environments/gke/params.yaml": "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\n"
            "components:\n  front:\n    replicas: 2\n",
            "environments/gke/params.sops.yaml": "components: {token: 'ENC[AES256_GCM,data:eQ==,type:str]'}\n"
            "sops: {mac: 'ENC[AES256_GCM,data:eg==,type:str]'}\n",
        },
    )
    before = read_tree(app_dir.root)
    with pytest.raises(MlstackError, match="token"):
        components.remove_component(AppDir(app_dir.root), "front")
    assert read_tree(app_dir.root) == before
