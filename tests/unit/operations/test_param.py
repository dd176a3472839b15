"""Parameters at every level: set, taken back, listed, compared."""

from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.params import ParamScope
from mlstack.errors import MlstackError, NotFoundError, ParamError, UsageError
from mlstack.objects.masking import MASK
from mlstack.operations import app as env
from mlstack.operations import params
from tests.support.builders import read_tree
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import generate, small_app


@pytest.fixture
def made(tmp_path: Path) -> AppDir:
    app = small_app(tmp_path)
    for name in ("gke", "minikube"):
        env.add_environment(app, name, kubeconfig=KUBECONFIG, context=name, use_preset=False)
    generate(app)
    generate(app, "shop.cart")
    return app


PLACES = {
    "app": (ParamScope(), "app.yaml", "the whole app"),
    "module": (ParamScope(module="shop"), "components/shop/params.yaml", "module shop"),
    "component": (ParamScope(component="shop.cart"), "components/shop/cart.yaml", "shop.cart"),
    "globals": (ParamScope(environment="gke"), "environments/gke/params.yaml", "all components in gke"),
    "environment": (
        ParamScope(component="shop.cart", environment="gke"),
        "environments/gke/params.yaml",
        "shop.cart in gke",
    ),
}


@pytest.mark.parametrize("level", PLACES)
def test_set_counts_at_every_level_and_unset_takes_it_back(made: AppDir, level: str) -> None:
    place, file, said = PLACES[level]
    before = read_tree(made.root)
    result = params.set_param(made, place, "replicas", "7")
    assert (result.value, result.file, result.place, result.changed) == (7, file, said, True)
    (row,) = (
        r
        for r in params.list_params(made, component="shop.cart", environment="gke").rows
        if r.name == "replicas"
    )
    assert (row.value, row.origin.partition(":")[0]) == (7, file)
    assert params.unset_param(made, place, "replicas").file == file
    after = params.list_params(made, component="shop.cart", environment="gke").rows
    assert next(r.level for r in after if r.name == "replicas") == "default"
    assert {name for name in read_tree(made.root)} >= set(before)


def test_new_values_read_as_a_person_would_write_them(tmp_path: Path) -> None:
    made = small_app(tmp_path)
    generate(made)
    env.add_environment(made, "minikube", kubeconfig=KUBECONFIG)
    file = made.root / "environments/minikube/params.yaml"
    before = file.read_text()
    params.set_param(made, ParamScope(component="front", environment="minikube"), "replicas", "1")
    params.set_param(made, ParamScope(component="front", environment="minikube"), "args", "a,b")
    assert file.read_text() == (
        f"{before}components:\n  front:\n    replicas: 1\n    args:\n    - a\n    - b\n"
    )


def test_setting_the_same_value_again_changes_nothing(made: AppDir) -> None:
    place = ParamScope(component="front")
    params.set_param(made, place, "replicas", "2")
    before = read_tree(made.root)
    assert not params.set_param(made, place, "replicas", "2").changed
    assert read_tree(made.root) == before


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("image", "-1", "-1"),
        ("image", "--steps=9", "--steps=9"),
        ("image", "yes", "yes"),
        ("args", "--a,--b", ["--a", "--b"]),
        ("args", '["x y", "z"]', ["x y", "z"]),
        ("tags", "a=b,c=d", {"a": "b", "c": "d"}),
        ("tags.team", "ml", "ml"),
        ("debug", "true", True),
        ("num_replicas", "3", 3),
        ("num-replicas", "3", 3),
    ],
)
def test_text_is_typed_by_the_schema(made: AppDir, key: str, text: str, value: object) -> None:
    assert params.set_param(made, ParamScope(component="front"), key, text).value == value


def test_as_string_keeps_the_text(made: AppDir) -> None:
    assert params.set_param(made, ParamScope(component="front"), "tags.a", "1", as_string=True).value == "1"


@pytest.mark.parametrize(
    ("place", "key", "error"),
    [
        ({"component": "fornt"}, "replicas", NotFoundError),
        ({}, "replicsa", NotFoundError),
        ({"component": "front"}, "a..b", UsageError),
        ({"component": "front", "module": "shop"}, "replicas", UsageError),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(
    made: AppDir, place: dict[str, str], key: str, error: type[MlstackError]
) -> None:
    before = read_tree(made.root)
    with pytest.raises(error) as caught:
        params.set_param(made, ParamScope(**place), key, "1")
    assert caught.value.hint
    assert read_tree(made.root) == before


@pytest.mark.parametrize(
    "place", [ParamScope(component="front"), ParamScope(environment="gke"), ParamScope()], ids=str
)
def test_hint_names_the_prototype_that_declares_the_parameter(made: AppDir, place: ParamScope) -> None:
    with pytest.raises(ParamError) as caught:
        params.set_param(made, place, "replicas", "two")
    assert caught.value.hint == "mlstack prototype describe web"


def test_manifest_has_no_parameters(made: AppDir) -> None:
    (made.root / "components/plain.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    with pytest.raises(UsageError, match="plain manifest"):
        params.set_param(AppDir(made.root), ParamScope(component="plain"), "replicas", "1")


def test_a_value_that_an_environment_overrides_is_noted(made: AppDir) -> None:
    params.set_param(made, ParamScope(component="front", environment="gke"), "replicas", "3")
    (note,) = params.set_param(made, ParamScope(component="front"), "replicas", "2").notes
    assert "`gke`" in note
    assert "environments/gke/params.yaml" in note


def test_unset_says_what_counts_now_and_when_nothing_was_set(made: AppDir) -> None:
    params.set_param(made, ParamScope(component="front"), "replicas", "2")
    (note,) = params.unset_param(made, ParamScope(component="front"), "replicas").notes
    assert "prototype ours/tools/web" in note
    with pytest.raises(NotFoundError, match="not set for front"):
        params.unset_param(made, ParamScope(component="front"), "replicas")


def test_secrets_are_masked_everywhere(made: AppDir) -> None:
    result = params.set_param(made, ParamScope(component="front", environment="gke"), "token", "s3cret")
    assert result.value == MASK
    rows = params.list_params(made, environment="gke").rows
    assert [row.value for row in rows if row.name == "token"] == [MASK]
    differences = params.diff_params(made, "gke", "minikube").rows
    assert [(row.name, row.first, row.second) for row in differences] == [("token", MASK, None)]


def test_list_can_leave_out_defaults_and_other_components(made: AppDir) -> None:
    rows = params.list_params(made, component="front", set_only=True).rows
    assert [(row.component, row.name, row.value) for row in rows] == [("front", "image", "nginx")]
    rows = params.list_params(made, module="shop", set_only=True).rows
    assert {row.component for row in rows} == {"shop.cart"}


def test_diff_shows_what_differs_alone(made: AppDir) -> None:
    params.set_param(made, ParamScope(environment="gke"), "color", "green")
    params.set_param(made, ParamScope(component="front", environment="minikube"), "replicas", "0")
    rows = params.diff_params(made, "minikube", "gke").rows
    assert [(row.component, row.name, row.first, row.second) for row in rows] == [
        ("front", "replicas", 0, 1),
        ("front", "color", "red", "green"),
        ("shop.cart", "color", "red", "green"),
    ]
    assert params.diff_params(made, "minikube", "gke", components=["shop"]).rows == rows[2:]


def test_list_notes_a_global_that_no_prototype_declares(made: AppDir) -> None:
    file = made.root / "app.yaml"
    file.write_text(file.read_text() + "params: {replicsa: 2}\n")
    made.forget()
    line = file.read_text().count("\n")
    (note,) = params.list_params(made).notes
    assert note == f"no installed prototype declares `replicsa` (app.yaml:{line}); did you mean `replicas`?"
