"""What a render was made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlstack.app import app_dir
from mlstack.app.app_dir import AppDir
from mlstack.render import render
from tests.support.builders import Tree

ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\n"
SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
FILES = {"components/one.yaml": SETTINGS, "environments/gke/environment.yaml": ENVIRONMENT}


def read(root: Path, **options: object) -> dict[str, str]:
    app = AppDir.find(root)
    render.load(app, "gke", **options)  # type: ignore[arg-type]
    return app_dir.digests(app)


def test_every_file_that_was_read_is_named(app: Callable[[Tree], Path]) -> None:
    found = read(app(FILES))
    assert {"app.yaml", "components/one.yaml", "environments/gke/environment.yaml"} <= found.keys()
    assert found["environments/gke/params.yaml"] == ""


def test_what_was_not_selected_does_not_count(app: Callable[[Tree], Path]) -> None:
    root = app({**FILES, "components/two.yaml": SETTINGS.replace("settings", "two")})
    assert "components/two.yaml" not in read(root, components=["one"])
    assert "components/two.yaml" in read(root)


def test_a_file_that_comes_later_is_a_difference(app: Callable[[Tree], Path]) -> None:
    root = app(FILES)
    before = read(root)
    (root / "environments/gke/params.yaml").write_text(
        "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\n"
    )
    after = read(root)
    assert {name for name in after if after[name] != before.get(name)} == {"environments/gke/params.yaml"}


def test_the_bound_cluster_is_no_input(app: Callable[[Tree], Path]) -> None:
    root = app(FILES)
    before = read(root)
    file = root / "environments/gke/environment.yaml"
    file.write_text(ENVIRONMENT + "cluster: {uid: abc}\n")
    assert read(root) == before
    file.write_text(ENVIRONMENT + "namespace: other\n")
    assert read(root) != before
