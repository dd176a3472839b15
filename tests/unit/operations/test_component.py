"""Components: generated as references, listed, removed with everything that speaks of them."""

from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.draft import ComponentRequest
from mlstack.errors import MlstackError, NotFoundError, ParamError, UsageError
from mlstack.operations import app, prototypes
from mlstack.operations.prototypes import generate
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import small_app


@pytest.fixture
def made(tmp_path: Path) -> AppDir:
    return small_app(tmp_path)


def wanted(name: str | None = "front", **texts: str | None) -> ComponentRequest:
    return ComponentRequest(prototype="web", name=name, texts={"image": "nginx", **texts})


def content(made: AppDir, file: str = "components/front.yaml") -> str:
    return (made.root / file).read_text()


def test_component_is_a_reference_with_the_given_values_alone(made: AppDir) -> None:
    result = generate(made, wanted(replicas="2"))
    assert (result.name, result.prototype, result.file) == (
        "front",
        "ours/tools/web",
        "components/front.yaml",
    )
    assert content(made) == (
        "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: ours/tools/web\n"
        "params:\n  image: nginx\n  replicas: 2\n"
    )


def test_name_of_the_component_is_not_written_twice(made: AppDir) -> None:
    generate(made, ComponentRequest(prototype="web", name="front", texts={"name": "front", "image": "x"}))
    assert "name: front" not in content(made)


def test_component_takes_its_name_from_the_parameter(made: AppDir) -> None:
    assert (
        generate(made, ComponentRequest(prototype="web", texts={"name": "front", "image": "x"})).name
        == "front"
    )


def test_another_object_name_is_kept(made: AppDir) -> None:
    generate(made, ComponentRequest(prototype="web", name="front", texts={"name": "other", "image": "x"}))
    assert "  name: other\n" in content(made)


@pytest.mark.parametrize(
    ("text", "value"),
    [("debug", "debug: true"), ("args", "args:\n  - a\n  - b c"), ("tags", 'tags:\n    x: "1"')],
)
def test_values_are_typed_by_the_schema(made: AppDir, text: str, value: str) -> None:
    texts = {"debug": None, "args": "a,b c", "tags": "x=1"}
    generate(made, wanted(**{text: texts[text]}))
    assert value in content(made)


def test_old_and_dashed_spellings_are_understood(made: AppDir) -> None:
    generate(made, wanted(**{"num-replicas": "3"}))
    assert "replicas: 3" in content(made)


def test_module_becomes_a_folder(made: AppDir) -> None:
    assert generate(made, wanted("shop.front")).file == "components/shop/front.yaml"
    by_option = ComponentRequest(prototype="web", name="back", module="shop/inner", texts={"image": "x"})
    assert generate(made, by_option).name == "shop.inner.back"


def test_values_file_lies_below_options(made: AppDir, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("image: caddy\nreplicas: 4\n")
    generate(
        made, ComponentRequest(prototype="web", name="front", texts={"replicas": "5"}, values_files=(file,))
    )
    assert "image: caddy\n  replicas: 5\n" in content(made)


def test_each_of_several_values_files_counts(made: AppDir, tmp_path: Path, run: Runner) -> None:
    write_tree(
        tmp_path,
        {
            "one.yaml": "image: caddy\nreplicas: 4\ntags: {team: vision, tier: web}\n",
            "two.yaml": "replicas: 5\ntags: {tier: edge}\n",
        },
    )
    files = f"--values {tmp_path}/one.yaml --values {tmp_path}/two.yaml"
    run.ok(f"--dir {made.root} generate web front {files}")
    expected = {"image": "caddy", "replicas": 5, "tags": {"team": "vision", "tier": "edge"}}
    assert AppDir(made.root).component("front").params == expected  # type: ignore[union-attr]
    assert "image: caddy" in run.ok(f"--dir {made.root} prototype preview web x {files}")


@pytest.mark.parametrize(
    ("texts", "params"),
    [({}, "replicas: 2\n  color: red"), ({"replicas": "3", "color": "green"}, "replicas: 3\n  color: green")],
    ids=["as-it-is", "options-win"],
)
def test_what_an_alias_sets_is_written_below_what_was_given(
    made: AppDir, texts: dict[str, str], params: str
) -> None:
    result = generate(
        made, ComponentRequest(prototype="red-pair", name="front", texts={"image": "x", **texts})
    )
    assert result.prototype == "ours/tools/web"
    assert content(made).endswith(f"prototype: ours/tools/web\nparams:\n  {params}\n  image: x\n")


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("old-web", "`old-web` is prototype `web`"),
        ("ours/tools/red-pair", "`red-pair` is prototype `web` with `replicas: 2` and `color: red`"),
    ],
)
def test_an_alias_says_which_prototype_it_is(made: AppDir, name: str, note: str) -> None:
    assert (
        generate(made, ComponentRequest(prototype=name, name="front", texts={"image": "x"})).notes[0] == note
    )


@pytest.mark.parametrize("name", ["web", "ours/tools/web", "io.ksonnet.pkg.web"])
def test_a_prototypes_own_name_needs_no_note(made: AppDir, name: str) -> None:
    result = generate(made, ComponentRequest(prototype=name, name="front", texts={"image": "x"}))
    assert result.notes == ("Look at it with a browser.",)


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (wanted(replicsa="1"), UsageError, "has no parameter `replicsa`"),
        (wanted(replicas="many"), ParamError, "`replicas` must be an integer"),
        (wanted(replicas="10"), ParamError, "`replicas`"),
        (wanted(color="blue"), ParamError, "`color`"),
        (wanted(color=None), UsageError, "`--color` needs a value"),
        (wanted(None), UsageError, "what is the component called"),
        (wanted("bad name"), UsageError, "cannot be a component name"),
        (ComponentRequest(prototype="web", name="front"), UsageError, "needs `image`"),
        (ComponentRequest(prototype="wbe", name="front"), NotFoundError, "wbe"),
        (
            ComponentRequest(prototype="web", name="front", values_files=(Path("/nowhere.yaml"),)),
            NotFoundError,
            "/nowhere.yaml",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value)[:40],
)
def test_wrong_requests_change_nothing(
    made: AppDir, request_: ComponentRequest, error: type[MlstackError], message: str
) -> None:
    before = read_tree(made.root)
    with pytest.raises(error) as caught:
        generate(made, request_)
    assert message in caught.value.message
    assert caught.value.hint
    assert read_tree(made.root) == before


def test_existing_component_is_replaced_on_request_only(made: AppDir) -> None:
    generate(made, wanted())
    with pytest.raises(UsageError, match="already"):
        generate(made, wanted(replicas="2"))
    assert generate(made, wanted(replicas="2"), replace=True).replaced
    assert "replicas: 2" in content(made)


def test_notes_tell_of_use_and_deprecation(made: AppDir) -> None:
    notes = generate(made, wanted(size="big")).notes
    assert "Look at it with a browser." in notes
    assert any("size" in note for note in notes)


def test_list_knows_prototypes_and_manifests(made: AppDir) -> None:
    generate(made, wanted())
    (made.root / "components/plain.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    rows = prototypes.list_components(AppDir(made.root)).components
    assert [(row.name, row.type, row.prototype, row.package) for row in rows] == [
        ("front", "prototype", "web", "ours/tools@1.2.0"),
        ("plain", "manifest", None, None),
    ]


def test_remove_leaves_no_trace_in_environments(made: AppDir) -> None:
    app.add_environment(made, "gke", kubeconfig=KUBECONFIG, use_preset=False)
    before = read_tree(made.root)
    generate(made, wanted())
    (made.root / "environments/gke/params.yaml").write_text(
        "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents:\n  front:\n    replicas: 2\n"
    )
    again = AppDir(made.root)
    result = prototypes.remove_component(again, "front")
    assert result.files == ("components/front.yaml", "environments/gke/params.yaml")
    assert "front" not in (made.root / "environments/gke/params.yaml").read_text()
    assert set(read_tree(made.root)) == {*before, "environments/gke/params.yaml"}


def test_remove_of_an_unknown_component_names_the_nearest(made: AppDir) -> None:
    generate(made, wanted())
    with pytest.raises(NotFoundError) as caught:
        prototypes.remove_component(made, "fornt")
    assert caught.value.near == "front"
