"""Components and modules that are renamed, removed and listed, row by row."""

from pathlib import Path

import pytest

from mlstack.errors import UnreachableError
from mlstack.kube.client import Cluster
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

HEAD = "apiVersion: mlstack.dev/v1\nkind: {}\n"
PARAMS = HEAD.format("EnvironmentParams") + "components:\n  front:  # ours\n    replicas: 2\n"


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    app_dir = small_app(tmp_path)
    monkeypatch.chdir(app_dir.root)
    run.play("generate web front --image nginx\nenv add dev --no-preset")
    return app_dir.root


def test_c17_a_component_never_takes_the_file_of_a_modules_parameters(run: Runner, app: Path) -> None:
    run.ok("module create shop")
    before = read_tree(app)
    ran = run("generate web shop.params --image nginx --force")
    assert (ran.code, read_tree(app)) == (2, before)
    run.ok("generate web cart --image nginx --module shop.inner")
    assert (app / "components/shop/inner/cart.yaml").is_file()


def test_c19_component_list_tells_kinds_and_modules(run: Runner, app: Path) -> None:
    run.ok("generate web shop.cart --image nginx --token x")
    rows = run("component list --kinds -o json").json["components"]
    assert [(row["name"], row["module"], row["kinds"]) for row in rows] == [
        ("front", "", ["ConfigMap"]),
        ("shop.cart", "shop", ["ConfigMap", "Secret"]),
    ]
    assert run.ok("component list --module shop -o name").split() == ["shop.cart"]
    assert "KINDS" not in run.ok("component list")
    assert run("component list --module shp").code == 4


def test_c20_component_rm_takes_every_trace_along(run: Runner, app: Path) -> None:
    before = read_tree(app / "environments")
    run.play("generate web back --image nginx\nenv set dev --target front --target back")
    write_tree(app, {"environments/dev/params.yaml": PARAMS, "environments/dev/patches/front.yaml": "a: 1\n"})
    run.ok("component rm front")
    assert b"front" not in b"".join(read_tree(app / "environments").values())
    assert sorted(read_tree(app / "environments")) == sorted([*before, "dev/params.yaml"])


def test_c20_the_last_target_never_becomes_everything(run: Runner, app: Path) -> None:
    run.play("generate web back --image nginx\nenv set dev --target front")
    before = read_tree(app)
    ran = run("component rm front")
    assert (ran.code, read_tree(app)) == (3, before)
    assert "mlstack env targets dev" in ran.err


def test_c21_component_rm_says_where_it_is_still_deployed(run: Runner, app: Path) -> None:
    run.play("generate web back --image nginx\napply dev")
    ran = run("component rm front")
    assert "warning: `front` is still deployed in `dev` (1 object); gone with: mlstack apply dev" in ran.err
    run.ok("apply dev --yes")
    assert run("component rm back -o json").json["deployed"] == [
        {"environment": "dev", "component": "back", "objects": 1}
    ]


def test_c21_a_cluster_that_does_not_answer_is_named(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.ok("apply dev")

    def connect(name: str) -> Cluster:
        raise UnreachableError(f"context `{name}` does not answer")

    monkeypatch.setattr(run, "cluster", connect)
    ran = run("component rm front")
    assert ran.code == 0
    assert "note: whether it is deployed in `dev` is not known: context `minikube` does not" in ran.err


def test_c27_modules_are_made_listed_and_nested(run: Runner, app: Path) -> None:
    run.play("module create shop\nmodule create shop/inner\nparam set --module shop image nginx:2")
    run.ok("generate web shop.inner.cart")
    rows = run("module list -o json").json["modules"]
    assert [(row["name"], row["components"], row["params"]) for row in rows] == [
        ("shop", 1, 1),
        ("shop.inner", 1, 0),
    ]
    assert "image: nginx:2" in run.ok("render dev -c shop")
    assert run("module create shop").code == 2
    assert run("module create a..b").code == 2


def test_c28_module_rm_takes_parameters_and_components_along(run: Runner, app: Path) -> None:
    before = read_tree(app)
    run.play("module create shop.inner\nparam set --module shop.inner image nginx:2")
    run.ok("generate web shop.cart --image nginx")
    ran = run("module rm shop")
    assert (ran.code, "--components" in ran.err) == (2, True)
    run.play("module rm shop.inner\nmodule rm shop --components")
    assert read_tree(app) == before
    assert run("module rm shop").code == 4


def test_c29_a_renamed_component_keeps_its_objects(run: Runner, app: Path) -> None:
    write_tree(app, {"environments/dev/params.yaml": PARAMS})
    run.play("env set dev --target front\napply dev")
    objects = run("render dev -o json").json["items"]
    ran = run("component rename front shop.page")
    assert ran.code == 0, ran.err
    assert "  shop.page:  # ours\n    replicas: 2\n" in (app / "environments/dev/params.yaml").read_text()
    assert run("render dev -o json").json["items"] == [
        {**obj, "metadata": {**obj["metadata"], "labels": {**obj["metadata"]["labels"], LABEL: "shop.page"}}}
        for obj in objects
    ]
    assert run("apply dev -c shop.page -o json --yes").json["counts"] == {"updated": 1}
    assert run("status dev -o json").json["leftOver"] == []
    assert run("apply dev -o json").json["counts"] == {"unchanged": 1}


LABEL = "mlstack.dev/component"


def test_c29_a_component_goes_by_its_new_name_before_it_is_applied(run: Runner, app: Path) -> None:
    run.play("apply dev\ncomponent rename front page")
    assert run("delete dev -c page --yes -o json").json["counts"] == {"deleted": 1}


def test_c29_renaming_there_and_back_leaves_one_entry(run: Runner, app: Path) -> None:
    run.play("component rename front page\napply dev\ncomponent rename page front")
    text = (app / "app.yaml").read_text()
    assert text.endswith("moved:\n- from: page\n  to: front\n")
    assert run("component rename front front").code == 2
    assert run("component rename nope other").code == 4
    assert run("component rename front ../x").code == 2
    assert run("delete dev -c front --yes -o json").json["counts"] == {"deleted": 1}  # applied as `page`


def test_c20_what_a_component_was_called_goes_with_it(run: Runner, app: Path) -> None:
    before = (app / "app.yaml").read_bytes()
    run.play("component rename front page\ncomponent rename page shop.page\ncomponent rm shop.page")
    assert (app / "app.yaml").read_bytes() == before
